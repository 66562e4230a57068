# Everything CI runs can be run here, one target each. Tools come from the environment that `make venv` builds.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
TRACE  ?=
KIND   ?=
QUICK  ?=
ONLY   ?=
JSON   ?=
RECORD ?=
CHURN  ?=
KEEP   ?=
TESTS  ?=
WORKERS ?= 16
OPTIONS ?=
FUZZ   ?= 50000
STEPS  ?= 1000000
TREES  ?= 20000
MINUTES ?= 60
TIMES  ?= 20
SEED   ?= 0

# Python is started hundreds of times by a run of the tests: what it has compiled is kept, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

IMAGE    := proto/image.binpb

.DEFAULT_GOAL := help
.PHONY: help venv runtime demo docs docs-serve changes release picture test test-costs long alone hostile failovers outages test-go test-stubs test-workers test-shim test-kubernetes soak search planted rules fuzz bench bench-baseline lint format types proto proto-go proto-check proto-image lock ci nightly clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# A Python that the caller names is the one to use; one that is only the default leaves an environment as it is.
ENVIRONMENT := sh requirements/environment.sh
INTERPRETER := "$(VENV)" "$(PYTHON)" $(if $(filter file,$(origin PYTHON)),,named)

venv: ## build the environment with all tools, or bring it up to date with the lock files
	@$(ENVIRONMENT) dev $(INTERPRETER)

runtime: ## build as much of the environment as Kornel runs with: a fifth of the size
	@$(ENVIRONMENT) runtime $(INTERPRETER)

demo: runtime ## run a core with a simulated cluster (TRACE=dir, KIND=quota; KEEP=1 leaves core and web page up)
	$(BIN)/python -m kornel.shim_mock demo $(if $(TRACE),--trace $(TRACE)) $(if $(KIND),--kind $(KIND)) $(if $(filter-out 0,$(KEEP)),--keep)

docs: venv ## build the documentation as a site, in build/site
	$(BIN)/python -m mkdocs build --strict

docs-serve: venv ## show the documentation at http://127.0.0.1:8000, built again whenever a page changes
	$(BIN)/python -m mkdocs serve --strict

picture: venv ## take the picture of the web page that the README shows, of a simulated cluster; needs a browser
	$(BIN)/python -m docs.site.picture

RELEASE = $(shell sed -n 's/^RELEASE = "\(.*\)"/\1/p' kornel/__init__.py)

changes: venv ## show what the files in changelog.d say of the next release
	$(BIN)/towncrier build --draft --version $(RELEASE)

release: venv ## turn the tree into the release that kornel/__init__.py names: changes, wire, journals, digest
	$(BIN)/towncrier build --yes --version $(RELEASE)
	$(MAKE) proto-image
	$(BIN)/python -m tests.unit.journal.keep_version
	digest=$$($(BIN)/python -c 'import kornel; print(kornel.digest_code())') && \
		sed -i "s/^RELEASED = .*/RELEASED = \"$$digest\"/" kornel/__init__.py

# Many tests wait for processes and timers most of the time: as many workers run as keep the processors busy.
SPREAD := --workers $(WORKERS)

test: venv ## run the tests: about six minutes on two cores (TESTS=path: a part; OPTIONS="-p tests.costs": the costs)
	$(BIN)/python -m pytest $(OPTIONS) $(if $(TESTS),$(TESTS),$(SPREAD))

test-costs: venv ## run the test suite, and note what its costliest parts cost, which come first from then on
	KORNEL_TEST_COSTS=tests/costs.json $(BIN)/python -m pytest -p tests.costs $(SPREAD)

long: venv ## run what takes long or judges time or memory: all examples of properties, kills, the wheel
	$(BIN)/python -m pytest $(OPTIONS) -m "(long or hypothesis) and not alone" --hypothesis-profile=long $(SPREAD)
	$(BIN)/python -m pytest $(OPTIONS) -m long tests/go

alone: venv ## run what measures the machine, with nothing beside it
	$(BIN)/python -m pytest $(OPTIONS) -m alone tests/performance

hostile: venv ## attack served cores, and judge what that costs them, before a release: about seven minutes
	$(BIN)/python -m pytest $(OPTIONS) tests/hostile

failovers: venv ## kill three cores at random under a simulated cluster (MINUTES=): the books agree at the end
	KORNEL_KILLING_MINUTES=$(MINUTES) $(BIN)/python -m pytest $(OPTIONS) -s -m long -k random_kills tests/e2e/test_standby.py

outages: venv ## measure how long shims of three kinds wait when a leader fails, with nothing beside it (TIMES=): a table
	KORNEL_OUTAGES=$(TIMES) $(BIN)/python -m pytest $(OPTIONS) -s tests/performance/test_outages.py

soak: venv ## do a million random steps and check each (STEPS=, SEED=); failures go to build/
	$(BIN)/python -m tests.properties.machine --steps $(STEPS) --seed $(SEED)

