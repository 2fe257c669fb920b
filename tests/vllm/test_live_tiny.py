"""A trained Fun-ASR-Nano, live: sound in, the right text and the right times out, through everything there is.

The checkpoint is tests/data/tiny-fun-asr-nano, and what is said comes from voices that its training never heard. The
server is a process of its own, which has ended before an engine is started here: never do two run at once.
"""

from __future__ import annotations

import asyncio
import json
import re
import wave
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from realtime_server import weights
from realtime_server.core.jobs import DecodeJob, DecodingOptions, Samples
from realtime_server.core.messages import SegmentLocked
from realtime_server.core.postprocess import clean
from realtime_server.core.segments import SAMPLE_RATE, SAMPLES_PER_MS, Sentence, Word
from realtime_server.core.settings import SessionSettings
from realtime_server.engines.fun_asr_nano import FunAsrNanoEngine
from realtime_server.engines.loading import EngineOptions, load_scorer
from realtime_server.errors import WeightsError
from realtime_server.realtime.session import Clocks, RealtimeASRSession
from scripts.synthesis import SynthesiserMissingError, Utterance, held_out, joined, padded
from scripts.tiny_evaluation import SIGNS, edit_distance
from scripts.tiny_language import pieces, words, written
from tests.audio import pcm16
from tests.live_server import LiveServer
from tests.vllm.engines import decode, decode_in_turn, job, vllm_engine

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("ignore"),  # vLLM's own
]

FOLDER = Path(__file__).resolve().parents[1] / "data" / "tiny-fun-asr-nano"
AT_ONCE = 10  # connections
UTTERANCES = 100
# Around each utterance, beside the silence of its own: together more than the 2 s after which a sentence is locked.
BEFORE_S, AFTER_S = 0.4, 2.1
FRAME_BYTES, FRAME_S = 3200, 0.1
HURRY = 10  # times the pace of speech at which sessions in this process are fed
READY_S, DEADLINE_S = 300.0, 120.0  # of the server, of a decode: how fast a machine is is not what is tested
RESULT_KEYS = {"sentences", "partial", "partial_start_ms", "duration_ms", "is_final"}
SENTENCE_KEYS = {"text", "start", "end"}

