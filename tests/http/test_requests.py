"""Requests of every shape: bounds, refusals, clients that leave, engines that fail."""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest

from realtime_server.engines.fake import CAPABILITIES, FakeEngine, Fault
from realtime_server.http.options import HttpOptions
from realtime_server.offline.audio_source import AudioLimits
from tests.audio import tone
from tests.http.harness import Files, serving
from tests.http.process import TALK_WAV, TEXT, TEXTS, wav
from tests.offline.recordings import recording, silent_flac
from tests.realtime.harness import eventually

TRANSCRIPTIONS = "/v1/audio/transcriptions"
SHORT = HttpOptions(limits=AudioLimits(duration_s=5.0))
SMALL = HttpOptions(limits=AudioLimits(file_bytes=100_000), form_bytes=10_000)
HEAD = "multipart/form-data; boundary=x"


def hours() -> bytes:
    """A recording that takes seconds to decode."""
    return silent_flac(4.0, 16_000)


def part(name: str, value: bytes, more: str = "") -> bytes:
    return f'--x\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + value + b"\r\n"


def error(response: Any) -> dict[str, Any]:
    found: dict[str, Any] = response.json()["error"]
    assert set(found) == {"message", "type", "param", "code"}
    return found


# --- POST /asr --------------------------------------------------------------------------------------------


async def test_asr() -> None:
    async with serving() as files:
        answer = (await files.post()).json()
    assert set(answer) == {"text", "segments", "duration", "processing_time", "rtf"}
    assert (answer["text"], answer["duration"]) == (TEXT, 8.0)
    assert [segment["text"] for segment in answer["segments"]] == TEXTS
    assert answer["segments"][0]["words"][1] == {"word": "two", "start": 0.5, "end": 1.0}


async def test_asr_without_word_times() -> None:
    engine = FakeEngine()
    async with serving(engine) as files:
        answer = (await files.post(timestamp="false", language="中文", hotwords="张三,北京")).json()
    assert set(answer["segments"][0]) == {"text", "start", "end"}
    assert {(job.options.words, job.options.language, job.options.hotwords) for job in engine.jobs} == {
        (False, "zh", ("张三", "北京"))
    }


async def test_word_times_that_the_recognizer_lacks() -> None:
    async with serving(FakeEngine(capabilities=replace(CAPABILITIES, words=False))) as files:
        answer = await files.post()
        assert answer.json()["segments"][0]["words"] == []
        verbose = await files.post(TRANSCRIPTIONS, response_format="verbose_json")
        assert "words" not in verbose.json()
        refused = await files.post(TRANSCRIPTIONS, timestamp_granularities="word")
        assert error(refused)["param"] == "timestamp_granularities"


async def test_the_answer_says_what_is_wrong_with_a_recording() -> None:
    async with serving() as files:
        answer = await files.post(data=recording("flac", 20.0)[:-5000])
    (note,) = answer.json()["notes"]
    assert "the recording is damaged after" in note
    assert answer.headers["x-notes"] == note


@pytest.mark.parametrize("spelling", ["timestamp_granularities[]", "timestamp_granularities"])
@pytest.mark.parametrize("given", [["word"], ["segment", "word"], ["segment"]])
async def test_granularities_are_spelled_in_two_ways(spelling: str, given: list[str]) -> None:
    async with serving() as files:
        answer = await files.post(TRANSCRIPTIONS, response_format="verbose_json", **{spelling: given})
    assert ("words" in answer.json()) == ("word" in given)


# --- bounds -----------------------------------------------------------------------------------------------


async def test_a_recording_that_is_too_long() -> None:
    async with serving(options=SHORT) as files:
        refused = await files.post()
        assert (refused.status_code, error(refused)["code"], error(refused)["param"]) == (
            413,
            "too_long",
            "file",
        )
        assert (await files.post(data=wav(tone(1.0)))).json()["text"] == "one two"


async def test_a_recording_that_takes_too_long_to_decode() -> None:
    async with serving(options=HttpOptions(limits=AudioLimits(decode_s=0.05))) as files:
        refused = await files.post(data=hours())
        assert (refused.status_code, error(refused)["code"]) == (400, "too_slow")


