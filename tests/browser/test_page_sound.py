"""What the page sends: microphone and file, resampled without folding or seams, at the right pace."""

from __future__ import annotations

import re
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.browser.page_driver import BEST, OpenPage, hear_all, listen, press, send_file
from tests.browser.recordings import level_at, tones, write_wav
from tests.browser.scripted_server import Peer, ScriptedServer

pytest.importorskip("playwright.sync_api", reason="run scripts/install_browser.sh")

from playwright.sync_api import expect

pytestmark = pytest.mark.browser


def test_the_microphone_arrives_whole_and_nothing_folds_back(open_page: OpenPage, tmp_path: Path) -> None:
    recording = tmp_path / "tones.wav"
    write_wav(recording, tones(48000, 6, 1000, 11000), 48000)

    def scene(peer: Peer) -> None:
        peer.begin()
        peer.read_until("STOP")
        peer.finish([])

    with ScriptedServer(scene) as server:
        page = open_page(server.url, microphone=recording)
        press(page, "Start")
        page.wait_for_timeout(3000)
        press(page, "Stop")
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
    assert seconds * 16000 - 1200 < len(pcm) <= seconds * 16000, (
        "all whole frames but for the filter's length"
    )
    inner = slice(800, -800)
    expected = tones(16000, seconds, frequency)[: len(pcm)]
    error = np.abs(pcm[inner] - expected[: len(pcm)][inner]).max()
    assert error < 5e-5, "the same sine, at the same time, in every sample"


@pytest.mark.parametrize("rate", [22050, 44100, 48000])
def test_just_above_the_band_there_is_nothing_left(open_page: OpenPage, rate: int) -> None:
    with ScriptedServer(listen) as server:
        page = open_page(server.url)
        pcm = np.array(page.evaluate(RESAMPLE, [rate, tones(rate, 1.0, 8100).tolist()]))
    assert np.abs(pcm[800:-800]).max() <= 1


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
        peer.begin()
        peer.read_audio(59_000)
        with suppress(TimeoutError):
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
        press(page, "Start")
        expect(page.locator("#clock")).to_have_text("0:01 / 0:20")
        press(page, "Stop")
        expect(page.locator("#status")).to_have_text("Finished")
        assert server.peers[0].audio_ms < 5000


EMPTY_WAV = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x80\x3e\0\0\0\x7d\0\0\2\0\x10\0data\0\0\0\0"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"this is no sound", "This browser cannot read “words.wav” as audio."),
        (b"", "“words.wav” holds no audio."),
        (EMPTY_WAV, "“words.wav” holds no audio."),
        (EMPTY_WAV[:36], "“words.wav” holds no audio."),
        (EMPTY_WAV[:12] + b"LIST\3\0\0\0abc\0" + EMPTY_WAV[12:], "“words.wav” holds no audio."),
        (None, "No file is chosen."),
    ],
)
def test_a_file_that_cannot_be_sent_is_named_until_another_is_chosen(
    open_page: OpenPage, tmp_path: Path, content: bytes | None, words: str
) -> None:
    path, good = tmp_path / "words.wav", tmp_path / "good.wav"
    write_wav(good, tones(16000, 0.3, 300), 16000)
    with ScriptedServer(listen) as server:
        page = open_page(server.url, microphone=None)
        page.get_by_label("File", exact=True).check()
        if content is not None:
            path.write_bytes(content)
            page.get_by_label("Audio file").set_input_files(path)
        press(page, "Start")
        expect(page.locator(".notice strong")).to_have_text(words)
        expect(page.locator("#status")).to_have_text("Not started")
        expect(page.get_by_role("button", name=re.compile("again", re.IGNORECASE))).to_have_count(0)
        page.get_by_label("As fast as possible").check()
        expect(page.locator("#status")).to_have_text("Not started")
        with page.expect_file_chooser() as chooser:
            press(page, "Choose a file")
        chooser.value.set_files(good)
        expect(page.locator("#notices")).to_be_empty()
        expect(page.locator("#status")).to_have_text("Ready")
        assert page.locator("body").get_attribute("data-trouble") is None
        assert server.peers == []
