# `make run` and `make test` set up everything they need; nothing is done twice.
BIN := .venv/bin
PYTHON ?= $(shell for p in python3.11 python3; do $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

# Two processes with one thread each; the tests of a file share what they set up.
TESTED := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile

.PHONY: run test test-slow lint docs claims format contract bench ui setup

run: setup
	@$(BIN)/posttrain run language

test: setup
	$(TESTED) -m "not slow and not gpu"

test-slow: setup
	$(TESTED) -m "slow and not gpu"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The documentation as a site, in site/; a page or a link that is not there fails.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The numbers of README, LOG and benchmarks against the files of results.
claims: setup
	$(BIN)/python -m benchmarks.claims

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Rewrite what is derived from the code: the code deps in dvc.yaml, params.schema.json, docs/parameters.md and docs/metrics.md.
contract: setup
	$(BIN)/python -m tasks.contract

bench: setup
	$(BIN)/python -m benchmarks.engine
	$(BIN)/python -m benchmarks.rl

ui: setup
	$(BIN)/posttrain ui

setup: .venv/installed .dvc/config

.venv/installed: requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "posttrain needs Python 3.11 or later on the PATH" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing the packages of requirements.lock into .venv (some minutes, once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.dvc/config: | .venv/installed
	@if test -d .git; then $(BIN)/dvc init --quiet; else $(BIN)/dvc init --quiet --no-scm; fi
