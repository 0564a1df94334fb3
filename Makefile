# Everything a person does with this tree. `make` alone lists it.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# Three stamps: `make run` needs the program alone, which installs in a fraction of the time of the tools, and only
# `make bench-postgres` needs those that it is compared with.
RUNTIME := $(VENV)/.runtime-installed
DEV     := $(VENV)/.dev-installed
BENCH   := $(VENV)/.bench-installed

# The runner is built on install, so a change of its sources asks for another one.
RUNNER_SOURCES := CMakeLists.txt $(shell find runner -name '*.cpp' -o -name '*.h' -o -name CMakeLists.txt)

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  \033[1m%-14s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(DEV) ## Make .venv with Stoker and all tools in it

.PHONY: run
run: $(RUNTIME) ## Start the whole system: API, coordinator, two workers; with your tasks: APP=tasks:app
	$(BIN)/stoker up$(if $(APP), --app $(APP))

# Most tests wait for real processes, so three at a time serve two cores.
SIDE_BY_SIDE := -n 3 --dist worksteal

.PHONY: test
test: $(DEV) ## Run the tests; one that fails beside others runs once more, alone
	$(BIN)/python -m tests.again $(SIDE_BY_SIDE)

.PHONY: test-stores
test-stores: $(DEV) ## Run the end-to-end tests on SQLite and on PostgreSQL, all of them, and more of the model
	E2E_STORES=all $(BIN)/python -m pytest $(SIDE_BY_SIDE) tests/e2e
	MODEL_STORIES=200 $(BIN)/python -m pytest tests/conformance/test_model.py

.PHONY: test-portable
test-portable: $(DEV) ## Run the end-to-end tests on what other systems than Linux have (STOKER_PORTABLE=1)
	STOKER_PORTABLE=1 $(BIN)/python -m pytest $(SIDE_BY_SIDE) tests/e2e

.PHONY: schedule-years
schedule-years: $(DEV) ## Live through SEEDS=20 years of 50 schedules in virtual time, then find the bugs planted into them
	$(BIN)/python -m tests.sim.year --seeds $(or $(SEEDS),20)
	$(BIN)/python -m tests.sim.year --mutants

.PHONY: wheels
wheels: $(DEV) ## Look up that PyPI has a wheel of every dependency for macOS, Windows and Linux (network)
	$(BIN)/python -m tests.wheels

.PHONY: wheel-test
wheel-test: ## Build sdist and wheel, install them into empty environments, with and without a compiler, and try them (network)
	$(PYTHON) tests/wheel.py

.PHONY: types-test
types-test: $(DEV) ## Check the SDK's types with mypy and with Pyright, both strict
	$(BIN)/python -m pytest tests/typing

.PHONY: cluster
cluster: $(DEV) ## Three coordinators, four workers, PostgreSQL and Redis: 20,000 jobs, each killed in turn
	CLUSTER_JOBS=20000 CLUSTER_LOST_COMMITS=1000 $(BIN)/python -m pytest tests/e2e/test_cluster.py

.PHONY: sdk-death
sdk-death: $(DEV) ## 10,000 submits of the SDK on each store while the coordinator is killed again and again
	SDK_DEATH_JOBS=10000 $(BIN)/python -m pytest $(SIDE_BY_SIDE) tests/e2e/test_sdk_death.py

.PHONY: chaos
chaos: $(DEV) ## Break everything that can break, for minutes or HOURS=8, and check what became of the jobs
	$(BIN)/python -m tests.chaos $(if $(HOURS),--hours $(HOURS)) $(if $(SEED),--seed $(SEED))

.PHONY: runner-test
runner-test: ## Test the C++ runner under ASan and UBSan (needs cmake and a C++17 compiler)
	cmake -S . -B build/runner-sanitized -DSTOKER_SANITIZE=ON
	cmake --build build/runner-sanitized -j2
	ctest --test-dir build/runner-sanitized --output-on-failure
	cmake -S . -B build/runner-portable -DSTOKER_PORTABLE=ON -DSTOKER_TESTS=OFF
	cmake --build build/runner-portable -j2
	build/runner-portable/runner/stoker-runner --job-id x --type network_task --payload '{"requests": 20}'

.PHONY: operate-test
operate-test: $(DEV) ## Test metrics, alerts and dashboard with a real Prometheus (Debian: prometheus)
	OPERATE_TESTS=1 $(BIN)/python -m pytest tests/operate

.PHONY: docker-test
docker-test: $(DEV) ## Test images, autoscaler and compose with a real Docker engine (root; Debian: docker.io debootstrap docker-compose)
	DOCKER_TESTS=1 $(BIN)/python -m pytest tests/operate/test_docker.py

# In an environment of its own: the generator wants an older Typer than the one that we would get.
.PHONY: openapi-test
openapi-test: $(DEV) ## Generate clients from both OpenAPI documents and compare their operations with ours
	$(PYTHON) -m venv build/openapi-tools
	build/openapi-tools/bin/python -m pip install --quiet --disable-pip-version-check 'openapi-python-client>=0.29'
	OPENAPI_PYTHON_CLIENT=$(CURDIR)/build/openapi-tools/bin/openapi-python-client $(BIN)/python -m pytest tests/unit/test_openapi30.py

.PHONY: metrics-test
metrics-test: $(DEV) ## Measure a scrape of /metrics with a million finished jobs and 100 workers
	METRICS_TESTS=1 $(BIN)/python -m pytest tests/unit/test_metrics_cost.py -s

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

SEEDS ?= 200
START ?= 0

.PHONY: sim
sim: $(DEV) ## Simulate the whole system with faults: SEEDS=200, or one with its trace: SEED=42
	$(BIN)/python -m tests.sim $(if $(SEED),--seed $(SEED) --trace,--seeds $(SEEDS) --start $(START))

.PHONY: sim-hashes
sim-hashes: $(DEV) ## Compare the traces of 100 seeds with those that were committed; WRITE=100 writes them anew
	$(BIN)/python -m tests.sim $(if $(WRITE),--write-hashes $(WRITE),--check-hashes)

.PHONY: mutants
mutants: $(DEV) ## Plant bugs and count the seeds until the simulation finds each
	$(BIN)/python -m tests.sim.mutants

.PHONY: crash-points
crash-points: $(DEV) ## Kill a process at every named point around commit, answer, send and spawn, on both stores (minutes)
	CRASH_POINTS=1 $(BIN)/python -m pytest tests/chaos/test_crash_points.py

.PHONY: bench
bench: $(RUNTIME) ## Measure throughput and latency on this machine
	$(BIN)/python -m bench

.PHONY: large-payloads
large-payloads: $(DEV) ## Memory, rate and waits with 1,000 payloads of 4 MiB, on both stores: JOBS=n, MIB=n
	$(BIN)/python -m bench.large_payloads --jobs $(or $(JOBS),1000) --mib $(or $(MIB),4)

.PHONY: bench-postgres
bench-postgres: $(BENCH) ## The same on PostgreSQL, beside pgqueuer and Procrastinate
	$(BIN)/python -m bench.postgres

.PHONY: bench-peers
bench-peers: $(DEV) ## Stoker through its SDK beside ten other queues, each in its own environment (20 minutes; QUICK=1, ROUNDS=5, SYSTEMS="…", DOCS=1)
	$(BIN)/python -m bench.peers $(if $(QUICK),--quick) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SYSTEMS),--systems $(SYSTEMS)) $(if $(JSON),--json $(JSON)) $(if $(DOCS),--write-docs)

