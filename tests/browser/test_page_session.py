"""The page and its session: its name, those who read along, and servers that do not take START."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.browser.page_driver import LOCKED, MOVING, OpenPage, listen, press, start_with_partial
from tests.browser.scripted_server import SETTINGS, Peer, ScriptedServer

pytest.importorskip("playwright.sync_api", reason="run scripts/install_browser.sh")

from playwright.sync_api import expect

pytestmark = pytest.mark.browser


def asked_name(peer: Peer) -> str:
    """How the page calls its session."""
    assert peer.connection.request
    (name,) = parse_qs(urlsplit(peer.connection.request.path).query)["session"]
    return name


# --- the name, and those who read along -----------------------------------------------------------------------


def test_a_session_has_a_name_that_nobody_guesses_and_the_overlay_has_it(open_page: OpenPage) -> None:
    with ScriptedServer(listen) as server:
        page = open_page(server.url, permissions=["clipboard-read", "clipboard-write", "microphone"])
        press(page, "Overlay")
        address = page.get_by_label("Address for OBS").input_value()
        press(page, "Copy address")
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == address
        page.keyboard.press("Escape")
        expect(page.get_by_label("Address for OBS")).to_be_hidden()
        for count in (1, 2):
            press(page, "Start")
            expect(page.locator(MOVING)).to_have_text("it was the wor")
            press(page, "Stop")
            expect(page.locator("#status")).to_have_text("Finished")
            assert len(server.peers) == count
        page.on("dialog", lambda dialog: dialog.accept())
        page.reload()
        start_with_partial(page)
        (name,) = {asked_name(peer) for peer in server.peers}
        assert re.fullmatch("[a-z0-9]{20}", name)
        assert address == f"{server.url}overlay?session={name}"
        other = open_page(server.url)
        start_with_partial(other)
        assert asked_name(server.peers[-1]) != name


def test_the_address_of_the_page_may_name_the_session(open_page: OpenPage) -> None:
    with ScriptedServer(listen) as server:
        page = open_page(f"{server.url}?session=studio")
        start_with_partial(page)
        assert asked_name(server.peers[0]) == "studio"
        press(page, "Overlay")
        expect(page.get_by_label("Address for OBS")).to_have_value(f"{server.url}overlay?session=studio")
        page = open_page(f"{server.url}?session=my+studio")
        press(page, "Start")
        expect(page.locator("#notices")).to_contain_text("“my studio” in this page's address cannot be")
        press(page, "Overlay")
        expect(page.locator("#overlay-panel")).to_contain_text("cannot be a session's name")
        expect(page.get_by_role("button", name="Copy address")).to_be_disabled()
        assert len(server.peers) == 1


# --- servers that do not take START ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        '{"event": "error", "error": "unknown command"}',
        '{"event": "started"}',
        '{"sentences": [], "is_final": false}',
    ],
)
def test_a_server_of_protocol_1_is_named(open_page: OpenPage, answer: str) -> None:
    def scene(peer: Peer) -> None:
        peer.read_until("START")
        peer.connection.send(answer)

    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        press(page, "Start")
        expect(page.locator(".notice p")).to_have_text(
            [
                f"The server at 127.0.0.1:{server.port} does not speak protocol 2, which this page needs. "
                "It is older than this page, or another product: update it, or use a client of protocol 1."
            ]
        )
        expect(page.locator("#status")).to_have_text("Not started")
        expect(page.get_by_role("button", name="Start", exact=True)).to_be_enabled()


def test_a_server_that_does_not_answer_start_is_told_and_nothing_is_lost(open_page: OpenPage) -> None:
    def scene(peer: Peer) -> None:
        peer.read_audio(6000)
        peer.tell("started", settings=SETTINGS)
        peer.result([], "all of it")
        peer.read_until("STOP")
        peer.finish([])

    with ScriptedServer(scene) as server:
        page = open_page(server.url)
        press(page, "Start")
        expect(page.locator("#notices")).to_contain_text(
            "has not answered yet. If it stays so, it may speak another"
        )
        expect(page.get_by_role("button", name="Cancel")).to_be_visible()
        expect(page.locator(MOVING)).to_have_text("all of it")
        expect(page.locator("#notices")).to_be_empty()
        expect(page.locator("#status")).to_have_text("Listening")
        press(page, "Stop")
        expect(page.locator("#status")).to_have_text("Finished")
    assert server.failures == []


@pytest.mark.parametrize(
    ("field", "name"), [("language", "Language"), ("hotwords", "Hotwords"), ("replacements", "Replacements")]
)
def test_a_setting_that_is_refused_is_named_and_shown(open_page: OpenPage, field: str, name: str) -> None:
    def scene(peer: Peer) -> None:
        if len(server.peers) > 1:
            listen(peer)
            return
        peer.read_until("START")
        peer.error("it is too odd", field=field)

    with ScriptedServer(scene) as server:
        page = open_page(server.url, viewport={"width": 390, "height": 844})
        press(page, "Start")
        expect(page.locator(".notice p")).to_have_text(
            f"The server does not accept the {field}. It says: “it is too odd”. "
            f"Change the {field} in the settings, then start again."
        )
        expect(page.locator("#status")).to_have_text("Not started")
        press(page, "Open the settings")
        control = page.get_by_role("combobox" if field == "language" else "textbox", name=name)
        expect(control).to_be_focused()
        if field == "language":
            control.select_option("en")
        else:
            control.fill("a=>b")
            control.blur()
        expect(page.locator("#status")).to_have_text("Ready")
        start_with_partial(page)
        expect(page.locator(LOCKED)).to_have_count(1)
        assert (
            server.peers[1].asked[field]
            == {"language": "en", "hotwords": ["a=>b"], "replacements": {"a": "b"}}[field]
        )


def test_a_replacement_that_is_none_does_not_start(open_page: OpenPage) -> None:
    with ScriptedServer(listen) as server:
        page = open_page(server.url)
        page.get_by_text("Replacements", exact=True).click()
        page.get_by_role("textbox", name="Replacements").fill("a => b, c")
        press(page, "Start")
        expect(page.locator(".notice p")).to_have_text(
            "“c” is no replacement. Write what is to be replaced, =>, and by what."
        )
        assert server.peers == []
