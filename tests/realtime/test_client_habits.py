"""How published clients behave, FunASR's and ours: each habit with the real server, over a socket."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from realtime_server.core.jobs import Samples
from realtime_server.demo import load_client
from realtime_server.engines.fake import FakeEngine
from realtime_server.realtime.server import ServerOptions
from tests.audio import pcm16, silence, speech_pattern, tone
from tests.realtime.harness import BY_CLIENT, PATIENCE_S, Message, eventually, serving, texts

TALK = speech_pattern([(2.0, 1.0), (1.0, 1.0), (1.5, 0.0)])
# Where its sentences start, a little before their first sound, and their words.
SAID = [
    (0, "one two three four"),
    (2740, "seven eight"),
    (4740, "eleven twelve thirteen"),
]


def heard(final: Message) -> list[tuple[int, str]]:
    """Where its sentences start, and their texts."""
    return [(sentence["start"], sentence["text"]) for sentence in final["sentences"]]


# --- how audio is sent ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "every_ms"),
    [
        (1600, 50),  # twice as fast as speech
        (4096, 50),  # five times
        (4096, 20),  # thirteen times
        (4096, 10),  # twenty-five times
        (9600, 0),  # as fast as it goes, for a recording
        (960, 6),  # the 60 ms of its offline client, ten times as fast
    ],
)
async def test_frames_of_any_size_at_any_pace(samples: int, every_ms: int) -> None:
    """And whatever the pace, the decodes take as long: what is late is told late, and nothing is lost."""
    data = pcm16(TALK)
    async with serving(FakeEngine(decode_s=0.05)) as service, service.client() as client:
        await client.say("START")
        for start in range(0, len(data), 2 * samples):
            await client.say(data[start : start + 2 * samples])
            await asyncio.sleep(every_ms / 1000)
        await client.say("STOP")
        final = await client.final()
        await client.event("stopped")
    assert heard(final) == SAID
    assert final["duration_ms"] == len(TALK) // 16


async def test_settings_and_audio_back_to_back_without_waiting_for_an_answer() -> None:
    engine = FakeEngine()
    async with serving(engine) as service, service.client() as client:
        await client.say("START", "HOTWORDS:alpha,beta", "LANGUAGE:English", pcm16(TALK), "STOP")
        final = await client.final()
        await client.event("stopped")
    assert [message.get("event") for message in client.messages[:3]] == [
        "started",
        "hotwords_set",
        "language_set",
    ]
    assert heard(final) == SAID
    assert {(job.options.hotwords, job.options.language) for job in engine.jobs} == {
        (("alpha", "beta"), "en")
    }


async def test_settings_before_start_and_the_same_again_for_the_next_session() -> None:
    async with serving() as service, service.client() as client:
        for _ in range(3):
            await client.say("HOTWORDS:alpha", "LANGUAGE:", "START", pcm16(TALK), "STOP")
        for _ in range(3):
            assert heard(await client.final()) == SAID
            await client.event("stopped")
        order = [message.get("event", "final") for message in client.messages if not is_result(message)]
    assert order == ["hotwords_set", "language_set", "started", "final", "stopped"] * 3


def is_result(message: Message) -> bool:
    return message.get("is_final") is False


@pytest.mark.parametrize("decode_s", [0.0, 0.05])
async def test_acknowledgements_come_in_the_order_of_the_commands(decode_s: float) -> None:
    """Audio and decodes in between, a STOP and a COMMIT that wait for theirs, and what is no command at all."""
    speech = pcm16(tone(0.5))
    said: list[str | bytes] = [
        "LANGUAGE:en", "START", speech, "HOTWORDS:a", "nonsense", speech, "COMMIT", "LANGUAGE:zh", speech, "STOP",
        "HOTWORDS:b", "START", "STOP", "STOP", "POSTPROCESS_HOTWORDS:a=>b", "COMMIT", "START", speech, "START", "STOP",
    ]  # fmt: skip
    told = [
        "language_set", "started", "hotwords_set", "error", "final", "language_set", "final", "stopped",
        "hotwords_set", "started", "final", "stopped", "stopped", "postprocess_hotwords_set", "error", "started",
        "started", "final", "stopped",
    ]  # fmt: skip
    async with (
        serving(FakeEngine(decode_s=decode_s), settings=BY_CLIENT) as service,
        service.client() as client,
    ):
        await client.say(*said)
        while sum(not is_result(message) for message in client.messages) < len(told):
            await client.receive()
    assert [message.get("event", "final") for message in client.messages if not is_result(message)] == told


async def test_start_again_on_the_same_connection_many_times() -> None:
    async with serving() as service, service.client() as client:
        for seconds in (1.0, 0.5, 2.0, 0.0, 1.5):
            final = await client.transcribe(tone(seconds))
            assert final["duration_ms"] == 1000 * seconds
            assert len(" ".join(texts(final)).split()) == 2 * seconds
        assert service.sessions == 1


@pytest.mark.parametrize("speech", [tone(1.0), silence(0.0)])
async def test_a_tail_of_800_zeros_before_stop(speech: Samples) -> None:
    async with serving() as service, service.client() as client:
        await client.say("START")
        await client.hear(speech)
        await client.say(bytes(1600), "STOP")
        final = await client.final()
        await client.event("stopped")
    assert final["duration_ms"] == len(speech) // 16 + 50
    assert texts(final) == (["one two"] if len(speech) else [])
    assert sum(bool(message.get("is_final")) for message in client.messages) == 1


# --- how messages are read --------------------------------------------------------------------------------


async def test_a_reader_that_leaves_at_the_final_takes_no_slot_and_harms_nobody() -> None:
    """It never reads `stopped`, and neither pings nor says goodbye."""
    async with serving() as service:
        for goodbye in (True, False):
            async with connect(service.url, ping_interval=None, compression=None) as ws:
                await ws.send("START")
                await ws.send(pcm16(tone(1.0)))
                await ws.send("STOP")
                async for message in ws:
                    if json.loads(message).get("is_final"):
                        break
                if not goodbye:
                    ws.transport.abort()
            await eventually(lambda: service.sessions == 0)
        async with service.client() as client:
            assert texts(await client.transcribe(tone(0.5))) == ["one"]


async def test_pings_off_and_a_long_silence() -> None:
    """It never pings, says nothing for much longer than the server waits for a dead client, and goes on."""
    options = ServerOptions(ping_s=0.1, ping_timeout_s=1.0)
    async with serving(options=options) as service, service.client(ping_interval=None) as client:
        await client.say("START")
        await client.hear(tone(1.0))
        await asyncio.sleep(2.5)
        await client.hear(tone(1.0))
        await client.say("STOP")
        final = await client.final()
        await client.event("stopped")
    assert texts(final) == ["one two three four"]
    assert final["duration_ms"] == 2000


async def test_a_reader_that_reads_nothing_before_it_has_sent_everything() -> None:
    async with serving(FakeEngine(decode_s=0.01)) as service, service.client() as client:
        await client.say("START")
        await client.hear(np.concatenate([TALK, silence(1.0)] * 5), pace=25.0)
        await client.say("STOP")
        final = await client.final()
    assert len(final["sentences"]) == 15
    assert [m for m in client.messages if m.get("event") == "started"] == client.messages[:1]


async def test_sender_and_reader_that_know_nothing_of_each_other() -> None:
    """One task sends at the pace of speech, or faster; the other prints whatever has come in the last half second."""
    printed: list[str] = []
    async with serving(FakeEngine(decode_s=0.02)) as service, service.client() as client:

        async def read() -> None:
            while True:
                with suppress(TimeoutError):
                    message = await client.receive(0.05)
                    printed.append(message.get("partial") or "")
                    if message.get("event") == "stopped":
                        return

        reading = asyncio.create_task(read())
        await client.say("START")
        await client.hear(TALK, pace=10.0)
        await client.say("STOP")
        await asyncio.wait_for(reading, PATIENCE_S)
    assert any(printed)


# --- our own client ---------------------------------------------------------------------------------------


class Microphone:
    """Stands for sounddevice: what speaks into it comes from a thread of its own, while the socket is quiet."""

    def __init__(self) -> None:
        self.is_open = False
        self._on_block: Callable[..., None] = lambda *block: None

    def open(self, on_block: Callable[..., None], on_end: Callable[[], None]) -> Microphone:
        self._on_block = on_block
        return self

    def __enter__(self) -> None:
        self.is_open = True

    def __exit__(self, *error: object) -> None:
        self.is_open = False

    async def hear(self, samples: Samples, pace: float = 1.0) -> None:
        data = pcm16(samples)
        for start in range(0, len(data), 3200):
            block = data[start : start + 3200]
            await asyncio.to_thread(self._on_block, memoryview(block), len(block) // 2, None, None)
            await asyncio.sleep(0.1 / pace)


def shipped(url: str, microphone: Microphone) -> tuple[Any, io.StringIO]:
    """clients/client_python.py with this microphone, and what it prints."""
    module = load_client()
    out = io.StringIO()
    options = module.Options(server=url)
    audio = module.MicAudio(microphone.open, lambda note: None)
    return module.Client(options, audio, module.Display(out, io.StringIO())), out


def words(lines: Iterable[str]) -> list[str]:
    return [word for line in lines for word in line.split()]


async def test_a_microphone_gives_a_partial_within_a_second_and_ctrl_c_the_final() -> None:
    """R16."""
    microphone = Microphone()
    async with serving() as service:
        client, out = shipped(service.url, microphone)
        running = asyncio.create_task(client.run())
        await eventually(lambda: microphone.is_open)
        await asyncio.sleep(0.2)
        speaking = asyncio.create_task(microphone.hear(tone(1.0)))
        await eventually(lambda: "one" in out.getvalue(), "no partial", within_s=3.0)
        assert not speaking.done()  # it came within that second
        await speaking
        client.interrupt()
        (sentence,) = await asyncio.wait_for(running, PATIENCE_S)
    assert sentence.text == "one two"
    assert not microphone.is_open


@pytest.mark.slow
async def test_a_final_that_takes_ten_seconds_is_shown() -> None:
    """R17; the page's half is in tests/browser."""
    microphone = Microphone()
    async with serving(FakeEngine(decode_s=10.0)) as service:
        client, out = shipped(service.url, microphone)
        running = asyncio.create_task(client.run())
        await eventually(lambda: microphone.is_open)
        await microphone.hear(tone(0.5), pace=10.0)
        client.interrupt()
        (sentence,) = await asyncio.wait_for(running, 60.0)
    assert sentence.text == "one"
    assert "one" in words(out.getvalue().splitlines())


async def test_a_client_of_another_protocol_is_told_which_one_this_is() -> None:
    """FunASR's older clients open with a JSON object; some go on as if it had been accepted."""
    async with serving() as service, service.client() as client:
        await client.say('{"mode": "2pass", "chunk_size": [5, 10, 5], "wav_name": "h5", "is_speaking": true}')
        assert "older JSON protocol" in (await client.receive())["error"]
        await client.say(pcm16(tone(1.0)), '{"is_speaking": false}')
        assert "older JSON protocol" in (await client.receive())["error"]
        with suppress(ConnectionClosed):
            assert texts(await client.transcribe(tone(0.5))) == ["one"]
