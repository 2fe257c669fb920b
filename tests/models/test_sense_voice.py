"""The encoder's pieces against a slow, direct reading of the paper, and its independence of the rest of a batch."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="the Fun-ASR-Nano engine is not installed")

from realtime_server.models.sense_voice import (  # noqa: E402
    EncoderConfig,
    SanmAttention,
    SenseVoiceEncoder,
    WideNorm,
    attend,
    positions,
)

pytestmark = pytest.mark.torch

CONFIG = EncoderConfig(
    input_width=28, width=24, heads=3, inner=40, blocks=3, tp_blocks=2, kernel=11, memory_shift=0
)  # fmt: skip


@pytest.fixture(scope="module")
def encoder() -> SenseVoiceEncoder:
    torch.manual_seed(0)
    return SenseVoiceEncoder(CONFIG).requires_grad_(False)


def test_names_are_those_of_the_published_checkpoints(encoder: SenseVoiceEncoder) -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in encoder.state_dict().items()}
    assert shapes["encoders0.0.self_attn.linear_q_k_v.weight"] == (72, 28)
    assert shapes["encoders0.0.norm1.weight"] == (28,)
    assert shapes["encoders.1.self_attn.fsmn_block.weight"] == (24, 1, 11)
    assert shapes["tp_encoders.1.feed_forward.w_1.weight"] == (40, 24)
    assert {"after_norm.bias", "tp_norm.weight", "encoders.0.self_attn.linear_out.bias"} <= shapes.keys()
    assert len(shapes) == 5 * 13 + 4


def test_positions() -> None:
    found = positions(400, 28, torch.device("cpu"))
    for time, at in [(1, 0), (7, 3), (400, 13)]:
        angle = time * 10_000 ** (-at / 13)
        assert found[time - 1, at].item() == pytest.approx(math.sin(angle), abs=1e-4)
        assert found[time - 1, 14 + at].item() == pytest.approx(math.cos(angle), abs=1e-4)


def test_attention_looks_at_frames_inside() -> None:
    torch.manual_seed(1)
    q, k, v = torch.randn(3, 2, 5, 6)
    inside = torch.tensor([[True, True, True, False, False], [True] * 5])
    found = attend(q, k, v, inside, heads=2)
    for row, count in ((0, 3), (1, 5)):
        for head in (slice(0, 3), slice(3, 6)):
            weights = (q[row, :, head] @ k[row, :count, head].T / math.sqrt(3)).softmax(dim=1)
            assert torch.allclose(found[row, :, head], weights @ v[row, :count, head], atol=1e-6)


@pytest.mark.parametrize("shift", [0, 2])
def test_memory_is_a_weighted_sum_of_neighbours(shift: int) -> None:
    torch.manual_seed(2)
    config = EncoderConfig(6, 6, 1, 1, 1, 0, kernel=5, memory_shift=shift)
    attention = SanmAttention(config, 6).requires_grad_(False)
    weights = attention.fsmn_block.weight[:, 0]  # (6, 5)
    values, inside = torch.randn(1, 9, 6), torch.tensor([[True] * 7 + [False] * 2])
    found = attention.memory(values, inside)[0]
    for time in range(7):
        expected = values[0, time].clone()
        for tap in range(5):
            if 0 <= (at := time + tap - 2 - shift) < 7:
                expected += weights[:, tap] * values[0, at]
        assert torch.allclose(found[time], expected, atol=1e-6)


def test_a_row_does_not_depend_on_its_batch(encoder: SenseVoiceEncoder) -> None:
    torch.manual_seed(3)
    counts = [1, 2, 17, 40, 33]
    features = torch.randn(len(counts), 44, 28) * 10  # what lies beyond a row's end is noise
    batch = encoder(features, torch.tensor(counts))
    for i, count in enumerate(counts):
        alone = encoder(features[i : i + 1, :count], torch.tensor([count]))[0]
        assert torch.allclose(batch[i, :count], alone, atol=1e-5)
        assert not batch[i, count:].any()


def test_bfloat16_is_near(encoder: SenseVoiceEncoder) -> None:
    torch.manual_seed(4)
    features, counts = torch.randn(2, 300, 28) * 10, torch.tensor([300, 200])
    exact = encoder(features, counts)
    torch.manual_seed(0)
    rough = SenseVoiceEncoder(CONFIG).requires_grad_(False).bfloat16()(features, counts)
    assert rough.dtype == torch.bfloat16
    assert (rough.float() - exact).abs().mean() < 0.02 * exact.abs().mean() + 0.02


def test_the_first_norm_takes_float32_whatever_its_weights_are() -> None:
    torch.manual_seed(5)
    x, norm = torch.randn(4, 8) * 1_000, WideNorm(8)
    exact = norm(x)
    rough = norm.bfloat16()(x)
    assert rough.dtype == torch.bfloat16
    assert torch.equal(rough, exact.bfloat16())


def test_every_weight_is_trained() -> None:
    encoder = SenseVoiceEncoder(CONFIG)
    encoder(torch.randn(2, 9, 28), torch.tensor([9, 5])).square().sum().backward()
    assert [name for name, weight in encoder.named_parameters() if weight.grad is None] == []
