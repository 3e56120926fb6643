# Needs python3 (3.11 to 3.13), java (17 or newer) and make. Everything else goes into .venv, .local and ~/.cache/kafka-s3-stack.
PYTHON ?= python3
BIN := .venv/bin
DATA := $(or $(KAFKA_S3_LOCAL_DATA_DIR),.local)
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --no-build-isolation
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-strip-extras --custom-compile-command "make lock"

.DEFAULT_GOAL := help
.PHONY: help setup demo dev test test-long chaos worlds fuzz lint docs release tables bench bench-peers bench-growth disaster outage up down clean format lock

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Class data is of one Java, whose file `release` another Java does not have. Without class data all works, in more time.
JAVA := $(realpath $(or $(JAVA_HOME:%=%/bin/java),$(shell command -v java)))
JAVA_ID := $(if $(JAVA),$(firstword $(shell cksum "$(dir $(JAVA))../release" 2>/dev/null)))

setup: .venv/prepared-$(JAVA_ID) ## Install everything into .venv, as locked (the other targets do so by themselves)

.venv/installed: .venv/dependencies pyproject.toml
	$(INSTALL) --no-deps --editable .
	$(BIN)/python -m pip check
	@touch $@

.venv/prepared-$(JAVA_ID): .venv/installed
	-$(BIN)/kafka-s3 prepare
	@rm -f .venv/prepared-*
	@touch $@

# Build tools first: a package that comes as source only (PySpark) must not fetch others, unlocked, to be built.
.venv/dependencies: requirements-build.lock requirements.lock
	$(PYTHON) -c 'import sys; (3, 11) <= sys.version_info < (3, 14) or sys.exit("Python 3.11 to 3.13 is needed")'
	$(PYTHON) -m venv --clear .venv
	@echo "installing the locked dependencies into .venv: 2.5 GB, in 2 to 10 minutes the first time"
	$(INSTALL) --require-hashes --requirement requirements-build.lock
	$(INSTALL) --require-hashes --requirement requirements.lock
	@touch $@

demo: setup ## Archive a month of a topic on this machine, merge its days, restore one and compare it
	$(BIN)/kafka-s3 demo

dev: setup ## Start the stack, Dagster's UI with sensors and schedules, and the status page
	$(BIN)/kafka-s3 dev

# Each of the four processes has servers of its own. While one waits for them, the others keep two cores busy.
# When one of them dies, the run ends and names the test: xdist would replace it, and may then wait without end.
TEST := $(BIN)/python -m pytest --numprocesses 4 --dist loadscope --no-loadscope-reorder --max-worker-restart 0 --durations 20

# Tests start hundreds of Python processes, and none is to compile the package again.
test test-long: export PYTHONDONTWRITEBYTECODE :=
test: setup ## Run all tests but the long ones, with real Kafka and S3
	$(TEST)

test-long: setup ## Run the long tests: all attacks end to end, many seeds, many drawn examples
	$(TEST) -m "long or hypothesis" --hypothesis-profile long

chaos: setup ## Archive under seeded lies of broker and store, or kill restores (KILLS=1) or leaders (ELECTIONS=1): SEED=1 RUNS=300
	$(BIN)/python -m kafka_s3_platform_tests.chaos $(if $(KILLS),--kills) $(if $(ELECTIONS),--elections) $(if $(SEED),--seed $(SEED)) $(if $(RUNS),--runs $(RUNS))

worlds: setup ## Play simulated worlds of Kafka and users: SEED=1 WORLDS=6000
	$(BIN)/python -m kafka_s3_platform_tests.worlds $(if $(SEED),--seed $(SEED)) $(if $(WORLDS),--worlds $(WORLDS))

fuzz: setup ## Read mutated objects of each format: FORMAT=all SECONDS=600
	$(BIN)/python -m kafka_s3_platform_tests.fuzz $(or $(FORMAT),all) --seconds $(or $(SECONDS),600)

