"""Where this installation is: its files that are no Python, and the command that runs it.

The files lie beside the package in a checkout, inside it in an installed wheel.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

from realtime_server.errors import ConfigurationError

_PACKAGE = Path(__file__).resolve().parent
_COMMAND = "realtime-server"


def find_resource(name: str) -> Path:
    """Path of e.g. "static/client_mic.html". Raises ConfigurationError if this installation lacks it."""
    for root in (_PACKAGE, _PACKAGE.parent):
        if (root / name).is_file():
            return root / name
    raise ConfigurationError(f"{name} is missing from this installation; install realtime-server again")


def command(*words: str) -> str:
    """Spell `realtime-server WORDS` so that it works when pasted into the terminal of whoever reads it.

    By its name only if the PATH leads to this installation: not in a checkout, nor from another environment.
    """
    found = shutil.which(_COMMAND)
    own = Path(sysconfig.get_path("scripts"), _COMMAND)
    if found and Path(found).resolve() == own.resolve():
        return shlex.join([_COMMAND, *words])
    return shlex.join([sys.executable, "-m", "realtime_server", *words])
