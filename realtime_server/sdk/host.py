"""What the SDK's classes have in common: a recognizer, loaded once, on an event loop of its own."""

from __future__ import annotations

import asyncio
import multiprocessing
import weakref
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

from realtime_server.engines.base import Engine
from realtime_server.engines.loading import IN_VLLM, SpeakerOptions, load_embedder, load_engine, load_scorer
from realtime_server.engines.vllm_host import GUARD
from realtime_server.errors import ConfigurationError
from realtime_server.offline.recognizer import FileRecognizer
from realtime_server.sdk.arguments import ModelArguments, check_names, read_engine
from realtime_server.sdk.background import BackgroundLoop


class Host:
    """A recognizer and the loop that it runs on."""

    def __init__(
        self, model: str | PathLike[str] | None, arguments: ModelArguments, engine: Engine | None = None
    ) -> None:
        """Load and warm up; engine: one that is there. Raises ConfigurationError, WeightsError and EngineError."""
        options = read_engine(model, arguments)
        fake = options.engine == "fake"
        if options.engine in IN_VLLM and getattr(multiprocessing.current_process(), "_inheriting", False):
            raise ConfigurationError(GUARD)  # before a process of vLLM's loads a model of its own
        self.max_segment_s = arguments.get("max_segment_s", 30.0)
        self._speaker_model = str(arguments.get("spk_model", "bands" if fake else ""))
        self._loading = asyncio.Lock()
        scorer = load_scorer(options, arguments.get("vad", "level" if fake else "fsmn"))
        try:
            self.recognizer = FileRecognizer(engine or load_engine(options), scorer)
        except BaseException:
            closing = BackgroundLoop()
            closing.end(scorer.aclose)
            closing.join()
            raise
        self.background = BackgroundLoop()
        # Whoever drops the object without closing it gets his GPU back, too; so does who ends the program with it.
        weakref.finalize(self, self.background.end, self.recognizer.aclose).atexit = False
        self.background.end_at_exit(self.recognizer.aclose)
        try:
            self.background.run(self.recognizer.warmup())
        except BaseException:
            self.close()
            raise

    async def need_speakers(self) -> None:
        """Load what tells speakers apart, the first time. Raises as the constructor does."""
        async with self._loading:
            if self.recognizer.embedder is None:
                bands = self._speaker_model == "bands"
                folder = Path(self._speaker_model) if self._speaker_model and not bands else None
                kind = "bands" if bands else "network"
                embedder = await asyncio.to_thread(load_embedder, SpeakerOptions(model=folder), kind)
                await self.recognizer.use_embedder(embedder)

    def close(self) -> None:
        """End the recognizer and the loop; calls that run end with an error."""
        self.background.end(self.recognizer.aclose)
        self.background.join()


class Model:
    """Base of the SDK's classes.

    Calls may come from any thread, several at a time, and from within a running event loop; each has an async form.
    """

    def __init__(self, model: str | PathLike[str] | None = None, **arguments: Unpack[ModelArguments]) -> None:
        """Load a recognizer; takes seconds, with vLLM a minute or two.

        model: for Fun-ASR-Nano its name at the hub or a folder, for the others a folder.  See ModelArguments for the
        rest. Raises ConfigurationError, WeightsError and EngineError, which say what to do.
        """
        check_names(type(self).__name__, arguments, ModelArguments)
        given = arguments.get("engine")
        self._owns = not isinstance(given, Model)
        if isinstance(given, Model):
            if model is not None or len(arguments) > 1:
                raise TypeError(
                    f"{type(self).__name__}() that shares a recognizer takes nothing else about it"
                )
            self._host: Host = given._host
        else:
            self._host = Host(model, arguments, None if isinstance(given, str) else given)

    @property
    def engine(self) -> Engine:
        """The recognizer itself."""
        return self._host.recognizer.engine

    def close(self) -> None:
        """Free the recognizer, unless it is another object's; calls that run end with an error."""
        if self._owns:
            self._host.close()

    async def aclose(self) -> None:
        """The same."""
        await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
