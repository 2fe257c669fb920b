"""Where this installation is: its files, and a command that works wherever it is pasted."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest

from realtime_server.errors import ConfigurationError
from realtime_server.resources import command, find_resource, pip_install, read_page

SCRIPTS = sysconfig.get_path("scripts")


def script(folder: Path) -> Path:
    """A program called realtime-server that is not ours."""
    folder.mkdir(parents=True)
    path = folder / "realtime-server"
    path.write_text("#!/bin/sh\nexit 1\n")
    path.chmod(0o755)
    return path


def test_a_file_that_is_missing_is_told() -> None:
    assert find_resource("clients/client_python.py").is_file()
    with pytest.raises(ConfigurationError, match=r"static/nothing\.html is missing from this installation"):
        find_resource("static/nothing.html")


def test_a_page_is_read_with_its_parts(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "looks.css").write_text("p { color: red }\n")
    (tmp_path / "a" / "first.js").write_text(r"const a = '\1é';" + "\n", encoding="utf-8")
    page = tmp_path / "page.html"
    page.write_text(
        '<link rel="stylesheet" href="a/looks.css"><link rel="icon" href="data:,">'
        '<script type="text/plain">x</script><script src="a/first.js"></script>'
    )
    assert read_page(page) == (
        '<style>\np { color: red }\n</style><link rel="icon" href="data:,">'
        "<script type=\"text/plain\">x</script><script>\nconst a = '\\1é';\n</script>"
    )


def test_the_command_goes_by_its_name_where_the_path_leads_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path(SCRIPTS, "realtime-server").exists():
        pytest.skip("realtime-server is not installed beside this Python")
    monkeypatch.setenv("PATH", SCRIPTS, prepend=os.pathsep)
    assert command("models", "fetch", "a b") == "realtime-server models fetch 'a b'"


@pytest.mark.parametrize("other", [False, True], ids=["nowhere on the path", "another one on the path"])
def test_otherwise_it_goes_by_this_python_and_works_from_anywhere(
    other: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(script(tmp_path / "bin").parent) if other else "/nowhere")
    line = command("--version")
    assert line == f"{sys.executable} -m realtime_server --version"
    done = subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("realtime-server ")


@pytest.mark.skipif(os.name != "posix", reason="uses a symbolic link, as pipx and uv do")
def test_a_link_to_it_on_the_path_is_as_good(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    scripts = tmp_path / "venv"
    own = script(scripts)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "realtime-server").symlink_to(own)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(scripts))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert command("serve") == "realtime-server serve"


def test_an_extra_is_installed_by_this_python_into_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert pip_install("vllm") == f"{sys.executable} -m pip install 'realtime-server[vllm]'"
    if Path(SCRIPTS, "pip").exists():
        monkeypatch.setenv("PATH", SCRIPTS)
        assert pip_install("vllm") == "pip install 'realtime-server[vllm]'"


def test_in_a_checkout_that_is_not_installed_the_extra_is_the_checkouts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By its name it would be looked for in the package index."""

    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    root = Path(__file__).resolve().parents[1]
    assert pip_install("torch").endswith(f" install '{root}[torch]'")
