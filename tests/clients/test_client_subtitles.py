"""clients/client_subtitles.py beside a real server: its files are whole at every moment, and nothing said is lost."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from realtime_server.core import messages as m
from realtime_server.core.segments import Sentence
from realtime_server.doors.door import Door
from realtime_server.doors.tls import ServerTls
from realtime_server.realtime.event_log import KEPT_EVENTS
from realtime_server.realtime.server import ServerOptions
from realtime_server.resources import find_resource
from tests.certificates import make_certificate
from tests.realtime.harness import PATIENCE_S, SENTENCE, Service, eventually, serving
from tests.realtime.test_doors import LONG, OPTIONS, VIEWER

srt = pytest.importorskip("srt", reason="needs the srt package")
webvtt = pytest.importorskip("webvtt", reason="needs the webvtt-py package")

PATH = find_resource("clients/client_subtitles.py")


def load() -> Any:
    spec = importlib.util.spec_from_file_location("client_subtitles", PATH)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


client = load()
SETTINGS = {"channels": 1}
LAST = Sentence(1, 1, 0, "the last", 90_000, 91_000)


@asynccontextmanager
async def following(url: str, folder: Path, **options: Any) -> AsyncIterator[asyncio.Task[None]]:
    """Follow the session studio into talk.srt, talk.vtt and now.txt; stopped as by Ctrl-C."""
    chosen = client.Options(
        "studio", (folder / "talk.srt", folder / "talk.vtt"), folder / "now.txt", url.rstrip("/"), **options
    )
    task = asyncio.create_task(client.Follower(chosen).run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def read(folder: Path, name: str = "talk") -> list[str]:
    """The texts of both files, which strict parsers must read alike."""
    found = [
        cue.content for cue in srt.parse((folder / f"{name}.srt").read_text("utf-8"), ignore_errors=False)
    ]
    text = (folder / f"{name}.vtt").read_text("utf-8")
    assert [cue.text for cue in webvtt.from_string(text)] == found
    return found


async def until(folder: Path, texts: list[str], name: str = "talk") -> None:
    await eventually(
        lambda: (folder / f"{name}.srt").exists() and read(folder, name) == texts, f"never {texts}"
    )


async def speak(service: Service, sentences: int = 1) -> list[str]:
    async with service.client("?session=studio") as speaker:
        await speaker.say("START")
        for count in range(1, sentences + 1):
            await speaker.hear(SENTENCE)
            said = await speaker.sentences(count)
        return said


# --- files ------------------------------------------------------------------------------------------------


async def test_files_grow_with_every_sentence_and_are_whole_at_every_moment(tmp_path: Path) -> None:
    async with serving() as service, following(service.url, tmp_path) as task:
        await until(tmp_path, [])
        async with service.client("?session=studio") as speaker:
            await speaker.say("START")
            said: list[str] = []
            for count in (1, 2, 3):
                await speaker.hear(SENTENCE)
                said = await speaker.sentences(count)
                await until(tmp_path, said)
                await eventually(lambda: (tmp_path / "now.txt").read_text() == said[-1])  # noqa: B023
        async with asyncio.timeout(PATIENCE_S):
            await task  # the session has ended
        assert len(set(said)) == 3
        assert read(tmp_path) == said
        assert set(os.listdir(tmp_path)) == {"talk.srt", "talk.vtt", "now.txt"}  # noqa: PTH208 - it does not block


async def test_another_start_and_another_session_get_files_of_their_own(tmp_path: Path) -> None:
    async with serving() as service, following(service.url, tmp_path, forever=True):
        async with service.client("?session=studio") as speaker:
            for name in ("talk", "talk-2"):
                await speaker.say("START")
                await speaker.hear(SENTENCE)
                said = await speaker.sentences(1)
                await until(tmp_path, said, name)
        again = await speak(service)
        await until(tmp_path, again, "talk-3")


async def test_one_that_fell_behind_comes_again_and_goes_on_in_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(client, "THERE_S", 0.05)
    told = ""

    def came_again() -> bool:
        nonlocal told
        told += capsys.readouterr().err
        return "lost (1013)" in told and told.count("following") == 2

    async with serving() as service, service.client("?session=studio") as speaker:
        await speaker.say("START")
        await speaker.hear(SENTENCE)
        async with following(service.url, tmp_path):
            await until(tmp_path, await speaker.sentences(1))
            log = service.server.gallery.find("studio").log
            log.append(
                [m.SegmentOpened(upto=0, channel=0, segment=n, start=0) for n in range(KEPT_EVENTS + 1)]
            )
            await eventually(came_again)
            log.append([m.SegmentLocked(upto=0, channel=0, segment=1, sentences=(LAST,))])
            await until(tmp_path, ["one two", "the last"])
        assert not (tmp_path / "talk-2.srt").exists()


async def test_it_waits_for_a_server_and_comes_back_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(client, "THERE_S", 0.05)
    monkeypatch.setattr(client, "SLOWEST_S", 0.1)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    async with following(f"ws://127.0.0.1:{port}", tmp_path, forever=True):
        await eventually(lambda: "no server at" in capsys.readouterr().err)
        for name in ("talk", "talk-2"):
            async with at_port(port) as service:
                await eventually(lambda: "waiting for studio" in capsys.readouterr().err)
                await until(tmp_path, await speak(service), name)


async def test_what_is_waited_for_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(client, "THERE_S", 0.01)
    async with serving() as service, following(service.url, tmp_path) as task:
        await asyncio.sleep(0.3)  # many times the time between two looks
        await until(tmp_path, await speak(service))
        await task
        told = capsys.readouterr().err
        assert told.count("waiting for studio: nobody speaks under this name yet, or it is over") == 1
        assert f"the speaker's client connects to {service.url.rstrip('/')}/?session=studio" in told


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        ("404 Not Found", "<html>nothing</html>", "has no sessions to follow (HTTP status 404)"),
        (
            "429 Too Many",
            '{"error": "too many\\u001b requests", "code": "rate"}',
            "429 (too many requests), waiting",
        ),
        ("429 Too Many", '{"error": {"message": "slowly"}}', "429 (slowly), waiting"),
        ("502 Bad Gateway", "", "502 (no words), waiting"),
    ],
)
async def test_what_a_server_says_is_told_and_it_is_asked_again(
    status: str, body: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(client, "SLOWEST_S", 0.01)
    asked: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as other:
        port = other.sockets[0].getsockname()[1]
        async with following(f"ws://127.0.0.1:{port}", tmp_path) as task:
            await eventually(lambda: len(asked) > 3)
            assert not task.done()
    assert capsys.readouterr().err.count(told) == 1


class Told:
    """What was said so far."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys, self._said = capsys, ""

    def __contains__(self, words: str) -> bool:
        self._said += self._capsys.readouterr().err
        return words in self._said


