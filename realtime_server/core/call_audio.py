"""Tracks of a call, in pieces with times, to one stream with a channel for each, on one clock.

A position of the stream goes out once every track has it. A hole in a track, or a track that is silent, holds the
stream back by `hold` at most: then it is silence, and what comes for it later is late and dropped. Each late piece
raises `hold`, so a track that is always behind the other loses its beginning and no more.
A time that is less than half a piece off the end of its track, and SNAP_MS at most, is taken for it: times are
rounded, samples are not.
Times that jump by more than MOST_GAP_MS, forwards or backwards, begin anew where the stream is.
"""

from __future__ import annotations

BYTES_PER_MS = 8  # 8 kHz, one byte a sample
SILENCE = b"\xff"  # mu-law's zero
HOLD_MS, MOST_HOLD_MS = 200, 2_000
MOST_GAP_MS = 30_000
SNAP_MS = 10
REMEMBERED = MOST_HOLD_MS * BYTES_PER_MS  # bytes that were sent, of which it is known whether they had come


class CallAudio:
    """Receives mu-law pieces of `channels` tracks in any order; what is ready is interleaved."""

    def __init__(self, channels: int) -> None:
        self._tracks = [_Track() for _ in range(channels)]
        self._sent = 0  # bytes of each track
        self._hold = HOLD_MS * BYTES_PER_MS
        self._shift = 0  # of the track whose times jumped last
        self._late = self._filled = 0

    @property
    def late_ms(self) -> int:
        """Audio that came too late and was dropped, of all tracks together."""
        return self._late // BYTES_PER_MS

    @property
    def filled_ms(self) -> int:
        """Silence that stands in for what did not come in time, of all tracks together."""
        return self._filled // BYTES_PER_MS

    @property
    def held_ms(self) -> int:
        """Audio that waits: at most MOST_HOLD_MS once `audio_to_send` was read."""
        return self._longest // BYTES_PER_MS

    def receive_piece(self, channel: int, timestamp_ms: int, audio: bytes) -> None:
        """Take a piece of one track; `audio_to_send` may then have more."""
        track = self._tracks[channel]
        start = self._place(track, timestamp_ms * BYTES_PER_MS, len(audio))
        late = self._sent - start
        if lost := track.count_missed(late, len(audio)):
            self._late += lost
            self._hold = max(self._hold, min(self._longest + late, REMEMBERED))
        track.write(max(0, -late), audio[max(0, late) :])

    def audio_to_send(self) -> bytes:
        """Return what is ready, one byte of each channel in turn; it is returned once."""
        return self._take(max(min(track.whole for track in self._tracks), self._longest - self._hold))

    def rest_to_send(self) -> bytes:
        """Return all that came, as if nothing more would; tracks that are shorter are silent at their end."""
        return self._take(self._longest)

    @property
    def _longest(self) -> int:
        return max(len(track.audio) for track in self._tracks)

    def _place(self, track: _Track, time: int, length: int) -> int:
        """Where in the stream a track's time is."""
        end = self._sent + len(track.audio)
        for shift in (track.shift, self._shift):
            off = time + shift - end
            if abs(off) <= MOST_GAP_MS * BYTES_PER_MS:
                track.shift = shift
                return end if abs(off) < min(length / 2, SNAP_MS * BYTES_PER_MS) else end + off
        track.shift = self._shift = end - time
        return end

    def _take(self, count: int) -> bytes:
        stream = bytearray(count * len(self._tracks))
        for channel, track in enumerate(self._tracks):
            audio, missing = track.take(count)
            stream[channel :: len(self._tracks)] = audio
            self._filled += missing
        self._sent += count
        return bytes(stream)


class _Track:
    """What came of one track and was not sent; holes are silence."""

    def __init__(self) -> None:
        self.audio = bytearray()
        self.shift = 0  # from its times to positions in the stream
        self._came = bytearray()  # 1 where a byte of `audio` came, 0 in holes
        self._past = bytearray()  # the same of what was sent

    @property
    def whole(self) -> int:
        """Bytes before the first hole."""
        hole = self._came.find(0)
        return len(self._came) if hole < 0 else hole

    def count_missed(self, back: int, length: int) -> int:
        """How many bytes of a piece that lies `back` before the first that is held were sent as holes."""
        begin = len(self._past) - back
        return self._past[max(0, begin) : max(0, begin + length)].count(0)

    def write(self, at: int, audio: bytes) -> None:
        """Put audio in its place."""
        end = at + len(audio)
        more = max(0, end - len(self.audio)) if audio else 0
        self.audio += SILENCE * more
        self._came += bytes(more)
        self.audio[at:end] = audio
        self._came[at:end] = b"\1" * len(audio)

    def take(self, count: int) -> tuple[bytes, int]:
        """Return and forget the first bytes, and how many of them are holes."""
        audio, came = self.audio[:count], self._came[:count]
        del self.audio[:count], self._came[:count]
        came += bytes(count - len(came))
        self._past += came
        if len(self._past) > 2 * REMEMBERED:
            del self._past[:-REMEMBERED]
        return bytes(audio.ljust(count, SILENCE)), came.count(0)
