"""The CTC branch: what is said in each 60 ms frame, in tokens of its own; word times come from it.

    encoder output (batch, frames, 512) -> decoder, an adaptor of 512 -> `CtcHead` -> (batch, frames, vocabulary)

Source: Graves et al., "Connectionist Temporal Classification" (2006). The tokens are in ctc_tokens.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from realtime_server.models.adaptor import AdaptorConfig


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
        return logits.float().log_softmax(dim=-1)
