"""The files of the page, read by strict parsers."""

from __future__ import annotations

import json
import re
import unicodedata
from datetime import timedelta
from itertools import pairwise
from random import Random
from typing import Any

import pytest
import srt
import webvtt
from hypothesis import assume, given, settings

from realtime_server.core.segments import Sentence, Word
from realtime_server.offline.cues import cues as server_cues
from realtime_server.offline.steps import finish
from realtime_server.offline.transcription import Transcription
from tests.browser.page_driver import LOCKED, OpenPage, download, press
from tests.browser.scripted_server import Peer, ScriptedServer, sentence
from tests.offline.transcriptions import ENGLISH, spoken, transcription, transcriptions
from tests.offline.transcriptions import sentence as one_sentence

pytest.importorskip("playwright.sync_api", reason="run scripts/install_browser.sh")

from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

LONG = " ".join(f"word{n}" for n in range(40))
WORDS = [
    {"word": f"word{n}", "start_ms": 4000 + 250 * n, "end_ms": 4200 + 250 * n, "confidence": None}
    for n in range(40)
]
CHINESE = "那是最好的时代，那是最坏的时代，那是智慧的岁月，那是愚蠢的岁月，那是信仰的时期，那是怀疑的时期。"
TOLD = [
    sentence("Fish & <chips> --> 5 o'clock", 0, 1900, 0, language="en"),
    sentence("two\n\nlines", 2000, 3900, 1),
    sentence(LONG, 4000, 14_000, 1, words=WORDS),
    sentence(CHINESE, 14_000, 20_000, language="zh"),
    sentence("", 20_000, 21_000, flags=["failed"]),
    sentence("overlaps", 19_000, 19_000),
]


def talk(peer: Peer) -> None:
    """Scene: whatever is hard to write into subtitles; a session with hotwords breaks off."""
    peer.begin(language="en")
    peer.read_audio(300)
    if peer.asked.get("hotwords"):
        peer.result([sentence("again", 0, 200)], "and mo", start_ms=200)
        peer.read_audio(60)
        peer.drop()
        return
    peer.result(TOLD)
    peer.read_until("STOP")
    peer.finish(TOLD)


def read_srt(text: str) -> list[srt.Subtitle]:
    """Parse strictly; what is written is what would be written of it again."""
    found = list(srt.parse(text, ignore_errors=False))
    assert srt.compose(found, reindex=False).strip() == text.strip()
    return found


def read_vtt(text: str) -> list[webvtt.Caption]:
    assert text.startswith("WEBVTT\n\n")
    return list(webvtt.from_string(text))


def ms(time: timedelta) -> int:
    return time // timedelta(milliseconds=1)


@pytest.fixture
def page(open_page: OpenPage) -> Any:
    with ScriptedServer(talk) as server:
        page = open_page(server.url)
        press(page, "Start")
        expect(page.locator(LOCKED)).to_have_count(len(TOLD))
        page.locator(".speaker").first.click()
        page.get_by_label("Name of Speaker 1").fill("Ann <b>")
        page.keyboard.press("Enter")
        press(page, "Stop")
        expect(page.locator("#status")).to_have_text("Finished")
        yield page
        assert server.failures == []


def test_subtitles_parse_and_have_all_words_in_lines_that_fit(page: Page) -> None:
    cues = read_srt(download(page, "srt"))
    captions = read_vtt(download(page, "vtt"))
    assert [cue.index for cue in cues] == list(range(1, len(cues) + 1))
    assert all(before.end <= after.start for before, after in pairwise(cues)), "one at a time"
    assert all(cue.start < cue.end for cue in cues)
    times = [(read_ms(each.start), read_ms(each.end)) for each in captions]
    assert all(start < end for start, end in times)
    assert all(end <= after for (_, end), (after, _) in pairwise(times)), "one at a time"
    lines = [line for cue in cues for line in cue.content.splitlines()]
    assert max(len(line.removeprefix("Speaker 2: ")) for line in lines) <= 42
    assert max(len(cue.content.splitlines()) for cue in cues) == 2
    spoken = [cue for cue in cues if "word" in cue.content]
    said = " ".join(cue.content.replace("\n", " ").removeprefix("Speaker 2: ") for cue in spoken)
    assert said == LONG
    for cue in spoken[1:]:
        first = int(cue.content.split()[2].removeprefix("word"))
        assert ms(cue.start) == 4000 + 250 * first, "a cue begins with its first word"
    assert "".join(cue.content for cue in cues if "那" in cue.content).replace("\n", "") == CHINESE
    assert cues[0].content == "Ann <b>: Fish & <chips> → 5 o'clock"
    assert cues[1].content == "Speaker 2: two lines"
    assert captions[0].raw_text == "<v Ann &lt;b&gt;>Fish &amp; &lt;chips&gt; --&gt; 5 o'clock"
    assert captions[1].voice == "Speaker 2"


def read_ms(clock: str) -> int:
    hours, minutes, seconds = clock.split(":")
    return 1000 * (3600 * int(hours) + 60 * int(minutes)) + round(1000 * float(seconds))


def told(one: Sentence) -> dict[str, Any]:
    """A sentence as the page has it."""
    words = [{"word": word.text, "start_ms": word.start_ms, "end_ms": word.end_ms} for word in one.words]
    times = {"start_ms": one.start_ms, "end_ms": one.end_ms}
    return {"said": {"text": one.text, **times, "speaker": one.speaker, "words": words}}


