"""Live sessions on the HTTP port: who views them there, and what their transcripts look like as files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from realtime_server.core import messages as m
from realtime_server.core.record import Record
from realtime_server.core.segments import Sentence
from realtime_server.core.settings import Limits, SessionSettings
from realtime_server.core.setup import AudioFormat, Setup
from realtime_server.doors.door import Door
from realtime_server.errors import FieldError
from realtime_server.http import slices
from realtime_server.http.exports import Export, Speakers, snapshot
from realtime_server.offline.formats import json_record
from realtime_server.offline.steps import Steps, advance, finish
from realtime_server.realtime.options import ServerOptions
from tests.http.harness import LIVE, Files, serving
from tests.realtime.harness import FIXED, HANGS_S, PATIENCE_S, SENTENCE, Client, Service, eventually
from tests.realtime.harness import serving as serving_live
from tests.realtime.test_doors import LONG, OPTIONS, VIEWER
from tests.realtime.test_viewing import end_of, kinds, sentence_of

srt = pytest.importorskip("srt", reason="needs the srt package")
webvtt = pytest.importorskip("webvtt", reason="needs the webvtt-py package")

FORMS = ("txt", "srt", "vtt", "json")
STAY = ServerOptions(shutdown_s=PATIENCE_S)


@dataclass
class Both:
    """Both ports of one service."""

    live: Service
    files: Files

    @asynccontextmanager
    async def viewer(self, path: str, **options: object) -> AsyncIterator[Client]:
        address = f"{self.files.url.replace('http', 'ws')}/{path}"
        async with connect(address, compression=None, **options) as connection:  # type: ignore[arg-type]
            yield Client(connection)


@asynccontextmanager
async def both(
    options: ServerOptions = STAY, door: Door | None = None, settings: SessionSettings = FIXED
) -> AsyncIterator[Both]:
    async with serving_live(options=options, door=door, settings=settings) as live:
        beside = replace(LIVE, gallery=live.server.gallery, reception=live.server.reception)
        async with serving(live=beside) as files:
            yield Both(live, files)


@pytest.mark.parametrize("path", ["sessions/%2573tudio", "sessions/studio?history=x"])
async def test_an_address_is_read_as_who_guards_it_reads_it(path: str) -> None:
    async with both() as service, service.live.client("?session=studio"):
        with pytest.raises(InvalidStatus) as refused:
            async with service.viewer(path):
                pass
        assert refused.value.response.status_code == 400


async def test_without_tokens_a_name_that_was_pointed_here_reads_nothing() -> None:
    async with both() as service, service.live.client("?session=a"):
        for path in ("/sessions/a", "/sessions/a/transcript.txt", "/metrics"):
            refused = await service.files.http.get(path, headers={"Host": "evil.example:8899"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "origin")


# --- viewing ----------------------------------------------------------------------------------------------


async def test_a_viewer_sees_what_one_of_the_live_port_sees() -> None:
    async with both() as service, service.live.client("?session=studio") as speaker:
        await speaker.say("START")
        await speaker.event("started")
        async with (
            service.viewer("sessions/studio?history=0") as here,
            service.live.client("sessions/studio") as there,
        ):
            await speaker.hear(SENTENCE)
            seen = await sentence_of(here)
            assert seen["text"] == "one two"
            assert await sentence_of(there) == seen
            await speaker.connection.close()
            assert await end_of(here) == 1000
            assert kinds(here)[-1] == "final"


@pytest.mark.parametrize("frame", ["STOP", b"\0\0"])
async def test_a_viewer_that_says_something_is_sent_away(frame: str | bytes) -> None:
    async with both() as service, service.live.client("?session=a") as speaker:
        await speaker.say("START")
        async with service.viewer("sessions/a") as viewer:
            await viewer.say(frame)
            assert await end_of(viewer) == 1008
        await speaker.hear(SENTENCE)
        assert await speaker.sentences(1) == ["one two"]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("sessions/nobody", 404, "no_session"),
        ("sessions/a%20b", 400, None),
        ("sessions/studio?history=many", 400, None),
    ],
)
async def test_an_address_that_cannot_be_is_refused_in_openais_shape(
    path: str, status: int, code: str | None
) -> None:
    async with both() as service, service.live.client("?session=studio"):
        with pytest.raises(InvalidStatus) as refused:
            async with service.viewer(path):
                pass
        assert refused.value.response.status_code == status
        assert json.loads(refused.value.response.body or b"")["error"]["code"] == code


async def test_both_ports_share_the_places_and_they_are_given_back() -> None:
    async with both(replace(STAY, max_viewers=2)) as service, service.live.client("?session=a"):
        async with service.viewer("sessions/a"), service.live.client("sessions/a"):
            for opening in (service.viewer("sessions/a"), service.live.client("sessions/a")):
                with pytest.raises(InvalidStatus) as refused:
                    async with opening:
                        pass
                assert refused.value.response.status_code == 503
                assert refused.value.response.headers["Retry-After"]
        await eventually(lambda: not len(service.live.server.gallery), "places are not given back")


async def test_a_viewer_that_does_not_read_is_cut_off_and_delays_nobody() -> None:
    options = replace(STAY, send_timeout_s=0.2)
    async with both(options) as service, service.live.client("?session=a", max_size=None) as speaker:
        await speaker.say('START {"protocol": 2}')
        _, writing = await asyncio.open_connection("127.0.0.1", int(service.files.url.rpartition(":")[2]))
        writing.transport.pause_reading()  # type: ignore[attr-defined]
        key = "dGhlIHNhbXBsZSBub25jZQ=="
        writing.write(
            f"GET /sessions/a HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        gallery = service.live.server.gallery
        await eventually(lambda: len(gallery) == 1, "the viewer does not come")
        kept = gallery.find("a")
        long = Sentence(0, 0, 0, "x" * 4_000_000, 0, 1)  # more than all buffers on the way hold
        kept.log.append([m.SegmentLocked(upto=0, channel=0, segment=0, sentences=(long,))] * 4)
        async with service.viewer("sessions/a?history=0", max_size=None) as viewer:
            await speaker.hear(SENTENCE)
            await viewer.until(lambda message: message.get("text") == "one two")
        await eventually(lambda: not len(gallery), "the stalled viewer is still there")
        writing.transport.abort()


async def test_the_server_stops_while_viewers_watch() -> None:
    async with both() as service, service.live.client("?session=a") as speaker:
        await speaker.say("START")
        async with service.viewer("sessions/a") as viewer:
            await viewer.until(lambda message: message["type"] == "started")
            await asyncio.gather(service.live.server.stop(), service.files.stop())
            with pytest.raises(ConnectionClosed):
                await viewer.until(lambda message: False)
            assert viewer.connection.close_code in (1000, 1001, 1012)


# --- what is told of a session ----------------------------------------------------------------------------


async def test_both_ports_tell_whether_a_session_runs() -> None:
    async with both() as service:
        async with service.live.client("?session=studio") as speaker:
            await speaker.say("START")
            await speaker.hear(SENTENCE)
            await speaker.sentences(1)
            told = (await service.files.http.get("/sessions/studio")).json()
            assert told == {"session": next(iter(service.live.server.hub.sessions)), "running": True}
            address = service.live.url.replace("ws", "http")
            answer = await service.files.http.get(f"{address}sessions/studio")
            assert answer.json() == told
            assert answer.headers["access-control-allow-origin"] == "*"
        await eventually(lambda: not service.live.sessions)
        for base in ("/", address):
            assert (await service.files.http.get(f"{base}sessions/studio")).json()["running"] is False
            for name, status in (("nobody", 404), ("a%20b", 400)):
                assert (await service.files.http.get(f"{base}sessions/{name}")).status_code == status


# --- transcripts ------------------------------------------------------------------------------------------


async def test_transcripts_of_a_session_that_lives_and_of_one_that_has_ended() -> None:
    async with both() as service:
        http = service.files.http
        async with service.live.client("?session=studio") as speaker:
            await speaker.say("START")
            await speaker.event("started")
            for form in FORMS:
                assert (await http.get(f"/sessions/studio/transcript.{form}")).status_code == 200
            for count in (1, 2):
                await speaker.hear(SENTENCE)
                await speaker.sentences(count)
                found = (await http.get("/sessions/studio/transcript.json")).json()
                assert (len(found["sentences"]), found["final"]) == (count, False)
        await eventually(lambda: not service.live.sessions)
        texts = {form: await http.get(f"/sessions/studio/transcript.{form}") for form in FORMS}
    assert texts["txt"].text.splitlines() == ["one two", "five six"]
    assert [cue.content for cue in srt.parse(texts["srt"].text)] == ["one two", "five six"]
    assert [cue.text for cue in webvtt.from_string(texts["vtt"].text)] == ["one two", "five six"]
    whole = texts["json"].json()
    assert [sentence["text"] for sentence in whole["sentences"]] == ["one two", "five six"]
    assert whole["duration_ms"] >= whole["sentences"][-1]["end_ms"]
    for form, answer in texts.items():
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["content-disposition"] == f'attachment; filename="studio.{form}"'


async def test_an_unchanged_transcript_is_not_sent_again() -> None:
    async with both() as service, service.live.client("?session=studio") as speaker:
        await speaker.say("START")
        await speaker.hear(SENTENCE)
        await speaker.sentences(1)
        get = service.files.http.get
        tag = (await get("/sessions/studio/transcript.txt")).headers["etag"]
        same = {"If-None-Match": f'"other", {tag}'}
        answer = await get("/sessions/studio/transcript.txt", headers=same)
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
        for also in (f"W/{tag}", "*"):
            answer = await get("/sessions/studio/transcript.txt", headers={"If-None-Match": also})
            assert answer.status_code == 304
        await speaker.hear(SENTENCE)
        await speaker.sentences(2)
        answer = await get("/sessions/studio/transcript.txt", headers=same)
        assert (answer.status_code, answer.headers["etag"] == tag) == (200, False)
        head = await service.files.http.head("/sessions/studio/transcript.txt")
        assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize(
    ("path", "status", "param"),
    [
        ("nobody/transcript.txt", 404, "session"),
        ("studio/transcript.doc", 404, None),
        ("studio/transcript.txt?speakers=Ann", 400, "speakers"),
        ("a%20b/transcript.txt", 400, "session"),
    ],
)
async def test_what_cannot_be_had(path: str, status: int, param: str | None) -> None:
    async with both() as service, service.live.client("?session=studio"):
        answer = await service.files.http.get(f"/sessions/{path}")
        assert answer.status_code == status
        error = answer.json()["error"]
        assert (error["type"], error["param"]) == ("invalid_request_error", param)


async def test_transcripts_are_gone_when_they_are_not_kept() -> None:
    async with both(replace(STAY, keep_transcripts_s=0.0)) as service:
        async with service.live.client("?session=studio") as speaker:
            await speaker.say("START")
            await speaker.hear(SENTENCE)
            await speaker.sentences(1)
        await eventually(lambda: not service.live.sessions)
        assert (await service.files.http.get("/sessions/studio/transcript.txt")).status_code == 404


async def test_who_may_read() -> None:
    async with both(door=Door(OPTIONS)) as service:
        speaking = service.live.client(f"?session=studio&token={LONG}")
        async with speaking as speaker:
            await speaker.say("START")
            http, path = service.files.http, "/sessions/studio/transcript.txt"
            assert (await http.get(path)).status_code == 401
            assert (await http.get(f"{path}?token={VIEWER}")).status_code == 200
            async with service.viewer(f"sessions/studio?token={VIEWER}") as viewer:
                await viewer.until(lambda message: message["type"] == "started")
            for page in ("/overlay", "/overlay.html"):
                assert (await http.get(page)).status_code == 200
            answer = await http.get(f"{service.live.url.replace('ws', 'http')}sessions/studio")
            assert answer.status_code == 401


async def test_a_session_that_was_ended_says_so_in_its_transcripts() -> None:
    settings = replace(FIXED, limits=Limits(characters=5))
    async with both(settings=settings) as service:
        async with service.live.client("?session=studio") as speaker:
            await speaker.say("START")
            await speaker.hear(SENTENCE)
            assert await speaker.closed() == 1008
        await eventually(lambda: not service.live.sessions)
        told = "ended early: the session reached its limit of 5 characters"
        for form in FORMS:
            answer = await service.files.http.get(f"/sessions/studio/transcript.{form}")
            assert answer.headers["x-notes"] == told
            assert "one two" in answer.text
        assert answer.json()["notes"] == [told]


@pytest.fixture
async def begun(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when the first slice of an export has begun."""
    begun = asyncio.Event()
    tell = asyncio.get_running_loop().call_soon_threadsafe

    def advance_and_tell(steps: Steps[str], for_s: float) -> tuple[str] | None:
        tell(begun.set)
        return advance(steps, for_s)

    monkeypatch.setattr(slices, "advance", advance_and_tell)
    return begun


