"""`realtime-server serve`: flags to options, and the words for what cannot be."""

from __future__ import annotations

import argparse
import contextlib
import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from realtime_server import config, flags
from realtime_server.cli import main
from realtime_server.engines.fake import CAPABILITIES
from realtime_server.engines.loading import model_names
from realtime_server.engines.nano_options import NanoOptions
from realtime_server.engines.speech_options import SpeechOptions
from realtime_server.errors import ConfigurationError

ROOT = Path(__file__).resolve().parents[1]


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    flags.add_arguments(parser)
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
        (["--endpointing", "soon"], "--endpointing: .*'soon': expected dynamic"),
        (["--endpointing", "fixed:50"], "--endpointing: silence of 50 ms"),
        (["--silence-schedule", "soon"], "--silence-schedule: .*'soon'"),
        (["--endpointing", "fixed:600", "--silence-schedule", "inf:500"], "--silence-schedule goes with"),
        (["--hotword-file", "/no/such/file"], "^--hotword-file /no/such/file: No such file or directory$"),
        (["--hotword-file", "/"], "^--hotword-file /: Is a directory$"),
    ],
)
def test_what_cannot_be_is_refused_in_words(flags: list[str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        read(*flags)


def test_a_hotword_file_that_is_no_text_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_bytes("张三".encode("gb18030"))
    with pytest.raises(ConfigurationError, match=r"--hotword-file .*words\.txt: it is not text in UTF-8$"):
        read("--hotword-file", str(tmp_path / "words.txt"))


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("--max-sentences", "0", "a whole number above zero"),
        ("--max-sessions", "2.5", "a whole number above zero"),
        ("--port", "70000", "a whole number from 0 to 65535"),
        ("--port", "-1", "a whole number from 0 to 65535"),
        ("--workers", "0", "a whole number above zero"),
        ("--stall-seconds", "nan", "a number of seconds above zero, at most a billion"),
        ("--max-session-seconds", "0", "a number of seconds above zero, at most a billion"),
        ("--max-session-seconds", "inf", "a number of seconds above zero, at most a billion"),
        ("--max-segment-seconds", "0.5", "a number of seconds from 1 to 60"),
        ("--fake-decode-ms", "-1", "a number of milliseconds from 0 to a billion"),
        ("--gpu-memory-utilization", "0", "a share, above 0 and at most 1"),
    ],
)
def test_a_number_that_cannot_be_is_refused_with_its_flag(
    flag: str, value: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--engine", "fake", flag, value])
    assert ended.value.code == 2
    *usage, error = capsys.readouterr().err.splitlines()
    assert error == f"realtime-server serve: error: argument {flag}: expected {words}, not {value}"
    assert len(usage) == 1


NUMBERS = [action for action in parser()._actions if action.type not in (None, Path)]


@pytest.mark.parametrize(
    "value", ["nan", "inf", "-inf", "-1", "0", "1e-300", "1e300", "9" * 400, "1", "x", ""]
)
@pytest.mark.parametrize("flag", [action.option_strings[0] for action in NUMBERS])
def test_no_number_passes_its_flag_and_fails_later(
    flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.suppress(SystemExit):
        read(f"{flag}={value}")
    err = capsys.readouterr().err
    assert err == "" or f"argument {flag}: expected " in err


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield int(other.getsockname()[1])


def test_a_port_that_is_taken_is_told_before_anything_is_loaded(
    taken_port: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REALTIME_SERVER_CACHE", str(tmp_path))  # the recognizer could not be loaded
    assert main(["serve", "--port", str(taken_port)]) == 2
    words = "Address already in use; choose another --port or --host"
    assert capsys.readouterr().err == f"realtime-server: cannot listen on 127.0.0.1:{taken_port}: {words}\n"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", ""])
def test_a_free_port_can_be_listened_on(host: str) -> None:
    port = config.check_address(host, 0)
    assert port > 0
    assert config.check_address("127.0.0.1", port) == port


@pytest.mark.parametrize(
    ("host", "why"), [("192.0.2.1", "[A-Z][a-z ]+"), ("a..b", "that is no name of a host")]
)
def test_an_address_that_is_not_of_this_machine_is_refused_in_words(host: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^cannot listen on {host}:0: {why}; choose another"):
        config.check_address(host, 0)


def test_an_address_of_a_kind_that_this_machine_lacks_is_passed_over(taken_port: int) -> None:
    lacking, here, taken = (
        (socket.AF_INET, socket.SOCK_STREAM, 0, "", address)
        for address in [("192.0.2.1", 0), ("127.0.0.1", 0), ("127.0.0.1", taken_port)]
    )
    assert config._first_port([lacking, here]) > 0
    for refused in ([lacking], [lacking, taken], [here, taken]):
        with pytest.raises(OSError, match=r"(?i)address"):
            config._first_port(refused)


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
        config.fit_engine(read(*flags), replace(CAPABILITIES, **capabilities))  # type: ignore[arg-type]


def test_what_was_not_asked_for_gives_way_to_what_the_recognizer_bears() -> None:
    can = replace(CAPABILITIES, longest_s=12.5, schedule=False)
    fitted = config.fit_engine(read(), can)
    assert fitted.session.endpointing.max_segment_ms == 12_500
    assert (fitted.session.endpointing.mode, fitted.endpointing) == ("fixed", "fixed:800")
    kept = config.fit_engine(read("--endpointing", "fixed:600", "--max-segment-seconds", "10"), can)
    assert (kept.session.endpointing.max_segment_ms, kept.endpointing) == (10_000, "fixed:600")
    assert config.fit_engine(read(), CAPABILITIES) == read()


@pytest.mark.parametrize(
    "flags",
    [("--endpointing", "dynamic"), ("--endpointing", "dynamic:1:500"), ("--silence-schedule", "inf:500")],
)
def test_a_schedule_that_was_asked_for_is_refused_where_it_is_not_borne(flags: tuple[str, ...]) -> None:
    words = "--endpointing dynamic.*: this recognizer bears no silence schedule; use fixed:800 or client"
    with pytest.raises(ConfigurationError, match=words):
        config.fit_engine(read(*flags), replace(CAPABILITIES, schedule=False))


def test_a_model_of_vllm_is_given_by_flags() -> None:
    it = read(
        "--engine", "vllm", "--model", "openai/whisper-small", "--dtype", "float16", "--max-model-len", "448",
        "--max-segment-seconds", "20", "--vllm-arg", "tokenizer-mode=mistral", "--vllm-arg", "enforce-eager=true",
        "--vllm-arg", "hf-overrides={\"a\": 1}", "--vllm-arg", "revision=",
    ).engine.speech  # fmt: skip
    assert it == SpeechOptions(
        model="openai/whisper-small", dtype="float16", max_model_len=448, segment_s=20.0,
        vllm_args={
            "tokenizer_mode": "mistral", "enforce_eager": True, "hf_overrides": {"a": 1}, "revision": "",
        },
    )  # fmt: skip
    plain = read("--engine", "vllm", "--model", "m", "--hub", "ms").engine
    assert (plain.speech.gpu_memory_utilization, plain.speech.max_model_len, plain.speech.hub) == (
        0.9,
        None,
        "ms",
    )
    assert model_names(plain) == ("m",)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--engine", "vllm", "--vllm-arg", "eager"], "--vllm-arg eager: expected NAME=VALUE"),
        (["--engine", "vllm", "--vllm-arg", "=1"], "--vllm-arg =1: expected NAME=VALUE"),
        (["--vllm-arg", "a=1"], "--vllm-arg a=1: it goes with --engine vllm only"),
        (["--engine", "vllm", "--dtype", "int8"], "--dtype int8: it must be one of auto, bfloat16, float16"),
    ],
)
def test_what_vllm_cannot_be_given_is_refused(flags: list[str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        read(*flags)


def test_each_split_model_has_defaults_of_its_own() -> None:
    nano, glm = read("--engine", "funasr-nano").engine, read("--engine", "glm-asr").engine
    assert nano.nano == NanoOptions()
    assert glm.nano == NanoOptions(model="zai-org/GLM-ASR-Nano-2512", hub="hf")
    assert model_names(nano) == ("fun-asr-nano", "FunAudioLLM/Fun-ASR-Nano-2512")
    assert model_names(glm) == ("glm-asr-nano", "zai-org/GLM-ASR-Nano-2512")
    assert (
        read("--engine", "glm-asr", "--max-segment-seconds", "45", "--hub", "ms").engine.nano.longest_s == 45
    )


def test_hotwords_that_cannot_be_used_are_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("a")
    settings = read("--hotword-file", str(tmp_path / "words.txt"))
    config.fit_engine(settings, CAPABILITIES)
    with pytest.raises(ConfigurationError, match="--hotword-file"):
        config.fit_engine(settings, replace(CAPABILITIES, hotwords="none"))


def test_a_wrong_value_ends_with_one_sentence_and_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--engine", "fake", "--language", "Klingon"]) == 2
    assert capsys.readouterr().err.startswith("realtime-server: --language")


def test_the_page_of_flags_names_every_flag() -> None:
    text = (ROOT / "docs" / "flags.md").read_text(encoding="utf-8")
    flags = [flag for action in parser()._actions for flag in action.option_strings if flag.startswith("--")]
    assert [flag for flag in flags if f"`{flag}" not in text and flag != "--help"] == []


def test_what_the_readme_says_of_flags_is_what_their_page_says() -> None:
    def rows(name: str) -> dict[str, str]:
        """Defaults by flag, of a table of flags."""
        found = re.findall(r"^\| (`--[^|]+) \| ([^|]+) \|", (ROOT / name).read_text("utf-8"), re.MULTILINE)
        return {flag: default for cell, default in found for flag in re.findall(r"`(--[a-z-]+)", cell)}

    few, every = rows("README.md"), rows("docs/flags.md")
    assert "--http-port" in few
    assert few == {flag: every[flag] for flag in few}
