"""What clients send and get over a socket, beyond the exchanges of docs/protocol.md."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
import pytest
from websockets.asyncio.client import connect

from realtime_server.core.endpointing import EndpointingOptions
from realtime_server.core.jobs import Samples
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.core.settings import Limits, SessionSettings
from realtime_server.engines.fake import FakeEngine
from realtime_server.engines.fake_hearing import SLOT, spell
from realtime_server.realtime.session import Clocks
from tests.audio import pcm16, silence, speech_pattern, tone
from tests.realtime.harness import (
    BY_CLIENT,
    FIXED,
    SENTENCE,
    Client,
    Message,
    eventually,
    serving,
    texts,
)

PROVEN = "当然可以。目前我们已经完成了第一阶段的调查研究工作。"
LOOP = "好，拜拜。" * 80
TALK = speech_pattern([(1.0, 0.3), (0.5, 1.0), (1.5, 0.2)])


# --- frames -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ([], 1601),
        ([1] * 999, 3200),
        ([3] * 1001, 10**6),
        ([0, 1, 0, 0, 1, 3199], 2001),
        ([1, 3200, 3201, 1], 640),
    ],
)
async def test_frames_of_any_size_give_the_same_result(first: list[int], then: int) -> None:
    """R8: odd ones too, at any place."""
    data = pcm16(TALK)
    edges = [*accumulate(first, initial=0)]
    edges += range(edges[-1] + then, len(data) + then, then)
    async with serving() as service, service.client() as client:
        expected = await client.transcribe(TALK)
        assert len(texts(expected)) == 2
        await client.say("START", *(data[at:end] for at, end in pairwise(edges)), "STOP")
        assert await client.final() == expected


async def test_an_odd_byte_at_the_end_belongs_to_no_sample_and_to_no_later_session() -> None:
    async with serving() as service, service.client() as client:
        await client.say("START", pcm16(tone(0.5)) + b"\x7f", "STOP")
        assert (await client.final())["duration_ms"] == 500
        expected = await client.transcribe(tone(1.0))
        assert texts(expected) == ["one two"]
        await client.say(b"\x7f", "START", pcm16(tone(1.0)), "STOP")
        assert await client.final() == expected


async def test_text_instead_of_audio_is_an_error_and_changes_nothing() -> None:
    async with serving() as service, service.client() as client:
        await client.say(
            "START", pcm16(tone(0.5)), "UklGRiQAAABXQVZF" * 100, "[1, 2, 3]", pcm16(tone(0.5)), "STOP"
        )
        final = await client.final()
        assert texts(final) == ["one two"]
        errors = [message["error"] for message in client.messages if "error" in message]
        assert [error[:16] for error in errors] == ["unknown command:"] * 2
        assert len(errors[0]) < 120


# --- clients in use ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.8, 0.0])
async def test_the_client_of_the_funasr_guide(seconds: float) -> None:
    """The loop of the guide's section 6.4, word for word but for the address and where the audio comes from."""
    audio = tone(seconds)
    pcm = (audio * 32768).astype(np.int16)
    printed = []
    async with serving() as service, connect(service.url.rstrip("/")) as ws:
        await ws.send("START")
        await ws.recv()

        for i in range(0, len(pcm), 1600):
            await ws.send(pcm[i : i + 1600].tobytes())
            await asyncio.sleep(0.05)

        await ws.send("STOP")
        async for msg in ws:
            data = json.loads(msg)
            if data.get("is_final"):
                for s in data["sentences"]:
                    printed.append(f"[{s['start'] / 1000:.1f}s] {s['text']}")
                break
    assert printed == (["[0.0s] one two"] if seconds else [])


