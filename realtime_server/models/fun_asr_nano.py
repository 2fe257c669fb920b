"""Fun-ASR-Nano without its language model's layers: from waveforms to the rows that the language model reads.

    checkpoint = Checkpoint.open(locate("FunAudioLLM/Fun-ASR-Nano-2512", hub="ms"))
    model = FunAsrNano.load(checkpoint, device="cuda", dtype=torch.bfloat16)
    heard = model.encode([waveform, ...])                          # -> list[Encoded], one per waveform
    rows = model.prompt_rows(options, heard[0], prefix_text="")    # (n, llm_dim): the whole prompt, embedded
    ... the language model continues `rows` with text ...
    words = model.align(heard[0], text)                            # -> tuple[Word, ...] | None

Everything is synchronous and blocks; nothing here knows asyncio. Calls may come from several threads: they change no
state but a small cache of token ids. A row's result does not depend on what else is in its batch.

For training, `FunAsrNano(config, llm, tokenizer, ctc_tokenizer)` takes a whole language model (transformers'
Qwen3ForCausalLM, or anything with `model.embed_tokens`); then every parameter is trainable end to end and
`state_dict()` has the names of the official model.pt: audio_encoder.*, audio_adaptor.*, ctc_decoder.*, ctc.*, llm.*.
`forward` gives the audio rows and `ctc_log_probs` what a CTC loss needs, both with gradients, batched and padded.
`forward` is made of tensor operations only, of shapes that depend on the shapes of its arguments alone, so that it can
be compiled or captured in a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from realtime_server.core import alignment
from realtime_server.core.alignment import TokenSpan
from realtime_server.core.jobs import DecodingOptions
from realtime_server.core.segments import Word, to_ms
from realtime_server.errors import ConfigurationError
from realtime_server.models.adaptor import Count, TransformerAdaptor, audio_rows
from realtime_server.models.audio_llm import AudioLlm, Embeddings, Encoded, Heard
from realtime_server.models.checkpoint import FLOAT16, Checkpoint
from realtime_server.models.ctc import CtcHead, token_log_probs
from realtime_server.models.ctc_tokens import CtcTokenizer, Piece
from realtime_server.models.frontend import Frontend
from realtime_server.models.nano_config import NanoConfig
from realtime_server.models.prompt import Prompt, TextTokenizer, build_prompt
from realtime_server.models.sense_voice import SenseVoiceEncoder

__all__ = ["Embeddings", "Encoded", "FunAsrNano", "Heard"]


class FunAsrNano(AudioLlm):
    """Front end, encoder, adaptor, CTC branch, and the language model's embeddings."""

    def __init__(
        self, config: NanoConfig, llm: nn.Module, tokenizer: TextTokenizer, ctc_tokenizer: CtcTokenizer | None
    ) -> None:
        """Build with fresh weights; `load` fills them.

        llm: has the embeddings at `model.embed_tokens`.  ctc_tokenizer: None leaves the CTC branch out.
        """
        super().__init__(tokenizer)
        self.config = config
        self.frontend = Frontend(config.frontend)
        self.audio_encoder = SenseVoiceEncoder(config.encoder)
        self.audio_adaptor = TransformerAdaptor(config.adaptor)
        self.ctc_decoder: nn.Module | None = None
        self.ctc: nn.Module | None = None
        self.ctc_tokenizer = ctc_tokenizer if config.ctc else None
        if config.ctc and ctc_tokenizer:
            self.ctc_decoder = TransformerAdaptor(config.ctc.decoder)
            self.ctc = CtcHead(config.ctc)
        self.llm = llm

    @classmethod
    def load(
        cls, checkpoint: Checkpoint, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32
    ) -> FunAsrNano:
        """Build from an official folder, in evaluation mode; its `llm` holds the embeddings only.

        Raises WeightsError naming the tensors that are missing, unexpected or of another shape, ConfigurationError
        for float16. Without CTC weights the model has no word times; `has_ctc` says so.
        """
        if dtype == torch.float16:
            raise ConfigurationError(FLOAT16)
        config = checkpoint.config
        with torch.device("meta"):
            embeddings = Embeddings(config.llm.vocabulary, config.llm.width)
            model = cls(config, embeddings, checkpoint.text_tokenizer(), checkpoint.ctc_tokenizer())
        model.load_state_dict(checkpoint.tensors_for(model.state_dict(), device, dtype), assign=True)
        model.frontend = Frontend(config.frontend).to(device)
        model.requires_grad_(False).eval()
        return model

    @property
    def has_ctc(self) -> bool:
        """Whether words can have times."""
        return self.ctc is not None

    @property
    def translates(self) -> bool:
        """Whether it was trained to write English, whatever is spoken."""
        return self.config.prompt.translates

    def forward(self, waveforms: Tensor, lengths: Tensor) -> Heard:
        """Encode a padded batch.

        waveforms: (batch, samples) float32 in -1..1, 16 kHz.  lengths: (batch,) int64, samples of each row.
        """
        features, frames = self.frontend(waveforms, lengths)
        hidden = self.audio_encoder(features, frames)
        rows, counts = self.audio_adaptor(hidden, frames), self.audio_rows(frames)
        rows = rows[:, : self.audio_rows(rows.shape[1])]
        inside = torch.arange(rows.shape[1], device=rows.device) < counts[:, None]
        return Heard(hidden, frames, rows * inside[..., None], counts)

    def audio_rows(self, frames: Count) -> Count:
        """Rows that the language model gets for so many encoder frames."""
        return audio_rows(frames) if self.config.adaptor.low_frame_rate else frames

    def ctc_log_probs(self, hidden: Tensor, frames: Tensor) -> Tensor:
        """Log-probabilities of the CTC tokens, float32 (batch, frames, vocabulary), of the encoder's output.

        60 s of audio times 60,000 tokens are 240 MB: ask for few at a time.
        """
        if self.ctc_decoder is None or self.ctc is None:
            raise ValueError("this checkpoint has no CTC branch; see has_ctc")
        log_probs: Tensor = self.ctc(self.ctc_decoder(hidden, frames))
        return log_probs

    def prompt(self, options: DecodingOptions, prefix_text: str) -> Prompt:
        """The text around the audio rows. Raises UnsupportedError for translation unless it `translates`."""
        return build_prompt(options, prefix_text, self.config.prompt)

    def align(self, encoded: Encoded, text: str) -> tuple[Word, ...] | None:
        """When each word of `text` was said, ms from the waveform's start; None where it cannot be had.

        That is: no CTC branch, an `encode` without `words`, or text too long for the audio.
        """
        return self.align_all([(encoded, text)])[0]

    def align_all(self, pairs: Sequence[tuple[Encoded, str]]) -> list[tuple[Word, ...] | None]:
        """`align` each pair, as one batch."""
        decoder, head, tokenizer, config = self.ctc_decoder, self.ctc, self.ctc_tokenizer, self.config.ctc
        if decoder is None or head is None or tokenizer is None or config is None:
            return [None] * len(pairs)
        asked = [(encoded.hidden, text) for encoded, text in pairs if encoded.hidden is not None]
        pieces = [tokenizer.pieces(text) for _, text in asked]
        tokens = [[piece.id for piece in each if piece.id is not None] for each in pieces]
        kinds = [list(dict.fromkeys([config.blank, *own])) for own in tokens]  # each once, the blank first
        heard = token_log_probs(decoder, head, [hidden for hidden, _ in asked], kinds)
        places = [{token: place for place, token in enumerate(own)} for own in kinds]
        targets = [[place[token] for token in own] for place, own in zip(places, tokens, strict=True)]
        spans = alignment.align_all(list(zip(heard, targets, strict=True)), blank=0)
        timed = zip(pieces, spans, strict=True)
        return [
            None if encoded.hidden is None else _words(*next(timed), longest_ms=to_ms(encoded.samples))
            for encoded, _ in pairs
        ]


def _words(
    pieces: Sequence[Piece], spans: Sequence[TokenSpan] | None, longest_ms: int
) -> tuple[Word, ...] | None:
    """Words of a text's pieces. spans: of those that are tokens, in order; None where they did not fit."""
    if spans is None:
        return None
    timed = iter(spans)
    parts = [(piece.raw, next(timed) if piece.id is not None else None) for piece in pieces]
    return alignment.words(parts, longest_ms)
