"""Voice activity in processes of its own: the same bits, whatever happens to the processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from realtime_server.core.jobs import Probabilities, Samples, ScoreJob
from realtime_server.core.segments import FRAME
from realtime_server.engines.vad_processes import MEMORY
from realtime_server.engines.vad_wire import Kind, Told, pack_job, pack_message, split_messages, take_job
from realtime_server.engines.vad_workers import WorkerScorer
from realtime_server.errors import EngineError, WeightsError
from realtime_server.models.fsmn_vad import FsmnVad
from tests.models.vad import network, score, weights_folder

pytestmark = pytest.mark.embedded

RNG = np.random.default_rng(0)
LENGTH = 60 * FRAME + 777
AUDIO: Samples = (RNG.normal(0, 0.1, LENGTH) * np.repeat(RNG.random(61), FRAME)[:LENGTH]).astype(np.float32)
NOTHING = np.empty(0, np.float32)
SOON_S = 30.0  # for what takes a second on an idle machine


def job(samples: Samples, *, first: bool = False, last: bool = False, session: str = "s") -> ScoreJob:
    return ScoreJob(1, session, 1, 0, samples, first, last)


def jobs(cuts: list[int], session: str = "s") -> list[ScoreJob]:
    """AUDIO as jobs that begin at 0 and at each of the cuts, in frames."""
    edges = list(pairwise([0, *(cut * FRAME for cut in cuts), len(AUDIO)]))
    return [job(AUDIO[a:b], first=a == 0, last=b == len(AUDIO), session=session) for a, b in edges]


async def hear(scorer: WorkerScorer, cuts: list[int], session: str = "s") -> Probabilities:
    return np.concatenate([await scorer.score(each) for each in jobs(cuts, session)])


async def until_up(scorer: WorkerScorer, workers: int) -> None:
    async with asyncio.timeout(SOON_S):
        while scorer.up < workers:  # noqa: ASYNC110 - a process that is up sets no event
            await asyncio.sleep(0.01)


@pytest.fixture
async def scorer() -> AsyncIterator[WorkerScorer]:
    scorer = WorkerScorer(weights_folder(), 1)
    yield scorer
    await scorer.aclose()


@pytest.fixture
async def two() -> AsyncIterator[WorkerScorer]:
    scorer = WorkerScorer(weights_folder(), 2)
    yield scorer
    await scorer.aclose()


# --- the same answers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cuts", [[], [1], [1, 2, 3], [1, 2, 12, 13, 60], [60], list(range(1, 61))])
async def test_jobs_of_any_size_give_the_same_bits_as_in_the_process(
    scorer: WorkerScorer, cuts: list[int]
) -> None:
    assert np.array_equal(await hear(scorer, cuts), score(AUDIO))


async def test_streams_at_once_in_two_workers_are_apart(two: WorkerScorer) -> None:
    orders = [sorted(RNG.choice(np.arange(1, 61), 12, replace=False).tolist()) for _ in range(8)]
    heard = await asyncio.gather(*(hear(two, cuts, str(n)) for n, cuts in enumerate(orders)))
    assert all(np.array_equal(scores, score(AUDIO)) for scores in heard)


async def test_streams_are_spread_over_the_workers(two: WorkerScorer) -> None:
    await two.score(job(AUDIO[:FRAME], first=True, session="before they are known to be up"))
    await until_up(two, 2)
    for session in "abcde":
        await two.score(job(AUDIO[:FRAME], first=True, session=session))
    assert sorted(worker.load for worker in two._workers) == [3, 3]


async def test_what_came_before_the_memory_has_no_influence() -> None:
    whole = [network().stream(), network().stream()]
    scores = whole[0].feed(AUDIO[: 60 * FRAME])
    whole[1].feed(AUDIO[30 * FRAME - MEMORY : 30 * FRAME])
    assert np.array_equal(whole[1].feed(AUDIO[30 * FRAME : 60 * FRAME]), scores[-180:])


# --- streams --------------------------------------------------------------------------------------------------


async def test_first_starts_anew(scorer: WorkerScorer) -> None:
    for _ in range(3):
        assert len(await scorer.score(job(AUDIO[: 3 * FRAME], first=True))) == 14
    assert scorer._workers[0].load == 1


async def test_a_stream_is_gone_after_its_last_job(scorer: WorkerScorer) -> None:
    await hear(scorer, [])
    assert scorer._workers[0].load == 0
    assert not scorer._streams
    with pytest.raises(EngineError, match="unknown"):
        await scorer.score(job(AUDIO[:FRAME]))


async def test_forget_drops_a_sessions_streams(scorer: WorkerScorer) -> None:
    for session in ("a", "b"):
        await scorer.score(job(AUDIO[:FRAME], first=True, session=session))
    scorer.forget("a")
    scorer.forget("never seen")
    assert len(await scorer.score(job(AUDIO[:FRAME], session="b"))) == 6
    with pytest.raises(EngineError, match="unknown"):
        await scorer.score(job(AUDIO[:FRAME], session="a"))


async def test_two_jobs_of_a_stream_at_a_time_are_refused(scorer: WorkerScorer) -> None:
    task = asyncio.create_task(scorer.score(job(AUDIO[:FRAME], first=True)))
    await asyncio.sleep(0)
    with pytest.raises(EngineError, match="scoring another job"):
        await scorer.score(job(AUDIO[:FRAME]))
    assert len(await task) == 2


async def test_a_cancelled_job_breaks_its_stream_until_it_starts_anew(scorer: WorkerScorer) -> None:
    await scorer.score(job(AUDIO[:FRAME], first=True))
    task = asyncio.create_task(scorer.score(job(AUDIO[:FRAME])))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(EngineError, match="broken"):
        await scorer.score(job(AUDIO[:FRAME]))
    assert len(await scorer.score(job(AUDIO[:FRAME], first=True))) == 2


async def test_a_failed_job_breaks_its_stream_and_no_other(scorer: WorkerScorer) -> None:
    for session in ("a", "b"):
        await scorer.score(job(AUDIO[:FRAME], first=True, session=session))
    with pytest.raises(EngineError, match="no multiple of 960"):
        await scorer.score(job(AUDIO[: FRAME + 1], session="a"))
    with pytest.raises(EngineError, match="broken"):
        await scorer.score(job(AUDIO[:FRAME], session="a"))
    assert len(await scorer.score(job(AUDIO[:FRAME], session="b"))) == 6


# --- processes that die -------------------------------------------------------------------------------------------


async def test_a_worker_that_dies_changes_no_bit(scorer: WorkerScorer) -> None:
    scores = []
    for number, each in enumerate(jobs(list(range(1, 61, 2)))):
        if number in (1, 12):
            os.kill(scorer.pids[0], signal.SIGKILL)
        scores.append(await scorer.score(each))
        if number in (1, 12):
            await until_up(scorer, 1)
    assert np.array_equal(np.concatenate(scores), score(AUDIO))
    assert scorer.restarts == 2


async def test_the_streams_of_a_dead_worker_go_on_in_another(two: WorkerScorer) -> None:
    begun = [jobs([20], session) for session in "abcd"]
    scores = [[await two.score(first)] for first, _ in begun]
    await until_up(two, 2)
    os.kill(two.pids[0], signal.SIGKILL)
    for found, (_, second) in zip(scores, begun, strict=True):
        found.append(await two.score(second))
    assert all(np.array_equal(np.concatenate(found), score(AUDIO)) for found in scores)


async def test_a_worker_that_hangs_is_replaced() -> None:
    scorer = WorkerScorer(weights_folder(), 1, hang_s=1.0)
    first, second = jobs([30])
    scores = [await scorer.score(first)]
    os.kill(scorer.pids[0], signal.SIGSTOP)
    async with asyncio.timeout(SOON_S):
        scores.append(await scorer.score(second))
    await scorer.aclose()
    assert np.array_equal(np.concatenate(scores), score(AUDIO))


async def test_a_worker_that_is_slow_keeps_its_own_streams_waiting_and_no_other(two: WorkerScorer) -> None:
    await two.score(job(AUDIO[:FRAME], first=True, session="before both are known to be up"))
    await until_up(two, 2)
    begun = [jobs([20], session) for session in "abcd"]
    scores = [[await two.score(first)] for first, _ in begun]
    slow = {session for session in "abcd" if two._streams[session][0].worker is two._workers[0]}
    assert len(slow) == 2
    os.kill(two.pids[0], signal.SIGSTOP)
    rest = [asyncio.create_task(two.score(second)) for _, second in begun]
    async with asyncio.timeout(SOON_S):
        await asyncio.gather(
            *(task for task, session in zip(rest, "abcd", strict=True) if session not in slow)
        )
    assert sum(task.done() for task in rest) == 2
    os.kill(two.pids[0], signal.SIGCONT)
    async with asyncio.timeout(SOON_S):
        ends = await asyncio.gather(*rest)
    for found, end in zip(scores, ends, strict=True):
        assert np.array_equal(np.concatenate([*found, end]), score(AUDIO))


async def test_a_replacement_that_hangs_while_it_loads_is_replaced() -> None:
    scorer = WorkerScorer(weights_folder(), 1)
    scorer.load_s = 3.0
    first, second = jobs([30])
    scores = [await scorer.score(first)]
    await kill_and_stop_the_next(scorer)
    async with asyncio.timeout(SOON_S):
        scores.append(await scorer.score(second))
    await scorer.aclose()
    assert np.array_equal(np.concatenate(scores), score(AUDIO))
    assert scorer.restarts >= 2


async def kill_and_stop_the_next(scorer: WorkerScorer) -> None:
    (pid,) = scorer.pids
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(SOON_S):
        while scorer.pids == [pid]:  # noqa: ASYNC110 - a process that is replaced sets no event
            await asyncio.sleep(0)
    os.kill(scorer.pids[0], signal.SIGSTOP)
    assert scorer.up == 0


async def test_workers_are_up_before_the_first_job(two: WorkerScorer) -> None:
    two.attach()
    await until_up(two, 2)


async def kill_workers_that_have(scorer: WorkerScorer, session: str, times: int) -> None:
    """Kill each worker that gets the session's job, as if the job did it."""
    for _ in range(times):
        stream = scorer._streams[session][0]
        while not (stream.worker and stream.number in stream.worker._busy):  # noqa: ASYNC110
            await asyncio.sleep(0)
        dead = stream.worker
        os.kill(dead.pid, signal.SIGKILL)
        while stream.worker is dead and not (stream.answer and stream.answer.done()):  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_a_job_that_brings_workers_down_is_given_up_and_none_of_those_beside_it(
    scorer: WorkerScorer,
) -> None:
    begun = {session: jobs([20], session) for session in "abcd"}
    scores = {session: [await scorer.score(first)] for session, (first, _) in begun.items()}
    async with asyncio.timeout(SOON_S):
        rest = {session: asyncio.create_task(scorer.score(second)) for session, (_, second) in begun.items()}
        killing = asyncio.create_task(kill_workers_that_have(scorer, "b", 3))
        with pytest.raises(EngineError, match="brought voice activity workers down"):
            await rest.pop("b")
        for session, task in rest.items():
            scores[session].append(await task)
        await killing
    assert all(np.array_equal(np.concatenate(scores[session]), score(AUDIO)) for session in rest)
    await until_up(scorer, 1)
    assert len(await scorer.score(job(AUDIO[:FRAME], first=True, session="b"))) == 2


