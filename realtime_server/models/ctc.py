"""The CTC branch: what is said in each 60 ms frame, in tokens of its own; word times come from it.

    encoder output (batch, frames, 512) -> decoder, an adaptor of 512 -> `CtcHead` -> (batch, frames, vocabulary)

Source: Graves et al., "Connectionist Temporal Classification" (2006). The tokens are in ctc_tokens.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from realtime_server.models.adaptor import AdaptorConfig

FRAMES_AT_ONCE = 1000  # that all tokens are scored in: 60 s of audio, 240 MB for 60,000 tokens


@dataclass(frozen=True, slots=True)
class CtcConfig:
    """Sizes of the branch."""

    decoder: AdaptorConfig
    vocabulary: int  # tokens, the blank among them
    blank: int  # its id


class CtcHead(nn.Module):
    """Decoder frames to log-probabilities."""

    def __init__(self, config: CtcConfig) -> None:
        """Build with fresh weights."""
        super().__init__()
        self.ctc_lo = nn.Linear(config.decoder.width, config.vocabulary)

    def forward(self, decoded: Tensor) -> Tensor:
        """(batch, frames, width) -> float32 (batch, frames, vocabulary)."""
        logits: Tensor = self.ctc_lo(decoded)
        return logits.log_softmax(dim=-1, dtype=torch.float32)


def token_log_probs(
    decoder: nn.Module, head: nn.Module, hidden: Sequence[Tensor], ids: Sequence[Sequence[int]]
) -> list[NDArray[np.float32]]:
    """Log-probabilities of a few tokens of each waveform, computed as one batch, without gradients.

    hidden: (frames, encoder width) each.  ids: those of each waveform.
    Returns (frames, at least its tokens) each, on the CPU: a column per id, in order, then some that mean nothing.
    """
    if not hidden:
        return []
    counts, device = [len(frames) for frames in hidden], hidden[0].device
    table = np.zeros((len(ids), max(map(len, ids))), np.int64)
    for row, own in zip(table, ids, strict=True):
        row[: len(own)] = own
    with torch.inference_mode():
        frames = torch.tensor(counts, device=device)
        padded = decoder(pad_sequence(list(hidden), batch_first=True), frames)
        decoded = torch.cat([row[:count] for row, count in zip(padded, counts, strict=True)])
        columns = torch.from_numpy(table).to(device)
        columns = columns.repeat_interleave(frames, dim=0, output_size=len(decoded))
        scored = []
        for start in range(0, len(decoded), FRAMES_AT_ONCE):
            part = slice(start, start + FRAMES_AT_ONCE)
            scored.append(head(decoded[part]).gather(1, columns[part]))
        return list(np.split(torch.cat(scored).cpu().numpy(), np.cumsum(counts)[:-1]))
