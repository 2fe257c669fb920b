"""The two small tokenizers of the tiny checkpoint: byte-level BPE over the little language and the prompt.

A word (with and without a space before it), a name, a numeral and a Chinese character are one token each; anything
else falls back to bytes. The language model's is written as the official folder has it (Qwen2's files), the CTC
branch's as lines of base64 and rank.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from scripts.tiny_language import UNITS

Pair = tuple[bytes, bytes]

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
STOPS = (".", "。", ",", "，")
SPLIT = (  # Qwen's
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def vocabulary() -> list[str]:
    """Everything that the little language can write, in pieces that are to be one token each."""
    words: list[str] = []
    for unit in UNITS:
        for writing in (unit.en, unit.zh, unit.second, unit.digit):
            if writing:
                words += [writing, f" {writing}"] if writing.isascii() else list(writing)
    return list(dict.fromkeys([*words, *STOPS]))


def merges_for(words: Iterable[str]) -> list[Pair]:
    """Merges of byte pairs, most frequent first, until each word is one token; ties go to the earlier pair."""
    pieces = [[bytes([byte]) for byte in word.encode()] for word in words]
    merges: list[Pair] = []
    while True:
        counts: dict[Pair, int] = {}
        for word in pieces:
            for pair in pairwise(word):
                counts[pair] = counts.get(pair, 0) + 1
        if not counts:
            return merges
        best = max(counts, key=lambda pair: counts[pair])  # the first of equals
        merges.append(best)
        pieces = [_merged(word, best) for word in pieces]


def _merged(word: Sequence[bytes], pair: Pair) -> list[bytes]:
    result: list[bytes] = []
    for piece in word:
        if result and (result[-1], piece) == pair:
            result[-1] += piece
        else:
            result.append(piece)
    return result


def write_ctc_vocabulary(path: Path) -> int:
    """Write the CTC branch's ranks; returns how many. Its blank comes after them."""
    # Bytes that merged wholly into others keep their rank: the fallback for foreign text.
    tokens = [bytes([byte]) for byte in range(256)]
    tokens += dict.fromkeys(left + right for left, right in merges_for(vocabulary()))
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)]
    path.write_text("".join(lines), encoding="ascii")
    return len(tokens)


def write_llm_tokenizer(folder: Path, prompt_text: str) -> int:
    """Write Qwen2's tokenizer files; returns the number of tokens, special ones included.

    prompt_text: what every prompt holds around the audio; its words and characters become tokens too.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    printable = _printable_bytes()
    merges = merges_for([*vocabulary(), *_words_of(prompt_text)])
    tokens = list(dict.fromkeys([*printable.values(), *(_spelled(a + b, printable) for a, b in merges)]))
    ranks = {token: rank for rank, token in enumerate(tokens)}
    pairs = [(_spelled(left, printable), _spelled(right, printable)) for left, right in merges]
    tokenizer = Tokenizer(models.BPE(vocab=ranks, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "Qwen2Tokenizer",
        "add_prefix_space": False,
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    (folder / "vocab.json").write_text(json.dumps(ranks, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / "merges.txt").write_text(
        "".join(f"{left} {right}\n" for left, right in pairs), encoding="utf-8"
    )
    return len(tokens) + len(SPECIAL)


def _words_of(text: str) -> list[str]:
    """The text's words in Latin script, with and without a space before them, and its other characters."""
    words = "".join(sign if sign.isascii() and sign.isalpha() else " " for sign in text).split()
    signs = [sign for sign in text if not sign.isascii()]
    return list(dict.fromkeys([*words, *(f" {word}" for word in words), *signs]))


def _printable_bytes() -> dict[int, str]:
    """How GPT-2 and its heirs spell each byte in their vocabulary files, in their order."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + n) for n, byte in enumerate(others)}


def _spelled(token: bytes, printable: dict[int, str]) -> str:
    return "".join(printable[byte] for byte in token)
