# Postroad: `make run`, `make cluster`, `make check` (the inner loop), `make test`, `make bench`, `make fuzz`, `make nightly`.
# Every stage of `make test` prints one line with its time; the first that fails ends it. VERBOSE=1 shows all.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

CARGO_DENY_VERSION := 0.20.2
CARGO_FUZZ_VERSION := 0.13.2
MDBOOK_VERSION := 0.5.4
# Seconds for each fuzz target.
FUZZ_SECONDS ?= $(if $(CI),60,10)
NIGHTLY_FUZZ_SECONDS ?= 1800
# How often the nightly run kills the broker under load.
NIGHTLY_CRASHES ?= 500
# Seconds of each of two loops that kill it under mixed load, and of one that cuts its disk's power: a quarter of an hour.
NIGHTLY_CRASH_SECONDS ?= 300
# Seeds of the simulations, of the whole broker, of the journal and of a replica group.
NIGHTLY_SEEDS ?= 100000
NIGHTLY_JOURNAL_SEEDS ?= 100000
NIGHTLY_CLUSTER_SEEDS ?= 100000
NIGHTLY_NETWORK_SEEDS ?= 20000
# Seconds of mixed faults in a cluster under clients.
NIGHTLY_CLUSTER_SECONDS ?= 3600
DATA ?= data
STAGE := scripts/stage
TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
POSTROAD := $(TARGET)/release/postroad
# Optimised, but linked without the optimisation across crates that the shipped binary gets.
TESTED := $(TARGET)/tested/postroad
# The broker and the load generator, which tests and packages find beside it.
BINARIES := --package postroad-broker --bin postroad --package postroad-bench --bin postroad-bench

export PATH := $(CURDIR)/target/tools/bin:$(PATH)
export POSTROAD_BINARY ?= $(POSTROAD)

.PHONY: run cluster check console build deb docs chart tested test prerequisites tools verify rust black-box judge jms fuzz bench nightly fix

run:
	@scripts/prerequisites build
	@$(MAKE) --no-print-directory console
	cargo build --release --locked --package postroad-broker --bin postroad
	@scripts/split-debug $(POSTROAD)
	$(POSTROAD) serve --data $(DATA)

# Three nodes on this machine.
cluster:
	@scripts/prerequisites build
	@$(MAKE) --no-print-directory console
	cargo build --release --locked --package postroad-broker --bin postroad
	@POSTROAD_BINARY=$(POSTROAD) DATA=$(DATA)/cluster scripts/cluster

# --- console -------------------------------------------------------------------------------------------------

# The web console, which the binary embeds. A cargo build without it works too, and has a page that says so.
console: console/dist/app/index.html

console/node_modules/.package-lock.json: console/package.json console/package-lock.json
	@$(STAGE) console-packages npm ci --prefix console --silent
	@touch $@

