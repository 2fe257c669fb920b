"""The overlay: where its text stands, that it stands still, and that it finds its session again."""

from __future__ import annotations

import struct
import threading
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from websockets.sync.client import connect

from tests.audio import pcm16, silence, tone
from tests.browser.overlay_server import SESSION, OverlayServer, partial, sentence, started
from tests.browser.page_driver import OpenPage
from tests.live_server import LiveServer

pytest.importorskip("playwright.sync_api", reason="run scripts/install_browser.sh")

from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

SCREEN: Any = {"viewport": {"width": 1280, "height": 720}, "microphone": None}
LINE = 62  # pixels, of text of 48
LONG = "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness"
RECTS = """(needle) => {
  const node = [...document.querySelectorAll(".stable")].map((span) => span.firstChild)
    .find((text) => text.data.includes(needle));
  if (!node) return null;
  node.seen ??= Math.random();
  const range = document.createRange();
  range.setStart(node, node.data.indexOf(needle));
  range.setEnd(node, node.data.indexOf(needle) + needle.length);
  return [node.seen, ...[...range.getClientRects()].map((box) => [box.x, box.y, box.width, box.height])];
}"""
VISIBLE = """() => {
  const view = document.getElementById("view").getBoundingClientRect(), found = [];
  for (const span of document.querySelectorAll(".stable, .unstable")) {
    for (const match of (span.firstChild?.data ?? "").matchAll(/\\S+/g)) {
      const range = document.createRange();
      range.setStart(span.firstChild, match.index);
      range.setEnd(span.firstChild, match.index + match[0].length);
      const box = range.getBoundingClientRect(), middle = (box.top + box.bottom) / 2;
      if (middle > view.top && middle < view.bottom) found.push(match[0]);
    }
  }
  return found.join(" ");
}"""


# How long a source waits between twelve looks, without waiting.
WAITS = """async (ended) => {
  const source = new Source(readAddress("session=studio", ""), null), waits = [];
  source.say = () => {};
  source.ended = ended;
  await new Promise((enough) => {
    window.setTimeout = (done, waitMs) => (waits.push(waitMs) < 12 ? done() : enough());
    source.run();
  });
  return waits;
}"""


def opened(open_page: OpenPage, server: OverlayServer, parameters: str = "", fragment: str = "") -> Page:
    page = open_page(server.url(parameters, fragment), **SCREEN)
    server.wait_viewers(1)
    expect(page.locator("body")).to_have_attribute("data-state", "connected")
    return page


def words(page: Page) -> str:
    return str(page.evaluate(VISIBLE))


def said(page: Page) -> Any:
    return page.locator(".said")


# --- text that stands still -------------------------------------------------------------------------------


def test_what_is_stable_keeps_its_node_and_its_place(open_page: OpenPage) -> None:
    with OverlayServer(started()) as server:
        page = opened(open_page, server, "lines=4")
        server.tell(partial("It was", " the bast"))
        expect(said(page)).to_have_text("It was the bast")
        before = page.evaluate(RECTS, "It was")
        for stable, unstable in (
            ("It was", ""),
            ("It was the", " best of"),
            (f"{LONG[:50]}", " something else"),
        ):
            server.tell(partial(stable, unstable))
            expect(said(page)).to_have_text(stable + unstable)
            assert page.evaluate(RECTS, "It was") == before
        server.tell(sentence(0, LONG[:70]), partial("Yes", segment=1))
        expect(said(page).nth(1)).to_have_text("Yes")
        assert page.evaluate(RECTS, "It was") == before
        opacity = "(node) => getComputedStyle(node).opacity"
        assert page.locator(".unstable").first.evaluate(opacity) == "0.6"
        assert page.locator(".stable").first.evaluate(opacity) == "1"


def test_lines_scroll_on_and_not_back(open_page: OpenPage) -> None:
    with OverlayServer(started()) as server:
        page = opened(open_page, server, "width=50")
        server.tell(partial("", LONG))
        expect(said(page)).to_have_text(LONG)
        assert words(page).endswith("foolishness")
        assert not words(page).startswith("It was the best")
        tops: list[float] = []
        for shown in (LONG[:88], LONG, LONG[:88], LONG):
            server.tell(partial(LONG[:88], shown[88:]))
            expect(said(page)).to_have_text(shown)
            tops.append(page.evaluate(RECTS, "wisdom")[1][1])
        assert len(set(tops[1:])) == 1


