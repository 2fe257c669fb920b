"""FSMN-VAD: a probability of speech per 10 ms, on onnxruntime.

One chunk (60 ms) goes through four steps, and each keeps what it needs of earlier chunks:

    samples (960,) -> fbank (6, 80) -> spliced (6, 400) -> normalised -> encoder -> silence (6,)

A probability looks at its own fbank frame, two before it and two after it, so the first chunk yields two
probabilities (four frames fit into it, two are look-ahead) and the last two come out of `flush`. At the edges
the first and the last fbank frame are repeated.

Several chunks may go through the network at once: reading its weights is most of a chunk's cost. The answer must not
depend on how many there were, so that is done only where `chunks_at_once` has seen that it does not.
"""

from __future__ import annotations

import re
from pathlib import Path

import kaldi_native_fbank as knf
import numpy as np
from numpy.typing import NDArray

from realtime_server.core.jobs import Probabilities, Samples
from realtime_server.core.segments import FRAME, SAMPLE_RATE
from realtime_server.errors import WeightsError
from realtime_server.models.fbank import MEL_BINS, fbank_options
from realtime_server.models.onnx_session import InferenceSession, open_session

Floats = NDArray[np.float32]

CONTEXT = 2  # fbank frames on either side of the judged one
SPLICE = 2 * CONTEXT + 1
FEATURES = SPLICE * MEL_BINS  # width of the encoder's input
SILENCE = 0  # index of silence among the encoder's 248 outputs
CACHES = 4  # one per FSMN layer
CACHE_SHAPE = (1, 128, 19, 1)
FULL_SCALE = np.float32(1 << 15)  # the features were trained on 16-bit sample values
CHUNK = 6  # probabilities of a chunk after the first
MOST_AT_ONCE = 10  # chunks; beyond these little is gained


class FsmnVad:
    """The network and its normalisation, shared by any number of streams (also across threads)."""

    at_once = 1  # chunks of one stream that the network is given together

    def __init__(self, session: InferenceSession, shift: Floats, scale: Floats) -> None:
        """Wrap a loaded network; shift, scale: (400,) each, applied as (x + shift) * scale."""
        self._session = session
        self._shift = shift
        self._scale = scale
        self._inputs = [f"in_cache{layer}" for layer in range(CACHES)]
        self._outputs = ["logits", *(f"out_cache{layer}" for layer in range(CACHES))]

    @classmethod
    def load(cls, folder: Path) -> FsmnVad:
        """Load `model.onnx` and `am.mvn` from `folder`; raise WeightsError if one is missing or damaged."""
        for name in ("model.onnx", "am.mvn"):
            if not (folder / name).is_file():
                raise WeightsError(f"FSMN-VAD needs {name}, and {folder} has none")
        shift, scale = _read_normalisation(folder / "am.mvn")
        session = open_session(folder / "model.onnx")  # a second thread would give 1.45x for twice the CPU
        model = cls(session, shift, scale)
        model.at_once = chunks_at_once(model)
        return model

    def stream(self) -> FsmnStream:
        """Start a stream."""
        return FsmnStream(self)

    def encode(self, spliced: Floats, caches: list[Floats]) -> tuple[Probabilities, list[Floats]]:
        """Run the network on (n, 400) features; return n probabilities of speech and the next caches."""
        features = ((spliced + self._shift) * self._scale)[np.newaxis]
        feed = {"speech": features, **dict(zip(self._inputs, caches, strict=True))}
        posteriors, *caches = self._session.run(self._outputs, feed)
        return 1.0 - posteriors[0, :, SILENCE], caches