def lock_much(service: Both, name: str, sentences: int) -> None:
    """As if a session had said so much: a dozen sentences are most of a second of work."""
    text = "hello world, it is " * 500
    service.live.server.gallery.find(name).record.receive(
        m.SegmentLocked(upto=0, channel=0, segment=n, sentences=(said(n, text),)) for n in range(sentences)
    )


async def test_a_long_transcript_does_not_hold_back_a_short_one(begun: asyncio.Event) -> None:
    async with both() as service:
        done: list[str] = []

        async def fetch(name: str) -> None:
            answer = await service.files.http.get(f"/sessions/{name}/transcript.srt", timeout=HANGS_S)
            assert answer.status_code == 200
            done.append(name)

        async with (
            service.live.client("?session=long") as long,
            service.live.client("?session=short") as short,
        ):
            for client in (long, short):
                await client.say("START")
                await client.event("started")
            lock_much(service, "long", 12)
            async with asyncio.TaskGroup() as tasks:
                for _ in range(2):
                    tasks.create_task(fetch("long"))
                await begun.wait()
                tasks.create_task(fetch("short"))
        assert done == ["short", "long", "long"]


async def test_an_export_ends_with_a_word_when_the_server_stops(
    begun: asyncio.Event, caplog: pytest.LogCaptureFixture
) -> None:
    async with both() as service:
        async with service.live.client("?session=long") as speaker:
            await speaker.say("START")
            await speaker.event("started")
            lock_much(service, "long", 48)
            get = service.files.http.get("/sessions/long/transcript.srt", timeout=HANGS_S)
            export = asyncio.create_task(get)
            await begun.wait()
            await service.files.stop()
        answer = await export
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "stopping")
    assert not caplog.records


