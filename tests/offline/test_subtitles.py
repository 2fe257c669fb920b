"""SubRip and WebVTT that strict parsers accept, and read the same from."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import given

from realtime_server.offline.cues import cues
from realtime_server.offline.steps import finish
from realtime_server.offline.subtitles import srt, vtt
from realtime_server.offline.transcription import Transcription
from tests.offline.transcriptions import ENGLISH, sentence, transcription, transcriptions

Parsed = list[tuple[int, int, str]]  # start and end in ms, text


def ms(time: str, point: str) -> int:
    found = re.fullmatch(rf"(\d\d+):([0-5]\d):([0-5]\d){re.escape(point)}(\d\d\d)", time, re.ASCII)
    assert found, time
    hours, minutes, seconds, rest = map(int, found.groups())
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + rest


def parse_blocks(blocks: list[list[str]], point: str) -> Parsed:
    """Read a line with times and lines with text; `-->` is nowhere else."""
    parsed = []
    for times, *lines in blocks:
        start, end = times.split(" --> ")
        assert lines
        assert not any("-->" in line or not line.strip() for line in lines)
        parsed.append((ms(start, point), ms(end, point), "\n".join(lines)))
    return parsed


def parse_srt(text: str) -> Parsed:
    """Read SubRip as strictly as it can be read: numbers from 1, one empty line between cues."""
    assert "\r" not in text
    assert not text or text.endswith("\n")
    blocks = [block.split("\n") for block in text[:-1].split("\n\n")] if text else []
    assert [block[0] for block in blocks] == [str(number) for number in range(1, len(blocks) + 1)]
    return parse_blocks([block[1:] for block in blocks], ",")


def parse_vtt(text: str) -> Parsed:
    """Read WebVTT by its grammar: no `&` but in an escape, no `<` but in a voice tag at the beginning."""
    assert "\r" not in text
    assert "\0" not in text
    header, *blocks = text.removesuffix("\n").split("\n\n")
    assert header == "WEBVTT"
    parsed = []
    for start, end, payload in parse_blocks([block.split("\n") for block in blocks], "."):
        found = re.fullmatch(
            r"(?:<v (Speaker \d+)>)?((?:[^&<>]|&amp;|&lt;|&gt;)+)", payload, re.ASCII | re.DOTALL
        )
        assert found, payload
        speaker, body = found.groups()
        parsed.append((start, end, f"{speaker}: " * bool(speaker) + html.unescape(body)))
    return parsed


def _named(speaker: int | None) -> str:
    return "" if speaker is None else f"Speaker {speaker + 1}: "


def shown(whole: Transcription, *, speakers: bool, named: bool) -> Parsed:
    """What the cues say."""
    return [
        (cue.start_ms, cue.end_ms, _named(cue.speaker) * speakers + "\n".join(cue.lines))
        for cue in finish(cues(whole, named=named))
    ]


@pytest.mark.parametrize("speakers", [False, True])
@given(whole=transcriptions(channels=2))
def test_strict_parsers_read_the_cues_back(speakers: bool, whole: Transcription) -> None:
    assert parse_srt(srt(whole, speakers=speakers)) == [
        (start, end, text.replace("-->", "→"))
        for start, end, text in shown(whole, speakers=speakers, named=speakers)
    ]
    assert parse_vtt(vtt(whole, speakers=speakers)) == shown(whole, speakers=speakers, named=False)


@given(transcriptions(channels=2))
def test_the_srt_package_reads_the_cues_back(whole: Transcription) -> None:
    package = pytest.importorskip("srt", reason="needs the srt package")
    read = [
        (round(one.start.total_seconds() * 1000), round(one.end.total_seconds() * 1000), one.content)
        for one in package.parse(srt(whole, speakers=True))
    ]
    assert read == parse_srt(srt(whole, speakers=True))


@given(transcriptions(channels=2))
def test_the_webvtt_package_reads_the_cues_back(whole: Transcription) -> None:
    package = pytest.importorskip("webvtt", reason="needs the webvtt-py package")
    read = [
        (ms(one.start, "."), ms(one.end, "."), f"{one.voice}: {html.unescape(one.text)}")
        for one in package.from_string(vtt(whole, speakers=True), strict=True)
    ]
    assert read == parse_vtt(vtt(whole, speakers=True))


def test_subrip_in_full() -> None:
    whole = transcription(
        sentence(ENGLISH, 500, 10_500, speaker=0), sentence("a --> b", 3_725_000, 3_726_001)
    )
    assert srt(whole, speakers=True) == (
        "1\n00:00:00,500 --> 00:00:03,558\nSpeaker 1: It was the best of times,\nit was the worst of times,\n\n"
        "2\n00:00:03,617 --> 00:00:06,911\nSpeaker 1: it was the age of wisdom,\nit was the age of foolishness,\n\n"
        "3\n00:00:06,970 --> 00:00:10,500\nSpeaker 1: it was the epoch of belief, it\nwas the epoch of incredulity.\n\n"
        "4\n01:02:05,000 --> 01:02:06,001\na → b\n"
    )


def test_webvtt_in_full() -> None:
    whole = transcription(
        sentence("<b>R&D --> out", 0, 1500, speaker=1), sentence("Oh.", 360_000_000, 360_001_000)
    )
    assert vtt(whole, speakers=True) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\n<v Speaker 2>&lt;b&gt;R&amp;D --&gt; out\n\n"
        "100:00:00.000 --> 100:00:01.000\nOh.\n"
    )


def test_nothing_said_is_an_empty_file() -> None:
    for whole in (transcription(), transcription(sentence("", flags=("failed",)))):
        assert srt(whole) == ""
        assert vtt(whole) == "WEBVTT\n"