def test_only_so_many_lines_and_blocks_are_kept(open_page: OpenPage) -> None:
    with OverlayServer(started()) as server:
        page = opened(open_page, server, "lines=1")
        for id in range(60):
            server.tell(sentence(id, f"sentence {id}"))
            expect(said(page).last).to_have_text(f"sentence {id}")
        assert words(page) == "sentence 59"
        assert page.locator(".block").count() == 24
        box = page.locator("#view").bounding_box()
        assert box
        assert box["height"] == LINE


def test_a_segment_of_two_sentences_and_one_without_words(open_page: OpenPage) -> None:
    with OverlayServer(started()) as server:
        page = opened(open_page, server, "lines=4")
        server.tell(partial("hello hi", segment=0), partial("next", segment=1), partial("noise", segment=2))
        server.tell(sentence(0, "hello", segment=0), sentence(1, "hi", segment=0))
        server.tell({"type": "no_sentence", "channel": 0, "segment": 2})
        expect(said(page)).to_have_text(["hello", "hi", "next"])


# --- what the address asks for ----------------------------------------------------------------------------


def test_the_address_decides_the_looks(open_page: OpenPage) -> None:
    with OverlayServer(started(), sentence(0, "One line")) as server:
        parameters = "size=100&color=ffcc00&outline=none&background=00000080&position=top&margin=10"
        parameters += "&align=center&width=100&weight=400&font=Noto Serif,serif"
        page = opened(open_page, server, parameters)
        expect(said(page)).to_have_text("One line")
        style = "(name) => getComputedStyle(document.querySelector('.said'))[name]"
        assert page.evaluate(style, "fontSize") == "100px"
        assert page.evaluate(style, "color") == "rgb(255, 204, 0)"
        assert page.evaluate(style, "backgroundColor") == "rgba(0, 0, 0, 0.5)"
        assert page.evaluate(style, "textShadow") == "none"
        assert page.evaluate(style, "fontFamily") == '"Noto Serif", serif, system-ui, sans-serif'
        box = said(page).bounding_box()
        assert box
        assert abs(box["x"] + box["width"] / 2 - 640) < 2
        assert box["y"] < 50


def test_backgrounds_of_lines_do_not_lie_over_one_another(open_page: OpenPage) -> None:
    with OverlayServer(started(), sentence(0, LONG), sentence(1, "那是最好的时代", language="zh")) as server:
        page = opened(open_page, server, "lines=6&background=000000b0")
        expect(said(page)).to_have_count(2)
        boxes = "() => [...document.querySelectorAll('.said')].flatMap((said) => [...said.getClientRects()])"
        edges = page.evaluate(f"({boxes})().map((box) => [box.top, box.bottom])")
        assert len(edges) > 3
        assert all(above[1] <= below[0] for above, below in pairwise(edges))


def test_speakers_are_named_as_asked(open_page: OpenPage) -> None:
    told = (sentence(0, "hello", speaker=0), sentence(1, "hi", speaker=1), sentence(2, "hm", speaker=1))
    with OverlayServer(started(), *told) as server:
        page = opened(open_page, server, "lines=4&speakers=1:Bob <b>")
        expect(said(page)).to_have_text(["Speaker 1: hello", "Bob <b>: hi", "hm"])
        server.tell({"type": "speakers", "changes": [{"id": 0, "from": 0, "to": 1}], "reason": "live"})
        expect(said(page)).to_have_text(["Bob <b>: hello", "Bob <b>: hi", "hm"])
        page.goto(server.url("lines=4"))
        expect(said(page)).to_have_text(["hello", "hi", "hm"])


def test_channels_and_languages_are_chosen(open_page: OpenPage) -> None:
    told = (
        sentence(0, "hello", language="en"), sentence(1, "你好", language="zh"),
        sentence(2, "bonjour", language="fr", channel=1),
    )  # fmt: skip
    with OverlayServer(started(channels=2), *told) as server:
        page = opened(open_page, server, "lines=4&history=9&language=zh,fr&speakers=0:Agent")
        expect(said(page)).to_have_text(["Agent: 你好", "Channel 2: bonjour"])
        server.tell(partial("of unknown language", segment=9), sentence(3, "再见", language="zh"))
        expect(said(page).last).to_have_text("Agent: 再见")
        assert said(page).count() == 3
        page.goto(server.url("channel=1"))
        expect(said(page)).to_have_text(["bonjour"])


