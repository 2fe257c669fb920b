"""The CTC branch's head; its tokens have a test file of their own."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the Fun-ASR-Nano engine is not installed")

from realtime_server.models.adaptor import AdaptorConfig  # noqa: E402
from realtime_server.models.ctc import CtcConfig, CtcHead  # noqa: E402

pytestmark = pytest.mark.torch

CONFIG = CtcConfig(
    AdaptorConfig(12, 20, 16, blocks=1, heads=4, low_frame_rate=False), vocabulary=30, blank=29
)


def test_probabilities_add_up_to_one() -> None:
    head = CtcHead(CONFIG)
    log_probs = head(torch.randn(2, 5, 16))
    assert log_probs.shape == (2, 5, 30)
    assert torch.allclose(log_probs.exp().sum(dim=2), torch.ones(2, 5), atol=1e-6)
    assert list(head.state_dict()) == ["ctc_lo.weight", "ctc_lo.bias"]


def test_they_are_float32_whatever_the_weights_are() -> None:
    log_probs = CtcHead(CONFIG).bfloat16()(torch.randn(1, 5, 16, dtype=torch.bfloat16))
    assert log_probs.dtype == torch.float32
    assert torch.allclose(log_probs.exp().sum(dim=2), torch.ones(1, 5), atol=1e-6)
