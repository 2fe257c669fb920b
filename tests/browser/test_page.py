"""The page, in Debian's chromium: against the real server, and against scripts that misbehave on purpose."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.browser.recordings import level_at, tones, write_wav
from tests.browser.scripted_server import PAGE, Peer, ScriptedServer, sentence

pytest.importorskip("playwright.sync_api", reason="run scripts/install_browser.sh")

from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

OpenPage = Callable[..., Page]

BEST = sentence("It was the best of times,", 400, 1900)
WORST = sentence("it was the worst of times.", 2000, 3600)
LOCKED = "#locked .sentence:not(.unconfirmed) .text"


def listen(peer: Peer) -> None:
    """Scene: a session that hears two sentences, shows a partial of a third, and finishes well."""
    peer.read_until("START")
    peer.event("started")
    peer.read_audio(300)
    peer.result([], "it was")
    peer.read_audio(300)
    peer.result([BEST], "it was the wor", start_ms=2000)
    peer.read_until("STOP")
    peer.finish([BEST, WORST])


def start_with_partial(page: Page) -> None:
    """Press Start and wait until a sentence is locked and a partial moves."""
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator(LOCKED)).to_have_count(1)
    expect(page.locator("#partial-text")).to_be_visible()


def wait_until(page: Page, condition: str) -> None:
    """Wait for a JavaScript condition; Playwright's own wait needs eval, which the strict policy forbids."""
    deadline = time.monotonic() + 10
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(20)


def download(page: Page) -> str:
    with page.expect_download() as started:
        page.get_by_role("button", name="Download").click()
    return Path(started.value.path()).read_text(encoding="utf-8")


# --- a session that goes well ---------------------------------------------------------------------------------


def test_a_session_from_start_to_the_saved_text(open_page: OpenPage) -> None:
    with ScriptedServer(listen) as server:
        page = open_page(server.url)
        start_with_partial(page)
        expect(page.locator("#status")).to_have_text("Listening")
        expect(page.locator("#partial-text")).to_have_text("it was the wor")
        page.get_by_role("button", name="Stop").click()
        expect(page.locator(LOCKED)).to_have_text([BEST["text"], WORST["text"]])
        expect(page.locator("#partial")).to_be_hidden()
        expect(page.locator("#status")).to_have_text("Finished")
        assert download(page) == "[0:00] It was the best of times,\n[0:02] it was the worst of times.\n"
        page.get_by_label("Copy and download with times").uncheck()
        assert download(page) == "It was the best of times,\nit was the worst of times.\n"
    assert server.failures == []
    assert server.peers[0].commands == ["START", "STOP"]
    assert server.peers[0].close_code == 1000
    assert set(server.peers[0].frame_bytes[:-1]) == {1920}, "60 ms each, but for the last"


def test_the_copied_text_is_the_saved_text(open_page: OpenPage) -> None:
    with ScriptedServer(listen) as server:
        page = open_page(server.url, permissions=["clipboard-read", "clipboard-write", "microphone"])
        start_with_partial(page)
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("#status")).to_have_text("Finished")
        page.get_by_role("button", name="Copy").click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == download(page)


def test_language_and_hotwords_follow_start_and_may_change_on_the_way(open_page: OpenPage) -> None:
    def scene(peer: Peer) -> None:
        peer.read_until("HOTWORDS:Dickens, 双城记")
        peer.event("started")
        peer.event("language_set", language="en")
        peer.event("hotwords_set", hotwords=["Dickens", "双城记"])
        peer.read_until("LANGUAGE:zh")
        peer.event("error", error="unknown language: zh")
        peer.read_until("STOP")
        peer.finish([])

    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        page.get_by_label("Language").select_option("en")
        page.get_by_label("Hotwords").fill("Dickens, 双城记")
        page.get_by_role("button", name="Start", exact=True).click()
        expect(page.locator("#hotwords-hint")).to_have_text("2 hotwords in force.")
        expect(page.locator("#language-hint")).to_have_text("In force: English.")
        page.get_by_label("Language").select_option("zh")
        expect(page.locator("#notices")).to_contain_text("The server says: unknown language: zh")
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("#status")).to_have_text("Finished")
        assert server.peers[0].commands == ["START", "LANGUAGE:en", "HOTWORDS:Dickens, 双城记", "LANGUAGE:zh", "STOP"]
        page.reload()
        expect(page.get_by_label("Language")).to_have_value("zh")
        expect(page.get_by_label("Hotwords")).to_have_value("Dickens, 双城记")
    assert server.failures == []


