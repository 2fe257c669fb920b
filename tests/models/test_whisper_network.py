"""The real network on real speech, and on what is none."""

from __future__ import annotations

import logging
from pathlib import Path

import jiwer
import numpy as np
import pytest
from whisper_normalizer.english import EnglishTextNormalizer

from realtime_server.core.jobs import Decoded, DecodeKind, DecodingOptions, Samples
from realtime_server.core.segments import SAMPLE_RATE, to_ms
from realtime_server.errors import WeightsError
from realtime_server.models.whisper_network import FILES, WhisperNetwork
from tests.audio import silence
from tests.models.whisper import clip, folder, job, network, read, reading

pytestmark = pytest.mark.embedded

ENGLISH = DecodingOptions(language="en")
TIMES = (0.0, 8.4)  # of the reading: the first sentences
DICKENS = (
    (0.0, 8.4, "It was the best of times, it was the worst of times, it was the age of wisdom, "
     "it was the age of foolishness"),
    (8.4, 24.1, "it was the epoch of belief, it was the epoch of incredulity, it was the season of light, it was the "
     "season of darkness, it was the spring of hope, it was the winter of despair, we had everything before us, "
     "we had nothing before us"),
    (24.1, 28.5, "we were all going direct to heaven, we were all going direct the other way"),
    (28.5, 42.2, "in short, the period was so far like the present period, that some of its noisiest authorities "
     "insisted on its being received, for good or for evil, in the superlative degree of comparison only"),
)  # fmt: skip


def decode(audio: Samples, options: DecodingOptions = ENGLISH, kind: DecodeKind = "final") -> Decoded:
    (answer,) = network().recognise([job(audio, options, kind=kind)])
    assert answer is not None
    return answer


def noise(seconds: float, level: float) -> Samples:
    return np.random.default_rng(1).normal(0, level, round(seconds * SAMPLE_RATE)).astype(np.float32)


def hum(seconds: float, level: float) -> Samples:
    """Mains hum: 50 Hz and its harmonics."""
    times = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    return np.float32(level) * sum(np.sin(2 * np.pi * 50 * n * times) / n for n in range(1, 6)).astype(
        np.float32
    )


def test_english_is_read_right_in_every_context() -> None:
    normal = EnglishTextNormalizer()
    said = [normal(text) for _, _, text in DICKENS]
    heard = [normal(decode(reading(start, end)).text) for start, end, _ in DICKENS]
    assert jiwer.wer(said, heard) <= 0.04, heard


def test_thirty_seconds_in_one_piece() -> None:
    answer = decode(reading(0.0, 30.0))
    assert "best of times" in answer.text
    assert "winter of despair" in answer.text
    assert answer.finish == "stop"


@pytest.mark.parametrize(("name", "language"), [("en/hello_world", "en"), ("zh/nihao_shijie", "zh")])
def test_the_language_is_detected(name: str, language: str) -> None:
    assert decode(clip(name), DecodingOptions()).language == language


def begin(name: str, seconds: float) -> Samples:
    return clip(name)[: round(seconds * SAMPLE_RATE)]


def test_a_partial_of_too_little_to_tell_the_language_says_nothing() -> None:
    brief = begin("zh/jishu", 0.7)
    assert decode(brief, DecodingOptions(), "final").text
    unsure = decode(brief, DecodingOptions(), "partial")
    assert (unsure.text, unsure.finish) == ("", "gated")
    assert decode(brief, DecodingOptions(language="zh"), "partial").text
    assert decode(begin("zh/jishu", 1.36), DecodingOptions(), "partial").language == "zh"
    clear = reading(0.5, 1.7)
    together = network().recognise(
        [job(audio, DecodingOptions(), kind="partial") for audio in (brief, clear)]
    )
    assert together == [unsure, decode(clear, DecodingOptions(), "partial")]
    assert together[1] != unsure


def test_the_language_before_helps_in_doubt_and_another_one_is_still_heard() -> None:
    expecting = decode(begin("zh/jishu", 0.7), DecodingOptions(expected="zh"), "partial")
    assert expecting.language == "zh"
    assert expecting.text
    for name, language, before in (("zh/nihao_shijie", "zh", "en"), ("en/hello_world", "en", "zh")):
        assert decode(clip(name), DecodingOptions(expected=before), "partial").language == language


