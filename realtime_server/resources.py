"""Where this installation is: its files that are no Python, and the commands that run and complete it.

The files lie beside the package in a checkout, inside it in an installed wheel.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

from realtime_server.errors import ConfigurationError

_PACKAGE = Path(__file__).resolve().parent
_COMMAND = "realtime-server"
_PART = re.compile(r'<link rel="stylesheet" href="([\w/.-]+)">|<script src="([\w/.-]+)"></script>')


def find_resource(name: str) -> Path:
    """Path of e.g. "static/client_mic.html". Raises ConfigurationError if this installation lacks it."""
    for root in (_PACKAGE, _PACKAGE.parent):
        if (root / name).is_file():
            return root / name
    raise ConfigurationError(f"{name} is missing from this installation; install realtime-server again")


def read_page(page: Path) -> str:
    """Return a page's text with the style sheets and scripts that it links put in their places.

    It is one answer then, without a request for each of them, and its policy may name the hash of every block.
    """

    def put_in(found: re.Match[str]) -> str:
        tag = "style" if found[1] else "script"
        text = (page.parent / (found[1] or found[2])).read_text(encoding="utf-8")
        return f"<{tag}>\n{text}</{tag}>"

    return _PART.sub(put_in, page.read_text(encoding="utf-8"))


def command(*words: str) -> str:
    """Spell `realtime-server WORDS` so that it works when pasted into the terminal of whoever reads it.

    By its name only if the PATH leads to this installation: not in a checkout, nor from another environment.
    """
    return _spell(_COMMAND, "realtime_server", *words)


def pip_install(extra: str) -> str:
    """Spell how to bring the packages of an extra, such as "vllm", into the environment that this runs in.

    Pip completes what is installed there, without asking the package index for that name, which is somebody else's
    there; a checkout that is run without being installed is named by its path.
    """
    try:
        metadata.version(_COMMAND)
        what = _COMMAND
    except metadata.PackageNotFoundError:
        what = str(_PACKAGE.parent)
    return _spell("pip", "pip", "install", f"{what}[{extra}]")


def _spell(script: str, module: str, *words: str) -> str:
    found = shutil.which(script)
    own = Path(sysconfig.get_path("scripts"), script)
    if found and Path(found).resolve() == own.resolve():
        return shlex.join([script, *words])
    return shlex.join([sys.executable, "-m", module, *words])
