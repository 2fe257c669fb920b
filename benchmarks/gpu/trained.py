"""What bfloat16 does to a trained model: the tests' tiny checkpoint on speech whose text is known.

Three runs over the same utterances, one at a time: everything in float32; the encoder in bfloat16, so that what changes
is its doing; everything in bfloat16, as the service runs on a GPU. The language model is that of transformers.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.gpu.bench import Bench
from realtime_server.bench.figures import Report
from realtime_server.models.checkpoint import Checkpoint
from realtime_server.models.fun_asr_nano import FunAsrNano
from realtime_server.models.llm_weights import split_llm
from realtime_server.weights import cache_folder
from scripts import tiny_evaluation as evaluation
from scripts.held_out import read
from scripts.synthesis import RATE, Utterance, held_out

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "data" / "tiny-fun-asr-nano"
EXACT, ENCODER, ALL = "all float32", "encoder bfloat16", "all bfloat16"
PRECISIONS = {  # of the encoder with its adaptor and CTC branch, and of the language model
    EXACT: (torch.float32, torch.float32),
    ENCODER: (torch.bfloat16, torch.float32),
    ALL: (torch.bfloat16, torch.bfloat16),
}
SHOWN = 5  # texts that differ, in the notes

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run. rows: of each utterance, (n, width).  tokens: of each, the CTC branch's best token per frame."""

    rows: list[Tensor]
    tokens: list[Tensor]
    score: evaluation.Score


def measure(bench: Bench) -> Report:
    """Texts, rows and CTC tokens in each precision."""
    utterances = _utterances(bench)
    minutes = sum(each.samples.size for each in utterances) / RATE / 60
    report = bench.report(
        "trained",
        f"{len(utterances)} utterances ({minutes:.1f} minutes) that training never heard",
        f"trained weights of {FOLDER.name}",
    )
    found = {}
    for name, (encoder, llm) in PRECISIONS.items():
        found[name] = _outcome(_load(bench.device, encoder, llm), utterances)
        logger.info("%s: measured", name)
        add(report, name, found[name], found[EXACT])
    return report


def add(report: Report, name: str, found: Outcome, exact: Outcome) -> None:
    """Add how well a run hears and how far it is from the exact one."""
    report.add("wrong characters", 100 * found.score.cer, "%", case=name)
    report.add("texts right to the letter", 100 * found.score.exact, "%", case=name)
    report.add("word starts, median error", found.score.start_ms, "ms", case=name)
    report.add("word starts, p90 error", found.score.start_p90_ms, "ms", case=name)
    if found is exact:
        return
    differences = [relative(row, other) for row, other in zip(found.rows, exact.rows, strict=True)]
    report.add("rows' difference, median", 100 * float(np.median(differences)), "%", case=name)
    report.add("rows' difference, worst", 100 * max(differences), "%", case=name)
    same = torch.cat([one == other for one, other in zip(found.tokens, exact.tokens, strict=True)])
    report.add("frames with the same CTC token", 100 * float(same.float().mean()), "%", case=name)
    changed = [pair for pair in zip(exact.score.heard, found.score.heard, strict=True) if len(set(pair)) > 1]
    report.add("texts that differ", len(changed), case=name)
    for before, after in changed[:SHOWN]:
        report.notes.append(f"{name}: {before!r} became {after!r}")


def relative(found: Tensor, exact: Tensor) -> float:
    """Root of the mean square of the difference, relative."""
    return float((found - exact).norm() / exact.norm())


def _utterances(bench: Bench) -> list[Utterance]:
    if bench.utterances:
        return read(bench.utterances)[: bench.scale.trained]
    return held_out(bench.scale.trained)


def _load(device: str, encoder: torch.dtype, llm: torch.dtype) -> FunAsrNano:
    """The model with its whole language model."""
    checkpoint = Checkpoint.open(FOLDER)
    model = FunAsrNano.load(checkpoint, device, encoder)
    transformers: Any = import_module("transformers")
    folder = split_llm(checkpoint, cache_folder())
    model.llm = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=llm).to(device).eval()
    return model


def _outcome(model: FunAsrNano, utterances: Sequence[Utterance]) -> Outcome:
    rows, tokens = [], []
    for utterance in utterances:
        (encoded,) = model.encode([utterance.samples])
        assert encoded.hidden is not None
        with torch.inference_mode():
            frames = torch.tensor([len(encoded.hidden)], device=model.device)
            tokens.append(model.ctc_log_probs(encoded.hidden[None], frames)[0].argmax(-1).cpu())
        rows.append(encoded.rows.float().cpu())
    return Outcome(rows, tokens, evaluation.score(model, utterances))
