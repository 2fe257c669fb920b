"""The adaptor, and how many rows of it the language model gets."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the Fun-ASR-Nano engine is not installed")

from realtime_server.models.adaptor import AdaptorConfig, TransformerAdaptor, audio_rows  # noqa: E402

pytestmark = pytest.mark.torch

CONFIG = AdaptorConfig(input_width=12, inner=20, width=16, blocks=2, heads=4, low_frame_rate=True)


@pytest.fixture(scope="module")
def adaptor() -> TransformerAdaptor:
    torch.manual_seed(0)
    return TransformerAdaptor(CONFIG).requires_grad_(False)


def reference_rows(frames: int) -> int:
    """The reference's three lines of integer arithmetic: three strided convolutions that are no longer there."""
    frames = 1 + (frames - 3 + 2 * 1) // 2
    frames = 1 + (frames - 3 + 2 * 1) // 2
    return (frames - 1) // 2 + 1


def test_rows_are_an_eighth_rounded_up() -> None:
    for frames in range(1, 1_200):
        assert audio_rows(frames) == reference_rows(frames) == -(-frames // 8)
    assert audio_rows(torch.tensor([1, 8, 9, 167, 1_000])).tolist() == [1, 1, 2, 21, 125]


def test_names_are_those_of_the_published_checkpoints(adaptor: TransformerAdaptor) -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in adaptor.state_dict().items()}
    assert shapes["linear1.weight"] == (20, 12)
    assert shapes["linear2.weight"] == (16, 20)
    assert shapes["blocks.1.self_attn.linear_k.weight"] == (16, 16)
    assert shapes["blocks.0.feed_forward.w_1.weight"] == (4, 16)
    assert shapes["blocks.0.norm2.bias"] == (16,)
    assert len(shapes) == 4 + 2 * 16
    assert TransformerAdaptor(CONFIG).blocks[0].norm1.eps == 1e-12


def test_a_row_does_not_depend_on_its_batch(adaptor: TransformerAdaptor) -> None:
    torch.manual_seed(1)
    counts = [1, 2, 17, 40, 33]
    hidden = torch.randn(len(counts), 44, 12)
    batch = adaptor(hidden, torch.tensor(counts))
    assert batch.shape == (5, 44, 16)
    for i, count in enumerate(counts):
        alone = adaptor(hidden[i : i + 1, :count], torch.tensor([count]))[0]
        assert torch.allclose(batch[i, :count], alone, atol=1e-6)
        assert not batch[i, count:].any()


def test_without_blocks_frames_are_mapped_one_by_one() -> None:
    adaptor = TransformerAdaptor(AdaptorConfig(12, 20, 16, blocks=0, heads=4, low_frame_rate=False))
    hidden = torch.randn(1, 5, 12)
    expected = adaptor.linear2(adaptor.linear1(hidden).relu())
    assert torch.allclose(adaptor(hidden, torch.tensor([5])), expected)


def test_bfloat16_is_near(adaptor: TransformerAdaptor) -> None:
    hidden, counts = torch.randn(2, 30, 12), torch.tensor([30, 20])
    torch.manual_seed(0)
    rough = TransformerAdaptor(CONFIG).bfloat16()(hidden.bfloat16(), counts)
    assert rough.dtype == torch.bfloat16
    assert torch.allclose(rough.float(), adaptor(hidden, counts), atol=0.05)


def test_every_weight_is_trained() -> None:
    adaptor = TransformerAdaptor(CONFIG)
    adaptor(torch.randn(2, 9, 12), torch.tensor([9, 5])).square().sum().backward()
    assert [name for name, weight in adaptor.named_parameters() if weight.grad is None] == []
