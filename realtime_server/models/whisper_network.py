"""Whisper in CTranslate2: a few jobs in, their texts out, on the calling thread.

Each job is encoded by itself; jobs decoded together share only the reading of the weights, so that a text never
depends on its company. Decoding is greedy and never random: the same audio and options give the same text.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import opencc
from numpy.typing import NDArray

from realtime_server.core.jobs import Decoded, DecodeJob, Finish
from realtime_server.core.segments import HOP, SAMPLE_RATE
from realtime_server.errors import WeightsError
from realtime_server.models.log_mel import FRAMES_PER_S, log_mel
from realtime_server.models.whisper import (
    BRIEF,
    DOUBT_NO_SPEECH,
    LONGEST_S,
    MAX_POSITIONS,
    SURE,
    SWALLOWED,
    Heard,
    WhisperTokenizer,
    context_s,
    likeliest,
    token_cap,
    widen_punctuation,
)
from realtime_server.models.whisper_coverage import Gap, gaps, joined, parts, says_more, usual_tokens, voiced
from realtime_server.models.whisper_words import TokenSpan, set_in, token_starts, words

logger = logging.getLogger(__name__)

FILES = ("model.bin", "config.json", "tokenizer.json", "vocabulary.txt")
QUIETEST = 2.0**-14  # peak below which there is nothing to hear: two steps of 16 bits
LEAST_PROBABILITY = 1e-10  # whose logarithm stands for that of zero
DEEPEST = 2  # times that audio is cut because its text leaves some of it out

Wanted = Callable[[DecodeJob], bool]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A job behind the encoder.

    context_s: length of its context.  features: float32 (1, positions, width).  certainty: that the language is the
    right one.  prompt: tokens, `prompted` if they hold more than the task.  depth: how often the audio was cut to get
    at this part of it.
    """

    job: DecodeJob
    context_s: int
    features: Any  # ctranslate2.StorageView
    language: str
    certainty: float
    prompt: list[int]
    prompted: bool
    depth: int = 0

    @property
    def seconds(self) -> float:
        """Length of the audio."""
        return len(self.job.audio) / SAMPLE_RATE

    @property
    def is_unsure(self) -> bool:
        """Whether a text would come in any language: better no text yet, more audio follows soon."""
        return self.job.kind == "partial" and len(self.job.audio) < BRIEF and self.certainty < SURE

    @property
    def cap(self) -> int:
        """New tokens this job may have."""
        cap, wish = token_cap(len(self.job.audio)), self.job.options.max_new_tokens
        return cap if wish is None else min(cap, max(1, wish))


