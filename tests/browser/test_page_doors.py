"""The page and the door: over TLS, from origins that are let in and others, with tokens that are right and wrong."""

from __future__ import annotations

import json
import re
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.page_driver import LOCKED, MOVING, OpenPage, listen, press, send_file
from tests.browser.recordings import tones, write_wav
from tests.browser.scripted_server import ScriptedServer
from tests.certificates import make_certificate
from tests.http.process import FilesServer
from tests.live_server import LiveServer

pytest.importorskip("playwright.sync_api", reason="run scripts/install_browser.sh")

from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

TOKEN = "a-token+for/the=page"
ENCODED = "a-token%2Bfor%2Fthe%3Dpage"


@dataclass
class Guarded:
    """A server over TLS that wants a token; pages from captions.test are let in, too."""

    server: LiveServer
    port: int

    def page(self, host: str = "127.0.0.1", fragment: str = "") -> str:
        return f"https://{host}:{self.port}/?server=wss://127.0.0.1:{self.port}/{fragment}"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("tls")
    files = make_certificate(folder)
    (folder / "tokens").write_text(f"page {TOKEN}\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = [
        "--engine",
        "fake",
        "--vad",
        "level",
        "--port",
        str(port),
        "--token-file",
        str(folder / "tokens"),
    ]
    flags += ["--tls-cert", str(files.certificate), "--tls-key", str(files.key)]
    with LiveServer(
        *flags, "--allow-origin", f"https://captions.test:{port}", "--log-level", "debug"
    ) as server:
        yield Guarded(server, port)
    assert TOKEN not in server.log
    assert ENCODED not in server.log


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "tones.wav"
    write_wav(path, tones(48_000, 1.0, 440), 48_000)
    return path


def hears(page: Page, recording: Path) -> None:
    """A file becomes text."""
    send_file(page, recording, fast=True)
    expect(page.locator("#status")).to_have_text("Finished")
    expect(page.locator(LOCKED)).to_have_text("one two")


@pytest.mark.parametrize("host", ["captions.test", "127.0.0.1"])
def test_a_page_over_tls_works_from_an_origin_that_is_let_in(
    open_page: OpenPage, guarded: Guarded, recording: Path, host: str
) -> None:
    page = open_page(guarded.page(host, f"#token={ENCODED}"), ignore_https_errors=True)
    expect(page.locator("#engine")).to_have_text("fake")
    hears(page, recording)
    page.get_by_label("Microphone", exact=True).check()
    press(page, "Start")
    expect(page.locator("#status")).to_have_text("Listening")
    press(page, "Stop")
    expect(page.locator("#status")).to_have_text("Finished")


def test_a_page_from_elsewhere_is_refused_though_it_has_a_token(
    open_page: OpenPage, guarded: Guarded, recording: Path
) -> None:
    page = open_page(guarded.page("elsewhere.test", f"#token={ENCODED}"), ignore_https_errors=True)
    send_file(page, recording)
    expect(page.locator("#notices")).to_contain_text(
        "The server does not allow this connection. It says: “pages from "
        f"https://elsewhere.test:{guarded.port} are not let in; the server's --allow-origin lists those that are”."
    )
    expect(page.locator("#status")).to_have_text("Not connected")


def test_the_token_leaves_the_address_and_is_kept_for_the_tab(
    open_page: OpenPage, guarded: Guarded, recording: Path
) -> None:
    page = open_page(f"https://127.0.0.1:{guarded.port}/#token={ENCODED}", ignore_https_errors=True)
    assert page.url == f"https://127.0.0.1:{guarded.port}/"
    page.reload()
    expect(page.get_by_label("Token", exact=True)).to_have_value(TOKEN)
    hears(page, recording)
    assert page.evaluate("localStorage.length && JSON.stringify(localStorage).includes('token')") is not True
    page.evaluate("location.hash = 'token=another-token'")
    expect(page.get_by_label("Token", exact=True)).to_have_value("another-token")
    assert "another-token" not in page.url


def test_a_token_is_asked_for_and_a_wrong_one_is_told(
    open_page: OpenPage, guarded: Guarded, recording: Path
) -> None:
    page = open_page(f"https://127.0.0.1:{guarded.port}/", ignore_https_errors=True)
    expect(page.get_by_label("Token", exact=True)).to_be_visible()
    send_file(page, recording, fast=True)
    expect(page.locator("#notices")).to_contain_text("The server wants a token.")
    press(page, "Enter a token")
    expect(page.get_by_label("Token", exact=True)).to_be_focused()
    page.get_by_label("Token", exact=True).fill("this-is-a-wrong-token")
    press(page, "Start")
    expect(page.locator("#notices")).to_contain_text(
        "The server does not accept the token. It says: “this token is not valid here”. Enter another one."
    )
    page.get_by_label("Token", exact=True).fill(TOKEN)
    press(page, "Start")
    expect(page.locator("#status")).to_have_text("Finished")
    expect(page.locator(LOCKED)).to_have_text("one two")


