"""Engines and scorers by name; each imports its libraries only when it is chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from realtime_server import weights
from realtime_server.core.settings import require_positive
from realtime_server.engines.base import Engine, Scorer
from realtime_server.engines.fake import FakeEngine, FakeScorer
from realtime_server.engines.nano_options import NanoOptions
from realtime_server.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Which recognizer to load, and how."""

    engine: str = "embedded"
    model: Path | None = None  # a folder of weights instead of the fetched ones
    workers: int | None = None  # decoding threads of the embedded engine; None: one per core
    vad_model: Path | None = None
    nano: NanoOptions = field(default_factory=NanoOptions)  # of the two Fun-ASR-Nano engines
    fake_slots: int = 2
    fake_decode_s: float = 0.0

    def __post_init__(self) -> None:
        require_positive(self, ("fake_slots",) if self.workers is None else ("fake_slots", "workers"))
        if self.fake_decode_s < 0:
            raise ConfigurationError(f"fake_decode_s must not be negative, not {self.fake_decode_s}")


def _load_embedded(options: EngineOptions) -> Engine:
    folder = weights.find("whisper-base", options.model)
    try:
        from realtime_server.engines.embedded import EmbeddedEngine

        return EmbeddedEngine(folder, workers=options.workers)
    except ImportError as error:
        raise _missing(error, "embedded") from error


def _load_fake(options: EngineOptions) -> Engine:
    return FakeEngine(slots=options.fake_slots, decode_s=options.fake_decode_s, keep_jobs=0)


def _load_nano(options: EngineOptions) -> Engine:
    try:
        from realtime_server.engines.vllm_engine import load

        return load(options.nano)
    except ImportError as error:
        raise _missing(error, "vllm") from error


def _load_nano_torch(options: EngineOptions) -> Engine:
    try:
        from realtime_server.engines.torch_engine import load

        return load(options.nano)
    except ImportError as error:
        raise _missing(error, "torch") from error


ENGINES: dict[str, Callable[[EngineOptions], Engine]] = {
    "embedded": _load_embedded,
    "funasr-nano": _load_nano,
    "funasr-nano-torch": _load_nano_torch,
    "fake": _load_fake,
}


def load_engine(options: EngineOptions) -> Engine:
    """Load a recognizer; blocks for as long as that takes. Raises ConfigurationError or WeightsError."""
    return ENGINES[options.engine](options)


def load_scorer(options: EngineOptions, kind: str) -> Scorer:
    """Load a voice activity network: kind "fsmn", or "level" for the loudness scorer that needs no weights."""
    if kind == "level":
        return FakeScorer()
    try:
        from realtime_server.engines.vad import FsmnScorer
        from realtime_server.models.fsmn_vad import FsmnVad
    except ImportError as error:
        raise _missing(error, "embedded") from error
    return FsmnScorer(FsmnVad.load(weights.find("fsmn-vad", options.vad_model)))


def _missing(error: ImportError, extra: str) -> ConfigurationError:
    return ConfigurationError(
        f"the package '{error.name}' is not installed; run: pip install 'realtime-server[{extra}]'"
    )
