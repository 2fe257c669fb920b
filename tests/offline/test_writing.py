"""Settled segments to sentences: order, words, replacements, language, who is told what."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np

from realtime_server.core.jobs import DecodingOptions
from realtime_server.core.segments import SAMPLE_RATE, Segment, Sentence, Word
from realtime_server.core.transcript import Settled
from realtime_server.engines.fake import FakeEmbedder
from realtime_server.offline.calls import Deadlines
from realtime_server.offline.decoding import Wish
from realtime_server.offline.places import Places
from realtime_server.offline.segmentation import ArrayAudio
from realtime_server.offline.speakers import Speakers
from realtime_server.offline.writing import AT_A_TIME, Listeners, SentenceWriter
from tests.audio import silence
from tests.realtime.test_speakers import HIGH, LOW, voice

WISH = Wish("file", ArrayAudio(np.zeros(10 * SAMPLE_RATE, np.float32)), DecodingOptions())


def segment(index: int, start_s: int, end_s: int) -> Segment:
    return Segment(index, 0, start_s * SAMPLE_RATE, end_s * SAMPLE_RATE)


async def test_sentences_are_told_at_once_and_all_are_returned() -> None:
    told: list[tuple[str, ...]] = []
    seconds: list[float] = []
    writer = SentenceWriter(
        {}, None, Listeners(lambda some: told.append(tuple(each.text for each in some)), seconds.append)
    )
    writer.receive_settled(segment(0, 0, 2), Settled("One.", (Word("One", 100, 900),), "en"))
    assert told == [("One.",)]
    writer.receive_settled(segment(1, 3, 5), Settled("", language="en"))
    writer.receive_settled(segment(2, 6, 9), Settled("", flags=("failed",), error="no answer"))
    assert told == [("One.",), ("",)]
    made = await writer.conclude(WISH)
    assert made.sentences == (
        Sentence(0, 0, 0, "One.", 0, 2000, (Word("One", 100, 900),), "en"),
        Sentence(1, 2, 0, "", 6000, 9000, flags=("failed",)),
    )
    assert (made.duration_ms, made.language, made.task, made.notes) == (10_000, "en", "transcribe", ())
    assert seconds == [2.0, 5.0, 9.0, 10.0]


async def test_words_count_from_the_beginning_of_the_recording() -> None:
    writer = SentenceWriter({}, None, Listeners())
    writer.receive_settled(segment(0, 4, 6), Settled("one", (Word("one", 100, 900),)))
    (sentence,) = (await writer.conclude(WISH)).sentences
    assert sentence.words == (Word("one", 4100, 4900),)


async def test_replacements_change_texts_and_leave_words() -> None:
    writer = SentenceWriter({"one": "1", "1": "never"}, None, Listeners())
    writer.receive_settled(
        segment(0, 0, 2), Settled("one one.", (Word("one", 0, 900), Word("one", 900, 1500)))
    )
    (sentence,) = (await writer.conclude(WISH)).sentences
    assert sentence.text == "1 1."
    assert [word.text for word in sentence.words] == ["one", "one"]


async def test_the_language_is_the_one_asked_for_else_that_of_most_segments_with_text() -> None:
    writer = SentenceWriter({}, None, Listeners())
    texts = [("", "ja"), ("", "ja"), ("Hallo", "de"), ("one", "en"), ("two", "en"), ("", "ja"), ("so", "de")]
    for index, (text, language) in enumerate(texts):
        writer.receive_settled(segment(index, index, index + 1), Settled(text, language=language))
    assert (await writer.conclude(WISH)).language == "de"  # the first of equals
    asked = replace(WISH, options=DecodingOptions(language="nl", task="translate"))
    made = await writer.conclude(asked)
    assert (made.language, made.task) == ("nl", "translate")
    assert (await SentenceWriter({}, None, Listeners()).conclude(WISH)).language is None


async def test_with_speakers_everything_is_told_at_the_end() -> None:
    audio = ArrayAudio(np.concatenate([voice(LOW, 3.0), silence(2.0), voice(HIGH, 3.0)]))
    speech = np.ones(800, np.float32)
    speech[300:500] = 0
    speakers = Speakers(FakeEmbedder(), audio, "f", places=Places(lambda: 1), deadlines=Deadlines())
    whole = Segment(0, 0, 0, len(audio))
    speakers.voices.receive_probabilities(speech)
    speakers.voices.receive_open(0, 0)
    speakers.voices.receive_close(whole)
    for due in speakers.take_windows():
        await speakers.embed(*due)
    told: list[tuple[Sentence, ...]] = []
    seconds: list[float] = []
    writer = SentenceWriter({"two": "2"}, speakers, Listeners(told.append, seconds.append))
    words = tuple(
        Word(text, 1500 * n, 1500 * n + 900) for n, text in enumerate(["one", "two", "three", "four"], 1)
    )
    writer.receive_settled(whole, Settled("One two. Three four.", words, "en"))
    assert (told, seconds) == ([], [8.0])
    made = await writer.conclude(replace(WISH, audio=audio, notes=("no",)))
    assert told == [made.sentences]
    assert [(each.text, each.speaker, each.id) for each in made.sentences] == [
        ("One 2.", 0, 0),
        ("Three four.", 1, 1),
    ]
    assert made.notes == ("no",)


async def test_others_get_their_turn_while_a_long_recording_is_written() -> None:
    audio = ArrayAudio(np.zeros(SAMPLE_RATE, np.float32))
    speakers = Speakers(FakeEmbedder(), audio, "f", places=Places(lambda: 1), deadlines=Deadlines())
    speakers.problem = "nobody is known"
    writer = SentenceWriter({}, speakers, Listeners())
    for number in range(10 * AT_A_TIME):
        writer.receive_settled(segment(number, number, number + 1), Settled("so"))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    made = await writer.conclude(WISH)
    task.cancel()
    assert len(made.sentences) == 10 * AT_A_TIME
    assert turns >= 10


async def test_speakers_are_numbered_as_they_say_something() -> None:
    """The first voice says nothing that anybody understands."""
    audio = ArrayAudio(np.concatenate([voice(HIGH, 3.0), silence(2.0), voice(LOW, 3.0)]))
    speakers = Speakers(FakeEmbedder(), audio, "f", places=Places(lambda: 1), deadlines=Deadlines())
    speakers.voices.receive_probabilities(np.ones(800, np.float32))
    parts = segment(0, 0, 3), segment(1, 5, 8)
    for part in parts:
        speakers.voices.receive_open(part.index, part.start)
        speakers.voices.receive_close(part)
    for due in speakers.take_windows():
        await speakers.embed(*due)
    writer = SentenceWriter({}, speakers, Listeners())
    writer.receive_settled(parts[0], Settled("", flags=("failed",), error="no answer"))
    writer.receive_settled(parts[1], Settled("Hello."))
    made = await writer.conclude(WISH)
    assert [speakers.turns(part)[0].speaker for part in parts] == [0, 1]
    assert [sentence.speaker for sentence in made.sentences] == [None, 0]
