"""Make the tiny checkpoint: a Fun-ASR-Nano that hears the little language, in the official folder format.

    python -m scripts.make_tiny_checkpoint tests/data/tiny-fun-asr-nano

It writes the settings and tokenizers, says 64,000 utterances with espeak-ng in all cores, trains the whole model on
them (minutes on a GPU; --device cpu works for a try with few --utterances and --steps), saves model.pt and
prints how well it hears voices that it never heard. Needs torch, transformers, pyyaml and Debian's espeak-ng.
What the language holds is in tiny_language.py; the same seed gives the same utterances.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import math
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor

from realtime_server.core.jobs import DecodingOptions
from realtime_server.core.languages import chinese_name
from realtime_server.models.ctc_tokens import CtcTokenizer
from realtime_server.models.fun_asr_nano import FunAsrNano
from realtime_server.models.nano_config import NanoConfig
from realtime_server.models.prompt import (
    AS_SPOKEN,
    ASSISTANT,
    COLON,
    CONTEXT,
    INTO,
    SYSTEM,
    TASK,
    USER,
    FolderTokenizer,
    build_prompt,
)
from scripts import tiny_evaluation as evaluation
from scripts.synthesis import held_out, synthesiser
from scripts.tiny_language import PLAIN, Style
from scripts.tiny_lessons import Example, Maker, read_ranks
from scripts.tiny_tokenizers import write_ctc_vocabulary, write_llm_tokenizer
from scripts.tiny_training import Plan, Trainer

LLM, RANKS = "Qwen3-tiny", "multilingual.tiktoken"
WIDTH, LLM_WIDTH = 128, 128
# Spelled by the tokenizer in bytes: it is no part of PROMPT_TEXT, whose signs are tokens, so that weights from before
# it was taught fit.
TRANSLATE = "语音翻译成英文"
# The attention of so small an encoder learns no positions (they are drowned in the features, 1 to 100); a memory that
# reaches the edges of most segments tells them, which gathering the audio in the first rows depends on.
KERNEL = 121
PROMPT_TEXT = f"{SYSTEM}{USER}{ASSISTANT}{CONTEXT}{TASK}{AS_SPOKEN}{COLON}"
AT_ONCE, CHUNK = 100, 8000  # examples that a worker makes for one seed; that training takes at once


def settings(ctc_tokens: int) -> dict[str, Any]:
    """config.yaml: the keys of the official one, small sizes."""
    adaptor = {"downsample_rate": 1, "use_low_frame_rate": True, "ffn_dim": 2 * WIDTH, "llm_dim": LLM_WIDTH}
    decoder = {"downsample_rate": 1, "ffn_dim": 2 * WIDTH, "llm_dim": WIDTH}
    return {
        "model": "FunASRNano",
        "audio_encoder": "SenseVoiceEncoderSmall",
        "audio_encoder_conf": {
            "output_size": WIDTH,
            "attention_heads": 4,
            "linear_units": 2 * WIDTH,
            "num_blocks": 4,
            "tp_blocks": 2,
            "dropout_rate": 0.0,
            "positional_dropout_rate": 0.0,
            "attention_dropout_rate": 0.0,
            "input_layer": "pe",
            "pos_enc_class": "SinusoidalPositionEncoder",
            "normalize_before": True,
            "kernel_size": KERNEL,
            "sanm_shfit": 0,
            "selfattention_layer_type": "sanm",
        },
        "llm": "Qwen3-tiny",
        "llm_conf": {"hub": "hf", "freeze": False, "llm_dtype": "bf16", "init_param_path": LLM},
        "audio_adaptor": "Transformer",
        "audio_adaptor_conf": {**adaptor, "encoder_dim": WIDTH, "n_layer": 2},
        "ctc_decoder": "Transformer",
        "ctc_decoder_conf": {**decoder, "encoder_dim": WIDTH, "n_layer": 1},
        "ctc_vocab_size": ctc_tokens + 1,
        "ctc_conf": {"dropout_rate": 0.0, "ctc_type": "builtin", "reduce": True, "ignore_nan_grad": True},
        "frontend": "WavFrontend",
        "frontend_conf": {
            "fs": 16000,
            "window": "hamming",
            "n_mels": 80,
            "frame_length": 25,
            "frame_shift": 10,
            "lfr_m": 7,
            "lfr_n": 6,
            "cmvn_file": None,
        },
        "dataset_conf": {
            "ctc_tokenizer": "SenseVoiceTokenizer",
            "ctc_tokenizer_conf": {"vocab_path": RANKS, "is_multilingual": True, "num_languages": 0},
            "do_think": True,
            "translate_prompt": TRANSLATE,
        },
    }


def llm_settings(tokens: int) -> dict[str, Any]:
    """The language model's config.json."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": tokens,
        "hidden_size": LLM_WIDTH,
        "intermediate_size": 320,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "initializer_range": 0.02,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10_000,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": True,
        "use_cache": True,
        "bos_token_id": None,
        "eos_token_id": tokens - 1,
        "pad_token_id": tokens - 3,
        "torch_dtype": "bfloat16",
    }


def write_folder(folder: Path) -> None:
    """Everything but the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    languages = "".join(INTO.format(language=chinese_name(code)) for code in ("en", "zh"))
    tokens = write_llm_tokenizer(folder / LLM, PROMPT_TEXT + languages)
    (folder / LLM / "config.json").write_text(json.dumps(llm_settings(tokens), indent=2) + "\n", "utf-8")
    generation = {"do_sample": False, "eos_token_id": tokens - 1, "pad_token_id": tokens - 3}
    (folder / LLM / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n", "utf-8")
    ctc_tokens = write_ctc_vocabulary(folder / RANKS)
    (folder / "config.yaml").write_text(
        yaml.safe_dump(settings(ctc_tokens), sort_keys=False, allow_unicode=True), "utf-8"
    )


def new_model(folder: Path) -> FunAsrNano:
    """The folder's model with fresh weights, whole."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = NanoConfig.read(folder)
    llm = Qwen3ForCausalLM(Qwen3Config(**config.llm.settings))
    tokenizer = FolderTokenizer(folder / config.llm.folder)
    return FunAsrNano(config, llm.float(), tokenizer, CtcTokenizer.read(folder / config.ctc_vocabulary))