def test_the_final_is_shown_however_late_it_comes(open_page: OpenPage) -> None:
    def scene(peer: Peer) -> None:
        peer.read_until("START")
        peer.event("started")
        peer.read_audio(300)
        peer.result([BEST], "it was")
        peer.read_until("STOP")
        time.sleep(10)
        peer.finish([BEST, WORST])

    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        start_with_partial(page)
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("#status")).to_have_text("Waiting for the last words…")
        expect(page.locator("#waited")).to_have_text("0:03")
        expect(page.locator("#partial-text")).to_have_text("it was")
        expect(page.locator(LOCKED)).to_have_count(2)
        expect(page.locator("#status")).to_have_text("Finished")
        expect(page.locator("#waited")).to_be_empty()


def test_waiting_for_the_final_can_be_given_up(open_page: OpenPage) -> None:
    def scene(peer: Peer) -> None:
        peer.read_until("START")
        peer.event("started")
        peer.read_audio(300)
        peer.result([BEST], "it was")

    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        start_with_partial(page)
        page.get_by_role("button", name="Stop").click()
        page.get_by_role("button", name="Stop waiting").click()
        expect(page.locator("#status")).to_have_text("Stopped without the last words")
        assert download(page) == "[0:00] It was the best of times,\n[0:00] (not confirmed) it was\n"


def test_speakers_are_labelled_and_may_be_revised(open_page: OpenPage) -> None:
    texts = [("one", 0), ("two", 0), ("three", 1)]

    def scene(peer: Peer) -> None:
        peer.read_until("START")
        peer.event("started")
        peer.read_audio(120)
        peer.result([sentence(text, i * 1000, i * 1000 + 900, spk) for i, (text, spk) in enumerate(texts)])
        peer.read_until("STOP")
        peer.finish([sentence(text, i * 1000, i * 1000 + 900, i % 2) for i, (text, _) in enumerate(texts)])

    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        page.get_by_role("button", name="Start", exact=True).click()
        expect(page.locator(".speaker")).to_have_text(["Speaker 1", "Speaker 2"])
        page.get_by_role("button", name="Stop").click()
        expect(page.locator(".speaker")).to_have_text(["Speaker 1", "Speaker 2", "Speaker 1"])
        assert download(page).splitlines() == [
            "[0:00] Speaker 1: one",
            "[0:01] Speaker 2: two",
            "[0:02] Speaker 1: three",
        ]


def test_in_client_mode_commit_closes_an_utterance_and_the_next_list_begins_anew(open_page: OpenPage) -> None:
    def scene(peer: Peer) -> None:
        peer.read_until("START")
        peer.event("started")
        peer.read_audio(120)
        peer.result([], "it was the best")
        peer.read_until("COMMIT")
        peer.result([BEST], final=True)
        peer.result([], "it was the worst", start_ms=2000)
        peer.read_until("STOP")
        peer.finish([WORST])

    with ScriptedServer(scene, health={"engine": "scripted", "endpointing": "client"}) as server:
        page = open_page(server.url)
        expect(page.locator("#endpointing")).to_have_text("When you press Commit.")
        page.get_by_role("button", name="Start", exact=True).click()
        expect(page.locator("#partial-text")).to_have_text("it was the best")
        page.get_by_role("button", name="Commit").click()
        expect(page.locator(LOCKED)).to_have_text([BEST["text"]])
        expect(page.locator("#partial-text")).to_have_text("it was the worst")
        page.get_by_role("button", name="Stop").click()
        expect(page.locator(LOCKED)).to_have_text([BEST["text"], WORST["text"]])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("fixed:600", "After 0.6 s of silence."),
        ("dynamic", re.compile(r"2 s for a short sentence.*--endpointing fixed:600")),
        ("dynamic:5000:1500,inf:300", "After a pause: 1.5 s for a short sentence, down to 0.3 s as it grows."),
        (None, "The server does not say."),
    ],
)
def test_the_page_says_when_sentences_end(open_page: OpenPage, value: str | None, words: str | re.Pattern[str]) -> None:
    with ScriptedServer(listen, health={"engine": "scripted", "endpointing": value}) as server:
        page = open_page(server.url)
        expect(page.locator("#endpointing")).to_have_text(words)
        expect(page.get_by_role("button", name="Commit")).to_be_hidden()


