"""The samples of a recording as they are in it, block by block, whatever its format.

libsndfile reads plain samples; FFmpeg's libraries, through PyAV, read everything else. Of FFmpeg's
several hundred formats only those of DEMUXERS and CODECS are let in: playlists and the like, which name further
files or addresses to read, are not among them, and pictures are not decoded.
"""

from __future__ import annotations

import errno
import importlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from realtime_server.core.jobs import Samples
from realtime_server.errors import AudioError, ConfigurationError
from realtime_server.resources import pip_install

Block = tuple[int, Samples]  # rate in Hz, and samples, float32 (n, channels)
Failures = tuple[type[Exception], ...]

BLOCK = 1 << 16  # samples of all channels together that are decoded at a time
# Of channels that a frame keeps apart: PyAV 18 reads beyond the end of its list of more.
MOST_PLANES = 7
PLAIN = (b"RIFF", b"RIFX", b"RF64", b"riff", b"FORM", b".snd", b"NIST", b"caff")  # first 4 bytes
DEMUXERS = (
    "aac,ac3,aiff,amr,ape,asf,au,avi,caf,dts,eac3,flac,flv,matroska,mov,mp3,mpeg,mpegts,nistsphere,ogg,tta,voc,"
    "w64,wav,wv"
)
CODECS = frozenset(
    "aac aac_latm ac3 adpcm_ima_qt adpcm_ima_wav adpcm_ms alac amrnb amrwb ape dca eac3 flac g726 gsm gsm_ms mp1 "
    "mp1float mp2 mp2float mp3 mp3float opus speex truehd tta vorbis wavpack wmalossless wmapro wmav1 wmav2 wmavoice "
    "pcm_alaw pcm_f32be pcm_f32le pcm_f64be pcm_f64le pcm_mulaw pcm_s16be pcm_s16le pcm_s24be pcm_s24le pcm_s32be "
    "pcm_s32le pcm_s8 pcm_u8".split()
)
AV_OPTIONS = {
    "format_whitelist": DEMUXERS,
    "codec_whitelist": ",".join(sorted(CODECS)),
    "protocol_whitelist": "none",
}
CONTAINERS = (b"fLaC", b"OggS", b"ID3", b"\x1a\x45\xdf\xa3")  # MP4 has `ftyp` as its second 4 bytes
INCOMPLETE = "the recording is damaged or incomplete: what its beginning or end should say is missing"
UNKNOWN = (
    "this is not a recording of a kind that is read here; raw samples without a header need one, for instance: "
    "ffmpeg -f s16le -ar 16000 -ac 1 -i talk.pcm talk.wav"
)


