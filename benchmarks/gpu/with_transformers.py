"""Slower ways to the same tokens: our encoder, and the language model in transformers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch

from benchmarks.gpu.bench import Bench
from realtime_server.bench.figures import Report
from realtime_server.core.jobs import DecodingOptions, Priority, Samples
from realtime_server.engines.fun_asr_nano import FunAsrNanoEngine
from realtime_server.engines.nano_audio import NanoAudio
from realtime_server.engines.torch_engine import TorchLlm
from realtime_server.errors import EngineError
from realtime_server.models.checkpoint import Checkpoint, dtype_named
from realtime_server.models.fun_asr_nano import FunAsrNano
from realtime_server.models.llm_weights import split_llm
from realtime_server.weights import cache_folder

ALONE = 8  # requests of a measurement, one after the other


def measure(bench: Bench) -> Report:
    """The engine without vLLM, and the same networks in batches."""
    report = bench.report("torch", f"the language model in transformers, segments of {bench.scale.seconds} s")
    bench.compare(report, "one at a time", *asyncio.run(one_at_a_time(bench)))
    bench.compare(report, f"batch of {bench.scale.baseline}", *batched(bench))
    return report


async def one_at_a_time(bench: Bench) -> tuple[int, float]:
    """Our engine with its language model in transformers: requests and seconds."""
    checkpoint = Checkpoint.open(bench.folder)
    precision = bench.options.precision(bench.device)
    llm = TorchLlm(
        split_llm(checkpoint, cache_folder()), device=bench.device, dtype=precision, max_model_len=512
    )
    model = FunAsrNano.load(checkpoint, bench.device, dtype_named(precision))
    engine = FunAsrNanoEngine(
        NanoAudio(model), llm, checkpoint.text_tokenizer(), longest_s=bench.scale.longest_s
    )
    await llm.start()
    try:
        for number in range(1 + ALONE):  # the first is to warm up
            if number == 1:
                began_s = time.perf_counter()
            decoded = await engine.transcribe(bench.job(number, words=False, priority=Priority.FINAL))
            if decoded.finish != "length":
                raise EngineError(f"request {number} ended early: {decoded.finish}")
        return ALONE, time.perf_counter() - began_s
    finally:
        await engine.aclose()


def batched(bench: Bench) -> tuple[int, float]:
    """Our encoder, eager, and `generate` of transformers, both on one batch: requests and seconds."""
    checkpoint = Checkpoint.open(bench.folder)
    precision = dtype_named(bench.options.precision(bench.device))
    model = FunAsrNano.load(checkpoint, bench.device, precision)
    transformers: Any = import_module("transformers")
    llm = transformers.AutoModelForCausalLM.from_pretrained(
        split_llm(checkpoint, cache_folder()), dtype=precision
    )
    llm = llm.to(bench.device).eval()
    limits = {"max_new_tokens": bench.scale.tokens, "min_new_tokens": bench.scale.tokens, "do_sample": False}

    def transcribe(waveforms: Sequence[Samples]) -> int:
        encoded = model.encode(waveforms, words=False)
        rows = torch.stack([model.prompt_rows(DecodingOptions(), each) for each in encoded])
        mask = torch.ones(rows.shape[:2], dtype=torch.long, device=rows.device)
        with torch.inference_mode():
            ids = llm.generate(inputs_embeds=rows, attention_mask=mask, pad_token_id=0, **limits)
        checkpoint.text_tokenizer().decode(ids[0].tolist())
        return int(ids.shape[1])

    transcribe(bench.audio[: bench.scale.baseline])
    began_s = time.perf_counter()
    made = transcribe(bench.audio[: bench.scale.baseline])
    took_s = time.perf_counter() - began_s
    if made != bench.scale.tokens:
        raise EngineError(f"transformers made {made} tokens")
    return bench.scale.baseline, took_s