@asynccontextmanager
async def encrypted(folder: Path) -> AsyncIterator[Service]:
    async with serving(tls=ServerTls(make_certificate(folder)).context) as service:
        yield service


async def test_a_certificate_that_is_not_accepted_is_told_and_ends_it(tmp_path: Path) -> None:
    async with encrypted(tmp_path) as service, following(service.url, tmp_path) as task:
        with pytest.raises(client.ClientError) as error:
            await task
    assert re.search(r"certificate of wss://.*: self.signed.* set SSL_CERT_FILE", str(error.value))
    assert error.value.exit_code == 2


async def test_a_certificate_that_is_no_longer_accepted_is_told_and_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(client, "THERE_S", 0.01)
    told = Told(capsys)
    async with encrypted(tmp_path) as service:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "here.pem"))
        async with following(service.url, tmp_path, forever=True) as task:
            async with service.client("?session=studio") as speaker:
                await speaker.say("START")
                await eventually(lambda: "following studio" in told)
                monkeypatch.setenv("SSL_CERT_FILE", str(make_certificate(tmp_path, "other").certificate))
            await eventually(lambda: "certificate; waiting for another" in told)
            assert not task.done()


async def test_an_address_that_should_be_encrypted_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = Told(capsys)
    async with encrypted(tmp_path) as service, following(service.url.replace("wss:", "ws:"), tmp_path):
        await eventually(lambda: "is it wss://?" in told)


async def test_an_address_that_should_not_be_encrypted_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = Told(capsys)
    async with serving() as service, following(service.url.replace("ws:", "wss:"), tmp_path):
        await eventually(lambda: "without TLS the address starts with ws://" in told)


