"""GLM-ASR-Nano as an engine; see nano_engine.py.

It was trained on clips of at most 30 s and is told nothing but the audio: no language, no hotwords, no word times. Its
segments end after a fixed silence, for a schedule that lets them grow makes them longer than it bears.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from realtime_server.core.jobs import Capabilities
from realtime_server.engines.generation import LanguageModel
from realtime_server.engines.nano_audio import NanoAudio
from realtime_server.engines.nano_engine import NanoEngine
from realtime_server.engines.nano_options import NanoOptions
from realtime_server.models.checkpoint import dtype_named, locate
from realtime_server.models.glm_asr import SHORTEST, GlmAsr
from realtime_server.models.glm_checkpoint import GlmCheckpoint
from realtime_server.models.prompt import FolderTokenizer

logger = logging.getLogger(__name__)


class GlmAsrEngine(NanoEngine):
    """An `Engine`: GLM-ASR-Nano.

    audio: the encoder's half, of a GlmAsr.  llm: the language model, not started yet.  tokenizer: its own.  stop_ids:
    tokens that end an answer.  longest_s: of one job.  concurrency: jobs in the language model at the same time.
    """

    def __init__(
        self, audio: NanoAudio, llm: LanguageModel, tokenizer: FolderTokenizer, *, stop_ids: tuple[int, ...],
        longest_s: float, concurrency: int = 256,
    ) -> None:  # fmt: skip
        capabilities = Capabilities(
            languages=None,
            hotwords="none",
            words=False,
            logprobs=True,
            prefix=True,
            translate=False,
            longest_s=longest_s,
            partial_window_s=longest_s,
            concurrency=concurrency,
            schedule=False,
        )
        super().__init__(
            audio, llm, tokenizer, capabilities=capabilities, stop_ids=stop_ids, shortest=SHORTEST
        )

    @classmethod
    def load(
        cls, options: NanoOptions, device: str, start: Callable[[GlmCheckpoint], LanguageModel]
    ) -> GlmAsrEngine:
        """Read the checkpoint; `start` makes the language model of it. Blocks for as long as that takes."""
        began_s = time.monotonic()
        folder = locate(options.model, hub=options.hub)
        logger.info("loading GLM-ASR-Nano from %s to %s, %s", folder, device, options.precision(device))
        checkpoint = GlmCheckpoint.open(folder)
        model = GlmAsr.load(checkpoint, device, dtype_named(options.precision(device)))
        logger.info("the encoder is there after %.1f s", time.monotonic() - began_s)
        return cls(
            NanoAudio(model),
            start(checkpoint),
            checkpoint.text_tokenizer(),
            stop_ids=checkpoint.config.stop_ids,
            longest_s=min(options.longest_s, model.context_s),
            concurrency=options.jobs_at_once(device),
        )
