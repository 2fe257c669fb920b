"""Whole recordings: order, failures, fairness, live sessions, cancelling, speakers, and the documented entry point."""

from __future__ import annotations

import asyncio
import random
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_server import memory
from realtime_server.core.endpointing import EndpointingOptions
from realtime_server.core.jobs import Decoded, DecodeJob, DecodingOptions, Probabilities, Samples, ScoreJob
from realtime_server.core.segments import SAMPLE_RATE, Sentence
from realtime_server.engines.fake import FakeEmbedder, FakeEngine, FakeScorer, Fault
from realtime_server.engines.fake_hearing import hear
from realtime_server.errors import EngineError, EngineTimeoutError, UnsupportedError
from realtime_server.offline import transcriber as offline_transcriber
from realtime_server.offline.calls import Deadlines
from realtime_server.offline.options import FileOptions
from realtime_server.offline.recording import Recording, to_pcm16
from realtime_server.offline.transcriber import Transcriber, process_audio
from realtime_server.offline.transcription import Transcription
from realtime_server.realtime.session import RealtimeASRSession
from tests.audio import pcm16, silence, speech_pattern
from tests.offline.recordings import plain
from tests.realtime.harness import eventually
from tests.realtime.test_speakers import HIGH, LOW, voice

PATIENCE_S = 20.0  # for what takes milliseconds unless it hangs
QUICK = Deadlines(base_s=0.5, factor=0.0, tick_s=0.05)
FIXED = EndpointingOptions(mode="fixed", silence_ms=600)
ENDPOINTED = FileOptions(endpointing=FIXED, decoding=DecodingOptions(words=True))


def talk(segments: int) -> Samples:
    """So many segments of one second, by FIXED."""
    return speech_pattern([(1.0, 1.0)] * segments)


class WatchedScorer(FakeScorer):
    """Tells how many streams it holds and how much it was given."""

    scored = 0

    @property
    def streams(self) -> int:
        return len(self._rest)

    async def score(self, job: ScoreJob) -> Probabilities:
        self.scored += len(job.samples)
        return await super().score(job)


def transcriber(
    engine: FakeEngine, scorer: FakeScorer | None = None, *, live: Callable[[], bool] = lambda: False,
    embedder: FakeEmbedder | None = None, deadlines: Deadlines | None = None,
) -> Transcriber:  # fmt: skip
    return Transcriber(engine, scorer or FakeScorer(), embedder, live=live, deadlines=deadlines)


def texts(transcription: Transcription) -> list[str]:
    return [sentence.text for sentence in transcription.sentences]


# --- what comes out ---------------------------------------------------------------------------------------


async def test_a_recording_becomes_sentences_with_times_and_words() -> None:
    told: list[tuple[Sentence, ...]] = []
    seconds: list[float] = []
    scorer = WatchedScorer()
    made = await transcriber(FakeEngine(), scorer).transcribe(
        talk(3), ENDPOINTED, on_sentences=told.append, on_progress=seconds.append
    )
    assert texts(made) == ["one two", "five six", "nine ten"]
    assert [sentence.id for sentence in made.sentences] == [0, 1, 2]
    assert [(word.text, word.start_ms, word.end_ms) for word in made.sentences[1].words] == [
        ("five", 2000, 2500),
        ("six", 2500, 3000),
    ]
    assert (made.duration_ms, made.language) == (6000, "en")
    assert told == [(sentence,) for sentence in made.sentences]
    assert seconds == sorted(seconds)
    assert seconds[-1] == 6.0
    assert scorer.streams == 0


async def test_recordings_and_arrays_are_taken_alike() -> None:
    recording = Recording()
    recording.append(to_pcm16(talk(2)))
    work = transcriber(FakeEngine())
    of_recording = await work.transcribe(recording, ENDPOINTED)
    of_array = await work.transcribe(recording.read(0, len(recording)), ENDPOINTED)
    assert of_recording == of_array


@pytest.mark.parametrize("segmentation", ["vad", "energy"])
async def test_without_sound_there_is_no_text(segmentation: str) -> None:
    options = FileOptions(segmentation=segmentation)  # type: ignore[arg-type]
    work = transcriber(FakeEngine())
    for seconds in (0.0, 0.01, 40.0):
        made = await work.transcribe(silence(seconds), options)
        assert (made.sentences, made.language, made.duration_ms) == ((), None, 1000 * seconds)


