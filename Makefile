# Each target sets up what it needs: a fresh machine needs only make, Python 3.10+ and Java 17+.
PYTHON ?= python3
BIN := .venv/bin
BIN_MIN := .venv-min/bin
READY := .venv/.ready
READY_MIN := .venv-min/.ready
PYTEST_ARGS ?=
KILLS ?= 50
KILL_ARGS ?=

# Spark starts its workers with these; without them it takes the first python3 on the PATH.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
test-min: export PYSPARK_PYTHON := $(CURDIR)/$(BIN_MIN)/python
test-min: export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(BIN_MIN)/python

.PHONY: help demo test test-min simulate replay mutations kill lint bench memory jar clean java postgres

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

demo: java $(READY)  ## play an auction through a local queue and Spark, and audit what arrived
	@$(BIN)/python -m sqs_fifo_spark demo $(DEMO_ARGS)

test: java postgres $(READY)  ## all tests, on the newest Spark
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# Long ones whose outcome does not hang on the version of Spark.
NEWEST_ONLY := test_faults test_full_disk test_memory test_sink_faults test_sink_replays test_sink_pipeline
test-min: java $(READY_MIN)  ## the Spark tests, on the oldest Spark and the oldest dependencies
	$(BIN_MIN)/python -m pytest tests/spark $(NEWEST_ONLY:%=--ignore=tests/spark/%.py) $(PYTEST_ARGS)

N ?= 20000
FROM ?= 0
simulate: $(READY)  ## source and sink under N schedules of crashes and faults, from seed FROM
	$(BIN)/python -m tests.simulation --schedules $(N) --first $(FROM)

replay: $(READY)  ## the schedule of one SEED, step by step
	@$(BIN)/python -m tests.simulation --seed $(SEED)

# SHARE=3/8 takes each eighth of them, from number 3 on.
SHARE ?= 0/1
mutations: $(READY)  ## bugs planted into source and sink, each hunted by the simulation until it is caught
	$(BIN)/python -m tests.simulation --mutations --share $(SHARE)

# KILLS is for each of the two sinks; KILL_ARGS takes what `python -m tests.crash --help` lists, such as --seed 7.
kill: java postgres $(READY)  ## kill a query's processes on a real cluster, and audit what reached two sinks
	@$(BIN)/python -m tests.crash --kills $(KILLS) $(KILL_ARGS)

lint: $(READY)  ## style, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

bench: $(READY)  ## how fast the local queue is on this machine
	$(BIN)/python -m tests.bench.local_queue

memory: java $(READY)  ## how much memory a query's Python processes take, beside their limits
	$(BIN)/python -m tests.memory

jar:  ## the jar and its POM for spark-submit --packages, as a Maven repository in dist/maven
	@$(PYTHON) .ci/jar.py

clean:  ## remove the environments and what tests and builds leave behind
	rm -rf .venv .venv-min build dist *.egg-info artifacts spark-warehouse .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

java:
	@bash .ci/need-java.sh

postgres:
	@bash .ci/need-postgres.sh

# A stamp is made last, so that an installation that was broken off is done again.
$(READY): setup.py
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --editable '.[local,test]'
	@touch $@

$(READY_MIN): setup.py .ci/constraints-min.txt
	$(PYTHON) -m venv --clear .venv-min
	$(BIN_MIN)/python -m pip install --quiet --constraint .ci/constraints-min.txt --editable '.[local,test]'
	@touch $@
