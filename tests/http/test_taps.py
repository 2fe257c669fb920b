"""Telephone calls over real sockets: the stream, its refusals, and where its transcript goes."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from realtime_server.core.call_audio import CallAudio
from realtime_server.core.jobs import Samples
from realtime_server.core.settings import Limits, SessionSettings
from realtime_server.doors.door import Door, DoorOptions
from realtime_server.engines.base import Engine
from realtime_server.engines.fake import FakeEngine, Fault
from realtime_server.http import webhooks
from realtime_server.http.options import CallOptions, Webhook
from realtime_server.http.taps import Taps
from realtime_server.realtime.options import Clocks, ServerOptions
from tests.audio import silence, tone
from tests.clients.tap import load_tap, mulaw
from tests.http.harness import LIVE, Files, serving
from tests.http.receiver import receiving
from tests.realtime import harness as live
from tests.realtime.harness import FIXED, PATIENCE_S, Service, eventually
from tests.realtime.test_doors import LONG, OPTIONS, VIEWER, WRONG, server_log

# The caller speaks, then both at once, then the other side: to the fake engine words are half seconds of the clock.
CALLER = np.concatenate([silence(0.5), tone(2.0), silence(4.0)])
OTHER = np.concatenate([silence(1.5), tone(3.0), silence(2.0)])
SAID = {(0, "two three four five"), (1, "four five six seven eight nine")}
QUICK = {"pause_s": 0.02, "longest_pause_s": 0.05, "timeout_s": 5.0}


@dataclass
class Line:
    """A live server, and the HTTP server beside it that takes its calls."""

    service: Service
    files: Files
    taps: Taps

    @asynccontextmanager
    async def dial(self, path: str = "/twilio", **options: Any) -> AsyncIterator[ClientConnection]:
        """A connection as Twilio's."""
        async with connect(
            self.files.url.replace("http", "ws") + path, compression=None, **options
        ) as socket:
            yield socket

    @asynccontextmanager
    async def view(self, name: str) -> AsyncIterator[live.Client]:
        """A viewer, once the session is there."""
        await eventually(lambda: self.service.server.hub.archive.find(name), f"there is no session {name}")
        async with self.service.client(f"sessions/{name}") as viewer:
            yield viewer


@asynccontextmanager
async def exchange(
    options: CallOptions | None = None, *, engine: Engine | None = None, settings: SessionSettings = FIXED,
    server: ServerOptions | None = None, door: Door | None = None, clocks: Clocks | None = None,
) -> AsyncIterator[Line]:  # fmt: skip
    async with live.serving(engine, settings=settings, options=server, door=door, clocks=clocks) as service:
        taps = Taps(service.server, options)
        beside = replace(LIVE, taps=taps, reception=service.server.reception, gallery=service.server.gallery)
        async with serving(live=beside) as files:
            yield Line(service, files, taps)


def stream(
    caller: Samples = CALLER, other: Samples | None = OTHER, call: str = "CA7", **parameters: str
) -> Iterator[str]:
    """The messages of a call."""
    tracks = [mulaw(caller)] + ([] if other is None else [mulaw(other)])
    return (text for _, text in load_tap().messages_of(tracks, call, parameters))


async def send(socket: ClientConnection, messages: Iterator[str]) -> None:
    for message in messages:
        await socket.send(message)


async def closed(socket: ClientConnection) -> tuple[int | None, str | None]:
    async with asyncio.timeout(PATIENCE_S):
        await socket.wait_closed()
    return socket.close_code, socket.close_reason


def files_in(folder: Path) -> dict[str, str]:
    """Names and contents; without a file that is renamed at this moment."""
    found = {}
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            found[path.name] = path.read_text(encoding="utf-8")
    return found


async def said_by(line: Line, name: str = "CA7") -> set[tuple[int, str]]:
    """What a viewer that comes afterwards is told."""
    async with line.view(name) as viewer:
        final = await viewer.until(lambda message: message["type"] == "final")
    return {(sentence["channel"], sentence["text"]) for sentence in final["sentences"]}


