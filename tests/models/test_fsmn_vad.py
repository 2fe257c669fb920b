"""The network itself: framing, memory, edges; and the segments that its authors publish."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from realtime_server import weights
from realtime_server.core.endpointing import EndpointingOptions
from realtime_server.core.jobs import Probabilities, Samples
from realtime_server.core.segments import FRAME, SAMPLES_PER_MS
from realtime_server.errors import WeightsError
from realtime_server.models.fsmn_vad import FEATURES, MOST_AT_ONCE, Floats, FsmnVad, chunks_at_once
from realtime_server.models.onnx_session import open_session
from realtime_server.offline.audio_file import read_recording
from tests.audio import silence
from tests.models.vad import network, read, recordings, score, segments_ms, weights_folder

pytestmark = pytest.mark.embedded

# As the reference: no announced end, no cut below its own longest segment.
FIXED = EndpointingOptions(mode="fixed", silence_ms=800, eager_ms=None, max_segment_ms=60_000)
PUBLISHED = [  # of zh/funasr-vad_example.wav, at 800 ms
    [70, 2340], [2620, 6200], [6480, 23670], [23950, 26250], [26780, 28990], [29950, 31430], [31750, 37600],
    [38210, 46900], [47310, 49630], [49910, 56460], [56740, 59540], [59820, 70450],
]  # fmt: skip


def noise(samples: int) -> Samples:
    return np.random.default_rng(0).normal(0, 0.1, samples).astype(np.float32)


def test_the_first_chunk_has_two_probabilities_and_every_other_six() -> None:
    stream = network().stream()
    assert [len(stream.feed(noise(FRAME))) for _ in range(4)] == [2, 6, 6, 6]
    assert len(stream.flush(noise(0))) == 2


@pytest.mark.parametrize("samples", [0, 1, 399, 400, 559, 560, 720, 959, 960, 961, 1040, 1200, 5000])
def test_one_probability_per_whole_window(samples: int) -> None:
    windows = max(0, (samples - 400) // 160 + 1)  # of 25 ms, every 10 ms
    scores = network().stream().flush(noise(samples))
    assert scores.shape == (windows,)
    assert scores.dtype == np.float32
    assert np.all((scores >= 0) & (scores <= 1))


def test_flush_takes_any_rest() -> None:
    audio = noise(10_000)
    stream = network().stream()
    apart = np.concatenate([stream.feed(audio[: 9 * FRAME]), stream.flush(audio[9 * FRAME :])])
    assert np.array_equal(apart, network().stream().flush(audio))


@pytest.mark.parametrize("packet_ms", [10, 60, 100, 1000])
def test_packets_change_nothing(packet_ms: int) -> None:
    audio = np.concatenate([silence(0.3), noise(30_123), silence(1.0)])
    assert np.array_equal(score(audio, packet_ms * SAMPLES_PER_MS), score(audio, len(audio)))


class Coarse(FsmnVad):
    """A network whose kernels round differently when they are given more at once."""

    def encode(self, spliced: Floats, caches: list[Floats]) -> tuple[Probabilities, list[Floats]]:
        return np.full(len(spliced), 1 / len(spliced), np.float32), caches


class Forgetful(FsmnVad):
    """A network whose caches depend on how much it is given at once, its answers do not."""

    def encode(self, spliced: Floats, caches: list[Floats]) -> tuple[Probabilities, list[Floats]]:
        seen = np.float32(len(spliced)) ** 2
        return np.zeros(len(spliced), np.float32), [cache + seen for cache in caches]


def test_chunks_go_together_only_if_that_changes_no_bit() -> None:
    assert network().at_once == chunks_at_once(network()) in (1, MOST_AT_ONCE)
    session, width = open_session(weights_folder() / "model.onnx"), np.zeros(FEATURES, np.float32)
    assert [chunks_at_once(kind(session, width, width)) for kind in (Coarse, Forgetful)] == [1, 1]


@pytest.mark.parametrize("together", [1, 2, 7, MOST_AT_ONCE, 50])
def test_a_reading_has_the_same_answer_however_many_chunks_go_together(together: int) -> None:
    recording = read_recording(weights.find("recordings") / "two_cities.wav")
    whole = len(recording) // FRAME * FRAME
    audio = recording.read(0, whole)
    stream, scores = network().stream(), []
    for at in range(0, whole, together * FRAME):
        scores.append(stream.feed(audio[at : at + together * FRAME]))
    assert np.array_equal(np.concatenate(scores), network().stream().feed(audio))


def test_streams_do_not_disturb_each_other() -> None:
    audio = noise(5 * FRAME)
    alone = network().stream().feed(audio)
    one, other = network().stream(), network().stream()
    mixed = []
    for at in range(0, len(audio), FRAME):
        mixed.append(one.feed(audio[at : at + FRAME]))
        other.feed(-0.5 * audio[at : at + FRAME])
    assert np.array_equal(np.concatenate(mixed), alone)


def test_earlier_answers_stay_as_they_were() -> None:
    stream, kept = network().stream(), []
    for _ in range(50):
        scores = stream.feed(noise(FRAME))
        kept.append((scores, scores.copy()))
    assert all(np.array_equal(scores, copy) for scores, copy in kept)


def test_only_whole_frames_are_fed() -> None:
    with pytest.raises(ValueError, match="961 samples"):
        network().stream().feed(noise(961))


def test_a_flushed_stream_is_over() -> None:
    stream = network().stream()
    stream.flush(noise(100))
    with pytest.raises(RuntimeError, match="start another"):
        stream.feed(noise(FRAME))


@pytest.mark.parametrize("missing", ["model.onnx", "am.mvn"])
def test_missing_weights_are_named(tmp_path: Path, missing: str) -> None:
    for name in {"model.onnx", "am.mvn"} - {missing}:
        (tmp_path / name).write_bytes((weights_folder() / name).read_bytes())
    with pytest.raises(WeightsError, match=missing):
        FsmnVad.load(tmp_path)


@pytest.mark.parametrize(
    ("damaged", "text", "complaint"),
    [
        ("model.onnx", "no network", "cannot load"),
        ("am.mvn", "<Nnet> </Nnet>", "no normalisation"),
        ("am.mvn", "<LearnRateCoef> 0 [ a b ]\n<LearnRateCoef> 0 [ 1 ]", "no normalisation"),
        ("am.mvn", "<LearnRateCoef> 0 [ 1 2 ]\n<LearnRateCoef> 0 [ 1 ]", "vectors of 2 and 1 values"),
    ],
)
def test_damaged_weights_are_named(tmp_path: Path, damaged: str, text: str, complaint: str) -> None:
    for name in ("model.onnx", "am.mvn"):
        (tmp_path / name).write_bytes((weights_folder() / name).read_bytes())
    (tmp_path / damaged).write_text(text)
    with pytest.raises(WeightsError, match=complaint):
        FsmnVad.load(tmp_path)


def test_memory_is_flat() -> None:
    stream, minute = network().stream(), silence(60.0)
    stream.feed(minute)
    before = _resident_kib()
    for _ in range(9):
        stream.feed(minute)
    assert _resident_kib() - before < 2000  # every frame kept would be 17 MB


def _resident_kib() -> int:
    status = Path("/proc/self/status")
    if not status.is_file():
        pytest.skip("needs /proc")
    return int(next(line for line in status.read_text().splitlines() if line.startswith("VmRSS")).split()[1])


# --- segments ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def example(shared_data: Path) -> Samples:
    return read(shared_data / "zh/funasr-vad_example.wav")


@pytest.mark.parametrize("packet_ms", [10, 60, 100, 1000, None])
def test_the_published_segments(example: Samples, packet_ms: int | None) -> None:
    packet = packet_ms * SAMPLES_PER_MS if packet_ms else len(example)
    assert segments_ms(FIXED, score(example, packet), len(example)) == PUBLISHED


def test_the_segments_of_every_recording_are_those_of_the_reference(shared_data: Path) -> None:
    different = {}
    for name, reference in recordings(shared_data):
        audio = read(shared_data / name)
        ours = segments_ms(FIXED, score(audio), len(audio))
        if ours != reference:
            different[name] = ours
    assert different == {}


def test_a_short_sentence_with_a_pause_is_one_segment(shared_data: Path) -> None:
    audio = read(shared_data / "zh/funasr-llamacpp-sample.wav")
    assert segments_ms(EndpointingOptions(), score(audio), len(audio)) == [[770, 5980]]


@pytest.mark.parametrize("options", [FIXED, EndpointingOptions()])
def test_leading_silence_changes_nothing(example: Samples, options: EndpointingOptions) -> None:
    def after(lead_s: int) -> list[list[int]]:
        audio = np.concatenate([silence(lead_s), example[: 30 * 16_000]])
        found = segments_ms(options, score(audio), len(audio))
        return [[start - lead_s * 1000, end - lead_s * 1000] for start, end in found]

    assert after(8) == after(40) == after(600)


def test_loading_it_leaves_nothing_in_the_users_home(tmp_path: Path) -> None:
    code = "import realtime_server.models.fsmn_vad, os; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("ORT_DISABLE_TELEMETRY", None)
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout == "1\n"
    assert list(tmp_path.rglob("*")) == []
