"""The "Transformer" adaptor: two linear maps, then transformer blocks, one output frame per input frame.

It carries the encoder's frames to the language model's width, where only the first of them are kept (`audio_rows`:
the blocks learn to gather the audio there). The same network, narrower and deeper, is the CTC branch's decoder.
Parameter names are those of the published checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from realtime_server.models.sense_voice import FeedForward, attend

FRAMES_PER_ROW = 8
EPS = 1e-12  # of the blocks' norms
Count = TypeVar("Count", int, Tensor)


def audio_rows(lfr_frames: Count) -> Count:
    """Rows that the language model gets for so many stacked feature frames: one per 8, rounded up."""
    return (lfr_frames + FRAMES_PER_ROW - 1) // FRAMES_PER_ROW


@dataclass(frozen=True, slots=True)
class AdaptorConfig:
    """Sizes of an adaptor."""

    input_width: int
    inner: int  # width between the two linear maps
    width: int  # of what comes out
    blocks: int
    heads: int
    low_frame_rate: bool  # keep `audio_rows` frames, not all


class TransformerAdaptor(nn.Module):
    """Encoder frames to frames of another width."""

    def __init__(self, config: AdaptorConfig) -> None:
        """Build with fresh weights."""
        super().__init__()
        self.linear1 = nn.Linear(config.input_width, config.inner)
        self.linear2 = nn.Linear(config.inner, config.width)
        self.blocks = nn.ModuleList(Block(config.width, config.heads) for _ in range(config.blocks))

    def forward(self, hidden: Tensor, frames: Tensor) -> Tensor:
        """Map a padded batch.

        hidden: (batch, time, input width).  frames: (batch,) int64, at least 1 each.
        Returns (batch, time, width); zero where there is padding.
        """
        inside = torch.arange(hidden.shape[1], device=frames.device) < frames[:, None]
        x = self.linear2(self.linear1(hidden).relu())
        for block in self.blocks:
            x = block(x, inside)
        out: Tensor = x * inside[..., None]
        return out


class Block(nn.Module):
    """Self-attention and feed-forward, each behind a norm and around a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        """Build with fresh weights."""
        super().__init__()
        self.self_attn = Attention(width, heads)
        self.feed_forward = FeedForward(width, width // 4)
        self.norm1 = nn.LayerNorm(width, eps=EPS)
        self.norm2 = nn.LayerNorm(width, eps=EPS)

    def forward(self, x: Tensor, inside: Tensor) -> Tensor:
        """(batch, time, width), inside (batch, time) bool -> (batch, time, width)."""
        x = x + self.self_attn(self.norm1(x), inside)
        out: Tensor = x + self.feed_forward(self.norm2(x))
        return out


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        """Build with fresh weights."""
        super().__init__()
        self.heads = heads
        self.linear_q = nn.Linear(width, width)
        self.linear_k = nn.Linear(width, width)
        self.linear_v = nn.Linear(width, width)
        self.linear_out = nn.Linear(width, width)

    def forward(self, x: Tensor, inside: Tensor) -> Tensor:
        """(batch, time, width), inside (batch, time) bool -> (batch, time, width)."""
        mixed = attend(self.linear_q(x), self.linear_k(x), self.linear_v(x), inside, self.heads)
        out: Tensor = self.linear_out(mixed)
        return out
