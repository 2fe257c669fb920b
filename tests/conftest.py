"""Shared fixtures: where recordings come from, and small audio builders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Examples are not timed: the machine that runs the tests may be busy with others.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

SHARED = Path(
    os.environ.get("REALTIME_SERVER_TEST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data")
)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the shared recordings (MANIFEST.tsv); tests that need it skip where it is missing."""
    if not (SHARED / "MANIFEST.tsv").is_file():
        pytest.skip("the shared recordings are not on this machine (set REALTIME_SERVER_TEST_DATA)")
    return SHARED