Message = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """What one connection hears: utterances one after the other, each with silence around it; STOP follows the last.

    begins: the sample at which each begins with its silence, and the end of all.  pcm: as it is sent.
    """

    utterances: tuple[Utterance, ...]
    begins: tuple[int, ...]
    pcm: bytes

    @classmethod
    def of(cls, utterances: Sequence[Utterance]) -> Stream:
        """The stream in which they are said."""
        *others, last = utterances
        parts = (*(padded(each, BEFORE_S, AFTER_S) for each in others), padded(last, BEFORE_S, 0.0))
        begins = tuple(accumulate((part.samples.size for part in parts), initial=0))
        return cls(parts, begins, pcm16(joined(parts, 0.0).samples))

    @property
    def samples(self) -> Samples:
        """As the server hears it."""
        return np.frombuffer(self.pcm, "<i2").astype(np.float32) / np.float32(32768)

    def write(self, path: Path) -> None:
        """As a file that the client sends unchanged."""
        with wave.open(str(path), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(SAMPLE_RATE)
            file.writeframes(self.pcm)

    def place(self, start_ms: int, end_ms: int) -> int:
        """The utterance in whose time a sentence lies as a whole."""
        inside = [
            n
            for n, (begin, end) in enumerate(pairwise(self.begins))
            if begin <= start_ms * SAMPLES_PER_MS < end_ms * SAMPLES_PER_MS <= end
        ]
        assert len(inside) == 1, f"{start_ms} to {end_ms} ms is not within one of {self.begins}"
        return inside[0]


@dataclass(frozen=True, slots=True)
class Told:
    """What the server told its clients.

    messages: all, by stream.  recovered: sentences in place of which a partial's text was kept, for that said more;
    when partials come depends on the machine.
    """

    messages: tuple[list[Message], ...]
    recovered: int


@dataclass(frozen=True, slots=True)
class Heard:
    """What a session in this process came to."""

    sentences: tuple[Sentence, ...]
    messages: tuple[Message, ...]


@pytest.fixture(scope="module")
def unseen() -> list[Utterance]:
    """What voices say that training never heard."""
    try:
        return held_out(UTTERANCES)
    except SynthesiserMissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def streams(unseen: list[Utterance]) -> list[Stream]:
    """Of about a minute each."""
    return [Stream.of(unseen[n::AT_ONCE]) for n in range(AT_ONCE)]


@pytest.fixture(scope="module")
def vad() -> Path:
    try:
        return weights.find("fsmn-vad")
    except WeightsError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def told(streams: list[Stream], vad: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The real client sends all streams at once, at the pace of speech, to the real server, which then stops."""
    folder = tmp_path_factory.mktemp("said")
    paths = [folder / f"{n}.wav" for n in range(len(streams))]
    for stream, path in zip(streams, paths, strict=True):
        stream.write(path)
    flags = ["--engine", "funasr-nano", "--model", str(FOLDER), "--device", "cpu", "--vad-model", str(vad)]
    flags += ["--deadline-seconds", str(DEADLINE_S)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REALTIME_SERVER_CACHE", str(cache))
        with LiveServer(*flags, ready_s=READY_S) as server, ThreadPoolExecutor(len(paths)) as pool:
            messages = tuple(pool.map(server.stream, paths))
            assert server.stop() == 0, server.log
    counts = [int(count) for count in re.findall(r"recovered (\d+)", server.log)]
    assert len(counts) == len(streams), server.log
    return Told(messages, recovered=sum(counts))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def engine(cache: Path) -> AsyncIterator[FunAsrNanoEngine]:
    engine = vllm_engine(FOLDER, cache)
    await engine.warmup()
    yield engine
    await engine.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def timed(told: Told, engine: FunAsrNanoEngine, streams: list[Stream], vad: Path) -> list[Heard]:
    """The same streams through sessions that ask for word times; after `told`, whose server is another engine."""
    scorer = load_scorer(EngineOptions(vad_model=vad), "fsmn")
    settings, clocks = SessionSettings(options=DecodingOptions(words=True)), Clocks(deadline_s=DEADLINE_S)

    async def hear(stream: Stream) -> Heard:
        async with RealtimeASRSession(engine, scorer, settings, clocks=clocks) as session:
            session.feed("START")
            for start in range(0, len(stream.pcm), FRAME_BYTES):
                session.feed(stream.pcm[start : start + FRAME_BYTES])
                await asyncio.sleep(FRAME_S / HURRY)
            session.feed("STOP")
            session.end()
            messages = tuple([json.loads(message) async for message in session.messages()])
            locked = [event for event in session.log.read(0) if isinstance(event, SegmentLocked)]
        return Heard(tuple(chain.from_iterable(event.sentences for event in locked)), messages)

    heard = await asyncio.gather(*map(hear, streams))
    await scorer.aclose()
    return heard


def results(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if "event" not in message]


def finals(messages: Sequence[Message]) -> list[Message]:
    """The sentences of the final."""
    return list(results(messages)[-1]["sentences"])


# --- through the server -----------------------------------------------------------------------------------


async def test_unseen_voices_are_understood_live(streams: list[Stream], told: Told) -> None:
    errors = characters = 0
    wrong = []
    for stream, messages in zip(streams, told.messages, strict=True):
        heard = [""] * len(stream.utterances)
        for sentence in finals(messages):
            heard[stream.place(sentence["start"], sentence["end"])] += sentence["text"]
        for utterance, text in zip(stream.utterances, heard, strict=True):
            said = written(utterance.units)
            errors += edit_distance(said.translate(SIGNS), text.translate(SIGNS))
            characters += len(said.translate(SIGNS))
            wrong += [(said, text)] if said != text else []
    share = errors / characters
    print(f"character error rate {100 * share:.1f} % over {characters}; {len(wrong)} utterances are wrong")
    assert share <= 0.1, wrong


async def test_live_results_keep_to_protocol_1(streams: list[Stream], told: Told) -> None:
    for stream, messages in zip(streams, told.messages, strict=True):
        check_protocol(messages, stream)


async def test_sentences_are_shown_before_they_are_locked(told: Told) -> None:
    sentences = shown = 0
    for messages in told.messages:
        begun = {result["partial_start_ms"] for result in results(messages) if result["partial"]}
        starts = {sentence["start"] for sentence in finals(messages)}
        sentences += len(starts)
        shown += len(starts & begun)
    assert shown > sentences / 2  # a busy machine leaves partials out


async def test_live_finals_are_the_texts_of_their_audio_alone(
    streams: list[Stream], told: Told, engine: FunAsrNanoEngine
) -> None:
    different = []
    for stream, messages in zip(streams, told.messages, strict=True):
        samples = stream.samples
        for sentence in finals(messages):
            audio = samples[sentence["start"] * SAMPLES_PER_MS : sentence["end"] * SAMPLES_PER_MS]
            decoded = await engine.transcribe(whole(0, audio))
            alone = clean(decoded.text, seconds=audio.size / SAMPLE_RATE, finish=decoded.finish).text
            different += [(alone, sentence)] if alone != sentence["text"] else []
    assert len(different) <= told.recovered, different


def check_protocol(messages: Sequence[Message], stream: Stream) -> None:
    """Five keys a result, sentences that stay, one final, and it accounts for every sample."""
    assert [message["event"] for message in messages if "event" in message] == ["started", "stopped"]
    found = results(messages)
    for result in found:
        assert set(result) == RESULT_KEYS
        assert all(set(sentence) == SENTENCE_KEYS for sentence in result["sentences"])
    for before, after in pairwise(found):
        assert after["sentences"][: len(before["sentences"])] == before["sentences"]
        assert after["duration_ms"] >= before["duration_ms"]
    assert [result["is_final"] for result in found] == [False] * (len(found) - 1) + [True]
    assert found[-1]["partial"] == ""
    assert found[-1]["duration_ms"] == stream.begins[-1] // SAMPLES_PER_MS


# --- word times -------------------------------------------------------------------------------------------


async def test_live_words_begin_where_the_synthesiser_says(streams: list[Stream], timed: list[Heard]) -> None:
    errors: list[float] = []
    said = 0
    for stream, heard in zip(streams, timed, strict=True):
        found: list[list[Word]] = [[] for _ in stream.utterances]
        for sentence in heard.sentences:
            found[stream.place(sentence.start_ms, sentence.end_ms)] += sentence.words
        for utterance, begin, timed_words in zip(stream.utterances, stream.begins[:-1], found, strict=True):
            marks = marks_ms(utterance, begin)
            said += len(marks)
            errors += start_errors_ms(marks, timed_words)
    median, most = np.quantile(errors, [0.5, 0.9])
    print(f"word starts: median {median:.0f} ms, 90 % within {most:.0f} ms; {len(errors)} of {said} words")
    assert len(errors) > 0.8 * said
    assert median <= 120


async def test_live_words_are_those_of_their_sentence(timed: list[Heard]) -> None:
    for sentence in chain.from_iterable(heard.sentences for heard in timed):
        if "recovered" in sentence.flags:  # a partial's text, which has no times
            continue
        assert "".join(word.text for word in sentence.words) == sentence.text.replace(" ", "")
        edges = [sentence.start_ms, *chain.from_iterable((w.start_ms, w.end_ms) for w in sentence.words)]
        assert [*edges, sentence.end_ms] == sorted([*edges, sentence.end_ms])


async def test_word_times_change_nothing_of_protocol_1(
    streams: list[Stream], told: Told, timed: list[Heard]
) -> None:
    """And what the server says is what a session says that is fed faster, among others, by another engine."""
    recovered, different = told.recovered, []
    for stream, messages, heard in zip(streams, told.messages, timed, strict=True):
        check_protocol(heard.messages, stream)
        recovered += sum("recovered" in sentence.flags for sentence in heard.sentences)
        pairs = zip(finals(messages), finals(heard.messages), strict=True)
        different += [(one, other) for one, other in pairs if one != other]
    assert len(different) <= recovered, different


def marks_ms(utterance: Utterance, begin: int) -> list[tuple[str, float | None]]:
    """The words as written, and where in the stream each begins by the synthesiser's mark; None between marks."""
    groups = words(pieces(utterance.units))
    texts = ["".join(piece.text for piece in group).translate(SIGNS) for group in groups]
    starts = [
        (begin + utterance.begin_of(first)) / SAMPLES_PER_MS if first.begin == int(first.begin) else None
        for first, *_ in groups
    ]
    return list(zip(texts, starts, strict=True))


def start_errors_ms(marks: Sequence[tuple[str, float | None]], heard: Sequence[Word]) -> list[float]:
    """How far the words that were heard right begin from their marks."""
    texts = [word.text.translate(SIGNS) for word in heard]
    same = SequenceMatcher(None, [text for text, _ in marks], texts, autojunk=False).get_matching_blocks()
    pairs = ((marks[block.a + n][1], heard[block.b + n]) for block in same for n in range(block.size))
    return [abs(word.start_ms - mark) for mark, word in pairs if mark is not None]


# --- batches ----------------------------------------------------------------------------------------------


async def test_a_batch_of_mixed_lengths_gives_the_texts_of_one_at_a_time(
    engine: FunAsrNanoEngine, unseen: list[Utterance]
) -> None:
    jobs = [whole(n, utterance.samples, words=True) for n, utterance in enumerate(unseen)]
    assert max(len(each.audio) for each in jobs) > 5 * min(len(each.audio) for each in jobs)
    together, alone = await decode(engine, jobs), await decode_in_turn(engine, jobs)
    assert [decoded.text for decoded in together] == [decoded.text for decoded in alone]
    for one, other in zip(together, alone, strict=True):
        assert one.words is not None
        assert other.words is not None
        assert [replace(word, confidence=None) for word in one.words] == [
            replace(word, confidence=None) for word in other.words
        ]
        confidences = [word.confidence for word in other.words]
        assert [word.confidence for word in one.words] == pytest.approx(confidences, abs=1e-4)


def whole(number: int, audio: Samples, **options: Any) -> DecodeJob:
    """A final whose text is as long as the audio has it."""
    return job(number, audio=audio, max_new_tokens=None, **options)
