# Two commands for a fresh clone: `make run` and `make test`. Each does all of its own set-up.
# Everything else here is for working on CometMQ; CONTRIBUTING.md tells when to use what.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:

VENV   := .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.ready
# Spark takes half a gigabyte, so only machines that can run it get it, or those that say SPARK=1.
SPARK  ?= $(if $(wildcard $(VENV)/.spark),1,$(shell scripts/find_java.sh > /dev/null 2>&1 && echo 1))
SPARK_STAMP := $(if $(filter 1,$(SPARK)),$(VENV)/.spark)
SOURCES_FAST := $(wildcard src/cometmq/_fast/*.pyx src/cometmq/_fast/*.pxd src/cometmq/_fast/*.h)

.PHONY: help setup run test test-fast check bench docs dist fuzz lock clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | sort | expand -t 12

setup: $(STAMP)  ## virtual environment with pinned packages; quick when nothing changed

$(VENV)/.packages: locks/dev.txt scripts/find_python.sh
	@python=$$(scripts/find_python.sh)
	echo "set-up: $$($$python --version) -> $(VENV)"
	$$python -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r locks/dev.txt
	touch $@

$(VENV)/.spark: $(VENV)/.packages locks/spark.txt
	@echo "set-up: Spark, about a minute"
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes --no-build-isolation -r locks/spark.txt
	touch $@

$(STAMP): $(VENV)/.packages $(SPARK_STAMP) pyproject.toml setup.py $(SOURCES_FAST)
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(PY) -c 'from cometmq.codec import core; print("set-up: done,", core.active(), "core")'
	touch $@

run: setup  ## the main job; ONCE=1 ends with status 0
	@$(PY) -m scripts.demo $(if $(ONCE),--once)

test: setup  ## the whole suite: gates, unit tests in both cores and on newer Pythons, interop
	@$(PY) -m scripts.suite all

test-fast: setup  ## unit tests only, under a minute
	@$(PY) -m scripts.suite fast

check: setup  ## gates: format, lint, types, layers, house rules
	@$(PY) -m scripts.suite check

bench: setup  ## benchmarks: ratios to a baseline measured in the same run
	@$(PY) -m bench.codec
	$(PY) -m bench.nameserver
	$(PY) -m bench.store
	$(PY) -m bench.broker
	$(PY) -m bench.startup
	$(PY) -m bench.client
	$(PY) -m bench.spark

docs: setup  ## documentation site in site/
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict
	echo "site/index.html"

dist: setup  ## sdist and wheel in dist/
	@rm -rf dist
	$(PY) -m build --no-isolation --outdir dist . > build.log 2>&1 || { cat build.log; rm -f build.log; exit 1; }
	rm -f build.log
	ls dist

fuzz: setup  ## coverage-guided fuzzing of every decoder; SECONDS=60 by default
	@$(PY) -m fuzz.run --seconds $(or $(SECONDS),60)

lock: setup  ## new versions of the pinned packages (needs the network and `uv`)
	@scripts/lock.sh

clean:  ## forget what was built
	@rm -rf $(VENV) .venv-* build dist site src/*.egg-info src/cometmq/_fast/*.so src/cometmq/_fast/*.c
