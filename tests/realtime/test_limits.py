"""Every bound of a session, as its client meets it: the final, the error, the close."""

from __future__ import annotations

from dataclasses import replace

import pytest

from realtime_server.core.commands import LONGEST_COMMAND
from realtime_server.core.settings import Limits
from realtime_server.engines.fake import FakeEngine, Fault
from realtime_server.realtime.server import ServerOptions
from realtime_server.realtime.session import Clocks
from tests.audio import pcm16, speech_pattern, tone
from tests.realtime.harness import FIXED, Client, eventually, serving, texts

LAST_WORDS = speech_pattern([(1.0, 0.8)] * 3)


async def ended(client: Client) -> tuple[list[str], str]:
    """Texts of the final and the error behind it, before a close with 1008 and nothing else."""
    assert await client.closed() == 1008
    *_, final, error = client.messages
    assert final["is_final"] is True
    assert sum(bool(message.get("is_final")) for message in client.messages) == 1
    return texts(final), error["error"]


@pytest.mark.parametrize("frame_s", [0.1, 5.4])
async def test_the_length_of_a_session(frame_s: float) -> None:
    async with (
        serving(settings=replace(FIXED, limits=Limits(session_s=4.0))) as service,
        service.client() as client,
    ):
        await client.say("START")
        await client.hear(LAST_WORDS, frame_s=frame_s)
        sentences, error = await ended(client)
        assert error == "the session reached its limit of 4 s of audio"
        assert len(sentences) == 3
        assert client.messages[-2]["duration_ms"] == 4000


async def test_audio_that_waits_to_be_decoded() -> None:
    engine = FakeEngine(slots=1, decode_s=0.3)
    settings = replace(FIXED, limits=Limits(undecoded_s=5.0))
    async with serving(engine, settings=settings) as service, service.client() as client:
        await client.say("START")
        await client.hear(speech_pattern([(1.0, 0.8)] * 10))
        sentences, error = await ended(client)
        assert error == "more than 5 s of audio wait to be decoded; send no faster than it is recognised"
        assert sentences[0] == "one two"
        assert client.messages[-2]["duration_ms"] >= 5000


async def test_audio_that_waits_behind_a_stop() -> None:
    engine = FakeEngine(decode_s=0.2)
    settings = replace(FIXED, limits=Limits(undecoded_s=5.0))
    async with serving(engine, settings=settings) as service, service.client() as client:
        await client.say("START", pcm16(tone(1.0)), "STOP", "START")
        await client.hear(tone(6.0))
        sentences, error = await ended(client)
        assert sentences == ["one two"]
        assert error.startswith("more than 5 s of audio wait")


@pytest.mark.parametrize(
    ("limits", "words"),
    [(Limits(sentences=2), "2 sentences"), (Limits(characters=10), "10 characters")],
    ids=["sentences", "characters"],
)
async def test_what_a_session_may_say_in_all(limits: Limits, words: str) -> None:
    async with serving(settings=replace(FIXED, limits=limits)) as service, service.client() as client:
        await client.say("START")
        await client.hear(LAST_WORDS)
        sentences, error = await ended(client)
        assert len(sentences) in (2, 3)  # what was heard by then is told
        assert error == f"the session reached its limit of {words}"


async def test_commands_that_wait_behind_a_stop() -> None:
    engine = FakeEngine(decode_s=0.3)
    settings = replace(FIXED, limits=Limits(queued_commands=10))
    async with serving(engine, settings=settings) as service, service.client() as client:
        await client.say("START", pcm16(tone(1.0)), "STOP", *["LANGUAGE:en"] * 50)
        sentences, error = await ended(client)
        assert sentences == ["one two"]
        assert error.startswith("too many commands are waiting")


async def test_lists_of_words() -> None:
    limits = Limits(hotwords=3, hotword_characters=20)
    async with serving(settings=replace(FIXED, limits=limits)) as service, service.client() as client:
        for command, error in [
            ("HOTWORDS:a,b,c,d", "4 hotwords are too many; the limit is 3"),
            ("HOTWORDS:" + "x" * 21, "hotwords of 21 characters are too long; the limit is 20 together"),
            ("POSTPROCESS_HOTWORDS:a=>b,c=>d", "4 replacements are too many; the limit is 3"),
            (
                "POSTPROCESS_HOTWORDS:a=>" + "x" * 20,
                "replacements of 21 characters are too long; the limit is 20 together",
            ),
        ]:
            await client.say(command)
            assert (await client.receive())["error"] == error
        assert texts(await client.transcribe(tone(0.5))) == ["one"]


async def test_the_length_of_a_command() -> None:
    async with serving() as service, service.client() as client:
        for command in ("HOTWORDS:" + "x" * LONGEST_COMMAND, "x" * (LONGEST_COMMAND + 1)):
            await client.say(command)
            error = (await client.receive())["error"]
            assert (
                error == f"a command of {len(command)} characters is too long; the limit is {LONGEST_COMMAND}"
            )
        await client.say("x" * LONGEST_COMMAND)
        assert len((await client.receive())["error"]) < 120


async def test_the_size_of_a_message() -> None:
    options = ServerOptions(max_message_bytes=1000)
    async with serving(options=options) as service:
        async with service.client() as client:
            await client.say("START", bytes(1000), bytes(1001))
            assert await client.closed() == 1009
        async with service.client() as client:
            await client.connection.send([bytes(600), bytes(600)])  # in fragments
            assert await client.closed() == 1009


async def test_the_time_of_a_decode() -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(error=None, kind="final", nth=1))
    clocks = Clocks(deadline_s=0.8, deadline_factor=0.2)
    async with serving(engine, clocks=clocks) as service, service.client() as client:
        await client.say("START")
        await client.hear(tone(1.0))
        await client.say("STOP", "START", pcm16(tone(0.5)), "STOP")
        assert texts(await client.final()) in ([], ["one"])
        await client.event("stopped")
        (error,) = (message for message in client.messages if "error" in message)
        assert error["error"] == "the audio from 0.0 to 1.0 s could not be recognised: no answer within 1.0 s"
        assert texts(await client.final()) == ["one"]


async def test_connections_at_once_and_their_ends() -> None:
    """The number is exact, again and again."""
    async with serving(options=ServerOptions(max_sessions=2)) as service:
        for _ in range(5):
            async with service.client() as one, service.client() as two:
                assert texts(await one.transcribe(tone(0.5))) == texts(await two.transcribe(tone(0.5)))
            await eventually(lambda: service.sessions == 0)