async def test_both_tracks_are_channels_of_one_session_which_can_be_viewed() -> None:
    async with exchange() as line, line.dial() as socket:
        messages = stream(session="desk-7", hotwords="Ada, Grace", words="true", endpointing="fixed:500")
        for _ in range(20):
            await socket.send(next(messages))
        async with line.view("desk-7") as viewer:
            settings = (await viewer.receive())["settings"]
            assert (settings["encoding"], settings["sample_rate"], settings["channels"]) == ("mulaw", 8000, 2)
            assert (settings["hotwords"], settings["words"]) == (["Ada", "Grace"], True)
            assert settings["endpointing"]["silence_ms"] == 500
            await send(socket, messages)
            final = await viewer.until(lambda message: message["type"] == "final")
            assert {(s["channel"], s["text"]) for s in final["sentences"]} == SAID
            (stopped,) = [await viewer.receive()]
            assert (stopped["type"], stopped["audio_ms"]) == ("stopped", 6500)
        assert await closed(socket) == (1000, "the call is over")
        await eventually(lambda: not line.service.sessions, "the session does not end")


async def test_a_call_of_one_track_is_called_by_its_id() -> None:
    async with exchange() as line, line.dial() as socket:
        await send(socket, stream(other=None))
        await closed(socket)
        assert await said_by(line) == {(0, "two three four five")}


async def test_the_webhook_gets_everything_once_and_in_order_though_it_fails_twice() -> None:
    async with receiving(500, 503) as receiver:
        options = CallOptions(webhook=Webhook(receiver.url, "for-the-receiver", **QUICK))
        async with exchange(options) as line, line.dial() as socket:
            await send(socket, stream(session="desk-7", FirstName="Ada", token="not-to-be-told"))
            assert await closed(socket) == (1000, "the call is over")
            await eventually(lambda: receiver.taken and receiver.taken[-1]["type"] == "final")
        assert [message["type"] for message in receiver.taken] == ["sentence", "sentence", "final"]
        assert {(m["channel"], m["text"]) for m in receiver.taken[:2]} == SAID
        seqs = [message["seq"] for message in receiver.taken]
        assert seqs == sorted(set(seqs))
        keys = [headers["idempotency-key"] for headers, _ in receiver.tries]
        assert keys[:3] == [f"{receiver.taken[0]['session']}-{seqs[0]}"] * 3
        assert len(keys) == len(set(keys)) + 2 == 5
        assert receiver.most_at_once == 1
        call = receiver.taken[0]["call"]
        assert (call["name"], call["call"], call["tracks"]) == ("desk-7", "CA7", ["inbound", "outbound"])
        assert call["parameters"] == {"session": "desk-7", "FirstName": "Ada"}
        assert {headers["authorization"] for headers, _ in receiver.tries} == {"bearer for-the-receiver"}
        assert "not-to-be-told" not in json.dumps(receiver.tries)


async def test_calls_share_a_webhook_and_do_not_mix() -> None:
    async with receiving(503, 503) as receiver:
        async with exchange(CallOptions(webhook=Webhook(receiver.url, **QUICK))) as line:

            async def call(number: int) -> None:
                async with line.dial() as socket:
                    await send(socket, stream(call=f"CA{number}"))
                    await closed(socket)

            await asyncio.gather(*map(call, range(5)))
            await eventually(lambda: len(receiver.taken) == 15)
        for number in range(5):
            mine = [message for message in receiver.taken if message["call"]["name"] == f"CA{number}"]
            assert [message["type"] for message in mine] == ["sentence", "sentence", "final"]


async def test_a_slow_webhook_delays_no_call() -> None:
    async with receiving() as receiver:
        receiver.hold.clear()
        async with exchange(CallOptions(webhook=Webhook(receiver.url, **QUICK))) as line:
            for number in range(3):
                async with line.dial() as socket:
                    await send(socket, stream(call=f"CA{number}"))
                    assert (await closed(socket))[0] == 1000
            assert not receiver.taken
            receiver.hold.set()
            await eventually(lambda: len(receiver.taken) == 9)