# --- their texts ------------------------------------------------------------------------------------------


def record_of(*sentences: Sentence, channels: int = 1) -> Record:
    record = Record()
    setup = Setup(protocol=2, audio=AudioFormat("pcm_s16le", 8000, channels))
    locks = [
        m.SegmentLocked(upto=16_000, channel=s.channel, segment=s.segment, sentences=(s,)) for s in sentences
    ]
    record.receive([m.Started(upto=0, setup=setup), *locks])
    return record


def said(id: int, text: str, speaker: int | None = None, channel: int = 0) -> Sentence:
    return Sentence(id, id, channel, text, 1000 * id, 1000 * id + 900, speaker=speaker)


def lines(record: Record, speakers: str | None, form: str = "txt") -> list[str]:
    return finish(Export.of(form, record, Speakers.read(speakers), key="k").write()).splitlines()


def test_speakers_are_named_as_asked() -> None:
    record = record_of(said(0, "hello", 0), said(1, "hi", 1), said(2, "hm"))
    assert lines(record, None) == ["Speaker 1: hello", "Speaker 2: hi", "hm"]
    assert lines(record, "off") == ["hello", "hi", "hm"]
    assert lines(record, " 1:Bob & <b>, 7:Eve") == ["Speaker 1: hello", "Bob & <b>: hi", "hm"]
    found = webvtt.from_string("\n".join(lines(record, "1:Bob & <b>", "vtt")))
    assert [cue.voice for cue in found] == ["Speaker 1", "Bob &amp; &lt;b&gt;", None]
    srts = list(srt.parse("\n".join(lines(record, "0:a --> b", "srt"))))
    assert [cue.content for cue in srts] == ["a → b: hello", "Speaker 2: hi", "hm"]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_json_is_written_a_sentence_a_step(count: int) -> None:
    record = record_of(*(said(n, 'hello, "you" 你好', 0) for n in range(count)))
    export, steps = Export.of("json", record, Speakers(), key="k"), 0
    work = export.write()
    while (found := advance(work, 0.0)) is None:
        steps += 1
    assert steps == count
    assert found[0].endswith("}\n")
    assert json.loads(found[0]) == {**json_record(snapshot(record), key="k"), "final": record.stopped}


