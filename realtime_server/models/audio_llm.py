"""What the models that are split in two share: an audio encoder here, a language model that runs elsewhere.

    heard = model.encode([waveform, ...])                          # -> list[Encoded], one per waveform
    rows = model.prompt_rows(options, heard[0], prefix_text="")    # (n, llm_dim): the whole prompt, embedded
    ... the language model continues `rows` with text ...

A model's own modules, its prompt and its word times are in fun_asr_nano.py and glm_asr.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from realtime_server.core.jobs import DecodingOptions, Samples
from realtime_server.core.segments import Word
from realtime_server.models.prompt import Prompt, TextTokenizer

CACHED_TEXTS = 256  # prompt texts whose token ids are kept: sessions share few, hotword lists are long


class Heard(NamedTuple):
    """What `forward` makes of a batch; rows are zero where there is padding."""

    hidden: Tensor  # (batch, frames, encoder width), the encoder's output
    frames: Tensor  # (batch,) int64, how many of them are a waveform's own
    rows: Tensor  # (batch, audio rows, llm_dim), what the language model gets
    row_counts: Tensor  # (batch,) int64


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """One waveform after the encoder; owns its memory, on the model's device.

    rows: (audio rows, llm_dim).  hidden: (frames, encoder width), what word times are computed from; None where they
    were not asked for or the model has no CTC branch.  samples: length of the waveform.
    """

    rows: Tensor
    hidden: Tensor | None
    samples: int


class Embeddings(nn.Module):
    """The part of a language model that prompts need, under the names it has in the whole."""

    def __init__(self, vocabulary: int, width: int) -> None:
        """Build with fresh weights."""
        super().__init__()
        self.model = nn.ModuleDict({"embed_tokens": nn.Embedding(vocabulary, width)})


class AudioLlm(nn.Module):
    """Base of the split models; a subclass adds its encoder, then the language model (or its `Embeddings`)."""

    llm_name: ClassVar[str] = "llm"  # attribute that holds the language model
    context: int | None = None  # samples that every waveform is padded to with silence; None: no fixed number

    def __init__(self, tokenizer: TextTokenizer) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self._ids = lru_cache(maxsize=CACHED_TEXTS)(tokenizer.encode)

    def forward(self, waveforms: Tensor, lengths: Tensor) -> Heard:
        """Encode a padded batch; the subclass's.

        waveforms: (batch, samples) float32 in -1..1, 16 kHz.  lengths: (batch,) int64, samples of each row.
        """
        raise NotImplementedError

    def prompt(self, options: DecodingOptions, prefix_text: str) -> Prompt:
        """The text around the audio rows; the subclass's."""
        raise NotImplementedError

    @property
    def has_ctc(self) -> bool:
        """Whether words can have times."""
        return False

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights, and of the rows that come out."""
        return next(self.parameters()).dtype

    def encode(
        self, waveforms: Sequence[Samples], *, words: bool = True, pad_to: int | None = None
    ) -> list[Encoded]:
        """Encode waveforms (float32, 16 kHz, -1..1) as one batch, padded to the longest or to `pad_to` samples.

        words: keep what `align` needs.  Where the model has a `context`, everything is padded to it.
        """
        if not waveforms:
            return []
        width = max(pad_to or 0, self.context or 0, *(len(waveform) for waveform in waveforms))
        batch = np.zeros((len(waveforms), width), np.float32)
        for row, waveform in zip(batch, waveforms, strict=True):
            row[: len(waveform)] = waveform
        lengths = torch.tensor([len(waveform) for waveform in waveforms])
        with torch.inference_mode():
            heard = self(torch.from_numpy(batch).to(self.device), lengths.to(self.device))
        return self.split(heard, lengths.tolist(), words=words)

    def split(self, heard: Heard, samples: Sequence[int], *, words: bool = True) -> list[Encoded]:
        """Cut what `forward` returned into one Encoded per waveform, each with a copy of its part."""
        frames, counts = torch.stack([heard.frames, heard.row_counts]).tolist()
        keep = words and self.has_ctc
        with torch.inference_mode():
            return [
                Encoded(
                    rows=heard.rows[i, : counts[i]].clone(),
                    hidden=heard.hidden[i, : frames[i]].clone() if keep else None,
                    samples=length,
                )
                for i, length in enumerate(samples)
            ]

    def prompt_rows(self, options: DecodingOptions, encoded: Encoded, prefix_text: str = "") -> Tensor:
        """The prompt as the language model reads it: (text + audio + text rows, llm_dim), in the model's dtype.

        prefix_text: a beginning of the answer, which the language model is to continue; the generated text follows it.
        Raises UnsupportedError for an option that this model has no prompt for.
        """
        prompt = self.prompt(options, prefix_text)
        with torch.inference_mode():
            before, after = (
                self.embed(self._ids(prompt.before)),
                self.embed(self.tokenizer.encode(prompt.after)),
            )
            return torch.cat([before, encoded.rows.to(before.dtype), after])

    def embed(self, ids: Sequence[int]) -> Tensor:
        """Rows of the language model's embedding table: (len(ids), llm_dim)."""
        table = self.get_submodule(f"{self.llm_name}.model.embed_tokens")
        rows: Tensor = table(torch.tensor(ids, device=self.device))
        return rows

    def align_all(self, pairs: Sequence[tuple[Encoded, str]]) -> list[tuple[Word, ...] | None]:
        """When each word of each text was said, ms from its waveform's start; None where it cannot be had."""
        return [None] * len(pairs)
