"""Fun-ASR-Nano as an engine: one encoder and one language model for all sessions.

    audio -> micro-batched encoder -> prompt rows -> language model -> text -> (finals, on request) word times

The language model runs in vLLM (vllm_engine.py) or in transformers (torch_engine.py); everything else is the same.
A partial continues its stable text, so that only the tail is generated; a final is decoded free. The language model
serves by priority but never takes back what it has begun, so the partials and the files in it are bounded too.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext

import numpy as np

from realtime_server.core.jobs import Capabilities, Decoded, DecodeJob, DecodingOptions, Priority
from realtime_server.core.postprocess import neutralise
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.engines.base import refuse_unsupported
from realtime_server.engines.generation import LanguageModel, Sampling, TextStream, token_cap
from realtime_server.engines.nano_audio import NanoAudio
from realtime_server.engines.nano_options import NanoOptions
from realtime_server.errors import EngineError
from realtime_server.models.checkpoint import Checkpoint, dtype_named, locate
from realtime_server.models.fun_asr_nano import FunAsrNano
from realtime_server.models.prompt import FolderTokenizer

logger = logging.getLogger(__name__)

# What the model was trained on: its card names Chinese (with dialects), English and Japanese. Checkpoints of the same
# shape trained on 31 languages (Irish has no code here) carry "MLT" in their name. What a model was not trained on it
# answers in a wrong language, so it is refused.
LANGUAGES = frozenset({"zh", "en", "ja"})
_MLT = "yue ko vi id th ms tl ar hi bg hr cs da nl et fi el hu lv lt mt pl pt ro sk sl sv"
MLT_LANGUAGES = LANGUAGES | frozenset(_MLT.split())
STOP_TOKENS = ("<|im_end|>", "<|endoftext|>")
SHORTEST = SAMPLE_RATE * 25 // 1000  # samples of one analysis window; there are no words in less


class FunAsrNanoEngine:
    """An `Engine`: Fun-ASR-Nano.

    audio: the encoder's half.  llm: the language model, not started yet.  tokenizer: its own.  longest_s: of one job;
    beyond 30 s the model is known to lose passages.  concurrency: jobs in the language model at the same time.
    """

    def __init__(
        self, audio: NanoAudio, llm: LanguageModel, tokenizer: FolderTokenizer, *,
        languages: frozenset[str] = LANGUAGES, longest_s: float = 30.0, concurrency: int = 256,
    ) -> None:  # fmt: skip
        self.llm = llm
        self._audio, self._tokenizer = audio, tokenizer
        self._stop_ids = stop_tokens(tokenizer)
        self._numbers = itertools.count()
        self._files = asyncio.Semaphore(concurrency)
        self._partials = asyncio.Semaphore(max(1, concurrency // 2))
        self._capabilities = Capabilities(
            languages=languages,
            hotwords="full",
            words=audio.model.has_ctc,
            logprobs=True,
            prefix=True,
            translate=False,
            longest_s=longest_s,
            partial_window_s=min(longest_s, 30.0),
            concurrency=concurrency,
        )

    @classmethod
    def load(
        cls, options: NanoOptions, device: str, start: Callable[[Checkpoint], LanguageModel]
    ) -> FunAsrNanoEngine:
        """Read the checkpoint; `start` makes the language model of it. Blocks for as long as that takes."""
        began_s = time.monotonic()
        folder = locate(options.model, hub=options.hub)
        logger.info("loading Fun-ASR-Nano from %s to %s, %s", folder, device, options.precision(device))
        checkpoint = Checkpoint.open(folder)
        model = FunAsrNano.load(checkpoint, device, dtype_named(options.precision(device)))
        logger.info("the encoder is there after %.1f s", time.monotonic() - began_s)
        if not model.has_ctc:
            logger.warning("%s has no CTC weights: there are no word times", folder)
        return cls(
            NanoAudio(model),
            start(checkpoint),
            checkpoint.text_tokenizer(),
            languages=MLT_LANGUAGES if "MLT" in folder.name else LANGUAGES,
            longest_s=options.longest_s,
            concurrency=options.jobs_at_once(device),
        )

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        return self._capabilities

    @property
    def healthy(self) -> bool:
        """Whether the language model works; once this is false after `warmup`, only a new process helps."""
        return self.llm.healthy

    async def warmup(self) -> None:
        """Start the language model and decode some noise; EngineError if that fails."""
        await self.llm.start()
        began_s = time.monotonic()
        await self._audio.warmup(round(self._capabilities.longest_s * SAMPLE_RATE))
        noise = np.random.default_rng(0).normal(0.0, 0.01, SAMPLE_RATE).astype(np.float32)
        for logprobs in (False, True):
            wish = DecodingOptions(words=self._capabilities.words, logprobs=logprobs, max_new_tokens=4)
            job = DecodeJob(0, "", 0, 0, "final", Priority.FINAL, 0, 0, noise.size, noise, "", wish)
            await self.transcribe(job)
        logger.info("warmed up in %.1f s", time.monotonic() - began_s)

    async def transcribe(self, job: DecodeJob, on_text: Callable[[str], None] | None = None) -> Decoded:
        """Recognise one job; `on_text` gets the growing text.

        Raises UnsupportedError for what the capabilities exclude, EngineError when the model failed or has ended.
        """
        refuse_unsupported(job, self._capabilities)
        if job.audio.size < SHORTEST:
            return Decoded("", finish="gated")
        if not np.isfinite(job.audio).all():
            raise EngineError("the audio holds values that are not numbers")
        prefix = neutralise(job.prefix_text)
        stream = TextStream(self._tokenizer.decode, prefix, on_text) if on_text else None
        async with self._room(job.priority):
            prompt = await self._audio.prompt(job)
            generated = await self.llm.generate(
                prompt.rows, self._sampling(job), request_id=f"{job.session}-{job.id}-{next(self._numbers)}",
                priority=job.priority, on_ids=stream,
            )  # fmt: skip
        text = (prefix + self._tokenizer.decode(generated.ids).rstrip("\ufffd")).strip()
        timed = job.options.words and job.kind != "partial"
        return Decoded(
            text,
            words=await self._audio.words(prompt, text, job.priority) if timed else None,
            token_logprobs=generated.logprobs,
            language=job.options.language,
            finish=generated.finish,
        )

    async def aclose(self) -> None:
        """End the language model and the encoder; jobs that still run end with EngineError."""
        await self.llm.aclose()
        await self._audio.aclose()

    def _room(self, priority: int) -> AbstractAsyncContextManager[None]:
        """A place in the language model: as many as there are for finals, bounded for what can wait."""
        if priority == Priority.FILE:
            return self._files
        return nullcontext() if priority <= Priority.EAGER else self._partials

    def _sampling(self, job: DecodeJob) -> Sampling:
        cap = token_cap(job.audio.size / SAMPLE_RATE, job.options.max_new_tokens)
        return Sampling(cap, self._stop_ids, logprobs=job.options.logprobs)


def stop_tokens(tokenizer: FolderTokenizer) -> tuple[int, ...]:
    """Ids that end an answer; a name that the tokenizer spells in several tokens is none of them."""
    spelled = [tokenizer.encode(name) for name in STOP_TOKENS]
    return tuple(ids[0] for ids in spelled if len(ids) == 1)
