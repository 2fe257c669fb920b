"""The long benchmark's client: a minute for a server process, which it looks at."""

from __future__ import annotations

import asyncio

from benchmarks import long
from realtime_server.bench.serving import served
from realtime_server.bench.speech import Recording
from tests.audio import speech_pattern

FLAGS = ("--engine", "fake", "--vad", "level", "--endpointing", "fixed:600")
RECORDING = Recording(speech_pattern([(2.0, 1.0)] * 5), ())


def test_a_server_is_looked_at_after_each_minute_of_audio() -> None:
    with served(FLAGS) as server:
        seen = asyncio.run(long._hear(RECORDING, server.url, server.pid, minutes=2))
    assert len(seen.cpu_ms) == len(seen.memory_mb) == len(seen.sent_kb) == 2
    assert min(seen.memory_mb) > 10
    assert 0 < seen.sent_kb[0] < seen.sent_kb[1]  # protocol 1 repeats every sentence
    assert 30 <= seen.sentences <= 40
