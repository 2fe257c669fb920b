"""What stays in sight: the transcript when notices come, the facts beside it, the settings of a phone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.page_driver import (
    BEST,
    LOCKED,
    OpenPage,
    listen,
    press,
    send_file,
    start_with_partial,
    wait_until,
)
from tests.browser.scripted_server import SETTINGS, Peer, ScriptedServer, sentence

pytest.importorskip("playwright.sync_api", reason="run scripts/install_browser.sh")

from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

DESKTOP = {"viewport": {"width": 1200, "height": 800}}
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}

UNCOVERED = """(selector) => {
    const node = [...document.querySelectorAll(selector)].at(-1);
    const { left, top, right, bottom } = node.getBoundingClientRect();
    const seen = [[left + 6, top + 6], [(left + right) / 2, (top + bottom) / 2], [right - 6, bottom - 6]];
    return seen.every(([x, y]) => node.contains(document.elementFromPoint(x, y)));
}"""


def settle(page: Page) -> None:
    """Let the frames pass in which the page would scroll."""
    page.wait_for_timeout(150)


def fail_by_words(page: Page, directory: Path) -> None:
    path = directory / "words.txt"
    path.write_text("no sound")
    send_file(page, path)


def fail_by_no_file(page: Page, directory: Path) -> None:
    page.get_by_label("File", exact=True).check()
    page.keyboard.press("Control+Enter")


def fail_by_close(code: int, *errors: str) -> Callable[[Peer], None]:
    def scene(peer: Peer) -> None:
        peer.begin()
        peer.read_audio(180)
        peer.final([BEST])
        peer.read_audio(300)
        for error in errors:
            peer.error(error, fatal=error is errors[-1])
        peer.close(code, "because")

    return scene


def start(page: Page, directory: Path) -> None:
    press(page, "Start")


@pytest.mark.parametrize("options", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize(
    ("scene", "fail"),
    [
        (listen, fail_by_words),
        (listen, fail_by_no_file),
        (fail_by_close(1012), start),
        (fail_by_close(1008, "one segment failed", "another segment failed", "a limit was reached"), start),
    ],
    ids=["words", "no file", "shutdown", "limit"],
)
def test_an_error_leaves_the_transcript_in_sight(
    open_page: OpenPage,
    tmp_path: Path,
    scene: Callable[[Peer], None],
    fail: Callable[[Page, Path], None],
    options: dict[str, Any],
) -> None:
    with ScriptedServer(scene) as server:
        page = open_page(server.url, **options)
        if scene is listen:
            start_with_partial(page)
            press(page, "Stop")
            expect(page.locator("#status")).to_have_text("Finished")
            if options is PHONE:
                press(page, "Settings")
        fail(page, tmp_path)
        expect(page.locator(".notice.bad").last).to_be_visible()
        settle(page)
        assert page.evaluate("scrollY") == 0
        assert page.evaluate(UNCOVERED, LOCKED)
        assert page.evaluate("document.documentElement.scrollHeight") == options["viewport"]["height"]


def test_the_last_line_of_a_long_transcript_stays_above_a_notice(open_page: OpenPage) -> None:
    every = [sentence(f"Sentence {n}.", n * 3000, n * 3000 + 2500) for n in range(40)]
    go = threading.Event()

    def scene(peer: Peer) -> None:
        peer.begin()
        peer.result(every)
        go.wait(20)
        peer.error("a segment could not be recognized")
        peer.close(1012)

    with ScriptedServer(scene) as server:
        page = open_page(server.url, **DESKTOP)
        press(page, "Start")
        expect(page.locator(LOCKED)).to_have_count(40)
        go.set()
        expect(page.locator(".notice")).to_have_count(2)
        settle(page)
        assert page.evaluate(UNCOVERED, LOCKED)
        assert page.evaluate(UNCOVERED, ".notice")
        page.mouse.move(300, 300)
        page.mouse.wheel(0, -600)
        wait_until(page, "innerHeight + scrollY < document.documentElement.scrollHeight - 300")
        settle(page)
        before = page.evaluate("scrollY")
        page.locator("#start").focus()
        page.locator(".dismiss").first.click()
        settle(page)
        assert page.evaluate("scrollY") == before, "whoever reads further up is left alone"


@pytest.mark.parametrize("source", ["Microphone", "File"])
def test_all_settings_and_facts_are_in_sight_also_beside_errors(open_page: OpenPage, source: str) -> None:
    def scene(peer: Peer) -> None:
        peer.begin()
        peer.tell("settings", settings={**SETTINGS, "language": "en"})
        peer.error("something failed")
        peer.read_until("STOP")
        peer.close(1011)

    with ScriptedServer(scene) as server:
        page = open_page(server.url, **DESKTOP)
        page.get_by_label(source, exact=True).check()
        everything = ["#destination", "#engine", "#endpointing", "#with-times"]
        assert [page.evaluate(UNCOVERED, name) for name in everything] == [True] * 4
        page.get_by_label("Microphone", exact=True).check()
        press(page, "Start")
        expect(page.locator("#language-hint")).to_have_text("In force: English.")
        press(page, "Stop")
        expect(page.locator(".notice")).to_have_count(2)
        page.get_by_label(source, exact=True).check()
        settle(page)
        assert [page.evaluate(UNCOVERED, name) for name in everything] == [True] * 4


@pytest.mark.parametrize("options", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_keys_are_named_only_where_there_are_any(open_page: OpenPage, options: dict[str, Any]) -> None:
    with ScriptedServer(listen, health={"endpointing": "client"}) as server:
        page = open_page(server.url, **options)
        hint = page.get_by_text("An audio file can be dropped anywhere.")
        expect(hint).to_be_visible(visible=options is DESKTOP)
        where = (
            "When you press Commit, or Ctrl Shift Enter." if options is DESKTOP else "When you press Commit."
        )
        expect(page.locator("#endpointing")).to_have_text(where)


def test_the_settings_of_a_phone_show_that_they_are_open_and_close(open_page: OpenPage) -> None:
    looks = "getComputedStyle(document.getElementById('settings-button')).backgroundColor"
    with ScriptedServer(listen) as server:
        page = open_page(server.url, **PHONE)
        button = page.get_by_role("button", name="Settings")
        closed = page.evaluate(looks)
        button.tap()
        expect(page.locator("#settings")).to_be_visible()
        expect(button).to_have_attribute("aria-expanded", "true")
        assert page.evaluate(looks) != closed
        page.get_by_label("Hotwords").focus()
        page.keyboard.press("Escape")
        expect(page.locator("#settings")).to_be_hidden()
        expect(button).to_have_attribute("aria-expanded", "false")
        expect(button).to_be_focused()
        assert page.evaluate(looks) == closed

        button.tap()
        page.get_by_label("File", exact=True).check()
        press(page, "Start")
        expect(page.locator("#settings")).to_be_hidden()
        expect(page.locator(".notice p")).to_have_text("No file is chosen.")
        expect(page.get_by_role("button", name="Choose a file")).to_be_visible()
        button.tap()
        page.get_by_label("Microphone", exact=True).check()
        start_with_partial(page)
        expect(page.locator("#settings")).to_be_hidden()
        expect(button).to_have_attribute("aria-expanded", "false")
        assert page.evaluate(UNCOVERED, LOCKED)
