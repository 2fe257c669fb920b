"""/ws: whole recordings over a WebSocket."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from realtime_server.core.settings import Limits, SessionSettings
from realtime_server.engines.fake import FakeEmbedder, FakeEngine, Fault
from realtime_server.http.options import HttpOptions
from realtime_server.offline.audio_source import AudioLimits
from tests.audio import pcm16, tone
from tests.http.harness import Files, serving
from tests.http.process import TALK, TEXTS, FilesServer
from tests.realtime.harness import Client, eventually, texts

STOPPED = {"event": "stopped"}
EMPTY = {"sentences": [], "partial": "", "partial_start_ms": 0, "duration_ms": 0, "is_final": True}


async def told(client: Client, *frames: str | bytes, messages: int = 1) -> list[dict[str, Any]]:
    """Send frames, return what comes back."""
    await client.say(*frames)
    return [await client.receive() for _ in range(messages)]


async def test_as_the_guide_has_it(files: FilesServer) -> None:
    async with connect(files.files_url.replace("http", "ws") + "/ws", max_size=None) as ws:
        await ws.send("START")
        assert json.loads(await ws.recv()) == {"event": "started"}
        await ws.send("LANGUAGE:中文")
        assert json.loads(await ws.recv()) == {"event": "language_set", "language": "中文"}
        await ws.send(pcm16(TALK))
        await ws.send("STOP")
        assert json.loads(await ws.recv()) == {
            "sentences": [
                {"text": "one two", "start": 0, "end": 1160, "spk": 0},
                {"text": "eight nine ten eleven", "start": 3240, "end": 5660, "spk": 0},
            ],
            "partial": "",
            "partial_start_ms": 0,
            "duration_ms": 8000,
            "is_final": True,
        }
        assert json.loads(await ws.recv()) == STOPPED


@pytest.mark.parametrize("size", [1, 3, 1001, 100_000])
async def test_the_pieces_do_not_matter(size: int) -> None:
    data = pcm16(tone(1.0)) if size < 10 else pcm16(TALK)
    async with serving() as files, files.websocket() as client:
        await client.say("START")
        for start in range(0, len(data), size):
            await client.say(data[start : start + size])
        await client.say("STOP")
        assert texts(await client.final()) == (TEXTS[:1] if size < 10 else TEXTS)


async def test_sessions_one_after_the_other_and_commands_between_them() -> None:
    engine = FakeEngine(decode_s=0.05)
    async with serving(engine) as files, files.websocket() as client:
        settings = ("HOTWORDS:张三，北京", "POSTPROCESS_HOTWORDS:one=>1", "LANGUAGE:English")
        acknowledged = await told(client, *settings, messages=3)
        assert [message["event"] for message in acknowledged] == [
            "hotwords_set", "postprocess_hotwords_set", "language_set",
        ]  # fmt: skip
        audio = pcm16(tone(1.0))
        messages = await told(client, "START", audio, "STOP", "START", audio, "STOP", messages=6)
        assert [message.get("event", "result") for message in messages] == [
            "started", "result", "stopped", "started", "result", "stopped",
        ]  # fmt: skip
        assert texts(messages[1]) == texts(messages[4]) == ["1 two"]
        assert {(job.options.hotwords, job.options.language) for job in engine.jobs} == {
            (("张三", "北京"), "en")
        }


async def test_start_discards_what_was_heard() -> None:
    async with serving() as files, files.websocket() as client:
        await client.say("START", pcm16(TALK), "START", pcm16(tone(0.5)), "STOP")
        assert texts(await client.final()) == ["one"]


async def test_nothing_heard() -> None:
    async with serving() as files, files.websocket() as client:
        assert await told(client, "STOP") == [STOPPED]
        assert await told(client, b"ab", "START", "STOP", messages=3) == [
            {"event": "started"},
            EMPTY,
            STOPPED,
        ]
        quiet = await told(client, "START", b"", b"\0\0" * 160, b"\0", "STOP", messages=3)
        assert quiet[1:] == [{**EMPTY, "duration_ms": 10}, STOPPED]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("COMMIT", "COMMIT is for live sessions"),
        ("HELLO", "unknown command: HELLO"),
        ("LANGUAGE:Klingon", "unknown language 'Klingon'"),
        ("SPK:perhaps", "write SPK:true or SPK:false"),
        ("SPK:true", "started without --speakers"),
        ("HOTWORDS:a,b,c", "3 hotwords are too many"),
        ('{"mode":"offline"}', "older JSON protocol"),
        ("A" * 70_000, "too long"),
    ],
)
async def test_what_cannot_be_obeyed(command: str, words: str) -> None:
    settings = SessionSettings(limits=Limits(hotwords=2))
    async with serving(settings=settings) as files, files.websocket() as client:
        (refused,) = await told(client, command)
        assert refused["event"] == "error"
        assert words in refused["error"]
        await client.say("START", pcm16(tone(1.0)), "STOP")
        assert texts(await client.final()) == ["one two"]


@pytest.mark.parametrize(("wanted", "told_"), [("true", True), ("FALSE", False), (" on ", True)])
async def test_speakers_as_asked_for(wanted: str, told_: bool) -> None:
    async with serving(embedder=FakeEmbedder()) as files, files.websocket() as client:
        assert await told(client, f"spk:{wanted}") == [{"event": "spk_set", "spk": told_}]
        await client.say("START", pcm16(TALK), "STOP")
        final = await client.final()
        assert ["spk" in sentence for sentence in final["sentences"]] == [told_, told_]


async def test_a_sentence_that_failed_is_told_after_the_result() -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(nth=1))
    engine.faults.inject(Fault(nth=2))
    async with serving(engine) as files, files.websocket() as client:
        await client.say("START", pcm16(TALK), "STOP")
        await client.event("stopped")
    _, result, failed, _ = client.messages
    assert result["is_final"]
    assert "could not be recognised" in failed["error"]


# --- bounds and ends --------------------------------------------------------------------------------------


async def test_a_recording_that_is_too_long() -> None:
    async with serving(options=HttpOptions(limits=AudioLimits(duration_s=2.0))) as files:
        async with files.websocket() as client:
            await client.say("START", pcm16(tone(1.5)), pcm16(tone(0.6)))
            assert await client.closed() == 1008
            assert "longer than 2 s, the limit" in client.messages[-1]["error"]
        async with files.websocket() as client:
            await client.say("START", pcm16(tone(1.5)), "STOP")
            assert texts(await client.final()) == ["one two three"]


async def test_recordings_share_the_memory() -> None:
    async with serving(options=HttpOptions(limits=AudioLimits(duration_s=2.0))) as files:
        async with files.websocket() as one, files.websocket() as two:
            await one.say("START", pcm16(tone(1.5)))
            await eventually(lambda: files.service.audio.held_s == 1.5)
            await two.say("START", pcm16(tone(1.0)))
            assert await two.closed() == 1013
            assert "take all the room" in two.messages[-1]["error"]
        await eventually(lambda: files.service.audio.held_s == 0)


async def test_a_message_that_is_too_big() -> None:
    async with serving(options=HttpOptions(message_bytes=1000)) as files, files.websocket() as client:
        await client.say("START", bytes(1001))
        assert await client.closed() == 1009


async def test_a_client_that_says_nothing() -> None:
    async with serving(options=HttpOptions(idle_s=0.05)) as files, files.websocket() as client:
        assert await client.closed() == 1008
        assert "nothing came for 0.05 s" in client.messages[-1]["error"]


async def test_only_audio_keeps_a_session() -> None:
    async with serving(options=HttpOptions(idle_s=0.2)) as files, files.websocket() as client:
        await client.say("START", pcm16(tone(0.5)))
        closing = asyncio.create_task(client.closed())
        while not closing.done():
            await client.connection.send("SPK:false")
            await client.connection.send(b"")
            await asyncio.sleep(0.02)
        assert await closing == 1008
        assert "no audio came for 0.2 s" in client.messages[-1]["error"]
    async with serving(options=HttpOptions(idle_s=0.2)) as files, files.websocket() as client:
        await client.say("START")
        for _ in range(10):
            await asyncio.sleep(0.04)
            await client.say(pcm16(tone(0.1)))
        await client.say("STOP")
        assert texts(await client.final()) == ["one two"]


async def test_more_connections_than_places() -> None:
    async with serving(options=HttpOptions(max_files=1)) as files, files.websocket() as client:
        assert await refused(files) == HTTPStatus.TOO_MANY_REQUESTS
        await client.say("START", pcm16(tone(1.0)), "STOP")
        assert texts(await client.final()) == ["one two"]


async def refused(files: Files) -> int:
    with pytest.raises(InvalidStatus) as refusal:
        async with files.websocket():
            pass
    response = refusal.value.response
    assert response.headers["Retry-After"] == "5"
    assert set(json.loads(response.body)["error"]) == {"message", "type", "param", "code"}
    return response.status_code


@pytest.mark.parametrize("path", ["/", "/asr", "/ws2"])
async def test_other_paths_are_no_websockets(path: str) -> None:
    async with serving() as files:
        with pytest.raises(InvalidStatus):
            async with connect(files.url.replace("http", "ws") + path):
                pass


@pytest.mark.parametrize("ending", ["abort", "close"])
async def test_a_client_that_leaves_takes_its_work_with_it(ending: str) -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(error=None))
    async with serving(engine) as files, files.websocket() as client:
        await client.say("START", pcm16(TALK), "STOP", "LANGUAGE:en")
        await eventually(lambda: engine.running == 2)
        if ending == "abort":
            client.abort()
        else:
            await client.connection.close()
        await eventually(lambda: engine.running == 0 and files.service.running == 0)
        assert engine.cancelled == 2


async def test_what_comes_while_it_works_is_read_ahead_and_no_further() -> None:
    async with serving(FakeEngine(decode_s=0.5)) as files, files.websocket() as client:
        await client.say("START", pcm16(tone(1.0)), "STOP")
        sending = asyncio.create_task(flood(client))
        await asyncio.sleep(0.25)
        assert not sending.done()
        assert texts(await client.final()) == ["one two"]
        await sending
        await client.say("START", pcm16(tone(0.5)), "STOP")
        assert texts(await client.final()) == ["one"]


async def flood(client: Client) -> None:
    """20 MB outside of any session, more than the network holds."""
    for _ in range(200):
        await client.say(bytes(100_000))


async def test_an_engine_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault())
    async with serving(engine) as files, files.websocket() as client:
        await client.say("START", pcm16(tone(1.0)), "STOP")
        assert await client.closed() == 1011
        assert client.messages[-1]["error"] == "the recognizer does not work now; try again later"


# --- the end of the server --------------------------------------------------------------------------------


async def test_the_end_waits_for_results_and_not_for_idle_clients() -> None:
    engine = FakeEngine(decode_s=0.3)
    async with serving(engine) as files, files.websocket() as idle, files.websocket() as busy:
        await busy.say("START", pcm16(tone(1.0)), "STOP")
        await eventually(lambda: engine.running)
        stopping = asyncio.create_task(files.stop())
        assert await idle.closed() == 1012
        assert texts(await busy.final()) == ["one two"]
        assert await busy.closed() == 1012
        await stopping


async def test_the_end_does_not_wait_for_ever() -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(error=None))
    options = HttpOptions(shutdown_s=0.1)
    async with serving(engine, options=options) as files, files.websocket() as client:
        await client.say("START", pcm16(tone(1.0)), "STOP")
        await eventually(lambda: engine.running)
        await files.stop()
        assert await client.closed() == 1012
        assert "the server is stopping" in client.messages[-1]["error"]
        assert engine.cancelled
