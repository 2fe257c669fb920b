"""Real vLLM on the CPU. An engine takes a minute to start, so that tests share one; never do two run at once."""

from __future__ import annotations

import gc
import importlib.util
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

if importlib.util.find_spec("vllm") is None:  # `make test-vllm` has an environment of its own for these
    collect_ignore_glob = ["test_*.py"]
else:
    # Read once, when torch and vLLM are imported.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")


@pytest.fixture(scope="session")
def checkpoint_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Fun-ASR-Nano in the official form, with random weights that rarely stop: long answers test more."""
    from tests.vllm.engines import write_lively_folder

    return write_lively_folder(tmp_path_factory.mktemp("nano"))


@pytest.fixture(scope="session")
def whisper_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """whisper-base in Hugging Face's layout."""
    from realtime_server.errors import WeightsError
    from tests.vllm.whisper import convert

    try:
        return convert(tmp_path_factory.mktemp("whisper") / "whisper-base")
    except WeightsError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", autouse=True)
def _collected() -> Iterator[None]:
    """Collect what an engine leaves behind, sockets above all, while nobody takes that for a fault."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()
