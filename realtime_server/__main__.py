"""`python -m realtime_server` is the command `realtime-server`."""

from realtime_server.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
