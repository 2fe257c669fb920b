"""Real speech, streamed at the pace of speech through the real server by the real client."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import pytest
from whisper_normalizer.basic import BasicTextNormalizer
from whisper_normalizer.english import EnglishTextNormalizer

from benchmarks.recordings import Recording, fetched, shared
from realtime_server import weights
from realtime_server.core.jobs import DecodeJob, DecodingOptions, Priority, Samples
from realtime_server.core.postprocess import clean
from realtime_server.core.segments import SAMPLE_RATE, SAMPLES_PER_MS
from realtime_server.demo import load_client
from realtime_server.engines.embedded import EmbeddedEngine
from tests.conftest import SHARED
from tests.live_server import LiveServer

pytestmark = [pytest.mark.embedded, pytest.mark.slow]

AT_ONCE = 4  # streams: enough to be done soon, few enough for two cores
DIGITS = str.maketrans("0123456789", "零一二三四五六七八九")


@dataclass(frozen=True, slots=True)
class Corpus:
    """Recordings that are streamed in one language and judged together."""

    language: str
    recordings: Sequence[Recording]


def corpora() -> dict[str, Corpus]:
    """Everything to stream, by name; the shared ones only where they exist."""
    found = {
        # Said without pauses, the numbers are written as one number or as ten: no word error rate for that.
        "fetched English": Corpus("auto", [r for r in fetched("en") if r.path.name != "counting.wav"]),
        "fetched Mandarin": Corpus("zh", fetched("zh")),
    }
    if (SHARED / "MANIFEST.tsv").is_file():
        found["shared English"] = Corpus("auto", shared(SHARED, "en/jfk", "en/realtimestt", "en/librispeech"))
        # The lecture has no transcript, only segments.
        found["shared Mandarin"] = Corpus(
            "zh", shared(SHARED, "zh/", leave_out=("zh/funasr-vad_example.wav",))
        )
    return found


Results = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def results() -> Results:
    """The final result of every recording, streamed a few at a time, longest first."""
    parts = corpora()
    # On a busy machine texts may come late, which would turn the next recording away; that is not what is tested here.
    flags = ("--engine", "embedded", "--max-late-seconds", "0")
    with LiveServer(*flags) as server, ThreadPoolExecutor(AT_ONCE) as pool:
        todo = [(r.path, corpus.language) for corpus in parts.values() for r in corpus.recordings]
        todo.sort(key=lambda item: item[0].stat().st_size, reverse=True)
        finals = dict(pool.map(lambda item: (item[0], stream(server, *item)), todo))
    return {name: [finals[r.path] for r in corpus.recordings] for name, corpus in parts.items()}


def stream(server: LiveServer, path: Path, language: str) -> dict[str, Any]:
    """Stream a recording at pace 1.0 with the client; return its final result."""
    messages = server.stream(path, "--language", language)
    (final,) = [message for message in messages if message.get("is_final")]
    assert not [message for message in messages if message.get("event") == "error"]
    return dict(final)


def text_of(result: dict[str, Any], joint: str = " ") -> str:
    return joint.join(sentence["text"] for sentence in result["sentences"])


def check_english(recordings: Sequence[Recording], results: Sequence[dict[str, Any]]) -> None:
    normal = EnglishTextNormalizer()
    said = [normal(recording.text) for recording in recordings]
    heard = [normal(text_of(result)) for result in results]
    rate = jiwer.wer(said, heard)
    print(f"word error rate {100 * rate:.1f} % over {sum(len(text.split()) for text in said)} words")
    assert rate <= 0.05, list(zip(said, heard, strict=True))


def check_mandarin(recordings: Sequence[Recording], results: Sequence[dict[str, Any]]) -> None:
    normal = BasicTextNormalizer()

    def bare(text: str) -> str:
        return normal(text.translate(DIGITS)).replace(" ", "")

    said = [bare(recording.text) for recording in recordings]
    heard = [bare(text_of(result, "")) for result in results]
    rate = jiwer.cer(said, heard)
    print(f"character error rate {100 * rate:.1f} % over {sum(map(len, said))} characters")
    assert rate <= 0.40, list(zip(said, heard, strict=True))


def audio_of(path: Path) -> Samples:
    """The samples as the client sends them."""
    client = load_client()
    pcm = b"".join(client.cut_frames(client.decode(path)))
    return np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32768)


async def check_offline(
    recordings: Sequence[Recording], results: Sequence[dict[str, Any]], language: str | None
) -> None:
    """Decode the locked segments again, alone and at leisure: every word must be the same."""
    engine = EmbeddedEngine(weights.find("whisper-base"), workers=1)
    try:
        for recording, result in zip(recordings, results, strict=True):
            audio = audio_of(recording.path)
            for sentence in result["sentences"]:
                start, end = sentence["start"] * SAMPLES_PER_MS, sentence["end"] * SAMPLES_PER_MS
                decoded = await engine.transcribe(DecodeJob(
                    id=0, session="", epoch=1, channel=0, kind="final", priority=Priority.FILE, segment=0,
                    start=start, end=end, audio=audio[start:end], prefix_text="",
                    options=DecodingOptions(language=language),
                ))  # fmt: skip
                seconds = (end - start) / SAMPLE_RATE
                assert clean(decoded.text, seconds=seconds, finish=decoded.finish).text == sentence["text"]
    finally:
        await engine.aclose()


NAMES = ["fetched English", "fetched Mandarin", "shared English", "shared Mandarin"]


@pytest.mark.parametrize("name", NAMES)
async def test_streamed_text_is_right_and_equals_the_offline_text(name: str, results: Results) -> None:
    if name not in results:
        pytest.skip("the shared recordings are not on this machine (set REALTIME_SERVER_TEST_DATA)")
    corpus = corpora()[name]
    check = check_english if corpus.language == "auto" else check_mandarin
    check(corpus.recordings, results[name])
    language = None if corpus.language == "auto" else corpus.language
    await check_offline(corpus.recordings, results[name], language)
