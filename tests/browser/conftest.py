"""Debian's chromium, a microphone that plays a file, and the page in a fresh profile for each test."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from realtime_server.errors import WeightsError
from realtime_server.weights import find
from tests.browser.recordings import read_wav, write_wav

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Playwright

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP *.test 127.0.0.1",
]
MICROPHONE = ["--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"]


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="run scripts/install_browser.sh")
    sync_api.expect.set_options(timeout=15_000)
    with sync_api.sync_playwright() as running:
        yield running


@pytest.fixture(scope="session")
def launch(playwright: Playwright) -> Iterator[Callable[..., Browser]]:
    """Start a browser: launch(recording) with that file as its microphone, launch(None) without one."""
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("no chromium: run scripts/install_browser.sh")
    with ExitStack() as browsers:
        running: dict[Path | None, Browser] = {}

        def start(recording: Path | None) -> Browser:
            if recording not in running:
                source = (
                    [*MICROPHONE, f"--use-file-for-fake-audio-capture={recording}%noloop"]
                    if recording
                    else []
                )
                browser = playwright.chromium.launch(executable_path=executable, args=FLAGS + source)
                browsers.callback(browser.close)
                running[recording] = browser
            return running[recording]

        yield start


@pytest.fixture(scope="session")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty seconds of quiet noise: a microphone for tests in which the words do not matter."""
    path = tmp_path_factory.mktemp("microphone") / "noise.wav"
    write_wav(path, np.random.default_rng(5).normal(0, 0.05, 20 * 48000), 48000)
    return path


@pytest.fixture
def open_page(launch: Callable[..., Browser], noise: Path) -> Iterator[Callable[..., Page]]:
    """Open an address in a fresh profile; any script error on the page fails the test."""
    errors: list[str] = []
    with ExitStack() as contexts:

        def open_it(url: str, *, microphone: Path | None = noise, **options: Any) -> Page:
            context = launch(microphone).new_context(accept_downloads=True, **options)
            contexts.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(15_000)
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.on("console", lambda message: _note_violation(message.text, errors))
            page.goto(url)
            return page

        yield open_it
    assert errors == []


@pytest.fixture(scope="session")
def reading(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first twelve seconds of the recorded reading, and three of silence."""
    try:
        source = find("recordings") / "two_cities.wav"
    except WeightsError as error:
        pytest.skip(str(error))
    samples, rate = read_wav(source)
    path = tmp_path_factory.mktemp("microphone") / "reading.wav"
    write_wav(path, np.concatenate([samples[: 12 * rate], np.zeros(3 * rate)]), rate)
    return path


@pytest.fixture(scope="session")
def real_server() -> Iterator[str]:
    """Address of `realtime-server serve` with the CPU recognizer, as a process of its own."""
    try:
        find("whisper-base")
        find("fsmn-vad")
    except WeightsError as error:
        pytest.skip(str(error))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "realtime_server", "serve", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(command)
    address = f"http://127.0.0.1:{port}/"
    try:
        _wait_for(f"{address}health", process)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def _wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, "the server ended at its start; its words are above"
        with suppress(OSError), urllib.request.urlopen(address, timeout=5):
            return
        time.sleep(0.2)
    raise AssertionError("the server did not answer within a minute")


def _note_violation(text: str, errors: list[str]) -> None:
    if "Content Security Policy" in text:
        errors.append(text)
