# Every target sets up by itself what it needs: `make demo` works on a fresh clone.
#
#   make test TESTS=tests/store ARGS="-k claim -x"
#   make demo ARGS="--help"

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# With -j several would set up at once, and apt lets one in at a time.
.NOTPARALLEL:
.PHONY: help demo quick test clusters long check docs bench lock clean servers analyzers spin browser languages image model crash soak sim ticks figures mutants elsewhere release

# What is run instead of all that a target runs, in how many processes (they wait half of the time, for leases
# and servers), and what else is handed to the command.
TESTS ?=
PROCESSES ?= $(shell expr 2 '*' $$(nproc))
ARGS ?=

BIN := .venv/bin
VERIFICATION := tests/verification
ON_REDIS := $(addprefix tests/,core settings store schedule flow upkeep operate)
PYTEST = $(BIN)/pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

# Hundreds of processes start in the tests and wherever recovery is measured: twice as fast with
# bytecode, as an installed groupflow has it.
export PYTHONDONTWRITEBYTECODE :=

help: ## List the targets (this)
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{printf "%-17s %s\n", $$1, $$2}'

demo: .venv/.ready ## See groupflow at work, on private servers that are gone afterwards
	@.ci/setup $@
	@$(BIN)/groupflow demo $(ARGS)

test: .venv/.ready servers analyzers browser ## Run what a contributor waits for, on real servers (TESTS=…, ARGS=…)
	@$(PYTEST) $(or $(TESTS),tests --ignore=$(VERIFICATION)) $(ARGS)

quick: .venv/.ready servers ## Run what one runs at each change: a part, on Redis alone (TESTS=…, ARGS=…)
	@$(PYTEST) --quick $(or $(TESTS),$(ON_REDIS)) $(ARGS)

clusters: .venv/.ready servers ## Run the tests on clusters of servers, which take minutes (TESTS=…, ARGS=…)
	@$(PYTEST) $(or $(TESTS),$(VERIFICATION)/clusters) $(ARGS)

long: .venv/.ready servers analyzers browser spin languages image ## Run the tests that take long: outages, kills, upgrades, reloads, rights, schedules, scans, memory, examples, the release, the image (TESTS=…, ARGS=…)
	@$(PYTEST) $(or $(TESTS),$(VERIFICATION) --ignore=$(VERIFICATION)/clusters) $(ARGS)

check: .venv/.ready ## Lint, formatting, types, layers, manifests, known vulnerabilities
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@.ci/manifests
	@.ci/audit

bench: .venv/.ready servers ## Measure ours beside its peers (QUICK=1; ROWS=drain.16,latency; BASE=commit, ROUNDS=5)
	-@.ci/setup bench
	@QUICK=$(QUICK) ROWS=$(ROWS) ROUNDS=$(ROUNDS) BASE=$(BASE) $(BIN)/python -m tests.verification.bench

release: .venv/.ready servers ## Build what is published of HEAD into dist/release: wheel, source, SBOM, checksums; try it in empty environments
	@.ci/release
	@$(PYTEST) $(VERIFICATION)/release/test_release.py --quiet $(ARGS)

docs: .docs/.ready ## Build the documents into dist/site; warnings are errors (ARGS="-b linkcheck")
	@.docs/venv/bin/sphinx-build --nitpicky --fail-on-warning --keep-going --quiet \
		-c docs $(ARGS) . dist/site
	@echo dist/site/docs/index.html

model: .venv/.ready spin ## Search the model of the protocol, with all its rules and without each (ARGS="LEASE")
	@$(BIN)/python -m tests.protocol $(ARGS)

crash: .venv/.ready servers ## Kill daemons at every named point and pair of points (TRIALS=… SEED=… JOBS=2)
	@$(BIN)/python -m tests.verification.crash

soak: .venv/.ready servers ## Break everything on purpose, check every promise (ARGS="--seed 1 --faults 150")
	@$(BIN)/python -m tests.verification.soak $(ARGS)

sim: .venv/.ready servers ## Simulate fleets in virtual time, by seeds (SEEDS=1000 FROM=1; SEED=7, FAULTS=8 DAEMONS=3 MINUTES=0.15)
	@$(BIN)/python -W ignore -m tests.simulation $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FROM),--from $(FROM)) \
		$(if $(FAULTS),--faults $(FAULTS)) $(if $(DAEMONS),--daemons $(DAEMONS)) $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

ticks: .venv/.ready servers ## Three daemons with wrong clocks, killed many times: each tick once (KILLS=50)
	@KILLS=$(or $(KILLS),50) $(PYTEST) $(VERIFICATION)/endtoend/test_schedules.py -k clocks --timeout 3600 $(ARGS)

figures: .venv/.ready servers ## Measure how long recovery takes (ARGS="--trials 30 --only redis")
	@$(BIN)/python -m tests.verification.soak.figures $(ARGS)

mutants: .venv/.ready servers ## Make the product wrong in one place at a time: tests must notice (ARGS="scripts freeing", "code dispatcher", "code --sample 40")
	@$(BIN)/python -m tests.verification.mutants $(ARGS)

elsewhere: export SUITE := $(SUITE)
elsewhere: export PROCESSES := $(PROCESSES)
elsewhere: export TESTS := $(TESTS)
elsewhere: export ARGS := $(ARGS)
elsewhere: ## Run `make demo` and `make test` in a bare Debian 13, as root (SUITE=trixie, TESTS=…)
	@.ci/setup elsewhere
	@.ci/elsewhere

lock: ## Bring uv.lock in line with pyproject.toml (ARGS=--upgrade: newer versions too)
	@uv=$$(.ci/setup uv) && "$$uv" lock $(ARGS)

clean: ## Remove the environment, the caches and what was built
	rm -rf .venv .uv .bench .docs .languages .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist
	rm -rf --one-file-system .elsewhere
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

servers analyzers spin browser languages image:
	@.ci/setup $@

.venv/.ready: uv.lock pyproject.toml .ci/setup
	@.ci/setup python

.docs/.ready: uv.lock pyproject.toml .ci/setup
	@.ci/setup docs
