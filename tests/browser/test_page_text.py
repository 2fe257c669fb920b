"""The text on the page: what is stable stands still, words tell their times, speakers have names."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.browser.page_driver import LOCKED, MOVING, OpenPage, download, press, wait_until
from tests.browser.scripted_server import Peer, ScriptedServer, sentence

pytest.importorskip("playwright.sync_api", reason="run scripts/install_browser.sh")

from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
LONG = "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness"
# The node that a word is in, marked by a number of its own, and where the word stands.
PLACE = """(needle) => {
  const node = [...document.querySelectorAll(".stable")].map((span) => span.firstChild)
    .find((text) => text.data.includes(needle));
  node.seen ??= Math.random();
  const range = document.createRange();
  range.setStart(node, node.data.indexOf(needle));
  range.setEnd(node, node.data.indexOf(needle) + needle.length);
  const box = range.getBoundingClientRect();
  return [node.seen, box.x, box.y, box.width, box.height];
}"""


def middle_of(page: Page, needle: str) -> tuple[float, float]:
    _, x, y, width, height = page.evaluate(PLACE, needle)
    return x + width / 2, y + height / 2


# --- partials -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
def test_what_is_stable_keeps_its_node_and_its_place_until_it_is_locked(
    open_page: OpenPage, options: dict[str, Any]
) -> None:
    steps = [
        ("It was", " the bast"),
        ("It was", ""),
        ("It was the", " best of"),
        (LONG[:60], " something else"),
    ]
    go = threading.Semaphore(0)

    def scene(peer: Peer) -> None:
        peer.begin()
        for stable, unstable in steps:
            peer.partial(stable, unstable)
            go.acquire(timeout=20)
        peer.result([sentence(LONG, 0, 7000)])
        peer.read_until("STOP")
        peer.finish([sentence(LONG, 0, 7000)])

    with ScriptedServer(scene) as server:
        page = open_page(server.url, **options)
        press(page, "Start")
        expect(page.locator(MOVING)).to_have_text("It was the bast")
        before = page.evaluate(PLACE, "It was")
        page.evaluate(
            """() => {
                window.touched = [];
                new MutationObserver((list) => window.touched.push(...list.map(({ oldValue }) => oldValue)))
                    .observe(document.querySelector("#partial .stable"),
                        { characterData: true, characterDataOldValue: true, childList: true, subtree: true });
            }"""
        )
        colour = "(node) => getComputedStyle(node).color"
        assert page.locator(".stable").evaluate(colour) != page.locator(".unstable").evaluate(colour)
        assert page.locator(".stable").evaluate(colour) == page.locator("#clock").evaluate(colour)
        for stable, unstable in steps[1:]:
            go.release()
            expect(page.locator(MOVING)).to_have_text(stable + unstable)
            assert page.evaluate(PLACE, "It was") == before
        go.release()
        expect(page.locator(LOCKED)).to_have_text(LONG)
        expect(page.locator(MOVING)).to_have_count(0)
        assert page.evaluate(PLACE, "It was") == before
        assert page.evaluate("window.touched") == ["It was", "It was the", LONG[:60]], "it only grew"


def test_segments_that_wait_for_their_final_and_those_without_words(open_page: OpenPage) -> None:
    go = threading.Event()

    def scene(peer: Peer) -> None:
        peer.begin()
        for segment, text in enumerate(("hello hi", "noise", "next")):
            peer.partial(text, segment=segment, start_ms=1000 * segment)
        go.wait(20)
        peer.tell("no_sentence", channel=0, segment=1)
        peer.tell("sentence", **sentence("hello", 0, 400, 0), id=0, segment=0)
        peer.tell("sentence", **sentence("hi", 500, 900, 1), id=1, segment=0)
        peer.tell("a type of later versions", text="?")

    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        press(page, "Start")
        expect(page.locator(MOVING)).to_have_text(["hello hi", "noise", "next"])
        go.set()
        expect(page.locator(LOCKED)).to_have_text(["hello", "hi"])
        expect(page.locator(MOVING)).to_have_text(["next"])
        expect(page.locator(".notice")).to_have_count(0)


def test_a_sentence_that_does_not_stand_on_its_final_recognition_says_so(open_page: OpenPage) -> None:
    told = [
        sentence("a partial", 0, 900, flags=["recovered"]),
        sentence("half a", 1000, 1900, flags=["truncated"]),
        sentence("what was heard", 2000, 2900, flags=["failed"]),
        sentence("", 3000, 3900, flags=["failed"]),
        sentence("whole", 4000, 4900),
    ]

    def scene(peer: Peer) -> None:
        peer.begin()
        peer.result(told)

    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        press(page, "Start")
        expect(page.locator("#locked .sentence")).to_have_text(
            [
                "0:00a partialFrom the partials: the recognizer lost some of it at the end",
                "0:01half aNot complete: the recognizer reached its limit",
                "0:02what was heardNot recognized as a whole: these are the last partials",
                "0:03(not recognized)",
                "0:04whole",
            ]
        )


# --- words ----------------------------------------------------------------------------------------------------

TIMED = sentence(
    "It was, it was the best.", 1000, 3000,
    words=[
        {"word": word, "start_ms": 1000 + 300 * n, "end_ms": 1250 + 300 * n, "confidence": None}
        for n, word in enumerate(["It", "was", "it", "was", "replaced", "Best"])
    ],
)  # fmt: skip
CHINESE = sentence(
    "那是最好", 65_000, 66_000,
    words=[
        {"word": word, "start_ms": 65_000 + 200 * n, "end_ms": 65_200 + 200 * n, "confidence": None}
        for n, word in enumerate("那是最好")
    ],
)  # fmt: skip


def timed(peer: Peer) -> None:
    """Scene: two sentences with their words' times, and one without."""
    peer.begin()
    peer.result([TIMED, sentence("no times", 4000, 4900), CHINESE])


