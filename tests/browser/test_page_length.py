"""An hour of speech on the page."""

from __future__ import annotations

import threading

import pytest

from tests.browser.page_driver import LOCKED, OpenPage, download, press, wait_until
from tests.browser.scripted_server import Peer, ScriptedServer, sentence

pytest.importorskip("playwright.sync_api", reason="run scripts/install_browser.sh")

from playwright.sync_api import expect

pytestmark = pytest.mark.browser


def test_twelve_hundred_sentences_stay_smooth(open_page: OpenPage) -> None:
    every = [
        sentence(f"This is sentence {n}, as long as a usual one is.", n * 3000, n * 3000 + 2500, n // 7 % 3)
        for n in range(1200)
    ]
    go = threading.Event()

    def scene(peer: Peer) -> None:
        peer.begin()
        peer.result(every[:1000], "moving", start_ms=3_000_000)
        go.wait(20)
        for count in range(1001, 1201):
            peer.result(every[:count], f"moving {count}", start_ms=count * 3000)
        peer.read_until("STOP")
        peer.finish(every)

    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        press(page, "Start")
        expect(page.locator("#locked .sentence")).to_have_count(1000)
        page.evaluate(
            """() => {
                window.blocked = [];
                window.changed = 0;
                window.first = document.querySelector("#locked .sentence");
                new PerformanceObserver((list) => window.blocked.push(...list.getEntries().map((e) => e.duration)))
                    .observe({ type: "longtask" });
                const everything = { childList: true, subtree: true, characterData: true };
                new MutationObserver((list) => { window.changed += list.length; })
                    .observe(document.querySelector("#locked"), everything);
            }"""
        )
        go.set()
        expect(page.locator("#locked .sentence")).to_have_count(1200)
        assert page.evaluate("window.changed") == 200, "one change per new sentence, none for the old ones"
        assert page.evaluate("window.first.isConnected")
        assert max(page.evaluate("window.blocked"), default=0) < 250
        press(page, "Stop")
        expect(page.locator("#status")).to_have_text("Finished")
        assert len(download(page).splitlines()) == 1200
    assert server.failures == []


def test_the_page_follows_only_a_reader_who_is_at_the_end(open_page: OpenPage) -> None:
    every = [sentence(f"Sentence {n}.", n * 3000, n * 3000 + 2500) for n in range(60)]
    steps = {count: threading.Event() for count in (50, 55, 60)}

    def scene(peer: Peer) -> None:
        peer.begin()
        for count, step in steps.items():
            step.wait(20)
            peer.result(every[:count])

    at_end = "innerHeight + scrollY >= document.documentElement.scrollHeight - 2"
    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        press(page, "Start")
        steps[50].set()
        expect(page.locator(LOCKED)).to_have_count(50)
        wait_until(page, at_end)
        page.mouse.wheel(0, -900)
        wait_until(page, f"!({at_end})")
        page.wait_for_timeout(200)
        before = page.evaluate("scrollY")
        steps[55].set()
        expect(page.locator(LOCKED)).to_have_count(55)
        expect(page.get_by_role("button", name="Latest sentence")).to_be_visible()
        assert page.evaluate("scrollY") == before
        press(page, "Latest sentence")
        wait_until(page, at_end)
        expect(page.get_by_role("button", name="Latest sentence")).to_be_hidden()
        steps[60].set()
        expect(page.locator(LOCKED)).to_have_count(60)
        wait_until(page, at_end)
