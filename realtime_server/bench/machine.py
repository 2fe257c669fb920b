"""What Linux tells about processes and the whole machine, read from /proc."""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LINUX = sys.platform == "linux"  # elsewhere nothing below can be read
TICKS = os.sysconf("SC_CLK_TCK") if LINUX else 100  # per second, the unit of CPU time in /proc
PAGE = os.sysconf("SC_PAGE_SIZE") if LINUX else 4096  # bytes
LISTENING = "0A"  # a socket's state in /proc/net/tcp
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


def listener(port: int) -> int | None:
    """The process that listens on a port of this machine, as far as this user may know it."""
    sockets = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                columns = row.split()
                if columns[3] == LISTENING and int(columns[1].rpartition(":")[2], 16) == port:
                    sockets.add(f"socket:[{columns[9]}]")
    for folder in Path("/proc").glob("[0-9]*/fd") if sockets else ():
        with suppress(OSError):  # it has ended meanwhile, or is somebody else's
            if any(str(file.readlink()) in sockets for file in folder.iterdir()):
                return int(folder.parent.name)
    return None


def rss_mb(pid: int) -> float:
    """Megabytes of memory that a process occupies now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 1e6


def peak_mb(pid: int) -> float:
    """The most megabytes of memory that a process has occupied since it began."""
    (kib,) = re.findall(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(kib) * 1024 / 1e6


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
    return sum(os.times()[:4])


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

    @classmethod
    def of_all(cls, pid: int) -> Usage:
        """Read it now, of a process and its descendants together; memory that they share counts for each."""
        usages = [cls.of(pid)]
        for each in descendants(pid):
            with suppress(OSError):  # it has ended meanwhile
                usages.append(cls.of(each))
        return cls(usages[0].at_s, sum(u.cpu_s for u in usages), sum(u.rss_mb for u in usages))

    def cores_since(self, earlier: Usage) -> float:
        """Cores' worth of CPU used between two moments."""
        return (self.cpu_s - earlier.cpu_s) / (self.at_s - earlier.at_s)