@functools.cache
def _maker(folder: Path) -> Maker:
    layout = NanoConfig.read(folder).prompt

    def prompt_of(options: DecodingOptions) -> tuple[str, str]:
        return build_prompt(options, config=layout)

    return Maker(FolderTokenizer(folder / LLM), prompt_of, read_ranks(folder / RANKS))


def _work(task: tuple[Path, int, int]) -> list[Example]:
    folder, seed, count = task
    return _maker(folder).examples(seed, count)


@contextlib.contextmanager
def synthesis(folder: Path, count: int, seed: int, processes: int) -> Iterator[Iterator[list[Example]]]:
    """So many examples, made in worker processes from now on, in chunks."""
    tasks = [(folder, seed * 1_000_003 + start, AT_ONCE) for start in range(0, count, AT_ONCE)]
    # Forked before CUDA is used, workers need not load torch again.
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        made = itertools.chain.from_iterable(pool.imap(_work, tasks))
        yield iter(lambda: list(itertools.islice(made, CHUNK)), [])


def save(model: FunAsrNano, path: Path) -> None:
    """Write model.pt: float32, the language model bfloat16."""
    tensors: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        if name != "llm.lm_head.weight":  # tied
            dtype = torch.bfloat16 if name.startswith("llm.") else torch.float32
            tensors[name] = tensor.detach().to("cpu", dtype, copy=True)
    torch.save(tensors, path)


def load(model: FunAsrNano, path: Path) -> None:
    """Read what `save` wrote."""
    weights = torch.load(path, weights_only=True)
    weights["llm.lm_head.weight"] = weights["llm.model.embed_tokens.weight"]  # tied
    model.load_state_dict({name: tensor.float() for name, tensor in weights.items()})


def report(folder: Path) -> dict[str, Any]:
    """Scores of a finished folder on voices that training never heard."""
    model = new_model(folder).requires_grad_(False).eval()
    load(model, folder / "model.pt")
    utterances = held_out()
    lines: dict[str, Any] = {}
    for label, style in {"numerals": PLAIN, "words": Style(itn=False)}.items():
        result = evaluation.score(model, utterances, style)
        lines[label] = {
            "cer": round(result.cer, 4),
            "exact": round(result.exact, 3),
            "word start error, ms": {
                "median": round(result.start_ms, 1),
                "p90": round(result.start_p90_ms, 1),
            },
            "wrong": result.wrong[:20],
        }
    lines["in the language that was not spoken, exact"] = evaluation.other_language_share(model, utterances)
    mandarin = [each for each in utterances if each.units[0].language == "zh"]
    lines["translations of Mandarin, exact"] = evaluation.translation_share(model, mandarin)
    lines["names after hotwords, exact"] = evaluation.hotword_share(model, utterances)
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the folder, or score it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--utterances", type=int, default=64_000, help="(default: %(default)s)")
    parser.add_argument("--steps", type=int, default=9000, help="(default: %(default)s)")
    parser.add_argument("--weights", type=Path, help="a model.pt to go on from, with half the learning rate")
    parser.add_argument("--llm-only", action="store_true", help="train only the language model")
    parser.add_argument("--batch-frames", type=int, default=12_000, help="of 60 ms (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="of training, if steps take longer")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=("train", "score"), help="(default: both)")
    chosen = parser.parse_args(arguments)
    if chosen.only != "score":
        make(chosen)
    if chosen.only != "train":
        print(json.dumps(report(chosen.folder), ensure_ascii=False, indent=1))


def make(chosen: argparse.Namespace) -> None:
    """Write the folder."""
    began = time.monotonic()
    synthesiser()  # fail here, with a clear message, where espeak-ng is missing
    torch.manual_seed(chosen.seed)
    torch.set_float32_matmul_precision("high")
    write_folder(chosen.folder)
    with synthesis(chosen.folder, chosen.utterances, chosen.seed, chosen.processes) as source:
        random = np.random.default_rng(chosen.seed)
        unseen = [_maker(chosen.folder).example(utterance, random) for utterance in held_out(200, seed=1)]
        model = new_model(chosen.folder)
        if chosen.weights:
            load(model, chosen.weights)
        model = model.to(torch.device(chosen.device)).train()
        weights = sum(parameter.numel() for parameter in model.parameters())
        print(f"{weights:,} weights, after {time.monotonic() - began:.0f} s", flush=True)
        steps = Trainer(model, plan_of(chosen)).train(source, unseen)
    save(model.requires_grad_(False).eval(), chosen.folder / "model.pt")
    print(f"{steps} steps, {time.monotonic() - began:.0f} s in all", flush=True)


def plan_of(chosen: argparse.Namespace) -> Plan:
    """The plan that the command line asks for."""
    chunk_steps = chosen.steps * CHUNK // (chosen.utterances * 2)  # all are in before half of the training
    plan = Plan(
        chosen.steps,
        chunk_steps,
        batch_frames=chosen.batch_frames,
        seed=chosen.seed,
        seconds=chosen.seconds,
    )
    if not chosen.weights:
        return plan
    plan = replace(plan, lr=plan.lr / 2, warm_up=100, growth_share=0.0, bfloat16_from=1.0)
    return replace(plan, llm_only=chosen.llm_only)


if __name__ == "__main__":
    main()
