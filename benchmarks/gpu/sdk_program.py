"""A program that uses the SDK on a GPU; sdk.py runs it and looks at what is left when it has ended.

    python -m benchmarks.gpu.sdk_program MODEL DEVICE ROOM VAD_MODEL SPEECH.npz

It prints a line of JSON: seconds that loading, a generate call over three recordings and an awaited one took.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from benchmarks.gpu.live_clients import read_speech
from realtime_server.core.segments import SAMPLE_RATE
from realtime_server.sdk import AutoModelVLLM

SECONDS = (5, 10, 20)


def main(model: str, device: str, room: str, vad_model: str, speech: str) -> None:
    """Load, transcribe in both ways, close."""
    samples = read_speech(Path(speech)).samples
    recordings = [samples[: seconds * SAMPLE_RATE] for seconds in SECONDS]
    began_s = time.monotonic()
    with AutoModelVLLM(model, device=device, max_model_len=int(room), vad_model=vad_model) as recognizer:
        took = {"load": time.monotonic() - began_s}
        for name in ("first", "second"):
            began_s = time.monotonic()
            results = recognizer.generate(recordings)
            took[name] = time.monotonic() - began_s
        began_s = time.monotonic()
        awaited = asyncio.run(recognizer.agenerate(recordings))
        took["awaited"] = time.monotonic() - began_s
        began_s = time.monotonic()
    took["close"] = time.monotonic() - began_s
    lengths = [result["duration_ms"] for result in results]
    same = [result["text"] for result in results] == [result["text"] for result in awaited]
    print(json.dumps({"took_s": took, "durations_ms": lengths, "same": same}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