.PHONY: growth
growth: $(DEV) ## Rate and latency as backlog, history, workers, payloads and queues grow (10 minutes; QUICK=1, ROUNDS=3, CURVES="…", DOCS=1)
	$(BIN)/python -m bench.peers growth $(if $(QUICK),--quick) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(CURVES),--curves $(CURVES)) $(if $(JSON),--json $(JSON)) $(if $(DOCS),--write-docs)

PAIRS ?= 10

.PHONY: cost
cost: $(DEV) ## CPU, system calls and transactions per job of each process; BASE=REV compares, in PAIRS=10; QUICK=1
	$(BIN)/python -m bench.cost $(if $(BASE),--base $(BASE) --pairs $(PAIRS)) $(if $(QUICK),--quick) $(if $(JSON),--json $(JSON))

.PHONY: path
path: $(DEV) ## Count the files and functions that one job and one GET pass through, by process; FUNCTIONS=1 names them
	$(BIN)/python -m bench.path $(if $(FUNCTIONS),--functions)

.PHONY: unique
unique: $(DEV) ## Submit SUBMISSIONS=10000 jobs with 100 unique keys at two owners of one PostgreSQL, with dead workers
	UNIQUE_SUBMISSIONS=$(or $(SUBMISSIONS),10000) $(BIN)/python -m pytest -q tests/conformance/test_unique_shared.py

