"""docs/protocol.md and protocol-2.md are true: exchanges are played over a socket, tables compared with the code."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from realtime_server import config, flags
from realtime_server.core.messages import Invalid
from realtime_server.core.wire_v1 import WireV1
from realtime_server.engines.loading import load_engine, load_scorer
from tests.audio import pcm16, silence, tone
from tests.realtime.harness import Client, Message, serving

DOCS = Path(__file__).parents[2] / "docs"
PAGE, PAGE_2 = DOCS / "protocol.md", DOCS / "protocol-2.md"
COMMANDS = ("START", "HOTWORDS:", "LANGUAGE:", "POSTPROCESS_HOTWORDS:", "COMMIT", "STOP")
SETTLE_S = 0.03  # what would still come by itself has come by then
PROBE = "probe: is there anything before the answer to this?"


@dataclass(frozen=True)
class Line:
    """One line of an exchange, and where it is written."""

    place: str  # file:line
    kind: str  # $, > or <
    text: str


@dataclass(frozen=True)
class Exchange:
    title: str
    lines: tuple[Line, ...]


def read_exchanges(page: Path) -> Iterator[Exchange]:
    title, lines = "", list[Line]()
    inside = False
    for number, raw in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        place = f"docs/{page.name}:{number}"
        if inside and raw == "```":
            yield Exchange(title, tuple(lines))
            inside = False
        elif inside:
            assert re.match(r"[$<>] ", raw), f"{place}: {raw!r} begins with no $, > or <"
            lines.append(Line(place, raw[0], raw[2:]))
        elif raw == "```transcript":
            inside, lines = True, []
        elif raw.startswith("#"):
            title = raw.lstrip("# ")
    assert not inside


EXCHANGES = [exchange for page in (PAGE, PAGE_2) for exchange in read_exchanges(page)]


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.title)
async def test_the_exchange_happens_as_it_is_written(exchange: Exchange) -> None:
    first, *rest = exchange.lines
    served = read_flags(first)
    engine, scorer = load_engine(served.engine), load_scorer(served.engine, served.vad)
    async with (
        serving(
            engine, scorer, settings=served.session, options=served.server, clocks=served.clocks
        ) as service,
        service.client() as client,
    ):
        for line in rest:
            try:
                await (send(client, line.text) if line.kind == ">" else expect(client, line.text))
            except (AssertionError, TimeoutError, ConnectionClosed) as error:
                seen = "\n".join(f"    {json.dumps(m, ensure_ascii=False)}" for m in client.messages[-4:])
                pytest.fail(f"{line.place}: {line.kind} {line.text}\n  {error!r}\n  last read:\n{seen}")


def read_flags(line: Line) -> config.ServeConfig:
    """The server's settings, as its command line reads them."""
    assert line.kind == "$", f"{line.place}: an exchange begins with the server's command"
    program, command, *flags = shlex.split(line.text)
    assert (program, command) == ("realtime-server", "serve")
    return config.read_arguments(serve_parser().parse_args(flags))


def serve_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    flags.add_arguments(parser)
    return parser


async def send(client: Client, text: str) -> None:
    audio = re.fullmatch(r"\[(speech|silence) ([\d.]+) s( in odd frames)?\]", text)
    if audio:
        data = pcm16({"speech": tone, "silence": silence}[audio[1]](float(audio[2])))
        size = 1601 if audio[3] else 3200
        await client.say(*(data[at : at + size] for at in range(0, len(data), size)))
    elif text == "[empty frame]":
        await client.say(b"")
    else:
        assert not text.startswith("["), f"{text} is no audio"
        await client.say(text.replace("\\n", "\n"))


async def expect(client: Client, text: str) -> None:
    if text == "nothing":
        await asyncio.sleep(SETTLE_S)
        await client.say(PROBE)
        assert (await client.receive())["error"] == f"unknown command: {PROBE}"
        return
    if text.startswith("closed "):
        with suppress(ConnectionClosed):
            raise AssertionError(f"{await client.receive()} instead")
        assert client.connection.close_code == int(text.removeprefix("closed "))
        return
    wanted = json.loads(text.removeprefix("… "))
    message = await client.receive()
    while text.startswith("… ") and may_be_passed(message) and not matches(wanted, message):
        message = await client.receive()
    assert matches(wanted, message), f"{message} instead"


def may_be_passed(message: Message) -> bool:
    """Whether any number of such messages may come before the one that is shown."""
    return message.get("is_final") is False or message.get("type") in (
        "progress",
        "partial",
        "speech_started",
        "speech_ended",
    )


def matches(wanted: object, value: object) -> bool:
    """Whether a value has in it what is wanted; see "How to read them" in the page."""
    match wanted:
        case dict():
            return isinstance(value, dict) and all(
                k in value and matches(v, value[k]) for k, v in wanted.items()
            )
        case list():
            return isinstance(value, list) and len(value) == len(wanted) and all(map(matches, wanted, value))
        case "…":
            return True
        case str() if wanted.endswith("…"):
            return isinstance(value, str) and value.startswith(wanted[:-1])
    return type(wanted) is type(value) and wanted == value


@pytest.mark.parametrize(
    ("wanted", "value", "whether"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"b": 2}, False),
        ({"a": 1}, {"a": True}, False),
        ([{"a": 1}], [{"a": 1, "b": 2}], True),
        ([{"a": 1}], [], False),
        ([], [1], False),
        ("…", None, True),
        ("ab…", "abc", True),
        ("ab…", "b", False),
    ],
)
def test_matching(wanted: object, value: object, whether: bool) -> None:
    assert matches(wanted, value) is whether


# --- the tables -------------------------------------------------------------------------------------------


def rows(heading: str) -> Iterator[list[str]]:
    """The cells of the first table under a heading, without its head."""
    text = PAGE.read_text(encoding="utf-8").split(f"## {heading}\n", 1)[1]
    table = re.search(r"(?m)(^\|.*\n)+", text)
    assert table
    for row in table[0].splitlines()[2:]:
        yield [cell.strip() for cell in row.strip("|").split(" | ")]


def test_every_command_is_described_and_shown() -> None:
    described = [cells[0].strip("`") for cells in rows("Commands")]
    for command in COMMANDS:
        assert any(text.startswith(command) for text in described), command
        sent = (line.text for exchange in EXCHANGES for line in exchange.lines if line.kind == ">")
        assert any(text.startswith(command) for text in sent), command
    for text in described:
        if text.startswith(COMMANDS):
            assert not any(isinstance(command, Invalid) for command in WireV1().decode(text)), text


def test_the_limits_are_those_of_the_command_line() -> None:
    (group,) = (group for group in serve_parser()._action_groups if group.title == "limits")
    flags = {action.option_strings[0]: float(action.default) for action in group._group_actions}
    assert {flag.strip("`"): float(default) for _, flag, default, _ in rows("Limits")} == flags


def test_the_result_has_the_keys_described() -> None:
    (example,) = re.findall(r"(?ms)^```json\n(.*?)^```", PAGE.read_text(encoding="utf-8"))
    result: Message = json.loads(example)
    assert list(result) == [cells[0].strip("`") for cells in rows("Results")]