async def test_without_voice_activity_everything_is_decoded_in_clips() -> None:
    engine = FakeEngine()
    scorer = WatchedScorer()
    samples = speech_pattern([(20.0, 0.3), (20.0, 0.3), (5.0, 0.0)])
    options = FileOptions(segmentation="energy", endpointing=EndpointingOptions(max_segment_ms=25_000))
    made = await transcriber(engine, scorer).transcribe(samples, options)
    assert [(job.start, job.end) for job in engine.jobs] == [
        (0, engine.jobs[0].end),
        (engine.jobs[0].end, engine.jobs[1].end),
        (engine.jobs[1].end, len(samples)),
    ]
    assert [round(job.end / SAMPLE_RATE, 1) for job in engine.jobs] == [20.2, 40.5, 45.6]
    assert len(made.sentences) == 3
    assert scorer.scored == 0


async def test_segments_are_no_longer_than_the_engine_takes() -> None:
    engine = FakeEngine(capabilities=replace(FakeEngine().capabilities, longest_s=7.0))
    for segmentation in ("vad", "energy"):
        options = FileOptions(segmentation=segmentation)  # type: ignore[arg-type]
        await transcriber(engine).transcribe(speech_pattern([(30.0, 0.0)]), options)
    assert max(job.audio.size for job in engine.jobs) <= 7 * SAMPLE_RATE


# --- any order --------------------------------------------------------------------------------------------


class Shuffled(FakeEngine):
    """Takes a random number of turns of the event loop for each job."""

    def __init__(self, slots: int, dice: random.Random) -> None:
        super().__init__(slots=slots)
        self._dice = dice

    async def transcribe(self, job: DecodeJob, on_text: Callable[[str], None] | None = None) -> Decoded:
        for _ in range(self._dice.randrange(100)):
            await asyncio.sleep(0)
        return hear(job)


PATTERNS = st.lists(
    st.tuples(st.integers(2, 30).map(lambda n: n / 10), st.integers(0, 25).map(lambda n: n / 10)),
    min_size=1,
    max_size=8,
)


@given(
    pattern=PATTERNS, slots=st.integers(1, 5), look_ahead=st.integers(0, 70), speakers=st.booleans(),
    seed=st.integers(0, 1000),
)  # fmt: skip
def test_any_order_of_answers_gives_the_same_transcription(
    pattern: list[tuple[float, float]], slots: int, look_ahead: int, speakers: bool, seed: int
) -> None:
    samples = speech_pattern(pattern)
    options = replace(ENDPOINTED, speakers=speakers)

    async def scenario() -> None:
        told: list[Sentence] = []
        shuffled = Shuffled(slots, random.Random(seed))
        work = Transcriber(shuffled, FakeScorer(look_ahead=look_ahead), FakeEmbedder())
        made = await work.transcribe(samples, options, on_sentences=told.extend)
        plainly = Transcriber(FakeEngine(slots=1), FakeScorer(), FakeEmbedder())
        assert made == await plainly.transcribe(samples, options)
        assert tuple(told) == made.sentences

    asyncio.run(scenario())


# --- the live service -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [FIXED, EndpointingOptions()])
async def test_the_sentences_are_those_of_the_live_service(mode: EndpointingOptions) -> None:
    from realtime_server.core import messages as m
    from realtime_server.core.settings import SessionSettings

    samples = speech_pattern([(3.0, 2.3), (0.8, 2.3), (6.2, 1.7), (2.0, 0.4)])
    settings = SessionSettings(endpointing=mode, options=DecodingOptions(words=True))
    live: list[Sentence] = []
    async with RealtimeASRSession(FakeEngine(), FakeScorer(), settings) as session:
        reader = session.log.add_reader()
        session.feed("START")
        session.feed(pcm16(samples))
        session.feed("STOP")
        session.end()
        while events := await asyncio.wait_for(reader.take(), PATIENCE_S):
            live += [
                each for event in events if isinstance(event, m.SegmentLocked) for each in event.sentences
            ]
    recording = Recording()
    recording.append(np.frombuffer(pcm16(samples), "<i2"))
    options = FileOptions(endpointing=mode, decoding=DecodingOptions(words=True))
    made = await transcriber(FakeEngine()).transcribe(recording, options)
    assert made.sentences == tuple(live)
    assert len(live) >= 4


@pytest.mark.parametrize(("live", "most"), [(True, 3), (False, 4)])
async def test_a_place_is_left_free_while_anybody_speaks_live(live: bool, most: int) -> None:
    running: list[int] = []

    def answer(job: DecodeJob) -> str:
        running.append(engine.running)
        return "word"

    engine = FakeEngine(slots=4, decode_s=0.005, script=answer)
    work = Transcriber(engine, FakeScorer(), live=lambda: live)
    await asyncio.gather(*(work.transcribe(talk(6), ENDPOINTED) for _ in range(3)))
    assert len(running) == 18
    assert max(running) == most - 1  # beside the one that asks