def test_a_second_session_is_added_below_and_clearing_can_be_undone(open_page: OpenPage) -> None:
    with ScriptedServer(listen) as server:
        page = open_page(server.url)
        for count in (2, 4):
            page.get_by_role("button", name="Start", exact=True).click()
            expect(page.locator("#partial-text")).to_have_text("it was the wor")
            page.get_by_role("button", name="Stop").click()
            expect(page.locator(LOCKED)).to_have_count(count)
            expect(page.locator("#status")).to_have_text("Finished")
        expect(page.locator(".divider")).to_have_text(re.compile("^Session 2, "))
        before = download(page)
        page.get_by_role("button", name="Clear").click()
        expect(page.locator(LOCKED)).to_have_count(0)
        page.get_by_role("button", name="Bring it back").click()
        assert download(page) == before


# --- sound ----------------------------------------------------------------------------------------------------


def test_the_microphone_arrives_whole_and_nothing_folds_back(open_page: OpenPage, tmp_path: Path) -> None:
    recording = tmp_path / "tones.wav"
    write_wav(recording, tones(48000, 6, 1000, 11000), 48000)

    def scene(peer: Peer) -> None:
        peer.read_until("START")
        peer.event("started")
        peer.read_until("STOP")
        peer.finish([])

    with ScriptedServer(scene) as server:
        page = open_page(server.url, microphone=recording)
        page.get_by_role("button", name="Start", exact=True).click()
        page.wait_for_timeout(3000)
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("#status")).to_have_text("Finished")
        heard = np.frombuffer(bytes(server.peers[0].audio), "<i2")[8000:40000] / 32768
    assert len(heard) == 32000
    assert level_at(heard, 1000) > -30
    assert level_at(heard, 5000) < level_at(heard, 1000) - 60, "11 kHz would fold to 5 kHz"


RESAMPLE = """async ([rate, samples]) => {
    const source = document.getElementById("capture-worklet").textContent;
    const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    const context = new OfflineAudioContext(1, samples.length, rate);
    await context.audioWorklet.addModule(url);
    const buffer = new AudioBuffer({ length: samples.length, sampleRate: rate });
    buffer.copyToChannel(Float32Array.from(samples), 0);
    const node = new AudioWorkletNode(context, "capture");
    const pcm = [];
    node.port.onmessage = ({ data }) => pcm.push(...data.pcm);
    const player = new AudioBufferSourceNode(context, { buffer });
    player.connect(node);
    player.start();
    node.connect(context.destination);
    await context.startRendering();
    await new Promise((resolve) => setTimeout(resolve, 300));
    return pcm;
}"""


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 32000, 44100, 48000, 96000])
def test_the_resampler_has_no_seams_at_any_rate(open_page: OpenPage, rate: int) -> None:
    frequency, seconds = 440.0, 2.0
    samples = tones(rate, seconds, frequency)
    with ScriptedServer(listen) as server:
        page = open_page(server.url)
        pcm = np.array(page.evaluate(RESAMPLE, [rate, samples.tolist()])) / 32768
    assert seconds * 16000 - 1200 < len(pcm) <= seconds * 16000, "all whole frames but for the filter's length"
    inner = slice(800, -800)
    expected = tones(16000, seconds, frequency)[: len(pcm)]
    error = np.abs(pcm[inner] - expected[: len(pcm)][inner]).max()
    assert error < 3e-4, "the same sine, at the same time, in every sample"


