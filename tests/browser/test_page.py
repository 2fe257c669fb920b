"""The page with the real recognizer behind it, and every step of a session that goes well."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import numpy as np
import pytest
import srt
import webvtt

from tests.browser.page_driver import (
    BEST,
    LOCKED,
    MOVING,
    WORST,
    OpenPage,
    download,
    hear_all,
    listen,
    press,
    send_file,
    start_with_partial,
)
from tests.browser.recordings import write_wav
from tests.browser.scripted_server import PAGE, SETTINGS, Peer, ScriptedServer, sentence

pytest.importorskip("playwright.sync_api", reason="run scripts/install_browser.sh")

from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser


# --- the real recognizer --------------------------------------------------------------------------------------


def shown_text(page: Page) -> str:
    """What a reader sees, in the form of the saved text."""
    lines = []
    for row in page.locator("#locked .sentence").all():
        lines.append(f"[{row.locator('.time').inner_text()}] {row.locator('.text').inner_text()}\n")
    return "".join(lines)


def words(text: str) -> str:
    return " ".join(re.sub(r"\[\d+:\d+\]|[^a-z ]", " ", text.lower().replace("\n", " ")).split())


@pytest.mark.slow
def test_speech_into_the_microphone_becomes_the_saved_text(
    open_page: OpenPage, real_server: str, reading: Path
) -> None:
    page = open_page(real_server, microphone=reading)
    expect(page.locator("#engine")).to_have_text("embedded")
    press(page, "Start")
    expect(page.locator(MOVING)).to_contain_text(re.compile("best of times", re.IGNORECASE))
    expect(page.locator(LOCKED).first).to_be_visible(timeout=40_000)
    press(page, "Stop")
    expect(page.locator("#status")).to_have_text("Finished", timeout=60_000)
    expect(page.locator("#partial")).to_be_hidden()
    saved = download(page)
    assert saved == shown_text(page)
    assert "it was the best of times" in words(saved)
    assert "it was the worst of times" in words(saved)

    (session,) = json.loads(download(page, "json"))["sessions"]
    for each in session["sentences"]:
        assert each["words"], "the recognizer has their times"
        times = [time for word in each["words"] for time in (word["start_ms"], word["end_ms"])]
        assert times == sorted(times)
    cues = list(srt.parse(download(page, "srt"), ignore_errors=False))
    captions = webvtt.from_string(download(page, "vtt"))
    assert words(" ".join(cue.content for cue in cues)) == words(saved)
    assert [caption.text for caption in captions] == [cue.content for cue in cues]
    page.locator(LOCKED).first.hover(position={"x": 8, "y": 8})
    expect(page.locator("#word")).to_have_text(re.compile(r"^0:0\d\.\d\d – 0:0\d\.\d\d$"))
    press(page, "Overlay")
    overlay = open_page(page.get_by_label("Address for OBS").input_value() + "&history=9&lines=6")
    expect(overlay.locator(".said").first).to_have_text(page.locator(LOCKED).first.inner_text())


@pytest.mark.slow
def test_a_file_becomes_the_saved_text(open_page: OpenPage, real_server: str, reading: Path) -> None:
    page = open_page(real_server, microphone=None)
    send_file(page, reading, fast=True)
    expect(page.locator("#status")).to_have_text("Finished", timeout=60_000)
    saved = download(page)
    assert saved == shown_text(page)
    assert "it was the best of times it was the worst of times" in words(saved)


# --- a session that goes well, step by step -------------------------------------------------------------------


def test_a_session_from_start_to_the_saved_text(open_page: OpenPage) -> None:
    with ScriptedServer(listen) as server:
        page = open_page(server.url)
        start_with_partial(page)
        expect(page.locator("#status")).to_have_text("Listening")
        expect(page.locator(MOVING)).to_have_text("it was the wor")
        press(page, "Stop")
        expect(page.locator(LOCKED)).to_have_text([BEST["text"], WORST["text"]])
        expect(page.locator("#partial")).to_be_hidden()
        expect(page.locator("#status")).to_have_text("Finished")
        assert download(page) == "[0:00] It was the best of times,\n[0:02] it was the worst of times.\n"
        page.get_by_label("Copy and download text with times").uncheck()
        assert download(page) == "It was the best of times,\nit was the worst of times.\n"
    assert server.failures == []
    assert server.peers[0].commands == ["START", "STOP"]
    assert server.peers[0].close_code == 1000
    assert set(server.peers[0].frame_bytes[:-1]) == {1920}, "60 ms each, but for the last"


def test_the_copied_text_is_the_saved_text(open_page: OpenPage) -> None:
    with ScriptedServer(listen) as server:
        page = open_page(server.url, permissions=["clipboard-read", "clipboard-write", "microphone"])
        start_with_partial(page)
        press(page, "Stop")
        expect(page.locator("#status")).to_have_text("Finished")
        place = page.locator("#copy").bounding_box()
        press(page, "Copy")
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == download(page)
        expect(page.get_by_role("button", name="Downloaded")).to_be_visible()
        assert page.locator("#copy").bounding_box() == place, "words that change move no button"


def test_language_and_hotwords_follow_start_and_may_change_on_the_way(open_page: OpenPage) -> None:
    def scene(peer: Peer) -> None:
        peer.begin()
        settings = {**SETTINGS, **peer.asked}
        peer.read_until("LANGUAGE:zh")
        peer.error("unknown language: zh")
        peer.read_until("HOTWORDS:Dickens")
        peer.tell("settings", settings={**settings, "hotwords": ["Dickens"]})
        peer.tell("warning", code="hotwords", message="they are a hint")
        peer.read_until("POSTPROCESS_HOTWORDS:GPU=>graphics card")
        peer.tell("settings", settings={**settings, "replacements": {"GPU": "graphics card"}})
        peer.read_until("STOP")
        peer.finish([])

    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        page.get_by_label("Language").select_option("en")
        page.get_by_label("Hotwords").fill("Dickens, 双城记")
        page.get_by_text("Replacements", exact=True).click()
        page.get_by_role("textbox", name="Replacements").fill("gee pee you => GPU\nsee → C")
        press(page, "Start")
        expect(page.locator("#hotwords-hint")).to_have_text("2 hotwords in force.")
        expect(page.locator("#replacements-hint")).to_have_text("2 replacements in force.")
        expect(page.locator("#language-hint")).to_have_text("In force: English.")
        page.get_by_label("Language").select_option("zh")
        expect(page.locator("#notices")).to_contain_text("The server says: unknown language: zh")
        page.get_by_label("Hotwords").fill("Dickens")
        page.get_by_role("textbox", name="Replacements").fill("no pair")
        expect(page.locator("#hotwords-hint")).to_have_text("1 hotword in force. They are a hint.")
        page.get_by_label("Hotwords").focus()
        expect(page.locator("#replacements-hint")).to_contain_text("“no pair” is no replacement.")
        page.get_by_role("textbox", name="Replacements").fill("GPU->graphics card")
        page.get_by_label("Hotwords").focus()
        expect(page.locator("#replacements-hint")).to_have_text("1 replacement in force.")
        press(page, "Stop")
        expect(page.locator("#status")).to_have_text("Finished")
        assert server.peers[0].commands == [
            "START",
            "LANGUAGE:zh",
            "HOTWORDS:Dickens",
            "POSTPROCESS_HOTWORDS:GPU=>graphics card",
            "STOP",
        ]
        assert server.peers[0].asked == {
            "protocol": 2,
            "words": True,
            "events": False,
            "language": "en",
            "hotwords": ["Dickens", "双城记"],
            "replacements": {"gee pee you": "GPU", "see": "C"},
        }
        page.reload()
        expect(page.get_by_label("Language")).to_have_value("zh")
        expect(page.get_by_label("Hotwords")).to_have_value("Dickens")
        expect(page.get_by_role("textbox", name="Replacements")).to_have_value("GPU->graphics card")
    assert server.failures == []


def test_the_final_is_shown_however_late_it_comes(open_page: OpenPage) -> None:
    def scene(peer: Peer) -> None:
        peer.begin()
        peer.read_audio(300)
        peer.result([BEST], "it was")
        peer.read_until("STOP")
        time.sleep(10)
        peer.finish([BEST, WORST])

    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        start_with_partial(page)
        press(page, "Stop")
        expect(page.locator("#status")).to_have_text("Waiting for the final…")
        expect(page.locator("#waited")).to_have_text("0:03")
        expect(page.locator(MOVING)).to_have_text("it was")
        expect(page.locator(LOCKED)).to_have_count(2)
        expect(page.locator("#status")).to_have_text("Finished")
        expect(page.locator("#waited")).to_be_empty()


def test_waiting_for_the_final_can_be_given_up(open_page: OpenPage) -> None:
    def scene(peer: Peer) -> None:
        peer.begin()
        peer.read_audio(300)
        peer.result([BEST], "it was")

    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        start_with_partial(page)
        press(page, "Stop")
        press(page, "Stop waiting")
        expect(page.locator("#status")).to_have_text("Stopped early")
        assert download(page) == "[0:00] It was the best of times,\n[0:00] (not confirmed) it was\n"


def test_speakers_are_labelled_and_may_be_revised(open_page: OpenPage) -> None:
    texts = [("one", 0), ("two", 0), ("three", 1)]

    def scene(peer: Peer) -> None:
        peer.begin()
        peer.read_audio(120)
        peer.result([sentence(text, i * 1000, i * 1000 + 900, spk) for i, (text, spk) in enumerate(texts)])
        peer.read_until("STOP")
        peer.finish([sentence(text, i * 1000, i * 1000 + 900, i % 2) for i, (text, _) in enumerate(texts)])

    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        press(page, "Start")
        expect(page.locator(".speaker")).to_have_text(["Speaker 1", "Speaker 2"])
        press(page, "Stop")
        expect(page.locator(".speaker")).to_have_text(["Speaker 1", "Speaker 2", "Speaker 1"])
        assert download(page).splitlines() == [
            "[0:00] Speaker 1: one",
            "[0:01] Speaker 2: two",
            "[0:02] Speaker 1: three",
        ]


def test_in_client_mode_commit_closes_an_utterance_and_the_session_goes_on(open_page: OpenPage) -> None:
    def scene(peer: Peer) -> None:
        peer.begin()
        peer.read_audio(120)
        peer.result([], "it was the best")
        peer.read_until("COMMIT")
        peer.result([BEST], "it was the worst", start_ms=2000)
        peer.tell("committed", id=None)
        peer.read_until("STOP")
        peer.finish([BEST, WORST])

    with ScriptedServer(scene, health={"engine": "scripted", "endpointing": "client"}) as server:
        page = open_page(server.url)
        expect(page.locator("#endpointing")).to_have_text("When you press Commit, or Ctrl Shift Enter.")
        press(page, "Start")
        expect(page.locator(MOVING)).to_have_text("it was the best")
        page.keyboard.press("Control+Shift+Enter")
        expect(page.locator(LOCKED)).to_have_text([BEST["text"]])
        expect(page.locator(MOVING)).to_have_text("it was the worst")
        press(page, "Stop")
        expect(page.locator(LOCKED)).to_have_text([BEST["text"], WORST["text"]])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("fixed:600", "After 0.6 s of silence."),
        ("dynamic", re.compile(r"2 s for a short sentence.*--endpointing fixed:600")),
        (
            "dynamic:5000:1500,inf:300",
            "After a pause: 1.5 s for a short sentence, down to 0.3 s as it grows.",
        ),
        (None, "The server does not say."),
    ],
)
def test_the_page_says_when_sentences_end(
    open_page: OpenPage, value: str | None, words: str | re.Pattern[str]
) -> None:
    with ScriptedServer(listen, health={"engine": "scripted", "endpointing": value}) as server:
        page = open_page(server.url)
        expect(page.locator("#endpointing")).to_have_text(words)
        expect(page.get_by_role("button", name="Commit")).to_be_hidden()


def test_a_second_session_is_added_below_and_clearing_can_be_undone(open_page: OpenPage) -> None:
    with ScriptedServer(listen) as server:
        page = open_page(server.url)
        for count in (2, 4):
            press(page, "Start")
            expect(page.locator(MOVING)).to_have_text("it was the wor")
            press(page, "Stop")
            expect(page.locator(LOCKED)).to_have_count(count)
            expect(page.locator("#status")).to_have_text("Finished")
            expect(page.locator(".divider")).to_have_count(0 if count == 2 else 2)
        headings = [re.compile("^Session 1, "), re.compile("^Session 2, ")]
        expect(page.locator("#locked > *")).to_contain_text(
            ["Session 1", BEST["text"], "Session 2", BEST["text"]]
        )
        before = download(page)
        assert [line[:11] for line in before.splitlines() if line.startswith("Session")] == [
            "Session 1, ",
            "Session 2, ",
        ]
        press(page, "Clear")
        expect(page.locator(LOCKED)).to_have_count(0)
        press(page, "Bring it back")
        assert download(page) == before
        expect(page.locator(".divider")).to_have_text(headings)


def test_another_server_is_named_on_the_page(open_page: OpenPage) -> None:
    with ScriptedServer(listen) as here, ScriptedServer(listen) as there:
        page = open_page(f"{here.url}?server=127.0.0.1:{there.port}")
        expect(page.get_by_label("Server", exact=True)).to_have_value(f"127.0.0.1:{there.port}")
        expect(page.locator("#destination")).to_have_text(f"127.0.0.1:{there.port}")
        start_with_partial(page)
        assert here.peers == []
        assert len(there.peers) == 1


def test_the_page_has_the_name_of_the_package(open_page: OpenPage) -> None:
    with ScriptedServer(listen) as server:
        page = open_page(server.url)
        expect(page.locator("header")).to_contain_text("realtime-server")
        assert page.title() == "Live transcript · realtime-server"
        press(page, "Start")
        expect(page.locator("#status")).to_have_text("Listening")
        assert page.title() == "Listening · realtime-server"


@pytest.mark.parametrize("earlier", [False, True])
def test_a_session_without_speech_says_so(open_page: OpenPage, tmp_path: Path, *, earlier: bool) -> None:
    path = tmp_path / "silence.wav"
    write_wav(path, np.zeros(8000), 16000)

    def scene(peer: Peer) -> None:
        (listen if earlier and len(server.peers) == 1 else hear_all)(peer)

    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        if earlier:
            start_with_partial(page)
            press(page, "Stop")
            expect(page.locator("#status")).to_have_text("Finished")
            expect(page.locator("#notices")).to_be_empty()
        send_file(page, path, fast=True)
        expect(page.locator("#status")).to_have_text("Finished")
        expect(page.locator(".notice strong")).to_have_text("No speech was heard.")
        expect(page.locator("#notices")).to_contain_text("from before" if earlier else "heard.")
        expect(page.locator(LOCKED)).to_have_count(2 if earlier else 0)
        page.get_by_label("Microphone", exact=True).check()
        press(page, "Start")
        expect(page.locator("#notices")).to_be_empty()
        press(page, "Stop")
        expect(page.locator("#notices")).to_contain_text("No speech was heard.")
        expect(page.locator("#notices")).to_contain_text("check the input and its level")


def test_speech_that_was_not_recognized_is_not_called_silence(open_page: OpenPage) -> None:
    def scene(peer: Peer) -> None:
        peer.begin()
        peer.error("unknown language: xy")
        peer.read_audio(300)
        peer.result([])
        if len(server.peers) == 1:
            peer.fail_segment("0.0 s to 0.3 s could not be recognized")
        peer.read_until("STOP")
        peer.finish([])

    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        for count in (2, 1):
            press(page, "Start")
            expect(page.locator("#notices").get_by_text("The server says:")).to_have_count(count)
            expect(page.locator("#lag")).to_have_text(re.compile("behind"))
            press(page, "Stop")
            expect(page.locator("#status")).to_have_text("Finished")
            expect(page.get_by_text("No speech was heard.")).to_have_count(2 - count)


def test_the_page_works_from_disk(open_page: OpenPage) -> None:
    with ScriptedServer(listen) as server:
        page = open_page(PAGE.as_uri())
        expect(page.get_by_label("Server", exact=True)).to_have_value("ws://localhost:10095/")
        page.get_by_label("Server", exact=True).fill("nonsense://x")
        press(page, "Start")
        expect(page.locator("#notices")).to_contain_text("A server address begins with ws:// or wss://")
        page.get_by_label("Server", exact=True).fill(f"127.0.0.1:{server.port}")
        start_with_partial(page)
        press(page, "Stop")
        expect(page.locator("#status")).to_have_text("Finished")
