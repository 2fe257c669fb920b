"""Progress: a bar on a terminal, lines elsewhere, nothing when it is to be quiet."""

from __future__ import annotations

import io
from pathlib import Path

from realtime_server.cli_progress import Progress
from realtime_server.offline.inputs import Item


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def items(folder: Path, *sizes: int) -> list[Item]:
    made = []
    for number, size in enumerate(sizes):
        path = folder / f"{number}.wav"
        path.write_bytes(bytes(size))
        made.append(Item(path.stem, path))
    return made


def test_the_status_counts_bytes_and_estimates_the_rest(tmp_path: Path) -> None:
    one, two = made = items(tmp_path, 3000, 1000)
    clock = Clock()
    progress = Progress(io.StringIO(), made, clock=clock)
    assert progress.status() == "  0%  0/2  -x  - left"
    clock.now_s += 30
    progress.advance(one, 200.0, 400.0)
    assert progress.status() == " 38%  0/2  7x  0:50 left"
    progress.finish(one, 400.0, 30.0)
    assert progress.status() == " 75%  1/2  13x  0:10 left"
    clock.now_s += 7200
    assert progress.status() == " 75%  1/2  0x  40:10 left"
    progress.finish(two, None)
    assert progress.status() == "100%  2/2  0x  0:00 left"


def test_elsewhere_than_on_a_terminal_it_writes_lines(tmp_path: Path) -> None:
    one, two = made = items(tmp_path, 1000, 1000)
    stream, clock = io.StringIO(), Clock()
    progress = Progress(stream, made, clock=clock)
    progress.advance(one, 1.0, 10.0)
    assert stream.getvalue() == ""
    clock.now_s += 20
    progress.advance(one, 5.0, 10.0)
    assert stream.getvalue() == " 25%  0/2  0x  1:00 left\n"
    progress.finish(one, 10.0, 21.5)
    progress.finish(two, None)
    progress.close()
    assert stream.getvalue().splitlines()[1:] == [
        "0: 10.0 s of audio in 21.5 s",
        "1 recording, 10.0 s of audio in 20.0 s, 0.5 times real time",
    ]


def test_on_a_terminal_it_draws_a_bar_and_writes_above_it(tmp_path: Path) -> None:
    one, two = made = items(tmp_path, 1000, 1000)
    stream, clock = Terminal(), Clock()
    progress = Progress(stream, made, clock=clock)
    clock.now_s += 1
    progress.advance(one, 10.0, 10.0)
    assert stream.getvalue() == "\r[############------------]  50%  0/2  10x  0:01 left\x1b[K"
    progress.advance(one, 10.0, 10.0)  # too soon to be drawn
    assert stream.getvalue().count("\r") == 1
    progress.say("a note")
    progress.finish(two, 10.0, 1.0)
    progress.close()
    rest = stream.getvalue().split("\x1b[K", 1)[1]
    assert rest.startswith("\r\x1b[Ka note\n\r[####################")
    assert rest.endswith("\r\x1b[K1 recording, 10.0 s of audio in 1.0 s, 10.0 times real time\n")


def test_quiet_it_says_only_what_goes_wrong(tmp_path: Path) -> None:
    (one,) = made = items(tmp_path, 1000)
    for stream in (io.StringIO(), Terminal()):
        clock = Clock()
        progress = Progress(stream, made, quiet=True, clock=clock)
        clock.now_s += 100
        progress.advance(one, 5.0, 10.0)
        progress.finish(one, 10.0, 1.0)
        progress.say("bad")
        progress.close()
        assert stream.getvalue() == "bad\n"


def test_what_has_no_size_counts_too() -> None:
    made = [Item("stdin", io.BytesIO()), Item("none", Path("no/such/file"))]
    clock = Clock()
    progress = Progress(io.StringIO(), made, clock=clock)
    clock.now_s += 1
    progress.advance(made[0], 0.0, 0.0)
    assert progress.status() == "100%  0/2  0x  0:00 left"
    assert Progress(io.StringIO(), [], clock=clock).status() == "100%  0/0  -x  0:00 left"
