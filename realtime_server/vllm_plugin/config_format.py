"""Config formats for vLLM: an official folder has no config.json, and needs none.

vLLM is told that the folder is a Qwen3 of one of our architectures; the classes read the rest themselves.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from vllm.transformers_utils.config_parser_base import ConfigParserBase

if TYPE_CHECKING:
    from transformers import Qwen3Config

MLT = "MLT"  # in the name of a folder whose model was trained on 31 languages


class NanoConfigParser(ConfigParserBase):
    """Reads a folder for one architecture."""

    architecture: ClassVar[str]

    def parse(
        self, model: str | Path, trust_remote_code: bool, revision: str | None = None,
        code_revision: str | None = None, **kwargs: Any,
    ) -> tuple[dict[str, Any], Qwen3Config]:  # fmt: skip
        """The settings of the language model; vLLM's signature, of which only `model` matters.

        Raises WeightsError naming what is missing or not supported.
        """
        from transformers import Qwen3Config

        from realtime_server.vllm_plugin.folder import LONGEST_ANSWER, opened

        folder = opened(str(model))
        config = Qwen3Config(**folder.config.llm.settings)
        config.architectures = [self.architecture + ("Mlt" if MLT in Path(model).resolve().name else "")]
        config.eos_token_id = list(folder.stops)
        config.max_new_tokens = LONGEST_ANSWER  # vLLM's default for what a request does not say
        return config.to_dict(), config


def parser_of(architecture: str) -> type[NanoConfigParser]:
    """The parser that makes a folder one of this architecture."""
    return type("NanoConfigParser", (NanoConfigParser,), {"architecture": architecture})
