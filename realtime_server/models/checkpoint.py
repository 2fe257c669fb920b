"""Fun-ASR-Nano checkpoints in the official form: found, opened once, compared with what the model expects.

    config.yaml            sizes (nano_config.py)
    model.pt               every weight: audio_encoder.*, audio_adaptor.*, ctc_decoder.*, ctc.*, llm.*
    Qwen3-0.6B/            the language model's config and tokenizer, no weights; the name comes from config.yaml
    multilingual.tiktoken  the CTC branch's tokens; the name comes from config.yaml

model.pt is mapped into memory, not read; a tensor's bytes are read when it is copied to where it is used. Nothing in
it is executed. Published checkpoints exist without `ctc*` weights: they have no word times, and a warning says so.
"""

from __future__ import annotations

import importlib
import logging
import os
import pickle
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from realtime_server.errors import ConfigurationError, WeightsError
from realtime_server.models.adaptor import TransformerAdaptor
from realtime_server.models.ctc import CtcHead
from realtime_server.models.ctc_tokens import CtcTokenizer
from realtime_server.models.nano_config import NanoConfig
from realtime_server.models.prompt import FolderTokenizer

Hub = Literal["ms", "hf"]
PARTS = ("audio_encoder.", "audio_adaptor.", "ctc_decoder.", "ctc.", "llm.")
WRAPPERS = ("state_dict", "model_state_dict", "model")  # what trainers put the weights into
NAMED = 4  # tensors that an error names
FLOAT16 = (
    "float16 makes this model's language model answer '!!!!': use bfloat16, or float32 where there is none"
)

logger = logging.getLogger(__name__)


def dtype_named(name: str) -> torch.dtype:
    """The dtype that a flag names; raise ConfigurationError for float16 and for what is none."""
    dtypes = {
        "bfloat16": torch.bfloat16,
        "bf16": torch.bfloat16,
        "float32": torch.float32,
        "fp32": torch.float32,
    }
    if name in {"float16", "fp16", "half"}:
        raise ConfigurationError(FLOAT16)
    if name not in dtypes:
        raise ConfigurationError(f"{name!r} is no dtype of this model: use bfloat16 or float32")
    return dtypes[name]


def locate(model: str, hub: Hub = "ms") -> Path:
    """The folder of a model: a local path, or owner/name on ModelScope ("ms") or Hugging Face ("hf").

    What a hub's own client has in its cache is not fetched again; with HF_HUB_OFFLINE=1 nothing is fetched.
    Raises WeightsError if it is neither, the client is not installed, or the hub cannot be reached.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", model):
        raise WeightsError(f"{model} is no folder here, and no name of a model on a hub (owner/name)")
    title, package = {"ms": ("ModelScope", "modelscope"), "hf": ("Hugging Face", "huggingface_hub")}[hub]
    instead = "or give the folder of a copy that you have"
    try:
        download = _client(hub)
    except ImportError as error:
        raise WeightsError(
            f"{model} is no folder here, and getting it from {title} needs the package {package}: "
            f"pip install {package}, {instead}"
        ) from error
    offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in {"1", "on", "yes", "true"}
    try:
        return Path(download(model, local_files_only=offline))
    except Exception as error:  # the clients' exceptions have no common base
        why = "HF_HUB_OFFLINE is set, and its cache has no copy" if offline else _first_line(error)
        raise WeightsError(f"{model} cannot be had from {title}: {why}; check the name, {instead}") from error


def _client(hub: Hub) -> Callable[..., str]:
    """The hub's function that brings a whole repository into its cache; ImportError if it is not installed."""
    client = importlib.import_module("huggingface_hub" if hub == "hf" else "modelscope")
    download: Callable[..., str] = client.snapshot_download
    return download


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """An official folder, its weights mapped into memory."""

    folder: Path
    config: NanoConfig
    tensors: Mapping[str, Tensor]  # of model.pt, by official name, on the CPU
    has_ctc: bool  # whether the CTC branch is there, so that words can have times

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """Open a folder; raise WeightsError naming the file or setting that is missing or damaged.

        Warns once if the CTC branch's weights are missing.
        """
        config = NanoConfig.read(folder)
        tensors = read_weights(folder / "model.pt")
        if strangers := [name for name in tensors if not name.startswith(PARTS)]:
            logger.warning("%s holds weights of no known part: %s", folder / "model.pt", _listed(strangers))
        missing = [name for name in _ctc_names(config) if name not in tensors]
        if config.ctc and missing:
            logger.warning(
                "%s lacks weights of the CTC branch (%s): words will have no times",
                folder / "model.pt",
                _listed(missing),
            )
        return cls(folder, config, tensors, has_ctc=config.ctc is not None and not missing)

    def tensors_for(
        self, expected: Mapping[str, Tensor], device: str | torch.device, dtype: torch.dtype
    ) -> dict[str, Tensor]:
        """Copies of the tensors that a module wants, by the names and shapes of its `state_dict()`.

        Weights of the language model beyond those, and an incomplete CTC branch, are left out. Raises WeightsError
        naming every tensor that is missing, has another shape, or belongs to a part but is not expected there.
        """
        parts = ("audio_encoder.", "audio_adaptor.", *(("ctc_decoder.", "ctc.") if self.has_ctc else ()))
        found = {
            name: tensor
            for name, tensor in self.tensors.items()
            if name in expected or name.startswith(parts)
        }
        compare(self.folder / "model.pt", {name: tensor.shape for name, tensor in expected.items()}, found)
        return {name: tensor.to(device=device, dtype=dtype, copy=True) for name, tensor in found.items()}

    def text_tokenizer(self) -> FolderTokenizer:
        """The language model's tokenizer."""
        return FolderTokenizer(self.folder / self.config.llm.folder)

    def ctc_tokenizer(self) -> CtcTokenizer | None:
        """The CTC branch's tokenizer, None without a branch; WeightsError if it does not fit the branch."""
        if not self.has_ctc or self.config.ctc is None:
            return None
        path = self.folder / self.config.ctc_vocabulary
        tokenizer = CtcTokenizer.read(path)
        if tokenizer.size > self.config.ctc.blank:
            raise WeightsError(
                f"{path} has ids up to {tokenizer.size - 1}, but config.yaml has the blank at {self.config.ctc.blank}"
            )
        return tokenizer


