"""The command `realtime-server`, with an engine more: "mortal", a fake one that dies of SIGUSR1.

python -m tests.realtime.mortal serve --engine mortal ...
"""

from __future__ import annotations

import asyncio
import signal
import sys

from realtime_server.cli import main
from realtime_server.engines.fake import FakeEngine
from realtime_server.engines.loading import ENGINES


class MortalEngine(FakeEngine):
    """A FakeEngine at the mercy of whoever runs the test."""

    async def warmup(self) -> None:
        """Wait for the end."""
        await super().warmup()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self.die)


if __name__ == "__main__":
    ENGINES["mortal"] = lambda options: MortalEngine(decode_s=options.fake_decode_s)
    sys.exit(main())