def test_channels_are_named_as_asked() -> None:
    record = record_of(said(0, "hello", None, 0), said(1, "hi", 0, 1), said(2, "hey", 1, 1), channels=2)
    assert lines(record, "on") == [
        "Channel 1: hello",
        "Channel 2, Speaker 1: hi",
        "Channel 2, Speaker 2: hey",
    ]
    assert lines(record, "0:Agent,1:Home,1.1:Bob") == ["Agent: hello", "Home: hi", "Bob: hey"]
    told = json.loads("\n".join(lines(record, None, "json")))["sentences"]
    assert [(each["channel"], each["speaker"]) for each in told] == [(0, None), (1, 0), (1, 1)]


@pytest.mark.parametrize(
    "text", ["", "Ann", "0:", "0:Ann,", "x:Ann", "0.1.2:Ann", f"0:{'x' * 41}", "0:\u200b"]
)
def test_names_that_cannot_be_read(text: str) -> None:
    with pytest.raises(FieldError, match="0:Ann"):
        Speakers.read(text)


def test_nothing_but_the_snapshot_is_made_before_the_file_is_written() -> None:
    asked: list[str] = []

    class Names(dict[str, str]):
        def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]
            asked.append(key)
            return default

    record = record_of(said(0, "hello", None, 0), said(1, "hi", 0, 1), channels=2)
    export = Export.of("txt", record, Speakers(names=Names()), key="k")
    assert not asked
    assert finish(export.write()).splitlines() == ["Channel 1: hello", "Channel 2, Speaker 1: hi"]
    assert asked


def test_a_snapshot_stays_as_it_was() -> None:
    record = record_of(said(0, "hello"))
    before = snapshot(record)
    record.receive([m.SegmentLocked(upto=32_000, channel=0, segment=1, sentences=(said(1, "more"),))])
    assert [sentence.text for sentence in before.sentences] == ["hello"]
