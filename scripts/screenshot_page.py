"""Take the picture of the page for the README: the real server, a recording as the microphone, Debian's chromium.

    python scripts/screenshot_page.py docs/page.png
    python scripts/screenshot_page.py /tmp/phone.png --scheme dark --width 390 --height 844

Needs the weights and the recording (realtime-server models fetch embedded demo), chromium and Playwright
(scripts/install_browser.sh). It looks best with the Debian packages fonts-inter and fonts-noto-core.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from realtime_server.weights import find

LOCKED = "#locked .sentence"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("picture", type=Path)
    parser.add_argument("--scheme", choices=("light", "dark"), default="light")
    parser.add_argument("--width", type=int, default=1120, help="CSS pixels (default: %(default)s)")
    parser.add_argument("--height", type=int, default=760, help="CSS pixels (default: %(default)s)")
    parser.add_argument(
        "--scale", type=float, default=1.75, help="pixels per CSS pixel (default: %(default)s)"
    )
    parser.add_argument(
        "--sentences", type=int, default=6, help="locked ones to wait for (default: %(default)s)"
    )
    parser.add_argument(
        "--pause-ms", type=int, default=600, help="that lock a sentence (default: %(default)s)"
    )
    parser.add_argument("--port", type=int, default=10095, help="seen in the picture (default: %(default)s)")
    arguments = parser.parse_args()
    recording = find("recordings") / "two_cities.wav"
    flags = [
        "--no-sandbox",
        "--disable-gpu",
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-audio-capture={recording}%noloop",
    ]
    with serving(arguments.port, arguments.pause_ms) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        page = browser.new_page(
            viewport={"width": arguments.width, "height": arguments.height},
            device_scale_factor=arguments.scale,
            color_scheme=arguments.scheme,
        )
        page.goto(address)
        speak(page, arguments.sentences)
        page.screenshot(path=arguments.picture)
        browser.close()
    print(f"{arguments.picture}: {arguments.picture.stat().st_size // 1024} KB")


def speak(page: Page, sentences: int) -> None:
    """Run a session until `sentences` are locked and a partial of some length moves."""
    if page.locator("#hotwords").is_visible():
        page.fill("#hotwords", "Dickens, incredulity")
    page.click("#start")
    page.locator(LOCKED).nth(sentences - 1).wait_for(timeout=60_000)
    page.mouse.move(0, 0)
    while len(page.locator("#partial").inner_text()) < 24:
        page.wait_for_timeout(50)


@contextmanager
def serving(port: int, pause_ms: int) -> Iterator[str]:
    """Run the server; yield the page's address."""
    command = [
        sys.executable,
        "-m",
        "realtime_server",
        "serve",
        "--port",
        str(port),
        "--endpointing",
        f"fixed:{pause_ms}",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            if " ready: " in line:
                break
        else:
            raise SystemExit(f"the server did not start; it said:\n{''.join(said)}".rstrip())
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health").close()
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait(30)


if __name__ == "__main__":
    main()
