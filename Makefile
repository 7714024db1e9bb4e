# `make run` and `make test` set up everything they need; nothing is done twice.
BIN := .venv/bin
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo $$p && break; done)

# Two processes with one thread each; the tests of a file share what they set up.
# Bytecode is written whatever the environment says: the tests start hundreds of processes.
TESTED := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile

.PHONY: run check test test-core test-slow lint docs claims format contract bench ui setup developer python lock hooks

run: setup
	@$(BIN)/posttrain run language

# For the loop of one's hands: lint, and the tests that the uncommitted change can reach by imports.
check: lint
	@$(BIN)/python -m tests.suite check

test: developer
	$(TESTED) -m "not slow and not gpu"

# One run of each flow at toy size, one kill, one verify.
test-core: developer
	$(TESTED) -m "slow and core and not gpu"

# All slow tests; a run that was stopped goes on where it was, as long as no file has changed.
test-slow: developer
	@$(BIN)/python -m tests.suite slow

lint: developer
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry . --no-ansi

# The documentation as a site, in site/; a page or a link that is not there fails.
docs: developer
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/index.html opens from the folder; with search: $(BIN)/python -m http.server -d site -b 127.0.0.1 8000"

# Blocks of measured numbers against their result files; --write makes them again.
claims: developer
	$(BIN)/python -m benchmarks.claims

format: developer
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Rewrite what is derived from the code: the params and the code dep of each stage in dvc.yaml, params.schema.json, and the pages of docs/parameters and docs/metrics.
contract: developer
	$(BIN)/python -m tasks.contract

bench: developer
	$(BIN)/python -m benchmarks.engine
	$(BIN)/python -m benchmarks.rl

ui: setup
	$(BIN)/posttrain ui

# Before a push git says whether .ci/run has passed on the commit.
hooks:
	@cp .ci/pre-push "$$(git rev-parse --git-path hooks)/pre-push" && chmod +x "$$(git rev-parse --git-path hooks)/pre-push"

# What a run needs; `developer` adds what tests, documentation and lint need. Both are done again when a lock file changes.
setup: python
	@$(PYTHON) deploy/install.py

developer: python
	@$(PYTHON) deploy/install.py --dev

python:
	@test -n "$(PYTHON)" || { echo "posttrain needs Python 3.11, 3.12 or 3.13 on the PATH" >&2; exit 1; }

# The lock files from pyproject.toml; UPGRADE="NAME .." takes the newest versions of these packages.
lock: developer
	$(BIN)/python deploy/lock.py --upgrade $(UPGRADE)
