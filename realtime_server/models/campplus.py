"""CAM++ on PyTorch, for GPUs; campplus_layout.py draws it. Modules bear the names of the published weights."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional

from realtime_server.models.campplus_layout import (
    BLOCKS,
    BOTTLENECK,
    CHANNELS,
    FEWEST_FRAMES,
    GROWTH,
    HEAD,
    HEAD_HEIGHT,
    PIECE,
    WIDTH,
)


class CamPlusPlus(nn.Module):
    """Features to embeddings."""

    width = WIDTH
    fewest_frames = FEWEST_FRAMES

    def __init__(self) -> None:
        """Make the network without weights."""
        super().__init__()
        self.head = Head()
        layers: dict[str, nn.Module] = {"tdnn": Tdnn(HEAD * HEAD_HEIGHT, CHANNELS)}
        channels = CHANNELS
        for block, (count, dilation) in enumerate(BLOCKS, start=1):
            layers[f"block{block}"] = DenseBlock(channels, count, dilation)
            channels += count * GROWTH
            layers[f"transit{block}"] = Transition(channels)
            channels //= 2
        layers |= {"out_nonlinear": Norm(channels), "stats": Statistics(), "dense": Dense(2 * channels)}
        self.xvector = nn.Sequential(OrderedDict(layers))

    def forward(self, features: Tensor) -> Tensor:
        """Embeddings (batch, 192), not normalised, of windows (batch, frames, 80)."""
        embeddings: Tensor = self.xvector(self.head(features.transpose(1, 2)))
        return embeddings


class Head(nn.Module):
    """A residual network over frequency and time: (batch, 80, frames) to (batch, 320, frames)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, HEAD, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(HEAD)
        self.layer1 = nn.Sequential(Residual(stride=2), Residual(stride=1))
        self.layer2 = nn.Sequential(Residual(stride=2), Residual(stride=1))
        self.conv2 = nn.Conv2d(HEAD, HEAD, 3, stride=(2, 1), padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(HEAD)

    def forward(self, features: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(features[:, None])))
        x = self.layer2(self.layer1(x))
        return torch.relu(self.bn2(self.conv2(x))).flatten(1, 2)


class Residual(nn.Module):
    """Two convolutions beside a shortcut; `stride` is that of frequency."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(HEAD, HEAD, 3, stride=(stride, 1), padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(HEAD)
        self.conv2 = nn.Conv2d(HEAD, HEAD, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(HEAD)
        self.shortcut = nn.Sequential()
        if stride > 1:
            narrow = nn.Conv2d(HEAD, HEAD, 1, stride=(stride, 1), bias=False)
            self.shortcut = nn.Sequential(narrow, nn.BatchNorm2d(HEAD))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.shortcut(x))


class Norm(nn.Module):
    """Batch norm and ReLU over (batch, channels, frames)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.batchnorm = nn.BatchNorm1d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.batchnorm(x))


class Tdnn(nn.Module):
    """A convolution over time that halves the frame rate."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.linear = nn.Conv1d(channels, out, 5, stride=2, padding=2, bias=False)
        self.nonlinear = Norm(out)

    def forward(self, x: Tensor) -> Tensor:
        return self.nonlinear(self.linear(x))


class DenseBlock(nn.Module):
    """Layers each of which sees the input and what all layers before it added."""

    def __init__(self, channels: int, count: int, dilation: int) -> None:
        super().__init__()
        for index in range(count):
            self.add_module(f"tdnnd{index + 1}", DenseLayer(channels + index * GROWTH, dilation))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.children():
            x = torch.cat([x, layer(x)], dim=1)
        return x


class DenseLayer(nn.Module):
    """(batch, channels, frames) to the (batch, 32, frames) that it adds."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.nonlinear1 = Norm(channels)
        self.linear1 = nn.Conv1d(channels, BOTTLENECK, 1, bias=False)
        self.nonlinear2 = Norm(BOTTLENECK)
        self.cam_layer = ContextMask(dilation)

    def forward(self, x: Tensor) -> Tensor:
        return self.cam_layer(self.nonlinear2(self.linear1(self.nonlinear1(x))))


class ContextMask(nn.Module):
    """A convolution, and what the mean of everything and of the 2 s piece let through of each of its channels."""

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.linear_local = nn.Conv1d(BOTTLENECK, GROWTH, 3, padding=dilation, dilation=dilation, bias=False)
        self.linear1 = nn.Conv1d(BOTTLENECK, BOTTLENECK // 2, 1)
        self.linear2 = nn.Conv1d(BOTTLENECK // 2, GROWTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        pieces = functional.avg_pool1d(x, PIECE, PIECE, ceil_mode=True)
        context = torch.relu(self.linear1(x.mean(dim=2, keepdim=True) + pieces))
        mask = torch.sigmoid(self.linear2(context)).repeat_interleave(PIECE, dim=2)
        return self.linear_local(x) * mask[..., : x.shape[2]]


class Transition(nn.Module):
    """Half as many channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.nonlinear = Norm(channels)
        self.linear = nn.Conv1d(channels, channels // 2, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.nonlinear(x))


class Statistics(nn.Module):
    """Mean and standard deviation over time: (batch, channels, frames) to (batch, 2 x channels)."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x.mean(dim=2), x.std(dim=2)], dim=1)


class Dense(nn.Module):
    """The embedding: a linear layer and a batch norm without weights of its own. No ReLU follows it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.linear = nn.Conv1d(channels, WIDTH, 1, bias=False)
        self.nonlinear = nn.Sequential(OrderedDict(batchnorm=nn.BatchNorm1d(WIDTH, affine=False)))

    def forward(self, x: Tensor) -> Tensor:
        return self.nonlinear(self.linear(x[..., None])[..., 0])