class FileDecoder:
    """Decodes one file, once; the libraries are imported when a file needs them."""

    def __init__(self, file: BinaryIO) -> None:
        """Read a file with a descriptor, from its beginning."""
        self._file = file
        self._decoded_s = 0.0
        self._start_s: float | None = None  # time stamp of the first frame
        self.promised_s = 0.0  # by header or time stamps, if they say anything; known after the last block
        self.damaged_s: float | None = None  # where something could first not be decoded
        self.damage = ""  # what the library said about it

    def blocks(self) -> Iterator[Block]:
        """Yield what can be decoded; rate and channels may change on the way.

        Raises AudioError: undecodable, or empty without a sound track; ConfigurationError without the libraries.
        """
        head = self._file.read(8)
        if not head:
            raise AudioError("the recording is an empty file", "empty")
        known = head.startswith(CONTAINERS) or head[4:] == b"ftyp"
        refusal = AudioError(INCOMPLETE if known else UNKNOWN, "undecodable")
        if head[:4] in PLAIN:
            soundfile = need("soundfile")
            try:
                with soundfile.SoundFile(self._rewound().fileno(), closefd=False) as sound:
                    yield from self._decode_plain(sound, soundfile.SoundFileError)
                if self._decoded_s or self.damage:
                    return
                refusal = AudioError("there is no sound in the recording", "empty")
            except soundfile.SoundFileError as error:
                reason = str(error).rpartition(": ")[2]
                refusal = AudioError(f"the recording cannot be decoded: {reason}", "undecodable")
        yield from self._decode_container(refusal)  # also WAV that a broken recorder left with a length of 0

    def _rewound(self) -> BinaryIO:
        self._file.seek(0)
        return self._file

    def _decode_plain(self, sound: Any, failure: type[Exception]) -> Iterator[Block]:
        frames = max(1, BLOCK // sound.channels)
        try:
            while len(block := sound.read(frames, dtype="float32", always_2d=True)):
                self._decoded_s += len(block) / sound.samplerate
                yield sound.samplerate, block
        except failure as error:
            self._note_damage(error)
        self.promised_s = sound.frames / sound.samplerate

    def _decode_container(self, refusal: AudioError) -> Iterator[Block]:
        av = need("av")
        failures = (av.FFmpegError, ArithmeticError, LookupError, MemoryError, OSError, ValueError)
        try:
            container = av.open(_AvFile(self._rewound()), options=AV_OPTIONS, metadata_errors="replace")
        except failures:
            raise refusal from None
        with container:
            stream = container.streams.best("audio")
            if stream is None:
                raise AudioError("there is no sound track in the recording", "empty")
            name = stream.codec_context.name if stream.codec_context else "that its header names"
            if name not in CODECS:
                raise AudioError(f"recordings with the codec {name} are not read here", "undecodable")
            yield from _gathered(self._frames(container, stream, failures))
            if stream.duration and container.format.name.startswith(("flac", "mov")):  # elsewhere an estimate
                self.promised_s = max(self.promised_s, float(stream.duration * stream.time_base))

    def _frames(self, container: Any, stream: Any, failures: Failures) -> Iterator[Block]:
        packets = container.demux(stream)
        while True:
            try:
                packet = next(packets, None)
            except failures as error:
                self._note_damage(error)
                return
            if packet is None:
                return
            try:
                blocks = [self._block(frame) for frame in packet.decode()]
            except failures as error:
                self._note_damage(error)  # the next packet may be whole again
            else:
                yield from blocks

    def _block(self, frame: Any) -> Block:
        block, seconds = _floats(frame), frame.samples / frame.sample_rate
        if frame.time is not None:
            self._start_s = frame.time if self._start_s is None else self._start_s
            self.promised_s = max(self.promised_s, frame.time - self._start_s + seconds)
        self._decoded_s += seconds
        return frame.sample_rate, block

    def _note_damage(self, error: Exception) -> None:
        if self.damaged_s is None:
            self.damaged_s = self._decoded_s
            self.damage = getattr(error, "strerror", None) or str(error)


class _AvFile:
    """A file that answers a wrong seek as FFmpeg expects it.

    An exception would reach PyAV's caller even where FFmpeg can do without what it was looking for.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.read, self.tell, self._seek = file.read, file.tell, file.seek

    def seek(self, offset: int, whence: int = 0) -> int:
        """Return the new position, or a negative error number."""
        try:
            return self._seek(offset, whence)
        except (OSError, ValueError):
            return -errno.EINVAL


def _floats(frame: Any) -> Samples:
    """Return an FFmpeg frame's samples, float32 (n, channels), whole numbers scaled to -1..1."""
    if frame.format.is_planar and frame.layout.nb_channels > MOST_PLANES:
        frame = need("av").AudioResampler(format=frame.format.packed).resample(frame)[0]
    samples: npt.NDArray[Any] = frame.to_ndarray()
    samples = samples.T if frame.format.is_planar else samples.reshape(frame.samples, -1)
    floats = samples.astype(np.float32)
    if samples.dtype == np.uint8:
        floats -= 128
        floats /= 128
    elif samples.dtype.kind == "i":
        floats /= 2.0 ** (8 * samples.dtype.itemsize - 1)
    return floats


def _gathered(blocks: Iterable[Block]) -> Iterator[Block]:
    """Join small blocks of equal rate and channels to about BLOCK: what follows costs less per sample."""
    held: list[Samples] = []
    size, kind = 0, (0, 0)
    for rate, samples in blocks:
        if held and (size >= BLOCK or kind != (rate, samples.shape[1])):
            yield kind[0], np.concatenate(held)
            held, size = [], 0
        held.append(samples)
        size, kind = size + samples.size, (rate, samples.shape[1])
    if held:
        yield kind[0], np.concatenate(held)


def need(module: str) -> Any:
    """Import a package of the extra `files`; raises ConfigurationError that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            f"the package '{error.name}' is not installed; run: {pip_install('files')}"
        ) from None