def test_old_text_fades_and_goes(open_page: OpenPage) -> None:
    with OverlayServer(started()) as server:
        page = opened(open_page, server, "age=1")
        server.tell(sentence(0, "first"))
        expect(said(page)).to_have_text("first")
        expect(said(page)).to_have_count(0)
        server.tell(sentence(1, "second"))
        expect(said(page)).to_have_text("second")


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ("color=red;background:url(//x)", "color must be a colour"),
        ("color=url(//x)", "color must be a colour"),
        ('font=x";}body{color:red', "font must be"),
        ("size=1e9", "size must be"),
        ("lines=<b>x</b>", "lines must be a number from 1 to 6, not <b>x</b>"),
        ("colour=red", "colour is not known"),
        ("token=secret", "put the token behind a #"),
        ("server=javascript:alert(1)", "server must be"),
        ("speakers=Ann", "speakers must be"),
        ("position=<img src=x onerror=alert(1)>", "position must be"),
    ],
)
def test_a_wrong_address_is_explained_and_never_obeyed(
    open_page: OpenPage, parameters: str, words: str
) -> None:
    with OverlayServer(started()) as server:
        page = open_page(server.url(parameters), **SCREEN)
        expect(page.locator("#trouble")).to_contain_text(words)
        assert page.locator("#trouble *").count() == 0
        assert server.asked == []


def test_text_is_never_markup(open_page: OpenPage) -> None:
    with OverlayServer(started(), sentence(0, "<img src=x> <script>1</script>\u202e")) as server:
        page = opened(open_page, server)
        expect(said(page)).to_have_text("<img src=x> <script>1</script>")
        assert page.locator("#view img, #view script").count() == 0


# --- its session ------------------------------------------------------------------------------------------


def test_it_waits_for_its_session_and_says_why_it_may_not(open_page: OpenPage) -> None:
    with OverlayServer(started(), sentence(0, "hello"), status=404) as server:
        page = open_page(server.url("", "#token=a+b%26c"), **SCREEN)
        expect(page.locator("body")).to_have_attribute("data-state", "waiting for the session")
        expect(page.locator("#trouble")).to_be_hidden()
        server.status = 200
        expect(said(page)).to_have_text("hello")
        assert all("token=a+b%26c" in path for path in server.asked)
    with OverlayServer(status=403) as server:
        page = open_page(server.url(), **SCREEN)
        expect(page.locator("#trouble")).to_contain_text("words of the server")


@pytest.mark.parametrize("status", [404, 200])
def test_the_longer_it_waits_the_less_it_asks(open_page: OpenPage, status: int) -> None:
    with OverlayServer(status=status, running=False) as server:
        page = open_page(
            server.url().replace("session=studio", ""), **SCREEN
        )  # which asks for nothing by itself
        waits = page.evaluate(WAITS, SESSION)
        assert len(server.asked) == len(waits)
    assert 1500 <= waits[0] <= 2500
    assert all(7500 <= wait <= 12_500 for wait in waits[-8:])
    assert len(set(waits[-8:])) > 1


def test_it_comes_back_after_the_server_and_what_stands_there_stays(open_page: OpenPage) -> None:
    told = (started(), sentence(0, "hello there"))
    with OverlayServer(*told) as server:
        page = opened(open_page, server, "age=0&lines=4")
        server.tell(partial("lost meanwhile", segment=1))
        expect(said(page)).to_have_text(["hello there", "lost meanwhile"])
        before, port = page.evaluate(RECTS, "hello there"), server.port
    expect(page.locator("body")).not_to_have_attribute("data-state", "connected")
    with OverlayServer(*told, sentence(2, "and more"), port=port) as server:
        server.wait_viewers(1)
        expect(said(page)).to_have_text(["hello there", "and more"])
        assert page.evaluate(RECTS, "hello there") == before
    with OverlayServer(started("another"), sentence(0, "anew"), port=port):
        expect(said(page)).to_have_text(["anew"], timeout=30_000)


def test_a_new_start_clears_and_an_ended_session_is_not_shown_again(open_page: OpenPage) -> None:
    with OverlayServer(started(), sentence(0, "first")) as server:
        page = opened(open_page, server, "age=0")
        server.tell(started(), sentence(0, "second"))
        expect(said(page)).to_have_text(["second"])
        server.running = False
        closing = threading.Thread(target=server.viewers[0].close, args=(1000,))
        closing.start()
        closing.join()
        expect(page.locator("body")).to_have_attribute("data-state", "waiting for the next session")
        expect(said(page)).to_have_text(["second"])


