"""The text of a recording: nothing lost, spaces where the languages have them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from realtime_server.core.segments import Word
from realtime_server.offline.transcription import one_line, speaker_name
from tests.offline.transcriptions import TEXTS, sentence, squeezed, transcription


@given(st.lists(TEXTS))
def test_joining_loses_nothing(texts: list[str]) -> None:
    joined = transcription(*map(sentence, texts)).text
    assert squeezed(joined) == squeezed("".join(map(one_line, texts)))
    assert joined == one_line(joined)


def test_a_transcription_has_the_text_and_the_words_of_its_sentences() -> None:
    one, other = Word("One", 0, 100), Word("two.", 100, 200)
    whole = transcription(sentence("One", words=[one]), sentence("and"), sentence("two.", words=[other]))
    assert whole.text == "One and two."
    assert whole.words == (one, other)
    assert transcription().text == ""
    assert transcription().words == ()


def test_a_line_is_one_line() -> None:
    assert one_line(" a\n\n b\u2028c\x00\x1c d\u3000") == "a b c d"


def test_speakers_are_numbered_from_0() -> None:
    assert [speaker_name(number) for number in (0, 11)] == ["Speaker 1", "Speaker 12"]
