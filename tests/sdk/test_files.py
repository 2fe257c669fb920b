"""Recordings through the SDK: keys, texts, errors, from programs with and without an event loop."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import realtime_server
from realtime_server.engines.fake import CAPABILITIES, FakeEngine, FakeScorer, Fault
from realtime_server.errors import AudioError, ConfigurationError, EngineError, UnsupportedError, WeightsError
from realtime_server.sdk import AutoModelVLLM, FunASRNanoStreamingVLLM, FunASRNanoVLLM
from tests.audio import speech_pattern, tone
from tests.offline.recordings import recording


@pytest.fixture(scope="module")
def model() -> Iterator[AutoModelVLLM]:
    with AutoModelVLLM(engine="fake") as model:
        yield model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "one.wav").write_bytes(recording("wav", 1.0))
    (tmp_path / "two.flac").write_bytes(recording("flac", 1.5))
    (tmp_path / "wav.scp").write_text("utt1 one.wav\nutt2 two.flac\n")
    (tmp_path / "x.jsonl").write_text('{"key": "b", "source": "two.flac", "target": "t"}\n')
    return tmp_path


def texts(results: list[dict[str, Any]]) -> dict[str, str]:
    return {result["key"]: result["text"] for result in results}


def test_the_names_of_the_guide_can_be_imported() -> None:
    assert realtime_server.AutoModelVLLM is AutoModelVLLM
    assert realtime_server.FunASRNanoVLLM is FunASRNanoVLLM
    assert realtime_server.FunASRNanoStreamingVLLM is FunASRNanoStreamingVLLM
    with pytest.raises(AttributeError, match="no attribute 'AutoModel'"):
        realtime_server.AutoModel  # noqa: B018


def test_recordings_of_every_kind(model: AutoModelVLLM, folder: Path) -> None:
    both = {"utt1": "one two", "utt2": "one two three"}
    assert texts(model.generate(str(folder / "wav.scp"))) == both
    assert texts(model.generate(inputs=folder / "x.jsonl")) == {"b": "one two three"}
    assert texts(model.generate(input=folder / "one.wav")) == {"one": "one two"}
    assert texts(model.generate(folder)) == {"one": "one two", "two": "one two three"}
    assert texts(model.generate([tone(0.5), recording("wav", 1.0)])) == {
        "sample_0": "one",
        "sample_1": "one two",
    }
    with (folder / "one.wav").open("rb") as file:
        assert texts(model.generate(file)) == {"sample_0": "one two"}
    assert model.generate([]) == []


def test_a_result_holds_times_and_sentences(model: AutoModelVLLM) -> None:
    (result,) = model.generate(speech_pattern([(1.0, 2.5), (1.0, 1.0)]))
    assert result["text"] == "one two eight nine"
    assert result["timestamps"][0] == {"token": "one", "start_time": 0.0, "end_time": 0.5}
    assert result["timestamps"][-1] == {"token": "nine", "start_time": 4.0, "end_time": 4.5}
    assert [(s["text"], s["flags"]) for s in result["sentences"]] == [("one two", []), ("eight nine", [])]
    assert (result["duration_ms"], result["language"], result["notes"]) == (5500, "en", [])
    (bare,) = model.generate(tone(1.0), timestamp=False)
    assert (bare["text"], bare["timestamps"]) == ("one two", [])


def test_what_is_asked_for_reaches_the_engine() -> None:
    engine = FakeEngine()
    with AutoModelVLLM(engine=engine, vad="level") as model:
        model.generate(tone(1.0), language="中文", hotwords=["张三"], max_new_tokens=9, itn=False)
        (job,) = engine.jobs
        assert (job.options.language, job.options.hotwords) == ("zh", ("张三",))
        assert (job.options.max_new_tokens, job.options.itn) == (9, False)
    assert not engine.healthy


def test_a_schedule_of_ones_own_cuts_elsewhere(model: AutoModelVLLM) -> None:
    audio = speech_pattern([(1.0, 1.0), (1.0, 1.0)])
    (usual,) = model.generate(audio)
    (own,) = model.generate(audio, silence_schedule=[(5000, 500), (float("inf"), 300)])
    (fixed,) = model.generate(audio, dynamic_silence=False)
    assert [len(result["sentences"]) for result in (usual, own, fixed)] == [1, 2, 2]


def test_speakers_are_told_apart_when_asked_for(model: AutoModelVLLM) -> None:
    (result,) = model.generate(tone(2.0), spk=True)
    assert [sentence["speaker"] for sentence in result["sentences"]] == [0]


def test_a_bad_recording_is_named_or_its_result_says_so(model: AutoModelVLLM, folder: Path) -> None:
    (folder / "bad.mp3").write_bytes(b"nonsense")
    files = [folder / "one.wav", folder / "bad.mp3", folder / "none.wav"]
    with pytest.raises(AudioError, match="bad: this is not a recording") as caught:
        model.generate(files[:2])
    assert caught.value.code == "undecodable"
    results = model.generate(files, errors="return")
    assert [result.get("error", "")[:13] for result in results] == ["", "this is not a", "the recording"]
    assert [result["text"] for result in results] == ["one two", "", ""]


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"langauge": "en"}, TypeError, r"generate\(\) got an unexpected keyword argument 'langauge'"),
        ({"input": "a.wav"}, TypeError, "takes one of inputs and input"),
        ({"errors": "ignore"}, ConfigurationError, "errors 'ignore'"),
        ({"batch_size": 0}, ConfigurationError, "batch_size must be above zero"),
        ({"language": "Klingon"}, ConfigurationError, "unknown language"),
    ],
)
def test_wrong_arguments_are_refused(
    given: Any, error: type[Exception], words: str, model: AutoModelVLLM
) -> None:
    with pytest.raises(error, match=words):
        model.generate(tone(0.5), **given)


def test_generate_wants_something_to_work_on(model: AutoModelVLLM) -> None:
    with pytest.raises(TypeError, match="takes one of inputs and input"):
        model.generate()


def test_what_the_recognizer_cannot_do_is_refused() -> None:
    engine = FakeEngine(capabilities=replace(CAPABILITIES, languages=frozenset({"en"}), words=False))
    with AutoModelVLLM(engine=engine, vad="level") as model:
        assert model.generate(tone(1.0))[0]["notes"] == []  # nobody asked for word times
        with pytest.raises(UnsupportedError, match="the language 'zh'"):
            model.generate(tone(1.0), language="zh")


def test_wrong_arguments_of_the_constructor_are_refused() -> None:
    with pytest.raises(TypeError, match=r"AutoModelVLLM\(\) got an unexpected keyword argument 'modle'"):
        AutoModelVLLM(modle="x")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"FunASRNanoVLLM\(\) got an unexpected keyword argument 'x'"):
        FunASRNanoVLLM.from_pretrained("x", x=1)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="engine 'x'"):
        AutoModelVLLM(engine="x")


def test_it_works_on_several_recordings_at_once() -> None:
    engine = FakeEngine(slots=4)
    engine.faults.inject(Fault(error=None))
    with AutoModelVLLM(engine=engine, vad="level") as model, ThreadPoolExecutor(1) as pool:
        call = pool.submit(model.generate, [tone(1.0)] * 9, batch_size=3)
        end_s = time.monotonic() + 20
        while engine.running < 3 and time.monotonic() < end_s:
            time.sleep(0.005)
        assert len(engine.jobs) == 3
        engine.die()
        with pytest.raises(EngineError):
            call.result()


def test_threads_may_share_a_model(model: AutoModelVLLM) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda n: model.generate(tone(n / 2)), range(1, 9)))
    assert [len(result[0]["text"].split()) for result in results] == list(range(1, 9))


async def test_it_works_within_a_running_loop(model: AutoModelVLLM) -> None:
    assert texts(model.generate(tone(1.0))) == {"sample_0": "one two"}
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    results = await asyncio.gather(*(model.agenerate(tone(1.0)) for _ in range(3)))
    ticking.cancel()
    assert [texts(result) for result in results] == [{"sample_0": "one two"}] * 3
    assert ticks > 3


async def test_a_model_may_live_within_a_running_loop() -> None:
    async with await FunASRNanoVLLM.afrom_pretrained(engine="fake") as model:
        assert texts(await model.agenerate(tone(1.0))) == {"sample_0": "one two"}
    with pytest.raises(RuntimeError, match="closed"):
        await model.agenerate(tone(1.0))


async def test_cancelling_reaches_the_engine() -> None:
    engine = FakeEngine()
    engine.faults.inject(Fault(error=None))
    async with AutoModelVLLM(engine=engine, vad="level") as model:
        task = asyncio.create_task(model.agenerate(tone(1.0)))
        while not engine.jobs:  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while engine.running:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def test_a_model_shares_its_recognizer(model: AutoModelVLLM) -> None:
    with FunASRNanoVLLM(engine=model) as other:
        assert other.engine is model.engine
        assert texts(other.generate(tone(1.0))) == {"sample_0": "one two"}
    assert texts(model.generate(tone(1.0))) == {"sample_0": "one two"}
    with pytest.raises(TypeError, match="shares a recognizer takes nothing else"):
        FunASRNanoVLLM("x", engine=model)
    with pytest.raises(TypeError, match="shares a recognizer takes nothing else"):
        FunASRNanoVLLM(engine=model, hub="ms")


def test_closing_twice_is_fine_and_ends_the_thread() -> None:
    before = threading.active_count()
    model = AutoModelVLLM(engine="fake")
    model.close()
    model.close()
    assert threading.active_count() == before
    with pytest.raises(RuntimeError, match="this model has been closed"):
        model.generate(tone(1.0))


def test_a_model_that_is_dropped_frees_its_recognizer() -> None:
    before, engine = threading.active_count(), FakeEngine()
    model = AutoModelVLLM(engine=engine, vad="level")
    model.generate(tone(1.0))
    del model
    gc.collect()
    end_s = time.monotonic() + 20
    while threading.active_count() > before and time.monotonic() < end_s:
        time.sleep(0.005)
    assert threading.active_count() == before
    assert not engine.healthy


class Cold(FakeEngine):
    async def warmup(self) -> None:
        raise EngineError("it cannot be warmed up")


def test_a_recognizer_that_cannot_start_is_closed() -> None:
    before, engine = threading.active_count(), Cold()
    with pytest.raises(EngineError, match="cannot be warmed up"):
        AutoModelVLLM(engine=engine, vad="level")
    assert threading.active_count() == before
    assert not engine.healthy


def test_a_recognizer_that_cannot_be_loaded_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    class Closing(FakeScorer):
        async def aclose(self) -> None:
            closed.append(threading.current_thread().name)

    def fail(options: object) -> FakeEngine:
        raise WeightsError("there are none")

    monkeypatch.setattr("realtime_server.sdk.host.load_scorer", lambda *_: Closing())
    monkeypatch.setattr("realtime_server.sdk.host.load_engine", fail)
    before = threading.active_count()
    with pytest.raises(WeightsError, match="there are none"):
        AutoModelVLLM(engine="fake")
    assert closed == ["realtime-server"]
    assert threading.active_count() == before


def test_what_is_missing_says_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REALTIME_SERVER_CACHE", str(tmp_path))
    with pytest.raises(WeightsError, match="models fetch"):
        AutoModelVLLM(engine="embedded")


PROGRAM = """
import sys
from realtime_server import AutoModelVLLM
model = AutoModelVLLM(engine="fake")
print(model.generate(sys.argv[1])[0]["text"])
"""


@pytest.mark.parametrize("mode", [[], ["-X", "dev"]])
def test_a_program_that_just_ends_ends_quietly(mode: list[str], folder: Path) -> None:
    command = [sys.executable, *mode, "-c", PROGRAM, folder / "two.flac"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("one two three\n", "", 0)


def test_a_program_without_a_guard_is_told_before_anything_is_loaded(tmp_path: Path) -> None:
    # What vLLM's processes run: the program anew, up to where it starts the engine.
    (tmp_path / "program.py").write_text(
        "import multiprocessing\n"
        "from realtime_server import AutoModelVLLM\n"
        "if __name__ == '__main__':\n"
        "    process = multiprocessing.get_context('spawn').Process(target=print)\n"
        "    process.start()\n"
        "    process.join()\n"
        "else:\n"
        "    AutoModelVLLM(model='no/such/model')\n"
    )
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60,
        env={"PYTHONPATH": str(Path(realtime_server.__file__).parents[1]), "PATH": ""},
    )  # fmt: skip
    assert "put what starts the engine under if __name__ == '__main__':" in done.stderr
