"""The long benchmark's client: two minutes for a server process, which it looks at."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks import long
from realtime_server.bench import swarm
from realtime_server.bench.serving import served
from realtime_server.bench.speech import Recording
from tests.audio import speech_pattern

FLAGS = (*long.SERVER, "--vad", "level")
RECORDING = Recording(speech_pattern([(2.0, 1.0)] * 5), ())


@pytest.mark.parametrize("protocol", [1, 2])
def test_a_server_is_looked_at_after_each_minute_of_audio(protocol: int) -> None:
    with served(FLAGS) as server:
        seen = asyncio.run(long.hear(RECORDING, server.url, server.pid, 2, protocol))
    assert len(seen.cpu_ms) == len(seen.memory_mb) == len(seen.sent_kb) == 2
    assert min(seen.memory_mb) > 10
    assert min(seen.sent_kb) > 0
    repeats = seen.sent_kb[1] > 1.5 * seen.sent_kb[0]
    assert repeats == (protocol == 1)
    assert seen.sentences == 40


def test_a_client_that_is_sent_away_says_so() -> None:
    async def vanish() -> None:
        listener = long.Listener(swarm.Log(), 2)
        listener._closed.set()
        await listener.wait_heard(1.0)

    with pytest.raises(swarm.ClientError, match="the connection was lost"):
        asyncio.run(vanish())