@asynccontextmanager
async def at_port(port: int) -> AsyncIterator[Service]:
    """A server on a port that a client knows already."""
    async with serving() as service:

        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            upstream = await asyncio.open_connection("127.0.0.1", service.port)
            await asyncio.gather(pipe(reader, upstream[1]), pipe(upstream[0], writer))

        async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(65536):
                writer.write(data)
            writer.close()

        relay = await asyncio.start_server(carry, "127.0.0.1", port)
        try:
            yield service
        finally:
            await service.server.stop()
            relay.close()


async def test_a_token_is_sent_and_one_that_is_refused_ends_it(tmp_path: Path) -> None:
    door = Door(OPTIONS)
    async with serving(door=door) as service, service.client(f"?session=studio&token={LONG}") as speaker:
        await speaker.say("START")
        async with following(service.url, tmp_path, token=VIEWER):
            await speaker.hear(SENTENCE)
            await until(tmp_path, await speaker.sentences(1))
        for token, words in ((None, "wants a token"), ("wrong" * 8, "does not accept this token")):
            async with following(service.url, tmp_path, token=token) as task:
                with pytest.raises(client.ClientError, match=words):
                    await task


async def test_a_folder_that_cannot_be_written_ends_it(tmp_path: Path) -> None:
    async with serving() as service, following(service.url, tmp_path / "missing") as task:
        with pytest.raises(client.ClientError, match=r"cannot write .*: No such file"):
            await task


@pytest.mark.slow
async def test_the_program_ends_with_the_session_or_a_signal(tmp_path: Path) -> None:
    command = [sys.executable, str(PATH), "studio", "--file", "talk.srt", "--server"]
    async with serving(options=ServerOptions(shutdown_s=PATIENCE_S)) as service:
        async with service.client("?session=studio") as speaker:
            running = [
                await asyncio.create_subprocess_exec(
                    *command,
                    service.url,
                    cwd=folder,
                    stderr=subprocess.PIPE,
                    env={**os.environ, "PYTHONPATH": ""},
                )
                for folder in (tmp_path, find_folder(tmp_path))
            ]
            await speaker.say("START")
            await speaker.hear(SENTENCE)
            said = await speaker.sentences(1)
            await eventually(lambda: (tmp_path / "other" / "talk.srt").exists())
            await eventually(lambda: "one two" in (tmp_path / "other" / "talk.srt").read_text())
            running[1].send_signal(signal.SIGINT)
            assert await running[1].wait() == 0
        assert await running[0].wait() == 0
        for process in running:
            await process.communicate()
    for folder in (tmp_path, tmp_path / "other"):
        assert [cue.content for cue in srt.parse((folder / "talk.srt").read_text())] == said


def find_folder(folder: Path) -> Path:
    (folder / "other").mkdir()
    return folder / "other"


# --- texts ------------------------------------------------------------------------------------------------


def transcript_of(*messages: dict[str, Any], channels: int = 1) -> Any:
    transcript = client.Transcript()
    transcript.take({"type": "started", "session": "s", "settings": {"channels": channels}}, first=True)
    for message in messages:
        transcript.take(message, first=False)
    return transcript


def said(id: int, text: str, speaker: int | None = None, channel: int = 0, **times: int) -> dict[str, Any]:
    span = {"start_ms": 4000 * id, "end_ms": 4000 * id + 3000, **times}
    return {
        "type": "sentence",
        "id": id,
        "segment": id,
        "channel": channel,
        "text": text,
        "speaker": speaker,
        **span,
    }


def test_long_sentences_become_cues_of_two_lines_that_follow_one_another() -> None:
    text = " ".join(["unwavering", "words", "of", "several", "lengths"] * 12)
    chinese = "那是最好的时代，那是最坏的时代。" * 8
    found = client.cues(transcript_of(said(0, text), said(1, chinese), said(2, "x" * 200)), None, 42)
    together = [line for cue in found for line in cue.lines]
    assert " ".join(together).replace(" ", "") == (text + chinese + "x" * 200).replace(" ", "")
    assert all(client.width(line) <= 42 for line in together)
    assert not any(line[0] in "，。" for line in together)
    assert all(1 <= len(cue.lines) <= 2 for cue in found)
    assert all(one.end_ms <= two.start_ms for one, two in pairwise(found))
    assert all(cue.start_ms < cue.end_ms for cue in found)
    assert [cue.content for cue in srt.parse(client.write_srt(found))] == [
        "\n".join(cue.lines) for cue in found
    ]


