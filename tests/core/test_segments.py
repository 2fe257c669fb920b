"""Units, and values that refuse to be nonsense."""

from __future__ import annotations

import pytest

from realtime_server.core.segments import Segment, to_ms, to_samples


def test_samples_and_milliseconds() -> None:
    assert to_ms(16_015) == 1000
    assert to_samples(0.5) == 8
    assert to_samples(1000) == 16_000


def test_times_of_a_segment() -> None:
    segment = Segment(0, 0, 1600, 4816)
    assert (segment.start_ms, segment.end_ms) == (100, 301)


@pytest.mark.parametrize(("start", "end"), [(0, 0), (10, 5), (-1, 5)])
def test_an_empty_or_negative_segment_is_a_bug(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="empty or negative"):
        Segment(0, 0, start, end)
