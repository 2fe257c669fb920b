"""Where a process spends its CPU, by py-spy from outside; and how much each process of a server uses."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from realtime_server.bench import machine

PY_SPY, RATE = "py-spy", 100  # samples per second
LOOK_S = 0.5  # between two looks at the processes
SHOWN = 10  # functions in a table
FOREIGN = (
    "threading",
    "runpy",
    "asyncio",
    "futures",
    "importlib",
    "multiprocessing",
    "<string>",
    "uvloop",
    "_contextlib",
)
ENGINE, WORKER = "EngineCore", "VLLM"  # in the titles of vLLM's process and of those below it


@dataclass(frozen=True, slots=True)
class Look:
    """CPU seconds so far and megabytes of memory by process, and the GPU's memory in use."""

    at_s: float
    processes: Mapping[int, tuple[str, float, float]]  # name, CPU s, MB


@dataclass(slots=True)
class Watching:
    """A server's processes, looked at again and again. gpu: (MB in use, % of the time in which it was busy)."""

    looks: list[Look] = field(default_factory=list)
    gpu: list[tuple[float, float]] = field(default_factory=list)

    def between(self, began_s: float, ended_s: float) -> tuple[Look, Look]:
        """The looks nearest to two moments."""
        first = min(self.looks, key=lambda look: abs(look.at_s - began_s))
        return first, min(self.looks, key=lambda look: abs(look.at_s - ended_s))


def look(pid: int) -> Look:
    """At a process and those below it."""
    found = {}
    for each in (pid, *machine.descendants(pid)):
        with suppress(OSError):  # it has ended meanwhile
            found[each] = (_name(each, pid), machine.cpu_s(each), machine.rss_mb(each))
    return Look(time.monotonic(), found)


def engine_of(pid: int) -> int | None:
    """vLLM's process below a server's."""
    return next((each for each, (name, _, _) in look(pid).processes.items() if name == ENGINE), None)


@contextmanager
def watching(pid: int) -> Iterator[Watching]:
    """Look while the block runs."""
    found, stop = Watching(), threading.Event()

    def run() -> None:
        for number in range(1 << 30):
            with suppress(OSError):
                found.looks.append(look(pid))
            if number % 6 == 5:
                found.gpu += _gpu()
            if stop.wait(LOOK_S):
                return

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


def cores(before: Look, after: Look) -> dict[str, float]:
    """Cores' worth of CPU by name of process; those of one name together."""
    took_s, used = max(LOOK_S, after.at_s - before.at_s), dict[str, float]()
    for pid, (name, cpu_s, _) in after.processes.items():
        earlier = before.processes.get(pid)
        used[name] = used.get(name, 0.0) + (cpu_s - (earlier[1] if earlier else 0.0)) / took_s
    return used


def record(pids: Mapping[str, int], seconds: float, folder: Path) -> dict[str, Path]:
    """Sample processes at the same time; return the folded stacks of each, by name. Raises OSError without py-spy."""
    spy = shutil.which(PY_SPY)
    if spy is None:
        raise FileNotFoundError(f"{PY_SPY} is not on the path: nothing is profiled")
    files = {name: folder / f"profile-{name}.txt" for name in pids}
    running = {
        name: subprocess.Popen(
            [spy, "record", "--nonblocking", "-r", str(RATE), "-d", f"{seconds:g}", "-f", "raw",
             "-o", str(files[name]), "-p", str(pid)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for name, pid in pids.items()
    }  # fmt: skip
    troubles = []
    for name, process in running.items():
        try:
            _, said = process.communicate(timeout=2 * seconds + 20)
        except subprocess.TimeoutExpired:
            process.kill()
            said = process.communicate()[1] + " (it did not end)"
        if not files[name].is_file():
            troubles.append(f"{name}: {said.strip()[-300:]}")
    if troubles:
        raise OSError("; ".join(troubles))
    return files


def table(folded: Sequence[str], seconds: float, what: str) -> str:
    """The functions of folded stacks ("frame;frame count") in which most time was spent, themselves and below them."""
    whole, own = Counter[str](), Counter[str]()
    for line in folded:
        stack, _, count = line.rpartition(" ")
        frames = [_function(frame) for frame in stack.split(";")]
        own[frames[-1]] += int(count)
        for frame in dict.fromkeys(frames):
            whole[frame] += int(count)
    samples = seconds * RATE
    head = f"{what}: {100 * own.total() / samples:.0f} % of a core's time was sampled as busy"
    rows = [f"{100 * n / samples:5.1f} %  {name}" for name, n in own.most_common(SHOWN)]
    told = [(name, n) for name, n in whole.most_common() if not any(each in name for each in FOREIGN)]
    below = [f"{100 * n / samples:5.1f} %  {name}" for name, n in told[: 2 * SHOWN]]
    return "\n".join([head, "  in the function itself:", *rows, "  with what it calls:", *below])


def _function(frame: str) -> str:
    """A frame without its line: "name (package/file.py)"."""
    name, _, place = frame.partition(" (")
    path = place.rstrip(")").partition(":")[0]
    return f"{name} ({'/'.join(path.split('/')[-2:])})" if path else name


def _name(pid: int, main: int) -> str:
    if pid == main:
        return "server"
    title = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    if ENGINE in title:
        return ENGINE
    return "vLLM's workers" if WORKER in title else "other processes"


def _gpu() -> list[tuple[float, float]]:
    query = ["nvidia-smi", "--query-gpu=memory.used,utilization.gpu", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, check=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    used, busy = said.splitlines()[0].split(",")
    return [(float(used), float(busy))]
