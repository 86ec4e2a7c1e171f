# The two commands: `make run` and `make test`. Each works alone, right after git clone. `make help` lists the others.
# Written for GNU make 3.81 and a POSIX shell.

SHELL = /bin/sh
BIN = .venv/bin
PYTEST_ARGS ?=
WORKERS ?= 3
RUN_ARGS ?=
TARGET ?= test
KILLS ?= 100
MINUTES ?= 30

# Compiled code is kept, whatever the shell says: each of the many processes of a lake and of its tests would compile all of it again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help run test check features bench bench-cdc test-bare test-crash test-cdc-long test-streams test-soak lock bootstrap ready format

help: ## say what there is
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -e 's/:[^#]*## /@/' | awk -F '@' '{ printf "  make %-12s %s\n", $$1, $$2 }'

ready: ## the environment, Spark's jars and those of the tests' servers, and nothing else
	@sh scripts/bootstrap.sh
	@$(BIN)/python -m tests.support.stack_jars
	@$(BIN)/python -m tests.support.iceberg_jar

run: ## the flights lake, running by itself in the Dagster UI (Ctrl-C ends all of it; RUN_ARGS="--port 3001" goes to lakechime dev)
	@sh scripts/bootstrap.sh
	@exec $(BIN)/lakechime dev $(RUN_ARGS)

test: ## everything that can be tested on this machine in WORKERS=3 processes, then test-streams alone (PYTEST_ARGS="…" goes to pytest)
	@sh scripts/bootstrap.sh
	@mkdir -p build
	@test -n "$(PYTEST_ARGS)" || { \
		$(BIN)/python -m tests.support.stack_jars || :; $(BIN)/python -m tests.support.iceberg_jar || :; $(BIN)/python -m tests.support.archive; }
	@status=0; $(BIN)/python -m pytest -n $(WORKERS) --junit-xml=build/tests.xml $(PYTEST_ARGS) || status=1; \
		test -n "$(PYTEST_ARGS)" || $(MAKE) --no-print-directory test-streams || status=1; exit $$status

check: bootstrap ## style, types, layers, cheap imports, Dagster definitions
	@$(BIN)/python scripts/check.py

features: bootstrap ## every demand and the test that proves it, held against the last test run
	@$(BIN)/python scripts/features.py

bench: ## the numbers: goal, value and verdict per line
	@sh scripts/bootstrap.sh
	@$(BIN)/python scripts/bench.py

bench-cdc: ## our merge of a database's changes beside what people use, 10 million rows (LAKECHIME_BENCH_ROWS=…; 1 million in `make bench`)
	@sh scripts/bootstrap.sh
	@LAKECHIME_BENCH_ROWS=$${LAKECHIME_BENCH_ROWS:-10000000} $(BIN)/python -m benchmarks.cdc

test-bare: ## a clone on a bare machine: empty home, no environment, no Java (TARGET=test|check|…)
	@sh scripts/test_bare.sh $(TARGET)

test-crash: ## kills processes at random and counts what was lost, doubled or stuck, and lets Dagster run a backfill (KILLS=100)
	@sh scripts/bootstrap.sh
	@LAKECHIME_TEST_KILLS=$(KILLS) $(BIN)/python -m pytest -m e2e tests/crash tests/e2e/test_dagster_backfill.py -s

test-cdc-long: ## changes two databases, and kills what brings them to the lake, at random, compares all at cuts (MINUTES=30 SEED=…)
	@sh scripts/bootstrap.sh
	@$(BIN)/python -m tests.support.stack_jars
	@LAKECHIME_TEST_MINUTES=$(MINUTES) LAKECHIME_TEST_SEED=$(SEED) $(BIN)/python -m pytest -m e2e tests/long/test_cdc.py -s

test-streams: ## offers a stream 8,000 drifting events a second for a minute, kills a run at it, compares all; `make test` ends with it
	@sh scripts/bootstrap.sh
	@mkdir -p build
	@LAKECHIME_TEST_STREAM=1 $(BIN)/python -m pytest --junit-xml=build/tests-streams.xml tests/long/test_event_streams.py

test-soak: ## the same with 300 types and several kills, and a lag that must not grow (MINUTES=30); on a machine that does nothing else
	@sh scripts/bootstrap.sh
	@LAKECHIME_TEST_MINUTES=$(MINUTES) $(BIN)/python -m pytest -m e2e tests/long/test_event_soak.py -s

format: bootstrap ## put the code into its form
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format --quiet .

lock: bootstrap ## write requirements.lock anew from pyproject.toml (UPGRADE=--upgrade for newer versions)
	@UV_SYSTEM_CERTS=1 $(BIN)/uv pip compile --quiet --universal --generate-hashes --all-extras --python-version 3.11 --no-header \
		--no-annotate --no-emit-index-url --no-emit-find-links $(UPGRADE) -o requirements.lock pyproject.toml >/dev/null
	@echo "requirements.lock is written; the next make installs it"

bootstrap:
	@sh scripts/bootstrap.sh --no-jars
