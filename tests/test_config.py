"""`realtime-server serve`: flags to options, and the words for what cannot be."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pytest

from realtime_server import config
from realtime_server.cli import main
from realtime_server.engines.fake import CAPABILITIES
from realtime_server.errors import ConfigurationError

README = Path(__file__).resolve().parents[1] / "README.md"


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    config.add_arguments(parser)
    return parser


def read(*flags: str) -> config.ServeConfig:
    return config.read_arguments(parser().parse_args(flags))


def test_without_flags_the_options_are_their_own_defaults() -> None:
    it = read()
    assert it.server == type(it.server)()
    assert it.clocks == type(it.clocks)()
    assert it.session == type(it.session)()


def test_flags_become_options(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("# names\n张三，李四\nFunASR # ours\n\n<|im_end|>\n", encoding="utf-8")
    it = read(
        "--language", "中文", "--hotword-file", str(words), "--endpointing", "fixed:600", "--no-eager",
        "--max-segment-seconds", "20", "--max-hotwords", "7", "--port", "0", "--stall-seconds", "2",
    )  # fmt: skip
    assert it.session.options.language == "zh"
    assert it.session.options.hotwords[:3] == ("张三", "李四", "FunASR")
    assert all("<" not in word for word in it.session.options.hotwords)
    assert (it.session.endpointing.mode, it.session.endpointing.silence_ms) == ("fixed", 600)
    assert it.session.endpointing.eager_ms is None
    assert it.session.endpointing.max_segment_ms == 20_000
    assert it.session.limits.hotwords == 7
    assert it.server.port == 0
    assert it.clocks.stall_s == 2


def test_the_schedule_may_be_given_on_its_own() -> None:
    it = read("--silence-schedule", "1000:500,inf:300")
    assert it.session.endpointing.schedule.silence_ms(2000) == 300
    assert it.endpointing == "dynamic:1000:500,inf:300"


def test_endpoint_mode_is_the_same_flag() -> None:
    assert read("--endpoint-mode", "client").session.endpointing.mode == "client"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--language", "Klingon"], "--language.*Klingon"),
        (["--endpointing", "soon"], "expected dynamic"),
        (["--endpointing", "fixed:600", "--silence-schedule", "inf:500"], "--silence-schedule goes with"),
        (["--hotword-file", "/no/such/file"], "--hotword-file /no/such/file"),
        (["--max-sentences", "0"], "sentences must be above zero"),
        (["--max-sessions", "0"], "max_sessions must be above zero"),
        (["--port", "70000"], "port must be 0 to 65535"),
        (["--workers", "0"], "workers must be above zero"),
        (["--stall-seconds", "-1"], "stall_s must be above zero"),
    ],
)
def test_what_cannot_be_is_refused_in_words(flags: list[str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        read(*flags)


@pytest.mark.parametrize(
    ("flags", "capabilities", "words"),
    [
        (["--max-segment-seconds", "40"], {"longest_s": 30.0}, "takes at most 30 s"),
        (["--language", "de"], {"languages": frozenset({"en"})}, "--language de"),
        (["--language", "en"], {"languages": None}, "--language en"),
    ],
)
def test_what_the_recognizer_lacks_is_refused_at_the_start(
    flags: list[str], capabilities: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        config.check_engine(read(*flags), replace(CAPABILITIES, **capabilities))  # type: ignore[arg-type]


def test_hotwords_that_cannot_be_used_are_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("a")
    settings = read("--hotword-file", str(tmp_path / "words.txt"))
    config.check_engine(settings, CAPABILITIES)
    with pytest.raises(ConfigurationError, match="--hotword-file"):
        config.check_engine(settings, replace(CAPABILITIES, hotwords="none"))


def test_a_wrong_value_ends_with_one_sentence_and_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--engine", "fake", "--language", "Klingon"]) == 2
    assert capsys.readouterr().err.startswith("realtime-server: --language")


def test_the_readme_names_every_flag() -> None:
    text = README.read_text(encoding="utf-8")
    flags = [flag for action in parser()._actions for flag in action.option_strings if flag.startswith("--")]
    assert [flag for flag in flags if f"`{flag}" not in text and flag != "--help"] == []
