"""Whisper around its network: contexts, prompts, token budgets, gates, repetition.

The network itself runs in CTranslate2 (whisper_network.py). Everything here is a pure function of its
arguments, so that the same audio gives the same text whatever the load.
Source: the paper named in log_mel.py, sections 2.3 and 4.5.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from realtime_server.core.jobs import Task
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.errors import WeightsError

LONGEST_S = 30  # of one job; the network was trained on windows of this length
CONTEXTS_S = ((10, 12), (18, 20), (LONGEST_S, 30))  # (audio up to, encoder context); see `context_s`
MAX_POSITIONS = 448  # of the decoder; half of them are for the prompt
CAP_BASE, CAP_PER_S = 12, 8  # new tokens that audio can hold: 12 + 8 per second
PREVIOUS_TOKENS = 96  # of style and hotwords together

# Nothing was said if the probability of "no speech" is above, and the mean log-probability of the text below.
NO_SPEECH = ((0.8, -0.5), (0.7, -0.75), (0.6, -1.0), (0.35, -1.7))
# Beyond either, text that follows a prompt may be the prompt's own words.
DOUBT_NO_SPEECH, DOUBT_LOGPROB = 0.3, -1.0
SPARSE_PER_S = 2.0  # tokens per second; slower speech may be cut short by a prompt ...
SWALLOWED = 1.5  # ... and is, if there are so many times more tokens without it
LOOP_NO_SPEECH = 0.4  # a loop has a high log-probability, so that this alone decides

LOOP_TURNS = 4  # fewer turns of the same tokens are speech, not a loop ...
LAST_TURNS = 3  # ... unless the token cap cut them off
SAYABLE_PER_S = 9  # tokens per second of the fastest real repetition

EXPECTED = 3.0  # times as likely as any other, before anything is heard, is the language that is expected
SURE = 0.6  # less probable languages are not believed ...
BRIEF = 5 * SAMPLE_RATE // 4  # ... of so few samples; more of them never have to wait for more

SIMPLIFIED = "简体中文，带标点。"  # "simplified Chinese, with punctuation": which decides both
WIDE = str.maketrans(",?!:;", "，？！：；")  # punctuation as Chinese writes it


@dataclass(frozen=True, slots=True)
class Heard:
    """What the network says about `seconds` of audio.

    mean_logprob: of the tokens.  no_speech: probability that nobody spoke.  capped: the token cap ended it.
    """

    ids: list[int]
    mean_logprob: float
    no_speech: float
    seconds: float
    capped: bool

    @property
    def kept(self) -> list[int]:
        """The tokens without a decoder's loop."""
        return without_loop(self.ids, self.seconds, capped=self.capped)

    @property
    def looped(self) -> bool:
        """Whether the decoder ran in a circle."""
        return len(self.kept) < len(self.ids)

    @property
    def is_silence(self) -> bool:
        """Whether nothing was said, judged by probabilities, whatever the words."""
        if self.looped and self.no_speech > LOOP_NO_SPEECH:
            return True
        return any(self.no_speech > p and self.mean_logprob < mean for p, mean in NO_SPEECH)

    @property
    def is_doubtful(self) -> bool:
        """Whether a prompt may have put these words into the network's mouth."""
        return self.no_speech > DOUBT_NO_SPEECH or self.is_guess

    @property
    def is_guess(self) -> bool:
        """Whether the words are improbable, even to the network."""
        return self.mean_logprob < DOUBT_LOGPROB

    @property
    def is_sparse(self) -> bool:
        """Whether there are fewer tokens than speech of this length usually has."""
        return len(self.kept) < SPARSE_PER_S * self.seconds


def context_s(samples: int, task: Task = "transcribe") -> int:
    """Seconds of encoder context for audio of this length; ValueError beyond the longest.

    The encoder costs 60 ms for 10 s and 500 ms for 30 s of context, however much of it is silence. With two
    seconds of silence behind the audio, the text is as good as with 30 s; contexts of 10 s and less loop. Translations
    loop in all but the longest.
    """
    if task == "translate" and samples <= LONGEST_S * SAMPLE_RATE:
        return LONGEST_S
    for longest_s, context in CONTEXTS_S:
        if samples <= longest_s * SAMPLE_RATE:
            return context
    raise ValueError(f"{samples / SAMPLE_RATE:.1f} s of audio exceed the longest context, {LONGEST_S} s")


