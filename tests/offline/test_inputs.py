"""Paths, folders and lists become recordings with keys; nothing that a list says is run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from realtime_server.errors import ConfigurationError
from realtime_server.offline.inputs import Item, distinct, expand

Pairs = list[tuple[str, str]]


def pairs(items: list[Item], folder: Path) -> Pairs:
    """Keys and paths, from the folder on where they lie in it."""
    found = []
    for item in items:
        assert isinstance(item.source, Path)
        within = item.source.is_relative_to(folder)
        found.append((item.key, str(item.source.relative_to(folder) if within else item.source)))
    return found


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_a_path_is_a_recording_called_by_its_name_whether_or_not_it_is_there(tmp_path: Path) -> None:
    assert pairs(expand(tmp_path / "talk.v2.mp3"), tmp_path) == [("talk.v2", "talk.v2.mp3")]
    assert pairs(expand("talk"), tmp_path) == [("talk", "talk")]


def test_a_folder_is_the_recordings_in_it_and_below_in_order(tmp_path: Path) -> None:
    touch(
        tmp_path,
        "b.wav",
        "a/z.FLAC",
        "a/y.mkv",
        "a.mp3",
        "notes.txt",
        "wav.scp",
        "._b.wav",
        ".git/c.wav",
        "d",
    )
    assert pairs(expand(tmp_path), tmp_path) == [
        ("a", "a.mp3"),
        ("b", "b.wav"),
        ("a/y", "a/y.mkv"),
        ("a/z", "a/z.FLAC"),
    ]


def test_a_wav_scp_is_keys_and_paths_or_paths_alone(tmp_path: Path) -> None:
    lines = "\ufeffutt1 /data/1.wav\n\nutt2\t/data/with space.wav  \n/data/3.wav\n"
    (tmp_path / "wav.scp").write_text(lines, encoding="utf-8")
    assert pairs(expand(tmp_path / "wav.scp"), tmp_path) == [
        ("utt1", "/data/1.wav"),
        ("utt2", "/data/with space.wav"),
        ("3", "/data/3.wav"),
    ]


def test_a_path_in_a_list_is_looked_for_beside_the_list_too(tmp_path: Path) -> None:
    touch(tmp_path, "sounds/1.wav")
    (tmp_path / "list.txt").write_text("utt1 sounds/1.wav\nutt2 sounds/2.wav\n")
    assert pairs(expand(tmp_path / "list.txt"), tmp_path) == [
        ("utt1", "sounds/1.wav"),
        ("utt2", "sounds/2.wav"),
    ]


def test_a_line_that_is_a_file_as_it_stands_is_a_path(tmp_path: Path) -> None:
    touch(tmp_path, "my talk.wav")
    (tmp_path / "list.txt").write_text(f"{tmp_path}/my talk.wav\n")
    assert pairs(expand(tmp_path / "list.txt"), tmp_path) == [("my talk", "my talk.wav")]


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_a_name_that_no_file_can_have_is_only_not_there(name: str, tmp_path: Path) -> None:
    assert [item.key for item in expand(name)] == [name]
    (tmp_path / "wav.scp").write_text(f"utt1 {name}\n{name}\n")
    assert [item.key for item in expand(tmp_path / "wav.scp")] == ["utt1", name]


def test_a_command_in_a_list_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "wav.scp").write_text(f"utt1 touch {tmp_path}/run |\n")
    assert [item.key for item in expand(tmp_path / "wav.scp")] == ["utt1"]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("line", "pair"),
    [
        ({"key": "utt1", "source": "/1.wav", "target": "text", "source_len": 3}, ("utt1", "/1.wav")),
        ({"id": 7, "wav": "/1.wav"}, ("7", "/1.wav")),
        ({"audio_filepath": "/data/1.wav", "duration": 3.2}, ("1", "/data/1.wav")),
        ({"key": "", "audio": "/1.wav"}, ("1", "/1.wav")),
        (
            {
                "messages": [
                    {"role": "system", "content": "You are a helpful assistant."},
                    {"role": "user", "content": "语音转写：<|startofspeech|>!/data/1.wav<|endofspeech|>"},
                ]
            },
            ("1", "/data/1.wav"),
        ),
    ],
)
def test_a_jsonl_names_recordings_as_funasr_does(
    line: dict[str, object], pair: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "x.jsonl").write_text(f"\n{json.dumps(line, ensure_ascii=False)}\n", encoding="utf-8")
    assert pairs(expand(tmp_path / "x.jsonl"), tmp_path) == [pair]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", r"x\.jsonl, line 2: it is not JSON"),
        ("[]", r"x\.jsonl, line 2: no field names the recording, such as source, wav, audio"),
        ('{"source": ""}', "line 2: no field names"),
        ('{"source": 3}', "line 2: no field names"),
        ('{"messages": [3, {"content": null}]}', "line 2: no field names"),
    ],
)
def test_a_line_that_cannot_be_read_is_told_by_its_number(line: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(f'{{"source": "1.wav"}}\n{line}\n')
    with pytest.raises(ConfigurationError, match=words):
        expand(tmp_path / "x.jsonl")


def test_what_holds_no_recordings_is_told(tmp_path: Path) -> None:
    (tmp_path / "wav.scp").write_text("\n")
    (tmp_path / "gb.txt").write_bytes("张三 1.wav".encode("gb18030"))
    with pytest.raises(ConfigurationError, match=r"wav\.scp: there are no recordings in this list"):
        expand(tmp_path / "wav.scp")
    with pytest.raises(ConfigurationError, match="there are no recordings in this folder"):
        expand(tmp_path)
    with pytest.raises(ConfigurationError, match=r"gb\.txt: it is not text in UTF-8"):
        expand(tmp_path / "gb.txt")
    with pytest.raises(ConfigurationError, match=r"none\.scp: No such file"):
        expand(tmp_path / "none.scp")


def keys(*pairs: tuple[str, str]) -> list[str]:
    return [item.key for item in distinct(Item(key, Path(path)) for key, path in pairs)]


def test_keys_that_are_equal_are_told_apart() -> None:
    assert keys(("a", "a.wav"), ("b", "b.wav")) == ["a", "b"]
    assert keys(("a", "a.wav"), ("a", "a.mp3"), ("b", "b.wav")) == ["a.wav", "a.mp3", "b"]
    assert keys(("a", "x/a.wav"), ("a", "y/a.wav")) == ["x/a.wav", "y/a.wav"]
    assert keys(("s/a", "x/s/a.wav"), ("s/a", "y/s/a.wav")) == ["x/s/a.wav", "y/s/a.wav"]


def test_a_file_that_is_named_twice_is_there_once() -> None:
    assert keys(("a", "a.wav"), ("a", "a.wav")) == ["a"]


def test_one_key_for_two_recordings_of_a_list_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="2 recordings have the key 'utt1'"):
        keys(("utt1", "a.wav"), ("utt1", "b.wav"))
