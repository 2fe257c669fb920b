"""CUDA graphs: the same numbers as without, whatever fills the rows of a graph."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the Fun-ASR-Nano engine is not installed")

from realtime_server.models.checkpoint import Checkpoint  # noqa: E402
from realtime_server.models.fun_asr_nano import FunAsrNano  # noqa: E402
from realtime_server.models.glm_asr import GlmAsr  # noqa: E402
from realtime_server.models.glm_checkpoint import GlmCheckpoint  # noqa: E402
from realtime_server.models.graphs import ROWS, GraphedEncoder  # noqa: E402
from tests.models import glm, nano  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here"),
]

PAD = 2 * 16_000


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> FunAsrNano:
    folder = nano.write_folder(tmp_path_factory.mktemp("model"))
    return FunAsrNano.load(Checkpoint.open(folder), "cuda", torch.bfloat16)


@pytest.mark.parametrize("count", [1, 3, 8])
def test_a_graph_gives_what_the_model_gives(model: FunAsrNano, count: int) -> None:
    graphs = GraphedEncoder(model)
    for seed in range(3):  # recorded once, replayed with other audio
        waveforms = [nano.noise(0.1 + 1.8 * n / count, seed=10 * seed + n) for n in range(count)]
        ours, theirs = graphs.encode(waveforms, pad_to=PAD), model.encode(waveforms, pad_to=PAD)
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one.rows, other.rows)
            torch.testing.assert_close(one.hidden, other.hidden)
            assert one.samples == other.samples


def test_results_survive_the_next_replay(model: FunAsrNano) -> None:
    graphs = GraphedEncoder(model)
    (first,) = graphs.encode([nano.noise(1.0, seed=1)], pad_to=PAD)
    kept = first.rows.clone()
    graphs.encode([nano.noise(1.5, seed=2)], pad_to=PAD)
    torch.testing.assert_close(first.rows, kept)


def test_more_waveforms_than_the_largest_graph_holds(model: FunAsrNano) -> None:
    waveforms = [nano.noise(0.2, seed=n) for n in range(ROWS[-1] + 1)]
    assert len(GraphedEncoder(model).encode(waveforms, pad_to=PAD)) == len(waveforms)


@pytest.mark.parametrize("count", [1, 3, 8])
def test_a_graph_gives_what_glm_asr_gives(tmp_path_factory: pytest.TempPathFactory, count: int) -> None:
    folder = glm.write_folder(tmp_path_factory.mktemp("glm"))
    model = GlmAsr.load(GlmCheckpoint.open(folder), "cuda", torch.bfloat16)
    exact = GlmAsr.load(GlmCheckpoint.open(folder))
    graphs = GraphedEncoder(model)
    for seed in range(3):
        waveforms = [nano.noise(0.1 + 29 * n / count, seed=10 * seed + n) for n in range(count)]
        found = zip(graphs.encode(waveforms), model.encode(waveforms), exact.encode(waveforms), strict=True)
        for graphed, plain, precise in found:
            torch.testing.assert_close(graphed.rows, plain.rows)
            torch.testing.assert_close(graphed.rows.float().cpu(), precise.rows, atol=0.1, rtol=0.1)