# --- several recordings -----------------------------------------------------------------------------------


async def test_a_short_recording_does_not_wait_for_a_long_one() -> None:
    engine = FakeEngine(slots=2, decode_s=0.002)
    work = transcriber(engine)
    long = asyncio.create_task(work.transcribe(talk(100), ENDPOINTED))
    await eventually(lambda: len(engine.jobs) > 5)
    before = len(engine.jobs)
    await work.transcribe(talk(2), ENDPOINTED)
    assert len(engine.jobs) - before < 10
    assert not long.done()
    assert len((await long).sentences) == 100


async def test_many_recordings_share_the_places_and_each_gets_its_own_text() -> None:
    engine = FakeEngine(slots=3, decode_s=0.001)
    work = transcriber(engine)
    made = await asyncio.gather(*(work.transcribe(talk(n), ENDPOINTED) for n in range(1, 12)))
    assert [len(each.sentences) for each in made] == list(range(1, 12))
    assert all(texts(each)[0] == "one two" for each in made)
    assert len({job.session for job in engine.jobs}) == 11


async def test_what_is_found_ahead_of_the_engine_is_bounded() -> None:
    engine, scorer = FakeEngine(slots=2), WatchedScorer()
    engine.faults.inject(Fault(error=None))
    work = Transcriber(engine, scorer)
    task = asyncio.create_task(work.transcribe(talk(500), ENDPOINTED))
    await eventually(lambda: len(engine.jobs) == 2)
    await asyncio.sleep(0.05)
    assert len(engine.jobs) == 2
    assert scorer.scored < 25 * SAMPLE_RATE
    task.cancel()
    await asyncio.wait([task])


async def test_memory_is_given_back_while_a_long_recording_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[None] = []
    monkeypatch.setattr(offline_transcriber, "TIDY_AFTER", 10 * SAMPLE_RATE)
    monkeypatch.setattr(memory, "give_back", lambda: given.append(None))
    await transcriber(FakeEngine()).transcribe(talk(4), ENDPOINTED)
    assert given == []
    await transcriber(FakeEngine()).transcribe(talk(30), ENDPOINTED)
    assert 4 <= len(given) <= 6


# --- what goes wrong --------------------------------------------------------------------------------------


async def test_a_segment_that_fails_once_is_tried_again() -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(nth=2))
    made = await transcriber(engine).transcribe(talk(3), ENDPOINTED)
    assert texts(made) == ["one two", "five six", "nine ten"]
    assert len(engine.jobs) == 4


async def test_a_segment_that_fails_twice_is_seen() -> None:
    def script(job: DecodeJob) -> Decoded | Exception:
        return EngineError("out of memory") if job.segment == 1 else hear(job)

    made = await transcriber(FakeEngine(script=script)).transcribe(talk(3), ENDPOINTED)
    assert texts(made) == ["one two", "", "nine ten"]
    assert [sentence.flags for sentence in made.sentences] == [(), ("failed",), ()]
    assert made.sentences[1].start_ms < 2000 < 3000 < made.sentences[1].end_ms


async def test_an_engine_that_hangs_on_a_segment_costs_that_segment() -> None:
    engine = FakeEngine(slots=2)
    engine.faults.inject(Fault(error=None, nth=2))
    made = await transcriber(engine, deadlines=QUICK).transcribe(talk(4), ENDPOINTED)
    assert [bool(sentence.flags) for sentence in made.sentences] == [False, True, False, False]
    assert (engine.running, engine.cancelled) == (0, 1)


async def test_a_dead_engine_ends_every_recording_at_once() -> None:
    engine = FakeEngine(decode_s=0.01)
    work = transcriber(engine)
    tasks = [asyncio.create_task(work.transcribe(talk(100), ENDPOINTED)) for _ in range(3)]
    await asyncio.sleep(0.05)
    engine.die()
    began_s = time.monotonic()
    for task in tasks:
        with pytest.raises(EngineError, match="died"):
            await task
    assert time.monotonic() - began_s < 1
    with pytest.raises(EngineError, match="died or was closed"):
        await work.transcribe(talk(1), ENDPOINTED)