def send_file(page: Page, path: Path, *, fast: bool = False) -> None:
    page.get_by_label("File", exact=True).check()
    page.get_by_label("Audio file").set_input_files(path)
    if fast:
        page.get_by_label("As fast as possible").check()
    page.get_by_role("button", name="Start", exact=True).click()


def hear_all(peer: Peer) -> None:
    """Scene: account for every frame, and finish."""
    peer.read_until("START")
    peer.event("started")
    while peer.read() != "STOP":
        peer.result([])
    peer.finish([])


def test_a_file_goes_at_the_pace_of_speech_and_in_full(open_page: OpenPage, tmp_path: Path) -> None:
    path = tmp_path / "tones.wav"
    write_wav(path, tones(44100, 3.01, 1000, 11000), 44100)
    with ScriptedServer(hear_all) as server:
        page = open_page(server.url, microphone=None)
        began = time.monotonic()
        send_file(page, path)
        expect(page.locator("#clock")).to_have_text("0:01 / 0:03")
        expect(page.locator("#lag")).to_have_text(re.compile(r"^\d\.\d s behind$"))
        expect(page.locator("#status")).to_have_text("Finished")
        assert 2.9 < time.monotonic() - began < 5
        peer = server.peers[0]
    assert abs(len(peer.audio) - 3.01 * 32000) <= 64
    assert set(peer.frame_bytes[:-1]) == {1920}
    heard = np.frombuffer(bytes(peer.audio), "<i2") / 32768
    assert level_at(heard, 1000) > -16
    assert level_at(heard, 5000) < -70, "11 kHz would fold to 5 kHz"


def test_a_fast_file_waits_for_a_slow_recognizer(open_page: OpenPage, tmp_path: Path) -> None:
    path = tmp_path / "long.wav"
    write_wav(path, tones(16000, 150, 300), 16000)
    caught_up = threading.Event()

    def scene(peer: Peer) -> None:
        peer.read_until("START")
        peer.event("started")
        peer.read_audio(59_000)
        with pytest.raises(TimeoutError):
            while True:
                peer.read(1.0)
        assert 59_000 <= peer.audio_ms <= 61_000
        peer.result([BEST])
        caught_up.set()
        while peer.read() != "STOP":
            if peer.audio_ms % 1200 == 0:
                peer.result([BEST])
        peer.finish([BEST])

    with ScriptedServer(scene) as server:
        page = open_page(server.url, microphone=None)
        send_file(page, path, fast=True)
        assert caught_up.wait(15)
        expect(page.locator("#status")).to_have_text("Finished")
        assert server.peers[0].audio_ms == 150_000
    assert server.failures == []