@pytest.mark.parametrize("status", [302, 400, 410])
async def test_what_a_webhook_refuses_is_dropped_and_the_rest_follows(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with receiving(status, status) as receiver:
        async with (
            exchange(CallOptions(webhook=Webhook(receiver.url, **QUICK))) as line,
            line.dial() as socket,
        ):
            await send(socket, stream())
            await closed(socket)
            await eventually(lambda: len(receiver.taken) == 1)
        assert (len(receiver.tries), receiver.taken[0]["type"]) == (3, "final")
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(told) == 2
    assert f"it answers {status}" in told[0]
    assert told[1] == "2 messages of a call were not delivered"
    assert "secret-of-the-url" not in server_log(caplog)


async def test_a_dead_webhook_is_given_up_and_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    webhook = Webhook("http://127.0.0.1:9/calls", patience_s=0.1, **QUICK)
    async with exchange(CallOptions(webhook=webhook)) as line, line.dial() as socket:
        await send(socket, stream())
        assert (await closed(socket))[0] == 1000
        await eventually(lambda: "3 messages of a call were not delivered" in caplog.text)
    assert caplog.text.count("did not take") == 1


async def test_a_server_that_stops_waits_for_a_webhook_within_bounds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with receiving() as receiver:
        receiver.hold.clear()
        options = CallOptions(webhook=Webhook(receiver.url, **QUICK))
        async with exchange(options) as line, line.dial() as socket:
            await send(socket, stream())
            await closed(socket)
            await line.taps.drain(0.05)
            assert not receiver.taken
            receiver.hold.set()
    assert "the server ended before http://127.0.0.1 had taken" in caplog.text


async def test_of_too_many_messages_that_wait_the_oldest_go() -> None:
    async with receiving() as receiver:
        receiver.hold.clear()
        patient = QUICK | {"timeout_s": PATIENCE_S}  # a second try would be taken, too
        options = CallOptions(webhook=Webhook(receiver.url, most_waiting=1, **patient))
        async with exchange(options) as line, line.dial() as socket:
            messages = stream()
            await send(socket, (next(messages) for _ in range(2 + 2 * 300)))
            await eventually(lambda: receiver.tries, "no sentence is sent")
            await send(socket, messages)
            await closed(socket)
            receiver.hold.set()
            await eventually(lambda: len(receiver.taken) == 2)
        assert [message["type"] for message in receiver.taken] == ["sentence", "final"]


async def test_a_file_for_each_call(tmp_path: Path) -> None:
    async with exchange(CallOptions(tmp_path)) as line, line.dial() as socket:
        messages = stream(session="desk-7", token="not-to-be-kept")
        await send(socket, (next(messages) for _ in range(2 + 2 * 300)))
        await eventually(
            lambda: [
                name for name, text in files_in(tmp_path).items() if '"sentence"' in text and ".part" in name
            ]
        )
        await send(socket, messages)
        await closed(socket)
        await eventually(lambda: [name for name in files_in(tmp_path) if name.endswith(".jsonl")])
    ((name, text),) = files_in(tmp_path).items()
    lines = list(map(json.loads, text.splitlines()))
    assert "-desk-7-" in name
    assert "not-to-be-kept" not in text
    kinds = [message["type"] for message in lines]
    assert (kinds[:2], kinds[-2:], kinds.count("sentence")) == (["call", "started"], ["final", "stopped"], 2)
    assert not {"partial", "progress"} & set(kinds)
    assert {message["session"] for message in lines} == {lines[0]["session"]}


async def test_a_file_that_cannot_be_written_costs_the_call_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with exchange(CallOptions(Path("/nowhere"))) as line:
        for number in range(2):
            async with line.dial() as socket:
                await send(socket, stream(call=f"CA{number}"))
                assert (await closed(socket))[0] == 1000
            assert await said_by(line, f"CA{number}") == SAID
    assert caplog.text.count("is not written any more") == 2


async def test_messages_that_cannot_be_used_do_not_end_a_call(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bad: list[str | bytes] = [
        "no JSON", b"\0", "{}", '{"event": "media"}', '{"event": "clear"}', "x" * 70_000,
        '{"event": "media", "media": {"track": "inbound", "timestamp": "0", "payload": "&"}}',
    ]  # fmt: skip
    async with exchange() as line, line.dial() as socket:
        for message in [*bad, '{"event": "mark", "mark": {"name": "a"}}']:
            await socket.send(message)
        messages = stream()
        await send(socket, (next(messages) for _ in range(10)))
        start = next(iter(list(stream())[1:2]))
        for message in [*bad, start, '{"event": "dtmf", "dtmf": {"digit": "1"}}']:
            await socket.send(message)
        await send(socket, messages)
        assert (await closed(socket))[0] == 1000
        assert await said_by(line) == SAID
    assert caplog.text.count("sends what cannot be used: a message came that is no JSON") == 1
    assert f"of its call {2 * len(bad) + 1} messages could not be used" in caplog.text


async def test_a_track_that_start_does_not_list_is_not_heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with exchange() as line, line.dial() as socket:
        whole = list(stream())
        whole[1] = whole[1].replace('["inbound", "outbound"]', '["inbound"]')
        await send(socket, iter(whole))
        await closed(socket)
        assert await said_by(line) == {(0, "two three four five")}
    assert "of its call 325 messages could not be used" in caplog.text


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_a_call_without_stop_is_told_to_its_end(how: str) -> None:
    async with exchange() as line:
        async with line.dial() as socket:
            await send(socket, iter(list(stream())[:-1]))
            if how == "abort":
                await eventually(lambda: line.service.sessions)
                socket.transport.abort()
        assert await said_by(line) == SAID


async def test_what_is_held_back_for_the_other_track_is_heard_in_a_pause() -> None:
    clocks = Clocks(stall_s=0.3)
    async with exchange(CallOptions(pause_s=0.05), clocks=clocks) as line, line.dial() as socket:
        messages = list(stream(CALLER[: 16_000 * 2]))  # it ends in speech
        await send(socket, (text for text in messages[:-1] if '"track": "outbound"' not in text))
        async with line.view("CA7") as viewer:
            sentence = await viewer.until(lambda message: message["type"] == "sentence")
        assert abs(sentence["end_ms"] - 2000) <= 60
        await socket.send(messages[-1])
        assert (await closed(socket))[0] == 1000


async def test_a_call_from_which_nothing_comes_ends() -> None:
    async with exchange(CallOptions(pause_s=0.05, idle_s=0.1)) as line, line.dial() as socket:
        await send(socket, iter(list(stream())[:-1]))
        assert await closed(socket) == (1008, "nothing came for 0.1 s")
        assert await said_by(line) == SAID


async def test_a_call_longer_than_a_session_may_be_ends_with_its_final() -> None:
    settings = replace(FIXED, limits=Limits(session_s=4.0))
    async with exchange(settings=settings) as line, line.dial() as socket:
        await send(socket, stream())
        code, reason = await closed(socket)
        assert code == 1008
        assert reason
        assert await said_by(line) == {(0, "two three four five"), (1, "four five six seven eight")}


async def test_half_a_character_in_a_parameter_costs_no_transcript(tmp_path: Path) -> None:
    async with receiving() as receiver:
        options = CallOptions(tmp_path, Webhook(receiver.url, **QUICK))
        async with exchange(options) as line, line.dial() as socket:
            await send(socket, stream(FirstName="Ada \ud800"))
            assert (await closed(socket))[0] == 1000
            await eventually(lambda: [name for name in files_in(tmp_path) if name.endswith(".jsonl")])
            await eventually(lambda: [each for each in receiver.taken if each["type"] == "final"])
    assert all(each["call"]["parameters"] == {"FirstName": "Ada \ufffd"} for each in receiver.taken)
    assert json.loads(next(iter(files_in(tmp_path).values())).splitlines()[0])["parameters"] == {
        "FirstName": "Ada \ufffd"
    }


async def test_an_outlet_that_fails_costs_the_call_nothing_and_its_words_are_not_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def write(*args: Any) -> None:
        raise ValueError("two three four five")

    monkeypatch.setattr(webhooks, "_make_request", write)
    async with exchange(CallOptions(webhook=Webhook("http://127.0.0.1:9/", **QUICK))) as line:
        async with line.dial() as socket:
            await send(socket, stream())
            assert (await closed(socket))[0] == 1000
        await eventually(lambda: "is not passed on any more: ValueError" in caplog.text)
    assert "two three" not in caplog.text


async def test_a_call_whose_listener_fails_is_told_what_was_heard_before_and_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    receive_piece, pieces = CallAudio.receive_piece, 0

    def fail_at_the_end(*args: Any) -> None:
        nonlocal pieces
        pieces += 1
        if pieces == 600:
            raise RuntimeError("out of order")
        receive_piece(*args)

    monkeypatch.setattr(CallAudio, "receive_piece", fail_at_the_end)
    async with exchange() as line:
        async with line.dial() as socket:
            await send(socket, stream())
            assert await closed(socket) == (1011, "internal error")
        await eventually(lambda: not line.service.sessions, "the session does not end")
        assert await said_by(line) == SAID
    assert "RuntimeError: out of order" in caplog.text


async def test_a_call_that_cannot_be_handed_on_is_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: Any) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(Taps, "open_outlets", fail)
    async with exchange() as line, line.dial() as socket:
        await send(socket, iter(list(stream())[:2]))
        assert await closed(socket) == (1011, "internal error")
        await eventually(lambda: not line.service.sessions, "the session does not end")
    assert "RuntimeError: out of order" in caplog.text


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"session": "a/b"}, "a session's name has 1 to 64"),
        ({"language": "klingon"}, "language"),
        ({"words": "yes"}, "words must be true or false"),
        ({"endpointing": "client"}, "endpointing must be dynamic or fixed:MS"),
        ({"endpointing": "fixed:1"}, "silence_ms"),
    ],
)
async def test_a_call_that_asks_for_what_cannot_be_is_refused_by_name(
    parameters: dict[str, str], reason: str, tmp_path: Path
) -> None:
    async with exchange(CallOptions(tmp_path)) as line, line.dial() as socket:
        await send(socket, iter(list(stream(**parameters))[:2]))
        code, told = await closed(socket)
        assert (code, reason in (told or "")) == (1008, True), told
        assert not line.service.sessions
    assert not files_in(tmp_path)


