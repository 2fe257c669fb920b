"""Our GLM-ASR-Nano against PyPI funasr, in an environment of its own: prompts, and the language model's folder.

The networks are compared with transformers, in tests/models/test_glm_asr.py: funasr takes them from there.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.reference.test_fun_asr_nano_parity import PYTHON, run

pytestmark = [pytest.mark.reference, pytest.mark.slow]


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if not PYTHON.exists():
        pytest.skip(f"no {PYTHON}: run scripts/install_reference.sh")
    found: dict[str, Any] = json.loads(run("run_glm_asr.py", tmp_path_factory.mktemp("glm")).splitlines()[-1])
    return found


def test_prompts_are_identical(answer: dict[str, Any]) -> None:
    assert answer["prompts"] == []


def test_the_language_model_is_taken_out_alike(answer: dict[str, Any]) -> None:
    assert answer["tensors"] == 2 * 9 + 3, "two layers, embeddings, norm and head"
    assert answer["language_model"] == []
