"""What operators see of a real server: /metrics while people speak, and docs/operating.md, which lists it all."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.exceptions import InvalidStatus

from realtime_server.core.settings import Limits
from realtime_server.engines.fake import FakeEmbedder, FakeEngine, FakeScorer, Fault
from realtime_server.errors import EngineError
from realtime_server.metrics import CONTENT_TYPE
from realtime_server.offline.options import FileOptions
from realtime_server.offline.transcriber import Transcriber
from realtime_server.realtime.health import FAILURES
from realtime_server.realtime.options import Clocks, ServerOptions
from tests.audio import pcm16, silence, speech_pattern, tone
from tests.http.harness import serving as serving_files
from tests.http.process import TALK
from tests.realtime.harness import FIXED, SENTENCE, Service, eventually, serving
from tests.realtime.process import served
from tests.realtime.test_http import ask
from tests.realtime.test_speakers import HIGH, LOW, talk

PAGE = Path(__file__).parents[2] / "docs" / "operating.md"
WITHOUT_EAGER = replace(FIXED, endpointing=replace(FIXED.endpointing, eager_ms=None))


async def metrics(service: Service) -> dict[str, float]:
    """Every sample, by name and the values of its labels, without the prefix."""
    answer = await ask(service, "/metrics")
    assert (answer.status, answer.headers["content-type"]) == (200, CONTENT_TYPE)
    return {
        " ".join(
            [sample.name.removeprefix("realtime_server_"), *(v for _, v in sorted(sample.labels.items()))]
        ): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


async def test_a_session_from_its_first_sound_to_its_end() -> None:
    async with serving(FakeEngine(decode_s=0.01)) as service:
        async with service.client() as client:
            await client.say("START")
            await client.hear(SENTENCE, pace=4.0)
            await client.sentences(1)
            await client.hear(tone(1.0), pace=4.0)
            await client.say("STOP", "STOP")
            for _ in range(2):
                await client.event("stopped")
            during = await metrics(service)
        await eventually(lambda: service.sessions == 0)
        after = await metrics(service)
    assert during["sessions"] == 1
    assert after["sessions"] == 0
    for values in (during, after):
        assert values.items() >= {
            "ready": 1, "engine_up": 1, "connections_total": 1, "starts_total": 1, "audio_seconds_total": 3,
            "segments_total": 2, "sentences_total": 2, "flagged_total failed": 0, "decode_failures_total": 0,
            "lag_seconds_count eager": 1, "lag_seconds_count final": 1, "decode_seconds_count final": 1,
            "work_total vad failed": 0, "jobs final line": 0, "jobs final engine": 0, "info fake 0.1.0": 1,
            "messages_total": len(client.messages),
        }.items()  # fmt: skip
        assert values["partials_total decoded"] == values["decode_seconds_count partial"] >= 2
        assert (
            values["texts_total sent"] + values["texts_total superseded"]
            == values["lag_seconds_count partial"]
        )
        assert values["work_total vad ok"] > 10
        assert values["message_bytes_total"] > 100 * values["messages_total"] / 2
    shown = sum(bool(message.get("partial")) for message in client.messages)
    assert 2 <= after["texts_total sent"] <= shown


async def test_lag_is_the_age_of_the_sound_from_its_receipt_to_its_text() -> None:
    """Decodes take 0.3 s. A second session on the connection has its own clock; so has what is sent behind a STOP."""
    async with (
        serving(FakeEngine(decode_s=0.3), settings=WITHOUT_EAGER) as service,
        service.client() as client,
    ):
        for _ in range(2):
            await client.say("START", pcm16(speech_pattern([(1.0, 1.0)])))
            await client.sentences(1)
            await client.say("STOP", "START", pcm16(tone(0.6)), "STOP")
            for _ in range(2):
                await client.event("stopped")
        values = await metrics(service)
    assert values["lag_seconds_count final"] == 4
    assert 4 * 0.3 <= values["lag_seconds_sum final"] < 4 * 0.3 + 2.0
    assert values["lag_seconds_bucket final 0.2"] == 0


async def test_a_clients_silence_before_it_ends_a_sentence_is_no_lag() -> None:
    """The client hears nothing of it within the silence, which is the longest time of this test by far."""
    silent_s = 2.0
    settings = replace(WITHOUT_EAGER, endpointing=replace(FIXED.endpointing, mode="client", eager_ms=None))
    async with serving(settings=settings, clocks=Clocks(stall_s=60.0)) as service:
        async with service.client() as client:
            await client.say("START", pcm16(tone(1.0)))
            await asyncio.sleep(silent_s)
            await client.say("STOP")
            await client.event("stopped")
        values = await metrics(service)
    assert values["lag_seconds_count final"] == 1
    assert values["lag_seconds_sum final"] < silent_s


async def test_what_waits_while_the_engine_is_busy_and_what_becomes_of_it() -> None:
    engine = FakeEngine(slots=1, decode_s=0.2)
    async with serving(engine) as service:

        async def speak() -> None:
            async with service.client() as client:
                await client.transcribe(tone(2.0), pace=4.0)

        speaking = [asyncio.create_task(speak()) for _ in range(6)]
        await eventually(lambda: service.server.dispatcher.waiting["partial"] >= 4)
        busy = await metrics(service)
        assert busy["jobs partial line"] >= 4
        assert busy["jobs partial engine"] == 1
        await asyncio.gather(*speaking)
        values = await metrics(service)
    assert values["jobs partial line"] == values["jobs partial engine"] == 0
    assert values["partials_total cancelled"] >= 1
    assert values["partials_total folded"] >= 3
    assert values["line_seconds_sum final"] > 0.5
    assert values["decode_seconds_bucket final 0.1"] == 0
    assert values["lag_seconds_count final"] == 6


async def test_what_goes_wrong() -> None:
    engine = FakeEngine()
    options = ServerOptions(max_sessions=1)
    settings = replace(WITHOUT_EAGER, limits=Limits(session_s=20.0))
    async with serving(engine, settings=settings, options=options) as service:
        async with service.client() as client:
            with pytest.raises(InvalidStatus):
                async with service.client():
                    pass
            engine.faults.inject(Fault(kind="final"))
            await client.say("nonsense", "START", pcm16(speech_pattern([(1.0, 1.0)])))
            await client.sentences(1)
            await client.say(pcm16(silence(30.0)))
            assert await client.closed() == 1008
        await eventually(lambda: service.sessions == 0)
        engine.die()
        with pytest.raises(InvalidStatus):
            async with service.client():
                pass
        values = await metrics(service)
    assert values.items() >= {
        "refused_total full": 1, "refused_total died": 1, "errors_total bad_request": 1, "errors_total limit": 1,
        "decode_failures_total": 2, "engine_up": 0, "ready": 0, "sessions": 0,
    }.items()  # fmt: skip
    assert values["flagged_total failed"] + values["flagged_total recovered"] == 1


async def test_speakers_have_jobs_of_their_own() -> None:
    async with (
        served("--speakers", "bands", "--endpointing", "fixed:600") as server,
        server.client() as client,
    ):
        await client.say("START", talk(LOW, HIGH), "STOP")
        await client.event("stopped")
        values = await metrics(Service(None, server.port))  # type: ignore[arg-type]
    assert values["work_total embed ok"] >= 2
    assert values["work_total cluster ok"] >= 1
    assert values["info fixed:600 fake bands 0.1.0"] == 1


async def test_recordings_are_counted_apart() -> None:
    async with serving() as service, service.client() as client:
        await client.transcribe(tone(0.3))
        before = await metrics(service)
        observe = service.server.metrics.observe_job
        work = Transcriber(service.server.dispatcher, FakeScorer(), FakeEmbedder(), observe=observe)
        await work.transcribe(TALK, FileOptions(speakers=True))
        values = await metrics(service)
    assert values["decode_seconds_count file"] == values["line_seconds_count file"] == 2
    assert values["decode_seconds_count final"] == values["lag_seconds_count final"] == 1
    for job in ("vad", "embed", "cluster"):
        assert values[f"work_total {job} ok"] > before.get(f"work_total {job} ok", 0)


@pytest.mark.parametrize("what", ["vad", "cluster"])
async def test_what_fails_of_a_recording_is_counted_and_turns_nobody_away(what: str) -> None:
    scorer, embedder = FakeScorer(), FakeEmbedder()
    faults = scorer.faults if what == "vad" else embedder.cluster_faults
    async with serving() as service:
        observe = service.server.metrics.observe_job
        work = Transcriber(service.server.dispatcher, scorer, embedder, observe=observe)
        for _ in range(FAILURES):
            faults.inject(Fault())
            with suppress(EngineError):  # without voice activity there is no text
                await work.transcribe(TALK, FileOptions(speakers=True))
        values = await metrics(service)
        assert values[f"work_total {what} failed"] >= 1
        assert (await ask(service, "/ready")).status == 200


async def test_a_bad_recording_turns_no_speaker_away_but_a_dead_recognizer_does() -> None:
    engine = FakeEngine()
    async with serving(engine) as service:
        engine.faults.inject(Fault())
        await Transcriber(service.server.dispatcher, FakeScorer()).transcribe(TALK)
        assert len(engine.jobs) == 4  # two segments, each tried again
        assert (await ask(service, "/ready")).status == 200
        engine.die()
        assert (await ask(service, "/ready")).status == 503


async def test_the_table_lists_all_there_is() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = re.search(r"(?m)^\| metric \|.*\n\|[-|]+\n((?:\|.*\n)+)", text)
    assert table
    listed = {
        name
        for row in table[1].splitlines()
        for name in re.findall(r"`(\w+)(?:\{[^`]*\})?`", row.split(" | ")[0])
    }
    async with serving_files() as files:  # which tells what the live service tells, too
        answer = (await files.http.get("/metrics")).text
    told = set(re.findall(r"(?m)^# TYPE (\w+) ", answer))
    assert {
        name.removeprefix("realtime_server_") for name in told if name.startswith("realtime_server_")
    } == listed
    assert {name for name in told if not name.startswith("realtime_server_")} == set(
        re.findall(r"`(process_\w+)`", text)
    )
