# Two commands for a fresh machine: `make demo` and `make test`. The others are for contributors.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.installed
# One thread for each of two workers: on two cores more of them only wait for each other.
TESTS  := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

# make docs SPHINX="-D plot_gallery=0" shows the gallery's scripts without running them.
SPHINX ?=

.PHONY: demo test test-lowest quick check lint types docs results headlines clean
.DEFAULT_GOAL := demo

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("rover needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=/path/to/python3.11") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,docs]"
	@touch $@

demo: $(READY) ## pretrain on Multi-Rooms without any reward, then show what was learned
	$(BIN)/rover pretrain rover/MultiRooms-v0 --steps 1500 --run-dir runs/demo
	$(BIN)/rover solve runs/demo --goals named --run-dir runs/demo-goals
	$(BIN)/rover plot runs/demo

test: $(READY) ## every test
	$(TESTS)

test-lowest: ## every test at the lowest versions that pyproject.toml names, in .venv-lowest
	$(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip install --quiet -c constraints-lowest.txt -e ".[dev,docs]"
	OMP_NUM_THREADS=1 $(VENV)-lowest/bin/python -m pytest -n 2

quick: $(READY) ## the tests that are not slow
	$(TESTS) -m "not slow"

check: lint types test ## everything that continuous integration runs

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(READY)
	$(BIN)/mypy

docs: $(READY) ## the site, in site/: every page, the gallery executed, with every warning an error
	rm -rf site
	$(BIN)/python -m sphinx -b html -W --keep-going -q $(SPHINX) docs site

results: $(READY) ## docs/results: the tables of ROVER, its ablations and presets, and those of the baselines
	for study in results ablations presets one-matrix seven-rooms windows baselines-code; do \
		$(BIN)/rover sweep experiments/$$study.toml --jobs 2 --out docs/results || exit 1; done
	rm -rf runs/pictures
	$(BIN)/rover pretrain rover/MultiRooms-v0 --env observation=onehot --seed 100 --run-dir runs/pictures/demo
	$(BIN)/rover plot runs/pictures/demo
	$(BIN)/rover pretrain MountainCar-v0 --seed 100 --run-dir runs/pictures/car
	$(BIN)/rover plot runs/pictures/car
	cp runs/pictures/demo/pictures/trajectories.png docs/pictures/demo.png
	cp runs/pictures/car/pictures/visits.png docs/pictures/mountain_car.png

headlines: $(READY) ## figures of README's table, measured again on a seed that is not reported
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[arenas]"
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.headlines

clean:
	rm -rf $(VENV) $(VENV)-lowest runs site docs/api docs/gallery .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
