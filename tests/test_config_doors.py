"""Who may come in: flags to options, and the one sentence for what cannot be."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from realtime_server.cli import main
from realtime_server.config_doors import Doors, _is_loopback
from realtime_server.doors.door import DoorOptions
from realtime_server.doors.visitors import Visitor
from realtime_server.errors import AdmissionError, ConfigurationError
from tests.certificates import make_certificate
from tests.test_config import read

LONG, OTHER = "a-long-token-for-all", "another-long-token"


def serve(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    """What `serve` says before it ends with code 2; in one line."""
    assert main(["serve", "--engine", "fake", "--port", "0", *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line.removeprefix("realtime-server: ")


def test_without_flags_the_server_is_for_this_machine() -> None:
    doors = read().doors
    assert (doors.options, doors.exposed, doors.reloads) == (DoorOptions(), False, False)


def test_flags_become_options(tmp_path: Path) -> None:
    tokens, key = tmp_path / "tokens", tmp_path / "key"
    tokens.write_text(f"kitchen {OTHER} max_sessions=3\n")
    key.write_text("0" * 32 + "\n")
    doors = read(
        "--host", "0.0.0.0", "--token", LONG, "--token-file", str(tokens), "--token-key-file", str(key),
        "--allow-origin", "https://a.example", "--allow-origin", "null", "--max-requests-per-minute", "5",
        "--trust-proxy", "--tls-cert", "c", "--tls-key", "k",
    ).doors  # fmt: skip
    assert [(token.name, token.max_sessions) for token in doors.options.tokens] == [
        ("token", None),
        ("kitchen", 3),
    ]
    assert (doors.options.key, doors.options.origins) == (b"0" * 32, ("https://a.example", "null"))
    assert (doors.options.per_minute, doors.options.proxies) == (5, 1)
    assert (doors.exposed, doors.reloads) == (True, True)
    assert read("--trust-proxy", "2").doors.options.proxies == 2
    assert not any(secret in repr(doors) for secret in (LONG, OTHER, "0" * 32))


@pytest.mark.parametrize(
    ("flags", "connections"),
    [
        ((), 256),
        (("--max-sessions", "500"), 1000),
        (("--max-sessions", "500", "--max-connections-per-address", "7"), 7),
        (("--max-connections-per-address", "0"), 0),
    ],
)
def test_one_address_may_have_all_sessions_and_their_viewers(
    flags: tuple[str, ...], connections: int
) -> None:
    assert read(*flags).doors.options.connections == connections


def test_a_token_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REALTIME_SERVER_TOKEN", LONG)
    monkeypatch.setenv("REALTIME_SERVER_TOKEN_FILE", str(tmp_path / "tokens"))
    (tmp_path / "tokens").write_text(f"kitchen {OTHER}\n")
    assert [token.name for token in read("--host", "0.0.0.0").doors.options.tokens] == ["token", "kitchen"]
    monkeypatch.setenv("REALTIME_SERVER_TOKEN", "short")
    with pytest.raises(ConfigurationError, match=r"^REALTIME_SERVER_TOKEN: a token has 16 to 512"):
        read()


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("localhost", True), ("a..b", True),
        ("0.0.0.0", False), ("::", False), ("", False), ("192.0.2.1", False),
    ],
)  # fmt: skip
def test_which_addresses_only_this_machine_reaches(host: str, here: bool) -> None:
    assert _is_loopback(host) is here


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_other_machines_are_let_in_only_on_purpose(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = serve(capsys, f"--host={host}")
    assert words.startswith(
        f"--host {host or repr('')} lets other machines in: give them a token with --token-file"
    )
    assert "--insecure" in words
    assert read(f"--host={host}", "--insecure").doors.options.named
    assert not read(f"--host={host}", f"--token={LONG}").doors.options.named


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--token", "short"], "--token: a token has 16 to 512 visible ASCII characters"),
        (["--token-file", "/none"], "--token-file /none: No such file or directory"),
        (["--token-key-file", "/none"], "--token-key-file: /none: No such file or directory"),
        (["--token-key-file", "/dev/null"], "--token-key-file: the key of session tokens needs at least 32"),
        (["--allow-origin", "talk"], "--allow-origin: 'talk' is no origin"),
        (["--tls-key", "k"], "--tls-key goes with --tls-cert"),
        (["--tls-cert", "/none"], "--tls-cert /none: No such file or directory"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_code_2(
    flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve(capsys, *flags).startswith(words)


def test_a_token_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    assert "sh0rt" not in serve(capsys, "--token", "sh0rt")


def test_a_key_of_another_certificate_is_one_sentence_and_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = make_certificate(tmp_path, "one"), make_certificate(tmp_path, "two")
    words = serve(capsys, "--tls-cert", str(one.certificate), "--tls-key", str(two.key))
    assert (
        words == f"--tls-key {two.key}: it is not the key of the certificate in --tls-cert {one.certificate}"
    )


def test_tokens_without_encryption_on_a_network_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = make_certificate(tmp_path)
    tls = ["--tls-cert", str(files.certificate), "--tls-key", str(files.key)]
    for flags, warned in ((["--host=::"], 1), (["--host=::", *tls], 0), (["--host=::1"], 0)):
        caplog.clear()
        Doors(read(f"--token={LONG}", *flags).doors)
        assert len(caplog.records) == warned


def test_tokens_are_read_again_and_a_bad_file_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "tokens"
    path.write_text(f"kitchen {LONG}\n")
    doors = Doors(read("--token-file", str(path)).doors)

    def let_in(token: str) -> bool:
        try:
            doors.door.admit(Visitor(query=f"token={token}"), "transcribe")
        except AdmissionError:
            return False
        return True

    path.write_text("kitchen\n")
    doors.reload()
    assert (let_in(LONG), let_in(OTHER)) == (True, False)
    path.write_text(f"garden {OTHER}\n")
    doors.reload()
    assert (let_in(LONG), let_in(OTHER)) == (False, True)
    bad, good = caplog.messages
    assert bad.startswith(
        f"the tokens stay as they were: --token-file {path}, line 1: a name and a token are needed"
    )
    assert good == "read the tokens again: garden"


def test_with_nothing_to_read_again_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    Doors(read().doors).reload()
    assert caplog.messages == ["there is nothing to read again: no --token-file and no --tls-cert is given"]
