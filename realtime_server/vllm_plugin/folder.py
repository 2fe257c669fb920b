"""An official folder as the plugin's classes need it: sizes, prompts and counts; no weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from realtime_server.core.jobs import DecodingOptions
from realtime_server.errors import WeightsError
from realtime_server.models.adaptor import audio_rows
from realtime_server.models.nano_config import NanoConfig
from realtime_server.models.prompt import STOPS, FolderTokenizer, build_prompt
from realtime_server.vllm_plugin.wishes import LONGEST_S

FILLER = "<|endoftext|>"  # stands for the audio in prompts; what users write cannot hold it
LONGEST_ANSWER = 16 + 16 * LONGEST_S  # tokens: the fastest speech, and some slack; more is a loop
OPENED = 4  # folders remembered; a server has one


@dataclass(frozen=True, slots=True, eq=False)
class NanoFolder:
    """Settings and tokenizer of a folder.

    filler: the id of FILLER.  stops: ids that end an answer.
    """

    config: NanoConfig
    tokenizer: FolderTokenizer
    filler: int
    stops: tuple[int, ...]

    @classmethod
    def read(cls, folder: Path) -> NanoFolder:
        """Read a folder; raise WeightsError naming what is missing or not supported."""
        if not folder.is_dir():
            raise WeightsError(
                f"{folder} is no folder here: fetch the model from its hub, and give the folder that it is in"
            )
        config = NanoConfig.read(folder)
        if config.llm.kind != "qwen3":
            raise WeightsError(
                f"{folder}: the plugin serves a Qwen3, and this language model is {config.llm.kind}"
            )
        tokenizer = FolderTokenizer(folder / config.llm.folder)
        spelled = {name: tokenizer.encode(name) for name in STOPS}
        if len(spelled[FILLER]) != 1:
            raise WeightsError(f"{folder / config.llm.folder}: the tokenizer has no token {FILLER}")
        stops = tuple(ids[0] for ids in spelled.values() if len(ids) == 1)
        return cls(config, tokenizer, spelled[FILLER][0], stops)

    def prompt_ids(self, options: DecodingOptions) -> list[int]:
        """Ids of the prompt, with one filler in the place of the audio."""
        prompt = build_prompt(options, config=self.config.prompt)
        return [*self.tokenizer.encode(prompt.before), self.filler, *self.tokenizer.encode(prompt.after)]

    def audio_rows(self, samples: int) -> int:
        """Rows that the language model gets for so many samples; see `Frontend.frames` and `FunAsrNano.audio_rows`."""
        frontend = self.config.frontend
        windows = max(1, (samples - frontend.window) // frontend.shift + 1)
        frames = -(-windows // frontend.skip)
        return audio_rows(frames) if self.config.adaptor.low_frame_rate else frames


@lru_cache(maxsize=OPENED)
def opened(model: str) -> NanoFolder:
    """The folder that vLLM was given as its model."""
    return NanoFolder.read(Path(model))