def compare(path: Path, expected: Mapping[str, Sequence[int]], found: Mapping[str, Tensor]) -> None:
    """Raise WeightsError unless `found` has exactly the names and shapes of `expected`."""
    missing = [name for name in expected if name not in found]
    unexpected = [name for name in found if name not in expected]
    shapes = [
        f"{name} is {_shape(found[name].shape)}, not {_shape(shape)}"
        for name, shape in expected.items()
        if name in found and tuple(found[name].shape) != tuple(shape)
    ]
    labels = {"missing": missing, "not expected": unexpected, "of another shape": shapes}
    problems = [f"{label}: {_listed(names)}" for label, names in labels.items() if names]
    if problems:
        raise WeightsError(f"{path} does not fit its settings; {'; '.join(problems)}")


def read_weights(path: Path, *, mmap: bool = True) -> dict[str, Tensor]:
    """The tensors of a file of PyTorch's, on the CPU, without what trainers wrap around them; nothing is executed.

    mmap: a tensor's bytes are read when they are used; only files in the zip format can be mapped. Raises WeightsError.
    """
    if not path.is_file():
        raise WeightsError(f"{path.parent} has no {path.name}")
    try:
        content = torch.load(path, map_location="cpu", mmap=mmap, weights_only=True)
    except (RuntimeError, ValueError, KeyError, EOFError, OSError, pickle.UnpicklingError) as error:
        raise WeightsError(
            f"{path} cannot be opened ({_first_line(error)}); it may be cut short, or a pointer to a large file that "
            "was not fetched: get it again"
        ) from error
    while (
        isinstance(content, dict)
        and (inner := next((content[w] for w in WRAPPERS if w in content), None)) is not None
    ):
        content = inner
    if not isinstance(content, dict) or not any(isinstance(value, Tensor) for value in content.values()):
        raise WeightsError(f"{path} holds no weights")
    return {
        name.removeprefix("module."): value for name, value in content.items() if isinstance(value, Tensor)
    }


def _ctc_names(config: NanoConfig) -> list[str]:
    if config.ctc is None:
        return []
    with torch.device("meta"):
        decoder, head = TransformerAdaptor(config.ctc.decoder), CtcHead(config.ctc)
    return [
        *(f"ctc_decoder.{name}" for name in decoder.state_dict()),
        *(f"ctc.{name}" for name in head.state_dict()),
    ]


def _listed(names: Collection[str]) -> str:
    first = ", ".join(list(names)[:NAMED])
    return f"{first} and {len(names) - NAMED} more" if len(names) > NAMED else first


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "a number"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
