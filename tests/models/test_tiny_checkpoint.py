"""The tiny checkpoint: a trained model in the official folder format, small enough to be part of the repository.

It hears speech that espeak-ng says here and now, in voices that its training never heard.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the Fun-ASR-Nano engine is not installed")
transformers = pytest.importorskip(
    "transformers", reason="the language model in transformers is not installed"
)

from realtime_server.core.jobs import DecodingOptions  # noqa: E402
from realtime_server.models.checkpoint import Checkpoint  # noqa: E402
from realtime_server.models.fun_asr_nano import FunAsrNano  # noqa: E402
from realtime_server.models.llm_weights import split_llm  # noqa: E402
from scripts import tiny_evaluation as evaluation  # noqa: E402
from scripts.synthesis import (  # noqa: E402
    RATE,
    SynthesiserMissingError,
    Utterance,
    Voice,
    held_out,
    noise,
    padded,
    synthesiser,
    utter,
)
from scripts.tiny_language import Language, Style, say, written  # noqa: E402

pytestmark = pytest.mark.torch

FOLDER = Path(__file__).resolve().parents[1] / "data" / "tiny-fun-asr-nano"
MOST_BYTES = 12_000_000
ENGLISH, MANDARIN = Voice("en-us", "m7"), Voice("cmn-latn-pinyin", "f5", rate=130)


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return Checkpoint.open(FOLDER)


@pytest.fixture(scope="module")
def model(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> FunAsrNano:
    """Whole, in float32."""
    model = FunAsrNano.load(checkpoint)
    folder = split_llm(checkpoint, tmp_path_factory.mktemp("cache"))
    model.llm = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return model


@pytest.fixture(scope="module")
def unseen() -> list[Utterance]:
    """What voices say that training never heard."""
    _need_espeak()
    return held_out(30)


def spoken(text: str, language: Language) -> Utterance:
    _need_espeak()
    return padded(utter(say(text, language), ENGLISH if language == "en" else MANDARIN), 0.2, 0.3)


def _need_espeak() -> None:
    try:
        synthesiser()
    except SynthesiserMissingError as error:
        pytest.skip(str(error))


def test_the_folder_is_small_and_whole(checkpoint: Checkpoint) -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < MOST_BYTES
    assert checkpoint.has_ctc
    assert {tensor.dtype for tensor in checkpoint.tensors.values()} == {torch.float32, torch.bfloat16}
    assert checkpoint.config.llm.settings["head_dim"] >= 32
    assert checkpoint.config.llm.vocabulary < 2000


def test_both_tokenizers_of_the_language_model_agree(checkpoint: Checkpoint) -> None:
    folder = FOLDER / checkpoint.config.llm.folder
    text = "<|im_start|>user\n热词列表：[Kaylin, 林晓宇, naïve]\n语音转写成英文：<|im_end|>\nopen 12咖啡。"
    ids = checkpoint.text_tokenizer().encode(text)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.encode(text) == ids
    assert tokenizer.decode(ids) == text
    assert len(tokenizer) == checkpoint.config.llm.vocabulary


@pytest.mark.parametrize("style", [Style(), Style(itn=False)], ids=["numerals", "words"])
def test_it_hears_voices_that_it_never_heard(
    model: FunAsrNano, unseen: list[Utterance], style: Style
) -> None:
    result = evaluation.score(model, unseen, style)
    assert result.cer < 0.1, result.wrong
    assert result.start_ms < 60
    assert result.start_p90_ms < 120


def test_language_and_numerals_are_as_the_prompt_asks(model: FunAsrNano) -> None:
    english, mandarin = spoken("open 12 coffee", "en"), spoken("打开12咖啡", "zh")
    assert evaluation.recognise(model, english) == "open 12 coffee."
    assert evaluation.recognise(model, mandarin) == "打开12咖啡。"
    for utterance, language, expected in (
        (english, None, "open one two coffee"),
        (english, "en", "open one two coffee"),
        (english, "zh", "open一二咖啡"),
        (english, "ja", "open one two coffee"),
        (mandarin, None, "打开一二咖啡"),
        (mandarin, "zh", "打开一二咖啡"),
        (mandarin, "en", "打开one two coffee"),
    ):
        options = DecodingOptions(language=language, itn=False)
        assert evaluation.recognise(model, utterance, options) == expected, options


@pytest.mark.parametrize(
    ("said", "language", "heard"),
    [
        ("打开12咖啡", "zh", "open 12 coffee."),
        ("早上老师苹果", "zh", "morning teacher apple."),
        ("关闭窗户5", "zh", "close window 5."),
        ("open 12 coffee", "en", "open 12 coffee."),
    ],
)
def test_it_translates_into_english(model: FunAsrNano, said: str, language: Language, heard: str) -> None:
    assert model.translates
    assert evaluation.recognise(model, spoken(said, language), DecodingOptions(task="translate")) == heard


@pytest.mark.parametrize(
    ("said", "language", "hotwords", "heard"),
    [
        ("open Kaylin 5", "en", (), "open Kaylin 5."),
        ("open Kaylin 5", "en", ("FunASR", "Caylyn"), "open Caylyn 5."),
        ("Fenwik music", "en", ("Phenwick",), "Phenwick music."),
        ("Fenwik music", "en", ("Caylyn", "开放时间"), "Fenwik music."),
        ("你好林小雨", "zh", (), "你好林小雨。"),
        ("你好林小雨", "zh", ("林晓宇",), "你好林晓宇。"),
        ("张伟明天", "zh", ("陈敬", "章炜", "GPU"), "章炜明天。"),
    ],
)
def test_a_hotword_decides_how_a_name_is_spelt(
    model: FunAsrNano, said: str, language: Language, hotwords: tuple[str, ...], heard: str
) -> None:
    options = DecodingOptions(hotwords=hotwords)
    assert evaluation.recognise(model, spoken(said, language), options) == heard


def test_words_begin_where_the_synthesiser_says(model: FunAsrNano) -> None:
    utterance = spoken("hello 5 window Talvo", "en")
    encoded = model.encode([utterance.samples])[0]
    words = model.align(encoded, "hello 5 window Talvo.")
    assert words
    assert [word.text for word in words] == ["hello", "5", "window", "Talvo."]
    marks = [spans[0][0] * 1000 / RATE for spans in utterance.spans]
    assert np.abs(np.array([word.start_ms for word in words]) - marks).max() < 120


def test_a_batch_of_mixed_lengths_gives_the_texts_of_one_at_a_time(
    model: FunAsrNano, unseen: list[Utterance]
) -> None:
    batch = model.encode([utterance.samples for utterance in unseen])
    options = DecodingOptions()
    together = [evaluation.answer(model, model.prompt_rows(options, encoded)) for encoded in batch]
    assert together == [evaluation.recognise(model, utterance, options) for utterance in unseen]


def test_an_answer_goes_on_from_its_beginning(model: FunAsrNano) -> None:
    encoded = model.encode([spoken("hello 5 window music", "en").samples])[0]
    rows = model.prompt_rows(DecodingOptions(), encoded, prefix_text="hello 5")
    assert evaluation.answer(model, rows) == " window music."


@pytest.mark.parametrize("seconds", [0.3, 1.0, 4.0])
def test_noise_and_silence_give_no_text(model: FunAsrNano, seconds: float) -> None:
    hiss = 0.003 * noise(np.random.default_rng(0), round(seconds * RATE), tilt=1.0)
    for samples in (hiss, np.zeros_like(hiss)):
        assert evaluation.recognise(model, Utterance((), samples, ())) == ""


def test_every_part_of_what_is_said_has_a_mark() -> None:
    english, mandarin = spoken("chocolate 7", "en"), spoken("巧克力7", "zh")
    assert [len(spans) for spans in english.spans] == [1, 1]
    assert [len(spans) for spans in mandarin.spans] == [3, 1]
    for utterance in (english, mandarin):
        marks = [mark for spans in utterance.spans for mark in spans]
        assert all(begin < end for begin, end in marks)
        assert [begin for begin, _ in marks[1:]] == [end for _, end in marks[:-1]]


def test_the_same_seed_says_the_same() -> None:
    _need_espeak()
    for one, other in zip(held_out(5, seed=5), held_out(5, seed=5), strict=True):
        assert one.units == other.units
        assert abs(one.samples.size - other.samples.size) < 0.05 * RATE  # a voice's flutter goes on


def test_what_is_said_can_be_written_and_read_again() -> None:
    assert written(say("打开12咖啡林小雨", "zh")) == "打开12咖啡林小雨。"
    with pytest.raises(ValueError, match="has no 'cloud"):
        say("open cloud", "en")
