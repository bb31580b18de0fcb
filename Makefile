# Every target does its own set-up in .venv; the second time nothing is installed again.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Exit code 0 where requirements.lock has the hashes of this platform's files.
export LOCKED := import platform, sys; here = sys.implementation.name, *sys.version_info[:2], sys.platform, platform.machine(); sys.exit(here != ('cpython', 3, 11, 'linux', 'x86_64'))

.PHONY: demo test test-all lint types lock audit-deps docs docs-only bench bench-quick bench-records clean
.DEFAULT_GOAL := test

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	@if $(BIN)/python -c "$$LOCKED"; \
	  then $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock; \
	  else echo "The hashes of requirements.lock are those of CPython 3.11 on Linux x86-64; here its versions count."; \
	    sed -n 's/^\([A-Za-z0-9._-]*==[^ ]*\).*/\1/p' requirements.lock > $(VENV)/pins.txt; \
	    $(BIN)/pip install --quiet --disable-pip-version-check -r $(VENV)/pins.txt; fi
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

demo: $(READY)
	$(BIN)/python examples/demo.py

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow and not bench"

test-all: $(READY)
	HYPOTHESIS_PROFILE=random $(BIN)/python -m pytest -n 2 --dist loadgroup

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: $(READY)
	$(BIN)/mypy src/dplateau
	$(BIN)/python -m pytest -n 0 tests/test_documents.py -k mypy

# Pin pyproject.toml and everything beneath it by hash; pins that are there stay (UPGRADE=--upgrade moves them).
lock:
	$(BIN)/pip-compile --quiet --all-extras --generate-hashes --allow-unsafe --strip-extras \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-annotate --no-header \
	  $(UPGRADE) --output-file requirements.lock pyproject.toml

# Versions, hashes, and known advisories: OSV's, or those of the database that ADVISORIES names.
audit-deps:
	$(PYTHON) .ci/audit_deps.py

# The pages' code is run first; a page that shows what is no longer printed fails the build.
docs: $(READY)
	$(BIN)/python docs/generate.py
	$(BIN)/python -m pytest -n 2 tests/test_documents.py
	$(MAKE) docs-only

docs-only: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

# Peers get environments of their own under .venvs; measurements made once are not made again.
bench: $(READY)
	$(BIN)/python -m benchmarks --size full

bench-quick: $(READY)
	$(BIN)/python -m benchmarks --size quick --out out/bench-quick

bench-records: $(READY)
	mkdir -p out
	$(BIN)/python examples/records/mnist_scattering.py --features out/scattering.npz
	$(BIN)/python examples/records/mnist_scattering.py --features out/scattering.npz --search
	$(BIN)/python examples/records/heart.py $(HEART) $(if $(HEART),--out examples/records/results)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache site out