def test_a_file_may_be_stopped_or_dropped_on_the_page(open_page: OpenPage, tmp_path: Path) -> None:
    path = tmp_path / "tones.wav"
    write_wav(path, tones(16000, 20, 300), 16000)
    with ScriptedServer(hear_all) as server:
        page = open_page(server.url, microphone=None)
        transfer = page.evaluate_handle(
            "(bytes) => { const t = new DataTransfer();"
            "t.items.add(new File([Uint8Array.from(bytes)], 'dropped.wav', { type: 'audio/wav' })); return t; }",
            list(path.read_bytes()),
        )
        page.dispatch_event("body", "drop", {"dataTransfer": transfer})
        expect(page.get_by_label("File", exact=True)).to_be_checked()
        page.get_by_role("button", name="Start", exact=True).click()
        expect(page.locator("#clock")).to_have_text("0:01 / 0:20")
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("#status")).to_have_text("Finished")
        assert server.peers[0].audio_ms < 5000


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"this is no sound", "cannot read “words.wav” as audio"), (None, "No file is chosen.")],
)
def test_a_file_that_cannot_be_sent_is_named(
    open_page: OpenPage, tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "words.wav"
    with ScriptedServer(listen) as server:
        page = open_page(server.url, microphone=None)
        page.get_by_label("File", exact=True).check()
        if content is not None:
            path.write_bytes(content)
            page.get_by_label("Audio file").set_input_files(path)
        page.get_by_role("button", name="Start", exact=True).click()
        expect(page.locator("#notices")).to_contain_text(words)
        expect(page.locator("#status")).to_have_text("Not started")
        assert server.peers == []


# --- sessions that go wrong -----------------------------------------------------------------------------------


def test_a_full_server_is_named_and_start_again_works(open_page: OpenPage) -> None:
    with ScriptedServer(listen, refuse=503) as server:
        page = open_page(server.url)
        page.get_by_role("button", name="Start", exact=True).click()
        expect(page.locator("#notices")).to_contain_text("The server takes no further session now. It says: “full”")
        expect(page.locator("#status")).to_have_text("Not connected")
        server.refuse = None
        page.get_by_role("button", name="Start again").click()
        expect(page.locator("#partial-text")).to_have_text("it was the wor")
        expect(page.locator("#notices")).to_be_empty()


def test_a_server_that_is_gone_is_named(open_page: OpenPage) -> None:
    with ScriptedServer(listen) as server:
        page = open_page(server.url)
        expect(page.locator("#engine")).to_have_text("scripted")
        address = f"127.0.0.1:{server.port}"
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator("#notices")).to_contain_text(f"No server answers at {address}.")


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
def test_a_lost_connection_is_explained_and_no_text_is_lost(open_page: OpenPage, code: int | None, words: str) -> None:
    def scene(peer: Peer) -> None:
        peer.read_until("START")
        peer.event("started")
        peer.read_audio(180)
        peer.result([BEST], "it was the wor", start_ms=2000)
        peer.read_audio(180)
        peer.drop() if code is None else peer.close(code, "because")

    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        page.get_by_role("button", name="Start", exact=True).click()
        expect(page.locator("#notices")).to_contain_text(words)
        expect(page.locator("#notices")).to_contain_text(re.compile("start again|reload", re.IGNORECASE))
        if code is not None:
            expect(page.locator("#notices")).to_contain_text("It says: “because”")
        expect(page.locator("#status")).to_have_text("Disconnected")
        expect(page.locator(LOCKED)).to_have_text([BEST["text"]])
        expect(page.locator(".unconfirmed .text")).to_have_text("it was the wor")
        expect(page.locator("#partial")).to_be_hidden()
        assert download(page).splitlines() == [
            "[0:00] It was the best of times,",
            "[0:02] (not confirmed) it was the wor",
        ]
        page.get_by_role("button", name="Start again").click()
        expect(page.locator(LOCKED)).to_have_count(2)
        expect(page.locator(".unconfirmed").first).to_be_visible()


def test_text_from_the_server_is_text_and_nothing_else(open_page: OpenPage) -> None:
    hostile = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"

    def scene(peer: Peer) -> None:
        peer.read_until("START")
        peer.event("started")
        peer.event("error", error=hostile)
        peer.event("language_set", language=hostile)
        peer.read_audio(120)
        peer.result([{**sentence(hostile, 0, 900), "spk": 0}], hostile, start_ms=1000)
        peer.close(1011, "<b>bold</b>")

    health = {"engine": hostile, "endpointing": hostile}
    with ScriptedServer(scene, health=health) as server:
        page = open_page(server.url)
        expect(page.locator("#engine")).to_have_text(hostile)
        page.get_by_role("button", name="Start", exact=True).click()
        expect(page.locator(LOCKED)).to_have_text([hostile])
        expect(page.locator(".unconfirmed .text")).to_have_text(hostile)
        expect(page.locator("#notices")).to_contain_text("<b>bold</b>")
        expect(page.locator("#notices")).to_contain_text(hostile)
        assert page.locator("img, b").count() == 0
        assert "taken" not in page.title()


