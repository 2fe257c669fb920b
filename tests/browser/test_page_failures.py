"""The page when things go wrong: it says what happened and what to do, and loses no text."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import numpy as np
import pytest

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
from tests.browser.recordings import tones, write_wav
from tests.browser.scripted_server import SETTINGS, Peer, ScriptedServer, sentence

pytest.importorskip("playwright.sync_api", reason="run scripts/install_browser.sh")

from playwright.sync_api import expect

pytestmark = pytest.mark.browser


def test_a_full_server_is_named_and_trying_again_works(open_page: OpenPage) -> None:
    with ScriptedServer(listen, refuse=503) as server:
        page = open_page(server.url)
        press(page, "Start")
        expect(page.locator("#notices")).to_contain_text(
            "The server takes no further session now. It says: “full”. Wait a moment, then try again."
        )
        expect(page.locator("#status")).to_have_text("Not connected")
        server.refuse = None
        press(page, "Try again")
        expect(page.locator(MOVING)).to_have_text("it was the wor")
        expect(page.locator("#notices")).to_be_empty()


def test_a_server_that_is_gone_is_named(open_page: OpenPage) -> None:
    with ScriptedServer(listen) as server:
        page = open_page(server.url)
        expect(page.locator("#engine")).to_have_text("scripted")
        address = f"127.0.0.1:{server.port}"
    press(page, "Start")
    expect(page.locator("#notices")).to_contain_text(f"No server answers at {address}.")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (None, "The connection broke off."),
        (1000, "The server ended the session."),
        (1003, "did not accept what this page sent"),
        (1008, "reached a limit"),
        (1009, "too big"),
        (1011, "internal error"),
        (1012, "shutting down or restarting"),
        (1013, "too much to do"),
        (4000, "closed with code 4000"),
    ],
)
def test_a_lost_connection_is_explained_and_no_text_is_lost(
    open_page: OpenPage, code: int | None, words: str
) -> None:
    def scene(peer: Peer) -> None:
        peer.begin()
        peer.read_audio(180)
        peer.result([BEST], "it was the wor", start_ms=2000)
        peer.read_audio(180)
        peer.drop() if code is None else peer.close(code, "because")

    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        press(page, "Start")
        expect(page.locator("#notices")).to_contain_text(words)
        expect(page.locator("#notices")).to_contain_text(
            re.compile("start again|reload|press start", re.IGNORECASE)
        )
        if code is not None:
            expect(page.locator("#notices")).to_contain_text("It says: “because”.")
        expect(page.locator("#status")).to_have_text("Disconnected")
        expect(page.locator(LOCKED)).to_have_text([BEST["text"]])
        expect(page.locator(".unconfirmed .text")).to_have_text("it was the wor")
        expect(page.locator("#partial")).to_be_hidden()
        assert download(page).splitlines() == [
            "[0:00] It was the best of times,",
            "[0:02] (not confirmed) it was the wor",
        ]
        again = page.get_by_role("button", name="Start again")
        expect(again).to_have_count(0 if code in (1003, 1009) else 1)
        press(page, "Start" if code in (1003, 1009) else "Start again")
        expect(page.locator(LOCKED)).to_have_count(2)
        expect(page.locator(".unconfirmed").first).to_be_visible()


LIMIT = "the session reached its limit of 2 s of audio"
KEPT = "The text until then is kept."


@pytest.mark.parametrize(
    ("error", "code", "reason", "words"),
    [
        (
            None,
            1012,
            "the server stops",
            "The server is shutting down or restarting. Wait until it is back, then start again.",
        ),
        (LIMIT, 1008, "limit", f"The session reached its limit of 2 s of audio. {KEPT}"),
        ("VAD failed; start a new session", 1011, "internal", f"VAD failed; start a new session. {KEPT}"),
        (None, 1011, "internal error", "The server had an internal error. Its log has the cause."),
        (
            None,
            1013,
            "no room!",
            "The server has too much to do. It says: “no room!”. Wait a moment, then start again.",
        ),
    ],
)
def test_the_end_of_a_session_is_said_once_and_in_sentences(
    open_page: OpenPage, error: str | None, code: int, reason: str, words: str
) -> None:
    def scene(peer: Peer) -> None:
        peer.begin()
        peer.read_audio(180)
        peer.final([BEST])
        if error:
            peer.error(error, fatal=True)
        peer.close(code, reason)

    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        press(page, "Start")
        expect(page.locator("#status")).to_have_text("Disconnected")
        expect(page.locator(".notice p")).to_have_text([words])
        expect(page.get_by_role("button", name="Start again")).to_be_visible()


def test_an_earlier_error_is_not_taken_for_the_cause(open_page: OpenPage) -> None:
    def scene(peer: Peer) -> None:
        peer.begin()
        peer.error("unknown language: xy")
        peer.close(1011, "internal error")

    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        press(page, "Start")
        expect(page.locator(".notice strong")).to_have_text(
            ["The server says: unknown language: xy.", "The server had an internal error."]
        )


@pytest.mark.parametrize("stopped_first", [False, True])
def test_a_file_that_reaches_a_limit_is_not_finished(
    open_page: OpenPage, tmp_path: Path, *, stopped_first: bool
) -> None:
    path = tmp_path / "tones.wav"
    write_wav(path, tones(16000, 0.5, 300), 16000)

    def scene(peer: Peer) -> None:
        peer.begin()
        if stopped_first:
            peer.read_until("STOP")
        peer.final([BEST])
        peer.error(LIMIT, fatal=True)
        peer.close(1008, "limit")

    with ScriptedServer(scene) as server:
        page = open_page(server.url, microphone=None)
        send_file(page, path, fast=True)
        expect(page.locator("#status")).to_have_text("Disconnected")
        expect(page.locator("#notices")).to_contain_text("The session reached its limit")
        expect(page.locator(LOCKED)).to_have_count(1)
        expect(page.get_by_role("button", name="again")).to_have_count(0)


def test_text_from_the_server_is_text_and_nothing_else(open_page: OpenPage) -> None:
    hostile = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"

    def scene(peer: Peer) -> None:
        peer.begin()
        peer.error(hostile)
        peer.tell("settings", settings={**SETTINGS, "language": hostile})
        peer.tell("warning", code="speakers", message=hostile)
        peer.read_audio(120)
        peer.result([sentence(hostile, 0, 900, 0)], hostile, start_ms=1000)
        peer.close(1011, "<b>bold</b>")

    health = {"engine": hostile, "endpointing": hostile}
    with ScriptedServer(scene, health=health) as server:
        page = open_page(server.url)
        expect(page.locator("#engine")).to_have_text(hostile)
        press(page, "Start")
        expect(page.locator(LOCKED)).to_have_text([hostile])
        expect(page.locator(".unconfirmed .text")).to_have_text(hostile)
        expect(page.locator("#notices")).to_contain_text("<b>bold</b>")
        expect(page.locator("#notices")).to_contain_text(hostile)
        assert page.locator("img, b").count() == 0
        assert "taken" not in page.title()


def test_errors_from_the_server_are_shown_and_counted(open_page: OpenPage) -> None:
    def scene(peer: Peer) -> None:
        peer.begin()
        for _ in range(3):
            peer.fail_segment("a segment could not be recognized")
        peer.error("something else")
        peer.connection.send("no JSON")
        peer.read_until("STOP")
        peer.finish([])

    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        press(page, "Start")
        expect(page.locator(".notice")).to_have_count(3)
        expect(page.locator(".notice").first).to_contain_text("a segment could not be recognized. (3 times)")
        press(page, "Dismiss: The server says: something else.")
        expect(page.locator(".notice")).to_have_count(2)
        press(page, "Stop")
        expect(page.locator("#status")).to_have_text("Finished")


def test_a_sentence_without_words_and_an_attempt_without_text_are_told_apart(open_page: OpenPage) -> None:
    def scene(peer: Peer) -> None:
        peer.begin()
        peer.read_audio(120)
        if len(server.peers) == 1:
            peer.close(1013)
            return
        failed = sentence("", 0, 900, flags=["failed"])
        peer.result([failed])
        peer.fail_segment("the recognizer did not answer")
        peer.read_until("STOP")
        peer.finish([failed, WORST])

    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        press(page, "Start")
        press(page, "Start again")
        expect(page.locator(LOCKED)).to_have_text(["(not recognized)"])
        press(page, "Stop")
        expect(page.locator(LOCKED)).to_have_text(["(not recognized)", WORST["text"]])
        expect(page.locator(".divider")).to_have_count(0)
        assert download(page) == f"[0:00] (not recognized)\n[0:02] {WORST['text']}\n"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("NotAllowedError", "does not let this page use the microphone"),
        ("NotFoundError", "No microphone was found."),
        ("NotReadableError", "Another program may hold it."),
        ("OverconstrainedError", "no longer there"),
    ],
)
def test_a_microphone_that_cannot_be_had_is_explained(open_page: OpenPage, name: str, words: str) -> None:
    with ScriptedServer(listen) as server:
        page = open_page(server.url)
        page.evaluate(
            "(name) => { navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('', name); }; }",
            name,
        )
        press(page, "Start")
        expect(page.locator("#notices")).to_contain_text(words)
        expect(page.get_by_role("button", name=re.compile("start|again", re.IGNORECASE))).to_have_count(1)
        expect(page.get_by_role("button", name="Start", exact=True)).to_be_enabled()
        expect(page.locator("#status")).to_have_text("Not started")
        page.get_by_label("File", exact=True).check()
        expect(page.locator("#notices")).to_be_empty()
        expect(page.locator("#status")).to_have_text("Ready")


def test_without_a_secure_context_the_page_says_what_works(open_page: OpenPage, tmp_path: Path) -> None:
    path = tmp_path / "tones.wav"
    write_wav(path, tones(16000, 0.5, 300), 16000)
    with ScriptedServer(hear_all) as server:
        page = open_page(f"http://insecure.test:{server.port}/")
        press(page, "Start")
        expect(page.locator("#notices")).to_contain_text("only for a page on localhost or loaded over https")
        send_file(page, path)
        expect(page.locator("#status")).to_have_text("Finished")


def test_a_muted_microphone_and_an_unplugged_one_are_noticed(open_page: OpenPage, tmp_path: Path) -> None:
    silence = tmp_path / "silence.wav"
    write_wav(silence, np.zeros(48000 * 10), 48000)
    with ScriptedServer(hear_all) as server:
        page = open_page(server.url, microphone=silence)
        page.evaluate(
            "() => { const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);"
            "navigator.mediaDevices.getUserMedia = async (c) => (window.opened = await open(c)); }"
        )
        press(page, "Start")
        expect(page.locator("#notices")).to_contain_text("The microphone sends no sound at all.")
        page.evaluate("window.opened.getAudioTracks()[0].dispatchEvent(new Event('ended'))")
        expect(page.locator("#notices")).to_contain_text("The microphone was disconnected.")
        expect(page.locator("#status")).to_have_text("Finished")


def test_leaving_the_page_sends_stop(open_page: OpenPage) -> None:
    stopped = threading.Event()

    def scene(peer: Peer) -> None:
        try:
            listen(peer)
        finally:
            stopped.set()

    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        start_with_partial(page)
        page.on("dialog", lambda dialog: dialog.accept())
        page.goto("about:blank")
        assert stopped.wait(10)
        assert server.peers[0].commands == ["START", "STOP"]


def test_a_start_can_be_cancelled(open_page: OpenPage) -> None:
    with ScriptedServer(listen) as server:
        page = open_page(server.url)
        page.evaluate("() => { navigator.mediaDevices.getUserMedia = () => new Promise(() => {}); }")
        press(page, "Start")
        press(page, "Cancel")
        expect(page.locator("#status")).to_have_text("Ready")
        assert server.peers == []
