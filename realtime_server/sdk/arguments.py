"""What the SDK's classes take, by the names of FunASR, and what becomes of it. Unknown names are TypeErrors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from realtime_server.core.commands import split_words
from realtime_server.core.endpointing_options import (
    LIVE_SCHEDULE,
    OFFLINE_SCHEDULE,
    EndpointingOptions,
    SilenceSchedule,
)
from realtime_server.core.jobs import DecodingOptions
from realtime_server.core.languages import code_of
from realtime_server.core.postprocess import neutralise
from realtime_server.core.settings import Limits, Pace, SessionSettings
from realtime_server.engines.loading import ENGINES, EngineOptions, usual_nano
from realtime_server.engines.nano_options import NanoOptions
from realtime_server.engines.speech_options import SpeechOptions
from realtime_server.errors import ConfigurationError, ProtocolError
from realtime_server.offline.options import FileOptions, Segmentation

if TYPE_CHECKING:
    from realtime_server.engines.base import Engine
    from realtime_server.sdk.host import Model

DEFAULT_ENGINE = "funasr-nano"
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}  # as FunASR calls them
HUBS = {"modelscope": "ms", "huggingface": "hf"}
ENDLESS = 1_000_000_000  # sentences, characters or seconds: nobody who runs the program himself needs a limit

Schedule = str | Iterable[Sequence[float]]


class ModelArguments(TypedDict, total=False):
    """Of every class: which recognizer to load, and how. What is left out is as in the server."""

    engine: (
        str | Engine | Model
    )  # "funasr-nano" (the default), "funasr-nano-torch", "glm-asr", "vllm", "embedded", "fake"; or one of
    # your own, which is closed with the object; or another of these objects, whose recognizer is shared
    hub: str  # "ms" or "hf", where `model` is fetched
    device: str  # of models in vLLM: "auto", "cuda", "cpu"
    dtype: str  # of models in vLLM: "auto", "bfloat16", "float32"; of "vllm" also "float16"
    tensor_parallel_size: int  # GPUs that the language model is spread over
    gpu_memory_utilization: float  # share of the GPU's memory, for the language model
    max_model_len: int  # longest prompt and answer together, tokens
    vllm_args: Mapping[str, Any]  # of "vllm": more arguments of vLLM's AsyncEngineArgs
    max_segment_s: float  # longer speech is cut where it is quiet: 30 by default, 60 at most
    workers: int  # decoding threads of the embedded engine
    vad: str  # "fsmn", or "level" for loudness, which needs no model and goes with the fake engine
    vad_model: str | PathLike[str]  # folder with FSMN-VAD instead of the fetched one
    spk_model: (
        str | PathLike[str]
    )  # folder with a speaker network instead of the fetched one; "bands" for tests


class DecodingArguments(TypedDict, total=False):
    """Of every call."""

    language: str | None  # a code, or a name in English or Chinese; None or "auto": it is detected
    hotwords: str | Sequence[str] | None  # likely words: a list, or text with commas between them
    itn: bool  # numerals and punctuation as written, True by default
    max_new_tokens: int | None  # of one segment; None: what its length allows
    dynamic_silence: bool  # True if the recognizer bears it; False: 800 ms of silence end a segment
    silence_schedule: Schedule | None  # rows (up to this many ms of speech, ms of silence that end it)


class FileArguments(DecodingArguments, total=False):
    """Of `generate`."""

    input: Any  # another name for inputs
    batch_size: (
        int | None
    )  # recordings worked on at the same time; None: as many as the recognizer has use for
    spk: bool  # tell speakers apart
    timestamp: bool  # word times, True by default, where the recognizer has them
    task: Literal["transcribe", "translate"]  # into English, if the recognizer can
    segmentation: Segmentation  # "vad", or "energy" for cuts at quiet places without a network
    replacements: Mapping[str, str]  # exact, in the texts
    fs: int  # sampling rate of arrays, 16000 by default
    errors: Literal["raise", "return"]  # what to do about a bad recording; "return": its result says "error"


class StreamArguments(DecodingArguments, total=False):
    """Of `streaming_generate`."""

    chunk_ms: int  # audio between two results, instead of the object's
    rollback_chars: int  # characters at the end of the text that are not fixed, instead of the object's


def check_names(what: str, arguments: Mapping[str, object], known: type) -> None:
    """Raise TypeError naming an argument that a TypedDict does not know."""
    for name in arguments.keys() - known.__annotations__.keys():
        raise TypeError(f"{what}() got an unexpected keyword argument '{name}'")


def read_engine(model: str | PathLike[str] | None, arguments: ModelArguments) -> EngineOptions:
    """Options of the engine. Raises ConfigurationError for what cannot be."""
    given = arguments.get("engine", DEFAULT_ENGINE)
    engine = given if isinstance(given, str) else "fake"  # nothing is loaded for one that is there
    if engine not in ENGINES:
        raise ConfigurationError(f"engine {engine!r}: it must be one of {', '.join(sorted(ENGINES))}")
    vad_model = arguments.get("vad_model")
    return EngineOptions(
        engine=engine,
        model=Path(model) if model else None,
        workers=arguments.get("workers"),
        vad_model=Path(vad_model) if vad_model else None,
        nano=NanoOptions() if engine == "vllm" else _read_nano(engine, model, arguments),
        speech=_read_speech(model, arguments) if engine == "vllm" else SpeechOptions(),
    )


def _read_model(model: str | PathLike[str] | None, arguments: ModelArguments) -> dict[str, Any]:
    """What was given of the arguments that all models in vLLM have."""
    names = ("hub", "device", "dtype", "tensor_parallel_size", "gpu_memory_utilization", "max_model_len")
    given: dict[str, Any] = {name: arguments[name] for name in names if name in arguments}  # type: ignore[literal-required] # they are among its names
    if "dtype" in given:
        given["dtype"] = DTYPES.get(given["dtype"], given["dtype"])
    if "hub" in given:
        given["hub"] = HUBS.get(given["hub"], given["hub"])
    if given.get("device") == "cuda:0":
        given["device"] = "cuda"
    if str(given.get("device")).startswith("cuda:"):
        number = given["device"].removeprefix("cuda:")
        raise ConfigurationError(
            f"device {given['device']!r}: set CUDA_VISIBLE_DEVICES={number} and use 'cuda'"
        )
    return given | ({"model": str(model)} if model else {})


def _read_nano(engine: str, model: str | PathLike[str] | None, arguments: ModelArguments) -> NanoOptions:
    if "vllm_args" in arguments:
        raise ConfigurationError("vllm_args go with engine='vllm' only")
    longest_s = max(30.0, arguments.get("max_segment_s", 30.0))
    return replace(usual_nano(engine), longest_s=longest_s, **_read_model(model, arguments))


def _read_speech(model: str | PathLike[str] | None, arguments: ModelArguments) -> SpeechOptions:
    return SpeechOptions(
        segment_s=arguments.get("max_segment_s", 30.0),
        vllm_args=arguments.get("vllm_args", {}),
        **_read_model(model, arguments),
    )


def read_decoding(arguments: DecodingArguments, *, words: bool = False) -> DecodingOptions:
    """Options of every decode. Raises ConfigurationError for an unknown language."""
    hotwords = arguments.get("hotwords") or ()
    listed = split_words(hotwords) if isinstance(hotwords, str) else hotwords
    max_new_tokens = arguments.get("max_new_tokens")
    if max_new_tokens is not None and max_new_tokens < 1:
        raise ConfigurationError(f"max_new_tokens must be above zero, not {max_new_tokens}")
    try:
        language = code_of(arguments.get("language") or "")
    except ProtocolError as error:
        raise ConfigurationError(str(error)) from error
    return DecodingOptions(
        language=language,
        hotwords=tuple(dict.fromkeys(safe for word in listed if (safe := neutralise(word)))),
        itn=arguments.get("itn", True),
        words=words,
        max_new_tokens=max_new_tokens,
    )


def read_endpointing(
    arguments: DecodingArguments, usual: SilenceSchedule, max_segment_s: float
) -> EndpointingOptions:
    """When segments end. Raises ConfigurationError."""
    rows, dynamic = arguments.get("silence_schedule"), arguments.get("dynamic_silence", True)
    if rows is not None and not dynamic:
        raise ConfigurationError("a silence_schedule goes with dynamic_silence=True only")
    return EndpointingOptions(
        mode="dynamic" if dynamic else "fixed",
        schedule=SilenceSchedule.parse(rows) if rows is not None else usual,
        max_segment_ms=round(1000 * max_segment_s),
    )


def wants_schedule(arguments: DecodingArguments) -> bool:
    """Whether a silence schedule was asked for, and not left to the recognizer."""
    return arguments.get("dynamic_silence", False) or arguments.get("silence_schedule") is not None


def read_file_options(arguments: FileArguments, max_segment_s: float, *, words: bool) -> FileOptions:
    """How recordings are transcribed; words: whether the recognizer has word times. Raises ConfigurationError."""
    decoding = read_decoding(arguments, words=arguments.get("timestamp", words))
    return FileOptions(
        decoding=replace(decoding, task=arguments.get("task", "transcribe")),
        speakers=arguments.get("spk", False),
        segmentation=arguments.get("segmentation", "vad"),
        endpointing=replace(read_endpointing(arguments, OFFLINE_SCHEDULE, max_segment_s), eager_ms=None),
        schedule_wanted=wants_schedule(arguments),
        replacements=arguments.get("replacements", {}),
    )


def read_session(arguments: StreamArguments, chunk_ms: float, max_segment_s: float) -> SessionSettings:
    """A live session in which partials come once for each chunk. Raises ConfigurationError."""
    pace = Pace()
    return SessionSettings(
        options=read_decoding(arguments),
        endpointing=read_endpointing(arguments, LIVE_SCHEDULE, max_segment_s),
        pace=replace(pace, first_ms=min(pace.first_ms, round(chunk_ms)), interval_ms=round(chunk_ms)),
        limits=Limits(session_s=ENDLESS, sentences=ENDLESS, characters=ENDLESS),
    )
