"""The SenseVoice encoder: self-attention with an FSMN memory (SAN-M), layer after layer.

    features (batch, frames, 560) -> 1 layer to 512 -> further layers -> norm -> "tp" layers -> norm

Source: Gao et al., "SAN-M: Memory Equipped Self-Attention for End-to-End Speech Recognition" (2020); An et al.,
"FunAudioLLM" (2024). Parameter names are those of the published checkpoints.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """Sizes of the encoder."""

    input_width: int  # of a feature frame
    width: int
    heads: int
    inner: int  # width inside the feed-forward part
    blocks: int  # layers before the first norm
    tp_blocks: int  # layers between the norms
    kernel: int  # frames that the memory spans
    memory_shift: int  # frames by which the memory looks further back than ahead


class SenseVoiceEncoder(nn.Module):
    """Feature frames to hidden frames, one to one."""

    def __init__(self, config: EncoderConfig) -> None:
        """Build with fresh weights."""
        super().__init__()
        self.scale = math.sqrt(config.width)
        self.encoders0 = nn.ModuleList([SanmLayer(config, config.input_width)])
        self.encoders = nn.ModuleList(SanmLayer(config, config.width) for _ in range(config.blocks - 1))
        self.after_norm = nn.LayerNorm(config.width)
        self.tp_encoders = nn.ModuleList(SanmLayer(config, config.width) for _ in range(config.tp_blocks))
        self.tp_norm = nn.LayerNorm(config.width)

    def forward(self, features: Tensor, frames: Tensor) -> Tensor:
        """Encode a padded batch.

        features: (batch, time, input width) float32.  frames: (batch,) int64, at least 1 each.
        Returns (batch, time, width) in the weights' dtype; zero where there is padding.
        """
        inside = torch.arange(features.shape[1], device=frames.device) < frames[:, None]
        # float32 up to the first norm: bfloat16 would round positions above 256, and drown them in the features.
        x = features.float() * self.scale + positions(features.shape[1], features.shape[2], features.device)
        for layer in [*self.encoders0, *self.encoders]:
            x = layer(x, inside)
        x = self.after_norm(x)
        for layer in self.tp_encoders:
            x = layer(x, inside)
        hidden: Tensor = self.tp_norm(x) * inside[..., None]
        return hidden


def positions(time: int, width: int, device: torch.device) -> Tensor:
    """Sinusoidal positions, counted from 1: float32 (time, width), sines then cosines."""
    steps = torch.arange(1, time + 1, device=device, dtype=torch.float32)
    half = width // 2
    rates = torch.exp(
        torch.arange(half, device=device, dtype=torch.float32) * (-math.log(10_000) / (half - 1))
    )
    angles = steps[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class SanmLayer(nn.Module):
    """Attention with memory, then feed-forward, each behind a norm and, where widths allow, around a shortcut."""

    def __init__(self, config: EncoderConfig, input_width: int) -> None:
        """Build with fresh weights."""
        super().__init__()
        self.self_attn = SanmAttention(config, input_width)
        self.feed_forward = FeedForward(config.width, config.inner)
        self.norm1 = WideNorm(input_width)
        self.norm2 = nn.LayerNorm(config.width)
        self.shortcut = input_width == config.width

    def forward(self, x: Tensor, inside: Tensor) -> Tensor:
        """(batch, time, input width), inside (batch, time) bool -> (batch, time, width)."""
        attended = self.self_attn(self.norm1(x), inside)
        x = x + attended if self.shortcut else attended
        out: Tensor = x + self.feed_forward(self.norm2(x))
        return out


class SanmAttention(nn.Module):
    """Multi-head attention plus a depthwise convolution of the values over time."""

    def __init__(self, config: EncoderConfig, input_width: int) -> None:
        """Build with fresh weights."""
        super().__init__()
        self.heads = config.heads
        self.linear_q_k_v = nn.Linear(input_width, 3 * config.width)
        self.linear_out = nn.Linear(config.width, config.width)
        self.fsmn_block = nn.Conv1d(
            config.width, config.width, config.kernel, groups=config.width, bias=False
        )
        before = (config.kernel - 1) // 2 + config.memory_shift
        self.margins = (before, config.kernel - 1 - before)

    def forward(self, x: Tensor, inside: Tensor) -> Tensor:
        """(batch, time, input width), inside (batch, time) bool -> (batch, time, width)."""
        q, k, v = self.linear_q_k_v(x).chunk(3, dim=-1)
        mixed: Tensor = self.linear_out(attend(q, k, v, inside, self.heads))
        return mixed + self.memory(v, inside)

    def memory(self, values: Tensor, inside: Tensor) -> Tensor:
        """What the convolution remembers, and the values themselves: (batch, time, width)."""
        values = values * inside[..., None]
        padded = functional.pad(values.transpose(1, 2), self.margins)
        remembered: Tensor = self.fsmn_block(padded).transpose(1, 2)
        return remembered + values


class FeedForward(nn.Module):
    """Two linear maps with a ReLU between them."""

    def __init__(self, width: int, inner: int) -> None:
        """Build with fresh weights."""
        super().__init__()
        self.w_1 = nn.Linear(width, inner)
        self.w_2 = nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) -> (..., width)."""
        out: Tensor = self.w_2(self.w_1(x).relu())
        return out


class WideNorm(nn.LayerNorm):
    """A layer norm that takes float32 whatever its weights are, and returns their dtype."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) -> (..., width)."""
        if x.dtype == self.weight.dtype:
            return super().forward(x)
        weight, bias = self.weight.float(), self.bias.float()
        return functional.layer_norm(x, self.normalized_shape, weight, bias, self.eps).to(self.weight.dtype)


def attend(q: Tensor, k: Tensor, v: Tensor, inside: Tensor, heads: int) -> Tensor:
    """Multi-head attention over frames that are inside: (batch, time, width) each -> (batch, time, width)."""
    batch, time, width = q.shape
    q, k, v = (x.reshape(batch, time, heads, width // heads).transpose(1, 2) for x in (q, k, v))
    mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=inside[:, None, None, :])
    return mixed.transpose(1, 2).reshape(batch, time, width)
