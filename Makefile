# Commands for developers. Each target works on its own on a machine with Python 3.11, make, JDK 17, Maven, a C compiler
# and access to the package registries.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
INSTALLED := .venv/.installed

# Without cached bytecode, each process that the tests start would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup java services check static format bytecode platform wheel test test-compiled bench spark-kills \
	bench-abuse bench-frozen bench-dashboard bench-spark bench-growth bench-turns fuzz soak soak-steady demo screenshots reference \
	site diagrams lock audit release

help:
	@echo "make setup      create .venv with the tested versions of all dependencies; run .venv/bin/orbitmq"
	@echo "make demo       send, consume and analyse 12,506 order events on a separate broker"
	@echo "make check      format, lint, types, import contracts, documentation, glossary, commit messages"
	@echo "make test       everything, also against Apache RocketMQ; half an hour on two cores"
	@echo "make test-compiled   the tests of compiled modules, with the wheel of this platform"
	@echo "make bench      orbitmq and Apache RocketMQ under the same load, and their clients and those on PyPI"
	@echo "make bench-growth  both with more topics, connections, backlog, groups; results and plots in docs/performance"
	@echo "make bench-abuse   latency of a well-behaved client while others are abusive; three minutes"
	@echo "make bench-frozen  what senders experience when a broker freezes and dies, with either client"
	@echo "make bench-turns delays of the event loop, with 10,000 topics; six minutes"
	@echo "make bench-dashboard response times of pages with 5,000 topics and 3,000 groups; a minute"
	@echo "make bench-spark cost of Spark reads and the archive, compared with their peers; eight minutes"
	@echo "make spark-kills streams into Parquet, lake and topics while their driver is killed 20 times; 25 minutes"
	@echo "make soak       250 faults in a cluster of two pairs, and checks of every guarantee; up to 15 minutes"
	@echo "make soak-steady an hour at half of the peak load, with checks for losses and growth"
	@echo "make fuzz       ten million hostile inputs for every decoder; up to 20 minutes"
	@echo "make screenshots take the screenshots of the web page in the documentation"
	@echo "make format     format the sources with ruff"
	@echo "make reference  generate docs/reference from the tables in the code"
	@echo "make site       build the documentation as a site: build/site/index.html"
	@echo "make lock       resolve the dependencies of pyproject.toml again"
	@echo "make audit      check the locked versions for known vulnerabilities; needs the network"
	@echo "make wheel      build the wheel of this platform, with the message path compiled, in dist/"
	@echo "make release    build source archive, wheel, bill of materials and checksums in dist/"

setup: $(INSTALLED)

$(INSTALLED): requirements/dev.lock requirements/connect.lock requirements/fuzz.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps --upgrade --target .venv/connect \
		-r requirements/connect.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps --upgrade --target .venv/fuzz \
		-r requirements/fuzz.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Tools for audits and plots, in a separate environment.
TOOLS := .venv/tools

$(TOOLS)/.installed: requirements/tools.lock
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

java: setup
	sh tests/java/build.sh
	$(BIN)/python -m tests.support.java_archives

# Needed by tests: PostgreSQL for idempotent consumption, promtool for alert rules, Chromium for the web page, and shells
# for completion; installed from Debian's packages if missing.
services:
	@test -x /usr/bin/chromium || \
		(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium \
		fonts-dejavu-core >/dev/null)
	@command -v promtool >/dev/null || \
		(apt-get update -qq && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends \
		prometheus >/dev/null)
	@ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || \
		(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql >/dev/null)
	@command -v zsh >/dev/null && command -v fish >/dev/null || \
		(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends zsh fish \
		>/dev/null)

check: static
	$(BIN)/pytest -q tests/test_docs.py tests/test_public_api.py tests/test_glossary.py tests/test_commits.py

static: setup
	$(BIN)/ruff format --check --quiet
	$(BIN)/ruff check --quiet
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix --quiet
	$(BIN)/ruff format --quiet

# Compile the bytecode of the tests once, so that not every test process compiles all of it. Errors show when they run.
bytecode: setup
	@$(BIN)/pytest --collect-only -qq >/dev/null || true

# The wheel of this platform, in which the message path is compiled. PLATFORM has its contents: a PYTHONPATH with it runs
# them instead of the sources.
PLATFORM := $(CURDIR)/.venv/platform
SOURCES := $(shell find src supply -name "*.py" -o -name "*.pxd")

wheel: setup
	$(BIN)/python -m supply.platform_wheel dist

$(PLATFORM)/.built: $(INSTALLED) pyproject.toml $(SOURCES)
	@mkdir -p build
	$(BIN)/python -m supply.platform_wheel build/wheel --unpack $(PLATFORM) >build/wheel.log 2>&1 || \
		(cat build/wheel.log; exit 1)
	@touch $@

platform: $(PLATFORM)/.built

