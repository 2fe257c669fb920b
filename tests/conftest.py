"""Shared fixtures: where recordings come from; and how tests are dealt to several processes, see CONTRIBUTING.md."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Examples are not timed: the machine that runs the tests may be busy with others.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Never do two vLLM engines run at once. A live server with the CPU recognizer keeps two cores busy by itself.
ONE_AT_A_TIME = ("tests/vllm/", "tests/live/")
SHARED = Path(
    os.environ.get("REALTIME_SERVER_TEST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data")
)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the shared recordings (MANIFEST.tsv); tests that need it skip where it is missing."""
    if not (SHARED / "MANIFEST.tsv").is_file():
        pytest.skip("the shared recordings are not on this machine (set REALTIME_SERVER_TEST_DATA)")
    return SHARED


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What nothing else may run beside in its folder begins first: it takes longest."""
    items.sort(key=lambda item: folder_alone(item.nodeid) is None)


def folder_alone(nodeid: str) -> str | None:
    """The folder of a test whose files are run one after the other."""
    return next((folder for folder in ONE_AT_A_TIME if nodeid.startswith(folder)), None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A process runs a whole file at a time, as its tests share fixtures, or a whole folder."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return folder_alone(nodeid) or super()._split_scope(nodeid)

    return Scheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """What a test wrote may hold half a surrogate pair, which cannot be sent from one process to another."""
    return sendable((yield))


def sendable(value: Any) -> Any:
    """The value with every half of a surrogate pair spelled out."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode("utf-8")
        case dict():
            return {key: sendable(each) for key, each in value.items()}
        case list() | tuple():
            return type(value)(map(sendable, value))
    return value
