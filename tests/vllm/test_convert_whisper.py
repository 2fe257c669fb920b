"""The converter: the file it reads, quantised weights, names."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from realtime_server.errors import WeightsError
from tests.vllm.whisper import converter

pytestmark = pytest.mark.vllm

WIDTH = 4
RNG = np.random.default_rng(0)
CODES = {"float32": 0, "int8": 1, "float16": 4}


def linear(name: str, rows: int) -> dict[str, Any]:
    return {
        f"{name}/weight": RNG.normal(size=(rows, WIDTH)).astype(np.float32),
        f"{name}/bias": RNG.normal(size=rows).astype(np.float32),
    }


def norm(name: str) -> dict[str, Any]:
    return {f"{name}/{part}": RNG.normal(size=WIDTH).astype(np.float32) for part in ("gamma", "beta")}


def variables() -> dict[str, Any]:
    """One layer each, four wide."""
    found: dict[str, Any] = {"decoder/embeddings/weight": RNG.normal(size=(9, WIDTH)).astype(np.float32)}
    for part in ("encoder", "decoder"):
        found[f"{part}/position_encodings/encodings"] = RNG.normal(size=(5, WIDTH)).astype(np.float32)
        found |= norm(f"{part}/layer_norm")
        found |= linear(f"{part}/layer_0/self_attention/linear_0", 3 * WIDTH)
        found |= linear(f"{part}/layer_0/self_attention/linear_1", WIDTH)
        found |= norm(f"{part}/layer_0/self_attention/layer_norm")
        found |= linear(f"{part}/layer_0/ffn/linear_0", WIDTH) | linear(f"{part}/layer_0/ffn/linear_1", WIDTH)
        found |= norm(f"{part}/layer_0/ffn/layer_norm")
    found |= linear("decoder/layer_0/attention/linear_0", WIDTH)
    found |= linear("decoder/layer_0/attention/linear_1", 2 * WIDTH)
    found |= linear("decoder/layer_0/attention/linear_2", WIDTH) | norm(
        "decoder/layer_0/attention/layer_norm"
    )
    for conv in ("conv1", "conv2"):
        found |= linear(f"encoder/{conv}", WIDTH)
    return found


def quantised(plain: dict[str, Any]) -> dict[str, Any]:
    """Matrices as CTranslate2 stores them in eight bits: rounded to 1/127 of each row's largest."""
    found = {}
    for name, value in plain.items():
        if name.endswith("weight") and "conv" not in name:
            scale = 127 / np.abs(value).max(axis=1)
            found[name] = np.rint(value * scale[:, None]).astype(np.int8)
            found[f"{name}_scale"] = scale.astype(np.float32)
        else:
            found[name] = value
    return found


def write(path: Path, content: dict[str, Any], *, version: int = 6, name: str = "WhisperSpec") -> Path:
    def string(text: str) -> bytes:
        return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"

    data = struct.pack("<I", version) + string(name) + struct.pack("<II", 3, len(content))
    for key, value in content.items():
        data += string(key) + struct.pack(f"<B{value.ndim}I", value.ndim, *value.shape)
        data += struct.pack("<BI", CODES[value.dtype.name], value.nbytes) + value.tobytes()
    path.write_bytes(data)
    return path


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    plain = {name: value.astype(np.float16) for name, value in variables().items()}
    found = converter().read_variables(write(tmp_path / "model.bin", plain))
    assert found.keys() == plain.keys()
    for name, value in plain.items():
        np.testing.assert_array_equal(found[name], value)


@pytest.mark.parametrize("change", [{"version": 5}, {"name": "TransformerSpec"}])
def test_another_format_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(WeightsError, match="not a WhisperSpec of 6"):
        converter().read_variables(write(tmp_path / "model.bin", {}, **change))


def test_quantised_weights_come_back(tmp_path: Path) -> None:
    plain = variables()
    convert = converter()
    found = convert.dequantise(convert.read_variables(write(tmp_path / "model.bin", quantised(plain))))
    assert found.keys() == plain.keys()
    for name, value in plain.items():
        np.testing.assert_allclose(found[name], value, atol=np.abs(value).max() / 254 + 1e-6)


def test_stacked_projections_are_taken_apart() -> None:
    plain = variables()
    tensors = converter().rename(plain)
    stacked = plain["decoder/layer_0/self_attention/linear_0/weight"]
    layer = "model.decoder.layers.0"
    for place, part in enumerate("qkv"):
        rows = slice(place * WIDTH, (place + 1) * WIDTH)
        np.testing.assert_array_equal(tensors[f"{layer}.self_attn.{part}_proj.weight"], stacked[rows])
    keys_values = plain["decoder/layer_0/attention/linear_1/weight"]
    np.testing.assert_array_equal(tensors[f"{layer}.encoder_attn.k_proj.weight"], keys_values[:WIDTH])
    np.testing.assert_array_equal(tensors[f"{layer}.encoder_attn.v_proj.weight"], keys_values[WIDTH:])
    assert not any(name.endswith("k_proj.bias") for name in tensors)
    assert (
        len(tensors) == 2 * 15 + 9 + 4 + 2 + 4 + 1
    )  # layers, cross attention, norms, positions, convolutions, tokens


def test_timestamps_are_added_to_the_tokenizer() -> None:
    tokenizer = {"added_tokens": [{"id": 50363, "content": "<|notimestamps|>"}], "model": {}}
    tokens = converter().add_timestamps(tokenizer)["added_tokens"]
    assert (tokens[1]["id"], tokens[1]["content"]) == (50364, "<|0.00|>")
    assert (tokens[-1]["id"], tokens[-1]["content"]) == (51864, "<|30.00|>")
    assert len(tokens) == 1502
