"""Recordings of every kind come out as mono 16 kHz; lies, bombs and rubbish as one clean error."""

from __future__ import annotations

import contextlib
import io
import struct
import time
import tracemalloc
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import soxr
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.errors import AudioError, ConfigurationError
from realtime_server.offline.audio_file import AudioFile, read_recording, resample
from realtime_server.offline.audio_source import AudioLimits, open_source
from realtime_server.offline.decoders import need
from tests.conftest import SHARED
from tests.offline.recordings import (
    KINDS,
    LOSSLESS,
    RATE,
    container,
    mp4_index_bomb,
    plain,
    recording,
    silent_flac,
    wave,
)


def read(data: bytes, channel: int | None = None) -> npt.NDArray[np.float32]:
    found = read_recording(data, channel=channel)
    return found.read(0, len(found))


def refusal(data: bytes, limits: AudioLimits | None = None, channel: int | None = None) -> AudioError:
    with pytest.raises(AudioError) as caught:
        read_recording(data, limits, channel=channel)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_read(kind: str) -> None:
    found = read_recording(recording(kind))
    samples = found.read(0, len(found))
    assert found.notes == []
    assert found.seconds == pytest.approx(1, abs=0.1)  # some encoders pad
    middle = samples[2000:14_000]  # whole periods
    spectrum = np.abs(np.fft.rfft(middle))
    assert np.argmax(spectrum) == 400 * len(middle) // RATE
    assert np.sqrt(np.mean(middle**2)) == pytest.approx(0.237, abs=0.05)


@pytest.mark.parametrize("kind", LOSSLESS)
def test_lossless_kinds_are_read_to_the_bit(kind: str) -> None:
    assert np.array_equal(read(recording(kind)) * 32768, wave(1.0))


@pytest.mark.parametrize("rate", [4000, 8000, 11_025, 22_050, 44_100, 48_000, 96_000, 192_000])
@pytest.mark.parametrize("channels", [1, 2, 7])
def test_every_rate_and_number_of_channels(rate: int, channels: int) -> None:
    samples = read(plain(np.repeat(wave(1.0, rate)[:, None], channels, axis=1), rate))
    assert abs(len(samples) - RATE) <= 1
    assert np.abs(samples[800:-800] * 32768 - wave(1.0)[800 : len(samples) - 800]).max() < 60


@pytest.mark.parametrize("rate", [1, 3999, 192_001, 1_092_676])
def test_other_rates_are_refused(rate: int) -> None:
    error = refusal(plain(wave(0.1), rate))
    assert (error.code, f"{rate} Hz" in str(error)) == ("undecodable", True)


def test_video_gives_its_sound() -> None:
    assert len(read(container("mp4", {}, "aac", 48_000, 2.0, video=True))) == pytest.approx(
        2 * RATE, abs=1600
    )


@pytest.mark.parametrize("layout", ["stereo", "5.1", "6.1", "7.1"])
def test_sound_for_cinemas(layout: str) -> None:
    samples = read(container("ipod", {}, "aac", 48_000, 1.0, layout=layout))
    assert np.sqrt(np.mean(samples[2000:14_000] ** 2)) == pytest.approx(0.237, abs=0.05)


def test_blocks_join_without_seams() -> None:
    samples = np.random.default_rng(1).normal(0, 0.1, (5 * 44_100, 2))
    whole = soxr.resample(samples.mean(axis=1), 44_100, RATE)
    pieces = read(plain(samples, 44_100, "WAV", "FLOAT"))
    assert abs(len(pieces) - len(whole)) <= 1
    assert np.abs(pieces[: len(whole)] - whole[: len(pieces)]).max() < 1e-4


def test_the_rate_may_change_on_the_way() -> None:
    blocks = [(8000, 8000), (8000, 8000), (16_000, 8000), (48_000, 48_000)]
    pieces = list(resample((rate, np.zeros(size, np.float32)) for rate, size in blocks))
    assert abs(sum(map(len, pieces)) - 3.5 * RATE) <= 2


def test_channels_are_averaged_or_one_is_taken() -> None:
    data = plain(np.stack([wave(1.0), -wave(1.0), wave(1.0)], axis=1), RATE)
    assert np.abs(read(data) * 32768 - wave(1.0) / 3).max() <= 0.5
    assert np.array_equal(read(data, channel=1) * 32768, -wave(1.0))


@pytest.mark.parametrize("channel", [-1, 1])
def test_a_channel_that_is_not_there(channel: int) -> None:
    assert refusal(recording("wav"), channel=channel).code == "no_channel"


