"""Engines and jobs for the tests of this folder."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from realtime_server.core.jobs import Decoded, DecodeJob, DecodeKind, DecodingOptions, Priority, Samples
from realtime_server.engines.fun_asr_nano import FunAsrNanoEngine
from realtime_server.engines.nano_options import NanoOptions
from realtime_server.engines.torch_engine import TorchLlm
from realtime_server.engines.vllm_engine import VllmLlm
from realtime_server.engines.vllm_setup import LlmOptions
from realtime_server.models.checkpoint import Checkpoint
from realtime_server.models.llm_weights import split_llm
from tests.models.nano import noise, random_weights, write_settings

MAX_MODEL_LEN = 512
CACHE_BYTES = 64 << 20
TOKENS = 24  # enough for texts to differ

LLM = LlmOptions(
    device="cpu", dtype="float32", max_model_len=MAX_MODEL_LEN, concurrency=64, kv_cache_bytes=CACHE_BYTES,
    prefix_caching=True,  # off as a rule: whatever holds with it must hold without
)  # fmt: skip


def write_lively_folder(folder: Path) -> Path:
    """A checkpoint with random weights whose texts depend on the audio; with small ones all are nearly the same."""
    weights = random_weights(write_settings(folder))
    for name, tensor in weights.items():
        if name.startswith("llm.model.layers.") and tensor.dim() == 2:
            tensor.mul_(8)
        if name == "audio_adaptor.linear2.weight":
            tensor.mul_(5)
    torch.save(weights, folder / "model.pt")
    return folder


def nano_options(folder: Path, **changes: Any) -> NanoOptions:
    return replace(
        NanoOptions(model=str(folder), device="cpu", max_model_len=MAX_MODEL_LEN, concurrency=32), **changes
    )


def vllm_llm(folder: Path, cache: Path) -> VllmLlm:
    """The language model of a checkpoint in vLLM, not started."""
    checkpoint = Checkpoint.open(folder)
    return VllmLlm(split_llm(checkpoint, cache), width=checkpoint.config.llm.width, options=LLM)


def vllm_engine(folder: Path, cache: Path) -> FunAsrNanoEngine:
    return FunAsrNanoEngine.load(nano_options(folder), "cpu", lambda _: vllm_llm(folder, cache))


def torch_engine(folder: Path, cache: Path) -> FunAsrNanoEngine:
    def start(checkpoint: Checkpoint) -> TorchLlm:
        return TorchLlm(
            split_llm(checkpoint, cache), device="cpu", dtype="float32", max_model_len=MAX_MODEL_LEN
        )

    return FunAsrNanoEngine.load(nano_options(folder), "cpu", start)


def job(
    number: int, *, seconds: float | None = None, audio: Samples | None = None, kind: DecodeKind = "final",
    prefix: str = "", priority: Priority | None = None, **options: Any,
) -> DecodeJob:  # fmt: skip
    """A job on noise of its own, 0.3 to 3 s unless said."""
    if audio is None:
        audio = noise(0.3 + (number * 0.37) % 2.7 if seconds is None else seconds, seed=number)
    wishes = DecodingOptions(**{"max_new_tokens": TOKENS, **options})
    if priority is None:
        priority = Priority.REFRESH if kind == "partial" else Priority.FINAL
    return DecodeJob(number, "s", 1, 0, kind, priority, number, 0, audio.size, audio, prefix, wishes)


async def decode(engine: FunAsrNanoEngine, jobs: Sequence[DecodeJob]) -> list[Decoded]:
    """All at once."""
    return list(await asyncio.gather(*map(engine.transcribe, jobs)))


async def decode_in_turn(engine: FunAsrNanoEngine, jobs: Sequence[DecodeJob]) -> list[Decoded]:
    return [await engine.transcribe(each) for each in jobs]
