"""Engines, scorers and embedders by name; each imports its libraries only when it is chosen."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from realtime_server import weights
from realtime_server.core.jobs import ClusterJob, Embeddings, EmbedJob, Labels
from realtime_server.core.settings import require_positive
from realtime_server.engines.base import Embedder, Engine, Scorer
from realtime_server.engines.fake import FakeEmbedder, FakeEngine, FakeScorer
from realtime_server.engines.nano_options import NanoOptions
from realtime_server.engines.speech_options import SpeechOptions
from realtime_server.engines.vllm_setup import how_to_install
from realtime_server.errors import ConfigurationError, EngineError, RealtimeServerError
from realtime_server.models.speaker_network import ERES2NETV2_FILE, SpeakerNetwork
from realtime_server.resources import pip_install

logger = logging.getLogger(__name__)

CPU_TORCH = "without a GPU take PyTorch's build for the CPU, which is smaller: its own page says how"


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Which recognizer to load, and how."""

    engine: str = "embedded"
    model: Path | None = None  # a folder of weights instead of the fetched ones
    workers: int | None = None  # decoding threads of the embedded engine; None: one per core
    vad_model: Path | None = None
    vad_workers: int = 0  # processes for voice activity; 0: none but the server's
    nano: NanoOptions = field(default_factory=NanoOptions)  # of Fun-ASR-Nano and GLM-ASR-Nano
    speech: SpeechOptions = field(default_factory=SpeechOptions)  # of the engine "vllm"
    fake_slots: int = 2
    fake_decode_s: float = 0.0

    def __post_init__(self) -> None:
        require_positive(self, ("fake_slots",) if self.workers is None else ("fake_slots", "workers"))
        if self.fake_decode_s < 0:
            raise ConfigurationError(f"fake_decode_s must not be negative, not {self.fake_decode_s}")
        if self.vad_workers < 0:
            raise ConfigurationError(f"vad_workers must not be negative, not {self.vad_workers}")


@dataclass(frozen=True, slots=True)
class SpeakerOptions:
    """Which speaker network to load, and where it computes."""

    model: Path | None = None  # a folder instead of the fetched weights: CAM++, or ERes2NetV2 from a hub
    device: str = "cpu"  # onnxruntime; another device, such as "cuda", is PyTorch's
    threads: int = 1  # of onnxruntime

    def __post_init__(self) -> None:
        require_positive(self, ("threads",))


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
        raise _missing(error, "vllm", options.nano.device) from error


def _load_glm(options: EngineOptions) -> Engine:
    try:
        from realtime_server.engines.vllm_engine import load_glm

        return load_glm(options.nano)
    except ImportError as error:
        raise _missing(error, "vllm", options.nano.device) from error


def _load_speech(options: EngineOptions) -> Engine:
    try:
        from realtime_server.engines.speech_to_text import load

        return load(options.speech)
    except ImportError as error:
        raise _missing(error, "vllm", options.speech.device) from error


def _load_nano_torch(options: EngineOptions) -> Engine:
    try:
        from realtime_server.engines.torch_engine import load

        return load(options.nano)
    except ImportError as error:
        raise _missing(error, "torch", options.nano.device) from error


ENGINES: dict[str, Callable[[EngineOptions], Engine]] = {
    "embedded": _load_embedded,
    "funasr-nano": _load_nano,
    "funasr-nano-torch": _load_nano_torch,
    "glm-asr": _load_glm,
    "vllm": _load_speech,
    "fake": _load_fake,
}
IN_VLLM = frozenset(
    {"funasr-nano", "glm-asr", "vllm"}
)  # these start processes that run the main program anew


def model_names(options: EngineOptions) -> tuple[str, ...]:
    """What the recognizer's model is called; of a folder only the last part of its path."""
    match options.engine:
        case "embedded":
            return ("whisper-base",)
        case "fake":
            return ("fake",)
        case "vllm":
            return (_name(options.speech.model),)
        case "glm-asr":
            return ("glm-asr-nano", _name(options.nano.model))
    return ("fun-asr-nano", _name(options.nano.model))


def _name(model: str) -> str:
    folder = Path(model)
    return folder.resolve().name if folder.is_dir() else model


def usual_nano(engine: str) -> NanoOptions:
    """What a split model runs with if nothing else is said."""
    return NanoOptions(model="zai-org/GLM-ASR-Nano-2512", hub="hf") if engine == "glm-asr" else NanoOptions()


