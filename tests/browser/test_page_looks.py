"""The page's looks in both schemes and all widths, its keys, and what a screen reader gets."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.browser.page_driver import BEST, LOCKED, MOVING, OpenPage, listen, press, start_with_partial
from tests.browser.scripted_server import Peer, ScriptedServer, sentence

pytest.importorskip("playwright.sync_api", reason="run scripts/install_browser.sh")

from playwright.sync_api import expect

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 768, 1024, 1600])
def test_nothing_scrolls_sideways(open_page: OpenPage, width: int, scheme: Any) -> None:
    word = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft" * 2

    def scene(peer: Peer) -> None:
        peer.begin()
        peer.error(word)
        peer.read_audio(120)
        peer.result([sentence(word, 3_700_000, 3_701_000, 3), BEST], word, start_ms=3_702_000)

    with ScriptedServer(scene) as server:
        page = open_page(server.url, viewport={"width": width, "height": 760}, color_scheme=scheme)
        if page.get_by_role("button", name="Settings").is_visible():
            press(page, "Settings")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        press(page, "Start")
        expect(page.locator(MOVING)).to_have_text(word)
        widest = page.evaluate("document.documentElement.scrollWidth")
        assert widest <= width
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (max(map(int, re.findall(r"\d+", ground))) < 64) == (scheme == "dark")


@pytest.mark.parametrize("width", [360, 1180])
def test_status_and_buttons_keep_to_one_line(open_page: OpenPage, width: int) -> None:
    def scene(peer: Peer) -> None:
        peer.begin()
        peer.read_audio(120)
        peer.result([BEST])

    one_line = "[...document.querySelectorAll('#status, .main, .tools button')]"
    one_line += ".every((node) => node.scrollWidth <= node.clientWidth)"
    middle = "(id) => { const r = document.getElementById(id).getBoundingClientRect(); return (r.top + r.bottom) / 2; }"
    with ScriptedServer(scene, health={"engine": "scripted", "endpointing": "client"}) as server:
        page = open_page(server.url, viewport={"width": width, "height": 740})
        press(page, "Start")
        expect(page.locator(LOCKED)).to_have_count(1)
        assert page.evaluate(one_line)
        assert page.evaluate(middle, "start") == pytest.approx(page.evaluate(middle, "commit"), abs=1)
        for other in ("download", "overlay", "clear"):
            assert page.evaluate(middle, other) == pytest.approx(page.evaluate(middle, "copy"), abs=1)
        press(page, "Stop")
        expect(page.locator("#waited")).to_have_text("0:02")
        assert page.evaluate(one_line)


CONTRAST = """() => {
    const parse = (text) => text.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].reduce((sum, value, i) => {
        const c = value / 255;
        return sum + [0.2126, 0.7152, 0.0722][i] * (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    }, 0);
    const ground = (node) => {
        for (; node; node = node.parentElement) {
            const colour = parse(getComputedStyle(node).backgroundColor);
            if (colour.length < 4 || colour[3] > 0) return colour;
        }
    };
    const low = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const parent = node.parentElement;
        if (!node.data.trim() || !parent.checkVisibility()) continue;
        if (parent.closest(":disabled, script, style, noscript")) continue;
        const [a, b] = [light(parse(getComputedStyle(parent).color)), light(ground(parent))].sort((x, y) => y - x);
        const ratio = (a + 0.05) / (b + 0.05);
        if (ratio < 4.5) low.push(`${node.data.trim()}: ${ratio.toFixed(2)}`);
    }
    return low;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_contrast(open_page: OpenPage, scheme: Any) -> None:
    def scene(peer: Peer) -> None:
        peer.begin()
        peer.error("an error")
        peer.read_audio(120)
        peer.result([sentence(f"voice {n}", n * 1000, n * 1000 + 900, n) for n in range(8)], "moving")
        peer.read_audio(600)
        peer.close(1012, "because")

    with ScriptedServer(scene) as server:
        page = open_page(server.url, color_scheme=scheme)
        assert page.evaluate(CONTRAST) == []
        press(page, "Start")
        expect(page.locator(LOCKED)).to_have_count(8)
        assert page.evaluate(CONTRAST) == []
        expect(page.locator(".unconfirmed")).to_be_visible()
        assert page.evaluate(CONTRAST) == []


UNNAMED = """() => [...document.querySelectorAll("button, input, select, textarea, [role=meter]")].filter((node) => {
    const labelled = node.labels?.length && [...node.labels].some((label) => label.textContent.trim());
    return !labelled && !node.textContent.trim() && !node.getAttribute("aria-label");
}).map((node) => node.outerHTML)"""


def test_every_control_has_a_name_and_only_locked_text_is_announced(open_page: OpenPage) -> None:
    with ScriptedServer(listen) as server:
        page = open_page(server.url)
        start_with_partial(page)
        assert page.evaluate(UNNAMED) == []
        assert (
            page.evaluate(
                "[...document.querySelectorAll('[id]')].map(n => n.id).filter((id, i, all) => all.indexOf(id) !== i)"
            )
            == []
        )
        expect(page.locator("#locked")).to_have_attribute("aria-live", "polite")
        assert (
            page.locator("#partial").evaluate(
                "node => node.closest('[aria-live], [role=log], [role=status], [role=alert]')"
            )
            is None
        )
        expect(page.get_by_role("status")).to_have_text("Listening")
        meter = page.get_by_role("meter", name="Sound level")
        expect(meter).to_have_attribute("aria-valuetext", re.compile(r"^-\d+ dB$"))
        assert -60 <= int(meter.get_attribute("aria-valuenow") or "") <= 0
        assert page.evaluate("document.documentElement.lang") == "en"
        assert page.locator("h1").count() == 1


def test_the_keyboard_is_enough(open_page: OpenPage) -> None:
    with ScriptedServer(listen) as server:
        page = open_page(server.url)
        reached = []
        for _ in range(12):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.id"))
            outline = "(document.activeElement.parentElement.matches('.switch label')"
            outline += " ? document.activeElement.nextElementSibling : document.activeElement)"
            assert page.evaluate(f"getComputedStyle({outline}).outlineStyle") == "solid", reached[-1]
            if reached[-1] == "start":
                break
        assert reached == [
            "overlay",
            "source-mic",
            "device",
            "language",
            "hotwords",
            "more-summary",
            "with-times",
            "start",
        ]
        page.keyboard.press("Space")
        expect(page.locator(LOCKED)).to_have_count(1)
        page.keyboard.press("Control+Enter")
        expect(page.locator("#status")).to_have_text("Finished")
        page.get_by_label("Hotwords").focus()
        page.keyboard.press("Control+Enter")
        expect(page.locator("#status")).to_have_text("Listening")
