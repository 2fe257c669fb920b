"""CAM++: what its two implementations have in common (campplus.py on PyTorch, campplus_onnx.py on onnxruntime).

    features (batch, frames, 80)
      -> head: a small 2-D residual network over time and frequency; 80 mel bands become 10 x 32 channels
      -> a convolution that halves the frame rate                                       (batch, 128, ceil(frames / 2))
      -> three blocks of densely connected layers: each adds 32 channels to those it sees, weighted by a sigmoid of the
         means of all frames and of its 2 s piece; a transition after each block halves the channels
      -> mean and standard deviation over time (batch, 1024) -> embedding (batch, 192)

Source: Wang et al., "CAM++: A Fast and Efficient Network for Speaker Verification Using Context-Aware Masking" (2023),
and its weights speech_campplus_sv_zh_en_16k-common_advanced.
"""

from __future__ import annotations

HEAD = 32  # channels of the head
HEAD_HEIGHT = 10  # what the head leaves of the mel bands
CHANNELS = 128  # channels that enter the first block
GROWTH = 32  # channels that a layer adds
BOTTLENECK = 128  # channels within a layer
BLOCKS = ((12, 1), (24, 2), (16, 2))  # layers and dilation of each block
PIECE = 100  # frames at the halved rate: 2 s
WIDTH = 192  # of an embedding
FEWEST_FRAMES = 3  # of a window: two are left at half the rate
EPSILON = 1e-5  # of batch norms
