"""The command `realtime-server`, which is `python -m realtime_server` too.

Signals wait until its packages are imported: a process that is told to stop meanwhile ends in its own way.
"""

import signal


def main() -> int:
    """Run it; return its exit code."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    from realtime_server.cli import main as run

    return run()


if __name__ == "__main__":
    raise SystemExit(main())
