"""FunASR's own live server (PyPI funasr, `funasr-realtime-server`), with as many tokens as the script has.

    python -m benchmarks.gpu.live_reference --site FOLDER --vad FOLDER -- ITS_FLAG...

Everything is its own, but for three things that random weights and a machine without a network need: its voice activity
network is read from a folder, the language model generates exactly the script's number of tokens for each piece of
audio, and these are replaced by the script's signs before it makes text of them.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.gpu import script

VAD_NAME = "fsmn-vad"  # by which it asks for its voice activity network


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.live_reference", description=__doc__)
    parser.add_argument("--site", type=Path, help="folder of packages with funasr, looked at last")
    parser.add_argument("--vad", type=Path, required=True, help="folder with FSMN-VAD, model.pt among it")
    parser.add_argument("its_flags", nargs="*", metavar="-- ITS_FLAG")
    arguments = parser.parse_args(argv)
    if arguments.site:
        sys.path.append(str(arguments.site))
    server: Any = import_module("funasr.bin.realtime_ws")
    _read_vad_from(arguments.vad)
    _script_tokens()
    asyncio.run(server.main(server.build_arg_parser().parse_args(arguments.its_flags)))
    return 0


def _read_vad_from(folder: Path) -> None:
    funasr: Any = import_module("funasr")
    load = funasr.AutoModel

    def auto_model(model: str, **options: Any) -> Any:
        return load(model=str(folder) if model == VAD_NAME else model, **options)

    funasr.AutoModel = auto_model


def _script_tokens() -> None:
    """Its engine computes batches in one thread, so that what a batch is about can be kept between two calls."""
    module: Any = import_module("funasr.models.fun_asr_nano.inference_vllm")
    vllm: Any = import_module("vllm")

    class Scripted(module.FunASRNanoVLLM):  # type: ignore[misc]
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            self._signs = [self.tokenizer.encode(sign, add_special_tokens=False) for sign in script.SIGNS]
            if any(len(ids) != 1 for ids in self._signs):
                raise SystemExit("the checkpoint's tokenizer has not a token for each sign of the script")
            self._sizes: list[int] = []
            self._answer, self.vllm_engine.generate = self.vllm_engine.generate, self._generate

        def generate(self, inputs: Any, **options: Any) -> Any:
            self._sizes = [len(each) for each in inputs]
            return super().generate(inputs, **options)

        def _generate(self, prompts: Any, _: Any, **options: Any) -> Any:
            counts = [script.tokens(size) for size in self._sizes]
            sampling = [
                vllm.SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True) for count in counts
            ]
            answers = self._answer(prompts, sampling, **options)
            for answer, count, size in zip(answers, counts, self._sizes, strict=True):
                if len(answer.outputs[0].token_ids) != count:
                    raise RuntimeError(f"{len(answer.outputs[0].token_ids)} tokens instead of {count}")
                answer.outputs[0].token_ids = [self._signs[place][0] for place in script.places(size)]
            return answers

    module.FunASRNanoVLLM = Scripted


if __name__ == "__main__":
    sys.exit(main())
