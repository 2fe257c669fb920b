"""Lists of recordings, and how texts are compared."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from benchmarks import corpus
from benchmarks.corpus import Spoken
from realtime_server.bench.speech import find_speech
from realtime_server.errors import ConfigurationError
from realtime_server.offline.recording import BLOCK, Recording, to_pcm16
from tests.audio import silence, tone

LIST = """\
file\tseconds\ttranscript_or_truth
en/one.wav\t1.0\tIt's one.
zh/two.flac\t2.0\t你好。
noise/three.wav\t3.0\t[no speech]
en/four.json\t\twords
en/five.wav\t\t
"""


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "list.tsv"
    path.write_text(LIST, encoding="utf-8")
    return path


def test_a_list_with_names_gives_the_recordings_with_a_text(manifest: Path) -> None:
    assert corpus.read_list(manifest) == [
        Spoken(manifest.parent / "en/one.wav", "It's one."),
        Spoken(manifest.parent / "zh/two.flac", "你好。"),
    ]
    assert [each.path.name for each in corpus.read_list(manifest, ["zh/", "mixed/"])] == ["two.flac"]


def test_a_list_without_names_has_the_file_first_and_the_text_second(tmp_path: Path) -> None:
    path = tmp_path / "list.tsv"
    path.write_text("a.wav\tone\nb.mp3\ttwo\textra\n\n", encoding="utf-8")
    assert [each.text for each in corpus.read_list(path)] == ["one", "two"]


@pytest.mark.parametrize("only", [["de/"], ["noise/"]])
def test_a_list_without_any_recording_is_refused(manifest: Path, only: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="no recording with a text"):
        corpus.read_list(manifest, only)
    with pytest.raises(ConfigurationError, match="--files"):
        corpus.read_list(manifest.with_name("missing.tsv"))


def spoken(*texts: str) -> list[Spoken]:
    return [Spoken(Path("x.wav"), text) for text in texts]


def test_spelling_is_no_error() -> None:
    rates = corpus.judge(spoken("It's twenty one, uh, OKAY?", "一二三。"), ["it is 21 okay", "123"])
    assert (rates.cer, rates.wer) == (0, 0)


def test_errors_count_over_all_texts_together() -> None:
    rates = corpus.judge(spoken("far far far far away now", "你好世界"), ["far far far far away", "你好世"])
    assert rates.wer == pytest.approx(100 / 6)
    assert rates.cer == pytest.approx(100 * (3 + 1) / (19 + 4))


def test_nothing_to_compare_has_no_rate() -> None:
    rates = corpus.judge(spoken("你好"), ["你好"])
    assert rates.cer == 0
    assert math.isnan(rates.wer)


def test_texts_in_words_are_told_from_others() -> None:
    assert [each.in_words for each in spoken("one", "été", "Это", "你好", "こんにちは", "안녕", "one 二")] == [
        True, True, True, False, False, False, False,
    ]  # fmt: skip


def recording(seconds: float) -> Recording:
    made = Recording()
    made.append(to_pcm16(tone(seconds)))
    return made


def test_every_pause_is_as_long_as_is_drawn_for_it_and_nothing_is_lost() -> None:
    talk, other = Recording(), Recording()
    talk.append(to_pcm16(np.concatenate([silence(0.2), tone(1.0), silence(0.6), tone(2.0), silence(0.3)])))
    other.append(to_pcm16(tone(3.0)))
    known = list(zip(spoken("one two", "three"), [talk, other], strict=True))
    text, audio = corpus.with_pauses(known, (0.9, 1.9), 30.0)
    assert text.text.split() == ["one", "two", "three"] * 3
    spells = find_speech(audio.read(0, len(audio)))
    assert [round((end - start) / 1000) for start, end in spells] == [1, 2, 3] * 3
    pauses_ms = [start - end for (_, end), (start, _) in pairwise([(0, 0), *spells])]
    assert all(850 < pause < 1950 for pause in pauses_ms)
    assert max(pauses_ms) - min(pauses_ms) > 500
    again = corpus.with_pauses(known, (0.9, 1.9), 30.0)[1]
    assert np.array_equal(again.read(0, len(again)), audio.read(0, len(audio)))


def test_a_recording_without_speech_is_left_as_it_is() -> None:
    empty = Recording()
    empty.append(to_pcm16(silence(2.0)))
    text, audio = corpus.with_pauses([(Spoken(Path("x.wav"), "none"), empty)], (0.9, 1.9), 3.0)
    assert (text.text, audio.seconds) == ("none none", 4.0)


def test_recordings_are_repeated_to_the_sample() -> None:
    audio = corpus.repeated([recording(2.0), recording(0.5)], 130.0)
    assert audio.seconds == 130.0
    copy = corpus.part(audio, BLOCK - 5, BLOCK + 16_000)
    assert np.array_equal(copy.read(0, len(copy)), audio.read(BLOCK - 5, BLOCK + 16_000))
