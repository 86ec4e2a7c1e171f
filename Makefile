# The two commands: `make run` and `make test`. Each works alone, right after git clone. `make help` lists the others.
# Written for GNU make 3.81 and a POSIX shell.

SHELL = /bin/sh
BIN = .venv/bin
TIER ?= 1
WORKERS ?= 2
PYTEST_ARGS ?=
RUN_ARGS ?=
PYTEST = $(BIN)/python -m pytest -n $(WORKERS)

# Compiled code is kept, whatever the shell says: each of the many processes of a lake and of its tests would compile all of it again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help run test test-full test-bare check bench bench-cdc lock bootstrap ready format

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -e 's/:[^#]*## /@/' | awk -F '@' '{ printf "  make %-12s %s\n", $$1, $$2 }'

ready: ## install the environment, Spark's jars, those of the tests' servers and an archive of Spark's classes, and nothing else
	@sh scripts/bootstrap.sh
	@$(BIN)/python -m tests.support.stack_jars
	@$(BIN)/python -m tests.support.archive

run: ## the flights lake, running by itself in the Dagster UI (Ctrl-C ends all of it; RUN_ARGS="--port 3001" goes to lakechime dev)
	@sh scripts/bootstrap.sh
	@exec $(BIN)/lakechime dev $(RUN_ARGS)

test: ## the first tier of tests, in WORKERS=2 processes (TIER=2 and TIER=3 for the others; PYTEST_ARGS="…" chooses tests)
	@sh scripts/bootstrap.sh
	@test -n "$(PYTEST_ARGS)" || $(BIN)/python -m tests.support.archive
	@if test -n "$(PYTEST_ARGS)"; then $(PYTEST) $(PYTEST_ARGS); else $(PYTEST) -m tier$(TIER); fi

test-full: ready ## all three tiers, with kills, soak, long histories and a bare machine
	@status=0; for tier in 1 2 3; do LAKECHIME_TEST_EXAMPLES=300 $(MAKE) --no-print-directory test TIER=$$tier || status=1; done; exit $$status

check: bootstrap ## style, types, layers, cheap imports, Dagster definitions
	@$(BIN)/python scripts/check.py

bench: ## measure: goal, value and verdict per line
	@sh scripts/bootstrap.sh
	@$(BIN)/python scripts/bench.py

bench-cdc: ## our merge of a database's changes beside what people use, 10 million rows (LAKECHIME_BENCH_ROWS=…; 1 million in `make bench`)
	@sh scripts/bootstrap.sh
	@LAKECHIME_BENCH_ROWS=$${LAKECHIME_BENCH_ROWS:-10000000} $(BIN)/python -m benchmarks.cdc

test-bare: ## a clone on a bare machine: empty home, no environment, no Java (tier 3 includes it)
	@sh scripts/test_bare.sh test

format: bootstrap ## format the code
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format --quiet .

lock: bootstrap ## resolve pyproject.toml into requirements.lock (UPGRADE=--upgrade for newer versions)
	@UV_SYSTEM_CERTS=1 $(BIN)/uv pip compile --quiet --universal --generate-hashes --all-extras --python-version 3.11 --no-header \
		--no-annotate --no-emit-index-url --no-emit-find-links $(UPGRADE) -o requirements.lock pyproject.toml >/dev/null
	@echo "requirements.lock is written; the next make installs it"

bootstrap:
	@sh scripts/bootstrap.sh --no-jars