class FsmnStream:
    """One channel's audio on its way through the network. Not for concurrent use."""

    def __init__(self, model: FsmnVad) -> None:
        """Start before the first sample; FsmnVad.stream() does this."""
        self._model = model
        self._fbank = knf.OnlineFbank(fbank_options("hamming"))
        self._taken = 0  # fbank frames taken out so far
        self._frames: Floats = np.empty((0, MEL_BINS), np.float32)  # the context of frames not judged yet
        self._caches: list[Floats] = [np.zeros(CACHE_SHAPE, np.float32) for _ in range(CACHES)]
        self._flushed = False

    def feed(self, samples: Samples) -> Probabilities:
        """Score any number of whole 60 ms frames of float32 samples in -1..1.

        The answer does not depend on how many come at once, to the last bit.
        """
        if len(samples) % FRAME:
            raise ValueError(f"{len(samples)} samples are no multiple of {FRAME}; only flush takes a rest")
        if self._flushed:
            raise RuntimeError("the stream was flushed; start another")
        scores, at = [np.empty(0, np.float32)], 0
        while at < len(samples):
            # The first chunk of a stream has fewer frames than the others, and goes alone.
            end = at + FRAME * (self._model.at_once if len(self._frames) else 1)
            scores.append(self._judge(self._new_frames(samples[at:end])))
            at = end
        return np.concatenate(scores)

    def flush(self, rest: Samples) -> Probabilities:
        """Score the rest of the audio, of any length, and the look-ahead; the stream is then over.

        Audio shorter than one 25 ms window gives nothing.
        """
        whole = len(rest) - len(rest) % FRAME
        head = self.feed(rest[:whole])
        self._flushed = True
        frames = self._new_frames(rest[whole:])
        newest = frames if len(frames) else self._frames
        if not len(newest):
            return head
        repeated = np.repeat(newest[-1:], CONTEXT, axis=0)
        return np.concatenate([head, self._judge(np.concatenate([frames, repeated]))])

    def _new_frames(self, samples: Samples) -> Floats:
        """Fbank frames (n, 80) completed by `samples`, taken out of the fbank computer."""
        if len(samples):
            # As a memoryview: the library reads numbers one by one, which takes longest from an array.
            self._fbank.accept_waveform(SAMPLE_RATE, (samples * FULL_SCALE).data)
        count = self._fbank.num_frames_ready - self._taken
        frames = np.empty((count, MEL_BINS), np.float32)
        for i in range(count):
            frames[i] = self._fbank.get_frame(self._taken + i)  # a copy: get_frame returns a view into it
        self._fbank.pop(count)  # or it keeps every frame for ever, 115 MB an hour
        self._taken += count
        return frames

    def _judge(self, frames: Floats) -> Probabilities:
        """Probabilities of the frames whose context `frames` completes."""
        if not len(self._frames) and len(frames):
            self._frames = np.repeat(frames[:1], CONTEXT, axis=0)
        self._frames = np.concatenate([self._frames, frames])
        count = len(self._frames) - 2 * CONTEXT
        step = self._frames.strides[0]
        spliced = np.lib.stride_tricks.as_strided(self._frames, (count, FEATURES), (step, step // MEL_BINS))
        scores, self._caches = self._model.encode(spliced, self._caches)
        self._frames = self._frames[count:]
        return scores


def chunks_at_once(model: FsmnVad) -> int:
    """How many chunks may go through the network together: MOST_AT_ONCE if that changes no bit, else 1.

    Whether it does depends on the kernels that onnxruntime has for this processor; so it is tried.
    """
    rng = np.random.default_rng(0)
    features = rng.normal(10.0, 4.0, (MOST_AT_ONCE * CHUNK, FEATURES)).astype(np.float32)
    start = [rng.normal(0.0, 1.0, CACHE_SHAPE).astype(np.float32) for _ in range(CACHES)]
    apart, caches = np.empty(0, np.float32), start
    for chunks in range(1, MOST_AT_ONCE + 1):
        scores, caches = model.encode(features[(chunks - 1) * CHUNK : chunks * CHUNK], caches)
        apart = np.concatenate([apart, scores])
        together, caches_after = model.encode(features[: chunks * CHUNK], start)
        if not all(map(np.array_equal, [apart, *caches], [together, *caches_after])):
            return 1
    return MOST_AT_ONCE


def _read_normalisation(path: Path) -> tuple[Floats, Floats]:
    """The two vectors of a Kaldi nnet file: what to add, and what to multiply by, (400,) each."""
    rows = re.findall(r"<LearnRateCoef>\s*\S+\s*\[([^\]]*)\]", path.read_text("utf-8", errors="replace"))
    try:
        shift, scale = (np.array(row.split(), np.float32) for row in rows)
    except ValueError as error:
        raise WeightsError(f"{path} is no normalisation file: {error}") from error
    if shift.shape != (FEATURES,) or scale.shape != (FEATURES,):
        raise WeightsError(f"{path} has vectors of {shift.size} and {scale.size} values, not {FEATURES}")
    return shift, scale