console/dist/app/index.html: $(shell find console/src console/public console/scripts -type f) \
    $(wildcard console/*.html console/*.json console/*.js) console/node_modules/.package-lock.json
	@$(STAGE) console npm run build --prefix console --silent

# --- check ---------------------------------------------------------------------------------------------------

check:
	cargo run --quiet --locked --package xtask -- check

# --- test ---------------------------------------------------------------------------------------------------

test: export POSTROAD_BINARY = $(TESTED)
test: prerequisites tools console verify rust tested black-box judge fuzz
	@echo "all stages passed"

# One stage after the other, in this order, even under `make -j`.
.NOTPARALLEL:

prerequisites:
	@$(STAGE) prerequisites scripts/prerequisites

tools:
	@$(STAGE) cargo-deny scripts/tool cargo-deny $(CARGO_DENY_VERSION)
	@$(STAGE) cargo-fuzz scripts/tool cargo-fuzz $(CARGO_FUZZ_VERSION)

verify:
	@$(STAGE) verify cargo run --quiet --locked --package xtask -- verify

rust:
	@$(STAGE) rust-tests cargo test --quiet --workspace --locked

build: console
	@$(STAGE) release-build cargo build --release --locked $(BINARIES)
	@scripts/split-debug $(POSTROAD)
	@scripts/split-debug $(POSTROAD)-bench

tested: console
	@$(STAGE) tested-build cargo build --profile tested --locked $(BINARIES)

# Real clients against the optimised binary: every folder of tests/ that can be run, by what it holds.
black-box:
	@for folder in tests/*/; do \
	    name=$$(basename "$$folder"); \
	    if [ -f "$$folder/pom.xml" ] && [ -d "$$folder/src/test" ]; then $(STAGE) "tests/$$name" mvn -q -B -f "$$folder/pom.xml" -Dpostroad.bin="$$POSTROAD_BINARY" test; \
	    elif [ -x "$$folder/run" ]; then $(STAGE) "tests/$$name" "$$folder/run"; \
	    fi; \
	done

# Does the benchmark's judge see lost, doubled and damaged messages? Speeds are no test.
judge:
	@$(STAGE) bench-judge mvn -q -B -f bench/pom.xml test
	@$(STAGE) bench-report python3 -m unittest discover -q -s bench -t bench

jms: export POSTROAD_BINARY = $(TESTED)
jms: tested
	@$(STAGE) tests/jms mvn -q -B -f tests/jms/pom.xml -Dpostroad.bin="$$POSTROAD_BINARY" test

fuzz:
	@scripts/tool cargo-fuzz $(CARGO_FUZZ_VERSION)
	@$(STAGE) fuzz scripts/fuzz $(FUZZ_SECONDS)

# A Debian package of the release build, in target/debian.
deb: build
	@packaging/deb $(POSTROAD) $(TARGET)/debian

# The documentation as static pages, in target/book. Not a part of `make test`: mdBook takes minutes to build; tidy checks the links.
docs:
	@scripts/tool mdbook $(MDBOOK_VERSION)
	mdbook build docs --dest-dir $(TARGET)/book

# The picture in the README, from the table in docs/benchmarks.md.
chart:
	bench/chart

# --- the rest -----------------------------------------------------------------------------------------------

fix:
	cargo xtask fix

# Comparison with other brokers on this machine; a table on standard output. Options: make bench BENCH="--help".
bench:
	@cargo build --quiet --release --locked $(BINARIES)
	@bench/run $(BENCH)

# Long runs that no change should wait for: the broker killed under load many times over, messages of 1 GiB, the JMS tests against the broker that
# they take after, and long fuzzing.
nightly: build
	@$(STAGE) crash-loop mvn -q -B -f tests/jms/pom.xml -Dpostroad.bin="$(POSTROAD_BINARY)" \
	    -Dtest=CrashLoopTest -Dcrash.count=$(NIGHTLY_CRASHES) -Dsurefire.failIfNoSpecifiedTests=false test
	@$(STAGE) kill-loop env CRASH_SECONDS=$(NIGHTLY_CRASH_SECONDS) tests/hostile/run crash
	@$(STAGE) power-loop env POWER_SECONDS=$(NIGHTLY_CRASH_SECONDS) tests/hostile/run power
	@$(STAGE) network-by-night mvn -q -B -f tests/network/pom.xml -pl classic6 -am -Dpostroad.bin="$(POSTROAD_BINARY)" \
	    -Dtest='MovingConsumersTest,FaultyNetworkTest' -Dnetwork.seconds=600 -Dsurefire.failIfNoSpecifiedTests=false test
	@$(STAGE) cluster-by-night mvn -q -B -f tests/cluster/pom.xml -Dpostroad.bin="$(POSTROAD_BINARY)" \
	    -Dtest=FaultsTest -Dcluster.seconds=$(NIGHTLY_CLUSTER_SECONDS) -Dsurefire.failIfNoSpecifiedTests=false test
	@$(STAGE) hostile-by-night env NIGHTLY=1 tests/hostile/run large backlog flips
	@$(STAGE) http-by-night env NIGHTLY=1 KILL_ROUNDS=200 tests/http/run test_lasting test_wire
	@$(STAGE) jms-against-activemq bench/with activemq -- mvn -q -B -f tests/jms/pom.xml -pl jakarta,javax -am \
	    -Dbroker.url={url} test
	@$(STAGE) activemq-suite mvn -q -B -f tests/jms/pom.xml -pl activemq-suite -Dpostroad.bin="$(POSTROAD_BINARY)" \
	    -Dsuite=suite.txt test
	@$(STAGE) simulation env POSTROAD_SEEDS=$(NIGHTLY_SEEDS) cargo test --release --quiet --locked --package postroad-sim \
	    --test seeds -- --ignored promises_hold_for_a_hundred_thousand_seeds
	@$(STAGE) journal-simulation env POSTROAD_JOURNAL_SEEDS=$(NIGHTLY_JOURNAL_SEEDS) cargo test --release --quiet --locked \
	    --package postroad-journal acknowledged_is_recovered
	@$(STAGE) cluster-simulation env POSTROAD_CLUSTER_SEEDS=$(NIGHTLY_CLUSTER_SEEDS) cargo test --release --quiet --locked \
	    --package postroad-cluster acknowledged_batches_survive_every_seed
	@$(STAGE) network-simulation env POSTROAD_NETWORK_SEEDS=$(NIGHTLY_NETWORK_SEEDS) cargo test --release --quiet --locked \
	    --package postroad-bridge --test network
	@scripts/tool cargo-fuzz $(CARGO_FUZZ_VERSION)
	@$(STAGE) long-fuzz scripts/fuzz $(NIGHTLY_FUZZ_SECONDS)
