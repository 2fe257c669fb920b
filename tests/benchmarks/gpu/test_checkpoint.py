"""The made-up tokenizer has the script's signs."""

from __future__ import annotations

import pytest

from benchmarks.gpu import script

pytest.importorskip("torch", reason="the Fun-ASR-Nano engine is not installed")

from benchmarks.gpu.checkpoint import QWEN3, TINY_QWEN3, text_tokenizer

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("config", [QWEN3, QWEN3 | TINY_QWEN3], ids=["real", "tiny"])
def test_each_sign_is_one_token_within_the_vocabulary(config: dict[str, int]) -> None:
    tokenizer = text_tokenizer(config["bos_token_id"])
    text = "".join(script.SIGNS)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert len(ids) == len(script.SIGNS) == len(set(ids))
    assert max(ids) < config["vocab_size"]
    assert tokenizer.decode(ids) == text
