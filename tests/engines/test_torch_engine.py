"""The language model in transformers: one at a time, cancelled at the next token, closed in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

torch = pytest.importorskip("torch", reason="the Fun-ASR-Nano engine is not installed")
transformers = pytest.importorskip(
    "transformers", reason="the language model in transformers is not installed"
)

from realtime_server.core.jobs import DecodeJob, DecodingOptions, Priority  # noqa: E402
from realtime_server.engines.generation import Sampling  # noqa: E402
from realtime_server.engines.nano_options import NanoOptions  # noqa: E402
from realtime_server.engines.torch_engine import TorchLlm, load  # noqa: E402
from realtime_server.errors import EngineError, UnsupportedError  # noqa: E402
from realtime_server.models.checkpoint import Checkpoint  # noqa: E402
from realtime_server.models.llm_weights import split_llm  # noqa: E402
from tests.models import nano  # noqa: E402

pytestmark = pytest.mark.torch

WIDTH, ROOM = 64, 128
NEVER = Sampling(max_tokens=64, stop_ids=(261,))  # a token that the random weights do not choose


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nano.write_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def llm_folder(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return split_llm(Checkpoint.open(folder), tmp_path_factory.mktemp("cache"))


@pytest_asyncio.fixture
async def llm(llm_folder: Path) -> AsyncIterator[TorchLlm]:
    llm = TorchLlm(llm_folder, device="cpu", dtype="float32", max_model_len=ROOM)
    await llm.start()
    yield llm
    await llm.aclose()


def rows(count: int = 20, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed))


async def test_it_says_what_the_network_says(llm: TorchLlm, llm_folder: Path) -> None:
    """Against the plainest way: all rows anew for every token."""
    network = transformers.AutoModelForCausalLM.from_pretrained(llm_folder)
    embeds, ids, logprobs = rows()[None], [], []
    with torch.inference_mode():
        for _ in range(10):
            scores = network(inputs_embeds=embeds).logits[0, -1].log_softmax(-1)
            ids.append(int(scores.argmax()))
            logprobs.append(float(scores.max()))
            embeds = torch.cat([embeds, network.get_input_embeddings()(torch.tensor([[ids[-1]]]))], dim=1)
    told: list[list[int]] = []
    generated = await llm.generate(
        rows(),
        Sampling(10, (261,), logprobs=True),
        request_id="a",
        on_ids=lambda so_far: told.append(list(so_far)),
    )
    assert list(generated.ids) == ids
    assert generated.logprobs == pytest.approx(logprobs, abs=1e-4)
    assert generated.finish == "length"
    await asyncio.sleep(0)
    assert told[0] == ids[:1]
    assert told[-1] == ids


async def test_it_stops_at_a_stop_token(llm: TorchLlm) -> None:
    free = await llm.generate(rows(), NEVER, request_id="a")
    third = free.ids[2]
    stopped = await llm.generate(rows(), Sampling(64, (third,)), request_id="b")
    assert stopped.ids == free.ids[: free.ids.index(third)]
    assert stopped.finish == "stop"


async def test_the_room_bounds_prompt_and_answer_together(llm: TorchLlm) -> None:
    generated = await llm.generate(rows(ROOM - 5), NEVER, request_id="a")
    assert len(generated.ids) == 5
    with pytest.raises(UnsupportedError):
        await llm.generate(rows(ROOM), NEVER, request_id="b")
    with pytest.raises(EngineError, match="wide"):
        await llm.generate(rows()[:, :-1], NEVER, request_id="c")


async def test_cancelling_ends_the_decoding_at_the_next_token(llm: TorchLlm) -> None:
    begun = asyncio.Event()
    told: list[int] = []

    def tell(ids: object) -> None:
        told.append(1)
        begun.set()

    long = asyncio.create_task(
        llm.generate(rows(), Sampling(100, (261,)), request_id="a", on_ids=tell)
    )  # fmt: skip
    waiting = asyncio.create_task(llm.generate(rows(seed=1), NEVER, request_id="b"))
    await begun.wait()
    long.cancel()
    with pytest.raises(asyncio.CancelledError):
        await long
    await waiting
    assert len(told) < 100


async def test_the_urgent_go_first(llm: TorchLlm) -> None:
    order: list[str] = []

    async def ask(name: str, priority: int) -> None:
        await llm.generate(rows(), NEVER, request_id=name, priority=priority)
        order.append(name)

    tasks = [asyncio.create_task(ask("first", 4))]
    await asyncio.sleep(0.01)  # it has the thread
    tasks += [asyncio.create_task(ask(name, priority)) for name, priority in (("file", 4), ("final", 0))]
    await asyncio.gather(*tasks)
    assert order == ["first", "final", "file"]


async def test_closed_or_not_started_it_says_so(llm_folder: Path, tmp_path: Path) -> None:
    llm = TorchLlm(llm_folder, device="cpu", dtype="float32", max_model_len=ROOM)
    assert not llm.healthy
    with pytest.raises(EngineError, match="not been started"):
        await llm.generate(rows(), NEVER, request_id="a")
    await llm.start()
    assert llm.healthy
    running = asyncio.create_task(llm.generate(rows(), Sampling(100, (261,)), request_id="a"))
    await asyncio.sleep(0.01)
    await llm.aclose()
    with pytest.raises(EngineError):
        await running
    assert not llm.healthy
    missing = TorchLlm(tmp_path / "nothing", device="cpu", dtype="float32", max_model_len=ROOM)
    with pytest.raises(EngineError, match="cannot load"):
        await missing.start()
    await missing.aclose()


async def test_the_whole_engine(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REALTIME_SERVER_CACHE", str(tmp_path))
    engine = load(NanoOptions(model=str(folder), device="cpu", max_model_len=512))
    await engine.warmup()
    audio = nano.noise(1.0)
    options = DecodingOptions(max_new_tokens=6, logprobs=True)
    job = DecodeJob(1, "s", 1, 0, "final", Priority.FINAL, 0, 0, audio.size, audio, "", options)
    decoded = await engine.transcribe(job)
    assert decoded.finish == "length"
    assert decoded.token_logprobs
    assert len(decoded.token_logprobs) == 6
    await engine.aclose()
