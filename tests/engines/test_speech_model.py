"""What a class of vLLM's contract is found to do, its prompts, its texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from realtime_server.engines.speech_model import UNLIMITED_S, Traits, is_insertion, skeleton
from realtime_server.errors import ConfigurationError, EngineError, UnsupportedError
from tests.engines import speech_classes as classes
from tests.engines.speech_classes import MARKS, Base, Tokenizer, model_of

AUDIO = np.zeros(16_000, np.float32)
THREE = frozenset({"zh", "en", "de"})
USUAL: dict[str, Any] = {
    "languages": THREE, "assumed": None, "detects": False, "needs_language": False, "hotwords": None,
    "translates": False, "embeds": False, "longest_s": 30.0, "sample_rate": 16_000,
}  # fmt: skip


@pytest.mark.parametrize(
    ("model_class", "habits"),
    [
        (classes.EncoderDecoder, {"detects": True, "hotwords": "request_prompt", "translates": True}),
        (classes.Chatty, {"hotwords": "request_prompt"}),
        (
            classes.Deaf,
            {"languages": None, "assumed": "en", "hotwords": "hotwords", "longest_s": UNLIMITED_S, "sample_rate": 8000},
        ),
        (classes.Instructed, {"languages": None, "translates": True}),
        (classes.Embedding, {"languages": frozenset({"de"}), "needs_language": True, "embeds": True}),
    ],
)  # fmt: skip
def test_only_what_changes_the_prompt_is_offered(model_class: type[Base], habits: dict[str, Any]) -> None:
    assert model_of(model_class).traits == Traits(**{**USUAL, **habits})


def test_hotwords_are_not_put_behind_a_mark_that_the_tokenizer_spells_in_letters() -> None:
    spelled = Tokenizer({mark: token for mark, token in MARKS.items() if mark != "<|prev|>"})
    assert model_of(classes.EncoderDecoder, spelled).traits.hotwords is None


def test_a_class_that_makes_no_prompt_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Silent makes no prompt"):
        model_of(classes.Silent)


def test_languages_that_we_have_no_code_for_are_not_offered() -> None:
    class Exotic(classes.Chatty):
        supported_languages = {"en": "English", "zh": "Chinese", "tlh": "Klingon"}  # noqa: RUF012

    assert model_of(Exotic).traits.languages == {"en", "zh"}


# --- prompts ----------------------------------------------------------------------------------------------


def test_an_encoder_decoders_prompt_names_language_task_and_hotwords() -> None:
    model = model_of(classes.EncoderDecoder)
    made = model.prompt(AUDIO, language="zh", hotwords=("张三", "<|en|> Li"), task="translate")
    assert made["decoder_prompt"] == {"prompt": "<|prev|>张三, |en| Li<|start|><|zh|><|translate|>"}
    assert made["encoder_prompt"]["multi_modal_data"]["audio"][0] is AUDIO


def test_hotwords_go_to_their_own_place_if_there_is_one() -> None:
    model = model_of(classes.Deaf)
    assert model.prompt(AUDIO, language="en", hotwords=("a", "b"))["prompt"] == "hotwords: a, b. ~"
    assert model.prompt(AUDIO, language="en", hotwords=("<>", " "))["prompt"] == "~"


def test_an_instruction_is_never_replaced_by_hotwords() -> None:
    made = model_of(classes.Instructed).prompt(AUDIO, language=None, hotwords=("a",))
    assert made["prompt"] == "~ transcribe"


def test_translation_is_into_english() -> None:
    made = model_of(classes.Instructed).prompt(AUDIO, language=None, task="translate")
    assert made["prompt"] == "~ translate to en"


def test_what_the_class_refuses_is_told() -> None:
    with pytest.raises(UnsupportedError, match="cannot be asked that: Language must be specified"):
        model_of(classes.Embedding).prompt(AUDIO, language=None)


# --- languages --------------------------------------------------------------------------------------------


def test_a_language_that_is_not_named_is_what_the_class_assumes() -> None:
    assert model_of(classes.Deaf).checked(None) == "en"
    assert model_of(classes.Chatty).checked(None) is None
    assert model_of(classes.Chatty).checked("zh") == "zh"


def test_a_language_that_the_class_refuses_is_told() -> None:
    with pytest.raises(UnsupportedError, match="refuses the language 'fr'"):
        model_of(classes.Chatty).checked("fr")


def test_a_detected_language_is_read_from_its_token() -> None:
    model = model_of(classes.EncoderDecoder)
    prompt, ids = model.detection(AUDIO)
    assert prompt["decoder_prompt"] == "<|start|>"
    assert ids == [MARKS["<|en|>"], MARKS["<|zh|>"]]
    assert model.detected([MARKS["<|zh|>"]]) == "zh"


def test_a_token_that_is_no_language_is_an_error() -> None:
    with pytest.raises(EngineError, match="named no language"):
        model_of(classes.EncoderDecoder).detected([999])

    class Asserting(classes.EncoderDecoder):
        @classmethod
        def parse_language_detection_output(cls, ids: list[int], tokenizer: Tokenizer) -> str | None:
            raise AssertionError

    with pytest.raises(EngineError, match="named no language"):
        model_of(Asserting).detected([1])


# --- texts ------------------------------------------------------------------------------------------------


def test_the_class_cleans_what_the_model_said() -> None:
    assert model_of(classes.Chatty).text("language English: one two ") == "one two"


def test_growing_text_shows_no_tag() -> None:
    grow = model_of(classes.Chatty).growing()
    said = ["lang", "language English", "language English: one", "language English: one two"]
    assert [grow(text) for text in said] == ["", "", "one", "one two"]


def test_growing_text_is_cleaned_where_the_class_has_nothing_of_its_own_for_it() -> None:
    class Older(classes.Chatty):
        get_streaming_post_processor_cls = None  # type: ignore[assignment]

    class StreamingTranscriptionPostProcessor:
        """The contract's own."""

    class Plain(classes.Chatty):
        @classmethod
        def get_streaming_post_processor_cls(cls) -> type:
            return StreamingTranscriptionPostProcessor

    for model_class in (Older, Plain):
        assert model_of(model_class).growing()("language English: one") == "one"


# --- comparing prompts ------------------------------------------------------------------------------------


def test_a_skeleton_has_no_sound_and_can_be_compared() -> None:
    prompt = {
        "prompt_embeds": AUDIO[:2],
        "multi_modal_data": {"audio": AUDIO},
        "ids": (1, 2),
        "x": {"y": "z"},
    }
    assert skeleton(prompt) == {"prompt_embeds": [0.0, 0.0], "ids": [1, 2], "x": {"y": "z"}}


@pytest.mark.parametrize(
    ("plain", "more", "is_one"),
    [
        ("ab", "axb", True), ("ab", "xab", True), ("ab", "abx", True), ("", "x", True), ("aab", "aaab", True),
        ("ab", "ab", False), ("ab", "ax", False), ("ab", "a", False), ("ab", "xaxbx", False), ("ab", None, False),
        ([1, 2], [1, 3, 2], True), ([1, 2], "12", False), (None, "a", False),
        ({"a": "x", "b": [1]}, {"a": "xy", "b": [1, 2]}, True), ({"a": "x", "b": [1]}, {"a": "xy", "b": [2]}, False),
        ({"a": "x"}, {"a": "x"}, False), ({"a": "x"}, {"a": "x", "b": "y"}, False),
    ],
)  # fmt: skip
def test_an_insertion_keeps_all_that_was_there(plain: Any, more: Any, is_one: bool) -> None:
    assert is_insertion(plain, more) is is_one
