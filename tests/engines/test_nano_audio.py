"""Micro-batched encoding and alignment: every pass that a GPU makes while people wait was recorded before; word times
are computed together. Most of it needs no GPU."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the Fun-ASR-Nano engine is not installed")

from realtime_server.core.jobs import DecodeJob, DecodingOptions, Priority, Samples  # noqa: E402
from realtime_server.core.segments import SAMPLE_RATE  # noqa: E402
from realtime_server.engines.batching import BUCKETS  # noqa: E402
from realtime_server.engines.nano_audio import GPU_BATCH, GPU_SAMPLES, NanoAudio, Prompt  # noqa: E402
from realtime_server.errors import EngineError  # noqa: E402
from realtime_server.models.checkpoint import Checkpoint  # noqa: E402
from realtime_server.models.fun_asr_nano import Encoded, FunAsrNano  # noqa: E402
from realtime_server.models.graphs import ROWS  # noqa: E402
from tests.models import nano  # noqa: E402

pytestmark = pytest.mark.torch


class NotedGraphs:
    """In the place of a GraphedEncoder: notes the shapes (rows, samples) that are recorded, and those that are used."""

    def __init__(self, answer: Encoded) -> None:
        self.recorded: set[tuple[int, int]] = set()
        self.used: set[tuple[int, int]] = set()
        self._answer = answer

    def record(self, rows: int, samples: int) -> None:
        self.recorded.add((rows, samples))

    def encode(self, waveforms: Sequence[Samples], *, words: bool, pad_to: int) -> list[Encoded]:
        assert all(len(waveform) <= pad_to for waveform in waveforms)
        self.used.add((next(rows for rows in ROWS if rows >= len(waveforms)), pad_to))
        return [self._answer] * len(waveforms)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> FunAsrNano:
    folder: Path = nano.write_folder(tmp_path_factory.mktemp("model"))
    return FunAsrNano.load(Checkpoint.open(folder))


def job(samples: int) -> DecodeJob:
    audio: Any = np.broadcast_to(np.float32(0.0), samples)  # takes no memory
    return DecodeJob(1, "s", 1, 0, "final", Priority.FINAL, 0, 0, samples, audio, "", DecodingOptions())


@pytest.mark.parametrize("longest_s", [0.5, 1.0, 20.0, 29.99, 30.0, 45.0, 60.0])
async def test_no_pass_is_recorded_while_people_wait(model: FunAsrNano, longest_s: float) -> None:
    longest = round(longest_s * SAMPLE_RATE)
    (answer,) = model.encode([nano.noise(0.3)])
    graphs = NotedGraphs(answer)
    audio = NanoAudio(model, graphs=graphs)  # type: ignore[arg-type]  # what it uses of one
    await audio.warmup(longest)
    lengths = {1, *(edge for edge in BUCKETS if edge <= longest), longest}
    for count in (1, 3, 2 * GPU_BATCH):
        for length in lengths:
            await asyncio.gather(*(audio.prompt(job(length)) for _ in range(count)))
    await audio.aclose()
    assert graphs.used <= graphs.recorded
    assert {edge for _, edge in graphs.used} == {edge for _, edge in graphs.recorded}
    assert all(rows * edge <= GPU_SAMPLES for rows, edge in graphs.recorded)


async def test_a_cpu_pads_to_the_longest_and_records_nothing(model: FunAsrNano) -> None:
    audio = NanoAudio(model)
    await audio.warmup(30 * SAMPLE_RATE)
    prompts = await asyncio.gather(*(audio.prompt(job(length)) for length in (4000, 8000)))
    await audio.aclose()
    assert [prompt.encoded.samples for prompt in prompts] == [4000, 8000]


# --- word times --------------------------------------------------------------------------------------------


def prompt(encoded: Encoded) -> Prompt:
    return Prompt(torch.zeros(1, 1), encoded)


async def test_word_times_are_computed_together(model: FunAsrNano) -> None:
    batches: list[tuple[int, int]] = []
    assert model.ctc_decoder is not None
    hook = model.ctc_decoder.register_forward_hook(
        lambda module, arguments, out: batches.append(out.shape[:2])
    )
    (answer,) = model.encode([nano.noise(0.3)])
    audio = NanoAudio(model, graphs=NotedGraphs(answer))  # type: ignore[arg-type]  # batches of a GPU's size
    lengths = [0.9, 5.0, 1.0, 0.8, 4.5]
    heard = model.encode([nano.noise(seconds, i) for i, seconds in enumerate(lengths)])
    together = await asyncio.gather(*(audio.words(prompt(each), "the hello") for each in heard))
    await audio.aclose()
    assert batches == [(3, 17), (2, 83)]  # by length: short with short
    hook.remove()
    for each, words in zip(heard, together, strict=True):
        assert words is not None
        alone = model.align(each, "the hello")
        assert alone is not None
        assert [word.start_ms for word in words] == [word.start_ms for word in alone]


async def test_the_urgent_are_aligned_first_and_no_batch_is_too_large(model: FunAsrNano) -> None:
    (encoded,) = model.encode([nano.noise(0.5)])
    audio, done = NanoAudio(model, graphs=NotedGraphs(encoded)), []  # type: ignore[arg-type]

    async def words(number: int, priority: Priority) -> None:
        await audio.words(prompt(encoded), "the", priority)
        done.append(number)

    files = [asyncio.create_task(words(number, Priority.FILE)) for number in range(GPU_BATCH + 2)]
    await asyncio.sleep(0)
    final = asyncio.create_task(words(-1, Priority.FINAL))
    await asyncio.gather(*files, final)
    await audio.aclose()
    assert done.index(-1) <= GPU_BATCH  # with the first batch, or right behind the one that had begun


async def test_an_alignment_that_fails_is_an_engine_error(model: FunAsrNano) -> None:
    audio = NanoAudio(model)
    (encoded,) = model.encode([nano.noise(0.5)])
    broken = Encoded(encoded.rows, torch.zeros(3, 7), encoded.samples)  # of another width
    with pytest.raises(EngineError, match="the alignment failed"):
        await audio.words(prompt(broken), "the")
    assert await audio.words(prompt(encoded), "") == ()
    await audio.aclose()
    with pytest.raises(EngineError, match="shut down"):
        await audio.words(prompt(encoded), "the")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
async def test_on_a_gpu_word_times_are_those_of_the_cpu_while_it_encodes(
    model: FunAsrNano, tmp_path: Path
) -> None:
    cuda = FunAsrNano.load(Checkpoint.open(nano.write_folder(tmp_path)), device="cuda")
    audio = NanoAudio(cuda)

    async def words(seed: int) -> list[int]:
        samples = nano.noise(0.5 + 0.1 * seed, seed)
        wish = DecodingOptions(words=True)
        one = DecodeJob(1, "s", 1, 0, "final", Priority.FINAL, 0, 0, samples.size, samples, "", wish)
        found = await audio.words(await audio.prompt(one), "the hello")
        expected = model.align(model.encode([samples])[0], "the hello")
        return [abs(a.start_ms - b.start_ms) for a, b in zip(found or (), expected or (), strict=True)]

    errors_ms = [each for row in await asyncio.gather(*map(words, range(40))) for each in row]
    await audio.aclose()
    assert len(errors_ms) == 80
    assert sum(each > 0 for each in errors_ms) <= 4  # where two paths are as good as each other
