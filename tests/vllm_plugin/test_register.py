"""The function that vLLM calls in each of its processes, in a vLLM that lacks something; tests/vllm has the rest."""

from __future__ import annotations

import sys

import pytest

from realtime_server.vllm_plugin import register


def test_a_vllm_that_lacks_something_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "vllm.model_executor.models", None)
    register()
    assert "this vLLM cannot serve Fun-ASR-Nano" in caplog.text