async def test_jobs_that_two_workers_died_with_are_answered_by_the_third(scorer: WorkerScorer) -> None:
    begun = {session: jobs([20], session) for session in "abc"}
    scores = [await scorer.score(first) for first, _ in begun.values()]
    rest = [asyncio.create_task(scorer.score(second)) for _, second in begun.values()]
    # It comes next, before what they asked is sent: a worker that has its job might answer before it dies.
    killing = asyncio.create_task(kill_workers_that_have(scorer, "a", 2))
    async with asyncio.timeout(SOON_S):
        ends = await asyncio.gather(*rest)
        await killing
    for found, end in zip(scores, ends, strict=True):
        assert np.array_equal(np.concatenate([found, end]), score(AUDIO))
    assert scorer.restarts == 2


async def test_a_suspect_that_is_not_wanted_any_more_keeps_nobody_waiting(scorer: WorkerScorer) -> None:
    begun = {session: jobs([20], session) for session in "abc"}
    for first, _ in begun.values():
        await scorer.score(first)
    rest = [asyncio.create_task(scorer.score(second)) for _, second in begun.values()]
    await asyncio.sleep(0)
    async with asyncio.timeout(SOON_S):
        await kill_workers_that_have(scorer, "a", 2)
        for session in "ab":
            scorer.forget(session)
        ends = await asyncio.gather(*rest, return_exceptions=True)
    assert [isinstance(end, EngineError) for end in ends] == [True, True, False]
    assert len(await scorer.score(job(AUDIO[:FRAME], first=True, session="b"))) == 2


