"""These tests need the extra `http`, and OpenAI's client with the HTTP library it brings."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

NEEDED = ("fastapi", "uvicorn", "python_multipart", "openai", "httpx2", "soundfile", "soxr", "av")
collect_ignore_glob = [] if all(map(find_spec, NEEDED)) else ["test_*.py"]

if not collect_ignore_glob:
    from tests.http.process import FilesServer

    @pytest.fixture(scope="session")
    def files() -> Iterator[FilesServer]:
        """A server as users start it: fake engine, word times, fake speakers."""
        with FilesServer("--speakers", "bands", "--max-file-seconds", "600") as server:
            yield server
