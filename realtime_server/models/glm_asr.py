"""GLM-ASR-Nano without its language model's layers: from waveforms to the rows that the language model reads.

    checkpoint = GlmCheckpoint.open(locate("zai-org/GLM-ASR-Nano-2512", hub="hf"))
    model = GlmAsr.load(checkpoint, device="cuda", dtype=torch.bfloat16)
    heard = model.encode([waveform, ...])                          # -> list[Encoded], one per waveform
    rows = model.prompt_rows(options, heard[0], prefix_text="")    # (n, llm_dim): the whole prompt, embedded

    waveforms (batch, 480000) -> log mel (batch, 128, 3000) -> two convolutions (batch, 1500, 1280)
      -> transformer with rotary positions -> 4 frames side by side (batch, 375, 5120) -> adaptor (batch, 375, llm_dim)

The sizes are those of the published model; all of them come from its config.json. The encoder always hears 30 s, audio
and then silence, as it was trained: it attends to the silence too, so that nothing may be left out of it. Which audio
shares a batch changes nothing. Only the rows that hear audio go into the prompt, `audio_rows`.

Everything is synchronous and blocks; nothing here knows asyncio. Calls may come from several threads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from realtime_server.core.jobs import DecodingOptions
from realtime_server.core.postprocess import neutralise
from realtime_server.core.segments import HOP, SAMPLE_RATE
from realtime_server.errors import ConfigurationError, UnsupportedError
from realtime_server.models.adaptor import Count
from realtime_server.models.audio_llm import AudioLlm, Embeddings, Heard
from realtime_server.models.glm_checkpoint import MERGED, GlmCheckpoint, GlmConfig, GlmEncoderConfig
from realtime_server.models.log_mel import FLOOR, N_FFT, RANGE, mel_filters, window
from realtime_server.models.prompt import Prompt, TextTokenizer

BEFORE = "<|user|>\n<|begin_of_audio|>"
AFTER = "<|end_of_audio|><|user|>\n{task}<|assistant|>\n"
TASK = "转录以下音频内容"
FLOAT16 = "float16 overflows in this model's encoder: use bfloat16, or float32 where there is none"
STRIDE = 2  # of the second convolution: 10 ms of the mel to 20 ms of the encoder
SHORTEST = (MERGED - 1) * STRIDE * HOP + 1  # samples that make the first row of audio: 60 ms and one


def audio_rows(samples: Count) -> Count:
    """Rows that the language model gets for so many samples: one per 80 ms, none below SHORTEST."""
    rows: Count = encoder_frames(samples) // MERGED
    return rows


def encoder_frames(samples: Count) -> Count:
    """Encoder frames that hear audio, of so many samples."""
    mel: Count = (samples + HOP - 1) // HOP
    return (mel + STRIDE - 1) // STRIDE


def build_prompt(options: DecodingOptions, prefix_text: str = "") -> Prompt:
    """Lay out the prompt; `prefix_text` is a beginning of the answer that is to be continued.

    Raises UnsupportedError for what the model was not trained to be told: hotwords, a language, translation.
    Source: funasr's glm_asr, `_build_prompt_embeds`.
    """
    told = {
        "hotwords": options.hotwords,
        "a language": options.language,
        "translation": options.task != "transcribe",
    }
    if refused := [what for what, asked in told.items() if asked]:
        raise UnsupportedError(f"GLM-ASR-Nano does not take {', '.join(refused)}")
    return Prompt(before=BEFORE, after=AFTER.format(task=TASK) + neutralise(prefix_text))


class LogMel(nn.Module):
    """Whisper's log-mel spectrogram, batched, on any device; has no trained weights. float32 throughout."""

    hann: Tensor
    filters: Tensor

    def __init__(self, mels: int) -> None:
        """Take the window and the filters of log_mel.py."""
        super().__init__()
        self.register_buffer("hann", torch.from_numpy(window()), persistent=False)
        self.register_buffer("filters", torch.from_numpy(mel_filters(mels)), persistent=False)

    def forward(self, waveforms: Tensor, lengths: Tensor) -> Tensor:
        """(batch, samples) float32 in -1..1 -> (batch, mels, samples / 160), 10 ms a frame.

        lengths: (batch,) int64, samples of each row; what lies beyond is taken for silence.
        """
        with torch.autocast(waveforms.device.type, enabled=False):
            inside = torch.arange(waveforms.shape[1], device=lengths.device) < lengths[:, None]
            samples = waveforms.float() * inside
            spectrum = torch.stft(samples, N_FFT, HOP, window=self.hann, return_complex=True)[..., :-1]
            mel = (self.filters @ spectrum.abs().square()).clamp(min=FLOOR).log10()
            loudest = mel.amax(dim=(1, 2), keepdim=True)
            return (torch.maximum(mel, loudest - RANGE) + 4.0) / 4.0