@pytest.mark.parametrize(
    ("name", "text"),
    [("nihao_shijie", "你好世界。"), ("pangrama", "天地玄黄"), ("jishu", "一二三四五六七八九十")],
)
def test_mandarin_comes_in_simplified_characters(name: str, text: str) -> None:
    heard = decode(clip(f"zh/{name}"), DecodingOptions(language="zh")).text
    digits = str.maketrans("123456789", "一二三四五六七八九")
    assert jiwer.cer(text, heard.replace("10", "十").translate(digits)[: len(text)]) <= 0.4, heard
    assert not set(heard) & set("黃發開這個說為時")


def test_translation_to_english() -> None:
    answer = decode(clip("zh/nihao_shijie"), DecodingOptions(language="zh", task="translate"))
    assert "world" in answer.text.lower()


def test_eager_and_final_are_the_same() -> None:
    audio = reading(*TIMES)
    assert decode(audio, kind="eager") == decode(audio, kind="final")


def test_company_changes_nothing() -> None:
    windows = [reading(start, start + length) for start in (0.5, 25.0) for length in (1.2, 4.0, 8.0)]
    options = [
        ENGLISH,
        DecodingOptions(),
        DecodingOptions(language="zh"),
        DecodingOptions(language="en", words=True),
    ]
    jobs = [job(audio, options[n % 4], kind="partial") for n, audio in enumerate([*windows, silence(1.0)])]
    alone = [network().recognise([one])[0] for one in jobs]
    for size in (2, len(jobs)):
        together = [
            answer for at in range(0, len(jobs), size) for answer in network().recognise(jobs[at : at + size])
        ]
        assert together == alone


def test_what_is_not_wanted_is_not_worked_on() -> None:
    jobs = [job(reading(24.1, 28.5), ENGLISH) for _ in range(3)]
    answers = network().recognise(jobs, lambda one: one is not jobs[1])
    assert answers[1] is None
    assert answers[0] == answers[2]
    asked = iter([True, False])  # given up while it is encoded
    assert network().recognise(jobs[:1], lambda _: next(asked)) == [None]


@pytest.mark.parametrize(
    "audio",
    [
        silence(2.0), silence(0.0), noise(2.0, 2e-5), noise(3.0, 0.003), noise(3.0, 0.1), noise(15.0, 0.01),
        hum(3.0, 0.02), hum(3.0, 0.3),
    ],
    ids=["zeros", "nothing", "faintest", "faint noise", "loud noise", "long noise", "hum", "loud hum"],
)  # fmt: skip
@pytest.mark.parametrize(
    "options",
    [
        DecodingOptions(),
        ENGLISH,
        DecodingOptions(language="zh"),
        DecodingOptions(language="en", hotwords=("ComfyUI", "best of times")),
    ],
    ids=["detect", "en", "zh", "hotwords"],
)
def test_no_speech_gives_no_text(audio: Samples, options: DecodingOptions) -> None:
    answer = decode(audio, options)
    assert (answer.text, answer.finish) == ("", "gated")


@pytest.mark.parametrize("name", [
    "dtmf-0", "dtmf-5", "dtmf-pound", "dtmf-star", "pyannote-empty", "silence2sec", "rtstt-active-beep",
    "pipecat-ding1", "sb-noise2",
])  # fmt: skip
@pytest.mark.parametrize("language", [None, "en"])
def test_recorded_noise_gives_no_text(shared_data: Path, name: str, language: str | None) -> None:
    assert decode(read(shared_data / "noise" / f"{name}.wav"), DecodingOptions(language=language)).text == ""


def test_quiet_and_noisy_speech_is_not_gated() -> None:
    speech = reading(24.1, 28.5)
    quiet = decode(speech * np.float32(0.01))
    noisy = decode(speech + noise(4.4, float(np.sqrt(np.mean(speech**2))) / 2)[: len(speech)])
    assert "heaven" in quiet.text
    assert "direct" in noisy.text


@pytest.mark.parametrize("digit", range(10))
def test_single_digits_survive(shared_data: Path, digit: int) -> None:
    """A third of a second each, by telephone: what is heard may be wrong, but something is."""
    assert decode(read(shared_data / "phone" / "fsdd" / f"{digit}_jackson_0.wav")).text


def test_hotwords_are_heard(shared_data: Path) -> None:
    audio = read(shared_data / "en" / "fw-hotwords.mp3")
    assert "ComfyUI" not in decode(audio).text
    assert "ComfyUI" in decode(audio, DecodingOptions(language="en", hotwords=("Kubernetes", "ComfyUI"))).text


