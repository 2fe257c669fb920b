"""What the flags say of telephone calls."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from realtime_server import config, flags
from realtime_server.errors import ConfigurationError
from realtime_server.http.options import CallOptions, Webhook

URL = "https://calls.example/hook"


def read(*words: str) -> CallOptions:
    parser = argparse.ArgumentParser()
    flags.add_arguments(parser)
    return config.read_arguments(parser.parse_args(words)).calls


def test_nothing_is_kept_unless_it_is_asked_for() -> None:
    assert read() == CallOptions()


def test_what_can_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    http = ("--http-port", "0")
    assert read(*http, "--calls-dir", str(tmp_path)).folder == tmp_path
    assert read(*http, "--calls-webhook", URL, "--calls-webhook-token", "a").webhook == Webhook(URL, "a")
    monkeypatch.setenv("REALTIME_SERVER_CALLS_WEBHOOK_TOKEN", "b")
    assert read(*http, "--calls-webhook", URL).webhook == Webhook(URL, "b")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--calls-dir", "/tmp"), "--calls-dir goes with --http-port"),
        (("--calls-webhook", URL), "--calls-webhook goes with --http-port"),
        (
            ("--http-port", "0", "--calls-dir", "/nowhere/at/all"),
            "/nowhere/at/all: no such folder can be made: No",
        ),
        (
            ("--http-port", "0", "--calls-dir", "/dev/null"),
            "--calls-dir /dev/null: no such folder can be made",
        ),
        (("--http-port", "0", "--calls-webhook", "ftp://a/"), "--calls-webhook: expected an address"),
        (("--http-port", "0", "--calls-webhook-token", "a"), "--calls-webhook-token goes with"),
    ],
)
def test_what_cannot_be_is_refused_by_its_flag(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        read(*words)


def test_the_folder_of_calls_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "calls"
    for _ in range(2):
        assert read("--http-port", "0", "--calls-dir", str(folder)).folder == folder
        assert folder.is_dir()


def test_a_folder_that_cannot_be_written_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # the user may be root, who may do anything
    with pytest.raises(ConfigurationError, match="the folder cannot be written to"):
        read("--http-port", "0", "--calls-dir", str(tmp_path))
