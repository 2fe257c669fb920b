"""Any speech-to-text model that vLLM carries, as an engine: Whisper, Qwen3-ASR, GLM-ASR, Voxtral, plugins.

    audio -> (language, where the class detects it by a decode) -> the class's prompt -> vLLM -> the class's text

vLLM does the whole of the model, encoder included, as a multimodal decoder or as encoder and decoder; which of the two
shows in the prompt that the class makes. Answers are greedy, without penalties, and as long as the audio allows.

A partial decodes its window anew: the contract has no place for the beginning of an answer, which may be a tag or a
blank that only the model knows.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import numpy as np

from realtime_server.core.jobs import Capabilities, Decoded, DecodeJob, DecodingOptions, Priority, Samples
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.engines.admission import Admission
from realtime_server.engines.base import refuse_unsupported
from realtime_server.engines.generation import SHORTEST, check_rows, token_cap
from realtime_server.engines.speech_model import SpeechModel, Traits
from realtime_server.engines.speech_options import SpeechOptions
from realtime_server.engines.vllm_host import VllmHost
from realtime_server.engines.vllm_setup import ready_vllm
from realtime_server.errors import ConfigurationError, EngineError, UnsupportedError

logger = logging.getLogger(__name__)

T = TypeVar("T")

LEAST = SAMPLE_RATE // 2  # what shorter audio is filled up to: some encoders make no row of less
# Windows of partials: each is decoded anew, about once a second for everybody who speaks.
GPU_WINDOW_S, CPU_WINDOW_S = 15.0, 8.0


class Host(Protocol):
    """What runs the model; VllmHost."""

    @property
    def healthy(self) -> bool:
        """Whether it can answer."""

    async def start(self) -> None:
        """Load the model."""

    async def render(self, prompt: Any) -> Any:
        """What `generate` takes of a prompt. Raises UnsupportedError for one that is unfit."""

    async def generate(
        self, prompt: Any, params: Any, *, request_id: str, priority: int = 0,
        on_output: Callable[[Any], None] | None = None,
    ) -> Any:  # fmt: skip
        """The last RequestOutput."""

    async def aclose(self) -> None:
        """End it."""


class SpeechToTextEngine:
    """An `Engine`: one model of vLLM's.

    model: its class.  host: vLLM, not started yet.  room: the longest prompt and answer together, tokens.  width: of
    its language model's embeddings.  make_sampling: speech_loading.sampling.
    """

    def __init__(
        self, model: SpeechModel, host: Host, options: SpeechOptions, *,
        device: str, room: int, width: int, make_sampling: Callable[..., Any],
    ) -> None:  # fmt: skip
        self._model, self._host, self._options = model, host, options
        self._room, self._width, self._make_sampling = room, width, make_sampling
        self._capabilities = capabilities_of(model.traits, options.jobs_at_once(device), device)
        self._admission = Admission(self._capabilities.concurrency)
        self._numbers = itertools.count()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="prompts")  # tokenizers bear one at a time
        self._warned = False

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        return self._capabilities

    @property
    def healthy(self) -> bool:
        """Whether vLLM works; once this is false after `warmup`, only a new process helps."""
        return self._host.healthy

    async def warmup(self) -> None:
        """Start vLLM and decode some noise, as long as a segment may be.

        Raises EngineError if that fails, ConfigurationError if vLLM's room is too small for it.
        """
        await self._host.start()
        began_s = time.monotonic()
        traits = self._model.traits
        language = min(traits.languages or ()) if traits.needs_language else None
        longest_s = min(self._capabilities.longest_s, self._options.segment_s)
        for seconds, logprobs in ((1.0, False), (1.0, True), (longest_s, False)):
            noise = (
                np.random.default_rng(0).normal(0.0, 0.01, round(seconds * SAMPLE_RATE)).astype(np.float32)
            )
            wish = DecodingOptions(language=language, logprobs=logprobs, max_new_tokens=4)
            job = DecodeJob(0, "", 0, 0, "final", Priority.FINAL, 0, 0, noise.size, noise, "", wish)
            try:
                await self.transcribe(job)
            except UnsupportedError as error:
                raise ConfigurationError(
                    f"--max-model-len {self._room}: it must be larger, or --max-segment-seconds {longest_s:g} smaller: "
                    f"{error}"
                ) from error
        logger.info("warmed up in %.1f s", time.monotonic() - began_s)

    async def transcribe(self, job: DecodeJob, on_text: Callable[[str], None] | None = None) -> Decoded:
        """Recognise one job; `on_text` gets the growing text.

        Raises UnsupportedError for what the capabilities or the model exclude, EngineError when the model failed or has
        ended.
        """
        refuse_unsupported(job, self._capabilities)
        if job.audio.size < SHORTEST:
            return Decoded("", finish="gated")
        if not np.isfinite(job.audio).all():
            raise EngineError("the audio holds values that are not numbers")
        language = self._model.checked(job.options.language)
        name = f"{job.session}-{job.id}-{next(self._numbers)}"
        async with self._admission.room(job.priority):
            audio = await self._in_thread(lambda: prepared(job.audio, self._model.traits.sample_rate))
            if language is None and self._model.traits.detects:
                language = await self._detect(audio, name, job.priority)
            rendered, most = await self._render(job, audio, language)
            params = self._make_sampling(most, logprobs=job.options.logprobs, stream=on_text is not None)
            output = await self._host.generate(
                rendered, params, request_id=name, priority=job.priority,
                on_output=self._teller(on_text) if on_text else None,
            )  # fmt: skip
        return self._decoded(output.outputs[0], language)

    async def aclose(self) -> None:
        """End vLLM; jobs that still run end with EngineError."""
        await self._host.aclose()
        await asyncio.to_thread(self._thread.shutdown)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except EngineError:
            raise
        except Exception as error:  # foreign: the code of any model runs there
            raise EngineError(f"the model's own code failed: {error or type(error).__name__}") from error

    async def _detect(self, audio: Samples, name: str, priority: int) -> str:
        """The language, by a decode of one token."""
        prompt, ids = await self._in_thread(lambda: self._model.detection(audio))
        params = self._make_sampling(1, allowed_ids=ids)
        output = await self._host.generate(
            await self._host.render(prompt), params, request_id=f"{name}-language", priority=priority
        )
        return self._model.detected(output.outputs[0].token_ids)

    async def _render(self, job: DecodeJob, audio: Samples, language: str | None) -> tuple[Any, int]:
        """The prompt as vLLM takes it, and how many tokens its answer may have.

        Hotwords that leave no room for the answer are left out, the last ones first.
        """
        cap = token_cap(job.audio.size / SAMPLE_RATE, job.options.max_new_tokens)
        words = job.options.hotwords
        while True:
            made = await self._in_thread(
                lambda words=words: self._model.prompt(  # type: ignore[misc] # it cannot infer a default's type
                    audio, language=language, hotwords=words, task=job.options.task
                )
            )
            try:
                rendered = await self._host.render(made)
                return rendered, self._left(rendered, cap)
            except UnsupportedError:
                if not words:
                    raise
            words = words[: len(words) // 2]
            if not self._warned:
                self._warned = True
                logger.warning(
                    "hotwords take more than the model's %d tokens: the last are left out", self._room
                )

    def _left(self, rendered: Any, cap: int) -> int:
        """Tokens that the answer may have: `cap`, or what is left of the room if that is half of it at least."""
        if (rows := rendered.get("prompt_embeds")) is not None:
            check_rows(rows, self._width, self._room)
        used = prompt_length(rendered)
        if self._room - used < min(cap, self._room // 2):
            raise UnsupportedError(
                f"the prompt takes {used} of {self._room} tokens; use less audio, fewer hotwords"
            )
        return min(cap, self._room - used)

    def _teller(self, tell: Callable[[str], None]) -> Callable[[Any], None]:
        grow, told = self._model.growing(), ""

        def on_output(output: Any) -> None:
            nonlocal told
            text = grow(output.outputs[0].text).rstrip("\ufffd")
            if len(text) > len(told):
                told = text
                tell(text)

        return on_output

    def _decoded(self, completion: Any, language: str | None) -> Decoded:
        if completion.finish_reason not in ("stop", "length"):
            raise EngineError(f"vLLM ended the answer: {completion.finish_reason}")
        stopped = completion.finish_reason == "stop"
        scores = None
        if completion.logprobs is not None:
            pairs = zip(completion.token_ids, completion.logprobs, strict=True)
            scores = tuple(table[token].logprob for token, table in pairs)
            scores = scores[:-1] if stopped else scores  # the last is that of the end
        takes_language = self._model.traits.languages is not None
        return Decoded(
            self._model.text(completion.text.rstrip("\ufffd")),
            token_logprobs=scores,
            language=language if takes_language else None,
            finish="stop" if stopped else "length",
        )


def capabilities_of(traits: Traits, concurrency: int, device: str) -> Capabilities:
    """What an engine of such a model can do."""
    return Capabilities(
        languages=traits.languages,
        hotwords="none" if traits.hotwords is None else "full" if traits.hotwords == "hotwords" else "soft",
        words=False,  # the contract knows times of segments at most
        logprobs=True,
        prefix=False,
        translate=traits.translates,
        longest_s=traits.longest_s,
        partial_window_s=min(traits.longest_s, CPU_WINDOW_S if device == "cpu" else GPU_WINDOW_S),
        concurrency=concurrency,
    )


def prepared(audio: Samples, rate: int) -> Samples:
    """Audio as the model gets it: at its rate, in -1..1 as vLLM's own features need it, and not too short."""
    made = np.clip(audio, -1.0, 1.0)
    made = np.pad(made, (0, max(0, LEAST - made.size)))
    if rate == SAMPLE_RATE:
        return made
    import soxr

    resampled: Samples = soxr.resample(made, SAMPLE_RATE, rate).astype(np.float32)
    return resampled


def prompt_length(rendered: Any) -> int:
    """Tokens that a rendered prompt takes of the room; the sound of an encoder takes none."""
    prompt = rendered.get("decoder_prompt", rendered)
    held: Sequence[Any] = prompt.get("prompt_token_ids", prompt.get("prompt_embeds"))
    return len(held)


def load(options: SpeechOptions) -> SpeechToTextEngine:
    """Prepare a model; blocks. `warmup`, which loads its weights, must follow.

    Raises ConfigurationError if vLLM is missing or unfit, or the model is none of vLLM's or no speech-to-text model.
    """
    if not options.model:
        raise ConfigurationError("--engine vllm needs --model: a folder, or a model's name at the hub")
    device = ready_vllm(options.device)
    from realtime_server.engines.speech_loading import open_model, sampling

    model, arguments, config = open_model(options, device)
    return SpeechToTextEngine(
        model, VllmHost(arguments, device), options, device=device, room=config.max_model_len,
        width=config.get_hidden_size(), make_sampling=sampling,
    )  # fmt: skip
