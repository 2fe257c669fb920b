"""The CTC branch's tokens: byte pair encoding from a vocabulary file of tiktoken's form.

A line of the file is a token in base64 and its rank, which is also its id. A text is split into pieces (words with
the space before them, numbers, runs of other signs, white space, the endings of English contractions), and within a
piece the pair of neighbours that makes the token of lowest rank is joined, again and again.

Source: Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units" (2016); the way to split is that
of GPT-2. Special tokens lie beyond the file's ranks and are never made from text.
"""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from realtime_server.errors import WeightsError

NOTHING = "="  # the empty token, which the published file ends with: padding and nothing else
_ENDING = re.compile(r"'(?:s|t|re|ve|m|ll|d)")
# Over one letter per character: L letter, N number, O other, a space, s other white space.
_PIECE = re.compile(r" ?L+| ?N+| ?O+|[ s]+(?![^ s])|[ s]+")
_SEPARATORS = "\x1c\x1d\x1e\x1f"  # white space for Python, not for Unicode


class Piece(NamedTuple):
    """Bytes of a text and the token they are; None where the vocabulary has none for them."""

    raw: bytes
    id: int | None


class CtcTokenizer:
    """Text to tokens and back."""

    def __init__(self, ranks: dict[bytes, int]) -> None:
        """Take tokens by their bytes."""
        self._ranks = ranks
        self._bytes = {rank: token for token, rank in ranks.items()}
        self.size = max(self._bytes) + 1  # one more than the highest id

    @classmethod
    def read(cls, path: Path) -> CtcTokenizer:
        """Read a vocabulary file; raise WeightsError if it is missing or no such file."""
        ranks: dict[bytes, int] = {}
        try:
            for line in path.read_text("utf-8", errors="replace").splitlines():
                if line.strip():
                    token, rank = line.split()
                    ranks[base64.b64decode(token, validate=token != NOTHING)] = int(rank)
        except OSError as error:
            raise WeightsError(f"cannot read the CTC vocabulary {path}: {error.strerror}") from error
        except ValueError as error:  # binascii.Error is one
            raise WeightsError(f"{path} is no CTC vocabulary: {line[:40]!r} is no token and rank") from error
        if not ranks or min(ranks.values()) < 0 or len(set(ranks.values())) != len(ranks):
            raise WeightsError(f"{path} is no CTC vocabulary: it is empty, or two tokens share a rank")
        return cls(ranks)

    def encode(self, text: str) -> list[int]:
        """Ids of the text's tokens; bytes that the vocabulary lacks are left out."""
        return [piece.id for piece in self.pieces(text) if piece.id is not None]

    def pieces(self, text: str) -> list[Piece]:
        """Tokens of the text, in order; their bytes together are its UTF-8."""
        return [
            Piece(raw, self._ranks.get(raw))
            for part in _split(text)
            for raw in self._merge(part.encode("utf-8", errors="replace"))
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids; those that are no token of the file are left out."""
        return b"".join(self._bytes.get(id, b"") for id in ids).decode("utf-8", errors="replace")

    def _merge(self, raw: bytes) -> list[bytes]:
        if raw in self._ranks:
            return [raw]
        never = self.size
        parts = [raw[at : at + 1] for at in range(len(raw))]
        joined = [self._ranks.get(raw[at : at + 2], never) for at in range(len(raw) - 1)]
        while joined and (lowest := min(joined)) < never:
            at = joined.index(lowest)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
            del joined[at]
            for i in range(max(0, at - 1), min(at + 1, len(joined))):
                joined[i] = self._ranks.get(parts[i] + parts[i + 1], never)
        return parts


def _split(text: str) -> Iterator[str]:
    kinds = "".join(map(_kind, text))
    at = 0
    while at < len(text):
        found = _ENDING.match(text, at) or _PIECE.match(kinds, at)
        assert found, "every character has a kind, and every kind matches"
        yield text[at : found.end()]
        at = found.end()


def _kind(sign: str) -> str:
    if sign.isspace() and sign not in _SEPARATORS:
        return " " if sign == " " else "s"
    category = unicodedata.category(sign)[0]
    return category if category in "LN" else "O"
