# Every target sets up what it needs: python3 with venv is all that must be there.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip -qq --disable-pip-version-check --no-input
# Folder of the DTLN models, which are not part of this repository (benchmarks/dtln.py).
DTLN   ?= dtln
# Timing is pinned to one core where the system can do that and has a second core for the rest.
PIN    := $(shell command -v taskset >/dev/null 2>&1 && [ "$$(nproc)" -gt 1 ] && echo taskset -c 1)

.PHONY: help demo test test-targets test-extras bench lint dist clean
help:
	@echo "make demo    denoise a noisy signal frame by frame; results in demo-output/"
	@echo "make test    run the tests; make test FAST=1 covers every room in about 90 seconds"
	@echo "make test-targets   run what needs emulators, wine or a browser; installs Debian's where it may"
	@echo "make test-extras    run what needs torch, Ray, a server or packages of others, in environments of their own"
	@echo "make bench   measure against other runtimes"
	@echo "make lint    style, types, layers"
	@echo "make dist    a wheel and a source distribution in dist/"
	@echo "make clean   remove $(VENV) and everything generated"

$(VENV)/.ready: pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (a minute or two, once) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install -c constraints.txt setuptools
	@$(PIP) install -c constraints.txt --no-build-isolation -e ".[build,demo,dev]"
	@touch $@

$(VENV)/.bench-ready: $(VENV)/.ready
	@echo "Installing the runtimes to compare with ..."
	@$(PIP) install -c constraints.txt --no-build-isolation -e ".[bench]" 2>/dev/null \
	  || echo "Not all of them exist for this system: those already there are measured."
	@touch $@

demo: $(VENV)/.ready
	@$(BIN)/ostinato demo --output demo-output

test: $(VENV)/.ready
	@$(BIN)/python -m pytest -q -n auto --dist worksteal $(if $(FAST),--fast)

# What cannot be installed is said, and the tests that need it are skipped.
test-targets: $(VENV)/.ready
	@$(BIN)/python -m tools.install_targets
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile -m targets tests/targets

# What cannot be installed is said, and the tests that need it are skipped.
test-extras:
	@$(PYTHON) -m tools.install_extras
	@.extras/main/bin/python -m pytest -q -n 2 --dist loadfile -m extras tests/extras

bench: $(VENV)/.bench-ready
	@$(PIN) $(BIN)/python -m benchmarks.roofline
	@$(PIN) $(BIN)/python -m benchmarks.bench_calls
	@$(PIN) $(BIN)/python -m benchmarks.bench_ops
	@$(PIN) $(BIN)/python -m benchmarks.bench_micro
	@if [ -d "$(DTLN)" ]; then \
	  for part in dtln compile memory; do \
	    $(PIN) $(BIN)/python -m benchmarks.bench_$$part --models "$(DTLN)" || exit 1; \
	  done; \
	else echo "No folder $(DTLN): make bench DTLN=DIR adds the DTLN benchmarks."; fi

lint: $(VENV)/.ready
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo
	@echo "lint: all clean"

# The wheel is made from the source distribution, so that both are whole.
dist: $(VENV)/.ready
	@$(PIP) install -c constraints.txt build
	@rm -rf dist build
	@$(BIN)/python -m build --no-isolation --outdir dist .
	@rm -rf build

clean:
	@rm -rf $(VENV) .extras build dist demo-output *.egg-info .pytest_cache .mypy_cache .ruff_cache \
	  .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