def test_hotwords_do_not_get_into_other_speech() -> None:
    audio = reading(24.1, 28.5)
    assert decode(audio, DecodingOptions(language="en", hotwords=("ComfyUI", "<|nocaptions|>"))).text == (
        decode(audio).text
    )


def test_many_hotwords_do_not_swallow_speech() -> None:
    """A long regular list makes the decoder go on with the list."""
    listed = DecodingOptions(language="en", hotwords=tuple(f"Wordnumber{n}" for n in range(30)))
    answer = decode(reading(*TIMES), listed)
    assert "wordnumber" not in answer.text.lower()
    assert "age of foolishness" in answer.text


def test_words_have_times_and_make_up_the_text() -> None:
    audio = reading(24.1, 28.5)
    answer = decode(audio, DecodingOptions(language="en", words=True, logprobs=True))
    assert answer.words is not None
    assert " ".join(word.text for word in answer.words) == answer.text
    times = [time for word in answer.words for time in (word.start_ms, word.end_ms)]
    assert times == sorted(times)
    assert times[-1] <= to_ms(len(audio))
    assert all(0 < (word.confidence or 0) <= 1 for word in answer.words)
    assert answer.token_logprobs is not None
    assert len(answer.token_logprobs) >= len(answer.words)
    assert all(value <= 0 for value in answer.token_logprobs)


def test_word_times_move_with_the_audio() -> None:
    audio, options = reading(24.1, 28.5), DecodingOptions(language="en", words=True)
    before, after = decode(audio, options), decode(np.concatenate([silence(1.0), audio]), options)
    assert before.words
    assert after.words
    assert before.text == after.text
    moved = [late.start_ms - early.start_ms for early, late in zip(before.words, after.words, strict=True)]
    assert 900 <= float(np.median(moved)) <= 1100


def test_word_times_agree_with_a_forced_alignment(shared_data: Path) -> None:
    """Two words of a LibriVox reading; pocketsphinx puts "young" at 2110 ms and "man" at 2330 ms."""
    answer = decode(
        read(shared_data / "en" / "ps-austen-0880.wav"), DecodingOptions(language="en", words=True)
    )
    assert answer.words is not None
    found = {word.text.strip(".").lower(): word.start_ms for word in answer.words}
    assert found["young"] == pytest.approx(2110, abs=120)
    assert found["man"] == pytest.approx(2330, abs=120)


def test_mandarin_words_are_characters() -> None:
    answer = decode(clip("zh/nihao_shijie"), DecodingOptions(language="zh", words=True))
    assert answer.words is not None
    assert [word.text for word in answer.words] == ["你", "好", "世", "界。"]


def test_the_token_limit_is_told() -> None:
    answer = decode(reading(*TIMES), DecodingOptions(language="en", max_new_tokens=4))
    assert answer.finish == "length"
    assert answer.text == "It was the best"


def test_a_loop_is_decoded_again_in_the_longest_context(caplog: pytest.LogCaptureFixture) -> None:
    """Cut in the middle of a number, this count makes the decoder say "9, 9, 9, ..." in a short context.

    Which cut does it depends on the last bits of the arithmetic, so several are tried.
    """
    looping = []
    before = network().retried
    for cut_ms in (1500, 1650, 1800, 2100, 2200, 2300):
        audio = clip("en/counting")[: cut_ms * SAMPLE_RATE // 1000]
        partial = decode(audio, kind="partial")
        assert partial.text.count("9") <= 2
        if partial.finish == "length":
            looping.append(audio)
    assert network().retried == before
    assert looping
    with caplog.at_level(logging.INFO):
        finals = [decode(audio) for audio in looping]
    assert network().retried == before + len(looping)
    assert "ran away" in caplog.text
    assert "stop" in [final.finish for final in finals]


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    for other in FILES:
        if other != name:
            (tmp_path / other).symlink_to(folder() / other)
    with pytest.raises(WeightsError, match=name):
        WhisperNetwork(tmp_path, threads=1)


def test_a_broken_model_is_named(tmp_path: Path) -> None:
    for name in FILES:
        (tmp_path / name).symlink_to(folder() / name)
    (tmp_path / "model.bin").unlink()
    (tmp_path / "model.bin").write_bytes(b"nothing")
    with pytest.raises(WeightsError, match=r"model\.bin cannot be loaded"):
        WhisperNetwork(tmp_path, threads=1)