async def test_a_scorer_that_fails_ends_the_recording() -> None:
    engine, scorer = FakeEngine(decode_s=100), WatchedScorer()
    scorer.faults.inject(Fault(nth=2))
    with pytest.raises(EngineError, match="told to fail"):
        await transcriber(engine, scorer).transcribe(talk(10), ENDPOINTED)
    assert (engine.running, engine.waiting, scorer.streams) == (0, 0, 0)
    scorer.faults.inject(Fault(error=None))
    with pytest.raises(EngineTimeoutError):
        await transcriber(engine, scorer, deadlines=QUICK).transcribe(talk(10), ENDPOINTED)


async def test_cancelling_aborts_everything() -> None:
    engine, scorer = FakeEngine(decode_s=100), WatchedScorer()
    work = Transcriber(engine, scorer)
    task = asyncio.create_task(work.transcribe(talk(50), ENDPOINTED))
    await asyncio.sleep(0.05)
    assert engine.running == 2
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (engine.running, engine.waiting, engine.cancelled, scorer.streams) == (0, 0, 2, 0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_error_of_the_caller_s_own_comes_back_as_it_is() -> None:
    def full(_: object) -> None:
        raise OSError("disk full")

    engine = FakeEngine(decode_s=0.001)
    with pytest.raises(OSError, match="disk full"):
        await transcriber(engine).transcribe(talk(5), ENDPOINTED, on_sentences=full)
    assert engine.running == 0


async def test_what_cannot_be_done_is_refused_before_any_work() -> None:
    engine = FakeEngine(capabilities=replace(FakeEngine().capabilities, translate=False))
    scorer = WatchedScorer()
    work = transcriber(engine, scorer)
    with pytest.raises(UnsupportedError, match="translation"):
        await work.transcribe(talk(1), FileOptions(decoding=DecodingOptions(task="translate")))
    with pytest.raises(UnsupportedError, match="speaker network"):
        await work.transcribe(talk(1), FileOptions(speakers=True))
    assert (len(engine.jobs), scorer.scored) == (0, 0)


async def test_missing_word_times_are_noted() -> None:
    engine = FakeEngine(capabilities=replace(FakeEngine().capabilities, words=False))
    made = await transcriber(engine).transcribe(talk(1), ENDPOINTED)
    assert made.sentences[0].words == ()
    assert made.notes == ("this recognizer gives no word times",)


# --- speakers ---------------------------------------------------------------------------------------------

TALKS = np.concatenate([
    part for hz in (LOW, HIGH, LOW, HIGH, HIGH) for part in (voice(hz, 3.0), silence(1.3))
])  # fmt: skip


@pytest.mark.parametrize("segmentation", ["vad", "energy"])
async def test_sentences_are_split_between_speakers_at_the_end(segmentation: str) -> None:
    told: list[tuple[Sentence, ...]] = []
    options = FileOptions(speakers=True, segmentation=segmentation)  # type: ignore[arg-type]
    work = transcriber(FakeEngine(), embedder=FakeEmbedder())
    made = await work.transcribe(TALKS, options, on_sentences=told.append)
    assert [sentence.speaker for sentence in made.sentences] == [0, 1, 0, 1]
    assert texts(made)[0] == "one two three four five six"
    assert told == [made.sentences]
    assert made.notes == ()


async def test_a_speaker_network_that_fails_costs_the_speakers_and_nothing_else() -> None:
    embedder = FakeEmbedder()
    embedder.embed_faults.inject(Fault(nth=2))
    work = transcriber(FakeEngine(), embedder=embedder)
    made = await work.transcribe(TALKS, FileOptions(speakers=True, endpointing=FIXED))
    plainly = await work.transcribe(TALKS, FileOptions(endpointing=FIXED))
    assert texts(made) == texts(plainly)
    assert {sentence.speaker for sentence in made.sentences} == {None}
    assert made.notes == ("speakers could not be told apart: the fake engine was told to fail",)


# --- a program of one's own -------------------------------------------------------------------------------


def example() -> str:
    """The program in the docstring of process_audio."""
    assert process_audio.__doc__
    lines = process_audio.__doc__.splitlines()[1:]
    program = [line for line in lines if line.startswith(" " * 8) or not line]
    return textwrap.dedent("\n".join(program))


def test_the_example_in_the_docstring_runs(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Here with the fakes; tests/offline/test_accuracy.py runs it as it stands."""
    path = tmp_path_factory.mktemp("recording") / "talk.wav"
    path.write_bytes(plain(talk(2), SAMPLE_RATE))
    program = example().replace('"embedded"', '"fake"').replace('"fsmn"', '"level"')
    assert program.count("fake") == program.count("level") == 1
    monkeypatch.setattr("sys.argv", ["example", str(path)])
    exec(compile(program, "example", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.split() == ["one", "two", "five", "six"]
