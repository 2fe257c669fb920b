"""`realtime-server transcribe`: recordings to text, subtitles or JSON, without a server."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from realtime_server import config, ending, flags
from realtime_server.cli_outputs import FORMATS, SEVERAL, Folder, Lines, Output, SingleFile, Stream
from realtime_server.cli_progress import Progress
from realtime_server.core.commands import split_words
from realtime_server.core.endpointing_options import EndpointingOptions
from realtime_server.core.jobs import Capabilities
from realtime_server.engines.base import Embedder
from realtime_server.engines.loading import SpeakerOptions, load_embedder, load_engine, load_scorer
from realtime_server.errors import AudioError, ConfigurationError, EngineError, UnsupportedError
from realtime_server.offline.inputs import Item, distinct, expand
from realtime_server.offline.options import OFFLINE_ENDPOINTING, FileOptions
from realtime_server.offline.recognizer import FileRecognizer, for_each

STDIN = "-"
DESCRIPTION = """\
Turn recordings into text. INPUT is a recording of any kind, video too, a folder of them (and the folders in it), a list
(wav.scp or *.txt: KEY PATH per line; *.jsonl: {"key": ..., "source": PATH} per line), or - for standard input."""
EPILOG = """\
examples
  realtime-server transcribe talk.mp3
  realtime-server transcribe talk.mp3 --format srt --output talk.srt --speakers
  realtime-server transcribe recordings/ --output texts/               # again: only what is not there yet
  realtime-server transcribe wav.scp --output results.jsonl --language zh --hotwords 张三 北京
  ffmpeg -i talk.mkv -f wav - | realtime-server transcribe -

