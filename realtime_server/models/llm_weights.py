"""The language model's weights, taken out of a checkpoint into a folder that vLLM and transformers can load.

    CACHE/llm/NAME-FINGERPRINT/   config.json, tokenizer files, model.safetensors, source.json

The fingerprint is of the weights (path, size, time) and of the files beside them, so that a changed checkpoint is
split anew; what the same file was split into before is then removed. The folder appears under its name when all of it
is there and flushed: an interrupted run leaves nothing that looks complete, and of two that write at once one wins.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from realtime_server.errors import WeightsError
from realtime_server.models.checkpoint import Checkpoint, compare
from realtime_server.models.nano_config import LlmConfig, Section

FORMAT = 1  # of the folder; raise it when what is written changes
SOURCE = "source.json"
PARTIAL = ".partial"  # suffix of a folder that is being written
STALE_S = 24 * 3600.0  # what a killed run left is removed by the first run after this
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json")
HEAD = "lm_head.weight"
DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}  # as safetensors names them


@dataclass(frozen=True, slots=True)
class LlmParts:
    """A language model inside a checkpoint, and what its own folder is to hold.

    folder: the checkpoint.  weights: files that the tensors are in; the first stands for all of them.
    files: config and tokenizer, by name.  tensors: read only if the folder is to be written; raises WeightsError.
    """

    folder: Path
    weights: Sequence[Path]
    files: Mapping[str, bytes]
    tensors: Callable[[], dict[str, Tensor]]


def split_llm(checkpoint: Checkpoint, cache: Path) -> Path:
    """The folder with the language model of a Fun-ASR-Nano; see `write_llm`."""
    beside = {path.name: path.read_bytes() for path in _files_beside(checkpoint)}
    weights = [checkpoint.folder / "model.pt"]
    return write_llm(LlmParts(checkpoint.folder, weights, beside, lambda: llm_tensors(checkpoint)), cache)


def write_llm(parts: LlmParts, cache: Path) -> Path:
    """The folder with a language model in Hugging Face layout, written below `cache` if it is not there.

    cache: a folder that may not exist yet, `weights.cache_folder()`. Weights keep their dtype.
    Raises WeightsError naming tensors that are missing or wrong, or saying why the folder cannot be written.
    """
    home, sources = cache / "llm", [path.resolve() for path in parts.weights]
    target = home / f"{parts.folder.resolve().name}-{_fingerprint(sources, parts.files)}"
    if target.is_dir():
        return target
    tensors = parts.tensors()
    with _disk_errors(home):
        home.mkdir(parents=True, exist_ok=True)
        _sweep(home)
        _check_space(home, sum(tensor.nbytes for tensor in tensors.values()))
        with _folder_to_be(target) as folder:
            for name, content in parts.files.items():
                (folder / name).write_bytes(content)
            write_safetensors(folder / "model.safetensors", tensors)
            (folder / SOURCE).write_text(json.dumps({"model": str(sources[0])}), "utf-8")
        _remove_older(home, target, str(sources[0]))
    return target


def llm_tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The language model's tensors under their Hugging Face names; WeightsError where they do not fit its config.

    Shapes are known for Qwen3; of another kind only the embeddings are compared.
    """
    llm, path = checkpoint.config.llm, checkpoint.folder / "model.pt"
    found = {
        name.removeprefix("llm."): tensor
        for name, tensor in checkpoint.tensors.items()
        if name.startswith("llm.") and not name.endswith("inv_freq")
    }
    if llm.tied:  # the head is the embedding table, which safetensors would store twice
        found.pop(HEAD, None)
    if llm.kind == "qwen3":
        config = Section.read_json(checkpoint.folder / llm.folder / "config.json")
        compare(path, qwen3_shapes(llm, config), found)
    else:
        embeddings = {"model.embed_tokens.weight": (llm.vocabulary, llm.width)}
        compare(path, embeddings, {name: found[name] for name in embeddings if name in found})
    check_dtypes(path, found)
    return found


