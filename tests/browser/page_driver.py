"""Common steps of the page's tests: scenes that a scripted server plays, and hands on the page."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.browser.scripted_server import Peer, sentence

if TYPE_CHECKING:
    from playwright.sync_api import Page

OpenPage = Callable[..., "Page"]

BEST = sentence("It was the best of times,", 400, 1900)
WORST = sentence("it was the worst of times.", 2000, 3600)
LOCKED = "#locked .sentence:not(.unconfirmed) .text"
MOVING = "#partial .text"


def listen(peer: Peer) -> None:
    """Scene: a session that hears two sentences, shows a partial of the second, and finishes well."""
    peer.begin()
    peer.read_audio(300)
    peer.result([], "it was")
    peer.read_audio(300)
    peer.result([BEST], "it was the wor", start_ms=2000)
    peer.read_until("STOP")
    peer.finish([BEST, WORST])


def hear_all(peer: Peer) -> None:
    """Scene: account for every frame, and finish."""
    peer.begin()
    while peer.read() != "STOP":
        peer.result([])
    peer.finish([])


def press(page: Page, name: str) -> None:
    """Press the button of exactly this name."""
    page.get_by_role("button", name=name, exact=True).click()


def start_with_partial(page: Page) -> None:
    """Press Start and wait until a sentence is locked and a partial moves."""
    press(page, "Start")
    page.locator(LOCKED).wait_for()
    page.locator(MOVING).wait_for()


def send_file(page: Page, path: Path, *, fast: bool = False) -> None:
    """Choose a file and press Start."""
    page.get_by_label("File", exact=True).check()
    page.get_by_label("Audio file").set_input_files(path)
    if fast:
        page.get_by_label("As fast as possible").check()
    press(page, "Start")


def download(page: Page, form: str = "txt") -> str:
    """Choose a form in the menu of Download; return the file's text."""
    with page.expect_download() as started:
        press(page, "Download")
        page.get_by_role("menuitem", name=f".{form}").click()
    assert started.value.suggested_filename.endswith(f".{form}")
    return Path(started.value.path()).read_text(encoding="utf-8")


def wait_until(page: Page, condition: str) -> None:
    """Wait for a JavaScript condition; Playwright's own wait needs eval, which the strict policy forbids."""
    deadline = time.monotonic() + 10
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(20)