exit codes
  0 done   1 some recordings failed, which the end of standard error lists   2 wrong arguments   130 interrupted"""


# fmt: off
def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `transcribe`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.usage = "%(prog)s INPUT... [--FLAG [VALUE]]...  (--help lists the flags)"
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="recording, folder, list, or -")
    add = parser.add_argument_group("output").add_argument
    add("--format", choices=FORMATS, help="default: by the ending of --output, else txt")
    add("--output", "-o", metavar="FILE|DIR",
        help="a folder gets a file for each recording, a file with the ending of a format all of them (jsonl) or the "
             "only one (default: standard output)")
    add("--overwrite", action="store_true", help="transcribe again what is there already")
    add("--quiet", "-q", action="store_true", help="say nothing but what went wrong")
    add("--log-level", default="warning", choices=("debug", "info", "warning", "error"), help="default: warning")
    add = parser.add_argument_group("recognition").add_argument
    flags.add_decoding(add)
    add("--hotwords", nargs="+", default=[], metavar="WORD", help="likely words; give them after the inputs")
    add("--no-itn", action="store_true", help="numbers and such as they are spoken, if the recognizer can")
    add("--task", choices=("transcribe", "translate"), default="transcribe",
        help="translate: into English, if the recognizer can (default: transcribe)")
    add("--max-new-tokens", type=flags.count, metavar="N", help="of one segment (default: what its length allows)")
    add("--endpointing", default=flags.AssumedMode("dynamic"), metavar="MODE",
        help="when a segment ends: dynamic, after 2 s of silence, less the longer it is; "
             "dynamic:LENGTH_MS:SILENCE_MS,...; or fixed:MS (default: dynamic, if the recognizer bears it)")
    add("--segmentation", choices=("vad", "energy"), default="vad",
        help="energy: cut at quiet places, without voice activity detection (default: vad)")
    flags.add_longest_segment(add)
    flags.add_speakers(add)
    add("--batch-size", type=flags.count, metavar="N",
        help="recordings worked on at once (default: as many as the recognizer has use for)")
    flags.add_engine(parser)
# fmt: on


def run(arguments: argparse.Namespace) -> int:
    """Transcribe; return 0, 1 if recordings failed, 130 or 143 if interrupted. Raises RealtimeServerError."""
    logging.basicConfig(
        level=arguments.log_level.upper(), stream=sys.stderr, format="%(levelname)s %(message)s"
    )
    with ending.at_once_on_signals():  # until it works there is nothing to keep
        return _transcribe(arguments)


def _transcribe(arguments: argparse.Namespace) -> int:
    options, engine_options = _read_options(arguments), config.read_engine(arguments)
    items = distinct(item for name in arguments.inputs for item in _expand(name))
    output = _open_output(arguments, items)
    try:
        todo = [item for item in items if not output.has(item)]
        if len(todo) < len(items) and not arguments.quiet:
            print(f"{len(items) - len(todo)} of {len(items)} are there already", file=sys.stderr)
        if not todo:
            return 0
        scorer, embedder = load_scorer(engine_options, arguments.vad), _load_embedder(arguments)
        engine = load_engine(engine_options)  # last: it may hold a GPU, and is closed from here on
        run = Run(FileRecognizer(engine, scorer, embedder), options, output, quiet=arguments.quiet)
        return asyncio.run(_work_to_the_end(run, todo, arguments.batch_size))
    except BrokenPipeError:  # whoever read standard output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    finally:
        output.close()


async def _work_to_the_end(run: Run, todo: Sequence[Item], at_once: int | None) -> int:
    """Work, tell of failures, close, in bounded time; the process ends here if that hangs. Return the exit code."""
    code = 1
    try:
        code = await _interruptible(run.work(todo, at_once))
    finally:
        failed = run.report()
        if not await ending.close_all(run.recognizer.parts):
            error = sys.exception()
            run.output.close()
            ending.end_process(ending.tell(error) if error else code or failed)
    return code or failed


class Run:
    """Recordings through a recognizer, whose owner closes it; one that fails does not stop the others."""

    def __init__(
        self, recognizer: FileRecognizer, options: FileOptions, output: Output, *, quiet: bool = False
    ) -> None:
        self.failures: list[tuple[Item, str]] = []
        self.recognizer, self.output = recognizer, output
        self._options, self._quiet = options, quiet
        self._items: Sequence[Item] = ()

    async def work(self, items: Sequence[Item], at_once: int | None) -> None:
        """Transcribe. Raises EngineError when the engine has died, ConfigurationError for what it cannot do."""
        self._items = items
        self._check(self.recognizer.engine.capabilities)
        await self.recognizer.warmup()
        self._progress = Progress(sys.stderr, items, quiet=self._quiet)
        try:
            await for_each(items, self._one, at_once or self.recognizer.at_once)
        finally:
            self._progress.close()

    def report(self) -> int:
        """Tell of the failures; return the exit code."""
        if self.failures:
            print(f"{len(self.failures)} of {len(self._items)} recordings failed:", file=sys.stderr)
        places = {id(item): place for place, item in enumerate(self._items)}
        for item, reason in sorted(self.failures, key=lambda failure: places[id(failure[0])]):
            print(f"  {_name(item)}: {reason}", file=sys.stderr)
        return 1 if self.failures else 0

    def _check(self, can: Capabilities) -> None:
        try:
            self._options.decoding_for(can, embedder=self.recognizer.embedder is not None)
        except UnsupportedError as error:
            raise ConfigurationError(str(error)) from error
        if not self.output.times:  # word times cost time and are asked for only where they show
            return
        wish = replace(self._options.decoding, words=can.words)
        self._options = replace(self._options, decoding=wish)

    async def _one(self, item: Item) -> None:
        began_s = time.monotonic()
        try:
            heard = await self.recognizer.transcribe(
                item,
                self._options,
                on_progress=lambda known_s, all_s: self._progress.advance(item, known_s, all_s),
            )
            self.output.write(item, heard.transcription)
        except (AudioError, EngineError) as error:
            if not self.recognizer.engine.healthy:
                raise
            self._fail(item, str(error))
            return
        except BrokenPipeError:
            raise
        except OSError as error:
            self._fail(item, f"its text cannot be written: {error.strerror or error}")
            return
        silent = () if heard.transcription.sentences else ("no speech was found in it",)
        for note in (*heard.notes, *silent):
            self._progress.say(f"{_name(item)}: {note}")
        lost = sum("failed" in sentence.flags for sentence in heard.transcription.sentences)
        if lost:
            self.failures.append((item, f"passages that could not be recognised: {lost}"))
        self._progress.finish(item, heard.seconds, time.monotonic() - began_s)

    def _fail(self, item: Item, reason: str) -> None:
        self.failures.append((item, reason))
        self.output.skip(item)
        if len(self._items) > 1:  # of one, the end tells soon enough
            self._progress.say(f"{_name(item)}: {reason}")
        self._progress.finish(item, None)


async def _interruptible(work: Coroutine[Any, Any, None]) -> int:
    """Await `work`; a signal cancels it, a second one ends the process. Return 0, or the exit code for the signal."""
    loop, task, caught = asyncio.get_running_loop(), asyncio.create_task(work), list[int]()

    def stop(number: int) -> None:
        if caught:
            os._exit(128 + number)
        caught.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if not caught:
            raise
        print("interrupted; what is done is kept", file=sys.stderr)
        return 128 + caught[0]
    return 0


def _expand(name: str) -> list[Item]:
    if name != STDIN:
        return expand(name)
    if sys.stdin.isatty():
        raise ConfigurationError(
            "standard input is a terminal: give a recording to it, as in: cat talk.mp3 | ..."
        )
    return [Item("stdin", sys.stdin.buffer)]


def _name(item: Item) -> str:
    return str(item.source) if isinstance(item.source, Path) else item.key


def _load_embedder(arguments: argparse.Namespace) -> Embedder | None:
    options = SpeakerOptions(model=arguments.speaker_model)
    return load_embedder(options, arguments.speakers) if arguments.speakers else None


def _read_options(arguments: argparse.Namespace) -> FileOptions:
    with flags.naming("--endpointing"):
        mode = arguments.endpointing
        endpointing = OFFLINE_ENDPOINTING if mode == "dynamic" else EndpointingOptions.parse(mode)
        if endpointing.mode == "client":
            raise ConfigurationError("client is for live sessions")
    longest_ms = round(1000 * arguments.max_segment_seconds)
    from_file = config.read_options(arguments)
    words = split_words(",".join(arguments.hotwords))
    return FileOptions(
        decoding=replace(
            from_file, hotwords=tuple(dict.fromkeys([*from_file.hotwords, *words])), itn=not arguments.no_itn,
            task=arguments.task, max_new_tokens=arguments.max_new_tokens,
        ),
        speakers=arguments.speakers is not None,
        segmentation=arguments.segmentation,
        schedule_wanted=endpointing.mode == "dynamic" and not isinstance(mode, flags.AssumedMode),
        endpointing=replace(endpointing, max_segment_ms=longest_ms, eager_ms=None),
    )  # fmt: skip


def _open_output(arguments: argparse.Namespace, items: Sequence[Item]) -> Output:
    """Where the texts go. Raises ConfigurationError for what does not fit together."""
    place, speakers = arguments.output, arguments.speakers is not None
    ending = Path(place).suffix.lower().removeprefix(".") if place else ""
    form = arguments.format or (ending if ending in FORMATS else "txt")
    if place is None:
        if len(items) > 1 and form not in SEVERAL:
            raise ConfigurationError(
                f"--format {form}: several recordings need --output DIR, or --format jsonl"
            )
        return Stream(form, speakers=speakers, stream=sys.stdout, items=items)
    path = Path(place)
    if ending not in FORMATS or path.is_dir():
        return Folder(form, speakers=speakers, folder=path, overwrite=arguments.overwrite)
    if form == "jsonl":
        return Lines(path=path, overwrite=arguments.overwrite)
    if len(items) > 1:
        raise ConfigurationError(
            f"--output {place}: several recordings need a folder, or a file that ends in .jsonl"
        )
    return SingleFile(form, speakers=speakers, path=path, overwrite=arguments.overwrite)
