"""What is asked of a language model that continues a prompt, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from realtime_server.core.jobs import Finish
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.errors import EngineError, UnsupportedError

if TYPE_CHECKING:
    from torch import Tensor

# The fastest speech has about 11 syllables a second, and languages that the tokenizer knows badly take more than a
# token for one. A decode that needs more is a loop, which the cap ends.
TOKENS_PER_S = 16.0
TOKENS_OF_SLACK = 16
SHORTEST = SAMPLE_RATE * 25 // 1000  # samples of one analysis window; there are no words in less


def token_cap(seconds: float, wish: int | None = None) -> int:
    """New tokens that audio of so many seconds may have; a caller's wish can only lower it."""
    cap = TOKENS_OF_SLACK + round(TOKENS_PER_S * seconds)
    return cap if wish is None else max(1, min(cap, wish))


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to continue: greedily, until a stop token or the cap."""

    max_tokens: int
    stop_ids: tuple[int, ...]
    logprobs: bool = False


@dataclass(frozen=True, slots=True)
class Generated:
    """New tokens, the stop token left out; logprobs: natural logarithms, one per token, if asked for."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    finish: Finish

    @classmethod
    def cut(cls, ids: Sequence[int], logprobs: Sequence[float] | None, sampling: Sampling) -> Self:
        """Make one of raw tokens: up to the first stop token, or all of them, which is too long."""
        end = next((place for place, token in enumerate(ids) if token in sampling.stop_ids), None)
        kept = tuple(ids[:end])
        scores = tuple(logprobs[: len(kept)]) if logprobs is not None else None
        return cls(kept, scores, "length" if end is None else "stop")


def check_rows(rows: Tensor, width: int, room: int) -> None:
    """Raise EngineError unless `rows` is a prompt that is safe to submit: finite floats (0 < n < room, width)."""
    if rows.ndim != 2 or not rows.is_floating_point():
        raise EngineError(
            f"a prompt must be a table of floats, not {rows.dtype} of shape {tuple(rows.shape)}"
        )
    if rows.shape[1] != width:
        raise EngineError(f"the prompt is {rows.shape[1]} wide, the language model {width}")
    if not 0 < len(rows) < room:
        raise UnsupportedError(
            f"the prompt takes {len(rows)} of {room} tokens; use less audio, fewer hotwords"
        )
    if not rows.isfinite().all():
        raise EngineError("the prompt holds values that are not numbers")


class LanguageModel(Protocol):
    """Continues prompts that are given as rows of its embedding space."""

    @property
    def healthy(self) -> bool:
        """Whether it can answer."""

    async def start(self) -> None:
        """Load it. Raises EngineError or ConfigurationError if that cannot be."""

    async def generate(
        self, rows: Tensor, sampling: Sampling, *, request_id: str, priority: int = 0,
        on_ids: Callable[[Sequence[int]], None] | None = None,
    ) -> Generated:  # fmt: skip
        """Continue (n, width) rows; cancelling aborts. Raises EngineError; UnsupportedError if n is unfit."""

    async def aclose(self) -> None:
        """End it; what runs ends with EngineError."""


class TextStream:
    """Tells growing text of growing tokens; a character is held back until all of its bytes are there.

    decode: token ids to text, "\\ufffd" for bytes that make no character.  prefix: comes before the text.
    """

    def __init__(
        self, decode: Callable[[Sequence[int]], str], prefix: str, tell: Callable[[str], None]
    ) -> None:
        self._decode, self._prefix, self._tell = decode, prefix, tell
        self._told = prefix

    def __call__(self, ids: Sequence[int]) -> None:
        """Take all ids so far."""
        text = self._prefix + self._decode(ids).rstrip("\ufffd")
        if len(text) > len(self._told):
            self._told = text
            self._tell(text)