class WhisperNetwork:
    """One model, int8 on the CPU, that `threads` threads may use at the same time."""

    def __init__(self, folder: Path, threads: int) -> None:
        """Load the model in `folder`; WeightsError names what is missing or broken."""
        missing = [name for name in FILES if not (folder / name).is_file()]
        if missing:
            raise WeightsError(f"{folder} lacks {', '.join(missing)}: fetch whisper-base again")
        self._tokenizer = WhisperTokenizer(folder / "tokenizer.json")
        try:
            self._model = ctranslate2.models.Whisper(
                str(folder), device="cpu", compute_type="int8", inter_threads=threads, intra_threads=1
            )
        except (RuntimeError, ValueError) as error:
            raise WeightsError(
                f"{folder / 'model.bin'} cannot be loaded ({error}): fetch it again"
            ) from error
        self.retried = 0  # decodes repeated because the decoder ran away
        self._counting = threading.Lock()
        self._to_simplified = opencc.OpenCC("t2s")

    @property
    def languages(self) -> frozenset[str]:
        """Codes of the languages it can be told."""
        return self._tokenizer.languages

    def recognise(self, jobs: Sequence[DecodeJob], wanted: Wanted = lambda _: True) -> list[Decoded | None]:
        """Texts of `jobs` in their order; None for a job that is not `wanted` any more at some stage."""
        encoded = {
            n: self._encode(job, context_s(len(job.audio), job.options.task))
            for n, job in enumerate(jobs)
            if has_sound(job) and wanted(job)
        }
        encoded = {n: item for n, item in encoded.items() if wanted(item.job)}
        clear = {n: item for n, item in encoded.items() if not item.is_unsure}
        heard = self._generate(list(clear.values()))
        answers = {n: Decoded("", finish="gated") for n in encoded.keys() - clear.keys()}
        answers |= {n: Decoded("", finish="gated") for n, job in enumerate(jobs) if not has_sound(job)}
        answers |= {
            n: self._conclude(item, text)
            for (n, item), text in zip(clear.items(), heard, strict=True)
            if wanted(item.job)
        }
        return [answers.get(n) for n in range(len(jobs))]

    def _encode(self, job: DecodeJob, seconds: int, depth: int = 0) -> Encoded:
        features = self._model.encode(_view(log_mel(job.audio, seconds * FRAMES_PER_S)[None]))
        wish = job.options
        language, certainty = (wish.language, 1.0) if wish.language else self._detect(features, wish.expected)
        prompt = self._tokenizer.prompt(language, wish.task, wish.hotwords)
        plain = self._tokenizer.plain_prompt(language, wish.task)
        return Encoded(job, seconds, features, language, certainty, prompt, prompt != plain, depth)

    def _detect(self, features: Any, expected: str | None) -> tuple[str, float]:
        heard = self._model.detect_language(features)[0]
        return likeliest({token.strip("<|>"): p for token, p in heard}, expected)

    def _generate(self, items: Sequence[Encoded]) -> list[Heard]:
        """Greedy decoding; items whose prompts are equally long go together."""
        heard: dict[int, Heard] = {}
        order = sorted(range(len(items)), key=lambda n: len(items[n].prompt))
        for length, group in groupby(order, key=lambda n: len(items[n].prompt)):
            numbers = list(group)
            members = [items[n] for n in numbers]
            cap = max(item.cap for item in members)
            results = self._model.generate(
                _together([item.features for item in members]),
                [item.prompt for item in members],
                beam_size=1,
                max_length=min(MAX_POSITIONS, max(2 * cap, cap + length)),  # the library halves or subtracts
                return_scores=True,
                return_no_speech_prob=True,
            )
            for n, item, result in zip(numbers, members, results, strict=True):
                # What ran past its own cap, because its company had a higher one, is decoded alone.
                within = len(members) == 1 or len(result.sequences_ids[0]) < item.cap
                heard[n] = _heard(item, result) if within else self._generate([item])[0]
        return [heard[n] for n in range(len(items))]

    def _conclude(self, item: Encoded, heard: Heard) -> Decoded:
        """Gate silence, get out of a loop, add what else was asked for, fetch what was left out."""
        heard = self._settled(item, heard)
        if heard.is_silence:
            return Decoded("", language=item.language, finish="gated")
        if item.depth and (heard.is_guess or not heard.kept):  # alone, music becomes words, too
            finish: Finish = "gated" if heard.no_speech > DOUBT_NO_SPEECH else "stop"
            return Decoded("", language=item.language, finish=finish)
        runaway = heard.looped or (heard.capped and item.job.options.max_new_tokens is None)
        if runaway and item.job.kind != "partial" and item.context_s < LONGEST_S:
            logger.info("the decoder ran away on %.1f s of audio: again in the longest context", item.seconds)
            with self._counting:
                self.retried += 1
            again = self._encode(item.job, LONGEST_S, item.depth)
            return self._conclude(again, self._generate([again])[0])
        convert = self._chinese if item.language == "zh" else str
        wish, sound = item.job.options, voiced(item.job.audio)
        whole = not heard.capped and not heard.looped
        suspect = whole and item.job.kind != "partial" and 0 < len(heard.kept) < usual_tokens(sound)
        spans = self._align(item, heard.kept) if wish.words or wish.logprobs or suspect else []
        timed = set_in(words(spans, convert), item.job.audio)
        decoded = Decoded(
            convert(self._tokenizer.decode(heard.kept)),
            words=timed if wish.words else None,
            token_logprobs=tuple(map(_logprob, spans)) if wish.logprobs else None,
            language=item.language,
            finish="stop" if whole else "length",
        )
        lost = gaps(timed, sound) if suspect else []
        return self._apart(item, decoded, lost) if lost else decoded

    def _apart(self, item: Encoded, whole: Decoded, lost: Sequence[Gap]) -> Decoded:
        """The answers to the parts of the audio, joined, if they say more than `whole`, which leaves out `lost`."""
        job, spans = item.job, parts(item.job.audio, lost)
        if len(spans) == 1 or item.depth == DEEPEST:
            return replace(whole, finish="length")
        logger.info(
            "the text of %.1f s of audio leaves some out: again in %d parts", item.seconds, len(spans)
        )
        answers = [
            self._part(
                replace(job, start=job.start + start, end=job.start + end, audio=job.audio[start:end]),
                item.depth + 1,
            )
            for start, end in spans
        ]
        apart = joined(answers, spans)
        if says_more(apart.text, whole.text):
            return apart
        return replace(whole, finish=apart.finish)

    def _part(self, job: DecodeJob, depth: int) -> Decoded:
        """The answer to a part of what was asked; what it says is less easily believed."""
        if not has_sound(job):
            return Decoded("", finish="gated")
        item = self._encode(job, context_s(len(job.audio), job.options.task), depth)
        return self._conclude(item, self._generate([item])[0])

    def _settled(self, item: Encoded, heard: Heard) -> Heard:
        """What counts. A prompt makes noise sound like its own words, and may swallow speech: doubts go without."""
        if not item.prompted or not (heard.is_doubtful or heard.is_sparse):
            return heard
        prompt = self._tokenizer.plain_prompt(item.language, item.job.options.task)
        plain = self._generate([replace(item, prompt=prompt, prompted=False)])[0]
        swallowed = len(plain.kept) > SWALLOWED * len(heard.kept)
        return plain if plain.is_silence or heard.is_silence or swallowed else heard

    def _align(self, item: Encoded, ids: list[int]) -> list[TokenSpan]:
        """Tokens with times and probabilities."""
        if not ids:
            return []
        start = self._tokenizer.start(item.language, item.job.options.task)
        frames = -(-len(item.job.audio) // HOP)
        result = self._model.align(item.features, start, [ids], frames)[0]
        edges = pairwise(token_starts(result.alignments, len(ids)))
        return [
            TokenSpan(self._tokenizer.raw([token]), begin, end, float(probability))
            for token, (begin, end), probability in zip(ids, edges, result.text_token_probs, strict=True)
        ]

    def _chinese(self, text: str) -> str:
        """Simplified characters and Chinese punctuation, as many as before."""
        simple = self._to_simplified.convert(text)
        if len(simple) != len(text):
            simple = "".join(self._to_simplified.convert(sign)[:1] for sign in text)
        return widen_punctuation(simple)


def has_sound(job: DecodeJob) -> bool:
    """Whether there is anything to hear."""
    return bool(np.abs(job.audio).max(initial=0.0) >= QUIETEST)


def _heard(item: Encoded, result: Any) -> Heard:
    """What a generation says of a job."""
    ids = list(result.sequences_ids[0])
    mean = result.scores[0] * len(ids) / (len(ids) + 1)  # the end of text counts as a token
    return Heard(ids, mean, result.no_speech_prob, item.seconds, capped=len(ids) >= item.cap)


def _logprob(span: TokenSpan) -> float:
    return math.log(max(span.probability, LEAST_PROBABILITY))


def _together(features: Sequence[Any]) -> Any:
    """One batch of encoder outputs."""
    return features[0] if len(features) == 1 else _view(np.concatenate([np.array(f) for f in features]))


def _view(array: NDArray[np.float32]) -> Any:
    return ctranslate2.StorageView.from_array(np.ascontiguousarray(array))
