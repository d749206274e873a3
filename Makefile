# Two commands for a fresh machine: `make demo` and `make test`. The others are for contributors.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.installed
TESTS  := $(BIN)/python -m pytest -n 2

.PHONY: demo test check lint types layers results transfer benchmarks clean
.DEFAULT_GOAL := demo

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("rover needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=/path/to/python3.11") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@

demo: $(READY) ## pretrain on Multi-Rooms without any reward, then show what was learned
	$(BIN)/rover demo

test: $(READY) ## every test
	$(TESTS)

check: lint types layers test ## everything CI would want to know

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

layers: $(READY)
	$(BIN)/lint-imports

results: $(READY) ## docs/results: every table and picture of one method, with all their runs
	$(BIN)/python -m rover.experiments.results --jobs 2
	$(BIN)/python -m rover.experiments.results --jobs 2 --table ablations
	$(BIN)/python -m rover.experiments.sink_diagnostic --jobs 2
	$(BIN)/python -m rover.experiments.pictures

transfer: $(READY) ## docs/results/transfer, with all runs and the pretraining that they start from
	$(BIN)/python -m rover.experiments.transfer --jobs 2

benchmarks: $(READY) ## speed, printed with the hardware that it was measured on
	for file in benchmarks/*.py; do $(BIN)/python $$file || exit 1; done

clean:
	rm -rf $(VENV) runs .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
