# Each target sets up what it needs: a fresh machine needs only make, Python 3.10+ and Java 17+. For test-all, kill and
# proof it needs PostgreSQL too, which only `make postgres` installs; test-min and proof need Python 3.10 or 3.11.
PYTHON ?= python3
BIN := .venv/bin
BIN_MIN := .venv-min/bin
READY_DEMO := .venv/.ready-demo
READY := .venv/.ready
READY_BENCH := .venv/.ready-bench
READY_MIN := .venv-min/.ready
PYTEST_ARGS ?=
# Of tests at once: three, for those that start Spark wait much of their time.
JOBS ?= 3
KILLS ?= 50
KILL_ARGS ?=
LINK_ARGS ?=

# Spark starts its workers with these; without them it takes the first python3 on the PATH.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
test-min test-min-all: export PYSPARK_PYTHON := $(CURDIR)/$(BIN_MIN)/python
test-min test-min-all: export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(BIN_MIN)/python

# Whole files go to a worker, so that what is costly to set up for a file is set up once. They go in the order that
# tests/workers.py makes: else the few long ones come last, and one worker waits for the other.
PYTEST := python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

.PHONY: help demo unit law test test-all test-min test-min-all test-matrix test-on simulate replay mutations kill links proof \
	conformance lint bench bench-quick memory dashboard jar clean \
	java postgres need-postgres

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

demo: java $(READY_DEMO)  ## play an auction through a local queue and Spark, kill the query meanwhile, and audit what arrived
	@$(BIN)/python -m sqs_fifo_spark demo $(DEMO_ARGS)

# These tests compute more than they wait, so as many at once as there are cores; and one file has a fourth of the work,
# so files are shared out test by test.
unit: $(READY)  ## what needs no JVM, and is neither long nor slow: for each change
	$(BIN)/python -m pytest -n logical --dist worksteal --ignore tests/spark -m "not long and not slow" $(PYTEST_ARGS)

# HUNT=1 also plays schedules against each of its planted bugs until it is caught: minutes, for some laws an hour.
law: java $(READY)  ## the tests of one LAW, such as source-4, and what of the simulation belongs to it
	@$(BIN)/python -m tests.guarantees $(LAW) $(if $(HUNT),--hunt)
	$(BIN)/$(PYTEST) tests/unit tests/spark -m "not long" --law $(LAW) $(PYTEST_ARGS)

test: java $(READY)  ## every law once, on the newest Spark
	@echo "This takes some minutes. The long tests are in: make test-all"
	$(BIN)/$(PYTEST) -m "not long" $(PYTEST_ARGS)

# The cases on Spark itself are those of test-matrix: no change of ours can break them.
test-all: java need-postgres $(READY)  ## all tests, on the newest Spark
	@echo "This takes about 30 minutes on 2 cores. As root, it mounts small file systems; else those tests are skipped."
	$(BIN)/$(PYTEST) --ignore tests/conformance $(PYTEST_ARGS)

test-min: java $(READY_MIN)  ## the Spark tests that show every law once, and those of what calls libraries, on the oldest of all
	$(BIN_MIN)/$(PYTEST) $(addprefix tests/unit/,aws cli journal local watch) tests/spark -m "not long" $(PYTEST_ARGS)

test-min-all: java $(READY_MIN)  ## all tests that do not need PostgreSQL, on the oldest Spark and dependencies
	$(BIN_MIN)/$(PYTEST) tests/unit tests/contract tests/spark $(PYTEST_ARGS)

# Each version in an environment of its own, with its newest patch; else the newest of everything.
VERSIONS ?= 4.0 4.1 4.2 4.3
test-matrix: java  ## the same Spark tests, and the facts about Spark that all rests on, on each version of Spark in VERSIONS
	@for version in $(VERSIONS); do \
	    echo "=== Spark $$version"; $(MAKE) --no-print-directory test-on SPARK=$$version || exit 1; \
	done

SPARK ?= 4.3
BIN_ON = .venv-spark-$(SPARK)/bin
test-on: export PYSPARK_PYTHON = $(CURDIR)/$(BIN_ON)/python
test-on: export PYSPARK_DRIVER_PYTHON = $(CURDIR)/$(BIN_ON)/python
test-on: java .venv-spark-$(SPARK)/.ready  ## those on the version SPARK
	$(BIN_ON)/$(PYTEST) tests/conformance/spark
	$(BIN_ON)/$(PYTEST) tests/spark -m "not long" $(PYTEST_ARGS)

N ?= 20000
FROM ?= 0
simulate: $(READY)  ## source and sink under N schedules of crashes and faults, from seed FROM
	$(BIN)/python -m tests.simulation --schedules $(N) --first $(FROM)