# COMPILED_TESTS="tests" runs everything; the default, also in `make test`, is the rooms with compiled modules.
COMPILED_TESTS ?= tests/message tests/wire tests/net tests/store tests/broker
test-compiled: setup platform
	PYTHONPATH=$(PLATFORM) $(BIN)/pytest -q -n 3 --dist loadgroup --no-loadscope-reorder $(COMPILED_TESTS)

# Jobs that need one core run two at a time. Tests run three at a time, because they often wait for a broker.
test: setup services diagrams
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target bytecode java static platform
	$(BIN)/pytest -n 3 --dist loadgroup --no-loadscope-reorder
	@$(MAKE) --no-print-directory test-compiled

# Benchmarks measure the wheel of this platform; FORM=interpreted measures the sources.
FORM := compiled
MEASURED = $(if $(filter interpreted,$(FORM)),,PYTHONPATH=$(PLATFORM))

bench: setup java platform
	$(MEASURED) $(BIN)/python bench/run.py $(BENCH)

# GROWTH="--gigabytes 0 1 20" adds a step; for the other options: `python bench/growth.py --help`.
bench-growth: setup java platform $(TOOLS)/.installed
	$(MEASURED) $(BIN)/python bench/growth.py $(GROWTH)
	$(TOOLS)/bin/python -m bench.growth_plots docs/performance/growth.json

bench-abuse: setup platform
	$(MEASURED) $(BIN)/python bench/abuse.py

# TURNS="--seconds 60 --queues 1000" is a shorter one.
bench-turns: setup platform
	$(MEASURED) $(BIN)/python bench/loop_turns.py $(TURNS)

bench-frozen: setup java
	$(BIN)/python bench/frozen.py

bench-dashboard: setup
	$(BIN)/python bench/dashboard.py

bench-spark: setup
	$(BIN)/python bench/spark_reads.py

# Against brokers of orbitmq, then of RocketMQ; KILLS="--system java --seed 7" is one of them, repeated.
KILLS ?=
spark-kills: setup java
	$(BIN)/python bench/spark_kills.py $(KILLS)
	$(if $(KILLS),,$(BIN)/python bench/spark_kills.py --system java)

# SOAK="--seed 7 --minutes 3" repeats the faults of a campaign, or ends it earlier; with --java half of the brokers are
# RocketMQ's, and `make java` has to come first.
soak: setup
	$(BIN)/python -m bench.soak $(SOAK)

# SOAK="--minutes 10" ends it earlier; --keep DIRECTORY keeps the samples.
soak-steady: setup platform
	$(MEASURED) $(BIN)/python -m bench.soak --steady $(SOAK)

# FUZZ="--target frame --inputs 2000000" runs one decoder, FUZZ=--keep adds inputs that reach new code to fuzz/corpus.
fuzz: setup
	$(BIN)/python -m fuzz $(FUZZ)

# Screenshots of the web page for the documentation.
screenshots: setup services
	ORBITMQ_SCREENSHOTS=1 $(BIN)/pytest -q tests/dashboard/test_browser.py -k pictures

demo: setup
	$(BIN)/python demo/run.py

reference: setup
	$(BIN)/python -m reference docs/reference

# Warnings are errors: broken links, pages outside of the table of contents, diagrams that cannot be drawn.
SITE ?= build/site
SPHINX = $(BIN)/sphinx-build --quiet --nitpicky --fail-on-warning --keep-going --conf-dir docs

site: setup diagrams
	$(SPHINX) --doctree-dir $(SITE).read/en docs $(SITE)
	$(SPHINX) --doctree-dir $(SITE).read/zh -D language=zh_CN docs/zh $(SITE)/zh

diagrams:
	@command -v dot >/dev/null || \
		(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends graphviz >/dev/null)

lock: setup
	$(BIN)/pip install --quiet "pip-tools>=7.4,<8"
	$(BIN)/pip-compile --quiet --all-extras --strip-extras --generate-hashes --allow-unsafe --no-emit-index-url \
		--no-emit-find-links --no-emit-trusted-host --output-file requirements/dev.lock pyproject.toml
	$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --allow-unsafe --no-emit-index-url --no-emit-find-links \
		--no-emit-trusted-host --constraint requirements/dev.lock --output-file requirements/runtime.lock pyproject.toml
	cd requirements && ../$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --unsafe-package numpy --no-emit-index-url \
		--no-emit-find-links --no-emit-trusted-host --constraint dev.lock --output-file connect.lock connect.in
	cd requirements && ../$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --no-emit-index-url \
		--no-emit-find-links --no-emit-trusted-host --constraint dev.lock --output-file fuzz.lock fuzz.in
	cd requirements && ../$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --allow-unsafe --no-emit-index-url \
		--no-emit-find-links --no-emit-trusted-host --constraint dev.lock --output-file tools.lock tools.in

# Fails for a known vulnerability, and if the service does not respond. AUDIT_SERVICE=osv queries OSV instead of PyPI.
audit: $(TOOLS)/.installed
	$(TOOLS)/bin/python -m supply.audit

release: setup $(TOOLS)/.installed
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist
	$(TOOLS)/bin/python -m supply.sbom dist
	cd dist && sha256sum orbitmq-* >SHA256SUMS
