"""Requests in our terms, and what must not get near vLLM."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from realtime_server.core.jobs import DecodingOptions
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.vllm_plugin.wishes import (
    LONGEST_S,
    LONGEST_TEXT,
    checked_samples,
    checked_waveform,
    decoding_options,
    language_code,
)


def options(**changes: Any) -> DecodingOptions:
    request: dict[str, Any] = {
        "language": None, "hotwords": None, "prompt": "", "task": "transcribe", "to_language": None,
        "translates": False,
    }  # fmt: skip
    return decoding_options(**(request | changes))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        (None, None),
        ("auto", None),
        ("", None),
        ("自动", None),
        ("en", "en"),
        ("EN", "en"),
        ("English", "en"),
        ("英文", "en"),
        ("zh", "zh"),
        ("zh-CN", "zh"),
        ("中文", "zh"),
        ("Chinese", "zh"),
        ("粤语", "yue"),
    ],
)
def test_languages_come_by_code_and_name(name: str | None, code: str | None) -> None:
    assert language_code(name) == code


def test_an_unknown_language_is_an_error_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"unknown language 'Englsh'; did you mean English\?"):
        language_code("Englsh")


def test_nothing_asked_for_is_the_default() -> None:
    assert options() == DecodingOptions()


def test_hotwords_and_prompt_are_hotwords() -> None:
    wishes = options(language="zh", hotwords="Caylyn, 林晓宇", prompt="Caylyn、Marlo\n")
    assert wishes == DecodingOptions(language="zh", hotwords=("Caylyn", "林晓宇", "Marlo"))


def test_translation_is_refused_by_a_model_that_cannot() -> None:
    with pytest.raises(ValueError, match=r"cannot translate.*use /v1/audio/transcriptions"):
        options(task="translate")


@pytest.mark.parametrize("to_language", [None, "en"])
def test_translation_is_into_english(to_language: str | None) -> None:
    wishes = options(task="translate", translates=True, language="zh", to_language=to_language)
    assert wishes == DecodingOptions(language="zh", task="translate")
    with pytest.raises(ValueError, match="into English alone, not into German"):
        options(task="translate", translates=True, to_language="de")


@pytest.mark.parametrize("translates", [False, True])
def test_a_transcript_is_in_the_language_that_is_spoken(translates: bool) -> None:
    for language in ("zh", None):
        with pytest.raises(ValueError, match="takes no to_language"):
            options(language=language, to_language="en", translates=translates)
    assert options(language="en", to_language="en", translates=translates) == DecodingOptions(language="en")


def test_too_many_hotwords_are_refused() -> None:
    assert options(hotwords="a" * LONGEST_TEXT).hotwords
    with pytest.raises(ValueError, match="too many"):
        options(hotwords="a" * LONGEST_TEXT, prompt="b")


def test_a_fit_clip_is_kept() -> None:
    clip = np.linspace(-1.5, 1.5, LONGEST_S * SAMPLE_RATE)
    kept = checked_waveform(clip)
    assert kept.dtype == np.float32
    assert np.array_equal(kept, clip.astype(np.float32))


@pytest.mark.parametrize(
    ("audio", "words"),
    [
        (np.empty(0, np.float32), "no sound"),
        (np.zeros(LONGEST_S * SAMPLE_RATE + 1, np.float32), "too long"),
        (np.zeros((2, 800), np.float32), "one row"),
        (np.zeros(800, np.int16), "int16"),
        (np.full(800, np.nan, np.float32), "not numbers"),
        (np.full(800, -np.inf, np.float32), "not numbers"),
        (np.full(800, 1e30, np.float32), "far too large"),
        (np.full(800, 1e300), "far too large"),
    ],
)
def test_an_unfit_clip_is_refused(audio: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        checked_waveform(audio)


def test_a_packet_of_a_stream_may_have_any_length() -> None:
    assert checked_samples(np.zeros(100 * SAMPLE_RATE)).size == 100 * SAMPLE_RATE
    assert checked_samples(np.empty(0)).size == 0
    with pytest.raises(ValueError, match="not numbers"):
        checked_samples(np.full(100, np.nan))
