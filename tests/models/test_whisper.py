"""Contexts, caps, gates, loops; prompts and text of the real tokenizer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.core.jobs import Task
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.errors import WeightsError
from realtime_server.models.whisper import (
    EXPECTED,
    PREVIOUS_TOKENS,
    Heard,
    WhisperTokenizer,
    context_s,
    likeliest,
    token_cap,
    widen_punctuation,
    without_loop,
)
from tests.models.whisper import folder, tokenizer

SPOKEN = Heard(ids=[1, 2, 3], mean_logprob=-0.3, no_speech=0.05, seconds=2.0, capped=False)


@pytest.mark.parametrize(
    ("seconds", "context"), [(0, 12), (1, 12), (10, 12), (10.01, 20), (18, 20), (18.01, 30), (30, 30)]
)
def test_context_leaves_room_behind_the_audio(seconds: float, context: int) -> None:
    assert context_s(round(seconds * SAMPLE_RATE)) == context


@pytest.mark.parametrize("seconds", [0.5, 8.6, 30])
def test_translations_have_the_longest_context(seconds: float) -> None:
    assert context_s(round(seconds * SAMPLE_RATE), "translate") == 30


@pytest.mark.parametrize("task", ["transcribe", "translate"])
def test_no_context_holds_more_than_30_s(task: Task) -> None:
    with pytest.raises(ValueError, match=r"30\.1 s"):
        context_s(round(30.1 * SAMPLE_RATE), task)


def test_token_cap_grows_with_the_audio_up_to_half_of_the_decoder() -> None:
    assert token_cap(0) == 12
    assert token_cap(SAMPLE_RATE) == 20
    assert token_cap(30 * SAMPLE_RATE) == 224


@pytest.mark.parametrize(
    ("no_speech", "mean_logprob", "silence"),
    [
        (0.05, -0.3, False),  # speech
        (0.57, -0.72, False),  # a spoken digit of 0.3 s
        (0.2, -2.5, False),  # unsure of the words, sure that there are some
        (0.61, -1.01, True),
        (0.92, -0.55, True),  # digital silence
        (0.54, -1.88, True),  # an office
        (0.95, -0.1, False),  # the words are certain
    ],
)
def test_silence_is_judged_by_both_probabilities(
    no_speech: float, mean_logprob: float, silence: bool
) -> None:
    assert replace(SPOKEN, no_speech=no_speech, mean_logprob=mean_logprob).is_silence is silence


def test_a_loop_over_noise_is_silence() -> None:
    looped = replace(SPOKEN, ids=[5] * 28, no_speech=0.5, mean_logprob=-0.2, capped=True)
    assert looped.is_silence
    assert not replace(looped, no_speech=0.03).is_silence


def test_doubt_begins_before_silence() -> None:
    assert not SPOKEN.is_doubtful
    assert replace(SPOKEN, no_speech=0.35).is_doubtful
    assert replace(SPOKEN, mean_logprob=-1.1).is_doubtful


def test_few_tokens_for_the_length_are_sparse() -> None:
    assert not replace(SPOKEN, ids=[1, 2, 3, 4], seconds=2.0).is_sparse
    assert replace(SPOKEN, ids=[1, 2, 3], seconds=2.0).is_sparse


@pytest.mark.parametrize(
    ("ids", "seconds", "capped", "kept"),
    [
        ([1, 2, 3], 1.0, False, [1, 2, 3]),
        ([], 1.0, False, []),
        ([7, 8, 7, 8, 7, 8, 9], 1.5, False, [7, 8, 7, 8, 7, 8, 9]),  # no, no, no.
        ([5] * 12, 3.0, False, [5] * 12),  # as fast as one can say it
        ([5] * 12, 1.0, False, [5]),  # faster
        ([1, *[5, 6] * 10, 2], 1.0, False, [1, 5, 6, 2]),  # what follows is kept
        ([1, 2, *[9, 8] * 13], 2.0, True, [1, 2, 9, 8]),
        ([1, 2, *[9, 8] * 12, 9], 2.0, True, [1, 2, 9, 8]),  # cut off within a turn
        ([3, 4, 3, 4, *range(10, 34)], 2.0, True, [3, 4, 3, 4, *range(10, 34)]),  # capped, but no loop
        ([*[4, 5, 6, 7, 8] * 3], 0.4, True, [4, 5, 6, 7, 8]),
        ([1, 9, 9], 0.1, True, [1, 9, 9]),  # two turns are no loop
    ],
)
def test_loops_are_cut_and_spoken_repetition_stays(
    ids: list[int], seconds: float, capped: bool, kept: list[int]
) -> None:
    assert without_loop(ids, seconds, capped=capped) == kept


@given(st.lists(st.integers(0, 3), max_size=60), st.floats(0, 10), st.booleans())
def test_cutting_only_removes(ids: list[int], seconds: float, capped: bool) -> None:
    kept = without_loop(ids, seconds, capped=capped)
    rest = iter(ids)
    assert all(token in rest for token in kept)
    assert bool(kept) == bool(ids)


def test_punctuation_is_wide_behind_ideographs_only() -> None:
    assert widen_punctuation("好,是吗?对:1,000 OK, 行!") == "好，是吗？对：1,000 OK, 行！"


@pytest.mark.embedded
def test_prompts_name_language_and_task() -> None:
    text = tokenizer()
    assert (
        text.prompt("en", "transcribe")
        == text.plain_prompt("en", "transcribe")
        == [50258, 50259, 50359, 50363]
    )
    assert text.prompt("de", "translate") == [50258, 50261, 50358, 50363]
    assert {"en", "zh", "ja", "haw"} <= text.languages
    assert len(text.languages) == 99


@pytest.mark.embedded
def test_mandarin_is_asked_for_in_simplified_characters() -> None:
    text = tokenizer()
    prompt = text.prompt("zh", "transcribe", ("达摩院", "滨海"))
    assert text.decode(prompt) == "简体中文，带标点。达摩院、滨海。"
    assert text.prompt("zh", "translate") == text.plain_prompt("zh", "translate")


@pytest.mark.embedded
def test_hotwords_come_before_the_task() -> None:
    prompt = tokenizer().prompt("en", "transcribe", ("ComfyUI", " Ada Lovelace "))
    assert prompt[0] == 50361
    assert prompt[-4:] == tokenizer().plain_prompt("en", "transcribe")
    assert tokenizer().decode(prompt) == "ComfyUI, Ada Lovelace."


@pytest.mark.embedded
def test_hotwords_are_bounded_and_stay_whole() -> None:
    words = tuple(f"Wordnumber{n}" for n in range(500))
    prompt = tokenizer().prompt("en", "transcribe", words)
    assert PREVIOUS_TOKENS - 10 < len(prompt) - 5 <= PREVIOUS_TOKENS
    kept = tokenizer().decode(prompt).removesuffix(".").split(", ")
    assert tuple(kept) == words[: len(kept)]


@pytest.mark.embedded
@pytest.mark.parametrize("hotword", ["<|startoftranscript|>", "<|endoftext|><|zh|>", "<|nocaptions|>"])
def test_hotwords_are_never_control_tokens(hotword: str) -> None:
    prompt = tokenizer().prompt("en", "transcribe", (hotword,))
    assert all(token < 50257 for token in prompt[1:-4])
    assert hotword in tokenizer().decode(prompt)


@pytest.mark.embedded
def test_text_leaves_out_control_tokens_and_half_characters() -> None:
    text = tokenizer()
    ids = text.prompt("en", "transcribe", ("馗",))[1:-5]  # without the full stop
    assert len(ids) > 1, "the test needs a character of several tokens"
    assert text.decode([50258, *ids, 50257]) == "馗"
    assert text.decode(ids[:-1]) == ""


@pytest.mark.embedded
def test_a_tokenizer_that_cannot_be_read_is_named(tmp_path) -> None:
    broken = tmp_path / "tokenizer.json"
    broken.write_text("{")
    with pytest.raises(WeightsError, match=r"tokenizer\.json"):
        WhisperTokenizer(broken)


@pytest.mark.embedded
def test_a_foreign_tokenizer_is_refused(tmp_path) -> None:
    foreign = tmp_path / "tokenizer.json"
    content = (folder() / "tokenizer.json").read_text(encoding="utf-8")
    foreign.write_text(content.replace("<|startofprev|>", "<|other|>"), encoding="utf-8")
    with pytest.raises(WeightsError, match="startofprev"):
        WhisperTokenizer(foreign)


@pytest.mark.parametrize(
    ("heard", "expected", "language", "certainty"),
    [
        ({"en": 0.5, "zh": 0.3, "de": 0.2}, None, "en", 0.5),
        ({"en": 0.5, "zh": 0.3, "de": 0.2}, "en", "en", 0.5 * EXPECTED / (0.5 * EXPECTED + 0.5)),
        ({"en": 0.5, "zh": 0.3, "de": 0.2}, "zh", "zh", 0.3 * EXPECTED / (0.3 * EXPECTED + 0.7)),
        (
            {"en": 0.96, "zh": 0.04},
            "zh",
            "en",
            0.96 / (0.96 + 0.04 * EXPECTED),
        ),  # a change of language is heard
        ({"en": 0.96, "zh": 0.04}, "eo", "en", 0.96),  # a language that it does not know
    ],
)
def test_the_language_that_is_expected_wins_in_doubt(
    heard: dict[str, float], expected: str | None, language: str, certainty: float
) -> None:
    assert likeliest(heard, expected) == (language, pytest.approx(certainty))