def load_engine(options: EngineOptions) -> Engine:
    """Load a recognizer; blocks for as long as that takes. Raises ConfigurationError or WeightsError."""
    return ENGINES[options.engine](options)


def load_scorer(options: EngineOptions, kind: str) -> Scorer:
    """Load a voice activity network: kind "fsmn", or "level" for the loudness scorer that needs no weights.

    Raises ConfigurationError or WeightsError, and EngineError if a process for it cannot work.
    """
    if kind == "level":
        if options.vad_workers:
            raise ConfigurationError(
                "--vad-workers goes with --vad fsmn only; loudness costs next to nothing"
            )
        return FakeScorer()
    if options.vad_workers:
        from realtime_server.engines.vad_workers import WorkerScorer

        for package in ("kaldi_native_fbank", "onnxruntime"):  # imported by the processes alone
            if importlib.util.find_spec(package) is None:
                raise _missing(ModuleNotFoundError(name=package), "embedded")
        return WorkerScorer(weights.find("fsmn-vad", options.vad_model), options.vad_workers)
    try:
        from realtime_server.engines.vad import FsmnScorer
        from realtime_server.models.fsmn_vad import FsmnVad
    except ImportError as error:
        raise _missing(error, "embedded") from error
    return FsmnScorer(FsmnVad.load(weights.find("fsmn-vad", options.vad_model)))


def load_embedder(options: SpeakerOptions, kind: str) -> Embedder:
    """Load what tells voices apart: kind "network", or "bands" for the fake that needs no weights.

    Raises ConfigurationError or WeightsError, which say what to run.
    """
    if kind == "bands":
        return FakeEmbedder(keep_jobs=0)
    try:
        from realtime_server.engines.clustering import cluster
        from realtime_server.engines.embedding import CPU_BATCH, GPU_BATCH, SpeakerEmbedder

        for package in ("scipy.linalg", "threadpoolctl"):  # clustering imports them when it first has work
            importlib.import_module(package)
        max_batch = CPU_BATCH if options.device == "cpu" else GPU_BATCH
        return SpeakerEmbedder(_load_network(options), cluster, max_batch=max_batch)
    except ImportError as error:
        raise _missing(error, "speakers") from error


class AbsentEmbedder:
    """Stands for a speaker network that could not be loaded: every job fails, and says why."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def warmup(self) -> None:
        """Do nothing: who serves without speakers has been told."""

    async def embed(self, job: EmbedJob) -> Embeddings:
        """Raise EngineError."""
        raise EngineError(self._why)

    async def cluster(self, job: ClusterJob) -> Labels:
        """Raise EngineError."""
        raise EngineError(self._why)

    async def aclose(self) -> None:
        """Do nothing."""


def load_embedder_if_possible(options: SpeakerOptions, kind: str) -> Embedder:
    """The same; what is missing is logged, and recognition goes on without speakers."""
    try:
        return load_embedder(options, kind)
    except RealtimeServerError as error:
        logger.error("serving without speakers: %s", error)
        return AbsentEmbedder(str(error))


def _load_network(options: SpeakerOptions) -> SpeakerNetwork:
    """CAM++ on onnxruntime unless another device or another network's folder was given."""
    other = options.model is not None and (options.model / ERES2NETV2_FILE).is_file()
    folder = weights.find("campplus", options.model, verify=not other)
    if options.device == "cpu" and not other:
        from realtime_server.models.campplus_onnx import CamPlusPlusOnnx

        return CamPlusPlusOnnx.load(folder, options.threads)
    try:
        from realtime_server.models.speaker_torch import TorchNetwork
    except ImportError as error:
        raise _missing(error, "torch") from error
    return TorchNetwork.load(folder, options.device)


def _missing(error: ImportError, extra: str, device: str = "auto") -> ConfigurationError:
    """Say which package could not be imported, and what to run."""
    package = (error.name or "").partition(".")[0]
    what = f"the package '{package}'" if package else "a package"
    absent = isinstance(error, ModuleNotFoundError)
    what += " is not installed" if absent else f" cannot be imported ({error})"
    advice = how_to_install(device) if extra == "vllm" else f"run: {pip_install(extra)}"
    if package == "torch" and extra == "torch" and device != "cuda":
        advice += f" ({CPU_TORCH})"
    return ConfigurationError(f"{what}; {advice}")