def token_cap(samples: int) -> int:
    """New tokens that audio of this length can hold, generously."""
    return min(CAP_BASE + round(CAP_PER_S * samples / SAMPLE_RATE), MAX_POSITIONS // 2)


def widen_punctuation(text: str) -> str:
    """Write ASCII punctuation behind an ideograph as Chinese does; the number of characters stays."""
    return re.sub("(?<=[\u4e00-\u9fff])[,?!:;]", lambda sign: sign[0].translate(WIDE), text)


def without_loop(ids: Sequence[int], seconds: float, *, capped: bool) -> list[int]:
    """Tokens with a decoder's loop reduced to one turn; speech that really repeats itself is kept.

    A run of equal turns is a loop if it ran into the token cap, or if it holds more tokens than `seconds` of
    speech can.
    """
    start, period, turns = _longest_run(ids)
    end = start + period * turns
    ran_out = capped and end > len(ids) - period
    unsayable = turns >= LOOP_TURNS and period * turns > SAYABLE_PER_S * seconds + 1
    if not unsayable and not (ran_out and turns >= LAST_TURNS):
        return list(ids)
    return [*ids[: start + period], *([] if ran_out else ids[end:])]


def _longest_run(ids: Sequence[int]) -> tuple[int, int, int]:
    """Start, period and turns of the longest stretch that repeats one unit; the shortest unit wins."""
    tokens = np.asarray(ids)
    best = (0, 1, 1)
    for period in range(1, len(ids) // 2 + 1):
        same = np.concatenate(([False], tokens[period:] == tokens[:-period], [False]))
        edges = np.flatnonzero(same[1:] != same[:-1])
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            turns = int(end - start) // period + 1
            if turns > 1 and turns * period > best[1] * best[2]:
                best = (int(start), period, turns)
    return best


def likeliest(probabilities: Mapping[str, float], expected: str | None) -> tuple[str, float]:
    """The likeliest language and its probability, where one of them was expected before anything was heard."""
    weights = {code: p * (EXPECTED if code == expected else 1.0) for code, p in probabilities.items()}
    language = max(weights, key=weights.__getitem__)
    return language, weights[language] / sum(weights.values())


class WhisperTokenizer:
    """Prompts and text in tokens, for one tokenizer.json."""

    def __init__(self, file: Path) -> None:
        """Load `file`; WeightsError if it cannot be read or is not Whisper's."""
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises bare Exceptions
            raise WeightsError(f"{file} cannot be read ({error}): fetch the model again") from error
        # Text that users give never turns into control tokens.
        self._tokenizer.encode_special_tokens = True
        self._eot = self._control("<|endoftext|>")
        self._sot = self._control("<|startoftranscript|>")
        self._translate = self._control("<|translate|>")
        self._transcribe = self._control("<|transcribe|>")
        self._previous = self._control("<|startofprev|>")
        self._no_timestamps = self._control("<|notimestamps|>")
        ids = range(self._sot + 1, min(self._translate, self._transcribe))
        self._languages = {self._token(i).strip("<|>"): i for i in ids}

    @property
    def languages(self) -> frozenset[str]:
        """Codes of the languages the model knows."""
        return frozenset(self._languages)

    def start(self, language: str, task: Task) -> list[int]:
        """Tokens that ask for a task in a language."""
        wish = self._translate if task == "translate" else self._transcribe
        return [self._sot, self._languages[language], wish]

    def plain_prompt(self, language: str, task: Task) -> list[int]:
        """Tokens before the text, nothing said before: the task, without timestamps."""
        return [*self.start(language, task), self._no_timestamps]

    def prompt(self, language: str, task: Task, hotwords: Sequence[str] = ()) -> list[int]:
        """`plain_prompt` behind text that the model is told was said before: a style, the hotwords that fit."""
        style = SIMPLIFIED if language == "zh" and task == "transcribe" else ""
        comma, space, stop = ("、", "", "。") if style else (",", " ", ".")
        ids, end = self._encode(style), self._encode(stop)
        for index, hotword in enumerate(hotwords):
            more = self._encode((comma if index else "") + space + hotword.strip())
            if len(ids) + len(more) + len(end) > PREVIOUS_TOKENS:
                break
            ids += more
        if hotwords:
            ids += end  # what goes on without a full stop teaches the model to leave them out
        return [*([self._previous] if ids else []), *ids, *self.plain_prompt(language, task)]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of tokens; control tokens and characters cut in the middle are left out."""
        return self.raw(ids).decode("utf-8", errors="ignore").strip()

    def raw(self, ids: Sequence[int]) -> bytes:
        """UTF-8 of tokens; may begin or end within a character."""
        return bytes(_BYTES[sign] for i in ids if i < self._eot for sign in self._token(i))

    def _encode(self, text: str) -> list[int]:
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return [i for i in ids if i < self._eot]

    def _token(self, number: int) -> str:
        return self._tokenizer.id_to_token(number) or ""

    def _control(self, token: str) -> int:
        number = self._tokenizer.token_to_id(token)
        if number is None:
            raise WeightsError(f"the tokenizer lacks {token}: it is not that of a multilingual Whisper model")
        return int(number)


def _printable_bytes() -> dict[str, int]:
    """Byte-level BPE writes each byte as one printable character: the map back."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(b): b for b in plain} | {chr(0x100 + n): b for n, b in enumerate(others)}


_BYTES = _printable_bytes()