def check_dtypes(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise WeightsError unless all of a language model's tensors are of a dtype that can be written."""
    if strange := {str(tensor.dtype) for tensor in tensors.values() if tensor.dtype not in DTYPES}:
        raise WeightsError(
            f"{path}: the language model's weights are {', '.join(sorted(strange))}, not floating point"
        )


def qwen3_shapes(llm: LlmConfig, config: Section) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a Qwen3's tensors."""
    head = config.integer("head_dim")
    return _decoder_shapes(llm, config, head, {"self_attn.q_norm": (head,), "self_attn.k_norm": (head,)})


def llama_shapes(llm: LlmConfig, config: Section) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a Llama's tensors."""
    config.expect("mlp_bias", None, False)
    head = config.integer("head_dim", llm.width // config.integer("num_attention_heads"))
    return _decoder_shapes(llm, config, head, {})


def _decoder_shapes(
    llm: LlmConfig, config: Section, head: int, more: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """What the two have in common; more: of every layer."""
    config.expect("attention_bias", None, False)
    width, inner = llm.width, config.integer("intermediate_size")
    queries = config.integer("num_attention_heads") * head
    keys = config.integer("num_key_value_heads") * head
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm": (width,),
        "self_attn.q_proj": (queries, width),
        "self_attn.k_proj": (keys, width),
        "self_attn.v_proj": (keys, width),
        "self_attn.o_proj": (width, queries),
        **more,
        "post_attention_layernorm": (width,),
        "mlp.gate_proj": (inner, width),
        "mlp.up_proj": (inner, width),
        "mlp.down_proj": (width, inner),
    }
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (llm.vocabulary, width)}
    for i in range(config.integer("num_hidden_layers")):
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in layer.items()}
    shapes["model.norm.weight"] = (width,)
    return shapes if llm.tied else shapes | {HEAD: (llm.vocabulary, width)}


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file (https://github.com/huggingface/safetensors, "Format") and flush it to the disk.

    Done here because the library maps the file while it writes: a full disk would be a crash, not an error.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.nbytes
        header[name] = {
            "dtype": DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with path.open("xb") as stream:
        stream.write(len(encoded).to_bytes(8, "little") + encoded)
        for tensor in tensors.values():
            stream.write(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
        stream.flush()
        os.fsync(stream.fileno())


def _files_beside(checkpoint: Checkpoint) -> list[Path]:
    """Config and tokenizer files of the language model's folder."""
    folder = checkpoint.folder / checkpoint.config.llm.folder
    return sorted(
        path for path in folder.iterdir() if path.is_file() and not path.name.endswith(WEIGHT_SUFFIXES)
    )


def _fingerprint(sources: Sequence[Path], beside: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256(str(FORMAT).encode())
    for source in sources:
        stat = source.stat()
        digest.update(f"|{source}|{stat.st_size}|{stat.st_mtime_ns}".encode())
    for name, content in beside.items():
        digest.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
    return digest.hexdigest()[:16]


@contextmanager
def _folder_to_be(target: Path) -> Iterator[Path]:
    """A new folder that becomes `target` when the block ends well, unless another process was first."""
    folder = target.with_name(f".{target.name}.{secrets.token_hex(4)}{PARTIAL}")
    folder.mkdir()
    try:
        yield folder
        try:
            folder.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_space(home: Path, needed: int) -> None:
    free = shutil.disk_usage(home).free
    if free < needed:
        raise WeightsError(
            f"the language model's weights need {needed / 1e6:,.0f} MB in {home}, {free / 1e6:,.0f} MB are free; free "
            "some space, or set REALTIME_SERVER_CACHE to a folder on another disk"
        )


def _remove_older(home: Path, target: Path, source: str) -> None:
    """Remove what the same model.pt, before it changed, was split into."""
    for path in home.glob(f"*/{SOURCE}"):
        with suppress(OSError, ValueError):
            if path.parent != target and json.loads(path.read_bytes()).get("model") == source:
                gone = path.parent.with_name(f".{path.parent.name}.{secrets.token_hex(4)}{PARTIAL}")
                shutil.rmtree(path.parent.rename(gone))


def _sweep(home: Path) -> None:
    before = time.time() - STALE_S
    with suppress(OSError):  # another process may be sweeping too
        for path in home.glob(f".*{PARTIAL}"):
            if path.stat().st_mtime < before:
                shutil.rmtree(path)


@contextmanager
def _disk_errors(home: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
        advice = "free some space" if full else "check its permissions"
        raise WeightsError(
            f"cannot write the language model's weights to {home}: {error.strerror or error}; {advice}, or set "
            "REALTIME_SERVER_CACHE to a folder that can be written"
        ) from error
