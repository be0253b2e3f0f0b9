# One command per chore; README, CONTRIBUTING and CI call exactly these.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
SOURCES := src tests examples bench docs

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
	$(BIN)/python -m pytest -n 3 --dist loadfile

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "headrace needs Python 3.11 or newer; set PYTHON=/path/to/python3"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.ready: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.ready-dev: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[dev,mujoco,envpool,jaxenvs,marl,track,optuna]'
	@touch $@ $(VENV)/.ready

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
