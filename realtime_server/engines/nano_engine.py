"""Audio models split in two, as engines: one encoder and one language model for all sessions.

    audio -> micro-batched encoder -> prompt rows -> language model -> text -> (finals, on request) word times

The language model runs in vLLM (vllm_engine.py) or in transformers (torch_engine.py); everything else is the same.
A partial continues its stable text, so that only the tail is generated; a final is decoded free. The language model
serves by priority but never takes back what it has begun, so the partials and the files in it are bounded too.

What differs between models is in fun_asr_nano.py and glm_asr.py: which checkpoint, what it can do, how it stops.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable

import numpy as np

from realtime_server.core.jobs import Capabilities, Decoded, DecodeJob, DecodingOptions, Priority
from realtime_server.core.postprocess import neutralise
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.engines.admission import Admission
from realtime_server.engines.base import refuse_unsupported
from realtime_server.engines.generation import LanguageModel, Sampling, TextStream, token_cap
from realtime_server.engines.nano_audio import NanoAudio
from realtime_server.errors import EngineError
from realtime_server.models.prompt import FolderTokenizer

logger = logging.getLogger(__name__)


class NanoEngine:
    """An `Engine`: the base of FunAsrNanoEngine and GlmAsrEngine.

    audio: the encoder's half.  llm: the language model, not started yet.  tokenizer: its own.  stop_ids: tokens that
    end an answer.  shortest: samples; there are no words in less.
    """

    def __init__(
        self, audio: NanoAudio, llm: LanguageModel, tokenizer: FolderTokenizer, *,
        capabilities: Capabilities, stop_ids: tuple[int, ...], shortest: int,
    ) -> None:  # fmt: skip
        self.llm = llm
        self._audio, self._tokenizer = audio, tokenizer
        self._stop_ids, self._shortest = stop_ids, shortest
        self._numbers = itertools.count()
        self._admission = Admission(capabilities.concurrency)
        self._capabilities = capabilities

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
        if job.audio.size < self._shortest:
            return Decoded("", finish="gated")
        if not np.isfinite(job.audio).all():
            raise EngineError("the audio holds values that are not numbers")
        prefix = neutralise(job.prefix_text)
        stream = TextStream(self._tokenizer.decode, prefix, on_text) if on_text else None
        async with self._admission.room(job.priority):
            prompt = await self._audio.prompt(job)
            generated = await self.llm.generate(
                prompt.rows, self._sampling(job), request_id=f"{job.session}-{job.id}-{next(self._numbers)}",
                priority=job.priority, on_ids=stream,
            )  # fmt: skip
        text = (prefix + self._tokenizer.decode(generated.ids).rstrip("\ufffd")).strip()
        # The words of a translation were not said: they have no times.
        timed = job.options.words and job.kind != "partial" and job.options.task == "transcribe"
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

    def _sampling(self, job: DecodeJob) -> Sampling:
        cap = token_cap(job.audio.size / SAMPLE_RATE, job.options.max_new_tokens)
        return Sampling(cap, self._stop_ids, logprobs=job.options.logprobs)
