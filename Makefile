# `make help` lists the targets. PYTHON=python3.12 chooses another interpreter, ARGS="..." adds arguments.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ARGS   ?=

.DEFAULT_GOAL := help
.PHONY: help install train test test-long test-gpu lint clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(VENV)/.installed  ## Make .venv with mlm and its tools, pinned (TORCH=system keeps the machine's torch)

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "mlm needs Python 3.11 or later: make install PYTHON=python3.11"; exit 1; }
ifeq ($(TORCH),system)
	@$(PYTHON) -c 'import torch' 2>/dev/null || { echo "TORCH=system, but $(PYTHON) has no torch: leave it out"; exit 1; }
	$(PYTHON) -m venv --system-site-packages $(VENV)
	grep -v '^torch==' constraints.txt > $(VENV)/constraints.txt
else
	$(PYTHON) -m venv $(VENV)
	cp constraints.txt $(VENV)/constraints.txt
endif
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(VENV)/constraints.txt -e '.[dev]'
	@touch $@

train: install  ## Train a tensor-parallel GPT-2 on Shakespeare here and now, about two minutes on two cores
	@$(BIN)/mlm-train experiment=quickstart $(ARGS)

test: install  ## Run the tests, under 20 minutes on two cores; ARGS="tests/unit -k name" runs some
ifeq ($(ARGS),)
	$(BIN)/python -m pytest -m "not long" -n 2 tests/unit
	$(BIN)/python -m pytest -m "not long" --ignore tests/unit
else
	$(BIN)/python -m pytest -m "not long" $(ARGS)
endif

test-long: install  ## Run what takes longer: whole recipes over several seeds
	$(BIN)/python -m pytest -m long $(ARGS)

test-gpu: install  ## Run the tests that need a CUDA device
	$(BIN)/python -m pytest tests/gpu $(ARGS)

lint: install  ## Check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:  ## Remove .venv and what tools left behind (never runs/)
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