def test_words_tell_their_times_to_the_mouse(open_page: OpenPage) -> None:
    with ScriptedServer(timed) as server:
        page = open_page(server.url)
        press(page, "Start")
        expect(page.locator(LOCKED)).to_have_count(3)
        tip = page.locator("#word")
        for needle, words in (
            ("best", "0:02.50 – 0:02.75"),
            ("It", "0:01.00 – 0:01.25"),
            ("最", "1:05.40 – 1:05.60"),
        ):
            page.mouse.move(*middle_of(page, needle))
            expect(tip).to_have_text(words)
            box, word = tip.bounding_box(), page.evaluate(PLACE, needle)
            assert box
            assert abs(box["x"] + box["width"] / 2 - word[1] - word[3] / 2) < 30
            assert box["y"] + box["height"] <= word[2], "above the word"
        page.mouse.move(*middle_of(page, "the"))
        expect(tip).to_be_hidden()
        page.mouse.move(*middle_of(page, "best"))
        expect(tip).to_be_visible()
        page.mouse.move(*middle_of(page, "no times"))
        expect(tip).to_be_hidden()
        page.mouse.move(*middle_of(page, "best"))
        page.mouse.move(5, 5)
        expect(tip).to_be_hidden()


def test_words_tell_their_times_to_the_keyboard_and_aloud(open_page: OpenPage) -> None:
    with ScriptedServer(timed) as server:
        page = open_page(server.url)
        press(page, "Start")
        expect(page.locator(LOCKED)).to_have_count(3)
        page.locator("#clear").focus()
        page.locator("#overlay").focus()
        page.keyboard.press("Tab")
        expect(page.get_by_role("log")).to_be_focused()
        tip, spoken = page.locator("#word"), page.locator("#word-spoken")
        expect(spoken).to_have_attribute("aria-live", "polite")
        for key, words in (
            (None, "那, 1:05.00 – 1:05.20"),
            ("ArrowRight", "是, 1:05.20 – 1:05.40"),
            ("ArrowLeft", "那, 1:05.00 – 1:05.20"),
            ("ArrowLeft", "best, 0:02.50 – 0:02.75"),
            ("ArrowLeft", "was, 0:01.90 – 0:02.15"),
            ("ArrowDown", "那, 1:05.00 – 1:05.20"),
            ("ArrowDown", "那, 1:05.00 – 1:05.20"),
            ("ArrowUp", "It, 0:01.00 – 0:01.25"),
            ("ArrowLeft", "It, 0:01.00 – 0:01.25"),
        ):
            if key:
                page.keyboard.press(key)
            expect(spoken).to_have_text(words)
            expect(tip).to_have_text(words.partition(", ")[2])
        page.keyboard.press("Escape")
        expect(tip).to_be_hidden()
        page.keyboard.press("ArrowRight")
        expect(tip).to_be_visible()
        page.keyboard.press("Tab")
        expect(tip).to_be_hidden()


