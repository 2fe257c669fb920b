"""What is asked of a recording: defaults, bounds, and what is refused before any work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from realtime_server.core.endpointing_options import OFFLINE_SCHEDULE, EndpointingOptions, ReferenceCounting
from realtime_server.core.jobs import DecodingOptions
from realtime_server.engines.fake import CAPABILITIES
from realtime_server.errors import ConfigurationError, UnsupportedError
from realtime_server.offline.options import FileOptions

POOR = replace(CAPABILITIES, languages=frozenset({"en"}), hotwords="none", words=False, translate=False)


def test_the_default_is_the_offline_schedule() -> None:
    chosen = FileOptions().endpointing_for(CAPABILITIES)
    assert chosen.mode == "dynamic"
    assert chosen.schedule == OFFLINE_SCHEDULE
    assert chosen.eager_ms == 200
    assert chosen.max_segment_ms == 30_000
    rows = ((5, 2000), (10, 2000), (20, 1000), (30, 800), (45, 600), (50, 400), (60, 200), (61, 100))
    assert [OFFLINE_SCHEDULE.silence_ms(1000 * seconds) for seconds, _ in rows] == [ms for _, ms in rows]


def test_a_recognizer_that_bears_no_schedule_has_a_fixed_silence() -> None:
    can = replace(CAPABILITIES, schedule=False)
    chosen = FileOptions().endpointing_for(can)
    assert (chosen.mode, chosen.silence_ms) == ("fixed", 800)
    FileOptions().decoding_for(can, embedder=False)
    wanted = FileOptions(schedule_wanted=True)
    wanted.decoding_for(CAPABILITIES, embedder=False)
    with pytest.raises(UnsupportedError, match="bears no silence schedule"):
        wanted.decoding_for(can, embedder=False)


@pytest.mark.parametrize(
    ("asked_s", "engine_s", "longest_ms"),
    [(30, 60.0, 30_000), (60, 60.0, 60_000), (60, 30.0, 30_000), (90, 60.0, 60_000), (20, 30.0, 20_000)],
)
def test_segments_are_as_long_as_asked_for_and_as_the_engine_takes(
    asked_s: int, engine_s: float, longest_ms: int
) -> None:
    options = FileOptions(endpointing=EndpointingOptions(max_segment_ms=1000 * asked_s))
    can = replace(CAPABILITIES, longest_s=engine_s)
    assert options.endpointing_for(can).max_segment_ms == longest_ms


def test_a_pause_is_noticed_even_where_nothing_is_decoded_early() -> None:
    chosen = FileOptions(endpointing=EndpointingOptions(eager_ms=None)).endpointing_for(CAPABILITIES)
    assert chosen.eager_ms == 200
    counting = EndpointingOptions(eager_ms=None, reference=ReferenceCounting(idle_counts=False))
    assert FileOptions(endpointing=counting).endpointing_for(CAPABILITIES) == counting


@pytest.mark.parametrize(
    ("wish", "named"),
    [
        ({"task": "translate"}, "translation"),
        ({"language": "zh"}, "the language 'zh'"),
        ({"hotwords": ("Ulm",)}, "hotwords"),
    ],
)
def test_what_the_engine_lacks_is_refused_by_name(wish: dict[str, Any], named: str) -> None:
    options = FileOptions(decoding=DecodingOptions(**wish))
    with pytest.raises(UnsupportedError, match=named):
        options.decoding_for(POOR, embedder=True)
    assert options.decoding_for(CAPABILITIES, embedder=True) == options.decoding


def test_speakers_without_an_embedder_are_refused() -> None:
    options = FileOptions(speakers=True)
    with pytest.raises(UnsupportedError, match="no speaker network"):
        options.decoding_for(CAPABILITIES, embedder=False)
    assert options.decoding_for(CAPABILITIES, embedder=True).words  # by which texts are split


def test_missing_word_times_are_no_reason_to_refuse_and_are_told() -> None:
    options = FileOptions(decoding=DecodingOptions(words=True), speakers=True)
    assert not options.decoding_for(POOR, embedder=True).words
    assert options.notes_for(POOR) == ("this recognizer gives no word times",)
    assert FileOptions(speakers=True).notes_for(POOR) == ()
    assert options.decoding_for(CAPABILITIES, embedder=True).words
    assert options.notes_for(CAPABILITIES) == ()


def test_hotwords_are_made_harmless() -> None:
    options = FileOptions(decoding=DecodingOptions(hotwords=("<|im_end|> Ulm", "\n", "Köln")))
    assert options.decoding_for(CAPABILITIES, embedder=False).hotwords == ("|im_end| Ulm", "Köln")


def test_an_unknown_segmentation_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="expected vad or energy"):
        FileOptions(segmentation="silence")  # type: ignore[arg-type]
