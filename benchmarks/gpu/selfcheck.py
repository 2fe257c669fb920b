"""The project's own tests that need a GPU, where there is one; they need pytest and pytest-asyncio."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from benchmarks.gpu.bench import Bench
from realtime_server.bench.figures import Report
from realtime_server.errors import EngineError

ROOT = Path(__file__).resolve().parents[2]
MARK = "mark.gpu"  # is in the files that have such tests
LIMIT_S = 200.0
# Of plugins that happen to be installed none is wanted, and warnings of packages that others chose are no failures.
COMMAND = (
    sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider",
    "-W", "default",
)  # fmt: skip
COUNTS = ("passed", "failed", "error", "skipped")


def measure(bench: Bench) -> Report:
    """Run them; raises EngineError if pytest itself does not work."""
    report = bench.report("selfcheck", "tests that need a GPU")
    files = [str(path) for path in sorted(ROOT.glob("tests/**/test_*.py")) if MARK in path.read_text("utf-8")]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [*COMMAND, *files],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    print(done.stdout[-6000:], done.stderr[-2000:], file=sys.stderr, flush=True)
    if done.returncode > 1:
        raise EngineError(f"pytest ended with code {done.returncode}: {(done.stdout + done.stderr)[-500:]}")
    for name in COUNTS:
        count = re.search(rf"(\d+) {name}s?\b", done.stdout.splitlines()[-1])
        most = 0.0 if name in ("failed", "error") else None
        least = 1.0 if name == "passed" else None
        report.add(name, float(count[1]) if count else 0.0, at_most=most, at_least=least)
    report.notes += [
        line[:200] for line in done.stdout.splitlines() if re.match("(FAILED|ERROR|SKIPPED)", line)
    ]
    return report
