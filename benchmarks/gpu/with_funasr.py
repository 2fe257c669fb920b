"""FunASR's own inference on the same weights, for comparison."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch
import yaml

from benchmarks.gpu.bench import Bench
from realtime_server.bench.figures import Report
from realtime_server.core.jobs import Samples
from realtime_server.errors import EngineError
from realtime_server.models.llm_weights import HEAD

ALONE = 8  # requests of a measurement, one after the other

logger = logging.getLogger(__name__)


def measure(bench: Bench) -> Report:
    """FunASR's own model class, one at a time and its batch of segments."""
    if bench.reference_site:
        sys.path.append(str(bench.reference_site))
    report = bench.report("reference", f"funasr's own inference, segments of {bench.scale.seconds} s")
    reference = Reference(bench)
    for name, batch in (("one at a time", 1), (f"batch of {bench.scale.baseline}", bench.scale.baseline)):
        reference.transcribe(bench.audio[:batch])
        logger.info("%s: warmed up", name)
        bench.compare(report, name, *reference.timed(batch))
        logger.info("%s: measured", name)
    return report


class Reference:
    """FunASR's FunASRNano with the checkpoint's weights, without its CTC branch: with it, it makes no batches."""

    def __init__(self, bench: Bench) -> None:
        """Build it; ImportError without PyPI funasr."""
        frontends, models = _modules()
        logger.info("funasr is imported")
        transformers: Any = import_module("transformers")
        settings = yaml.safe_load((bench.folder / "config.yaml").read_text("utf-8"))
        llm = str(bench.folder / settings["llm_conf"]["init_param_path"])
        settings["llm_conf"] |= {"init_param_path": llm}
        settings = {name: value for name, value in settings.items() if not name.startswith("ctc")}
        self.bench, self._device = bench, bench.device
        self._frontend = frontends.WavFrontend(**settings["frontend_conf"], dither=0.0)
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(llm)
        with torch.device(bench.device):  # every layer begins with fresh weights: on a GPU they cost nothing
            self._model = models.FunASRNano(input_size=self._frontend.output_size(), **settings)
        logger.info("its model is built")
        weights = torch.load(bench.folder / "model.pt", mmap=True, weights_only=True)
        weights = {name: tensor for name, tensor in weights.items() if not name.startswith("ctc")}
        weights["llm." + HEAD] = weights["llm.model.embed_tokens.weight"]
        self._model.load_state_dict(weights, strict=True)
        self._model.to(bench.device).eval()
        logger.info("its weights are loaded")

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


def _modules() -> tuple[Any, Any]:
    """FunASR's front end and model; importing the other two registers the networks that the model names."""
    names = (
        "models.sense_voice.model", "models.llm_asr.adaptor", "frontends.wav_frontend", "models.fun_asr_nano.model"
    )  # fmt: skip
    _, _, frontends, model = (import_module(f"funasr.{name}") for name in names)
    return frontends, model
