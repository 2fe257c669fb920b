"""The command `realtime-server`, which is `python -m realtime_server` too.

Signals wait until its packages are imported: a process that is told to stop meanwhile ends in its own way, and one
that is told to read its files again goes on.
"""

import signal


def main() -> int:
    """Run it; return its exit code."""
    if hasattr(signal, "pthread_sigmask"):  # not so on Windows, which has no SIGHUP either
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    from realtime_server.cli import main as run

    return run()


if __name__ == "__main__":
    raise SystemExit(main())
