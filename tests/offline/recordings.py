"""Recordings of many kinds, made in memory, and files that were made to break decoders."""

from __future__ import annotations

import io
import random
import struct
from fractions import Fraction
from functools import cache

import av
import numpy as np
import numpy.typing as npt
import soundfile

RATE = 16_000  # of those that do not say otherwise

# name: format and subtype of libsndfile
PLAIN = {
    "wav": ("WAV", "PCM_16"),
    "wav-8-bit": ("WAV", "PCM_U8"),
    "wav-24-bit": ("WAV", "PCM_24"),
    "wav-32-bit": ("WAV", "PCM_32"),
    "wav-float32": ("WAV", "FLOAT"),
    "wav-float64": ("WAV", "DOUBLE"),
    "wav-mu-law": ("WAV", "ULAW"),
    "wav-a-law": ("WAV", "ALAW"),
    "wav-adpcm": ("WAV", "IMA_ADPCM"),
    "wavex": ("WAVEX", "PCM_16"),
    "rf64": ("RF64", "PCM_16"),
    "w64": ("W64", "PCM_16"),
    "aiff": ("AIFF", "PCM_16"),
    "au": ("AU", "PCM_16"),
    "au-mu-law": ("AU", "ULAW"),
    "sph": ("NIST", "PCM_16"),
    "caf": ("CAF", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "flac-24-bit": ("FLAC", "PCM_24"),
    "ogg-vorbis": ("OGG", "VORBIS"),
    "ogg-opus": ("OGG", "OPUS"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
}
LOSSLESS = (
    "wav wav-24-bit wav-32-bit wav-float32 wav-float64 wavex rf64 w64 aiff au sph caf flac flac-24-bit m4a-alac "
    "mov-pcm"
).split()
# name: muxer, its options, encoder, rate
CONTAINERS: dict[str, tuple[str, dict[str, str], str, int]] = {
    "m4a": ("ipod", {}, "aac", 44_100),
    "m4a-alac": ("ipod", {}, "alac", RATE),
    "mp4-fragmented": ("mp4", {"movflags": "frag_keyframe+empty_moov"}, "aac", 48_000),
    "mov-pcm": ("mov", {}, "pcm_s16le", RATE),
    "matroska": ("matroska", {}, "aac", RATE),
    "webm": ("webm", {}, "libopus", 48_000),
    "webm-live": ("webm", {"live": "1"}, "libopus", 48_000),
    "aac": ("adts", {}, "aac", RATE),
    "mp3-48-khz": ("mp3", {}, "libmp3lame", 48_000),
    "mpegts": ("mpegts", {}, "aac", RATE),
    "avi": ("avi", {}, "libmp3lame", RATE),
    "flv": ("flv", {}, "aac", 44_100),
    "amr": ("amr", {}, "libopencore_amrnb", 8_000),
    "wavpack": ("wv", {}, "wavpack", RATE),
    "tta": ("tta", {}, "tta", RATE),
    "ac3": ("ac3", {}, "ac3", 48_000),
}
KINDS = (*PLAIN, *CONTAINERS)


def wave(seconds: float, rate: int = RATE) -> npt.NDArray[np.int16]:
    """A tone of 400 Hz, int16 (n,), of a third of full scale."""
    return np.rint(11_000 * np.sin(2 * np.pi * 400 / rate * np.arange(round(seconds * rate)))).astype(
        np.int16
    )


def plain(
    samples: npt.NDArray[np.generic], rate: int, form: str = "WAV", subtype: str | None = None
) -> bytes:
    """What libsndfile writes."""
    file = io.BytesIO()
    with soundfile.SoundFile(
        file, "w", rate, samples.shape[1] if samples.ndim > 1 else 1, subtype, format=form
    ) as sound:
        for start in range(0, len(samples), 8192):  # its Vorbis encoder overflows the stack on long blocks
            sound.write(samples[start : start + 8192])
    return file.getvalue()


def container(
    muxer: str,
    options: dict[str, str],
    encoder: str,
    rate: int,
    seconds: float,
    *,
    video: bool = False,
    layout: str = "mono",
) -> bytes:
    """What FFmpeg writes, with a picture track on request; all channels are alike."""
    file = io.BytesIO()
    with av.open(file, "w", format=muxer, options=options) as output:
        stream = output.add_stream(encoder, rate=rate, layout=layout)
        if video:
            picture = output.add_stream("mpeg4", rate=25, width=64, height=64, pix_fmt="yuv420p")
            for number in range(round(25 * seconds)):
                image = av.VideoFrame(64, 64, "yuv420p")
                image.pts, image.time_base = number, Fraction(1, 25)
                output.mux(picture.encode(image))
            output.mux(picture.encode(None))
        samples = np.repeat(wave(seconds, rate), stream.layout.nb_channels)[None]
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout=layout)
        frame.rate, frame.pts, frame.time_base = rate, 0, Fraction(1, rate)
        output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return file.getvalue()


def recording(kind: str, seconds: float = 1.0) -> bytes:
    """One of KINDS."""
    if kind in PLAIN:
        samples = wave(seconds)
        return plain(samples / 32768 if "float" in kind else samples, RATE, *PLAIN[kind])
    muxer, options, encoder, rate = CONTAINERS[kind]
    return container(muxer, options, encoder, rate, seconds)


@cache
def silent_flac(hours: float, rate: int) -> bytes:
    """Silence, which FLAC writes in a fourteen thousandth of its size. Hours take seconds: not to make on import."""
    return plain(np.zeros(round(hours * 3600 * rate), np.int16), rate, "FLAC", "PCM_16")


def mutated(data: bytes, seed: int) -> bytes:
    """The bytes with a few of them changed, lost or added, most often near the beginning."""
    dice, changed = random.Random(seed), bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 4, 16))):
        size = len(changed) if dice.random() < 0.4 else min(300, len(changed))
        at, kind = dice.randrange(size), dice.random()
        if kind < 0.15:
            del changed[at + 1 :]
        elif kind < 0.5:
            changed[at] = dice.randrange(256)
        elif kind < 0.7:
            changed[at : at + 4] = dice.choice(
                (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\0\0\0\x80")
            )
        elif kind < 0.85 and len(changed) > 100:
            del changed[at : at + dice.randrange(1, 40)]
        else:
            changed[at:at] = dice.randbytes(dice.randrange(1, 40))
    return bytes(changed)


def mp4_index_bomb(entries: int) -> bytes:
    """An MP4 of 4.5 kB with a table of so many samples of one byte, for which FFmpeg makes 36 bytes each."""

    def box(kind: bytes, *parts: bytes) -> bytes:
        body = b"".join(parts)
        return struct.pack(">I4s", 8 + len(body), kind) + body

    def full(kind: bytes, *parts: bytes) -> bytes:
        return box(kind, bytes(4), *parts)

    aac = bytes((3, 25, 0, 1, 0, 4, 17, 0x40, 0x15, *bytes(11), 5, 2, 0x12, 0x10, 6, 1, 2))
    sound = box(b"mp4a", bytes(6), struct.pack(">H8xHHII", 1, 2, 16, 0, 44_100 << 16), full(b"esds", aac))
    tables = box(
        b"stbl", full(b"stsd", struct.pack(">I", 1), sound), full(b"stts", struct.pack(">III", 1, entries, 1024)),
        full(b"stsc", struct.pack(">IIII", 1, 1, entries, 1)), full(b"stsz", struct.pack(">II", 1, entries)),
        full(b"stco", struct.pack(">II", 1, 2000)),
    )  # fmt: skip
    media = box(
        b"mdia", full(b"mdhd", struct.pack(">IIIII", 0, 0, 44_100, 100_000, 0)),
        full(b"hdlr", bytes(4), b"soun", bytes(12), b"x\0"),
        box(b"minf", full(b"smhd", bytes(4)), box(b"dinf", full(b"dref", struct.pack(">I", 1), full(b"url "))), tables),
    )  # fmt: skip
    track = box(b"trak", full(b"tkhd", struct.pack(">IIIII", 0, 0, 1, 0, 1000), bytes(60)), media)
    header = full(b"mvhd", struct.pack(">IIII", 0, 0, 1000, 1000), bytes(80))
    return box(b"ftyp", b"isom\0\0\0\0isom") + box(b"moov", header, track) + box(b"mdat", bytes(4000))
