#!/bin/sh
# Makes the environment in which PyPI funasr runs, to compare our VAD, speaker networks, Fun-ASR-Nano and
# GLM-ASR-Nano with it.
#
#   sh scripts/install_reference.sh [FOLDER]      default: .venv-reference
#
# PYTHON: interpreter to build it with.  FUNASR: release to compare with.
set -eu

venv=${1:-.venv-reference}
funasr=${FUNASR:-1.4.16}
python=${PYTHON:-$(command -v python3.11 || command -v python3.12 || command -v python3)}
stamp="$venv/.funasr-$funasr-glm"

if [ -f "$stamp" ]; then
  echo "== $venv has funasr $funasr"
  exit 0
fi
echo "== installing funasr $funasr into $venv"
"$python" -m venv "$venv"
pip="$venv/bin/python -m pip install --quiet --disable-pip-version-check"
# First and pinned, so that nothing below pulls another build. A CPU build will do: where the package index has
# none under this version, PIP_EXTRA_INDEX_URL can name one that has.
$pip "torch==2.13.0"
# funasr's own list has fifty packages for training and for other models; these are what the two import.
$pip "rapidfuzz>=3,<4" "six>=1.16,<2" "tiktoken>=0.8,<1" "tokenizers>=0.21,<1" "pyyaml>=6,<7" "safetensors>=0.5,<1"
$pip "numpy>=2.0,<3" "soundfile>=0.13,<1" "omegaconf==2.3.*" "hydra-core==1.3.*" "requests>=2,<3" "tqdm>=4,<5"
$pip --no-deps "librosa==0.11.*" "lazy_loader>=0.4,<1" "kaldiio==2.18.*" "torchaudio==2.11.*" "funasr==$funasr"
# torchaudio's compiled part belongs to another torch and fails to load; its fbank is pure Python.
rm -f "$venv"/lib/python3.*/site-packages/torchaudio/lib/*.so
"$venv/bin/python" -c 'import funasr, torchaudio.compliance.kaldi; from funasr import AutoModel' >/dev/null
touch "$stamp"
