"""The front end against kaldi-native-fbank, its edges, and its independence of the rest of a batch."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the Fun-ASR-Nano engine is not installed")

from realtime_server.core.jobs import Samples  # noqa: E402
from realtime_server.models.frontend import Frontend, FrontendConfig  # noqa: E402
from tests.models import nano  # noqa: E402

pytestmark = pytest.mark.torch

CONFIG = FrontendConfig(rate=16_000, mels=80, window_ms=25, shift_ms=10, stack=7, skip=6)
LENGTHS = [1, 399, 400, 559, 560, 1_359, 1_360, 1_840, 4_800, 16_000, 33_333]


@pytest.fixture(scope="module")
def frontend() -> Frontend:
    return Frontend(CONFIG)


def kaldi(samples: Samples) -> Samples:
    """Log mel energies by kaldi-native-fbank: (windows, 80)."""
    knf = pytest.importorskip(
        "kaldi_native_fbank", reason="compares with kaldi-native-fbank, which is not installed"
    )
    options = knf.FbankOptions()
    options.frame_opts.samp_freq = CONFIG.rate
    options.frame_opts.window_type = "hamming"
    options.frame_opts.dither = 0.0
    options.mel_opts.num_bins = CONFIG.mels
    options.energy_floor = 0.0
    fbank = knf.OnlineFbank(options)
    fbank.accept_waveform(CONFIG.rate, samples * 32_768)
    return np.stack([fbank.get_frame(i).copy() for i in range(fbank.num_frames_ready)])


def run(frontend: Frontend, *waveforms: Samples, width: int = 0) -> list[torch.Tensor]:
    """Features of waveforms as one batch."""
    width = max(width, *map(len, waveforms))
    batch = torch.full((len(waveforms), width), 9.0)  # what lies beyond a row's end must not matter
    for row, waveform in zip(batch, waveforms, strict=True):
        row[: len(waveform)] = torch.from_numpy(waveform)
    features, frames = frontend(batch, torch.tensor(list(map(len, waveforms))))
    assert all(not row[count:].any() for row, count in zip(features, frames.tolist(), strict=True))
    return [row[:count] for row, count in zip(features, frames.tolist(), strict=True)]


@pytest.mark.parametrize("samples", [400, 559, 560, 16_000, 40_001])
def test_energies_are_kaldis(frontend: Frontend, samples: int) -> None:
    waveform = nano.noise(samples / 16_000)
    ours = frontend.fbank(torch.from_numpy(waveform)[None], torch.tensor([samples]))[0].numpy()
    theirs = kaldi(waveform)
    assert ours.shape == theirs.shape
    difference = np.abs(ours - theirs)
    assert np.quantile(difference, 0.999) < 1e-4
    assert difference.max() < 1e-3  # where noise leaves a narrow filter next to nothing


def test_silence_is_the_floor(frontend: Frontend) -> None:
    (features,) = run(frontend, np.zeros(16_000, np.float32))
    assert torch.allclose(features, torch.full_like(features, np.log(np.finfo(np.float32).eps)))


@pytest.mark.parametrize("samples", LENGTHS)
def test_frames(frontend: Frontend, samples: int) -> None:
    windows = max(1, (samples - 400) // 160 + 1)
    (features,) = run(frontend, nano.noise(1.0 * samples / 16_000))
    assert features.shape == (-(-windows // 6), 560)
    assert features.dtype == torch.float32


@pytest.mark.parametrize("windows", [1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 30])
def test_stacking_repeats_the_edges(frontend: Frontend, windows: int) -> None:
    mel = torch.arange(windows, dtype=torch.float32)[None, :, None].expand(1, windows, 80)
    stacked = frontend.stack(mel, torch.tensor([windows]))[0].reshape(-1, 7, 80)[..., 0]
    padded = [0, 0, 0, *range(windows), *[windows - 1] * 9]
    assert stacked.tolist() == [padded[at : at + 7] for at in range(0, windows, 6)]


def test_a_row_does_not_depend_on_its_batch(frontend: Frontend) -> None:
    waveforms = [nano.noise(samples / 16_000, i) for i, samples in enumerate(LENGTHS)]
    for row, waveform in zip(run(frontend, *waveforms, width=50_000), waveforms, strict=True):
        assert torch.allclose(row, run(frontend, waveform)[0], atol=1e-5)


def test_it_has_nothing_in_the_checkpoint_and_stays_exact(frontend: Frontend) -> None:
    assert not frontend.state_dict()
    waveform = nano.noise(1.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(run(frontend, waveform)[0], run(Frontend(CONFIG), waveform)[0])
    assert run(frontend, waveform)[0].dtype == torch.float32


def test_it_is_the_same_whatever_torchs_defaults_are(frontend: Frontend) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            other = Frontend(frontend.config)
    finally:
        torch.set_default_dtype(before)
    assert torch.equal(other.hamming, frontend.hamming)
    assert torch.equal(other.filters, frontend.filters)