@pytest.mark.parametrize("messages", [(), ('{"event": "connected"}', "no JSON")])
async def test_a_call_that_does_not_begin_is_closed(messages: tuple[str, ...]) -> None:
    async with exchange(CallOptions(start_s=0.1)) as line, line.dial() as socket:
        await send(socket, iter(messages))
        assert (await closed(socket))[0] == 1008


async def test_a_start_that_cannot_be_read_ends_the_wait_at_once() -> None:
    async with exchange(CallOptions(start_s=600)) as line, line.dial() as socket:
        await send(socket, iter(list(stream(FirstName="a" * 5000))[:2]))
        code, told = await closed(socket)
        assert (code, "start.customParameters" in (told or "")) == (1008, True), told


@pytest.mark.parametrize("last", ['{"event": "stop"}', None])
async def test_a_stream_that_ends_before_its_start_is_nothing(last: str | None) -> None:
    async with exchange() as line:
        async with line.dial() as socket:
            if last:
                await socket.send(last)
                assert (await closed(socket))[0] == 1000
        assert not line.service.sessions


async def test_only_so_many_may_wait_to_begin() -> None:
    async with exchange(CallOptions(most_waiting=1)) as line, line.dial() as first:
        with pytest.raises(InvalidStatus) as refused:
            async with line.dial():
                pass
        assert refused.value.response.status_code == 429
        await send(first, iter(list(stream())[:2]))
        await eventually(lambda: line.service.sessions)
        async with line.dial() as second:
            await send(second, stream(call="CA8"))
            assert (await closed(second))[0] == 1000
        await send(first, iter(list(stream())[2:]))
        assert (await closed(first))[0] == 1000