def test_odd_times_and_texts_give_files_that_parse() -> None:
    messages = (
        said(0, "a --> b", start_ms=0, end_ms=0), said(1, "<i>&amp;\x1b[2J\u202e", start_ms=0, end_ms=0),
        said(2, "", start_ms=5, end_ms=9), said(3, "late", start_ms=100_000_000, end_ms=100_000_500),
    )  # fmt: skip
    found = client.cues(transcript_of(*messages), {}, 42)
    assert [cue.content for cue in srt.parse(client.write_srt(found), ignore_errors=False)] == [
        "a → b", "<i>&amp;[2J", "late"
    ]  # fmt: skip
    cues = webvtt.from_string(client.write_vtt(found))
    assert [cue.start for cue in cues] == ["00:00:00.000", "00:00:00.000", "27:46:40.000"]
    assert client.write_vtt([]).startswith("WEBVTT")


@pytest.mark.parametrize(
    ("speakers", "channels", "names"),
    [
        (None, 1, ["", "", ""]),
        ({}, 1, ["Speaker 1", "Speaker 2", ""]),
        ({"1": "Bob"}, 1, ["Speaker 1", "Bob", ""]),
        ({"1": "Home", "1.1": "Bob"}, 2, ["Channel 1, Speaker 1", "Bob", "Home"]),
    ],
)
def test_names(speakers: dict[str, str] | None, channels: int, names: list[str]) -> None:
    transcript = transcript_of(said(0, "a", 0), said(1, "b", 1, 1), said(2, "c", None, 1), channels=channels)
    assert [cue.name for cue in client.cues(transcript, speakers, 42)] == names


def test_speakers_that_change_and_what_is_being_said() -> None:
    transcript = transcript_of(said(0, "hello", 0))
    assert transcript.line == "hello"
    transcript.take(
        {"type": "partial", "channel": 0, "segment": 1, "stable": "who", "unstable": " is"}, first=False
    )
    assert transcript.line == "who is"
    transcript.take({"type": "no_sentence", "channel": 0, "segment": 1}, first=False)
    assert transcript.line == "hello"
    transcript.take(
        {"type": "speakers", "changes": [{"id": 0, "from": 0, "to": 3}, {"id": 9, "from": 0, "to": 1}]},
        first=False,
    )
    assert transcript.sentences[0].speaker == 3


def test_a_start_that_was_not_seen_is_noticed() -> None:
    transcript = transcript_of(said(0, "hello"))
    transcript.take({"type": "started", "session": "s", "settings": SETTINGS}, first=True)
    transcript.take(said(0, "hello"), first=False)
    assert transcript.number == 0
    transcript.take(said(0, "other", start_ms=77), first=False)
    assert (transcript.number, [each.text for each in transcript.sentences.values()]) == (1, ["other"])
    transcript.take(said(0, "another", start_ms=77), first=False)
    assert (transcript.number, [each.text for each in transcript.sentences.values()]) == (2, ["another"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["studio"], "nothing to write"),
        (["studio", "--file", "talk.txt"], "must end in .srt or .vtt"),
        (["a b", "--line", "x"], "1 to 64"),
        (["studio", "--line", "x", "--server", "ftp://x"], "is no address"),
        (["studio", "--line", "x", "--server", "ws://x:99999"], "is no address"),
        (["studio", "--line", "x", "--server", "ws://x:0"], "is no address"),
        (["studio", "--line", "x", "--server", "ws://x:abc"], "is no address"),
        (["studio", "--line", "x", "--server", "ws://[::1"], "is no address"),
        (["studio", "--line", "x", "--server", "ws:///"], "is no address"),
        (
            [
                "studio",
                "--line",
                "x",
                "--server",
                "ws://aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.x",
            ],
            "is no address",
        ),
        (["studio", "--line", "x", "--server", "ws://x/live"], "is no address"),
        (["studio", "--line", "x", "--server", "ws://x/?session=studio"], "is no address"),
        (["studio", "--line", "x", "--server", "ws://x/#y"], "is no address"),
        (["studio", "--line", "x", "--width", "3"], "10 to 200"),
        (["studio", "--line", "x", "--speakers", "Ann"], "must be on, off or names"),
    ],
)
def test_wrong_arguments_are_explained(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        client.main(arguments)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err
