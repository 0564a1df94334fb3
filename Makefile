# Everything a person does with this tree. `make` alone lists it.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# Two stamps: `make run` needs the program alone, which installs in a fraction of the time of the tools.
RUNTIME := $(VENV)/.runtime-installed
DEV     := $(VENV)/.dev-installed

# The runner is built on install, so a change of its sources asks for another one.
RUNNER_SOURCES := CMakeLists.txt $(shell find runner -name '*.cpp' -o -name '*.h' -o -name CMakeLists.txt)

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  \033[1m%-12s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(DEV) ## Make .venv with Stoker and all tools in it

.PHONY: run
run: $(RUNTIME) ## Start the whole system: API, coordinator, two workers
	$(BIN)/stoker up

.PHONY: test
test: $(DEV) ## Run the tests
	$(BIN)/python -m pytest

.PHONY: runner-test
runner-test: ## Test the C++ runner under ASan and UBSan (needs cmake and a C++17 compiler)
	cmake -S . -B build/runner-sanitized -DSTOKER_SANITIZE=ON
	cmake --build build/runner-sanitized -j2
	ctest --test-dir build/runner-sanitized --output-on-failure

.PHONY: lint
lint: $(DEV) ## Check style and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

.PHONY: types
types: $(DEV) ## Check types
	$(BIN)/mypy

.PHONY: check
check: lint types test ## Everything that must pass before a commit

.PHONY: bench
bench: $(RUNTIME) ## Measure throughput and latency on this machine
	$(BIN)/python -m bench

.PHONY: fmt
fmt: $(DEV) ## Format the code and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: clean
clean: ## Remove everything generated, except job data in .stoker
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Stoker needs Python 3.11 or later; '$(PYTHON)' is not." >&2; \
	  echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(RUNTIME): pyproject.toml $(RUNNER_SOURCES) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(DEV): pyproject.toml $(RUNNER_SOURCES) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(RUNTIME)