def test_page_and_server_cut_subtitles_alike(open_page: OpenPage) -> None:
    with ScriptedServer(talk) as server:
        page = open_page(server.url)
        cut = """([sentences, named]) => cuesOf(
          [{ sentences, names: new Map(), unconfirmed: [], heardMs: 0 }], named,
        ).map(({ startMs, endMs, lines }) => [startMs, endMs, lines])"""

        def compare(whole: Transcription) -> None:
            for named in (False, True):
                shown = page.evaluate(cut, [list(map(told, whole.sentences)), named])
                cues = finish(server_cues(whole, named=named))
                assert shown == [[cue.start_ms, cue.end_ms, list(cue.lines)] for cue in cues]

        for text in (
            ENGLISH,
            CHINESE,
            f"{ENGLISH} {CHINESE}",
            "字" * 100,
            "x" * 200,
            "あっ、っ" * 20,
            "한국어 " * 30,
        ):
            for words in ((), spoken(text.split(), 900, 11_500, gap_ms=90)):
                compare(transcription(one_sentence(text, 900, 12_000, words=words, speaker=1)))

        for number in range(300):
            compare(rambling(Random(number)))

        @settings(max_examples=150, deadline=None)
        @given(transcriptions(channels=2))
        def anything(whole: Transcription) -> None:
            # The browser may know characters that this Python does not, and half of one cannot be sent.
            spelt = "".join(map(signs_of, whole.sentences))
            assume(all(unicodedata.category(sign) not in ("Cn", "Cs") for sign in spelt))
            compare(whole)

        anything()


def rambling(random: Random) -> Transcription:
    """Sentences of words with pauses, some of which a replacement took out of the text or put into it."""
    vocabulary = ["no", "yes,", "so.", "perhaps", "extraordinarily", "well;", "我们", "很好。", "a", "time?”"]
    now, sentences = 0, []
    for _ in range(4):
        start, text, words = now, [], []
        for _ in range(random.randint(1, 40)):
            said = random.choice(vocabulary)
            end = now + random.randint(20, 700)
            words.append(Word(said, now, end))
            text.append(
                said if random.random() < 0.9 else random.choice(["", "[replaced]", "something else instead"])
            )
            now = end + random.choice([0, 0, 100, 450, 550, 1200])
        sentences.append(one_sentence(" ".join(text), start, now, words=words, speaker=1))
        now += random.choice([-2500, -1800, 0, 300])
        now = max(0, now)
    return transcription(*sentences)


def signs_of(one: Sentence) -> str:
    return one.text + "".join(word.text for word in one.words)


def test_json_has_everything(page: Page) -> None:
    (session,) = json.loads(download(page, "json"))["sessions"]
    assert session["session"] == "0123456789abcdef"
    assert session["language"] == "en"
    assert session["speakers"] == {"0": "Ann <b>"}
    assert session["duration_ms"] >= 300
    assert session["unconfirmed"] == []
    for told, written in zip(TOLD, session["sentences"], strict=True):
        assert {name: written[name] for name in told} == told
    assert [each["name"] for each in session["sentences"][:4]] == ["Ann <b>", "Speaker 2", "Speaker 2", None]
    assert [each["id"] for each in session["sentences"]] == list(range(6))


def test_sessions_lie_behind_one_another_and_what_was_not_confirmed_is_marked(page: Page) -> None:
    page.get_by_label("Hotwords").fill("again")
    press(page, "Start")
    expect(page.locator("#status")).to_have_text("Disconnected")
    cues = read_srt(download(page, "srt"))
    assert [cue.content for cue in cues[-2:]] == ["again", "(not confirmed) and mo"]
    assert ms(cues[-2].start) >= 20_000
    assert [caption.text for caption in read_vtt(download(page, "vtt"))[-2:]] == [
        "again",
        "(not confirmed) and mo",
    ]
    sessions = json.loads(download(page, "json"))["sessions"]
    assert [len(session["sentences"]) for session in sessions] == [6, 1]
    assert sessions[1]["unconfirmed"] == [{"text": "and mo", "start_ms": 200}]
    assert "(not confirmed) and mo" in download(page)


def test_a_button_that_cannot_be_pressed_yet_says_why(open_page: OpenPage) -> None:
    with ScriptedServer(talk) as server:
        page = open_page(server.url)
        for name in ("Copy", "Download"):
            button = page.get_by_role("button", name=name, exact=True)
            expect(button).to_be_disabled()
            expect(button).to_have_attribute(
                "title", re.compile(f"nothing to {name.lower()} before the first sentence")
            )
        press(page, "Start")
        for name in ("Copy", "Download"):
            button = page.get_by_role("button", name=name, exact=True)
            expect(button).to_be_enabled()
            expect(button).to_have_attribute("title", "")
        press(page, "Stop")
        expect(page.locator("#status")).to_have_text("Finished")


def test_the_menu_of_downloads_goes_by_keys_and_closes(page: Page) -> None:
    button = page.get_by_role("button", name="Download")
    items = page.get_by_role("menuitem")
    button.press("ArrowDown")
    expect(button).to_have_attribute("aria-expanded", "true")
    expect(items.first).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(items.last).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(items.nth(1)).to_be_focused()
    with page.expect_download() as started:
        page.keyboard.press("Enter")
    assert started.value.suggested_filename.endswith(".srt")
    expect(items).to_have_count(0)
    button.press("Enter")
    expect(items.first).to_be_focused()
    page.keyboard.press("Escape")
    expect(items).to_have_count(0)
    expect(button).to_be_focused()
    button.click()
    page.mouse.click(400, 500)
    expect(items).to_have_count(0)
    expect(button).to_have_attribute("aria-expanded", "false")
