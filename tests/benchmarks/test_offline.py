"""The cases of the table, and a small run without models."""

from __future__ import annotations

import json

import pytest

from benchmarks import corpus, offline
from benchmarks.__main__ import run_one
from realtime_server.core.endpointing_options import OFFLINE_SCHEDULE
from realtime_server.core.jobs import DecodingOptions
from realtime_server.errors import ConfigurationError
from tests.audio import speech_pattern
from tests.offline.recordings import plain


def test_each_vad_mode_comes_without_and_with_speakers() -> None:
    cases = offline.read_cases(
        ["dynamic", "fixed:600", "energy"], "both", DecodingOptions(language="en"), 20.0
    )
    assert [case.name for case in cases] == [
        "dynamic", "dynamic, speakers", "fixed:600", "fixed:600, speakers", "energy",
    ]  # fmt: skip
    assert [case.options.speakers for case in cases] == [False, True, False, True, False]
    assert [case.options.segmentation for case in cases] == ["vad", "vad", "vad", "vad", "energy"]
    endpointing = [case.options.endpointing for case in cases]
    assert all(each and each.max_segment_ms == 20_000 for each in endpointing)
    assert [each and each.mode for each in endpointing] == ["dynamic", "dynamic", "fixed", "fixed", "dynamic"]
    assert [each and each.schedule == OFFLINE_SCHEDULE for each in endpointing[:2]] == [True, True]


def test_speakers_are_measured_only_where_asked_for() -> None:
    assert [case.name for case in offline.read_cases(["dynamic"], "on", DecodingOptions(), 30)] == [
        "dynamic, speakers"
    ]
    assert [case.name for case in offline.read_cases(["dynamic"], "off", DecodingOptions(), 30)] == [
        "dynamic"
    ]
    with pytest.raises(ConfigurationError):
        offline.read_cases(["sometimes"], "off", DecodingOptions(), 30)


def test_a_run_with_the_fakes(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jiwer", reason="what compares texts is not installed")
    folder = tmp_path_factory.mktemp("recordings")
    (folder / "one.wav").write_bytes(plain(speech_pattern([(1.0, 2.5), (1.0, 0.5)]), 16_000))
    (folder / "list.tsv").write_text("one.wav\tone two eight\n", encoding="utf-8")
    arguments = "--engine fake --vad level --speakers off --vad-modes dynamic --files"
    assert run_one("offline", offline, [*arguments.split(), str(folder / "list.tsv")]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["wer_texts_in_words_percent_dynamic"] > 0
    assert told["failed_segments_dynamic"] == 0
    assert told["live_schedule_sentences"] == told["offline_schedule_sentences"] > 50
    assert "transcriber_rtfx_with_word_times" not in told


def test_the_default_is_what_is_fetched() -> None:
    pytest.importorskip("soundfile")
    found = corpus.fetched()
    assert found[-1].path.name == "two_cities.wav"
    assert {each.in_words for each in found} == {True, False}
