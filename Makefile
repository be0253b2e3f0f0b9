# One command per chore; README, CONTRIBUTING and CI call exactly these.
# The newest Python on the PATH that can make a virtual environment; PYTHON=/path/to/python3 chooses another.
FITS := import ensurepip, sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for name in python3.14 python3.13 python3.12 python3.11 python3 python; do \
	$$name -c '$(FITS)' >/dev/null 2>&1 && { echo $$name; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
SOURCES := src tests examples bench docs
MAKEFLAGS += -j2

.PHONY: demo test lint types unit clean

demo: $(VENV)/.ready
	$(BIN)/headrace train sac Pendulum-v1 --until -200 --seconds 100 --seed 1

test: $(VENV)/.ready-dev lint types unit

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

types: $(VENV)/.ready-dev
	$(BIN)/mypy

unit: $(VENV)/.ready-dev
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

$(BIN)/python:
	@'$(PYTHON)' -c '$(FITS)' 2>/dev/null || { echo "headrace needs Python 3.11 or newer with its venv module\
	(Debian and Ubuntu: apt install python3-venv); none is on the PATH: set PYTHON=/path/to/python3"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.ready: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.ready-dev: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[dev,mujoco,video,envpool,atari,jaxenvs,marl,track,optuna,plot,export]'
	@touch $@ $(VENV)/.ready

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