@pytest.mark.parametrize("size", [100_001, 105_000, 400_000])
async def test_a_recording_that_is_too_big(size: int) -> None:
    async with serving(options=SMALL) as files, files.openai() as client:
        with pytest.raises(openai.APIStatusError) as refused:
            await client.audio.transcriptions.create(file=("a.wav", bytes(size)), model="whisper-1")
        assert (refused.value.status_code, refused.value.code, refused.value.param) == (
            413,
            "too_big",
            "file",
        )
        assert "larger than 100000 bytes" in refused.value.message
        assert (await files.post(data=wav(tone(1.0)))).status_code == 200


@pytest.mark.parametrize("length", ["99999999999999999999", "200000"])
async def test_a_length_that_is_promised_too_big_is_refused_before_it_comes(length: str) -> None:
    async with serving(options=SMALL) as files:
        answer = await converse(files, f"Content-Type: {HEAD}\r\nContent-Length: {length}\r\n", b"")
        assert answer.startswith((b"HTTP/1.1 413 ", b"HTTP/1.1 400 "))
        assert (await files.post(data=wav(tone(1.0)))).status_code == 200


async def test_a_body_without_a_length_is_counted() -> None:
    async def body() -> AsyncIterator[bytes]:
        yield part("file", b"", '; filename="a.wav"')[:-2]
        for _ in range(1000):
            yield bytes(1000)

    async with serving(options=SMALL) as files:
        refused = await files.http.post("/asr", content=body(), headers={"Content-Type": HEAD})
        assert (refused.status_code, error(refused)["code"]) == (413, "too_big")


async def test_a_body_longer_than_it_promises_is_no_second_request() -> None:
    async with serving(options=SMALL) as files:
        answer = await converse(files, f"Content-Type: {HEAD}\r\nContent-Length: 10\r\n", bytes(500_000))
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.count(b"HTTP/1.1 ") <= 2
        assert b"200 OK" not in answer


async def test_an_upload_that_stalls_is_given_up() -> None:
    async with serving(options=replace(SMALL, stall_s=0.05)) as files:
        answer = await converse(files, f"Content-Type: {HEAD}\r\nContent-Length: 5000\r\n", b"--x\r\n")
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"only 5 bytes came for 0.05 s" in answer
        answer = await converse(files, f"Content-Type: {HEAD}\r\nContent-Length: 5000\r\n", b"")
        assert b"nothing came for 0.05 s" in answer


async def test_an_upload_that_trickles_is_given_up() -> None:
    async with serving(options=replace(SMALL, stall_s=0.2)) as files:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(files.url.rpartition(":")[2]))
        head = (
            f"POST /asr HTTP/1.1\r\nHost: localhost\r\nContent-Type: {HEAD}\r\nContent-Length: 90000\r\n\r\n"
        )
        writer.write(head.encode() + part("file", b"", '; filename="a"')[:-2])
        answered = asyncio.create_task(reader.readuntil(b"}}"))
        while not answered.done():
            writer.write(b"x")
            await asyncio.sleep(0.02)
        assert (await answered).startswith(b"HTTP/1.1 408 ")
        assert b"bytes came for 0.2 s" in await answered
        writer.close()


async def test_an_upload_may_take_long_while_enough_of_it_comes() -> None:
    async def body() -> AsyncIterator[bytes]:
        yield part("file", b"", '; filename="a.wav"')[:-2]
        for start in range(0, len(TALK_WAV), 8000):
            yield TALK_WAV[start : start + 8000]
            await asyncio.sleep(0.02)
        yield b"\r\n--x--\r\n"

    async with serving(options=HttpOptions(stall_s=0.3)) as files:
        answer = await files.http.post("/asr", content=body(), headers={"Content-Type": HEAD})
        assert answer.json()["text"] == TEXT