def test_errors_from_the_server_are_shown_and_counted(open_page: OpenPage) -> None:
    def scene(peer: Peer) -> None:
        peer.read_until("START")
        peer.event("started")
        for _ in range(3):
            peer.event("error", error="a segment could not be recognized")
        peer.event("error", error="something else")
        peer.connection.send("no JSON")
        peer.read_until("STOP")
        peer.finish([])

    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        page.get_by_role("button", name="Start", exact=True).click()
        expect(page.locator(".notice")).to_have_count(3)
        expect(page.locator(".notice").first).to_contain_text("a segment could not be recognized (3 times)")
        page.get_by_role("button", name="Dismiss: The server says: something else").click()
        expect(page.locator(".notice")).to_have_count(2)
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("#status")).to_have_text("Finished")


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
        page.get_by_role("button", name="Start", exact=True).click()
        expect(page.locator("#notices")).to_contain_text(words)
        expect(page.get_by_role("button", name="Start", exact=True)).to_be_enabled()


def test_without_a_secure_context_the_page_says_what_works(open_page: OpenPage, tmp_path: Path) -> None:
    path = tmp_path / "tones.wav"
    write_wav(path, tones(16000, 0.5, 300), 16000)
    with ScriptedServer(hear_all) as server:
        page = open_page(f"http://insecure.test:{server.port}/")
        page.get_by_role("button", name="Start", exact=True).click()
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
        page.get_by_role("button", name="Start", exact=True).click()
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
        page.get_by_role("button", name="Start", exact=True).click()
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("#status")).to_have_text("Ready")
        assert server.peers == []


# --- where the server is --------------------------------------------------------------------------------------


def test_another_server_is_named_on_the_page(open_page: OpenPage) -> None:
    with ScriptedServer(listen) as here, ScriptedServer(listen) as there:
        page = open_page(f"{here.url}?server=127.0.0.1:{there.port}")
        expect(page.get_by_label("Server", exact=True)).to_have_value(f"127.0.0.1:{there.port}")
        expect(page.locator("#destination")).to_have_text(f"127.0.0.1:{there.port}")
        start_with_partial(page)
        assert here.peers == []
        assert len(there.peers) == 1


def test_the_page_works_from_disk(open_page: OpenPage) -> None:
    with ScriptedServer(listen) as server:
        page = open_page(PAGE.as_uri())
        expect(page.get_by_label("Server", exact=True)).to_have_value("ws://localhost:10095/")
        page.get_by_label("Server", exact=True).fill("nonsense://x")
        page.get_by_role("button", name="Start", exact=True).click()
        expect(page.locator("#notices")).to_contain_text("A server address begins with ws:// or wss://")
        page.get_by_label("Server", exact=True).fill(f"127.0.0.1:{server.port}")
        start_with_partial(page)
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("#status")).to_have_text("Finished")


# --- looks, keys and screen readers ---------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 768, 1024, 1600])
def test_nothing_scrolls_sideways(open_page: OpenPage, width: int, scheme: Any) -> None:
    word = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft" * 2

    def scene(peer: Peer) -> None:
        peer.read_until("START")
        peer.event("started")
        peer.event("error", error=word)
        peer.read_audio(120)
        peer.result([sentence(word, 3_700_000, 3_701_000, 3), BEST], word, start_ms=3_702_000)

    with ScriptedServer(scene) as server:
        page = open_page(server.url, viewport={"width": width, "height": 760}, color_scheme=scheme)
        if page.get_by_role("button", name="Settings").is_visible():
            page.get_by_role("button", name="Settings").click()
        page.get_by_role("button", name="Start", exact=True).click()
        expect(page.locator("#partial-text")).to_have_text(word)
        widest = page.evaluate("document.documentElement.scrollWidth")
        assert widest <= width
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (max(map(int, re.findall(r"\d+", ground))) < 64) == (scheme == "dark")


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
        if (!node.data.trim() || !parent.checkVisibility() || parent.closest(":disabled, script, style, noscript")) continue;
        const [a, b] = [light(parse(getComputedStyle(parent).color)), light(ground(parent))].sort((x, y) => y - x);
        const ratio = (a + 0.05) / (b + 0.05);
        if (ratio < 4.5) low.push(`${node.data.trim()}: ${ratio.toFixed(2)}`);
    }
    return low;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_contrast(open_page: OpenPage, scheme: Any) -> None:
    def scene(peer: Peer) -> None:
        peer.read_until("START")
        peer.event("started")
        peer.event("error", error="an error")
        peer.read_audio(120)
        peer.result([sentence(f"voice {n}", n * 1000, n * 1000 + 900, n) for n in range(8)], "moving")
        peer.read_audio(600)
        peer.close(1012, "because")

    with ScriptedServer(scene) as server:
        page = open_page(server.url, color_scheme=scheme)
        assert page.evaluate(CONTRAST) == []
        page.get_by_role("button", name="Start", exact=True).click()
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
        assert page.evaluate("[...document.querySelectorAll('[id]')].map(n => n.id).filter((id, i, all) => all.indexOf(id) !== i)") == []
        expect(page.locator("#locked")).to_have_attribute("aria-live", "polite")
        assert page.locator("#partial").evaluate("node => node.closest('[aria-live], [role=log], [role=status], [role=alert]')") is None
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
        assert reached == ["source-mic", "device", "language", "hotwords", "with-times", "start"]
        page.keyboard.press("Space")
        expect(page.locator(LOCKED)).to_have_count(1)
        page.keyboard.press("Control+Enter")
        expect(page.locator("#status")).to_have_text("Finished")
        page.get_by_label("Hotwords").focus()
        page.keyboard.press("Control+Enter")
        expect(page.locator("#status")).to_have_text("Listening")


