"""Fun-ASR-Nano as an engine; see nano_engine.py."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from realtime_server.core.jobs import Capabilities
from realtime_server.engines.generation import SHORTEST, LanguageModel
from realtime_server.engines.nano_audio import NanoAudio
from realtime_server.engines.nano_engine import NanoEngine
from realtime_server.engines.nano_options import NanoOptions
from realtime_server.models.checkpoint import Checkpoint, dtype_named, locate
from realtime_server.models.fun_asr_nano import FunAsrNano
from realtime_server.models.nano_languages import LANGUAGES, MLT_LANGUAGES
from realtime_server.models.prompt import STOPS, FolderTokenizer

logger = logging.getLogger(__name__)


class FunAsrNanoEngine(NanoEngine):
    """An `Engine`: Fun-ASR-Nano.

    audio: the encoder's half.  llm: the language model, not started yet.  tokenizer: its own.  longest_s: of one job;
    beyond 30 s the model is known to lose passages.  concurrency: jobs in the language model at the same time.
    """

    def __init__(
        self, audio: NanoAudio, llm: LanguageModel, tokenizer: FolderTokenizer, *,
        languages: frozenset[str] = LANGUAGES, translate: bool = False, longest_s: float = 30.0,
        concurrency: int = 256,
    ) -> None:  # fmt: skip
        capabilities = Capabilities(
            languages=languages,
            hotwords="full",
            words=audio.model.has_ctc,
            logprobs=True,
            prefix=True,
            translate=translate,
            longest_s=longest_s,
            partial_window_s=min(longest_s, 30.0),
            concurrency=concurrency,
        )
        super().__init__(
            audio, llm, tokenizer, capabilities=capabilities, stop_ids=stop_tokens(tokenizer),
            shortest=SHORTEST,
        )  # fmt: skip

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
            translate=model.translates,
            longest_s=options.longest_s,
            concurrency=options.jobs_at_once(device),
        )


def stop_tokens(tokenizer: FolderTokenizer) -> tuple[int, ...]:
    """Ids that end an answer; a name that the tokenizer spells in several tokens is none of them."""
    spelled = [tokenizer.encode(name) for name in STOPS]
    return tuple(ids[0] for ids in spelled if len(ids) == 1)
