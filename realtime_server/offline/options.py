"""What is asked of a recording, and whether a recognizer can do it.

What it cannot is refused before any work: another language than it knows, translation, hotwords, speakers without a
network that tells voices apart. Word times are the exception: where a recognizer has none, sentences come without, and
the transcription says so in its notes. Most who ask for them (subtitles, speakers) can do without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, get_args

import numpy as np

from realtime_server.core.endpointing_options import OFFLINE_SCHEDULE, EndpointingOptions
from realtime_server.core.jobs import Capabilities, DecodeJob, DecodingOptions, Priority
from realtime_server.core.postprocess import neutralise
from realtime_server.engines.base import refuse_unsupported
from realtime_server.errors import ConfigurationError, UnsupportedError

Segmentation = Literal["vad", "energy"]

OFFLINE_ENDPOINTING = EndpointingOptions(schedule=OFFLINE_SCHEDULE)


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How a recording is transcribed."""

    decoding: DecodingOptions = field(default_factory=DecodingOptions)
    speakers: bool = False  # tell voices apart; needs an Embedder
    segmentation: Segmentation = "vad"  # energy: no voice activity, clips cut where it is quiet
    endpointing: EndpointingOptions | None = (
        None  # None: OFFLINE_ENDPOINTING; of "energy" only its longest segment
    )
    schedule_wanted: bool = False  # the endpointing's schedule was asked for, not taken for want of a wish
    replacements: Mapping[str, str] = field(
        default_factory=lambda: MappingProxyType({})
    )  # exact, in the texts

    def __post_init__(self) -> None:
        if self.segmentation not in get_args(Segmentation):
            raise ConfigurationError(f"segmentation {self.segmentation!r}: expected vad or energy")

    def endpointing_for(self, can: Capabilities) -> EndpointingOptions:
        """When segments end: none is longer than the recognizer takes, none grows by a schedule that it cannot bear."""
        chosen = (self.endpointing or OFFLINE_ENDPOINTING).fitting(schedule=can.schedule)
        # Nothing is decoded early, but a pause that was noticed is where the last segment ends.
        eager_ms = None if chosen.reference else chosen.eager_ms or OFFLINE_ENDPOINTING.eager_ms
        longest_ms = min(chosen.max_segment_ms, int(1000 * can.longest_s))
        return replace(chosen, max_segment_ms=longest_ms, eager_ms=eager_ms)

    def decoding_for(self, can: Capabilities, *, embedder: bool) -> DecodingOptions:
        """What every job asks for. Raises UnsupportedError for what the recognizer or a missing embedder cannot do."""
        if self.speakers and not embedder:
            raise UnsupportedError("speakers cannot be told apart: no speaker network is loaded")
        if self.schedule_wanted and not can.schedule:
            raise UnsupportedError(
                "this recognizer bears no silence schedule: its segments end after a fixed silence"
            )
        wish = self.decoding
        # Texts are split between speakers by word times.
        words = (wish.words or self.speakers) and can.words
        hotwords = tuple(word for word in map(neutralise, wish.hotwords) if word)
        wish = replace(wish, words=words, hotwords=hotwords)
        refuse_unsupported(_empty_job(wish), can)
        return wish

    def notes_for(self, can: Capabilities) -> tuple[str, ...]:
        """What a recognizer lacks of what was asked for, where that is no reason to refuse."""
        return ("this recognizer gives no word times",) if self.decoding.words and not can.words else ()


def _empty_job(options: DecodingOptions) -> DecodeJob:
    """Stands for every job of a recording when it is asked whether the recognizer takes them."""
    audio = np.empty(0, np.float32)
    return DecodeJob(0, "", 0, 0, "final", Priority.FILE, 0, 0, 0, audio, "", options)
