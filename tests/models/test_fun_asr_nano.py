"""The assembled audio half: batches, prompts, word times, training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the Fun-ASR-Nano engine is not installed")

from realtime_server.core.alignment import FRAME_MS, align  # noqa: E402
from realtime_server.core.jobs import DecodingOptions  # noqa: E402
from realtime_server.errors import UnsupportedError  # noqa: E402
from realtime_server.models.checkpoint import Checkpoint  # noqa: E402
from realtime_server.models.fun_asr_nano import FunAsrNano  # noqa: E402
from realtime_server.models.prompt import build_prompt  # noqa: E402
from tests.models import nano  # noqa: E402

pytestmark = pytest.mark.torch

SECONDS = [0.3, 2.0, 1.1, 0.02, 4.04]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nano.write_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(folder: Path) -> FunAsrNano:
    return FunAsrNano.load(Checkpoint.open(folder))


def test_weights_are_the_checkpoints_and_its_own(folder: Path, model: FunAsrNano) -> None:
    checkpoint = Checkpoint.open(folder)
    state = model.state_dict()
    assert {name.split(".")[0] for name in state} == {
        "audio_encoder",
        "audio_adaptor",
        "ctc_decoder",
        "ctc",
        "llm",
    }
    assert all(torch.equal(tensor, checkpoint.tensors[name]) for name, tensor in state.items())
    assert not {t.data_ptr() for t in state.values()} & {t.data_ptr() for t in checkpoint.tensors.values()}
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("seconds", SECONDS)
def test_shapes(model: FunAsrNano, seconds: float) -> None:
    (encoded,) = model.encode([nano.noise(seconds)])
    windows = max(1, (round(seconds * 16_000) - 400) // 160 + 1)
    frames = -(-windows // 6)
    assert encoded.rows.shape == (-(-frames // 8), 64)
    assert encoded.hidden is not None
    assert encoded.hidden.shape == (frames, 64)
    assert encoded.samples == round(seconds * 16_000)


@pytest.mark.parametrize("pad_to", [None, 5 * 16_000])
def test_a_waveform_does_not_depend_on_its_batch(model: FunAsrNano, pad_to: int | None) -> None:
    waveforms = [nano.noise(seconds, i) for i, seconds in enumerate(SECONDS)]
    batch = model.encode(waveforms, pad_to=pad_to)
    for waveform, together in zip(waveforms, batch, strict=True):
        (alone,) = model.encode([waveform])
        assert torch.allclose(together.rows, alone.rows, atol=1e-5)
        assert together.hidden is not None
        assert alone.hidden is not None
        assert torch.allclose(together.hidden, alone.hidden, atol=1e-5)


def test_no_waveforms_are_no_answers(model: FunAsrNano) -> None:
    assert model.encode([]) == []


def test_answers_own_their_memory(model: FunAsrNano) -> None:
    encoded = model.encode([nano.noise(1.0), nano.noise(4.0)], words=False)[0]
    assert encoded.hidden is None
    assert encoded.rows.untyped_storage().nbytes() == encoded.rows.numel() * 4


def test_every_row_counts_without_a_low_frame_rate(tmp_path: Path) -> None:
    folder = nano.write_folder(tmp_path, {"audio_adaptor_conf.use_low_frame_rate": False})
    (encoded,) = FunAsrNano.load(Checkpoint.open(folder)).encode([nano.noise(2.0)])
    assert len(encoded.rows) == 33


def test_bfloat16_is_near(folder: Path, model: FunAsrNano) -> None:
    rough = FunAsrNano.load(Checkpoint.open(folder), dtype=torch.bfloat16)
    assert (rough.dtype, rough.device.type) == (torch.bfloat16, "cpu")
    (exact,), (found,) = model.encode([nano.noise(3.0)]), rough.encode([nano.noise(3.0)])
    assert found.rows.dtype == torch.bfloat16
    assert torch.allclose(found.rows.float(), exact.rows, atol=0.1)
    assert rough.prompt_rows(DecodingOptions(), found).dtype == torch.bfloat16


# --- prompts -----------------------------------------------------------------------------------------------


def test_a_prompt_is_text_audio_text(model: FunAsrNano) -> None:
    (encoded,) = model.encode([nano.noise(2.0)])
    options = DecodingOptions(language="zh", hotwords=("北京",))
    rows = model.prompt_rows(options, encoded, "the")
    prompt = build_prompt(options, "the")
    table = model.llm.get_submodule("model.embed_tokens").weight
    before, after = (table[model.tokenizer.encode(text)] for text in prompt)
    assert torch.equal(rows, torch.cat([before, encoded.rows, after]))
    assert rows.dtype == torch.float32


def test_translation_is_refused(model: FunAsrNano) -> None:
    (encoded,) = model.encode([nano.noise(0.5)])
    with pytest.raises(UnsupportedError):
        model.prompt_rows(DecodingOptions(task="translate"), encoded)


# --- word times --------------------------------------------------------------------------------------------


def test_words_are_where_the_ctc_branch_hears_them(model: FunAsrNano) -> None:
    (encoded,) = model.encode([nano.noise(4.04)])
    words = model.align(encoded, "the hello, 你好！")
    assert words is not None
    assert [word.text for word in words] == ["the", "hello,", "你", "好！"]
    times = [time for word in words for time in (word.start_ms, word.end_ms)]
    assert times == sorted(times)
    assert times[-1] <= 4_040

    assert encoded.hidden is not None
    assert model.ctc_tokenizer is not None
    log_probs = model.ctc_log_probs(encoded.hidden[None], torch.tensor([len(encoded.hidden)]))[0]
    spans = align(log_probs.numpy(), model.ctc_tokenizer.encode("the hello, 你好！"), blank=299)
    assert spans is not None
    assert words[0].start_ms == spans[0].start * FRAME_MS
    assert words[0].end_ms == spans[0].end * FRAME_MS


def test_no_text_has_no_words(model: FunAsrNano) -> None:
    assert model.align(model.encode([nano.noise(1.0)])[0], "") == ()


def test_no_times_rather_than_false_ones(model: FunAsrNano) -> None:
    short, unasked = model.encode([nano.noise(0.1)])[0], model.encode([nano.noise(1.0)], words=False)[0]
    assert model.align(short, "far too long a text") is None
    assert model.align(unasked, "the") is None


def test_a_batch_of_alignments_gives_what_each_gives_alone(model: FunAsrNano) -> None:
    texts = ["the", "hello, 你好！", "", "far too long a text", "hello the hello", "the"]
    heard = model.encode([nano.noise(seconds, i) for i, seconds in enumerate([*SECONDS, 0.5])])
    unasked = model.encode([nano.noise(1.0)], words=False)[0]
    pairs = [*zip(heard, texts, strict=True), (unasked, "the"), (heard[1], "hello")]
    together = model.align_all(pairs)
    assert [words is None for words in together] == [False, False, False, True, False, False, True, False]
    for (encoded, text), words in zip(pairs, together, strict=True):
        alone = model.align(encoded, text)
        assert (words is None) == (alone is None)
        for one, other in zip(words or (), alone or (), strict=True):
            assert (one.text, one.start_ms, one.end_ms) == (other.text, other.start_ms, other.end_ms)
            assert one.confidence == pytest.approx(other.confidence, abs=1e-4)
    assert model.align_all([]) == []


def test_without_a_ctc_branch_there_are_no_times(tmp_path: Path) -> None:
    model = FunAsrNano.load(Checkpoint.open(nano.write_folder(tmp_path, {"ctc_decoder": None})))
    (encoded,) = model.encode([nano.noise(1.0)])
    assert (model.has_ctc, encoded.hidden, model.align(encoded, "the")) == (False, None, None)
    with pytest.raises(ValueError, match="no CTC branch"):
        model.ctc_log_probs(torch.zeros(1, 2, 64), torch.tensor([2]))


# --- training ----------------------------------------------------------------------------------------------


def test_every_weight_is_trained(folder: Path) -> None:
    model = nano.fresh_model(folder).requires_grad_(True).train()
    waveforms, lengths = torch.from_numpy(nano.noise(2.0))[None], torch.tensor([32_000])
    heard = model(waveforms, lengths)
    log_probs = model.ctc_log_probs(heard.hidden, heard.frames).transpose(0, 1)
    targets = torch.tensor([[1, 2, 3]])
    ctc = torch.nn.functional.ctc_loss(log_probs, targets, heard.frames, torch.tensor([3]), blank=299)
    (ctc + heard.rows.square().sum() + model.embed([1, 2]).square().sum()).backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []


def test_a_trained_model_is_an_official_checkpoint(folder: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="trains a whole language model of transformers")
    llm = transformers.AutoModelForCausalLM.from_config(transformers.Qwen3Config(**nano.QWEN3))
    trained = nano.fresh_model(folder, llm)
    nano.write_settings(tmp_path)
    torch.save(trained.state_dict(), tmp_path / "model.pt")
    loaded = FunAsrNano.load(Checkpoint.open(tmp_path))
    (theirs,), (ours,) = trained.encode([nano.noise(1.0)]), loaded.encode([nano.noise(1.0)])
    assert torch.equal(
        trained.prompt_rows(DecodingOptions(), theirs), loaded.prompt_rows(DecodingOptions(), ours)
    )


def test_shapes_depend_on_shapes_alone(model: FunAsrNano) -> None:
    waveforms = torch.from_numpy(np.stack([nano.noise(2.0), nano.noise(2.0, 1)]))
    exported = torch.export.export(model, (waveforms, torch.tensor([32_000, 9_000])), strict=False)
    found = exported.module()(waveforms, torch.tensor([3_000, 32_000]))
    expected = model(waveforms, torch.tensor([3_000, 32_000]))
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(found, expected, strict=True))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_cuda_graph_gives_what_the_cpu_gives(folder: Path, model: FunAsrNano) -> None:
    cuda = FunAsrNano.load(Checkpoint.open(folder), device="cuda")
    waveforms, lengths = torch.zeros(3, 48_000, device="cuda"), torch.full((3,), 48_000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode():
        cuda(waveforms, lengths)  # plans and workspaces are made before the capture
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            heard = cuda(waveforms, lengths)
        for seed, samples in enumerate([(48_000, 16_000, 5_000), (400, 30_000, 47_999)]):
            recordings = [nano.noise(count / 16_000, seed + i) for i, count in enumerate(samples)]
            for row, recording in zip(waveforms.zero_(), recordings, strict=True):
                row[: len(recording)] = torch.from_numpy(recording)
            lengths.copy_(torch.tensor(samples))
            graph.replay()
            for found, expected in zip(cuda.split(heard, samples), model.encode(recordings), strict=True):
                assert torch.allclose(found.rows.cpu(), expected.rows, atol=1e-3)
                ours, theirs = cuda.align(found, "the"), model.align(expected, "the")
                assert ours is not None
                assert theirs is not None
                assert [word.start_ms for word in ours] == [word.start_ms for word in theirs]