async def converse(files: Files, headers: str, body: bytes) -> bytes:
    """Send a POST to /asr as it is; return what comes back until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(files.url.rpartition(":")[2]))
    writer.write(
        f"POST /asr HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n".encode() + body
    )
    received = b""
    try:
        async with asyncio.timeout(10):
            received += await reader.readuntil(b"\r\n\r\n")
            while piece := await reader.read(65_536):
                received += piece
    except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
        pass
    writer.close()
    return received


@pytest.mark.parametrize(
    ("headers", "body", "status", "words"),
    [
        ({"Content-Type": "audio/wav"}, TALK_WAV, 415, "must be multipart/form-data"),
        ({"Content-Type": "application/json"}, b"{}", 415, "not application/json"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"file=a", 415, "not application/x-www-form"),
        ({}, TALK_WAV, 415, "and it has no Content-Type"),
        ({"Content-Type": "multipart/form-data"}, b"", 400, "boundary"),
        ({"Content-Type": f"{HEAD}; charset=undefined"}, b"", 415, "charset of a form must be utf-8"),
        ({"Content-Type": f"{HEAD}; charset=UTF-8"}, b"", 400, "there is no recording"),
        ({"Content-Type": HEAD}, b"", 400, "there is no recording"),
        ({"Content-Type": HEAD}, b"nonsense", 400, ""),
        ({"Content-Type": HEAD}, part("language", b"en") + b"--x--\r\n", 400, "there is no recording"),
        ({"Content-Type": HEAD}, part("file", b"abc") + b"--x--\r\n", 400, "file must be a file"),
        ({"Content-Type": HEAD}, part("spk", b"abc", '; filename="a"') + b"--x--\r\n", 400, "spk must be a text"),
        ({"Content-Type": HEAD}, part("spk", b"1") * 2 + b"--x--\r\n", 400, "spk is given more than once"),
        ({"Content-Type": HEAD}, part("file", b"", '; filename="a"') * 2 + b"--x--\r\n", 400, "Too many files"),
        ({"Content-Type": HEAD}, part("spk", b"") * 200 + b"--x--\r\n", 400, "Too many fields"),
        ({"Content-Type": HEAD}, part("language", b"a" * 300_000) + b"--x--\r\n", 400, "exceeded maximum size"),
        ({"Content-Type": HEAD}, b"--x\r\nContent-Disposition: form-data\r\n\r\na\r\n--x--\r\n", 400, "name"),
    ],
)  # fmt: skip
async def test_a_form_that_is_none(headers: dict[str, str], body: bytes, status: int, words: str) -> None:
    async with serving() as files:
        answer = await files.http.post("/asr", content=body, headers=headers)
        assert (answer.status_code, error(answer)["type"]) == (status, "invalid_request_error")
        assert words in error(answer)["message"]
        assert (await files.post()).status_code == 200


async def test_fields_that_are_too_much_together() -> None:
    fields = part("keywords[]", b"," * 6000) * 2
    headers = {"Content-Type": HEAD}
    async with serving(options=SMALL) as files:
        refused = await files.http.post(TRANSCRIPTIONS, content=fields + b"--x--\r\n", headers=headers)
        assert (refused.status_code, error(refused)["code"]) == (413, "too_big")
        assert "the fields of the form hold more than 10000 bytes" in error(refused)["message"]


async def test_hotwords_are_counted_before_they_are_split() -> None:
    async with serving() as files:
        refused = await files.post(TRANSCRIPTIONS, **{"keywords[]": ["," * 40_000] * 2})
        assert (refused.status_code, error(refused)["param"]) == (400, "keywords")
        assert "80000 characters of keywords are too many" in error(refused)["message"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is always full")
async def test_no_room_for_an_upload(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*arguments: object, **options: object) -> object:
        return Path("/dev/full").open("w+b")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    async with serving() as files:
        for size in (1000, 2_000_000):  # decoded from memory, and received into a file
            refused = await files.post(data=bytes(size))
            assert (refused.status_code, error(refused)["code"]) == (503, "no_room")
            assert "there is no room for the recording" in error(refused)["message"]
            assert refused.headers["retry-after"] == "5"
    assert "No space left on device" in caplog.text
    assert "Traceback" not in caplog.text


async def test_no_folder_for_an_upload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as files:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
        for size in (1000, 2_000_000):  # decoded from memory, and received into a file
            refused = await files.post(data=bytes(size))
            assert (refused.status_code, error(refused)["code"]) == (503, "no_room")
            assert "TMPDIR" in error(refused)["message"]
    assert "Traceback" not in caplog.text


async def test_a_form_that_cannot_be_read_is_the_log_s_affair_at_debug_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving() as files:
        body = b"--x\r\nno header\r\n\r\n--x--\r\n"
        refused = await files.http.post("/asr", content=body, headers={"Content-Type": HEAD})
        assert refused.status_code == 400
    told = [record for record in caplog.records if "form" in record.message or "multipart" in record.name]
    assert [(record.name, record.levelname) for record in told] == [("realtime_server.http.forms", "DEBUG")]


async def test_empty_fields_count_as_absent() -> None:
    async with serving() as files:
        empty = {"language": "", "spk": " ", "hotwords": "", "timestamp": ""}
        assert (await files.post(**empty)).json()["text"] == TEXT


async def test_what_is_not_there() -> None:
    async with serving() as files:
        for path in ("/nothing", "/v1", "/v1/audio/speech", "/static/a.js"):
            answer = await files.http.get(path)
            assert (answer.status_code, error(answer)["code"]) == (404, "unknown_url")
        answer = await files.http.get("/asr")
        assert (answer.status_code, error(answer)["code"]) == (405, "method_not_allowed")
        assert answer.headers["allow"] == "POST"


async def test_more_requests_than_places() -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(error=None))
    async with serving(engine, options=HttpOptions(max_files=2)) as files, files.openai() as client:
        held = [files.posting(), files.posting()]
        await eventually(lambda: files.service.running == 2)
        with pytest.raises(openai.RateLimitError) as refused:
            await client.audio.transcriptions.create(file=("a.wav", TALK_WAV), model="whisper-1")
        assert refused.value.code == "busy"
        assert refused.value.response.headers["retry-after"] == "5"
        assert (await files.http.get("/health")).json()["files"] == 2
        for task in held:
            task.cancel()
        await eventually(lambda: files.service.running == 0)
        engine.faults.clear()
        assert (await files.post()).status_code == 200


async def test_a_recording_waits_while_others_fill_the_memory() -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(error=None))
    limits = AudioLimits(duration_s=8.0)
    async with serving(engine, options=HttpOptions(limits=limits)) as files:
        first = files.posting()
        await eventually(lambda: engine.running)
        engine.faults.clear()
        second = files.posting()
        await asyncio.sleep(0.3)
        assert not second.done()
        assert files.service.audio.held_s == 8.0
        first.cancel()
        assert (await second).status_code == 200


async def test_a_recording_does_not_wait_for_ever_while_others_fill_the_memory() -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(error=None))
    options = HttpOptions(limits=AudioLimits(duration_s=8.0), room_s=0.3)
    async with serving(engine, options=options) as files:
        first = files.posting()
        await eventually(lambda: engine.running)
        refused = await asyncio.gather(*(files.post() for _ in range(4)))
        assert {(answer.status_code, error(answer)["code"]) for answer in refused} == {(429, "busy")}
        begun_s = asyncio.get_running_loop().time()
        assert (await files.post()).status_code == 429  # it has been full for long
        assert asyncio.get_running_loop().time() - begun_s < 0.3
        first.cancel()
        engine.faults.clear()
        await eventually(lambda: files.service.running == 0)
        assert (await files.post()).status_code == 200


async def test_requests_at_once() -> None:
    async with serving(FakeEngine(decode_s=0.05)) as files:
        answers = await asyncio.gather(*(files.post() for _ in range(5)))
    assert [answer.json()["text"] for answer in answers] == [TEXT] * 5


# --- clients that leave -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{}, {"stream": "true"}])
async def test_a_client_that_leaves_takes_its_work_with_it(fields: dict[str, str]) -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(error=None))
    async with serving(engine) as files:
        asking = files.posting(TRANSCRIPTIONS, **fields)
        await eventually(lambda: engine.running == 2)
        asking.cancel()
        await eventually(lambda: engine.running == 0 and files.service.running == 0)
        assert engine.cancelled == 2


async def test_a_client_that_leaves_while_its_recording_is_decoded() -> None:
    async with serving(options=HttpOptions(limits=AudioLimits(duration_s=20_000))) as files:
        asking = files.posting(data=hours())
        await eventually(lambda: files.service.running == 1)
        await asyncio.sleep(0.2)
        asking.cancel()
        await eventually(lambda: files.service.running == 0, within_s=5.0)
        assert files.service.audio.held_s == 0


async def test_a_client_that_leaves_in_the_middle_of_its_upload(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as files:
        _, writer = await asyncio.open_connection("127.0.0.1", int(files.url.rpartition(":")[2]))
        head = (
            f"POST /asr HTTP/1.1\r\nHost: localhost\r\nContent-Type: {HEAD}\r\nContent-Length: 90000\r\n\r\n"
        )
        writer.write(head.encode() + part("file", bytes(30_000), '; filename="a"'))
        await eventually(lambda: files.service.running == 1)
        writer.transport.abort()
        await eventually(lambda: files.service.running == 0)
    assert not caplog.records


# --- engines that fail ------------------------------------------------------------------------------------


async def test_an_engine_that_cannot_translate() -> None:
    async with serving(FakeEngine(capabilities=replace(CAPABILITIES, translate=False))) as files:
        refused = await files.post("/v1/audio/translations")
        assert (refused.status_code, error(refused)["code"]) == (400, "unsupported")
        assert "this recognizer cannot translate" in error(refused)["message"]


@pytest.mark.parametrize(
    ("capabilities", "fields"),
    [
        ({"languages": frozenset({"en"})}, {"language": "中文"}),
        ({"languages": None}, {"language": "en"}),
        ({"hotwords": "none"}, {"hotwords": "a,b"}),
        ({}, {"spk": "true"}),
    ],
)
async def test_what_the_recognizer_lacks(capabilities: dict[str, Any], fields: dict[str, str]) -> None:
    async with serving(FakeEngine(capabilities=replace(CAPABILITIES, **capabilities))) as files:
        refused = await files.post(**fields)
        assert (refused.status_code, error(refused)["code"]) == (400, "unsupported")
        assert [error(refused)["param"]] == list(fields)


async def test_a_prompt_is_a_hint_that_a_recognizer_may_not_take() -> None:
    async with serving(FakeEngine(capabilities=replace(CAPABILITIES, hotwords="none"))) as files:
        assert (await files.post(TRANSCRIPTIONS, prompt="FunASR")).status_code == 200


async def test_a_segment_that_fails_is_told() -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(nth=1))
    engine.faults.inject(Fault(nth=2))
    async with serving(engine) as files:
        found = await files.post()
    assert found.status_code == 200
    assert any("could not be recognised" in note for note in found.json().get("notes", []))
    assert sum("failed" in segment.get("flags", []) for segment in found.json()["segments"]) >= 1


@pytest.mark.parametrize("dead", [True, False])
async def test_an_engine_that_fails_altogether(dead: bool, caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault())
    if dead:
        engine.die()
    async with serving(engine) as files, files.openai() as client:
        with pytest.raises(openai.InternalServerError) as refused:
            await client.audio.transcriptions.create(file=("a.wav", TALK_WAV), model="whisper-1")
        assert (refused.value.status_code, refused.value.code) == (503, "engine")
        assert refused.value.response.headers["retry-after"] == "5"
        with pytest.raises(openai.APIError, match="the recognizer does not work now"):
            async for _ in await client.audio.transcriptions.create(
                file=("a.wav", TALK_WAV), model="whisper-1", stream=True
            ):
                pass
    assert "a request failed: " in caplog.text


async def test_a_stream_goes_on_while_the_engine_works() -> None:
    engine = FakeEngine(slots=1, decode_s=0.2)
    async with serving(engine) as files, files.openai() as client:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        times = [
            loop.time() - begun
            async for _ in await client.audio.transcriptions.create(
                file=("a.wav", TALK_WAV), model="whisper-1", stream=True
            )
        ]
    assert times[1] - times[0] > 0.1


async def test_a_stream_that_is_silent_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("realtime_server.http.answers.ALIVE_S", 0.02)
    async with serving(FakeEngine(decode_s=0.2)) as files:
        raw = (await files.post(TRANSCRIPTIONS, stream="true")).text
    assert raw.startswith(":\n\n")
    data = [json.loads(line.removeprefix("data: ")) for line in raw.splitlines() if line.startswith("data: ")]
    assert data[-1] == {"type": "transcript.text.done", "text": TEXT}


async def test_a_bug_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as files:
        files.service.settings = None  # type: ignore[assignment]
        answer = await files.post()
        assert (answer.status_code, error(answer)["code"]) == (500, "internal")
        assert "Traceback" not in answer.text
        assert "NoneType" not in answer.text
    assert "NoneType" in caplog.text
