"""Recordings to text in a program of one's own: AutoModelVLLM and FunASRNanoVLLM, by the names of FunASR's guide."""

from __future__ import annotations

import asyncio
from os import PathLike
from typing import Any, Self, Unpack

from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.errors import AudioError, ConfigurationError
from realtime_server.offline.formats import json_record
from realtime_server.offline.inputs import Item
from realtime_server.offline.options import FileOptions
from realtime_server.offline.recognizer import Heard, for_each
from realtime_server.sdk.arguments import FileArguments, ModelArguments, check_names, read_file_options
from realtime_server.sdk.audio import to_items
from realtime_server.sdk.host import Model

Result = dict[str, Any]


class AutoModelVLLM(Model):
    """A recognizer for recordings.

    model = AutoModelVLLM(model="FunAudioLLM/Fun-ASR-Nano-2512", tensor_parallel_size=2)
    for result in model.generate(["one.wav", "two.mp3"], language="中文", hotwords=["张三", "北京"]):
        print(f"[{result['key']}] {result['text']}")
    """

    def generate(self, inputs: Any = None, **arguments: Unpack[FileArguments]) -> list[Result]:
        """Transcribe recordings; return a result for each, in order. See FileArguments for the arguments.

        inputs: a path of a recording, of a folder, of a list (wav.scp, jsonl), an array of samples, bytes or an open
        file of a recording, or a list of these.

        A result has `key`, `text`, `timestamps` (of words: token, start_time, end_time, in seconds), `sentences`,
        `duration_ms`, `language`, `task` and `notes`. Raises ConfigurationError, AudioError naming the recording,
        UnsupportedError and EngineError.
        """
        return self._host.background.run(self._generate(inputs, arguments))

    async def agenerate(self, inputs: Any = None, **arguments: Unpack[FileArguments]) -> list[Result]:
        """The same, awaited; cancelling ends the work."""
        return await self._host.background.arun(self._generate(inputs, arguments))

    @classmethod
    def from_pretrained(
        cls, model: str | PathLike[str] | None = None, **arguments: Unpack[ModelArguments]
    ) -> Self:
        """The constructor by another name."""
        return cls(model, **arguments)

    @classmethod
    async def afrom_pretrained(
        cls, model: str | PathLike[str] | None = None, **arguments: Unpack[ModelArguments]
    ) -> Self:
        """The same, awaited: the event loop goes on while the model is loaded."""
        return await asyncio.to_thread(lambda: cls(model, **arguments))

    async def _generate(self, inputs: Any, arguments: FileArguments) -> list[Result]:
        check_names("generate", arguments, FileArguments)
        if ("input" in arguments) == (inputs is not None):
            raise TypeError("generate() takes one of inputs and input")
        words = self.engine.capabilities.words
        options = read_file_options(arguments, self._host.max_segment_s, words=words)
        errors, at_once = arguments.get("errors", "raise"), arguments.get("batch_size")
        if errors not in ("raise", "return"):
            raise ConfigurationError(f"errors {errors!r}: it must be 'raise' or 'return'")
        if at_once is not None and at_once < 1:
            raise ConfigurationError(f"batch_size must be above zero, not {at_once}")
        given, fs = arguments.get("input", inputs), arguments.get("fs", SAMPLE_RATE)
        items = await asyncio.to_thread(to_items, given, fs)
        if options.speakers:
            await self._host.need_speakers()
        results: dict[int, Result] = {}

        async def work(numbered: tuple[int, Item]) -> None:
            number, item = numbered
            results[number] = await self._one(item, options, errors)

        await for_each(enumerate(items), work, at_once or self._host.recognizer.at_once)
        return [results[number] for number in range(len(items))]

    async def _one(self, item: Item, options: FileOptions, errors: str) -> Result:
        try:
            return _result(item.key, await self._host.recognizer.transcribe(item, options))
        except AudioError as error:
            if errors == "return":
                return {"key": item.key, "text": "", "error": str(error)}
            raise AudioError(f"{item.key}: {error}", error.code) from error


class FunASRNanoVLLM(AutoModelVLLM):
    """The same, by the name that FunASR gives the class for Fun-ASR-Nano.

    engine = FunASRNanoVLLM.from_pretrained("FunAudioLLM/Fun-ASR-Nano-2512", tensor_parallel_size=4)
    results = engine.generate(inputs="wav.scp", hotwords=["开放时间"], language="中文", max_new_tokens=512)
    """


def _result(key: str, heard: Heard) -> Result:
    words = [
        {"token": word.text, "start_time": word.start_ms / 1000, "end_time": word.end_ms / 1000}
        for word in heard.transcription.words
    ]
    return {**json_record(heard.transcription, key=key), "timestamps": words}