class GlmEncoder(nn.Module):
    """Whisper's encoder with rotary positions. Parameter names are those of the published checkpoint."""

    def __init__(self, config: GlmEncoderConfig) -> None:
        """Build with fresh weights."""
        super().__init__()
        self.config = config
        self.conv1 = nn.Conv1d(config.mels, config.width, 3, padding=1)
        self.conv2 = nn.Conv1d(config.width, config.width, 3, stride=STRIDE, padding=1)
        self.layers = nn.ModuleList(GlmLayer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, mel: Tensor) -> Tensor:
        """(batch, mels, frames) -> (batch, frames / 2, width), in the weights' dtype."""
        x = functional.gelu(self.conv1(mel.to(self.conv1.weight.dtype)))
        x = functional.gelu(self.conv2(x)).transpose(1, 2)
        turns = self.turns(x)
        for layer in self.layers:
            x = layer(x, turns)
        out: Tensor = self.norm(x)
        return out

    def turns(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the angles that each position turns a pair of values by: (time, rotary / 2) each."""
        time = torch.arange(x.shape[1], device=x.device, dtype=torch.float32)
        steps = torch.arange(0, self.config.rotary, 2, device=x.device, dtype=torch.float32)
        angles = time[:, None] * (1.0 / self.config.theta ** (steps / self.config.rotary))
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


class GlmLayer(nn.Module):
    """Self-attention and two linear maps, each behind a norm and around a shortcut."""

    def __init__(self, config: GlmEncoderConfig) -> None:
        """Build with fresh weights."""
        super().__init__()
        self.self_attn = GlmAttention(config)
        self.mlp = GlmFeedForward(config.width, config.inner)
        self.input_layernorm = nn.LayerNorm(config.width)
        self.post_attention_layernorm = nn.LayerNorm(config.width)

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        """(batch, time, width) -> the same."""
        x = x + self.self_attn(self.input_layernorm(x), turns)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class GlmAttention(nn.Module):
    """Multi-head attention to all of the context; the first values of each head are turned by position."""

    def __init__(self, config: GlmEncoderConfig) -> None:
        """Build with fresh weights."""
        super().__init__()
        self.heads = config.heads
        self.q_proj = nn.Linear(config.width, config.width)
        self.k_proj = nn.Linear(config.width, config.width, bias=False)
        self.v_proj = nn.Linear(config.width, config.width)
        self.o_proj = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        """(batch, time, width) -> the same."""
        q, k, v = (self.by_head(proj(x)) for proj in (self.q_proj, self.k_proj, self.v_proj))
        mixed = functional.scaled_dot_product_attention(turned(q, turns), turned(k, turns), v)
        out: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(x.shape))
        return out

    def by_head(self, x: Tensor) -> Tensor:
        """(batch, time, width) -> (batch, heads, time, values)."""
        batch, time, width = x.shape
        return x.reshape(batch, time, self.heads, width // self.heads).transpose(1, 2)


class GlmFeedForward(nn.Module):
    """Two linear maps with a GELU between them."""

    def __init__(self, width: int, inner: int) -> None:
        """Build with fresh weights."""
        super().__init__()
        self.fc1 = nn.Linear(width, inner)
        self.fc2 = nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) -> (..., width)."""
        out: Tensor = self.fc2(functional.gelu(self.fc1(x)))
        return out


class GlmAdaptor(nn.Module):
    """Four encoder frames side by side, then two linear maps with a GELU between them."""

    def __init__(self, input_width: int, width: int) -> None:
        """Build with fresh weights."""
        super().__init__()
        self.linear_1 = nn.Linear(MERGED * input_width, 2 * width)
        self.linear_2 = nn.Linear(2 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        """(batch, time, input width) -> (batch, time / 4, width), rounded down."""
        batch, time, width = hidden.shape
        rows = time // MERGED
        merged = hidden[:, : rows * MERGED].reshape(batch, rows, MERGED * width)
        out: Tensor = self.linear_2(functional.gelu(self.linear_1(merged)))
        return out


class GlmAsr(AudioLlm):
    """Front end, encoder, adaptor, and the language model's embeddings."""

    llm_name = "language_model"
    context: int

    def __init__(self, config: GlmConfig, language_model: nn.Module, tokenizer: TextTokenizer) -> None:
        """Build with fresh weights; `load` fills them. language_model: has `model.embed_tokens`."""
        super().__init__(tokenizer)
        self.config = config
        self.context = config.encoder.frames * STRIDE * HOP
        self.frontend = LogMel(config.encoder.mels)
        self.audio_tower = GlmEncoder(config.encoder)
        self.multi_modal_projector = GlmAdaptor(config.encoder.width, config.llm.width)
        self.language_model = language_model

    @classmethod
    def load(
        cls, checkpoint: GlmCheckpoint, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32
    ) -> GlmAsr:
        """Build from an official folder, in evaluation mode; its `language_model` holds the embeddings only.

        Raises WeightsError naming the tensors that are missing, unexpected or of another shape, ConfigurationError
        for float16.
        """
        if dtype == torch.float16:
            raise ConfigurationError(FLOAT16)
        config = checkpoint.config
        with torch.device("meta"):
            embeddings = Embeddings(config.llm.vocabulary, config.llm.width)
            model = cls(config, embeddings, checkpoint.text_tokenizer())
        model.load_state_dict(checkpoint.tensors_for(model.state_dict(), device, dtype), assign=True)
        model.frontend = LogMel(config.encoder.mels).to(device)
        model.requires_grad_(False).eval()
        return model

    @property
    def context_s(self) -> float:
        """Seconds of audio that the encoder takes."""
        return self.context / SAMPLE_RATE

    def forward(self, waveforms: Tensor, lengths: Tensor) -> Heard:
        """Encode a batch, each filled up with silence to the context.

        waveforms: (batch, samples) float32 in -1..1, 16 kHz, at most the context.  lengths: (batch,) int64, samples of
        each row. Raises ValueError for more samples.
        """
        missing = self.context - waveforms.shape[1]
        if missing < 0:
            raise ValueError(f"{waveforms.shape[1]} samples are more than the {self.context} of the context")
        hidden = self.audio_tower(self.frontend(functional.pad(waveforms, (0, missing)), lengths))
        rows, counts = self.multi_modal_projector(hidden), audio_rows(lengths)
        inside = torch.arange(rows.shape[1], device=rows.device) < counts[:, None]
        return Heard(hidden, encoder_frames(lengths), rows * inside[..., None], counts)

    def prompt(self, options: DecodingOptions, prefix_text: str) -> Prompt:
        """The text around the audio rows. Raises UnsupportedError for hotwords, a language and translation."""
        return build_prompt(options, prefix_text)


def turned(x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """Turn the first values of each head: pairs are half of those values apart. (batch, heads, time, values)."""
    cosines, sines = turns
    half = cosines.shape[-1]
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines, rest], dim=-1)
