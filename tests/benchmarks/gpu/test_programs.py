"""Servers and clients in processes of their own: they are found, and none outlives the block that needs them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu.live_clients import FULL_SCALE, Crowd
from benchmarks.gpu.programs import started
from realtime_server.bench import accounting
from realtime_server.bench.options import Load
from realtime_server.bench.serving import ServerError, served
from realtime_server.core.segments import SAMPLE_RATE

WEB = ("http.server", "0", "--bind", "127.0.0.1")  # a program that tells its address, too


def test_a_program_is_ended_with_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    with started(WEB, names=["web"], ready_s=20, listening=r"\((http://\S+)\)") as program:
        assert program.urls["web"].startswith("http://127.0.0.1:")
        os.kill(program.pid, 0)  # it runs
        assert not program.troubles()
    with pytest.raises(ProcessLookupError):
        os.kill(program.pid, 0)


def test_a_program_that_does_not_start_is_quoted() -> None:
    with pytest.raises(ServerError, match=r"(?s)ended with code 1.*No module named"):  # noqa: SIM117
        with started(["no.such.module"], names=["one"], ready_s=20):
            pass


@pytest.mark.slow
def test_a_crowd_speaks_from_several_processes(tmp_path: Path) -> None:
    rng, file = np.random.default_rng(0), tmp_path / "speech.npz"
    loud = [rng.normal(0.0, level, 3 * SAMPLE_RATE // 2) for level in (0.001, 0.2, 0.001, 0.2)]
    np.savez(file, samples=(np.concatenate(loud) * FULL_SCALE).astype("<i2"))
    load = Load(seconds=4.0, stop_every_s=4.0, stagger_s=0.5)
    with served(["--engine", "fake", "--vad", "level"]) as server, Crowd(2, file) as crowd:
        told = crowd.end(load, crowd.begin(server.url, load, 3))
    logs = [log for each in told for log in each.logs]
    assert [len(each.logs) for each in told] == [2, 1]
    assert not [error for log in logs for error in log.errors]
    heards = [heard for log in logs for heard in log.takes]
    assert len(heards) == 3
    assert all(accounting.final_ms(heard) is not None for heard in heards)
    assert all(accounting.text_lags(heard) for heard in heards)