def test_words_tell_their_times_to_a_finger(open_page: OpenPage) -> None:
    with ScriptedServer(timed) as server:
        page = open_page(server.url, **PHONE)
        press(page, "Start")
        expect(page.locator(LOCKED)).to_have_count(3)
        page.touchscreen.tap(*middle_of(page, "best"))
        expect(page.locator("#word")).to_have_text("0:02.50 – 0:02.75")
        page.touchscreen.tap(200, 700)
        expect(page.locator("#word")).to_be_hidden()


# --- speakers -------------------------------------------------------------------------------------------------


def talk(peer: Peer) -> None:
    """Scene: two voices; at the end it turns out who said the third sentence."""
    voices = [0, 1, 1, 0]
    peer.begin()
    peer.result([sentence(f"text {n}", 1000 * n, 1000 * n + 900, voice) for n, voice in enumerate(voices)])
    peer.read_until("STOP")
    voices[2] = 0
    peer.finish([sentence(f"text {n}", 1000 * n, 1000 * n + 900, voice) for n, voice in enumerate(voices)])


def test_a_speaker_who_is_renamed_is_so_in_all_sentences_and_files(open_page: OpenPage) -> None:
    with ScriptedServer(talk) as server:
        page = open_page(server.url)
        press(page, "Start")
        labels = page.locator(".speaker")
        expect(labels).to_have_text(["Speaker 1", "Speaker 2", "Speaker 1"])
        page.get_by_role("button", name="Speaker 1").last.press("Enter")
        field = page.get_by_label("Name of Speaker 1")
        expect(field).to_be_focused()
        field.fill("  Ann <b>\t& Co ")
        field.press("Enter")
        expect(labels).to_have_text(["Ann <b> & Co", "Speaker 2", "Ann <b> & Co"])
        expect(labels.last).to_be_focused()
        press(page, "Speaker 2")
        page.get_by_label("Name of Speaker 2").fill("nobody")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
        press(page, "Stop")
        expect(page.locator("#status")).to_have_text("Finished")
        expect(labels).to_have_text(["Ann <b> & Co", "Speaker 2", "Ann <b> & Co"])
        assert [line.partition("] ")[2] for line in download(page).splitlines()] == [
            "Ann <b> & Co: text 0", "Speaker 2: text 1", "Ann <b> & Co: text 2", "Ann <b> & Co: text 3",
        ]  # fmt: skip
        labels.first.click()
        page.get_by_label("Name of Speaker 1").fill("")
        page.get_by_role("button", name="Rename", exact=True).click()
        expect(labels).to_have_text(["Speaker 1", "Speaker 2", "Speaker 1"])


def test_a_name_is_of_one_session_and_survives_a_revision_under_the_dialog(open_page: OpenPage) -> None:
    revise = threading.Event()

    def scene(peer: Peer) -> None:
        peer.begin()
        peer.result([sentence("one", 0, 900, 0), sentence("two", 1000, 1900, 1)])
        revise.wait(20)
        peer.result([sentence("one", 0, 900, 0), sentence("two", 1000, 1900, 0)])
        peer.read_until("STOP")
        peer.finish([sentence("one", 0, 900, 0), sentence("two", 1000, 1900, 1)])

    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        press(page, "Start")
        labels = page.locator(".speaker")
        press(page, "Speaker 2")
        page.get_by_label("Name of Speaker 2").fill("Bob")
        revise.set()
        expect(labels).to_have_count(1)
        page.keyboard.press("Enter")
        press(page, "Stop")
        expect(labels).to_have_text(["Speaker 1", "Bob"])
        press(page, "Start")
        expect(labels).to_have_text(["Speaker 1", "Bob", "Speaker 1"])
        wait_until(page, "document.querySelectorAll('.divider').length === 2")
