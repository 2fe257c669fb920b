"""Imports point inwards, core is pure, and nothing heavy is loaded before it is chosen."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "realtime_server"
CORE = ("core", "errors")
# What each ring may import of ours. weights* and resources are leaves like errors; the command line may import
# everything.
RINGS: dict[str, tuple[str, ...]] = {
    "core": CORE,
    "models": (*CORE, "models"),
    "engines": (*CORE, "models", "engines", "weights", "resources"),
    "doors": (*CORE, "doors"),
    "vllm_plugin": (*CORE, "models", "vllm_plugin"),
    "realtime": (*CORE, "doors", "engines", "metrics", "realtime", "resources"),
    "offline": (*CORE, "engines", "offline", "memory", "resources"),
    "http": (*CORE, "doors", "engines", "realtime", "offline", "http", "metrics"),
    "sdk": (*CORE, "engines", "offline", "sdk"),
    "bench": (*CORE, "weights", "resources", "flags", "demo", "bench"),  # it starts servers, and imports none
}
PURE = {
    "__future__", "base64", "bisect", "codecs", "collections", "contextlib", "dataclasses", "difflib", "enum",
    "functools", "itertools", "json", "math", "numpy", "re", "typing", "unicodedata", "realtime_server",
}  # fmt: skip


def imports(path: Path) -> set[str]:
    """Full names of the modules a file imports, at any depth."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports in full"
            assert node.module
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("ring", list(RINGS))
def test_imports_point_inwards(ring: str) -> None:
    files = list((PACKAGE / ring).glob("*.py"))
    assert files
    for path in files:
        ours = {name.split(".")[1] for name in imports(path) if name.startswith("realtime_server.")}
        assert ours - {"__version__"} <= set(RINGS[ring]), path.name


def test_core_is_standard_library_and_numpy() -> None:
    for path in (PACKAGE / "core").glob("*.py"):
        assert {name.split(".")[0] for name in imports(path)} <= PURE, path.name
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not any(isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in ast.walk(tree)), (
            path.name
        )


@pytest.mark.parametrize(
    "module",
    [
        "realtime_server.cli",
        "realtime_server.realtime.server",
        "realtime_server.offline.audio_reader",
        "realtime_server.sdk",
    ],
)
def test_nothing_heavy_is_imported_before_it_is_chosen(module: str) -> None:
    heavy = ["torch", "onnxruntime", "ctranslate2", "vllm", "transformers", "kaldi_native_fbank", "soundfile"]
    heavy += ["soxr", "av"]
    code = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


def test_the_package_itself_imports_nothing() -> None:
    code = "import sys, realtime_server; print([m for m in sys.modules if m.startswith(('numpy', 'realtime_server.'))])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )
