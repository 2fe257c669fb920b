"""vLLM's own server with the plugin, as a process of its own: the command of docs/vllm-plugin.md, on the CPU."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

from realtime_server.engines.vllm_setup import CPU_DEFAULTS, DEFAULTS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "data" / "tiny-fun-asr-nano"
PAGE = ROOT / "docs" / "vllm-plugin.md"
READY_S, STOPPED_S = 300.0, 60.0
SMALL = "--dtype float32 --enforce-eager --max-model-len 1024 --max-num-seqs 8 --block-size 32"
NAME = "nano"


def documented(config_format: str) -> list[str]:
    """The flags that the guide gives `vllm serve FOLDER` for a config format, for the tiny checkpoint."""
    commands = re.findall(r"^vllm serve FOLDER (.*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    (flags,) = (each for each in commands if f"--config-format {config_format} " in f"{each} ")
    return [
        part.replace("FOLDER", str(FOLDER)).replace("Qwen3-0.6B", "Qwen3-tiny") for part in shlex.split(flags)
    ]


class VllmServer:
    """`vllm serve FOLDER` with the flags of a config format; `url` is there when it is entered."""

    def __init__(self, config_format: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-W", "ignore", "-m", "vllm.entrypoints.openai.api_server"]
        command += ["--model", str(FOLDER), *documented(config_format), *shlex.split(SMALL)]
        command += ["--kv-cache-memory-bytes", str(64 << 20), "--served-model-name", NAME]
        command += ["--host", "127.0.0.1", "--port", str(port)]
        environment = {**DEFAULTS, **CPU_DEFAULTS, **os.environ, "VLLM_LOGGING_LEVEL": "WARNING"}
        self._lines: list[str] = []
        self._process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        deadline = time.monotonic() + READY_S
        while not self.healthy:
            assert self._process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.2)
        return self

    def __exit__(self, *unused: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOPPED_S)
        finally:
            self._process.kill()
            self._reader.join()
            if self._process.stdout:
                self._process.stdout.close()

    @property
    def healthy(self) -> bool:
        """Whether it answers."""
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=10) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    @property
    def log(self) -> str:
        """Everything it wrote so far."""
        return "".join(self._lines)

    def _read(self) -> None:
        assert self._process.stdout
        self._lines.extend(self._process.stdout)
