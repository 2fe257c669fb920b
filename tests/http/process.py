"""The server as a process of its own that takes recordings, and OpenAI's client for it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import numpy as np
import soundfile
from openai import OpenAI

from realtime_server.core.jobs import Samples
from tests.audio import speech_pattern
from tests.live_server import LiveServer

FAKE = ("--engine", "fake", "--vad", "level")
PATIENCE_S = 60.0

TALK = speech_pattern([(1.0, 2.5), (2.0, 2.5)])  # two sentences of the offline schedule
TEXTS = ["one two", "eight nine ten eleven"]
TEXT = " ".join(TEXTS)


def wav(samples: Samples) -> bytes:
    """The samples as a WAV file of 16 bits."""
    file = io.BytesIO()
    soundfile.write(file, samples, 16_000, "PCM_16", format="WAV")
    return file.getvalue()


def upload(data: bytes, name: str = "talk.wav") -> dict[str, Any]:
    """What httpx2 takes as `files`."""
    return {"file": (name, data)}


TALK_WAV = wav(TALK)
FIVE_MINUTES = wav(np.tile(TALK, 38))


class FilesServer(LiveServer):
    """`serve --engine fake --http-port 0 FLAGS`; `files_url` is where recordings are taken."""

    def __init__(self, *flags: str) -> None:
        super().__init__(*FAKE, "--http-port", "0", *flags)

    @property
    def files_url(self) -> str:
        found = re.search(r"recordings are taken at (https?://[^/]+)/", self.log)
        assert found, self.log
        return found[1]

    def openai(self, **options: Any) -> OpenAI:
        """OpenAI's client, which asks once and does not try again."""
        return OpenAI(
            base_url=f"{self.files_url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S, **options
        )

    @contextmanager
    def http(self) -> Iterator[httpx2.Client]:
        """A plain client."""
        with httpx2.Client(base_url=self.files_url, timeout=PATIENCE_S) as client:
            yield client

    def post(self, path: str, data: bytes = TALK_WAV, **fields: Any) -> httpx2.Response:
        """Send a form."""
        with self.http() as client:
            return client.post(path, files=upload(data), data=fields)
