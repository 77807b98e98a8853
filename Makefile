# `make verify` and `make test` set up what they need, in a virtual environment of their own.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# torch first and pinned: left to another package's requirement it may be a build of several gigabytes.
TORCH  := $(shell sed -n 's/^torch==/torch==/p' constraints.txt)
export OMP_NUM_THREADS ?= 1
# Processes that share the tests, each file in one of them.
JOBS   ?= auto

.PHONY: verify test oracle lint types setup clean

verify: setup
	$(BIN)/fastlora-verify mutate --all $(ARGS)

oracle: setup
	$(BIN)/fastlora-verify oracle $(ARGS)

test: setup
	$(BIN)/python -P -m pytest -n $(JOBS) --dist loadfile $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	PYTHON=$(BIN)/python scripts/types

setup: $(VENV)/.done

$(VENV)/.done: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
	    { echo 'fastlora-verify needs Python 3.11 to 3.13; say which one with PYTHON=…' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt $(TORCH)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .fastlora-verify