def test_values_that_are_no_numbers_are_silence_and_large_ones_clipped() -> None:
    samples = np.full(RATE, 0.25)
    samples[:5] = [np.nan, np.inf, -np.inf, 1e300, -1.5]
    found = read_recording(plain(samples, RATE, "WAV", "DOUBLE"))
    assert found.read(0, 6).tolist() == [0, 32767 / 32768, -1, 32767 / 32768, -1, 0.25]
    assert found.notes == ["1 values are not numbers and were taken for silence"]


def test_they_do_not_spoil_what_follows_in_the_resampler() -> None:
    samples = np.full(44_100, 0.25)
    samples[1000:1010] = np.nan
    assert np.abs(read(plain(samples, 44_100, "WAV", "FLOAT"))[2000:-200] - 0.25).max() < 1e-3


def test_much_clipping_is_told() -> None:
    found = read_recording(plain(wave(1.0).astype(np.float32), RATE, "WAV", "FLOAT"))
    assert found.notes == ["95% of the values lie beyond the range of -1 to 1 and were clipped"]


def with_length(data: bytes, length: int) -> bytes:
    """A WAV whose data chunk claims another length."""
    at = data.index(b"data") + 4
    return data[:at] + struct.pack("<I", length) + data[at + 4 :]


@pytest.mark.parametrize("length", [0, 222 * 32_000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF])
def test_a_wav_header_that_lies_about_length(length: int) -> None:
    assert np.array_equal(read(with_length(recording("wav"), length)) * 32768, wave(1.0))


@pytest.mark.parametrize("total", [0, 100, 10**9, 2**36 - 1])
def test_a_flac_header_that_lies_about_length(total: int) -> None:
    data = bytearray(recording("flac"))
    data[21] = data[21] & 0xF0 | total >> 32
    data[22:26] = struct.pack(">I", total & 0xFFFFFFFF)
    assert np.array_equal(read(bytes(data)) * 32768, wave(1.0))