async def test_a_job_that_is_alone_when_two_workers_die_is_given_up(scorer: WorkerScorer) -> None:
    await scorer.score(job(AUDIO[:FRAME], first=True))
    task = asyncio.create_task(scorer.score(job(AUDIO[:FRAME])))
    await asyncio.sleep(0)
    async with asyncio.timeout(SOON_S):
        await kill_workers_that_have(scorer, "s", 2)
        with pytest.raises(EngineError, match="brought voice activity workers down"):
            await task
    await until_up(scorer, 1)
    assert len(await scorer.score(job(AUDIO[:FRAME], first=True))) == 2


async def test_a_closed_scorer_refuses_and_leaves_no_process() -> None:
    scorer = WorkerScorer(weights_folder(), 2)
    task = asyncio.create_task(scorer.score(job(AUDIO, first=True, last=True)))
    await asyncio.sleep(0)
    await scorer.aclose()
    with pytest.raises(EngineError):
        await task
    with pytest.raises(EngineError, match="closed"):
        await scorer.score(job(AUDIO[:FRAME], first=True))
    assert all(worker._process.returncode is not None for worker in scorer._workers)
    assert not any(alive(pid) for pid in scorer.pids)


async def test_one_that_was_never_used_closes() -> None:
    scorer = WorkerScorer(weights_folder(), 1)
    await scorer.aclose()
    assert not alive(scorer.pids[0])


