"""What Linux tells about processes and the whole machine, read from /proc."""

from __future__ import annotations

import os
import resource
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")  # per second, the unit of CPU time in /proc
PAGE = os.sysconf("SC_PAGE_SIZE")  # bytes
STEAL = 7  # column of /proc/stat's first line: taken by other virtual machines


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used so far, all threads, in user space and the kernel."""
    # The name in parentheses may hold spaces; what follows it is fixed.
    columns = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(columns[11]) + int(columns[12])) / TICKS


def descendants(pid: int) -> list[int]:
    """Processes that a process started, those that they started, and so on, as far as they still run."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    found = list(children.get(pid, []))
    for each in found:  # grows as it goes
        found += children.get(each, [])
    return found


def rss_mb(pid: int) -> float:
    """Megabytes of memory that a process occupies now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 1e6


def describe() -> str:
    """Processor and cores."""
    info = Path("/proc/cpuinfo").read_text()
    models = [line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")]
    return f"{models[0] if models else 'unknown processor'}, {cores()} cores"


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _whole_machine_s() -> tuple[float, float]:
    """CPU seconds since boot: in use by anybody, stolen by other machines."""
    user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    busy = user + nice + system + rest[0] + rest[1]  # rest: irq, softirq, steal, ...
    return busy / TICKS, rest[STEAL - 5] / TICKS


def _ours_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class Watch:
    """How busy others kept the machine meanwhile: from the constructor to `conditions`."""

    def __init__(self) -> None:
        self._load = os.getloadavg()[0]
        self._began_s, self._ours_s = time.monotonic(), _ours_s()
        self._busy_s, self._stolen_s = _whole_machine_s()

    def conditions(self) -> dict[str, float]:
        """Cores, load averages, and cores' worth of CPU that other processes and other machines took."""
        took_s = time.monotonic() - self._began_s
        busy_s, stolen_s = _whole_machine_s()
        others_s = busy_s - self._busy_s - (_ours_s() - self._ours_s)
        return {
            "cores": cores(),
            "load average before": self._load,
            "after": os.getloadavg()[0],
            "cores used by others": max(others_s, 0.0) / took_s,
            "stolen": (stolen_s - self._stolen_s) / took_s,
        }


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used, read at one moment."""

    at_s: float
    cpu_s: float
    rss_mb: float

    @classmethod
    def of(cls, pid: int) -> Usage:
        """Read it now."""
        return cls(time.monotonic(), cpu_s(pid), rss_mb(pid))

    def cores_since(self, earlier: Usage) -> float:
        """Cores' worth of CPU used between two moments."""
        return (self.cpu_s - earlier.cpu_s) / (self.at_s - earlier.at_s)