@pytest.mark.parametrize("kind", ["wav", "au", "flac", "mp3", "webm", "aac", "mpegts"])
def test_what_is_left_of_a_truncated_recording_is_read(kind: str) -> None:
    data = recording(kind, 20.0)
    assert 8 < read_recording(data[: len(data) // 2]).seconds < 12


def test_it_is_told_what_is_missing() -> None:
    data = recording("flac", 20.0)
    damage, length = read_recording(data[: len(data) // 2]).notes
    assert damage.startswith("the recording is damaged after ")
    assert length.startswith("the recording should last 20.0 s, but only ")


def test_a_gap_in_the_time_stamps_is_told() -> None:
    data = recording("webm", 20.0)
    third = len(data) // 3
    note = read_recording(data[:third] + data[2 * third :]).notes[-1]
    assert note.startswith("the recording should last 20.0 s, but only ")


@pytest.mark.parametrize("kind", ["m4a", "mov-pcm"])
def test_an_interrupted_upload_of_mp4_is_called_incomplete(kind: str) -> None:
    error = refusal(recording(kind)[:-1000])
    assert (error.code, "incomplete" in str(error)) == ("undecodable", True)


RUBBISH = {
    "random bytes": np.random.default_rng(0).bytes(100_000),
    "text": b"It was the best of times, it was the worst of times.\n" * 1000,
    "raw samples": wave(2.0).tobytes(),
    "a playlist": b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nhttp://127.0.0.1:9/a.wav\n#EXT-X-ENDLIST\n",
    "a list of files": b"ffconcat version 1.0\nfile /dev/zero\n",
    "subtitles": b"1\n00:00:00,000 --> 00:00:01,000\nIt was the best of times.\n",
    "one byte": b"R",
    "an image": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0:~\x9bU",
}


@pytest.mark.parametrize("name", RUBBISH)
def test_rubbish_is_refused_and_told_what_to_do(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    error = refusal(RUBBISH[name])
    assert (error.code, "ffmpeg -f s16le -ar 16000" in str(error)) == ("undecodable", True)
    assert capfd.readouterr() == ("", "")


NO_SOUND = {
    "no bytes": b"",
    "a wav header": recording("wav")[:44],
    "a wav header that says so": with_length(recording("wav")[:44], 0),
    "an au header": recording("au")[:24],
    "a flac header": plain(wave(0.0), RATE, "FLAC"),
}


@pytest.mark.parametrize("name", NO_SOUND)
def test_recordings_without_sound_are_called_empty(name: str) -> None:
    assert refusal(NO_SOUND[name]).code == "empty"


def test_a_video_without_a_sound_track_is_called_empty() -> None:
    import av

    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as output:
        picture = output.add_stream("mpeg4", rate=25, width=64, height=64, pix_fmt="yuv420p")
        output.mux(picture.encode(av.VideoFrame(64, 64, "yuv420p")))
        output.mux(picture.encode(None))
    error = refusal(file.getvalue())
    assert (error.code, str(error)) == ("empty", "there is no sound track in the recording")


def test_a_codec_that_is_not_let_in() -> None:
    data = container("flv", {}, "nellymoser", 16_000, 1.0)
    assert "nellymoser" in str(refusal(data))


def test_a_bomb_is_stopped_at_the_longest_duration() -> None:
    data = silent_flac(1.0, 4000)
    assert len(data) < 60_000
    error = refusal(data, AudioLimits(duration_s=60))
    assert (error.code, str(error)) == ("too_long", "the recording is longer than 60 s, the limit")


def test_a_bomb_is_stopped_at_the_number_of_samples() -> None:
    data = plain(np.zeros((100_000, 8), np.int16), 192_000, "FLAC")
    error = refusal(data, AudioLimits(decoded_samples=500_000))
    assert (error.code, "500000 samples" in str(error)) == ("too_long", True)


def test_the_limit_itself_is_within_the_limit() -> None:
    assert len(read_recording(recording("wav"), AudioLimits(duration_s=1.0, decoded_samples=RATE))) == RATE


def test_memory_is_that_of_the_16_bit_samples() -> None:
    data = silent_flac(0.5, RATE)
    read_recording(data)  # loads the libraries
    tracemalloc.start()
    try:
        found = read_recording(data)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * len(found) + (4 << 20)
    assert peak < 2 * len(found) + (8 << 20)


def test_blocks_are_decoded_as_they_are_asked_for() -> None:
    with open_source(silent_flac(1.0, RATE), AudioLimits()) as file:
        first = next(AudioFile(file, AudioLimits()).blocks())
    assert 0 < len(first) < 20 * RATE


def test_progress_counts_seconds_of_audio() -> None:
    seen: list[float] = []
    read_recording(recording("wav", 20.0), on_progress=seen.append)
    assert seen == sorted(seen)
    assert (len(seen) > 2, seen[-1]) == (True, 20.0)


def test_libraries_that_are_not_installed() -> None:
    with pytest.raises(ConfigurationError, match=r"realtime-server\[files\]"):
        need("no_such_library")


@given(
    st.binary(max_size=400),
    st.sampled_from([b"", b"RIFF\xff\0\0\0WAVEfmt ", b"fLaC", b"OggS\0", b"ID3\4", b"FORM\0\0\0\0AIFF"]),
)
def test_any_bytes_are_sound_or_an_audio_error(data: bytes, head: bytes) -> None:
    with contextlib.suppress(AudioError):
        assert len(read_recording(head + data)) > 0


# What is in the folder `odd` of the shared recordings and cannot be read. Everything else there can.
UNREADABLE = {
    "azure-good_morning.pcm": "undecodable",  # raw samples
    "azure-missing_wav_header.wav": "undecodable",  # raw samples again
    "funasr-tmp-46bytes.wav": "empty",
    "ps-awful.wav": "undecodable",  # claims 1092676 Hz
    "ps-bad.wav": "undecodable",  # a header that is cut off
    "ps-evil.wav": "undecodable",  # made to overrun a reader's buffers
    "ps-goforward.raw": "undecodable",
    "ps-null.wav": "empty",  # a header and no samples
    "ps-numbers.raw": "undecodable",
    "scipy-test-44100Hz-le-1ch-4bytes-early-eof-no-data.wav": "undecodable",
    "scipy-test-44100Hz-le-1ch-4bytes-incomplete-chunk.wav": "undecodable",
}


ODD = sorted((SHARED / "odd").glob("*")) or [
    pytest.param(None, marks=pytest.mark.skip("the shared recordings are not on this machine"))
]


@pytest.mark.parametrize("path", ODD, ids=lambda path: path.name if path else "none")
def test_odd_recordings_are_read_or_refused_at_once(path: Path) -> None:
    start_s = time.process_time()
    if path.name in UNREADABLE:
        assert refusal(path.read_bytes()).code == UNREADABLE[path.name]
    else:
        assert len(read_recording(path)) > 0
    assert time.process_time() - start_s < 2


def test_the_index_bomb_needs_the_decoder_process() -> None:
    """Here without danger, with a small one; test_audio_reader.py has the large one."""
    assert refusal(mp4_index_bomb(1000)).code == "undecodable"