def test_weights_that_cannot_be_used_are_told_at_once(tmp_path: Path) -> None:
    for name in ("model.onnx", "am.mvn"):
        (tmp_path / name).write_bytes((weights_folder() / name).read_bytes())
    (tmp_path / "model.onnx").write_bytes(b"no network")
    with pytest.raises(WeightsError, match=r"cannot load .*model\.onnx"):
        WorkerScorer(tmp_path, 2)


PARENT = """
import os, sys
from pathlib import Path
from realtime_server.engines.vad_workers import WorkerScorer
scorer = WorkerScorer(Path(sys.argv[1]), 2)
print(*scorer.pids, flush=True)
os.kill(os.getpid(), 9)
"""


def test_workers_end_when_the_server_is_killed() -> None:
    command = [sys.executable, "-c", PARENT, str(weights_folder())]
    told = subprocess.run(command, capture_output=True, text=True).stdout
    left = [int(word) for word in told.split()]
    assert len(left) == 2
    end_s = time.monotonic() + SOON_S
    while any(map(alive, left)) and time.monotonic() < end_s:
        time.sleep(0.01)
    assert not any(map(alive, left))


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not asked for yet does not."""
    with suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX"
    return False


def test_a_worker_loads_nothing_of_the_server_and_the_server_nothing_of_the_network() -> None:
    found = {}
    for module in ("vad_worker", "vad_workers"):
        program = f"import sys, realtime_server.engines.{module}; print(*sys.modules)"
        told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        found[module] = told.stdout.split()
    server = {"asyncio", "websockets", "prometheus_client", "realtime_server.core.protocol"}
    assert not server & set(found["vad_worker"])
    assert not {"onnxruntime", "kaldi_native_fbank"} & set(found["vad_workers"])


# --- inside a worker, and between ---------------------------------------------------------------------------------


def answers(model: FsmnVad, data: bytes, piece: int) -> Iterator[tuple[Told, int, bytes]]:
    """What a worker answers to jobs that come in pieces of so many bytes."""
    from realtime_server.engines.vad_worker import Desk

    desk, told = Desk(model), bytearray()
    for at in range(0, len(data), piece):
        desk.receive(data[at : at + piece])
        while not desk.idle:
            told += desk.work()[0]
    yield from split_messages(told)


@pytest.mark.parametrize("piece", [1000, 4096, 100_000, 10_000_000])
def test_a_job_may_come_in_any_pieces(piece: int) -> None:
    data = pack_job(Kind.NEW | Kind.LAST, 7, NOTHING, AUDIO) + pack_job(Kind.SCORE, 8, NOTHING, AUDIO[:FRAME])
    told = {number: (kind, content) for kind, number, content in answers(network(), data, piece)}
    assert told[7][0] == Told.SCORES
    assert told[8][0] == Told.FAILED
    assert np.array_equal(np.frombuffer(told[7][1], np.float32), score(AUDIO))


def test_a_long_job_takes_turns_with_others() -> None:
    data = pack_job(Kind.NEW, 1, NOTHING, AUDIO[: 60 * FRAME]) + pack_job(Kind.NEW, 2, NOTHING, AUDIO[:FRAME])
    assert [number for _, number, _ in answers(network(), data, len(data))] == [2, 1]


def test_a_dropped_stream_is_not_answered() -> None:
    data = b"".join([
        pack_job(Kind.NEW, 1, NOTHING, AUDIO[: 60 * FRAME]), pack_job(Kind.DROP, 1, NOTHING, NOTHING),
        pack_job(Kind.SCORE, 1, NOTHING, AUDIO[:FRAME]),
    ])  # fmt: skip
    assert [kind for kind, _, _ in answers(network(), data, len(data))] == [Told.FAILED]


def test_a_stream_begins_where_another_was_left() -> None:
    known, audio = AUDIO[30 * FRAME - MEMORY : 30 * FRAME], AUDIO[30 * FRAME :]
    data = pack_job(Kind.NEW | Kind.LAST, 1, known, audio)
    ((_, _, scores),) = answers(network(), data, len(data))
    assert np.array_equal(np.frombuffer(scores, np.float32), score(AUDIO)[-len(scores) // 4 :])


def test_jobs_and_messages_are_read_as_they_were_written() -> None:
    data = bytearray(pack_job(Kind.NEW, 3, AUDIO[:5], AUDIO[:7]) + b"\x00")
    taken = take_job(data)
    assert taken
    kind, number, known, samples = taken
    assert (kind, number) == (Kind.NEW, 3)
    assert np.array_equal(known, AUDIO[:5])
    assert np.array_equal(samples, AUDIO[:7])
    assert take_job(data) is None
    told = bytearray(pack_message(Told.FAILED, 3, b"no") + pack_message(Told.READY, 0)[:-1])
    assert list(split_messages(told)) == [(Told.FAILED, 3, b"no")]
    assert len(told) == 8
