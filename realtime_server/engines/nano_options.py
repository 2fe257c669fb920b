"""How Fun-ASR-Nano is to run: which checkpoint, where, in which precision. Imports nothing heavy."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from realtime_server.errors import ConfigurationError

logger = logging.getLogger(__name__)

DEVICES = ("auto", "cuda", "cpu")
DTYPES = ("auto", "bfloat16", "float32")
HUBS = ("ms", "hf")
GPU_CONCURRENCY, CPU_CONCURRENCY = 256, 4


@dataclass(frozen=True, slots=True)
class NanoOptions:
    """Which checkpoint, and how it runs.

    model: name at the hub, or a folder.  hub: "ms" ModelScope or "hf" Hugging Face.  longest_s: of one job's audio,
    seconds, at most 60.  concurrency: jobs in the language model at once; None: what the device can bear.
    The last three are vLLM's; max_model_len is the longest prompt and answer together, in tokens.
    """

    model: str = "FunAudioLLM/Fun-ASR-Nano-2512"
    hub: Literal["ms", "hf"] = "ms"
    device: str = "auto"
    dtype: str = "auto"
    longest_s: float = 30.0
    concurrency: int | None = None
    tensor_parallel_size: int = 1
    gpu_memory_utilization: float = 0.5  # the encoder lives on the same card
    max_model_len: int = 4096

    def __post_init__(self) -> None:
        if self.dtype in ("float16", "half", "fp16"):
            raise ConfigurationError(
                "--dtype float16: this model's numbers overflow in it and every text becomes '!!!!'; "
                "use bfloat16 or float32"
            )
        _require("hub", self.hub, HUBS)
        _require("device", self.device, DEVICES)
        _require("dtype", self.dtype, DTYPES)
        if not 0 < self.longest_s <= 60:
            raise ConfigurationError(f"longest_s {self.longest_s:g}: the model takes at most 60 s at once")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ConfigurationError(
                f"--gpu-memory-utilization {self.gpu_memory_utilization:g}: it is a share, above 0 and at most 1"
            )
        numbers = (
            self.tensor_parallel_size,
            self.max_model_len,
            1 if self.concurrency is None else self.concurrency,
        )
        if min(numbers) < 1:
            raise ConfigurationError("tensor_parallel_size, max_model_len and concurrency must be positive")

    def jobs_at_once(self, device: str) -> int:
        """How many jobs the language model works on at the same time."""
        return self.concurrency or (CPU_CONCURRENCY if device == "cpu" else GPU_CONCURRENCY)

    def precision(self, device: str) -> str:
        """The dtype's name; "auto" is bfloat16 on a GPU, and float32 on a CPU, where it is faster."""
        return self.dtype if self.dtype != "auto" else "float32" if device == "cpu" else "bfloat16"


def choose_device(asked: str) -> str:
    """Turn "auto" into "cuda" or "cpu"; raise ConfigurationError if a GPU was asked for, or is there, but unusable."""
    if asked == "cpu":
        return "cpu"
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if torch.cuda.is_available():
            return "cuda"
    built = torch.version.cuda is not None
    return without_gpu(asked, built=built, complaints=[str(warning.message) for warning in caught])


def without_gpu(asked: str, *, built: bool, complaints: Sequence[str]) -> str:
    """What to do where torch sees no GPU.

    built: whether torch can use one at all.  complaints: what it said when it looked, such as a driver too old.
    """
    if complaints:
        reason = complaints[0].removeprefix("CUDA initialization: ").split(". ")[0].rstrip(".")
        raise ConfigurationError(f"the GPU cannot be used: {reason}; update the driver, or use --device cpu")
    if asked == "cuda":
        reason = "torch finds none" if built else "this torch is built for the CPU only"
        raise ConfigurationError(
            f"--device cuda: {reason}; use --device cpu, or install a torch for your GPU"
        )
    logger.info("no GPU: the recognizer runs on the CPU, which is slow")
    return "cpu"


def _require(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ConfigurationError(f"--{name} {value}: it must be one of {', '.join(choices)}")
