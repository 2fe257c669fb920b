"""Speech recognition inside a program of one's own, under the names of FunASR's guide; docs/sdk.md shows it.

AutoModelVLLM, FunASRNanoVLLM   recordings: generate(), agenerate()
FunASRNanoStreamingVLLM         audio that comes in: streaming_generate(), astreaming_generate()
"""

from realtime_server.sdk.files import AutoModelVLLM, FunASRNanoVLLM
from realtime_server.sdk.streaming import FunASRNanoStreamingVLLM

__all__ = ["AutoModelVLLM", "FunASRNanoStreamingVLLM", "FunASRNanoVLLM"]
