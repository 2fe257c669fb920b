"""Where transcriptions go: whole files, whole lines, in the recordings' order, never outside of the folder."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from realtime_server.cli_outputs import FORMATS, Folder, Lines, SingleFile, Stream
from realtime_server.errors import ConfigurationError
from realtime_server.offline.inputs import Item
from realtime_server.offline.transcription import Transcription
from tests.offline.transcriptions import sentence


def said(text: str) -> Transcription:
    return Transcription((sentence(text),), 2000)


def item(key: str) -> Item:
    return Item(key, Path(f"{key}.wav"))


def folder(path: Path, form: str = "txt", *, overwrite: bool = False) -> Folder:
    return Folder(form, speakers=False, folder=path, overwrite=overwrite)


def test_a_stream_keeps_the_order_and_names_what_it_writes() -> None:
    items, stream = [item(key) for key in "abc"], io.StringIO()
    output = Stream("txt", speakers=False, stream=stream, items=items)
    output.write(items[1], said("two"))
    assert stream.getvalue() == ""
    output.write(items[0], said("one"))
    assert stream.getvalue() == "==> a <==\none\n\n==> b <==\ntwo\n\n"
    output.write(items[2], said("three"))
    assert stream.getvalue().endswith("==> c <==\nthree\n\n")
    assert not output.has(items[0])


def test_a_stream_does_not_wait_for_what_failed_and_keeps_what_is_done() -> None:
    items, stream = [item(key) for key in "abc"], io.StringIO()
    output = Stream("jsonl", speakers=False, stream=stream, items=items)
    output.skip(items[0])
    output.write(items[2], said("three"))
    assert stream.getvalue() == ""
    output.close()
    assert json.loads(stream.getvalue())["key"] == "c"


def test_one_recording_has_no_title() -> None:
    items, stream = [item("a")], io.StringIO()
    Stream("txt", speakers=False, stream=stream, items=items).write(items[0], said("one"))
    assert stream.getvalue() == "one\n"


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_written(form: str, tmp_path: Path) -> None:
    output = folder(tmp_path, form)
    output.write(item("a"), said("one"))
    text = (tmp_path / f"a.{form}").read_text(encoding="utf-8")
    assert "one" in text
    assert output.times == (form in ("srt", "vtt", "json", "jsonl"))
    if form.startswith("json"):
        assert json.loads(text)["text"] == "one"


def test_a_folder_gets_a_file_for_each_key(tmp_path: Path) -> None:
    output = folder(tmp_path / "new" / "texts")
    for key in ("a", "sub/b.c", "张三"):
        assert not output.has(item(key))
        output.write(item(key), said(key))
        assert output.has(item(key))
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert found == ["new/texts/a.txt", "new/texts/sub/b.c.txt", "new/texts/张三.txt"]
    assert not folder(tmp_path / "new" / "texts", overwrite=True).has(item("a"))
    assert not folder(tmp_path / "new" / "texts", "srt").has(item("a"))


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("/etc/x", "etc/x.txt"),
        ("../../x", "x.txt"),
        ("..", "recording.txt"),
        ("", "recording.txt"),
        ("a\0b", "ab.txt"),
    ],
)
def test_no_key_leads_out_of_the_folder(key: str, name: str, tmp_path: Path) -> None:
    output = folder(tmp_path / "texts")
    output.write(Item(key, Path("a.wav")), said("one"))
    assert (tmp_path / "texts" / name).read_text() == "one\n"


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    output = folder(tmp_path)
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(OSError, match="directory"):
        output.write(item("a"), said("one"))
    with pytest.raises(OSError, match="long"):
        output.write(item("x" * 300), said("one"))
    assert not output.has(item("x" * 300))
    assert list(tmp_path.iterdir()) == [tmp_path / "a.txt"]


def test_a_single_file_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "talk.srt"
    output = SingleFile("srt", speakers=False, path=path, overwrite=False)
    assert not output.has(item("a"))
    output.write(item("a"), said("one"))
    assert output.has(item("a"))
    assert "-->" in path.read_text()
    assert not SingleFile("srt", speakers=False, path=path, overwrite=True).has(item("a"))


def lines(path: Path, *, overwrite: bool = False) -> Lines:
    return Lines(path=path, overwrite=overwrite)


def test_lines_are_added_and_remembered(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "x.jsonl"
    output = lines(path)
    output.write(item("a"), said("一"))
    output.close()
    output = lines(path)
    assert output.has(item("a"))
    assert not output.has(item("b"))
    output.write(item("b"), said("two"))
    output.close()
    assert [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()] == [
        "一",
        "two",
    ]
    output = lines(path, overwrite=True)
    assert not output.has(item("a"))
    output.close()
    assert path.read_text() == ""


def test_half_a_line_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes('{"key": "a"}\n{"key": "张'.encode()[:-1])
    output = lines(path)
    assert output.has(item("a"))
    output.write(item("b"), said("two"))
    output.close()
    assert [json.loads(line)["key"] for line in path.read_text(encoding="utf-8").splitlines()] == ["a", "b"]


@pytest.mark.parametrize("content", ["text\n", "3\n", "{}\n"])
def test_a_file_that_holds_something_else_is_not_touched(content: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    with pytest.raises(
        ConfigurationError, match=r"x\.jsonl: it holds other lines than ours; use --overwrite"
    ):
        lines(path)
    assert path.read_text() == content


def test_a_place_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"--output .*file: "):
        folder(tmp_path / "file")
    with pytest.raises(ConfigurationError, match=r"--output .*"):
        lines(tmp_path / "file" / "x.jsonl")
    (tmp_path / "x.jsonl").mkdir()
    with pytest.raises(ConfigurationError, match=r"--output .*Is a directory"):
        lines(tmp_path / "x.jsonl")
