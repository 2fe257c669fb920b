"""ERes2NetV2 on PyTorch: another speaker network behind the interface of CAM++.

    features (batch, frames, 80)
      -> a convolution to 64 channels, then four stages of residual blocks; all but the first halve time and frequency
      -> the third stage's output, brought to the fourth's size, is fused into it
      -> mean and standard deviation over time -> a linear layer (batch, 192)

A block sends its channels through two branches of 3x3 convolutions, the second of which also sees what the first made;
blocks of the later two stages weigh that by attention instead of adding it.

Source: Chen et al., "ERes2NetV2: Boosting Short-Duration Speaker Verification Performance with Computational
Efficiency" (2024), and its weights speech_eres2netv2_sv_zh-cn_16k-common. Modules bear the names of those.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from realtime_server.models.speaker_network import MEL_BINS

CHANNELS = 64  # of the first convolution; stages have 1, 2, 4 and 8 times as many
STAGES = (3, 4, 6, 3)  # blocks
EXPANSION = 2  # a block's output channels by those of its stage
BRANCHES = 2
BRANCH_WIDTH = 26 / 64  # a branch's channels by those of its stage
REDUCTION = 4  # within attention
CEILING = 20.0  # of the blocks' ReLU
WIDTH = 192  # of an embedding
FEWEST_FRAMES = 9  # of a window: two are left at an eighth of the rate
VARIANCE_FLOOR = 1e-8


class ERes2NetV2(nn.Module):
    """Features to embeddings."""

    width = WIDTH
    fewest_frames = FEWEST_FRAMES

    def __init__(self) -> None:
        """Make the network without weights."""
        super().__init__()
        self.conv1 = nn.Conv2d(1, CHANNELS, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(CHANNELS)
        self.layer1 = _stage(CHANNELS, 0)
        self.layer2 = _stage(EXPANSION * CHANNELS, 1)
        self.layer3 = _stage(EXPANSION * 2 * CHANNELS, 2)
        self.layer4 = _stage(EXPANSION * 4 * CHANNELS, 3)
        wide = EXPANSION * 8 * CHANNELS
        self.layer3_ds = nn.Conv2d(wide // 2, wide, 3, stride=2, padding=1, bias=False)
        self.fuse34 = Fusion(wide)
        self.seg_1 = nn.Linear(2 * wide * (MEL_BINS // 8), WIDTH)

    def forward(self, features: Tensor) -> Tensor:
        """Embeddings (batch, 192), not normalised, of windows (batch, frames, 80)."""
        x = torch.relu(self.bn1(self.conv1(features.transpose(1, 2)[:, None])))
        third = self.layer3(self.layer2(self.layer1(x)))
        x = self.fuse34(self.layer4(third), self.layer3_ds(third))
        deviation = torch.sqrt(x.var(dim=3) + VARIANCE_FLOOR)
        embeddings: Tensor = self.seg_1(torch.cat([x.mean(dim=3).flatten(1), deviation.flatten(1)], dim=1))
        return embeddings


def _stage(channels: int, index: int) -> nn.Sequential:
    """A stage, index 0 to 3, whose input has so many channels; the last two have attention, all but the first halve."""
    planes, stride = CHANNELS << index, 1 if index == 0 else 2
    first = Block(channels, planes, stride, attentive=index >= 2)
    rest = (Block(EXPANSION * planes, planes, 1, attentive=index >= 2) for _ in range(STAGES[index] - 1))
    return nn.Sequential(first, *rest)


class Block(nn.Module):
    """A residual block of branches."""

    def __init__(self, channels: int, planes: int, stride: int, *, attentive: bool) -> None:
        super().__init__()
        width, out = int(planes * BRANCH_WIDTH), EXPANSION * planes
        self.conv1 = nn.Conv2d(channels, width * BRANCHES, 1, stride=stride, bias=False)
        self.bn1 = nn.BatchNorm2d(width * BRANCHES)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(BRANCHES))
        self.bns = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(BRANCHES))
        self.fuse_models = nn.ModuleList(Fusion(width) for _ in range(BRANCHES - 1)) if attentive else None
        self.conv3 = nn.Conv2d(width * BRANCHES, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.shortcut = nn.Sequential()
        if stride > 1 or channels != out:
            narrow = nn.Conv2d(channels, out, 1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(narrow, nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, height, frames) to (batch, out, height / stride, frames / stride)."""
        branches: list[Tensor] = []
        for index, part in enumerate(_relu(self.bn1(self.conv1(x))).chunk(BRANCHES, dim=1)):
            if not branches:
                merged = part
            elif self.fuse_models is None:
                merged = branches[-1] + part
            else:
                merged = self.fuse_models[index - 1](branches[-1], part)
            branches.append(_relu(self.bns[index](self.convs[index](merged))))
        return _relu(self.bn3(self.conv3(torch.cat(branches, dim=1))) + self.shortcut(x))


class Fusion(nn.Module):
    """Two tensors of one shape, each weighted by what both say: the weights of a pair add up to two."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.local_att = nn.Sequential(
            nn.Conv2d(2 * channels, channels // REDUCTION, 1),
            nn.BatchNorm2d(channels // REDUCTION),
            nn.SiLU(),
            nn.Conv2d(channels // REDUCTION, channels, 1),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        weight = 1 + torch.tanh(self.local_att(torch.cat([x, y], dim=1)))
        return x * weight + y * (2 - weight)


def _relu(x: Tensor) -> Tensor:
    return x.clamp(0, CEILING)