def test_a_link_that_names_another_server_does_not_get_the_token(
    open_page: OpenPage, guarded: Guarded
) -> None:
    with ScriptedServer(listen) as other:
        page = open_page(f"https://127.0.0.1:{guarded.port}/#token={ENCODED}", ignore_https_errors=True)
        expect(page.get_by_label("Token", exact=True)).to_have_value(TOKEN)
        page.goto(f"https://127.0.0.1:{guarded.port}/?server=ws://127.0.0.1:{other.port}/")
        press(page, "Start")
        expect(page.locator(MOVING)).to_have_text("it was the wor")
        (peer,) = other.peers
        assert peer.connection.request
        assert re.fullmatch(r"/\?session=[a-z0-9]{20}", peer.connection.request.path)


# --- who reads along needs a token of his own ------------------------------------------------------------------

CLIPBOARD = {"permissions": ["clipboard-read", "clipboard-write", "microphone"], "ignore_https_errors": True}


def copied_overlay(page: Page) -> str:
    """The overlay's address, as it is copied; it never has the page's own token."""
    press(page, "Overlay")
    field = page.get_by_label("Address for OBS")
    assert "token" not in field.input_value()
    expect(page.locator("#overlay-hint")).to_contain_text("which only lets people read along")
    press(page, "Copy address")
    expect(page.locator("#overlay-hint")).to_contain_text("Its token lets people in until")
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    address = field.input_value()
    assert page.evaluate("navigator.clipboard.readText()") == address
    assert "#token=rts." in address
    assert not {TOKEN, ENCODED} & set(re.split("[=#&]", address))
    return address


def test_the_overlay_is_given_a_token_that_only_shows_this_session(
    open_page: OpenPage, guarded: Guarded, recording: Path
) -> None:
    page = open_page(f"https://127.0.0.1:{guarded.port}/#token={ENCODED}", **CLIPBOARD)
    address = copied_overlay(page)
    page.keyboard.press("Escape")
    hears(page, recording)
    overlay = open_page(address, ignore_https_errors=True)
    expect(overlay.locator(".said")).to_have_text("one two")
    token = address.partition("#token=")[2]
    speaker = open_page(f"https://127.0.0.1:{guarded.port}/#token={token}", ignore_https_errors=True)
    send_file(speaker, recording)
    expect(speaker.locator("#notices")).to_contain_text("The server does not allow this connection.")


def test_the_overlay_gets_its_token_on_the_other_port_too(
    open_page: OpenPage, tmp_path: Path, recording: Path
) -> None:
    (tmp_path / "tokens").write_text(f"page {TOKEN}\n")
    with FilesServer("--token-file", str(tmp_path / "tokens")) as server:
        page = open_page(f"{server.files_url}/?session=studio#token={ENCODED}", **CLIPBOARD)
        hears(page, recording)
        address = copied_overlay(page)
        assert address.startswith(f"{server.page}overlay?session=studio#")
        expect(open_page(address).locator(".said")).to_have_text("one two")


def test_a_session_token_speaks_under_its_name_and_cannot_be_passed_on(
    open_page: OpenPage, guarded: Guarded, recording: Path
) -> None:
    request = urllib.request.Request(
        f"https://127.0.0.1:{guarded.port}/tokens?rights=transcribe&session=studio",
        headers={"Authorization": f"Bearer {TOKEN}"},
    )
    with urllib.request.urlopen(request, context=ssl._create_unverified_context()) as answer:
        token = json.load(answer)["token"]
    page = open_page(f"https://127.0.0.1:{guarded.port}/?session=studio#token={token}", **CLIPBOARD)
    hears(page, recording)
    press(page, "Overlay")
    press(page, "Copy address")
    hint = page.locator("#overlay-hint")
    expect(hint).to_contain_text("It says: “a session token cannot make another one”.")
    expect(hint).to_contain_text(
        "can make one for the session studio. Put it behind the address, as #token=TOKEN."
    )
    expect(page.get_by_label("Address for OBS")).to_have_value(re.compile("[?]session=studio$"))


def test_a_page_from_another_host_says_who_can_make_a_token(open_page: OpenPage, guarded: Guarded) -> None:
    page = open_page(guarded.page("captions.test", f"#token={ENCODED}"), ignore_https_errors=True)
    press(page, "Overlay")
    press(page, "Copy address")
    expect(page.locator("#overlay-hint")).to_contain_text("this page can ask only its own server for one")
    assert "token" not in page.get_by_label("Address for OBS").input_value()


def test_a_server_without_tokens_does_not_ask_for_one(open_page: OpenPage) -> None:
    with ScriptedServer(listen) as server:
        page = open_page(server.url)
        expect(page.locator("#engine")).to_have_text("scripted")
        expect(page.locator("#token-field")).to_be_hidden()
