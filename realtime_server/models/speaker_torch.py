"""Speaker networks on PyTorch: weights loaded strictly, windows computed on any device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from realtime_server.errors import ConfigurationError
from realtime_server.models.campplus import CamPlusPlus
from realtime_server.models.campplus_channel import channel_directions
from realtime_server.models.checkpoint import compare, read_weights
from realtime_server.models.eres2netv2 import ERes2NetV2
from realtime_server.models.speaker_network import CAMPPLUS_FILE, ERES2NETV2_FILE, Floats

Module = CamPlusPlus | ERes2NetV2


class TorchNetwork:
    """A SpeakerNetwork on one device."""

    def __init__(self, module: Module, device: str) -> None:
        """Move a network with its weights to where it computes, for good."""
        self._module, self._device = module.eval().requires_grad_(False).to(device), torch.device(device)
        self.width, self.fewest_frames = module.width, module.fewest_frames
        self.channel = (
            channel_directions() if isinstance(module, CamPlusPlus) else np.empty((0, self.width), np.float32)
        )

    @classmethod
    def load(cls, folder: Path, device: str = "cpu") -> TorchNetwork:
        """Load the network whose weights are in `folder`, CAM++ or ERes2NetV2.

        Raises WeightsError if they are missing, damaged or another network's, ConfigurationError if there is no such
        device.
        """
        module, file = (
            (ERes2NetV2(), ERES2NETV2_FILE)
            if (folder / ERES2NETV2_FILE).is_file()
            else (CamPlusPlus(), CAMPPLUS_FILE)
        )
        load_weights(module, folder / file)
        try:
            return cls(module, device)
        except (RuntimeError, AssertionError) as error:  # the latter from a build without CUDA
            raise ConfigurationError(f"PyTorch cannot use the device {device!r}: {error}") from error

    def embed(self, features: Floats) -> Floats:
        """Embeddings (batch, width) of windows (batch, frames, 80), not normalised; float32 on every device."""
        with torch.inference_mode(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            embeddings: Floats = self._module(torch.from_numpy(features).to(self._device)).cpu().numpy()
        return embeddings


def load_weights(module: Module, path: Path) -> None:
    """Give a network the weights in a file; raise WeightsError naming what is missing, misshapen or not expected."""
    counters = ".num_batches_tracked"  # of training; some files lack them
    tensors = {
        name: each for name, each in read_weights(path, mmap=False).items() if not name.endswith(counters)
    }
    expected = {name: each.shape for name, each in module.state_dict().items() if not name.endswith(counters)}
    compare(path, expected, tensors)
    module.load_state_dict(tensors, strict=False)  # but for the counters it is strict: compare() saw to it
