# `make` alone lists the targets. Each of them makes the virtual environment it needs; Python 3.10-3.13, Java 17 and make are all
# that a machine must have.

PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
SHELL   = bash

# One line for each larger download, in place of nothing for minutes. Python compiles modules when they are imported: to compile
# all of them takes more than half of the processor time of an installation.
INSTALL = set -o pipefail; $(BIN)/python -m pip install --progress-bar off --no-compile --editable '$(1)' | awk ' \
	/Downloading .* MB/             { print "  " $$2, $$3, $$4 } \
	/Building wheel.*: started/     { print "  building", $$4 } \
	/^Installing collected/         { print "  unpacking" } \
	{ fflush() }'

# A comma would divide the arguments of `call`.
TOOLS = spark,dev

# Each process with Spark has a heap of up to 3 GB, and Python workers: 4 GiB are counted for it.
FIT = import os; print(max(2, min(os.cpu_count(), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 32)))
PROCESSES ?= $(shell $(PYTHON) -c '$(FIT)')

# Tests start a hundred Python processes, each of which would compile all that it imports if it found nothing compiled.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo cluster test check soak pins lint jars docs bench clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "make %-8s %s\n", $$1, $$2 }'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' \
		|| { echo "delta-variant needs Python 3.10 to 3.13; set PYTHON=/path/to/one." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --progress-bar off --upgrade pip

# Both are made anew whenever pyproject.toml changes. The demo needs the package, everything else the tools of its extra `dev` too.
$(VENV)/.package: pyproject.toml | $(BIN)/python
	@echo "Installing delta-variant and PySpark in $(VENV), some 610 MB to download:"
	@$(call INSTALL,.[spark])
	@touch $@

$(VENV)/.installed: $(VENV)/.package
	@echo "Installing the tools for tests and benchmarks in $(VENV), some 170 MB to download:"
	@$(call INSTALL,.[$(TOOLS)])
	@touch $@

# Before the downloads, not after them. The demo then checks the version.
.PHONY: java
java:
	@command -v "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" >/dev/null \
		|| { echo "Spark needs Java 17, and there is none: install it (Debian: apt-get install openjdk-17-jre-headless)," \
			"or point JAVA_HOME at one." >&2; exit 1; }

demo: java $(VENV)/.package  ## write a real feed shredded and query it, counting the files opened
	@$(BIN)/delta-variant demo

cluster:  ## the demo on a Spark cluster with an S3 server; needs Docker with Compose
	docker compose --file docker/compose.yaml run --build --rm demo
	@echo "The cluster is still there: docker compose --file docker/compose.yaml down"

test:  ## all that CI runs: `make check`, and beside it the tests with Spark, in PROCESSES processes (default: as many as cores)
	@$(MAKE) --no-print-directory --jobs 2 .kernels .jar .collected
	@$(MAKE) --no-print-directory --jobs 2 .beside .spark

check: lint  ## the fast part: lint, types, import order, tests without Spark
	$(BIN)/python -m pytest -m 'not spark'

# In a clean checkout each of the processes would compile the kernels, and all modules that it imports, and one would wait while
# the other compiles the JAR. The kernels, which take longest, and the JAR need no tools.
.PHONY: .kernels .jar .collected
.kernels: $(VENV)/.package
	@$(BIN)/python -m tests.tasks

.jar: java $(VENV)/.package
	@$(BIN)/python -m tests.scala jar >/dev/null

.collected: $(VENV)/.installed
	@output=$$($(BIN)/python -m pytest --collect-only -qq 2>&1) || { echo "$$output"; exit 1; }

# The processes with Spark leave a twelfth of the cores idle. It is taken by what needs no session of theirs: `make check`, and
# the tests of a cluster, which is processes of its own. Their output is shown when they end.
CLUSTER = tests/cluster/test_cluster.py
.PHONY: .beside .spark
.beside:
	@output=$$({ nice $(MAKE) --no-print-directory check && nice $(BIN)/python -m pytest $(CLUSTER); } 2>&1); code=$$?; \
		echo "$$output"; exit $$code

.spark:
	$(BIN)/python -m pytest -m spark --ignore $(CLUSTER) -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

soak: $(VENV)/.installed  ## every test at full length: 200 commits, 624 pairs, 50 kills, 60 histories, 20,000 predicates, 20,000 damaged files, 5,000 queries; some hours
	DELTA_VARIANT_SOAK=1 $(BIN)/python -m pytest -s tests/writer/test_concurrency.py
	DELTA_VARIANT_SOAK=1 $(BIN)/python -m pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder --ignore tests/writer/test_concurrency.py

pins: $(VENV)/.installed  ## the tests without Spark on each Python, with the oldest and the newest versions allowed; some 8 minutes each
	$(BIN)/python -m pytest -s tests/pins.py

lint: $(VENV)/.installed $(VENV)/.scala  ## ruff, mypy and the order of imports; scalafmt and the warnings of the Scala compiler
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Takes half a minute, so it is left out as long as nothing changes.
$(VENV)/.scala: $(wildcard delta_variant/scala/*.scala) .scalafmt.conf tests/scala.py | java $(VENV)/.installed
	$(BIN)/python -m tests.scala lint
	@touch $@

jars: java $(VENV)/.package  ## the JAR of the Scala sources, for wheels that are built from here
	@$(BIN)/python -m tests.scala jars

docs: $(VENV)/.installed  ## the documentation, at http://127.0.0.1:8000
	$(BIN)/python -m mkdocs serve --strict

bench: $(VENV)/.installed  ## the benchmarks, paired and with ratios
	@$(call INSTALL,.[bench])
	$(BIN)/python -m benchmarks.write
	$(BIN)/python -m benchmarks.every_write
	$(BIN)/python -m benchmarks.codec
	$(BIN)/python -m benchmarks.json_text
	$(BIN)/python -m benchmarks.ingest
	$(BIN)/python -m benchmarks.inference
	$(BIN)/python -m benchmarks.skipping
	$(BIN)/python -m benchmarks.reading
	$(BIN)/python -m benchmarks.scan
	$(BIN)/python -m benchmarks.analyze
	$(BIN)/python -m benchmarks.optimize
	$(BIN)/python -m benchmarks.jsonbench
	$(BIN)/python -m benchmarks.engines

clean:  ## remove what the other targets made
	rm -rf $(VENV) .pins delta_variant/jars site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -name __pycache__ -prune -exec rm -rf {} +
