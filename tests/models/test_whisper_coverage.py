"""Whether a text covers its audio; and real speech of which the decoder, left to itself, loses half."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from realtime_server.core.jobs import Decoded, DecodingOptions, Finish, Samples
from realtime_server.core.segments import HOP, SAMPLE_RATE, Word, to_ms
from realtime_server.core.stabilization import letters
from realtime_server.models.whisper_coverage import (
    THIN_PER_S,
    gaps,
    joined,
    parts,
    says_more,
    usual_tokens,
    voiced,
)
from tests.audio import silence, tone
from tests.models.whisper import clip, job, network, reading

CLIPS = ("en/counting", "en/hello_world", "en/quick_brown_fox")


def said(start_s: float, end_s: float) -> Word:
    return Word("word", round(1000 * start_s), round(1000 * end_s))


def seconds_of(lost: list[tuple[int, int]]) -> list[tuple[float, float]]:
    return [(start / SAMPLE_RATE, end / SAMPLE_RATE) for start, end in lost]


def test_sound_is_what_is_within_thirty_decibels_of_the_loud() -> None:
    audio = np.concatenate(
        [tone(1.0), silence(1.0), tone(1.0) * np.float32(0.1), tone(1.0) * np.float32(0.01)]
    )
    sound = voiced(audio)
    assert [sound[at : at + 80].mean() for at in (10, 110, 210, 310)] == [1, 0, 1, 0]
    assert not voiced(silence(1.0)).any()


@pytest.mark.parametrize("samples", [0, HOP - 1, HOP, 4 * HOP])
def test_a_moment_holds_no_sound(samples: int) -> None:
    assert not voiced(tone(1.0)[:samples]).any()
    assert len(voiced(tone(1.0)[:samples])) == samples // HOP


def test_little_sound_needs_no_tokens_and_pauses_need_none() -> None:
    assert usual_tokens(np.ones(200, np.bool_)) == 0
    assert usual_tokens(np.ones(201, np.bool_)) == pytest.approx(THIN_PER_S * 2.01)
    assert usual_tokens(np.repeat([True, False], 400)) == pytest.approx(THIN_PER_S * 4)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([said(0.5, 4), said(5.9, 9.0)], []),
        ([said(0.5, 4), said(6.1, 9.0)], [(4, 6.1)]),
        ([said(2.5, 9.5)], [(0, 2.5)]),
        ([said(0.0, 7.5)], [(7.5, 10)]),
        ([said(3.0, 4.0)], [(0, 3), (4, 10)]),
        ([], [(0, 10)]),
    ],
)  # fmt: skip
def test_gaps_are_long_stretches_of_sound_without_words(
    words: list[Word], expected: list[tuple[float, float]]
) -> None:
    assert seconds_of(gaps(words, np.ones(1000, np.bool_))) == expected
    assert gaps(words, np.zeros(1000, np.bool_)) == []


def test_a_pause_is_no_gap() -> None:
    sound = np.repeat([True, False, True], (400, 300, 300))
    assert gaps([said(0, 3.5), said(7.5, 10)], sound) == []


def test_audio_is_cut_in_the_pause_near_a_gap() -> None:
    audio = np.concatenate([tone(4.0), silence(0.5), tone(5.5)])
    first, second = parts(audio, [(round(5.2 * SAMPLE_RATE), len(audio))])
    assert (first[0], second[1]) == (0, len(audio))
    assert first[1] == second[0]
    assert 4.0 <= first[1] / SAMPLE_RATE <= 4.5


def test_a_hole_makes_three_parts() -> None:
    audio = np.concatenate([tone(4.0), silence(0.5), tone(4.0), silence(0.5), tone(4.0)])
    cuts = [end / SAMPLE_RATE for _, end in parts(audio, [(4 * SAMPLE_RATE, 9 * SAMPLE_RATE)])]
    assert len(cuts) == 3
    assert 4.0 <= cuts[0] <= 4.5
    assert 8.5 <= cuts[1] <= 9.0


def test_what_is_all_gap_or_too_short_for_two_stays_whole() -> None:
    assert parts(tone(10.0), [(0, 10 * SAMPLE_RATE)]) == [(0, 10 * SAMPLE_RATE)]
    assert parts(tone(1.9), [(0, SAMPLE_RATE)]) == [(0, round(1.9 * SAMPLE_RATE))]


def test_more_is_counted_in_letters() -> None:
    assert says_more("One, two, three.", "One, two")
    assert not says_more("One, two!", "one two")
    assert not says_more("", "one")


def test_answers_are_joined_with_their_words_in_order() -> None:
    one = Decoded("Yes.", words=(said(0.2, 0.5),), token_logprobs=(-0.1,), language="en")
    two = Decoded("你好。", words=(said(0.1, 0.4),), token_logprobs=(-0.2, -0.3), language="zh")
    answer = joined([one, two], [(0, SAMPLE_RATE), (SAMPLE_RATE, 3 * SAMPLE_RATE)])
    assert answer.text == "Yes.你好。"
    assert answer.words == (said(0.2, 0.5), said(1.1, 1.4))
    assert answer.token_logprobs == (-0.1, -0.2, -0.3)
    assert (answer.language, answer.finish) == ("en", "stop")
    bare = joined([replace(one, words=None, token_logprobs=None)], [(0, SAMPLE_RATE)])
    assert (bare.words, bare.token_logprobs) == (None, None)


@pytest.mark.parametrize(
    ("text", "finish", "expected"),
    [("", "gated", "stop"), ("", "stop", "length"), ("Well", "length", "length"), ("Well", "stop", "stop")],
)
def test_a_part_that_is_speech_and_says_nothing_is_told(text: str, finish: Finish, expected: Finish) -> None:
    answers = [Decoded("Yes."), Decoded(text, finish=finish)]
    assert joined(answers, [(0, SAMPLE_RATE), (SAMPLE_RATE, 2 * SAMPLE_RATE)]).finish == expected


def splice(start_s: int, pause_s: float, *, reading_first: bool) -> tuple[Samples, Samples, Samples]:
    """Ten seconds of the reading, the clips, and both with a pause between."""
    one, two = reading(start_s, start_s + 10), np.concatenate([clip(name) for name in CLIPS])
    order = (one, silence(pause_s), two) if reading_first else (two, silence(pause_s), one)
    return one, two, np.concatenate([*order, silence(0.2)])


def decode(audio: Samples, *, words: bool = False) -> Decoded:
    (answer,) = network().recognise([job(audio, DecodingOptions(language="en", words=words))])
    assert answer is not None
    return answer


@cache
def alone(start_s: int) -> tuple[int, int]:
    """Letters of the reading and of the clips, each decoded by itself."""
    one, two, _ = splice(start_s, 0.0, reading_first=True)
    return len(letters(decode(one).text)), len(letters(decode(two).text))


@pytest.mark.embedded
@pytest.mark.parametrize("reading_first", [True, False])
@pytest.mark.parametrize("pause_s", [0.4, 0.8, 1.2, 1.6, 1.9])
@pytest.mark.parametrize("start_s", [0, 9, 24])
def test_no_voice_is_lost_beside_another(start_s: int, pause_s: float, reading_first: bool) -> None:
    _, _, both = splice(start_s, pause_s, reading_first=reading_first)
    heard = decode(both)
    assert "quick brown fox" in heard.text
    assert "hello world" in heard.text.lower()
    of_reading, of_clips = alone(start_s)
    # The clips count to ten, which is 40 letters or 11 digits.
    assert len(letters(heard.text)) - of_clips >= 0.75 * of_reading - 30, heard
    assert heard.finish == "stop"


@pytest.mark.embedded
def test_word_times_of_parts_are_those_of_the_whole() -> None:
    _, two, both = splice(0, 1.2, reading_first=True)
    answer = decode(both, words=True)
    assert answer.words is not None
    assert " ".join(word.text for word in answer.words) == answer.text
    times = [time for word in answer.words for time in (word.start_ms, word.end_ms)]
    assert times == sorted(times)
    assert times[-1] <= to_ms(len(both))
    fox = next(word for word in answer.words if word.text == "fox")
    (alone,) = (word for word in decode(two, words=True).words or () if word.text == "fox")
    assert fox.start_ms - alone.start_ms == pytest.approx(11_200, abs=150)


@pytest.mark.embedded
def test_a_partial_is_not_decoded_twice(caplog: pytest.LogCaptureFixture) -> None:
    _, _, both = splice(0, 1.2, reading_first=True)
    caplog.set_level("INFO")
    network().recognise([job(both, DecodingOptions(language="en"), kind="partial")])
    assert "leaves some out" not in caplog.text
    decode(both)
    assert "leaves some out" in caplog.text


@pytest.mark.embedded
def test_what_cannot_be_understood_is_told_and_adds_no_words() -> None:
    """A reading backwards is speech to the recognizer, and no words."""
    first = reading(0.0, 8.4)
    answer = decode(np.concatenate([first, silence(0.3), reading(24.0, 32.0)[::-1]]))
    assert answer.text.startswith(decode(first).text[:60])
    assert answer.finish == "length"
