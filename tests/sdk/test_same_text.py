"""The SDK, the command line and the Transcriber beneath them write the same text of the same recording."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from realtime_server import weights
from realtime_server.cli import main
from realtime_server.engines.loading import EngineOptions, load_scorer
from realtime_server.offline.audio_file import read_recording
from realtime_server.offline.transcriber import Transcriber
from realtime_server.sdk import AutoModelVLLM, FunASRNanoStreamingVLLM
from tests.conftest import SHARED

pytestmark = pytest.mark.embedded


@pytest.fixture(scope="module")
def model() -> Iterator[AutoModelVLLM]:
    with AutoModelVLLM(engine="embedded") as model:
        yield model


def recordings() -> list[Path]:
    clips = weights.find("clips")
    return [clips / "en" / "quick_brown_fox.wav", clips / "zh" / "nihao_shijie.wav"]


@pytest.fixture(params=["fetched English", "fetched Mandarin", "shared"])
def path(request: pytest.FixtureRequest) -> Path:
    if request.param != "shared":
        return recordings()[request.param == "fetched Mandarin"]
    if not (SHARED / "en" / "jfk.flac").is_file():
        pytest.skip("the shared recordings are not on this machine (set REALTIME_SERVER_TEST_DATA)")
    return SHARED / "en" / "jfk.flac"


async def test_all_write_the_same(
    path: Path, model: AutoModelVLLM, capsys: pytest.CaptureFixture[str]
) -> None:
    scorer = load_scorer(EngineOptions(), "fsmn")
    transcription = await Transcriber(model.engine, scorer).transcribe(read_recording(path))
    await scorer.aclose()
    (result,) = await model.agenerate(str(path))
    assert transcription.text
    assert result["text"] == transcription.text
    assert result["timestamps"]
    samples = read_recording(path)
    (from_samples,) = model.generate(samples.read(0, len(samples)))
    assert from_samples["text"] == transcription.text


def test_the_command_line_writes_the_same(
    path: Path, model: AutoModelVLLM, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (result,) = model.generate(path)
    assert main(["transcribe", str(path), "--format", "jsonl", "--quiet"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record == {key: value for key, value in result.items() if key != "timestamps"}
    assert main(["transcribe", str(path), "-o", str(tmp_path / "texts"), "--quiet"]) == 0
    text = (tmp_path / "texts" / f"{path.stem}.txt").read_text("utf-8")
    assert text == "".join(f"{sentence['text']}\n" for sentence in result["sentences"])


def test_a_stream_ends_with_the_same_sentences(path: Path, model: AutoModelVLLM) -> None:
    stream = FunASRNanoStreamingVLLM(engine=model)
    results = stream.generate(path)
    assert [result["text"].startswith(result["fixed_text"]) for result in results] == [True] * len(results)
    spoken = [sentence["text"] for sentence in results[-1]["sentences"]]
    assert spoken == [sentence["text"] for sentence in model.generate(path)[0]["sentences"]]