@pytest.mark.slow
def test_it_finds_its_session_again_on_a_server_that_was_restarted(open_page: OpenPage) -> None:
    flags = ["--engine", "fake", "--vad", "level", "--endpointing", "fixed:500"]
    page, port = None, 0
    for _ in range(2):
        with LiveServer(*flags, "--port", str(port)) as server:
            port = urlsplit(server.url).port or 0
            address = server.url.replace("ws", "http")
            page = page or open_page(f"{address}overlay?session=studio&age=0", **SCREEN)
            expect(page.locator("body")).to_have_attribute(
                "data-state", "waiting for the session", timeout=30_000
            )
            with connect(f"{server.url}?session=studio") as speaker:
                speaker.send("START")
                speaker.send(pcm16(np.concatenate([tone(1.0), silence(1.0)])))
                expect(said(page)).to_have_text("one two", timeout=30_000)
                expect(page.locator("body")).to_have_attribute("data-state", "connected")
        expect(page.locator("body")).not_to_have_attribute("data-state", "connected")
        expect(said(page)).to_have_text("one two")


# --- how it looks -----------------------------------------------------------------------------------------


def test_it_is_transparent_but_for_its_text(open_page: OpenPage, tmp_path: Path) -> None:
    scripts = (
        sentence(0, "It was the best of times,", language="en"),
        sentence(
            1,
            "那是最好的时代，那是最坏的时代，那是智慧的岁月，那是愚蠢的岁月，那是信仰的时期。",
            language="zh",
        ),
        sentence(2, "كان أفضل الأزمان، وكان أسوأ الأزمان", language="ar"),
        partial("it was the worst", " of times", segment=3),
    )
    with OverlayServer(started(), *scripts) as server:
        page = opened(open_page, server, "lines=5&history=9&age=0")
        expect(said(page)).to_have_count(4)
        picture = tmp_path / "overlay.png"
        page.screenshot(path=picture, omit_background=True)
        rows = read_alpha(picture)
        arabic, english = page.locator(".block").nth(2), page.locator(".block").nth(0)
        right = "(node) => { const r = node.querySelector('.stable').getBoundingClientRect();"
        right += " return [r.left, r.right]; }"
        assert arabic.evaluate(right)[1] > 1100
        assert english.evaluate(right)[0] < 180
    assert len(rows) == 720
    assert sum(sum(row) for row in rows[: 720 - 40 - 5 * LINE]) == 0, "nothing but the text is painted"
    painted = [number for number, row in enumerate(rows) if any(row)]
    assert sum(255 in rows[number] for number in painted) > 30, "text is not seen through"
    heights = [len(run) for run in runs(painted)]
    assert len(heights) <= 5
    assert sum(heights) > 4 * 30, "text of 48 pixels has letters of 30 and more"


@pytest.mark.parametrize("speakers", ["", "&speakers=0:Agent"])
def test_nothing_is_painted_where_there_is_nothing_to_read(
    speakers: str, open_page: OpenPage, tmp_path: Path
) -> None:
    def painted() -> bool:
        page.screenshot(path=tmp_path / "overlay.png", omit_background=True)
        return any(any(row) for row in read_alpha(tmp_path / "overlay.png"))

    with OverlayServer(started(channels=2)) as server:
        page = opened(open_page, server, f"background=000000b0&age=0{speakers}")
        for nothing in ("", " \n"):
            server.tell(partial(nothing, ""))
            expect(page.locator(".block")).to_have_count(1)
            assert not painted()
        server.tell(partial("", "It"))
        expect(said(page)).to_contain_text("It")
        assert painted()


def read_alpha(path: Path) -> list[bytes]:
    """The opacity of each pixel of a PNG with 8 bits a channel."""
    data, at, packed, width = path.read_bytes(), 8, b"", 0
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        if kind == b"IHDR":
            width, _, bits, colors = struct.unpack(">IIBB", data[at + 8 : at + 18])
            assert (bits, colors) == (8, 6)
        packed += data[at + 8 : at + 8 + size] if kind == b"IDAT" else b""
        at += size + 12
    raw, stride, rows, above = zlib.decompress(packed), 4 * width, [], bytearray(4 * width)
    for start in range(0, len(raw), stride + 1):
        line = bytearray(raw[start + 1 : start + 1 + stride])
        unfilter(raw[start], line, above)
        rows.append(bytes(line[3::4]))
        above = line
    return rows


def unfilter(kind: int, line: bytearray, above: bytearray) -> None:
    """Undo a PNG filter in place."""
    for at in range(len(line)):
        left, up, corner = (line[at - 4] if at > 3 else 0), above[at], (above[at - 4] if at > 3 else 0)
        guess = left + up - corner
        paeth = min((left, up, corner), key=lambda each: abs(guess - each))
        line[at] = (line[at] + (0, left, up, (left + up) // 2, paeth)[kind]) % 256


def runs(numbers: list[int]) -> list[list[int]]:
    """Numbers in runs without a gap."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return found
