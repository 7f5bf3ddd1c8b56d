# Every target sets up what it needs in .venv from the hash-locked requirements.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARGS ?=
SEEDS ?= 200
FIRST_SEED ?= 1
CASES ?= 5000
# Pods that come at once, far above the limits of their pools; 0 leaves that run out.
BURST ?= 10000
# Simulated days of coming and going in one process; 0 leaves that run out.
DAYS ?= 30
# Processes that share the seeds.
WORKERS ?= 1

.PHONY: venv demo test check e2e e2e-full soak bench format lock clean

venv: $(STAMP)

$(STAMP): requirements/dev.txt requirements/bootstrap.txt pyproject.toml scripts/install
	@PYTHON=$(PYTHON) scripts/install $(VENV) dev
	@touch $(STAMP)

demo: $(STAMP)
	@$(BIN)/pykarpenter demo $(ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest -q $(ARGS)

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_sizes.py
	$(BIN)/python scripts/chart_parts.py --check
	$(BIN)/helm lint --quiet --strict charts/pykarpenter
	$(BIN)/helm template karpenter charts/pykarpenter --namespace karpenter --include-crds > /dev/null

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Two workers with a cluster each. The first run builds Kubernetes into the user's cache folder.
E2E := $(BIN)/python -m pytest -q -o addopts="-ra --strict-markers" -n 2 --dist loadfile tests/e2e

e2e: $(STAMP)
	$(BIN)/python -m tests.e2e.cluster build
	$(E2E) -m "not full" $(ARGS)

e2e-full: $(STAMP)
	$(BIN)/python -m tests.e2e.cluster build
	$(E2E) $(ARGS)

# Every part runs, whatever came of the others; the summary at the end says which failed.
soak: $(STAMP)
	$(BIN)/python -m tests.soak.every --cases $(CASES) --seeds $(SEEDS) --first-seed $(FIRST_SEED) --workers $(WORKERS) --burst $(BURST) --days $(DAYS) $(ARGS)

bench: $(STAMP)
	$(BIN)/python -m benchmarks $(ARGS)

# Locks record versions and hashes only, never where a package was fetched from.
lock:
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --all-extras --group dev --python-version 3.11 pyproject.toml requirements/build.in -o requirements/dev.txt
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --extra solver --extra repair --extra aws --python-version 3.11 -c requirements/dev.txt pyproject.toml requirements/build.in -o requirements/run.txt
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 requirements/bootstrap.in -o requirements/bootstrap.txt

clean:
	rm -rf $(VENV) build dist