.PHONY: urgent
urgent: $(DEV) ## Start urgent jobs amid floods of short ones, on both stores, 1 and 4 workers (4 minutes); JOBS=500000 is a flood
	$(BIN)/python -m bench.urgent $(if $(JOBS),--jobs $(JOBS)) $(PARTS)

.PHONY: waits
waits: $(DEV) ## Wait for 10,000 finished jobs in Python, and submit while 2,000 are awaited; a minute
	$(BIN)/python -m bench.waits $(if $(JOBS),--jobs $(JOBS))

.PHONY: reads
reads: $(DEV) ## Ask for every GET with JOBS=5000000 queued and as many finished jobs, on both stores (10 GB in build/reads)
	$(BIN)/python -m bench.reads --jobs $(or $(JOBS),5000000) $(or $(STORES),sqlite postgres)

.PHONY: docs
docs: $(DEV) ## Write the reference pages again, from the code
	$(BIN)/python -m stoker.api.reference > docs/reference/rest.md
	$(BIN)/python -m stoker.api.problems > docs/reference/errors.md
	$(BIN)/python -m stoker.cli.reference > docs/reference/cli.md
	$(BIN)/python -m stoker.cli.exits > docs/reference/exit-codes.md
	$(BIN)/python -m stoker.logs.events > docs/reference/events.md
	$(BIN)/python -m stoker.coordinator.metric_table > docs/reference/metrics.md
	$(BIN)/python -m stoker.settings > docs/reference/settings.md
	$(BIN)/python -m stoker.sdk_reference > docs/reference/sdk.md

.PHONY: web
web: ## Build the dashboard from web/ into src/stoker/dashboard (needs Node 20.19 or later)
	cd web && npm ci && npm run build

.PHONY: web-types
web-types: build/openapi.json web/node_modules ## Write the dashboard's types of the API again, from the OpenAPI document
	cd web && npm run api-types

.PHONY: web-test
web-test: web/node_modules ## Test the dashboard: units, style, types
	cd web && npm run lint && npm run types && npm test

.PHONY: web-check
web-check: build/openapi.json web/node_modules ## Check that the dashboard in the package is what its source builds
	cd web && npm run api-types -- --check || { echo "web/src/api/openapi.ts is stale: run 'make web-types' and commit it" >&2; exit 1; }
	rm -rf build/dashboard
	cd web && STOKER_DASHBOARD_OUT=$(CURDIR)/build/dashboard npm run build
	diff -r build/dashboard src/stoker/dashboard || { echo "src/stoker/dashboard is stale: run 'make web' and commit it" >&2; exit 1; }

# Made anew each time: it depends on most of the API's code.
.PHONY: build/openapi.json
build/openapi.json: $(DEV)
	@mkdir -p build
	$(BIN)/python -m stoker.api.openapi > $@

web/node_modules: web/package-lock.json
	cd web && npm ci
	@touch $@

.PHONY: browser-test
browser-test: $(DEV) web/node_modules ## Test the dashboard in a real browser on a real system (Debian: chromium)
	BROWSER_TESTS=1 $(BIN)/python -m tests.again tests/browser

.PHONY: dashboard-load
dashboard-load: $(DEV) ## Measure the dashboard with a million jobs, and with 5,000 jobs a second
	BROWSER_TESTS=1 DASHBOARD_LOAD=1 $(BIN)/python -m pytest tests/browser/test_load.py

.PHONY: screenshots
screenshots: $(DEV) ## Take the pictures of docs/dashboard.md anew, from a real system
	$(BIN)/python -m tests.browser.screenshots

.PHONY: transcript
transcript: $(DEV) ## Write what `stoker up` shows on a terminal into docs/logs.md anew, from a real system
	$(BIN)/python -m tests.e2e.transcript

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
	@echo 'Installing Stoker into $(VENV), once; it takes a minute or two.'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(DEV): pyproject.toml $(RUNNER_SOURCES) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(RUNTIME)

$(BENCH): pyproject.toml $(RUNNER_SOURCES) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,bench]'
	@touch $@ $(DEV) $(RUNTIME)
