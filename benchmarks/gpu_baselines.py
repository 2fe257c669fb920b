"""Slower ways to the same tokens, for benchmarks/gpu.py to compare with: transformers, and FunASR's own inference."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
import yaml

from realtime_server.core.jobs import DecodingOptions, Priority, Samples
from realtime_server.engines.fun_asr_nano import FunAsrNanoEngine
from realtime_server.engines.nano_audio import NanoAudio
from realtime_server.engines.torch_engine import TorchLlm
from realtime_server.errors import EngineError
from realtime_server.models.checkpoint import Checkpoint, dtype_named
from realtime_server.models.fun_asr_nano import FunAsrNano
from realtime_server.models.llm_weights import HEAD, split_llm
from realtime_server.weights import cache_folder

if TYPE_CHECKING:
    from benchmarks.gpu import Bench

ALONE = 8  # requests of a measurement, one after the other


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


class Reference:
    """FunASR's FunASRNano with the checkpoint's weights, without its CTC branch: with it, it makes no batches."""

    def __init__(self, bench: Bench) -> None:
        """Build it; ImportError without PyPI funasr."""
        modules = (
            "frontends.wav_frontend", "models.sense_voice.model", "models.llm_asr.adaptor", "models.fun_asr_nano.model"
        )  # fmt: skip
        frontends, _, _, models = (import_module(f"funasr.{name}") for name in modules)
        transformers: Any = import_module("transformers")
        settings = yaml.safe_load((bench.folder / "config.yaml").read_text("utf-8"))
        llm = str(bench.folder / settings["llm_conf"]["init_param_path"])
        settings["llm_conf"] |= {"init_param_path": llm}
        settings = {name: value for name, value in settings.items() if not name.startswith("ctc")}
        self.bench, self._device = bench, bench.device
        self._frontend = frontends.WavFrontend(**settings["frontend_conf"], dither=0.0)
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(llm)
        with torch.device(bench.device):  # on a CPU the fresh weights of its language model take minutes
            self._model = models.FunASRNano(input_size=self._frontend.output_size(), **settings)
        weights = torch.load(bench.folder / "model.pt", mmap=True, weights_only=True)
        weights = {name: tensor for name, tensor in weights.items() if not name.startswith("ctc")}
        weights["llm." + HEAD] = weights["llm.model.embed_tokens.weight"]
        self._model.load_state_dict(weights, strict=True)
        self._model.to(bench.device).eval()

    def transcribe(self, waveforms: Sequence[Samples]) -> None:
        """Recognise waveforms as one call."""
        scale = self.bench.scale
        with torch.no_grad():
            results, _ = self._model.inference(
                [torch.from_numpy(waveform) for waveform in waveforms],
                key=[str(number) for number in range(len(waveforms))], tokenizer=self._tokenizer,
                frontend=self._frontend, device=self._device, llm_dtype="bf16", max_length=scale.tokens,
                llm_kwargs={"min_new_tokens": scale.tokens, "do_sample": False},
            )  # fmt: skip
        if len(results) != len(waveforms):
            raise EngineError("funasr answered fewer than it was asked")

    def timed(self, batch: int) -> tuple[int, float]:
        """Requests and seconds: one batch, or several requests one after the other."""
        repetitions = ALONE if batch == 1 else 1
        began_s = time.perf_counter()
        for number in range(repetitions):
            self.transcribe(self.bench.audio[number : number + batch])
        if self._device == "cuda":
            torch.cuda.synchronize()
        return batch * repetitions, time.perf_counter() - began_s
