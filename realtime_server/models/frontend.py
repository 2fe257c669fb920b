"""Kaldi's log mel filter bank and low frame rate stacking, batched, on any device.

    waveforms (batch, samples) -> windows (batch, n, 400) -> power spectra (batch, n, 257) -> log mel (batch, n, 80)
                               -> 7 frames stacked, every 6th (batch, ceil(n / 6), 560)

Source: Kaldi's feature-fbank (Povey et al., "The Kaldi Speech Recognition Toolkit", 2011), without dither and energy
floor, with windows that lie inside the audio only; the stacking is that of SAN-M (Gao et al., 2020). Everything is
float32, whatever the rest of the model computes in: the logarithm spans 36 nepers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

FULL_SCALE = float(1 << 15)  # the model was trained on 16-bit sample values
PREEMPHASIS = 0.97
LOWEST_HZ = 20.0
SMALLEST = torch.finfo(torch.float32).eps  # of a filter's energy, before the logarithm


@dataclass(frozen=True, slots=True)
class FrontendConfig:
    """Sizes of the front end."""

    rate: int  # Hz
    mels: int  # filters
    window_ms: int
    shift_ms: int
    stack: int  # frames in a stacked one
    skip: int  # frames from one stacked one to the next

    @property
    def width(self) -> int:
        """Values of a stacked frame."""
        return self.mels * self.stack

    @property
    def window(self) -> int:
        """Samples of a window."""
        return self.rate * self.window_ms // 1000

    @property
    def shift(self) -> int:
        """Samples from one window to the next."""
        return self.rate * self.shift_ms // 1000


class Frontend(nn.Module):
    """Waveforms to stacked log mel features; has no trained weights and nothing in the checkpoint."""

    hamming: Tensor
    filters: Tensor

    def __init__(self, config: FrontendConfig) -> None:
        """Compute the window and the filters."""
        super().__init__()
        self.config = config
        self.fft = 1 << (config.window - 1).bit_length()
        # Both as float32 gives them, like the features the model was trained on: where a filter hears next to nothing,
        # a window that is exact to the last bit moves the logarithm by 4e-4.
        window = torch.hamming_window(config.window, periodic=False, dtype=torch.float32, device="cpu")
        self.register_buffer("hamming", window, persistent=False)
        self.register_buffer("filters", mel_filters(config, self.fft), persistent=False)

    def forward(self, waveforms: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Features of a padded batch, and how many frames of each row are its own; the others are zero.

        waveforms: (batch, samples) float32 in -1..1.  lengths: (batch,) int64, samples of each row; what lies beyond
        is not looked at. Returns (batch, frames, stack x mels) float32 and (batch,) int64. A row shorter than one
        window counts as one window, filled with silence.
        """
        with torch.autocast(waveforms.device.type, enabled=False):
            stacked = self.stack(self.fbank(waveforms, lengths), self.windows(lengths))
        frames = self.frames(lengths)
        inside = torch.arange(stacked.shape[1], device=frames.device) < frames[:, None]
        return stacked * inside[..., None], frames

    def windows(self, lengths: Tensor) -> Tensor:
        """Whole windows in each of `lengths` samples, at least one: (batch,)."""
        return ((lengths - self.config.window) // self.config.shift + 1).clamp(min=1)

    def frames(self, lengths: Tensor) -> Tensor:
        """Stacked frames of `lengths` samples, at least one: (batch,)."""
        return (self.windows(lengths) + self.config.skip - 1) // self.config.skip

    def fbank(self, waveforms: Tensor, lengths: Tensor) -> Tensor:
        """Log mel energies: (batch, windows, mels)."""
        inside = torch.arange(waveforms.shape[1], device=lengths.device) < lengths[:, None]
        samples = waveforms.float() * FULL_SCALE * inside
        missing = self.config.window - samples.shape[1]
        if missing > 0:
            samples = nn.functional.pad(samples, (0, missing))
        windows = samples.unfold(1, self.config.window, self.config.shift)
        windows = windows - windows.mean(dim=2, keepdim=True)
        before = torch.cat([windows[..., :1], windows[..., :-1]], dim=2)
        windows = (windows - PREEMPHASIS * before) * self.hamming
        power: Tensor = torch.fft.rfft(windows, n=self.fft).abs().square()
        return (power @ self.filters).clamp(min=SMALLEST).log()

    def stack(self, mel: Tensor, counts: Tensor) -> Tensor:
        """Stack neighbouring frames; the first and the last of each row stand in for those beyond its edges.

        mel: (batch, windows, mels).  counts: (batch,) windows of each row.  Returns (batch, frames, stack x mels).
        """
        batch, windows, mels = mel.shape
        frames = -(-windows // self.config.skip)
        centres = torch.arange(frames, device=mel.device) * self.config.skip
        offsets = torch.arange(self.config.stack, device=mel.device) - (self.config.stack - 1) // 2
        wanted = (centres[:, None] + offsets).reshape(1, -1)  # (1, frames x stack)
        wanted = torch.minimum(wanted.clamp(min=0), counts[:, None] - 1)
        taken = mel.gather(1, wanted[..., None].expand(batch, frames * self.config.stack, mels))
        return taken.reshape(batch, frames, self.config.stack * mels)


def mel_filters(config: FrontendConfig, fft: int) -> Tensor:
    """Triangles on Kaldi's mel scale, from 20 Hz to half the rate: float32 (fft / 2 + 1, mels)."""
    step = (_mel(config.rate / 2) - _mel(LOWEST_HZ)) / (config.mels + 1)
    left = _mel(LOWEST_HZ) + _counted(config.mels) * step
    centre = _mel(LOWEST_HZ) + (_counted(config.mels) + 1.0) * step
    right = _mel(LOWEST_HZ) + (_counted(config.mels) + 2.0) * step
    hertz = _counted(fft // 2 + 1) * (config.rate / fft)
    mel = 1127.0 * (1.0 + hertz / 700.0).log()[:, None]
    triangles = torch.minimum((mel - left) / (centre - left), (right - mel) / (right - centre)).clamp(min=0)
    triangles[-1] = 0.0  # Kaldi leaves the highest bin out
    return triangles


def _counted(count: int) -> Tensor:
    """0, 1, 2 and so on, in float32 on the CPU, whatever the defaults are where the front end is built."""
    return torch.arange(count, dtype=torch.float32, device="cpu")


def _mel(hertz: float) -> float:
    return 1127.0 * math.log1p(hertz / 700.0)
