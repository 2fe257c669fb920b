"""Convert a Whisper model from the layout of CTranslate2 to that of Hugging Face, which transformers and vLLM read.

    python scripts/convert_whisper_to_hf.py TARGET [--source FOLDER]

source: model.bin, config.json, tokenizer.json; the fetched whisper-base unless given. Quantised weights are
written as float32, others as they are. Needs numpy and safetensors.
"""

from __future__ import annotations

import argparse
import json
import re
import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from realtime_server import weights
from realtime_server.errors import WeightsError

BINARY_VERSION = 6  # of model.bin
DTYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}  # by their number in model.bin
TIMESTAMPS = 1501  # <|0.00|> to <|30.00|> in steps of 20 ms
SAMPLE_RATE, CHUNK_S, HOP, WINDOW = 16_000, 30, 160, 400

Array = NDArray[Any]
Variables = dict[str, Array]


def read_variables(path: Path) -> Variables:
    """Read a model.bin: every variable by name, aliases left out. Raises WeightsError for another format."""
    with path.open("rb") as stream:
        version = _number(stream, "I")
        name = _string(stream)
        if version != BINARY_VERSION or name != "WhisperSpec":
            raise WeightsError(
                f"{path} holds a {name} of format {version}, not a WhisperSpec of {BINARY_VERSION}"
            )
        _number(stream, "I")  # revision of the specification
        variables = {}
        for _ in range(_number(stream, "I")):
            name = _string(stream)
            shape = [_number(stream, "I") for _ in range(_number(stream, "B"))]
            dtype = DTYPES[_number(stream, "B")]
            data = stream.read(_number(stream, "I"))
            variables[name] = np.frombuffer(data, dtype).reshape(shape)
    return variables


def dequantise(variables: Variables) -> Variables:
    """Undo quantisation: integers over their row's scale. Scales are taken out, all else stays."""
    plain = {}
    for name, value in variables.items():
        if name.endswith("_scale"):
            continue
        scale = variables.get(f"{name}_scale")
        plain[name] = value if scale is None else value.astype(np.float32) / _column(scale)
    return plain


def rename(variables: Variables) -> Variables:
    """The tensors of WhisperForConditionalGeneration, stacked projections taken apart."""
    tensors: Variables = {}
    for part in ("encoder", "decoder"):
        for layer in range(_layers(variables, part)):
            tensors |= _layer(variables, f"{part}/layer_{layer}", f"model.{part}.layers.{layer}")
        tensors |= _norm(variables, f"{part}/layer_norm", f"model.{part}.layer_norm")
        tensors[f"model.{part}.embed_positions.weight"] = variables[f"{part}/position_encodings/encodings"]
    for conv in ("conv1", "conv2"):
        tensors |= _linear(variables, f"encoder/{conv}", f"model.encoder.{conv}")
    tensors["model.decoder.embed_tokens.weight"] = variables["decoder/embeddings/weight"]
    return tensors


def convert(source: Path, target: Path) -> None:
    """Write `source` in the layout of Hugging Face into the folder `target`."""
    variables = read_variables(source / "model.bin")
    plain = dequantise(variables)
    lists = json.loads((source / "config.json").read_text(encoding="utf-8"))
    tokenizer = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    target.mkdir(parents=True, exist_ok=True)
    tensors = {name: np.ascontiguousarray(value) for name, value in rename(plain).items()}
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    _write(target / "config.json", _config(plain, ids))
    _write(target / "generation_config.json", _generation(lists, ids))
    _write(target / "preprocessor_config.json", _preprocessor(plain))
    _write(target / "tokenizer.json", add_timestamps(tokenizer))
    _write(target / "tokenizer_config.json", _tokenizer_config())


def add_timestamps(tokenizer: dict[str, Any]) -> dict[str, Any]:
    """The tokenizer with the timestamp tokens, which its file leaves to the program."""
    first = 1 + max(token["id"] for token in tokenizer["added_tokens"])
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    stamps = [{"id": first + n, "content": f"<|{n / 50:.2f}|>", **plain} for n in range(TIMESTAMPS)]
    return {**tokenizer, "added_tokens": [*tokenizer["added_tokens"], *stamps]}


def _layer(variables: Variables, old: str, new: str) -> Variables:
    query, key, value = _split(variables, f"{old}/self_attention/linear_0", 3)
    tensors = _attention(f"{new}.self_attn", query, key, value)
    tensors |= _linear(variables, f"{old}/self_attention/linear_1", f"{new}.self_attn.out_proj")
    tensors |= _norm(variables, f"{old}/self_attention/layer_norm", f"{new}.self_attn_layer_norm")
    if f"{old}/attention/linear_0/weight" in variables:
        (query,) = _split(variables, f"{old}/attention/linear_0", 1)
        key, value = _split(variables, f"{old}/attention/linear_1", 2)
        tensors |= _attention(f"{new}.encoder_attn", query, key, value)
        tensors |= _linear(variables, f"{old}/attention/linear_2", f"{new}.encoder_attn.out_proj")
        tensors |= _norm(variables, f"{old}/attention/layer_norm", f"{new}.encoder_attn_layer_norm")
    for number in (0, 1):
        tensors |= _linear(variables, f"{old}/ffn/linear_{number}", f"{new}.fc{number + 1}")
    return tensors | _norm(variables, f"{old}/ffn/layer_norm", f"{new}.final_layer_norm")