@pytest.mark.parametrize(
    ("path", "parameters", "code"),
    [
        ("/twilio", {"token": LONG}, 1000),
        (f"/twilio?token={LONG}", {}, 1000),
        ("/twilio", {}, 1008),
        ("/twilio", {"token": WRONG}, 1008),
        ("/twilio", {"token": VIEWER}, 1008),
    ],
)
async def test_who_may_call(
    path: str, parameters: dict[str, str], code: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with exchange(door=Door(OPTIONS)) as line, line.dial(path) as socket:
        await send(socket, stream(**parameters))
        assert (await closed(socket))[0] == code
        metrics = (await line.files.http.get("/metrics", headers={"Authorization": f"Bearer {LONG}"})).text
    assert ("realtime_server_refused_total{" in metrics) is (code == 1008)
    assert sum("refused 127.0.0.1" in message for message in caplog.messages) == (code == 1008)
    assert not any(secret in server_log(caplog) for secret in (LONG, VIEWER, WRONG))


async def test_a_token_of_one_session_takes_calls_of_that_name_only() -> None:
    async with exchange(door=Door(OPTIONS)) as line:
        answer = await line.files.http.post(
            "/tokens", json={"session": "desk-7"}, headers={"Authorization": f"Bearer {LONG}"}
        )
        token = answer.json()["token"]
        for name, code in (("desk-7", 1000), ("desk-8", 1008)):
            async with line.dial() as socket:
                await send(socket, stream(session=name, token=token))
                assert (await closed(socket))[0] == code


async def test_who_knocks_too_often_is_refused_at_the_handshake() -> None:
    door = Door(DoorOptions(per_minute=1))
    async with exchange(door=door) as line:
        async with line.dial() as socket:
            await send(socket, stream())
            await closed(socket)
        with pytest.raises(InvalidStatus) as refused:
            async with line.dial():
                pass
        assert refused.value.response.status_code == 429


async def test_a_full_server_takes_no_call() -> None:
    async with exchange(server=ServerOptions(max_sessions=1)) as line, line.dial() as second:
        async with line.service.client() as speaker:
            await speaker.say("START")
            await speaker.event("started")
            await send(second, iter(list(stream())[:2]))
            assert (await closed(second))[0] == 1013
            with pytest.raises(InvalidStatus) as refused:
                async with line.dial():
                    pass
            assert refused.value.response.status_code == 503
        await eventually(lambda: not line.service.sessions)
        async with line.dial() as third:
            await send(third, iter(list(stream())[:2]))
            await eventually(lambda: line.service.sessions)
            async with connect(line.files.url.replace("http", "ws") + "/sessions/CA7") as viewer:
                assert "started" in str(await viewer.recv())


async def test_a_server_that_stops_ends_calls_with_their_finals() -> None:
    engine = FakeEngine()
    async with receiving() as receiver:
        options = CallOptions(webhook=Webhook(receiver.url, **QUICK))
        async with exchange(options, engine=engine) as line, line.dial() as socket:
            await send(socket, iter(list(stream())[:-1]))
            await eventually(lambda: len(receiver.taken) == 2)
            stopping = asyncio.create_task(line.files.stop())
            await line.service.server.hub.drain(PATIENCE_S, 1.0)
            assert await closed(socket) == (1012, "the server stops")
            await stopping
        assert receiver.taken[-1]["type"] == "final"


async def test_an_engine_that_fails_is_told_and_the_call_goes_on() -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault())
    async with exchange(engine=engine) as line, line.dial() as socket:
        await send(socket, stream())
        assert (await closed(socket))[0] == 1000
        async with line.view("CA7") as viewer:
            final = await viewer.until(lambda message: message["type"] == "final")
            assert {s["channel"] for s in final["sentences"]} == {0, 1}
