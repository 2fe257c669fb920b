"""Subtitle files: SubRip (srt) and WebVTT (vtt); cues.py says what they show and when.

SubRip has no escapes: what looks like a tag stays, and `-->`, by which parsers know a time, becomes an arrow.

Source: W3C, "WebVTT: The Web Video Text Tracks Format".
"""

from __future__ import annotations

from realtime_server.offline.cues import cues
from realtime_server.offline.steps import Steps, finish
from realtime_server.offline.transcription import Transcription


def srt(transcription: Transcription, *, speakers: bool = False) -> str:
    """SubRip; speakers: each cue begins with its speaker's name, where it is known."""
    return finish(srt_steps(transcription, speakers=speakers))


def vtt(transcription: Transcription, *, speakers: bool = False) -> str:
    """WebVTT; speakers: each cue is a voice span of its speaker, where it is known."""
    return finish(vtt_steps(transcription, speakers=speakers))


def srt_steps(transcription: Transcription, *, speakers: bool = False) -> Steps[str]:
    """See srt; the steps are those of its cues, and one for each block."""
    blocks = []
    for number, cue in enumerate((yield from cues(transcription, named=speakers)), 1):
        name = f"{transcription.name_of(cue.speaker)}: " if speakers and cue.speaker is not None else ""
        text = (name + "\n".join(cue.lines)).replace("-->", "→")
        blocks.append(f"{number}\n{_clock(cue.start_ms, ',')} --> {_clock(cue.end_ms, ',')}\n{text}\n")
        yield
    return "\n".join(blocks)


def vtt_steps(transcription: Transcription, *, speakers: bool = False) -> Steps[str]:
    """See vtt; the steps are those of its cues, and one for each block."""
    blocks = ["WEBVTT\n"]
    for cue in (yield from cues(transcription)):
        name = transcription.name_of(cue.speaker) if speakers and cue.speaker is not None else None
        voice = f"<v {_escape(name)}>" if name else ""
        text = _escape("\n".join(cue.lines))
        blocks.append(f"{_clock(cue.start_ms, '.')} --> {_clock(cue.end_ms, '.')}\n{voice}{text}\n")
        yield
    return "\n".join(blocks)


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _clock(ms: int, point: str) -> str:
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}{point}{ms % 1000:03}"