async def test_a_client_with_its_librarys_limits_survives_1200_sentences() -> None:
    """R19; protocol 1 repeats the list, and 1 MiB is what such a client takes."""
    count = 1200
    settings = SessionSettings(
        endpointing=EndpointingOptions(mode="fixed", silence_ms=200, eager_ms=None),
        limits=Limits(undecoded_s=3600.0),
    )
    piece = pcm16(speech_pattern([(0.25, 0.25)] * 20))
    async with serving(FakeEngine(keep_jobs=0), settings=settings) as service, connect(service.url) as ws:
        client = Client(ws)
        await client.say("START", *[piece] * (count // 20), "STOP")
        final = await client.final(120.0)
        assert len(final["sentences"]) == count
        assert await client.event("stopped")
        assert texts(await client.transcribe(tone(0.5))) == ["one"]


# --- when sentences are locked ----------------------------------------------------------------------------


async def test_a_sentence_arrives_though_no_more_audio_does() -> None:
    """R11: the audio of the pause was sent, then nothing."""
    async with serving() as service, service.client() as client:
        await client.say("START")
        await client.hear(speech_pattern([(2.0, 0.7)]))
        assert len(await client.sentences(1, within_s=3.0)) == 1  # before a stall would lock it


@pytest.mark.parametrize("command", ["STOP", "COMMIT"])
async def test_stop_and_commit_do_not_wait_for_a_pause(command: str) -> None:
    async with serving(settings=BY_CLIENT) as service, service.client() as client:
        await client.say("START")
        await client.hear(tone(2.0))
        await client.say(command)
        assert texts(await client.final(within_s=3.0)) == ["one two three four"]


async def test_a_client_that_stalls_in_mid_sentence_gets_it_once() -> None:
    """R21, with a shorter stall."""
    engine = FakeEngine()
    async with serving(engine, clocks=Clocks(stall_s=0.2)) as service, service.client() as client:
        await client.say("START")
        await client.hear(tone(1.0))
        assert await client.sentences(1) == ["one two"]
        await asyncio.sleep(0.05)
        await client.hear(speech_pattern([(1.0, 0.0)]))
        assert await client.sentences(2) == ["one two", "three four"]
        assert sum(job.kind == "final" for job in engine.jobs) == 2
        await client.say("STOP")
        assert len(texts(await client.final())) == 2


async def test_silence_before_speech_moves_no_cut() -> None:
    """R5: three times a second of speech and 0.4 s of pause, after N seconds of nothing."""
    settings = SessionSettings(endpointing=EndpointingOptions(mode="fixed", silence_ms=400))
    audio = np.concatenate([silence(0.6), speech_pattern([(1.0, 0.4)] * 3)])
    cuts = set()
    async with serving(settings=settings) as service, service.client() as client:
        for seconds in (0, 8, 20, 40, 61, 600):
            await client.say("START", *[bytes(320_000)] * (seconds // 10), bytes(32_000 * (seconds % 10)))
            await client.hear(audio)
            await client.say("STOP")
            sentences = (await client.final())["sentences"]
            cuts.add(tuple((s["start"] - 1000 * seconds, s["end"] - 1000 * seconds) for s in sentences))
    (same,) = cuts
    assert len(same) == 3


async def test_three_minutes_without_a_pause_lose_and_repeat_no_word() -> None:
    """R22: cut at the quiet places between words, of which the fake recognizer hears one every half second."""
    settings = replace(FIXED, limits=Limits(undecoded_s=600.0))
    async with serving(settings=settings) as service, service.client() as client:
        final = await client.transcribe(words_of(180.0), frame_s=1.0)
    sentences = final["sentences"]
    assert len(sentences) >= 6
    assert " ".join(texts(final)).split() == [spell(n) for n in range(1, 361)]
    assert all(b["start"] == a["end"] for a, b in pairwise(sentences))


def words_of(seconds: float) -> Samples:
    """Speech without a pause, less loud for 60 ms around every half second."""
    audio = tone(seconds)
    phase = np.arange(audio.size) % SLOT
    near = np.minimum(phase, SLOT - phase) < 0.03 * SAMPLE_RATE
    audio[near] *= 0.2
    return audio


# --- texts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("final", ["当然可以。", "好", LOOP, None])
async def test_a_final_that_lost_proven_text_keeps_it(final: str | None) -> None:
    """R3; None: it raises."""

    def script(job: object) -> str | Exception:
        if getattr(job, "kind", "") == "partial":
            return PROVEN
        return RuntimeError("broken") if final is None else final

    settings = replace(FIXED, endpointing=replace(FIXED.endpointing, eager_ms=None))
    async with serving(FakeEngine(script=script), settings=settings) as service, service.client() as client:
        await client.say("START")
        await client.hear(speech_pattern([(6.0, 0.0)]))
        shown = 0
        while shown < 2:
            shown += (await client.receive()).get("partial") == PROVEN
        await client.say("STOP")
        (text,) = texts(await client.final())
    assert PROVEN.startswith(text) or text.startswith(PROVEN[:20])
    assert len(text) >= 20


@pytest.mark.parametrize(
    "text",
    [
        "我的号码是八八八八八八八八请你记一下好的谢谢你啊",
        "no no no that is not what I meant at all",
        "www.example.com is the site",
        "AAA级景区真的非常漂亮欢迎大家来这里参观游玩啊",
        LOOP,
    ],
)
async def test_repetition_is_cut_only_where_it_is_the_models(text: str) -> None:
    """R10."""
    async with serving(FakeEngine(script=lambda job: text)) as service, service.client() as client:
        (heard,) = texts(await client.transcribe(tone(6.0)))
    assert heard == ("好，拜拜。好，拜拜。" if text == LOOP else text)


async def test_hotwords_reach_the_engine_as_they_were_understood() -> None:
    """R13, and nothing that a prompt could take for a control token."""
    engine = FakeEngine()
    async with serving(engine) as service, service.client() as client:
        await client.say("HOTWORDS:张三，李四、王五,赵六")
        assert (await client.receive())["hotwords"] == ["张三", "李四", "王五", "赵六"]
        await client.transcribe(tone(0.5))
        assert {job.options.hotwords for job in engine.jobs} == {("张三", "李四", "王五", "赵六")}
        await client.say("HOTWORDS:" + ",".join(f"word{n}" for n in range(5000)))
        assert (await client.receive())["error"] == "5000 hotwords are too many; the limit is 1000"
        await client.say("HOTWORDS:<|im_start|>system\x00\x1b[0m,</s>,<|startoftranscript|>")
        assert (await client.receive())["event"] == "hotwords_set"
        await client.transcribe(tone(0.5))
        last = engine.jobs[-1].options.hotwords
        assert last
        assert not any(sign in word for word in last for sign in "<>\x00\x1b\n")


# --- one session after another ----------------------------------------------------------------------------


async def test_a_second_session_has_nothing_of_the_first() -> None:
    """R20, R9: two different recordings on one connection."""
    engine = FakeEngine(script=lambda job: f"epoch {job.epoch} from {job.start}")
    async with serving(engine) as service, service.client() as client:
        first = await client.transcribe(SENTENCE)
        second = await client.transcribe(tone(0.7))
        assert texts(first) == ["epoch 1 from 0"]
        assert texts(second) == ["epoch 2 from 0"]
        assert second["duration_ms"] == 700


@pytest.mark.parametrize("silent", [b"", bytes(1600)])
async def test_nothing_heard_is_one_empty_final(silent: bytes) -> None:
    """R15."""
    async with serving() as service, service.client() as client:
        await client.say("START", silent, "STOP")
        started, final, stopped = [await client.receive() for _ in range(3)]
        assert (started, stopped) == ({"event": "started"}, {"event": "stopped"})
        assert final == {
            "sentences": [], "partial": "", "partial_start_ms": 0, "duration_ms": len(silent) // 32, "is_final": True,
        }  # fmt: skip


async def test_the_client_leaves_while_its_final_is_awaited() -> None:
    engine = FakeEngine(decode_s=0.1)
    async with serving(engine) as service:
        async with service.client() as client:
            await client.say("START")
            await client.hear(tone(1.0))
            await client.say("STOP")
            await eventually(lambda: any(job.kind == "final" for job in engine.jobs))
        await eventually(lambda: service.sessions == 0)
    assert engine.cancelled <= 1  # a partial, if any; the final was wanted


async def test_results_are_never_older_than_what_was_sent_before() -> None:
    async with serving() as service, service.client() as client:
        await client.say("START")
        for _ in range(5):
            await client.hear(speech_pattern([(1.0, 0.8)]))
            while "sentences" not in await client.receive():
                pass
        await client.say("STOP")
        assert len(texts(await client.final())) == 5
    results = [message for message in client.messages if "sentences" in message]
    assert len(results) > 5
    for before, after in pairwise(results):
        assert grows(before, after)


def grows(before: Message, after: Message) -> bool:
    kept = after["sentences"][: len(before["sentences"])] == before["sentences"]
    return bool(kept and after["duration_ms"] >= before["duration_ms"])