def _attention(new: str, query: Variables, key: Variables, value: Variables) -> Variables:
    """Projections by name; Whisper's keys have no bias, and the stacked one is zero there."""
    return {
        f"{new}.q_proj.weight": query["weight"],
        f"{new}.q_proj.bias": query["bias"],
        f"{new}.k_proj.weight": key["weight"],
        f"{new}.v_proj.weight": value["weight"],
        f"{new}.v_proj.bias": value["bias"],
    }


def _split(variables: Variables, old: str, parts: int) -> list[Variables]:
    weight, bias = variables[f"{old}/weight"], variables[f"{old}/bias"]
    pairs = zip(np.split(weight, parts), np.split(bias, parts), strict=True)
    return [{"weight": one, "bias": other} for one, other in pairs]


def _linear(variables: Variables, old: str, new: str) -> Variables:
    return {f"{new}.{name}": variables[f"{old}/{name}"] for name in ("weight", "bias")}


def _norm(variables: Variables, old: str, new: str) -> Variables:
    return {f"{new}.weight": variables[f"{old}/gamma"], f"{new}.bias": variables[f"{old}/beta"]}


def _layers(variables: Variables, part: str) -> int:
    return len([name for name in variables if re.fullmatch(rf"{part}/layer_\d+/ffn/linear_0/weight", name)])


def _column(scale: Array) -> Array:
    return scale.reshape(-1, 1) if scale.ndim else scale


def _config(variables: Variables, ids: dict[str, int]) -> dict[str, Any]:
    vocabulary, width = variables["decoder/embeddings/weight"].shape
    shape: dict[str, Any] = {}
    for part in ("encoder", "decoder"):
        shape |= {
            f"{part}_layers": _layers(variables, part),
            f"{part}_attention_heads": int(variables[f"{part}/num_heads"]),
            f"{part}_ffn_dim": variables[f"{part}/layer_0/ffn/linear_0/weight"].shape[0],
        }
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "is_encoder_decoder": True,
        "activation_function": "gelu",
        "d_model": width,
        "vocab_size": vocabulary,
        "num_mel_bins": variables["encoder/conv1/weight"].shape[1],
        "max_source_positions": variables["encoder/position_encodings/encodings"].shape[0],
        "max_target_positions": variables["decoder/position_encodings/encodings"].shape[0],
        "num_hidden_layers": shape["encoder_layers"],
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|endoftext|>"],
        "pad_token_id": ids["<|endoftext|>"],
        "decoder_start_token_id": ids["<|startoftranscript|>"],
        "torch_dtype": "float16" if variables["encoder/conv1/weight"].dtype == np.float16 else "float32",
        **shape,
    }


def _generation(lists: dict[str, Any], ids: dict[str, int]) -> dict[str, Any]:
    codes = [token for token in ids if ids[token] in set(lists["lang_ids"])]
    return {
        "alignment_heads": lists["alignment_heads"],
        "begin_suppress_tokens": lists["suppress_ids_begin"],
        "suppress_tokens": lists["suppress_ids"],
        "decoder_start_token_id": ids["<|startoftranscript|>"],
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|endoftext|>"],
        "pad_token_id": ids["<|endoftext|>"],
        "is_multilingual": len(codes) > 1,
        "lang_to_id": {code: ids[code] for code in codes},
        "task_to_id": {"transcribe": ids["<|transcribe|>"], "translate": ids["<|translate|>"]},
        "no_timestamps_token_id": ids["<|notimestamps|>"],
        "max_initial_timestamp_index": 50,
        "max_length": 448,
        "return_timestamps": False,
    }


def _preprocessor(variables: Variables) -> dict[str, Any]:
    return {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "WhisperProcessor",
        "feature_size": variables["encoder/conv1/weight"].shape[1],
        "sampling_rate": SAMPLE_RATE,
        "hop_length": HOP,
        "n_fft": WINDOW,
        "chunk_length": CHUNK_S,
        "n_samples": CHUNK_S * SAMPLE_RATE,
        "nb_max_frames": CHUNK_S * SAMPLE_RATE // HOP,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": False,
    }


def _tokenizer_config() -> dict[str, Any]:
    end = "<|endoftext|>"
    return {
        "tokenizer_class": "WhisperTokenizer",
        "processor_class": "WhisperProcessor",
        "bos_token": end,
        "eos_token": end,
        "pad_token": end,
        "unk_token": end,
        "model_max_length": 1024,
        "clean_up_tokenization_spaces": False,
    }


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _number(stream: BinaryIO, kind: str) -> int:
    (number,) = struct.unpack(f"<{kind}", stream.read(struct.calcsize(f"<{kind}")))
    return int(number)


def _string(stream: BinaryIO) -> str:
    return stream.read(_number(stream, "H")).rstrip(b"\0").decode()


def main() -> None:
    """Read the arguments and convert."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", type=Path, help="folder to write")
    parser.add_argument(
        "--source", type=Path, help="folder with model.bin (default: the fetched whisper-base)"
    )
    arguments = parser.parse_args()
    source = arguments.source or weights.find("whisper-base")
    convert(source, arguments.target)
    size = sum(path.stat().st_size for path in arguments.target.iterdir())
    print(f"{arguments.target}: {size / 1e6:.0f} MB, converted from {source}")


if __name__ == "__main__":
    main()
