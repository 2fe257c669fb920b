"""`realtime-server transcribe`, as it is typed: what it writes where, what it skips, and how it ends."""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from realtime_server import cli_transcribe
from realtime_server.cli import main
from realtime_server.core.jobs import Decoded, DecodeJob
from realtime_server.engines.fake import FakeEngine, Fault
from tests.audio import silence, speech_pattern
from tests.offline.recordings import plain, recording

ROOT = Path(__file__).resolve().parents[1]
FAKE = ("--engine", "fake", "--vad", "level")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with recordings, which is the current one."""
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "one.wav").write_bytes(recording("wav", 1.0))
    (tmp_path / "in" / "sub" / "two.flac").write_bytes(recording("flac", 1.5))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def transcribe(*words: str) -> int:
    return main(["transcribe", *words, *FAKE])


def files(folder: Path) -> dict[str, str]:
    """Texts by path."""
    return {str(p.relative_to(folder)): p.read_text("utf-8") for p in folder.rglob("*") if p.is_file()}


def test_one_recording_is_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert transcribe("in/one.wav") == 0
    said = capsys.readouterr()
    assert said.out == "one two\n"
    assert said.err.startswith("one: 1.0 s of audio in ")


def test_several_are_told_apart(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert transcribe("in", "--quiet") == 0
    said = capsys.readouterr()
    assert said.out == "==> one <==\none two\n\n==> sub/two <==\none two three\n\n"
    assert said.err == ""


def test_a_folder_becomes_a_folder(folder: Path) -> None:
    assert transcribe("in", "--output", "texts", "--quiet") == 0
    assert files(folder / "texts") == {"one.txt": "one two\n", "sub/two.txt": "one two three\n"}
    assert transcribe("in", "-o", "subtitles", "--format", "srt", "--quiet") == 0
    assert sorted(files(folder / "subtitles")) == ["one.srt", "sub/two.srt"]


def test_what_is_there_is_not_done_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "texts").mkdir()
    (folder / "texts" / "one.txt").write_text("mine\n")
    assert transcribe("in", "-o", "texts") == 0
    assert files(folder / "texts") == {"one.txt": "mine\n", "sub/two.txt": "one two three\n"}
    assert "1 of 2 are there already\n" in capsys.readouterr().err
    assert transcribe("in", "-o", "texts") == 0
    assert capsys.readouterr().err == "2 of 2 are there already\n"
    assert transcribe("in", "-o", "texts", "--overwrite", "-q") == 0
    assert files(folder / "texts")["one.txt"] == "one two\n"


def test_nothing_is_loaded_when_nothing_is_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REALTIME_SERVER_CACHE", str(folder / "none"))
    (folder / "one.txt").write_text("mine\n")
    assert main(["transcribe", "in/one.wav", "-o", "one.txt"]) == 0
    assert main(["transcribe", "in/one.wav", "-o", "two.txt"]) == 1  # there are no weights


def test_lists_keep_their_keys(folder: Path) -> None:
    (folder / "wav.scp").write_text("utt1 in/one.wav\nutt2 in/sub/two.flac\n")
    assert transcribe("wav.scp", "-o", "results.jsonl", "--hotwords", "张三", "北京,上海") == 0
    records = [json.loads(line) for line in (folder / "results.jsonl").read_text("utf-8").splitlines()]
    assert {record["key"]: record["text"] for record in records} == {
        "utt1": "one two",
        "utt2": "one two three",
    }
    assert [word["word"] for word in records[0]["sentences"][0]["words"]][:2] == ["one", "two"]
    with (folder / "wav.scp").open("a") as file:
        file.write("utt3 in/one.wav\n")
    assert transcribe("wav.scp", "-o", "results.jsonl") == 0
    keys = [json.loads(line)["key"] for line in (folder / "results.jsonl").read_text("utf-8").splitlines()]
    assert sorted(keys) == ["utt1", "utt2", "utt3"]
    assert keys[-1] == "utt3"


def test_a_bad_recording_does_not_stop_the_others(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "in" / "bad.mp3").write_bytes(b"nonsense")
    assert transcribe("in", "in/none.wav", "-o", "texts") == 1
    assert sorted(files(folder / "texts")) == ["one.txt", "sub/two.txt"]
    *_, title, bad, none = capsys.readouterr().err.splitlines()
    assert title == "2 of 4 recordings failed:"
    assert bad.startswith("  in/bad.mp3: this is not a recording of a kind that is read here")
    assert none == "  in/none.wav: the recording cannot be opened: No such file or directory"


def test_a_text_that_cannot_be_written_does_not_stop_the_others(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "texts" / "sub").mkdir(parents=True)
    (folder / "wav.scp").write_text(f"{'x' * 300} in/one.wav\nutt2 in/sub/two.flac\n")
    assert transcribe("wav.scp", "-o", "texts", "-q") == 1
    assert files(folder / "texts") == {"utt2.txt": "one two three\n"}
    assert "its text cannot be written: File name too long" in capsys.readouterr().err


class Mortal(FakeEngine):
    """Dies at its third job."""

    async def transcribe(self, job: DecodeJob, on_text: Callable[[str], None] | None = None) -> Decoded:
        if len(self.jobs) == 2:
            self.die()
        return await super().transcribe(job, on_text)


def test_a_recognizer_that_dies_ends_it_and_what_is_done_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(9):
        (folder / "in" / f"{number}.wav").write_bytes(recording("wav", 1.0))
    (folder / "in" / "00.wav").write_bytes(b"")
    monkeypatch.setattr(cli_transcribe, "load_engine", lambda _: Mortal())
    assert transcribe("in", "-o", "texts", "--batch-size", "1") == 1
    assert sorted(files(folder / "texts")) == ["0.txt", "1.txt"]
    *_, title, empty, last = capsys.readouterr().err.splitlines()
    assert (title, empty) == ("1 of 12 recordings failed:", "  in/00.wav: the recording is an empty file")
    assert last.startswith("realtime-server: ")
    assert "died" in last


def test_passages_that_are_lost_are_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault())
    monkeypatch.setattr(cli_transcribe, "load_engine", lambda _: engine)
    assert transcribe("in/one.wav", "-o", "one.json", "-q") == 1
    assert json.loads((folder / "one.json").read_text())["sentences"][0]["flags"] == ["failed"]
    assert "in/one.wav: passages that could not be recognised: 1" in capsys.readouterr().err


def test_standard_input_is_a_recording(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(recording("flac", 1.0))))
    assert transcribe("-", "--format", "json", "-q") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["key"], said["text"]) == ("stdin", "one two")


def test_that_nobody_speaks_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "quiet.wav").write_bytes(plain((silence(2.0) * 32767).astype("int16"), 16_000))
    assert transcribe("quiet.wav", "-q") == 0
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "quiet.wav: no speech was found in it\n")


def test_a_terminal_is_no_recording(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    assert transcribe("-") == 2
    assert "standard input is a terminal" in capsys.readouterr().err


def test_speakers_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert transcribe("in/one.wav", "--speakers", "bands", "-q") == 0
    assert capsys.readouterr().out == "Speaker 1: one two\n"


def test_segments_end_as_it_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = speech_pattern([(1.0, 1.2), (1.0, 1.2)])
    (folder / "talk.wav").write_bytes(plain((samples * 32767).astype("int16"), 16_000))
    counts = []
    for flags in (
        [],
        ["--endpointing", "fixed:600"],
        ["--endpointing", "dynamic:inf:500"],
        ["--segmentation", "energy"],
    ):
        assert transcribe("talk.wav", "-q", *flags) == 0
        counts.append(capsys.readouterr().out.count("\n"))
    assert counts == [1, 2, 2, 1]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["in", "--format", "srt"], "--format srt: several recordings need --output DIR, or --format jsonl"),
        (["in", "--format", "json"], "--format json: several recordings need"),
        (
            ["in", "-o", "all.txt"],
            "--output all.txt: several recordings need a folder, or a file that ends in .jsonl",
        ),
        (["none.scp"], "none.scp: No such file"),
        (["empty"], "empty: there are no recordings in this folder"),
        (["in", "--language", "Klingon"], "--language: unknown language"),
        (["in", "--endpointing", "client"], "--endpointing: client is for live sessions"),
        (["in", "--endpointing", "soon"], "--endpointing: "),
        (["in", "--hotword-file", "none"], "--hotword-file none: No such file"),
        (["in", "-o", "in/one.wav/x"], "--output in/one.wav/x: "),
    ],
)
def test_what_cannot_be_is_told_in_one_sentence(
    words: list[str], error: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "empty").mkdir()
    assert transcribe(*words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"realtime-server: {error}")


def test_without_recordings_the_usage_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        transcribe("--hotwords", "a", "b.wav")
    assert "the following arguments are required: INPUT" in capsys.readouterr().err


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "realtime_server", "transcribe", *words, *FAKE]


def start(*words: str, **options: Any) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        command(*words), env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_and_what_is_done_is_kept(number: signal.Signals, code: int, folder: Path) -> None:
    (folder / "in" / "sub" / "z.wav").write_bytes(
        plain((speech_pattern([(600.0, 0.0)]) * 32767).astype("int16"), 16_000)
    )
    with start(
        "in", "-o", "texts", "--batch-size", "1", "--fake-decode-ms", "1500", "--fake-slots", "1"
    ) as run:
        end_s = time.monotonic() + 60
        while not (folder / "texts" / "sub" / "two.txt").exists() and time.monotonic() < end_s:
            time.sleep(0.01)
        (folder / "texts" / "one.txt").read_text()
        run.send_signal(number)
        _, err = run.communicate(timeout=30)
    assert run.returncode == code
    assert err.splitlines()[-1] == "interrupted; what is done is kept"
    done = files(folder / "texts")
    assert "sub/z.txt" not in done
    assert not any(name.endswith(".part") for name in done)


def test_it_ends_quietly_when_nobody_reads_on(folder: Path) -> None:
    for number in range(30):
        (folder / "in" / f"{number}.wav").write_bytes(recording("wav", 1.0))
    with start("in", "-q", "--format", "jsonl", "--batch-size", "1", "--fake-decode-ms", "20") as run:
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.readline()
        run.stdout.close()
        assert run.stderr.read() == ""
        assert run.wait(30) == 1


def test_the_page_names_every_flag() -> None:
    parser = argparse.ArgumentParser()
    cli_transcribe.add_arguments(parser)
    page = (ROOT / "docs" / "sdk.md").read_text(encoding="utf-8")
    page += (ROOT / "docs" / "flags.md").read_text(encoding="utf-8")
    flags = [flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")]
    assert [flag for flag in flags if f"`{flag}" not in page and flag != "--help"] == []
