"""What docs/operating.md says of who may come in is true: its file is read, its commands run, its tables are whole."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import get_args

import pytest

from realtime_server.doors.session_tokens import LONGEST_S, TTL_S
from realtime_server.doors.tokens import RIGHTS, read_token_file
from realtime_server.errors import AdmissionError, AdmissionReason
from tests.http.process import FilesServer

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Who may come in\n")[2].partition("\n## ")[0]
(FILE,), (COMMANDS,), (ANSWER,) = (
    re.findall(rf"^```{kind}\n(.*?)^```", SECTION, re.DOTALL | re.MULTILINE)
    for kind in ("text", "sh", "json")
)


def test_its_token_file_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(FILE)
    tokens = {token.name: token for token in read_token_file(tmp_path / "tokens")}
    assert tokens["kitchen"].rights == RIGHTS
    assert (tokens["studio"].max_sessions, tokens["studio"].rights) == (20, {"transcribe"})
    assert {name: tokens[name].rights for name in ("screens", "monitor")} == {
        "screens": {"view"}, "monitor": {"metrics"},
    }  # fmt: skip


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
def test_its_commands_run(tmp_path: Path) -> None:
    (certify,) = re.findall(r"^openssl .*$", SECTION, re.MULTILINE)
    subprocess.run(["sh", "-ec", certify], cwd=tmp_path, capture_output=True, check=True)
    (tmp_path / "tokens").write_text(FILE)
    token = FILE.split("kitchen")[1].split()[0]
    files = {"token-file": "tokens", "tls-cert": "cert.pem", "tls-key": "key.pem"}
    words = [word for flag, name in files.items() for word in (f"--{flag}", str(tmp_path / name))]
    with FilesServer(*words) as server:
        ports = {
            "localhost:8899": server.files_url.rpartition("/")[2],
            "localhost:10095": server.url.split("/")[2],
        }
        told = []
        for command in COMMANDS.splitlines():
            for here, there in ports.items():
                command = command.replace(here, there)
            ran = subprocess.run(
                ["sh", "-ec", command],
                cwd=tmp_path,
                env=os.environ | {"TOKEN": token},
                capture_output=True,
                text=True,
                check=True,
            )
            told.append(ran.stdout)
    for made in map(json.loads, told[:2]):
        assert made.keys() == json.loads(ANSWER).keys()
        assert (made["ttl_s"], made["rights"]) == (60, ["transcribe"])
    assert "realtime_server_sessions 0.0" in told[2]
    assert token not in server.log


def test_it_names_everything() -> None:
    table = SECTION.partition("### Who is refused\n")[2]
    for reason in get_args(AdmissionReason):
        (row,) = (line for line in table.splitlines() if f"`{reason}`" in line and line.startswith("|"))
        assert row.startswith(f"| {AdmissionError('', reason).status}")
        (metrics,) = (line for line in PAGE.splitlines() if line.startswith("| `connections_total`"))
        assert f"`{reason}`" in metrics
    assert f"| `ttl_s` | {TTL_S} | 1 to {LONGEST_S} seconds" in SECTION
    for right in RIGHTS:
        assert f"| `{right}` |" in SECTION


def test_what_the_security_page_names_exists() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "realtime_server").glob("*.py"))
    for flag in re.findall(r"`(--[a-z-]+)", text):
        assert f'"{flag}"' in source, flag
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        assert (ROOT / target).exists()