replay: $(READY)  ## the schedule of one SEED, step by step
	@$(BIN)/python -m tests.simulation --seed $(SEED)

# SHARE=3/8 takes each eighth of them, from number 3 on.
SHARE ?= 0/1
mutations: $(READY)  ## bugs planted into source and sink, each hunted by the simulation, from seed FROM, until caught
	$(BIN)/python -m tests.simulation --mutations --share $(SHARE) --first $(FROM)

# KILLS is for each of four sinks in each of two modes; KILL_ARGS takes what `python -m tests.crash --help` lists, such as --seed 7.
kill: java need-postgres $(READY)  ## kill a query's processes on a real cluster, and audit what reached files and tables
	@$(BIN)/python -m tests.crash --kills $(KILLS) $(KILL_ARGS)

# LINK_ARGS takes what `python -m tests.links --help` lists, such as --journal s3 --mode journal.
links: java $(READY)  ## large messages over a slow network, drained and audited; half an hour
	@$(BIN)/python -m tests.links $(LINK_ARGS)

# CONFORMANCE_ARGS takes what `sqs-fifo-spark conformance --help` lists, such as --max-seconds 60; all take 5 minutes.
conformance: $(READY_DEMO)  ## the facts about SQS FIFO queues, on our own local queue
	@$(BIN)/python -m sqs_fifo_spark conformance --against local $(CONFORMANCE_ARGS)

# Hours on 2 cores.
proof: test-all test-min-all  ## everything, and each long proof whole
	$(MAKE) simulate N=100000 FROM=$(FROM)
	$(MAKE) mutations FROM=$(FROM)
	$(MAKE) kill
	$(MAKE) kill KILLS=25 KILL_ARGS="--link 2m,50ms"
	$(MAKE) kill KILLS=25 KILL_ARGS="--queues 2 --sink parquet"
	$(MAKE) links

lint: $(READY)  ## style, types, layers, the CloudFormation template
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/cfn-lint conf/cloudformation.yaml

# BENCH_ARGS takes what `python -m tests.bench --help` lists, such as --only drain,latency or --scale 0.1.
bench: java $(READY_BENCH)  ## speed, cost and latency beside bare loops and a naive source; over an hour
	$(BIN)/python -m tests.bench --suite full $(BENCH_ARGS)

bench-quick: java $(READY_BENCH)  ## the same, small, in some minutes
	$(BIN)/python -m tests.bench --suite quick $(BENCH_ARGS)

memory: java $(READY)  ## how much memory a query's Python processes take, beside their limits
	$(BIN)/python -m tests.memory
	$(BIN)/python -m tests.memory.record $(if $(BESIDE),--beside $(BESIDE))
	$(BIN)/python -m tests.memory.workers $(if $(BESIDE),--beside $(BESIDE))

dashboard: java $(READY)  ## draw the picture of it in docs/dashboards.md anew, by Prometheus, Chromium and npm
	@$(BIN)/python -m tests.dashboard

jar:  ## the jar and its POM for spark-submit --packages, as a Maven repository in dist/maven
	@$(PYTHON) .ci/jar.py

.venv-spark-%/.ready: setup.py
	$(PYTHON) -m venv --clear .venv-spark-$*
	.venv-spark-$*/bin/python -m pip install --quiet --editable '.[local,test]' 'pyspark==$*.*'
	@touch $@

clean:  ## remove the environments and what tests and builds leave behind
	rm -rf .venv .venv-min .venv-spark-* build dist *.egg-info artifacts spark-warehouse .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

java:
	@bash .ci/need-java.sh

need-postgres:
	@bash .ci/need-postgres.sh

postgres:  ## install PostgreSQL's server and promtool, as root on Debian, for test-all and kill
	@bash .ci/need-postgres.sh --install

# A stamp is made last, so that an installation that was broken off is done again.
$(READY_DEMO): setup.py
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --editable '.[local,spark]'
	@touch $@

$(READY): $(READY_DEMO)
	$(BIN)/python -m pip install --quiet --editable '.[local,spark,test,tables,lint]'
	@touch $@

$(READY_BENCH): $(READY)
	$(BIN)/python -m pip install --quiet --editable '.[local,spark,test,bench]'
	@touch $@

$(READY_MIN): setup.py .ci/constraints-min.txt
	$(PYTHON) -m venv --clear .venv-min
	$(BIN_MIN)/python -m pip install --quiet --constraint .ci/constraints-min.txt --editable '.[local,spark,test]'
	@touch $@
