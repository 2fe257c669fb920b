"""How many clients a server holds: `realtime-server bench`, as one of the benchmarks."""

from realtime_server.bench.load import add_arguments, run

__all__ = ["add_arguments", "run"]