# It needs Go, whose tests say so and are skipped where it is missing.
test-go: venv ## test what is written in Go: its tests, its stubs, and its example against the kit; five minutes cold
	$(BIN)/python -m pytest $(OPTIONS) tests/go

test-stubs: venv ## follow the page for shims in Java and TypeScript, up to the kit (skips what has no tools here)
	$(BIN)/python -m pytest $(OPTIONS) tests/stubs

# Beside the environment of the tools, whose packages it sees, so that it has nothing but the frameworks.
test-workers: venv ## run workers of Dask and Ray as groups of kornel-local; fetches their packages (skips what cannot be had)
	$(BIN)/python -m venv build/workers
	$(BIN)/python -c 'import site; print(*site.getsitepackages())' > $$(echo build/workers/lib/python*/site-packages)/tools.pth
	-build/workers/bin/python -m pip install --quiet distributed
	-build/workers/bin/python -m pip install --quiet ray
	build/workers/bin/python -m pytest $(OPTIONS) -rs tests/frameworks

test-shim: venv ## test YuniKorn's Kubernetes shim at a core; ten minutes cold, half a minute after that
	$(BIN)/python -m pytest $(OPTIONS) tests/go/test_kubernetes_shim.py

# The API server is built once, which takes ten minutes and more of processor time; Go keeps what it has compiled.
test-kubernetes: venv ## test core and shim at a real API server (TESTS=file for a part): needs Go, or is skipped
	$(BIN)/python -m pytest $(OPTIONS) -rs $(or $(TESTS),tests/kubernetes)

search: venv ## try all properties with new examples (MINUTES=, or SEED= for one round; TESTS= for a part of them)
	$(BIN)/python -m tests.search $(if $(filter-out 0,$(SEED)),--seed $(SEED),--minutes $(MINUTES)) $(TESTS)

planted: venv ## plant faults in a copy of the tree, one after the other: a test finds each (ONLY="name ..."); five minutes
	$(BIN)/python -m tests.planted $(ONLY)

rules: venv ## hold 20,000 random clusters against the rules of preemption (TREES=, SEED=)
	$(BIN)/python -m tests.properties.preemption_rules --trees $(TREES) --seed $(SEED)

fuzz: venv ## throw texts at the configuration loader (FUZZ=number of each kind)
	FUZZ=$(FUZZ) $(BIN)/python -m pytest tests/unit/config/test_any_text.py

bench: venv ## measure P1 to P21 (QUICK=1: five minutes; TRACE=dir, ONLY=P2,P6, CHURN=seconds, JSON=file, RECORD=1)
	$(BIN)/python -m tests.bench $(if $(QUICK),--quick) $(if $(TRACE),--trace $(TRACE)) $(if $(ONLY),--only $(ONLY)) \
		$(if $(CHURN),--churn $(CHURN)) $(if $(JSON),--json $(JSON)) $(if $(RECORD),--record)

bench-baseline: venv ## make today's instructions per ask the baseline of the gate in the tests
	$(BIN)/python -m tests.bench.opcodes --record
	$(BIN)/python -m tests.bench.around --record

lint: venv ## check code style, formatting and the Dockerfiles
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/hadolint Dockerfile shim_k8s/Dockerfile

format: venv ## fix formatting and what the linter can fix safely
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: venv ## check types, strictly, and that tests name nothing that is not there
	$(BIN)/mypy --strict --package kornel --package tests

proto: venv ## generate the committed stubs from the .proto files
	$(BIN)/python proto/generate.py

proto-go: venv ## generate the committed Go stubs from the .proto files; needs Go
	$(BIN)/python clients/go/generate.py

proto-check: venv ## stubs are up to date, .proto files are clean and break no client
	$(BIN)/python proto/generate.py --check
	$(BIN)/buf lint
	$(BIN)/buf format --diff --exit-code
	$(BIN)/buf breaking --against $(IMAGE)

# The image is what released clients were built from: move it with a release, never to silence proto-check.
proto-image: venv ## make the .proto files of now the ones that later changes must not break
	$(BIN)/buf build --exclude-source-info --output $(IMAGE)

EXTRAS := --extra postgres --extra tracing --extra ldap
UV_COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-emit-index-url --no-emit-find-links $(UPGRADE)

lock: ## resolve the lock files again (UPGRADE=--upgrade for newer versions)
	test -x $(BIN)/uv || { $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet uv; }
	$(UV_COMPILE) pyproject.toml $(EXTRAS) --output-file requirements/runtime.lock
	$(UV_COMPILE) --group build --constraint requirements/runtime.lock --output-file requirements/build.lock
	$(UV_COMPILE) pyproject.toml $(EXTRAS) --group dev --constraint requirements/runtime.lock \
		--constraint requirements/build.lock --output-file requirements/dev.lock

ci: ## run what CI runs for every change
	.ci/run

nightly: ci test-stubs test-workers long alone hostile ## run what CI runs, then everything that takes long or measures: three quarters of an hour

clean: ## remove the environment and everything generated outside version control
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
