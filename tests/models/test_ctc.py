"""The CTC branch's head, and the few tokens that word times need; its tokens have a test file of their own."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the Fun-ASR-Nano engine is not installed")

from realtime_server.models.adaptor import AdaptorConfig, TransformerAdaptor  # noqa: E402
from realtime_server.models.ctc import FRAMES_AT_ONCE, CtcConfig, CtcHead, token_log_probs  # noqa: E402

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


def test_some_tokens_of_a_batch_are_those_of_all_tokens() -> None:
    """More frames than are scored at once, so that waveforms are cut in the middle."""
    torch.manual_seed(0)
    decoder, head = TransformerAdaptor(CONFIG.decoder).eval(), CtcHead(CONFIG)
    passes: list[int] = []
    hook = head.register_forward_hook(lambda module, arguments, out: passes.append(len(out)))
    hidden = [torch.randn(frames, 12) for frames in (7, 900, 1, 650)]
    ids = [[29, 3, 5], [29], [29, 0], [29, 1, 2, 28]]
    found = token_log_probs(decoder, head, hidden, ids)
    hook.remove()
    assert max(passes) <= FRAMES_AT_ONCE
    assert sum(passes) == 1558  # padding is not scored
    for frames, own, log_probs in zip(hidden, ids, found, strict=True):
        with torch.inference_mode():
            alone = head(decoder(frames[None], torch.tensor([len(frames)])))[0, :, own].numpy()
        assert log_probs.dtype == np.float32
        np.testing.assert_allclose(log_probs[:, : len(own)], alone, atol=1e-5)


def test_no_waveforms_have_no_tokens() -> None:
    assert token_log_probs(TransformerAdaptor(CONFIG.decoder), CtcHead(CONFIG), [], []) == []
