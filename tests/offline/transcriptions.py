"""Builders and hypothesis strategies for transcriptions, and the small words that tests compare with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from realtime_server.core.segments import Sentence, Word
from realtime_server.offline.transcription import Transcription

ENGLISH = (
    "It was the best of times, it was the worst of times, it was the age of wisdom, "
    "it was the age of foolishness, it was the epoch of belief, it was the epoch of incredulity."
)
CHINESE = "我一直没有照顾孩子，但是我想要抚养权。因为我觉得（可能）我可以给他更好的生活，所以我来到这里。"


def sentence(text: str, start_ms: int = 0, end_ms: int = 1000, **fields: Any) -> Sentence:
    """A sentence of channel 0; words as a list."""
    words = tuple(fields.pop("words", ()))
    fields = {"id": 0, "segment": 0, "channel": 0} | fields
    return Sentence(text=text, start_ms=start_ms, end_ms=end_ms, words=words, **fields)


def spoken(texts: Sequence[str], start_ms: int, end_ms: int, *, gap_ms: int = 0) -> list[Word]:
    """Words said one after the other, each in the same time."""
    edges = [start_ms + (end_ms - start_ms) * at // len(texts) for at in range(len(texts) + 1)]
    return [Word(text, edges[at], edges[at + 1] - gap_ms) for at, text in enumerate(texts)]


def transcription(*sentences: Sentence, **fields: Any) -> Transcription:
    """A transcription that lasts as long as its sentences."""
    longest = max((sentence.end_ms for sentence in sentences), default=0)
    return Transcription(sentences, **{"duration_ms": longest} | fields)


def squeezed(text: str) -> str:
    """What must survive of a text wherever lines are broken."""
    return "".join(text.split())


# --- anything a recognizer may come up with ---------------------------------------------------------------

ALPHABET = st.one_of(
    st.sampled_from("aei tnsr .,?-><&/\"'0123456789\n\t"),
    st.sampled_from("的一是不了，。？！（）《》“”…、"),
    st.sampled_from("あのっーん々カタ한국어는ไทยเป็นہے"),
    st.sampled_from("👍🏽👩\u200d🇩🇪\u0301\u3000\u00a0\u2028\x0b\x1c"),
    st.characters(exclude_categories=["Cs", "Cc", "Cf"]),
)
TEXTS = st.one_of(
    st.text(ALPHABET, max_size=300),
    st.lists(st.text(st.sampled_from("abcdefg,.'-"), min_size=1, max_size=60), max_size=40).map(" ".join),
    st.sampled_from(
        [
            "",
            " ",
            "-->",
            "<v Speaker 2>",
            "00:00:01,000 --> 00:00:02,000",
            "1\n\n2",
            ENGLISH,
            CHINESE,
            "&amp;<b>",
        ]
    ),
)
MS = st.integers(0, 40_000)


@st.composite
def words(draw: st.DrawFn, text: str, start_ms: int, end_ms: int) -> tuple[Word, ...]:
    """None; the text's own with good or bad times; or words that have little to do with it."""
    own = text.split() if draw(st.booleans()) else list(text.replace(" ", ""))
    kind = draw(st.sampled_from(["none", "good", "bad", "foreign"]))
    if kind == "none" or not own:
        return ()
    if kind == "good":
        return tuple(spoken(own, start_ms, end_ms))
    if kind == "foreign":
        own = draw(st.lists(st.one_of(st.sampled_from(own), st.text(ALPHABET, max_size=4)), max_size=20))
    times = draw(st.lists(st.tuples(MS, MS), min_size=len(own), max_size=len(own)))
    return tuple(Word(text, start, end) for text, (start, end) in zip(own, times, strict=True))


@st.composite
def transcriptions(draw: st.DrawFn, *, channels: int = 1) -> Transcription:
    """Sentences in order within each channel, whose number is the speaker; channels overlap as they like."""
    sentences = []
    for channel in range(channels):
        now = 0
        for _ in range(draw(st.integers(0, 4))):
            start = now + draw(st.integers(0, 3000))
            now = start + draw(st.one_of(st.just(0), st.integers(1, 30_000)))
            text = draw(TEXTS)
            said = draw(words(text, start, now))
            sentences.append(sentence(text, start, now, words=said, channel=channel, speaker=channel))
    return transcription(*sentences)