lint: setup ## Check format, style, types and the rooms' imports
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## Format the code and mend what can be mended
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

docs: .local/docs-tools/installed ## Build the site of the docs into .local/site, and check its links
	.local/docs-tools/bin/sphinx-build -E -W --keep-going --quiet -d .local/doctrees -c docs . .local/site
	@echo '<meta http-equiv="refresh" content="0; url=docs/index.html">' > .local/site/index.html
	@echo "the site is .local/site/index.html"

release: setup .local/release-tools/installed ## Build wheel and sdist, try them with the oldest and the newest Python: PYTHONS="python3.11 python3.13"
	$(if $(PYTHONS),PYTHONS="$(PYTHONS)") .ci/release

# Tools that are no part of the platform's environment, each as locked.
.local/%-tools/installed: requirements-%.lock
	$(PYTHON) -m venv --clear .local/$*-tools
	.local/$*-tools/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@

tables: setup ## Write the tables of the docs from the rows of keys, formats and codecs
	$(BIN)/python -m bench.tables

bench: setup ## Measure archive and restore against their floors
	$(BIN)/python -m bench $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SCALE),--scale)

# Each appends lines to a file below artifacts/. The second command writes the last run and a chart into bench/results/.
bench-peers: setup ## Measure the same jobs by other tools, in 12 minutes: RECORDS=4000000 ROUNDS=2
	$(BIN)/python -m bench.peers $(if $(RECORDS),--records $(RECORDS)) $(if $(ROUNDS),--rounds $(ROUNDS))
	$(BIN)/python -m bench.peers.report artifacts/peers.jsonl

bench-growth: setup ## Measure 1 to 32 million records, 1 to 500 kafka partitions, sizes and latency, in 15 minutes
	$(BIN)/python -m bench.growth
	$(BIN)/python -m bench.growth --report artifacts/growth.jsonl

disaster: setup ## Lose a cluster of 12 topics, 6 groups and a registry, and restore it by one command: RECORDS=20000 KILLS=0 SEED=1
	$(BIN)/python -m kafka_s3_platform_tests.disaster $(if $(RECORDS),--records $(RECORDS)) $(if $(KILLS),--kills $(KILLS)) $(if $(SEED),--seed $(SEED))

outage: setup ## Stop S3 under live load, and watch what heals by itself: MINUTES=15
	$(BIN)/python -m bench.outage $(if $(MINUTES),--minutes $(MINUTES))

up: setup ## Start Kafka and S3 on this machine
	$(BIN)/kafka-s3 up

down: setup ## Stop Kafka and S3; their data is kept
	$(BIN)/kafka-s3 down

clean: ## Stop Kafka and S3 and remove their data and Dagster's; .venv and downloads stay
	@if [ -x $(BIN)/kafka-s3 ]; then $(BIN)/kafka-s3 down; else for file in "$(DATA)"/*/process.json; do \
		if [ -f "$$file" ] && kill -0 "$$(sed 's/.*"pid": \([0-9]*\).*/\1/' "$$file")" 2>/dev/null; then \
			echo "the server of $$file runs, and without .venv nothing here stops it: run make setup" >&2; exit 1; \
		fi; done; fi
	rm -rf "$(DATA)/kafka" "$(DATA)/s3" "$(DATA)/lock" .dagster spark-warehouse
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

lock: setup ## Resolve the dependencies of pyproject.toml anew
	$(COMPILE) pyproject.toml --extra deploy --extra dev --extra local --output-file requirements.lock
	$(COMPILE) pyproject.toml --extra deploy --constraint requirements.lock --output-file requirements-deploy.lock
	$(COMPILE) --group build --output-file requirements-build.lock
	$(COMPILE) --group ci --constraint requirements.lock --output-file requirements-ci.lock
	$(COMPILE) --group docs --output-file requirements-docs.lock
	$(COMPILE) --group release --output-file requirements-release.lock
