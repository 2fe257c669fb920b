"""Text frames to commands, and the words with which what is no command is refused."""

from __future__ import annotations

import pytest

from realtime_server.core import messages as m
from realtime_server.core.commands import LONGEST_COMMAND, LONGEST_COMMIT_ID, read_command
from realtime_server.core.setup import StartRequest


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("START", m.Start()),
        ("  start\n", m.Start()),
        ("Stop", m.Stop()),
        ("COMMIT", m.Commit()),
        ("commit: 7 ", m.Commit("7")),
        ("COMMIT:" + "x" * LONGEST_COMMIT_ID, m.Commit("x" * LONGEST_COMMIT_ID)),
        ('START {"protocol": 2}', StartRequest()),
        (' start{"protocol": 2} ', StartRequest()),
        ("HOTWORDS:a,b", m.SetHotwords(("a", "b"))),
        ("hotwords: 张三，李四、王五,赵六\n陈七 ", m.SetHotwords(("张三", "李四", "王五", "赵六", "陈七"))),
        ("HOTWORDS:a,,a, ", m.SetHotwords(("a",))),
        ("HOTWORDS:", m.SetHotwords(())),
        ("LANGUAGE: 中文 ", m.SetLanguage("中文")),
        ("LANGUAGE:", m.SetLanguage("")),
        ("POSTPROCESS_HOTWORDS:x=>y,z", m.SetReplacements({"x": "y", "z": "z"})),
        ("POSTPROCESS_HOTWORDS:a->b，c→d", m.SetReplacements({"a": "b", "c": "d"})),
        ("POSTPROCESS_HOTWORDS:gone=>", m.SetReplacements({"gone": ""})),
        ("POSTPROCESS_HOTWORDS:", m.SetReplacements({})),
    ],
)
def test_commands_are_read(text: str, command: m.Command) -> None:
    assert read_command(text) == command


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hello", "unknown command: hello"),
        ("", "unknown command"),
        ("STARTED", "unknown command: STARTED"),
        ("HOTWORDS", "unknown command: HOTWORDS"),
        ("START:", "unknown command"),
        ("x" * 500, "x" * 80 + "…"),
        ('{"mode": "2pass", "chunk_size": [5, 10, 5]}', "older JSON protocol"),
        ("COMMIT:" + "x" * 101, "COMMIT's id of 101 characters is too long; the limit is 100"),
        ("POSTPROCESS_HOTWORDS:a=>b=>c", "cannot read 'a=>b=>c'"),
        ("POSTPROCESS_HOTWORDS:=>b", "cannot read '=>b'"),
    ],
)
def test_what_cannot_be_read_is_answered_in_words(text: str, words: str) -> None:
    command = read_command(text)
    assert isinstance(command, m.Invalid)
    assert words in command.message
    assert len(command.message) < 200


@pytest.mark.parametrize("name", ["HOTWORDS", "LANGUAGE", "POSTPROCESS_HOTWORDS", "NONSENSE"])
@pytest.mark.parametrize("length", [1_000, 65_000, 10_000_000])
def test_what_is_told_about_a_long_command_is_short(name: str, length: int) -> None:
    command = read_command(f"{name}:=>" + "x" * length)
    if isinstance(command, m.Invalid):
        assert len(command.message) < 300
    else:
        assert length <= LONGEST_COMMAND


def test_a_very_long_command_is_refused_unread() -> None:
    command = read_command("HOTWORDS:" + "a," * 5_000_000)
    assert isinstance(command, m.Invalid)
    assert "the limit is 65536" in command.message