# --- long sessions --------------------------------------------------------------------------------------------


def test_twelve_hundred_sentences_stay_smooth(open_page: OpenPage) -> None:
    every = [sentence(f"This is sentence {n}, as long as a usual one is.", n * 3000, n * 3000 + 2500, n // 7 % 3) for n in range(1200)]
    go = threading.Event()

    def scene(peer: Peer) -> None:
        peer.read_until("START")
        peer.event("started")
        peer.result(every[:1000], "moving", start_ms=3_000_000)
        go.wait(20)
        for count in range(1001, 1201):
            peer.result(every[:count], f"moving {count}", start_ms=count * 3000)
        peer.read_until("STOP")
        peer.finish(every)

    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        page.get_by_role("button", name="Start", exact=True).click()
        expect(page.locator("#locked .sentence")).to_have_count(1000)
        page.evaluate(
            """() => {
                window.blocked = [];
                window.changed = 0;
                window.first = document.querySelector("#locked .sentence");
                new PerformanceObserver((list) => window.blocked.push(...list.getEntries().map((e) => e.duration)))
                    .observe({ type: "longtask" });
                new MutationObserver((list) => { window.changed += list.length; })
                    .observe(document.querySelector("#locked"), { childList: true, subtree: true, characterData: true });
            }"""
        )
        go.set()
        expect(page.locator("#locked .sentence")).to_have_count(1200)
        assert page.evaluate("window.changed") == 200, "one change per new sentence, none for the old ones"
        assert page.evaluate("window.first.isConnected")
        assert max(page.evaluate("window.blocked"), default=0) < 250
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("#status")).to_have_text("Finished")
        assert len(download(page).splitlines()) == 1200
    assert server.failures == []


def test_the_page_follows_only_a_reader_who_is_at_the_end(open_page: OpenPage) -> None:
    every = [sentence(f"Sentence {n}.", n * 3000, n * 3000 + 2500) for n in range(60)]
    steps = {count: threading.Event() for count in (50, 55, 60)}

    def scene(peer: Peer) -> None:
        peer.read_until("START")
        peer.event("started")
        for count, step in steps.items():
            step.wait(20)
            peer.result(every[:count])

    at_end = "innerHeight + scrollY >= document.documentElement.scrollHeight - 2"
    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        page.get_by_role("button", name="Start", exact=True).click()
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
        page.get_by_role("button", name="Latest sentence").click()
        wait_until(page, at_end)
        expect(page.get_by_role("button", name="Latest sentence")).to_be_hidden()
        steps[60].set()
        expect(page.locator(LOCKED)).to_have_count(60)
        wait_until(page, at_end)
