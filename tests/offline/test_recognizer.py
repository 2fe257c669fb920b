"""A recognizer of one's own: any kind of recording in, its text out, and everything is closed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from realtime_server.core.jobs import DecodingOptions
from realtime_server.engines.fake import CAPABILITIES, FakeEmbedder, FakeEngine, FakeScorer, Fault
from realtime_server.errors import AudioError, UnsupportedError
from realtime_server.offline.inputs import Item
from realtime_server.offline.options import FileOptions
from realtime_server.offline.recognizer import FileRecognizer, for_each
from tests.audio import tone
from tests.offline.recordings import recording


async def test_a_file_and_its_samples_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "talk.wav").write_bytes(recording("wav", 1.5))
    recognizer = FileRecognizer(FakeEngine(), FakeScorer())
    told: list[tuple[float, float]] = []
    await recognizer.warmup()
    try:
        sources = [tmp_path / "talk.wav", recording("flac", 1.5), tone(1.5)]
        heard = [
            await recognizer.transcribe(
                Item("talk", source), FileOptions(), on_progress=lambda *known: told.append(known)
            )
            for source in sources
        ]
    finally:
        await recognizer.aclose()
    assert [one.transcription.text for one in heard] == ["one two three"] * 3
    assert [one.seconds for one in heard] == [1.5] * 3
    assert (told[0], told[-1]) == ((0.0, 1.5), (1.5, 1.5))
    assert not recognizer.engine.healthy


async def test_what_is_wrong_with_a_recording_is_noted() -> None:
    recognizer = FileRecognizer(FakeEngine(capabilities=replace(CAPABILITIES, words=False)), FakeScorer())
    flac = recording("flac", 3.0)
    try:
        wish = FileOptions(decoding=DecodingOptions(words=True))
        heard = await recognizer.transcribe(Item("half", flac[: len(flac) * 2 // 3]), wish)
        with pytest.raises(AudioError):
            await recognizer.transcribe(Item("none", b"nonsense"), FileOptions())
    finally:
        await recognizer.aclose()
    assert heard.transcription.text
    assert heard.transcription.notes == heard.notes
    assert any("damaged" in note or "are there" in note for note in heard.notes)


async def test_speakers_can_be_told_apart_later() -> None:
    recognizer = FileRecognizer(FakeEngine(), FakeScorer())
    try:
        with pytest.raises(UnsupportedError, match="speaker"):
            await recognizer.transcribe(Item("a", tone(2.0)), FileOptions(speakers=True))
        await recognizer.use_embedder(FakeEmbedder())
        heard = await recognizer.transcribe(Item("a", tone(2.0)), FileOptions(speakers=True))
    finally:
        await recognizer.aclose()
    assert [sentence.speaker for sentence in heard.transcription.sentences] == [0]


@pytest.mark.parametrize(("concurrency", "at_once"), [(1, 1), (4, 4), (256, 16)])
def test_as_many_recordings_at_once_as_the_engine_has_use_for(concurrency: int, at_once: int) -> None:
    assert FileRecognizer(FakeEngine(slots=concurrency), FakeScorer()).at_once == at_once


async def test_for_each_works_on_so_many_at_once_in_order() -> None:
    running, most, begun = 0, 0, []

    async def work(number: int) -> None:
        nonlocal running, most
        begun.append(number)
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    await for_each(range(7), work, 3)
    assert begun == list(range(7))
    assert most == 3


async def test_for_each_makes_no_more_tasks_than_there_is_work() -> None:
    tasks = 0

    async def work(number: int) -> None:
        nonlocal tasks
        tasks = max(tasks, len(asyncio.all_tasks()))

    before = len(asyncio.all_tasks())
    await for_each(range(2), work, 1_000_000)
    await for_each([], work, 1_000_000)
    assert tasks - before == 2


async def test_for_each_ends_with_the_first_error() -> None:
    ended = []

    async def work(number: int) -> None:
        if number == 1:
            raise ValueError("one")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    with pytest.raises(ValueError, match="one"):
        await for_each(range(9), work, 3)
    assert sorted(ended) == [0, 2]


async def test_cancelling_ends_a_recording() -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(error=None))
    recognizer = FileRecognizer(engine, FakeScorer())
    task = asyncio.create_task(recognizer.transcribe(Item("a", tone(1.0)), FileOptions()))
    while not engine.jobs:  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.running == 0
    await recognizer.aclose()
