# Commands for users and developers. Each target works on its own on a machine with Python 3.11, make and access to the
# package registries; tests and benchmarks also need JDK 17, Maven and a C compiler.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check
LOCKED = $(PIP) install --quiet --require-hashes

# Without cached bytecode, each process that the tests start would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup develop installed tools data java clients services check static format bytecode platform wheel test \
	test-long test-interpreted test-pythons test-spark-versions test-orchestration test-celery test-taskiq test-rust-client bench \
	spark-kills bench-abuse bench-frozen bench-failover bench-failover-cost bench-failover-controller \
	bench-dashboard bench-spark bench-growth \
	bench-turns bench-cold bench-cores bench-timers bench-grpc fuzz soak soak-steady demo screenshots reference texts site \
	diagrams lock audit release

help:
	@echo "make setup      install orbitmq into .venv, compiled if there is a C compiler; run .venv/bin/orbitmq"
	@echo "make demo       send, consume and analyse 12,506 order events on a separate broker"
	@echo "make test       every promise, also against Apache RocketMQ; half an hour on two cores"
	@echo "make test-long  the same once more at other systems and in other formats; a quarter of an hour"
	@echo "make develop    install the sources as they are into .venv, interpreted, with the tools below"
	@echo "make check      format, lint, types, import contracts, documentation, glossary, commit messages"
	@echo "make test-interpreted   the tests of client and message path with the sources as they are"
	@echo "make test-pythons   the same tests, compiled, with every supported CPython of this machine"
	@echo "make test-spark-versions   the tests of Spark with 4.2, 4.1, 4.0 and 3.5; an hour, and 2 GB of downloads"
	@echo "make test-orchestration   Airflow and dbt with a lake; installs both, and is no part of make test"
	@echo "make test-rust-client   the official Rust client of RocketMQ 5; needs cargo, and is no part of make test"
	@echo "make bench      orbitmq and Apache RocketMQ under the same load, and their clients and those on PyPI"
	@echo "make bench-growth  both with more topics, connections, backlog, groups; results and plots in docs/performance"
	@echo "make bench-abuse   latency of a well-behaved client while others are abusive; three minutes"
	@echo "make bench-frozen  what senders experience when a broker freezes and dies, with either client"
	@echo "make bench-failover  300 faults of brokers that elect their master: what is lost, and how long sends wait"
	@echo "make bench-failover-cost  what a send costs that all replicas in sync must have; two minutes"
	@echo "make bench-failover-controller  the same clients at RocketMQ with its controller, and at orbitmq; 20 minutes"
	@echo "make bench-turns delays of the event loop, with 10,000 topics; six minutes"
	@echo "make bench-cold what sends wait for while consumers read 20 GB from the disk; four minutes"
	@echo "make bench-cores what a message costs each of 1 to 4 brokers of one machine; two and a half minutes"
	@echo "make bench-timers timer messages: CPU of delivery, memory of a million, precision, restart; four minutes"
	@echo "make bench-grpc official clients of RocketMQ 5 at orbitmq and at the proxy of RocketMQ; five minutes"
	@echo "make bench-dashboard response times of pages with 5,000 topics and 3,000 groups; a minute"
	@echo "make bench-spark cost of Spark reads and the archive, compared with their peers; nine minutes"
	@echo "make spark-kills streams into Parquet, lake and topics while their driver is killed 20 times; 25 minutes"
	@echo "make soak       250 faults in a cluster of two pairs, and checks of every guarantee; up to 15 minutes"
	@echo "make soak-steady an hour at half of the peak load, with checks for losses and growth"
	@echo "make fuzz       ten million hostile inputs for every decoder; up to 20 minutes"
	@echo "make screenshots take the screenshots of the web page in the documentation"
	@echo "make format     format the sources with ruff"
	@echo "make reference  generate docs/reference from the tables in the code"
	@echo "make texts      bring the catalogue of translations up to date, and list what is missing"
	@echo "make site       build the documentation as a site: build/site/index.html"
	@echo "make lock       resolve the dependencies of pyproject.toml again"
	@echo "make audit      check the locked versions for known vulnerabilities; needs the network"
	@echo "make wheel      build the wheel of this platform, with the message path compiled, in dist/"
	@echo "make release    build source archive, wheels, bill of materials and checksums in dist/"

# .venv holds the wheel (`make setup`) or a link to the sources (`make develop`): whichever ran last.
setup: .venv/.installed
develop: .venv/.editable tools
EDITABLE = $(wildcard .venv/.editable)
installed: $(if $(EDITABLE),.venv/.editable,.venv/.installed)

.venv/bin/python:
	@$(PYTHON) -m venv .venv

.venv/.runtime: requirements/runtime.lock | .venv/bin/python
	@echo "installing the packages that orbitmq needs"
	@$(LOCKED) -r $<
	@touch $@

# What builds the wheel is beside the environment, not in it.
BUILDERS := $(CURDIR)/.venv/build

.venv/build/.installed: requirements/build.lock | .venv/bin/python
	@$(LOCKED) --no-deps --upgrade --target .venv/build -r $<
	@touch $@

SOURCES := $(shell find src -name "*.py" -o -name "*.pxd" -o -name "*.po") hatch_build.py pyproject.toml
HATCHLING = PYTHONPATH=$(BUILDERS) $(BIN)/python -m hatchling build

build/wheel/.built: .venv/.runtime .venv/build/.installed $(SOURCES)
	@rm -rf build/wheel && mkdir -p build/wheel
	@echo "building the wheel: most of a minute if there is a C compiler"
	@$(HATCHLING) -t wheel -d build/wheel
	@touch $@

.venv/.installed:
	@$(MAKE) --no-print-directory --jobs 2 .venv/.runtime .venv/build/.installed
	@$(MAKE) --no-print-directory build/wheel/.built
	@$(PIP) install --quiet --no-deps --no-index --force-reinstall build/wheel/orbitmq-*.whl
	@rm -f .venv/.editable
	@touch $@
	@$(BIN)/orbitmq --version

.venv/.installed: requirements/runtime.lock requirements/build.lock $(SOURCES)

.venv/.editable: pyproject.toml requirements/dev.lock | .venv/.runtime .venv/build/.installed
	@PYTHONPATH=$(BUILDERS) $(PIP) install --quiet --no-deps --no-build-isolation -e .
	@rm -f .venv/.installed
	@touch $@
	@$(BIN)/orbitmq --version

# Packages of tests, documentation and benchmarks. Two sets have directories of their own: see their lists.
tools: .venv/.tools

.venv/.tools: requirements/dev.lock requirements/connect.lock requirements/fuzz.lock | .venv/.runtime
	@echo "installing the tools"
	@$(LOCKED) -r requirements/dev.lock
	@$(LOCKED) --no-deps --upgrade --target .venv/connect -r requirements/connect.lock
	@$(LOCKED) --no-deps --upgrade --target .venv/fuzz -r requirements/fuzz.lock
	@touch .venv/.data $@

data: .venv/.data

.venv/.data: requirements/data.lock | .venv/.runtime
	@echo "installing Spark"
	@$(LOCKED) -r $<
	@touch $@

# Tools for audits and releases, in a separate environment.
AUDIT := .venv/audit

$(AUDIT)/.installed: requirements/tools.lock
	@$(PYTHON) -m venv $(AUDIT)
	@$(AUDIT)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

# Each has an environment of its own: it pins other versions of what the tools of orbitmq need.
.venv/airflow/.installed .venv/dbt/.installed: .venv/%/.installed: requirements/%.lock
	@echo "installing $*"
	@$(PYTHON) -m venv .venv/$*
	@.venv/$*/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $<
	@touch $@

# The provider for Airflow, as users get it.
.venv/airflow/.provider: build/wheel/.built .venv/airflow/.installed
	@.venv/airflow/bin/pip install --quiet --disable-pip-version-check --no-deps --no-index --force-reinstall \
		build/wheel/orbitmq-*.whl
	@touch $@

java: installed tools
	sh tests/java/build.sh
	$(BIN)/python -m tests.support.java_archives

# Official clients of RocketMQ 5 in Java, Python and Node.js, and its proxy, for tests of the gRPC service. After the
# other target that runs Maven: two at a time would write to one repository.
clients: java services
	$(BIN)/python -m tests.support.grpc_clients

# Needed by tests: PostgreSQL for idempotent consumption, etcd for elections, promtool for alert rules, Chromium for the
# web page, shells for completion, and Node.js for a client of RocketMQ 5; installed from Debian's packages if missing.
services:
	@test -x /usr/bin/chromium || \
		(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium \
		fonts-dejavu-core >/dev/null)
	@command -v promtool >/dev/null || \
		(apt-get update -qq && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends \
		prometheus >/dev/null)
	@ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || \
		(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql >/dev/null)
	@command -v etcd >/dev/null || \
		(apt-get update -qq && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends \
		etcd-server >/dev/null)
	@command -v zsh >/dev/null && command -v fish >/dev/null || \
		(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends zsh fish \
		>/dev/null)
	@command -v node >/dev/null && command -v npm >/dev/null || \
		(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nodejs npm \
		>/dev/null)

# What reads the sources, and not the wheel.
FROM_SOURCES := PYTHONPATH=$(CURDIR)/src

check: static bytecode
	$(FROM_SOURCES) $(BIN)/pytest -q tests/test_docs.py tests/test_public_api.py tests/test_glossary.py tests/test_commits.py \
		tests/test_languages.py tests/test_chinese_pages.py

static: installed tools
	$(BIN)/ruff format --check --quiet
	$(BIN)/ruff check --quiet
	$(FROM_SOURCES) $(BIN)/mypy
	$(FROM_SOURCES) $(BIN)/lint-imports

format: tools
	$(BIN)/ruff check --fix --quiet
	$(BIN)/ruff format --quiet

# Compile the bytecode of the tests once, so that not every test process compiles all of it. A name that no module has
# shows here already.
bytecode: installed tools
	@$(FROM_SOURCES) $(BIN)/pytest --collect-only -qq >.venv/collected 2>&1 || { cat .venv/collected; exit 1; }

wheel: build/wheel/.built
	@mkdir -p dist
	cp build/wheel/orbitmq-*.whl dist

# The contents of the wheel, for an environment with the sources: a PYTHONPATH with it runs them instead.
PLATFORM := $(CURDIR)/.venv/platform

$(PLATFORM)/.built: build/wheel/.built
	@rm -rf $(PLATFORM)
	@$(BIN)/python -m zipfile -e build/wheel/orbitmq-*.whl $(PLATFORM)
	@touch $@

platform: $(PLATFORM)/.built

# The form that is shipped, also in an environment with the sources.
SHIPPED = $(if $(EDITABLE),PYTHONPATH=$(PLATFORM))
PYTEST := $(BIN)/pytest -n 3 --dist loadgroup --no-loadscope-reorder

# ROOMS="tests" runs everything; the default, also in `make test`, is the rooms with compiled modules.
ROOMS ?= tests/message tests/wire tests/net tests/store tests/broker tests/client
test-interpreted: installed tools java
	$(FROM_SOURCES) $(PYTEST) -q $(ROOMS)

# The same, compiled, with each CPython of this machine that orbitmq supports.
test-pythons: tools java $(AUDIT)/.installed
	$(BIN)/python -m supply.pythons test -n 3 --dist loadgroup -q $(ROOMS)

# SPARKS="--version 4.1 tests/spark/test_sink.py" is one version, and a part of the tests.
test-spark-versions: installed tools java platform
	$(SHIPPED) $(BIN)/python -m supply.sparks $(SPARKS)

# The DAGs and the project of dbt that users copy, and the provider for Airflow, run by Airflow and dbt themselves.
test-orchestration: installed tools .venv/airflow/.provider .venv/dbt/.installed
	ORBITMQ_ORCHESTRATION=$(CURDIR)/.venv $(BIN)/pytest -q tests/orchestration

# The suites of kombu and Celery themselves, which their source distributions have, on a live broker; ten minutes.
test-celery: installed tools platform
	@command -v redis-server >/dev/null || \
		(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server)
	$(SHIPPED) $(BIN)/python -m supply.celery_suites $(CELERY)

# The suite of taskiq itself, with its tasks on a live broker.
test-taskiq: installed tools platform
	$(SHIPPED) $(BIN)/python -m supply.taskiq_suite $(TASKIQ)

# The scenarios of the other official clients, at RocketMQ and at orbitmq. Cargo builds 250 crates for it at first.
test-rust-client: export ORBITMQ_GRPC_CLIENTS := rust
test-rust-client: installed tools java platform
	$(BIN)/python -m tests.support.grpc_clients
	$(SHIPPED) $(BIN)/pytest -q tests/interop/test_grpc_clients.py

# Jobs that need one core run two at a time. Tests run three at a time, because they often wait for a broker.
test: installed tools services diagrams
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target bytecode java clients static platform
	$(SHIPPED) $(PYTEST) --durations 60 -m "not long"
	@$(MAKE) --no-print-directory test-interpreted

# What `make test` leaves out: the same once more at another system or in another format, and what takes minutes.
test-long: installed tools services diagrams
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target bytecode java clients platform
	$(SHIPPED) $(PYTEST) --durations 20 -m long

# Benchmarks measure the form that is shipped; FORM=interpreted measures the sources.
FORM := compiled
MEASURED = $(if $(filter interpreted,$(FORM)),$(FROM_SOURCES),$(SHIPPED))

bench: installed tools java platform
	$(MEASURED) $(BIN)/python bench/run.py $(BENCH)

# GROWTH="--gigabytes 0 1 20" adds a step; for the other options: `python bench/growth.py --help`.
bench-growth: installed tools java platform
	$(MEASURED) $(BIN)/python bench/growth.py $(GROWTH)
	$(BIN)/python -m bench.growth_plots docs/performance/growth.json

bench-abuse: installed tools platform
	$(MEASURED) $(BIN)/python bench/abuse.py

# TURNS="--seconds 60 --queues 1000" is a shorter one.
bench-turns: installed tools platform
	$(MEASURED) $(BIN)/python bench/loop_turns.py $(TURNS)

# COLD="--gigabytes 4" is a shorter one.
bench-cold: installed tools platform
	$(MEASURED) $(BIN)/python -m bench.cold $(COLD)

# CORES="--brokers 2 --pinned" compares brokers with a core each to brokers that the system places.
bench-cores: installed tools platform
	$(MEASURED) $(BIN)/python -m bench.cores $(CORES)

# GRPC="--seconds 3 --rounds 1" is a shorter one.
bench-grpc: installed tools clients platform
	$(MEASURED) $(BIN)/python -m bench.five $(GRPC)

# TIMERS="--due 50000 --seconds 5 --pending 100000" is a shorter one.
bench-timers: installed tools platform
	$(MEASURED) $(BIN)/python -m bench.timers $(TIMERS)

bench-frozen: installed tools java platform
	$(MEASURED) $(BIN)/python bench/frozen.py

# FAILOVER="--faults 20 --only kill_master" is a shorter one. As root, in network namespaces of its own.
bench-failover: installed tools java platform services
	@command -v nft >/dev/null && test -e /usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1 || \
		(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
		nftables iproute2 libfaketime >/dev/null)
	$(MEASURED) $(BIN)/python -m bench.failover $(FAILOVER)

bench-failover-cost: installed tools services platform
	$(MEASURED) $(BIN)/python -m bench.failover_cost

bench-failover-controller: installed java platform services
	$(MEASURED) $(BIN)/python -m bench.failover_controller

bench-dashboard: installed tools platform
	$(MEASURED) $(BIN)/python bench/dashboard.py

bench-spark: installed tools platform
	$(MEASURED) $(BIN)/python bench/spark_reads.py

# Against brokers of orbitmq, then of RocketMQ; KILLS="--system java --seed 7" is one of them, repeated.
KILLS ?=
spark-kills: installed tools java
	$(BIN)/python bench/spark_kills.py $(KILLS)
	$(if $(KILLS),,$(BIN)/python bench/spark_kills.py --system java)

# SOAK="--seed 7 --minutes 3" repeats the faults of a campaign, or ends it earlier; with --java half of the brokers are
# RocketMQ's, and `make java` has to come first.
soak: installed tools platform
	$(MEASURED) $(BIN)/python -m bench.soak $(SOAK)

# SOAK="--minutes 10" ends it earlier; --keep DIRECTORY keeps the samples.
soak-steady: installed tools platform
	$(MEASURED) $(BIN)/python -m bench.soak --steady $(SOAK)

# FUZZ="--target frame --inputs 2000000" runs one decoder, FUZZ=--keep adds inputs that reach new code to fuzz/corpus.
fuzz: installed tools
	$(FROM_SOURCES) $(BIN)/python -m fuzz $(FUZZ)

# Screenshots of the web page for the documentation.
screenshots: installed tools services
	ORBITMQ_SCREENSHOTS=1 $(BIN)/pytest -q tests/dashboard/test_browser.py -k pictures

demo: installed data
	$(BIN)/python demo/run.py

reference: tools
	$(FROM_SOURCES) $(BIN)/python -m reference docs/reference

texts: tools
	$(FROM_SOURCES) $(BIN)/python -m supply.texts

# Warnings are errors: broken links, pages outside of the table of contents, diagrams that cannot be drawn.
SITE ?= build/site
SPHINX = $(FROM_SOURCES) $(BIN)/sphinx-build --quiet --nitpicky --fail-on-warning --keep-going --conf-dir docs

site: tools diagrams
	$(SPHINX) --doctree-dir $(SITE).read/en docs $(SITE)
	$(SPHINX) --doctree-dir $(SITE).read/zh -D language=zh_CN docs/zh $(SITE)/zh

diagrams:
	@command -v dot >/dev/null || \
		(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends graphviz >/dev/null)

# All but Airflow, which has a lock of its own: it pins more than a hundred packages.
EXTRAS = $(shell $(BIN)/python -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
	print(*(f'--extra={name}' for name in project['optional-dependencies'] if name != 'airflow'))")

lock: tools
	$(BIN)/pip install --quiet "pip-tools>=7.4,<8"
	$(BIN)/pip-compile --quiet $(EXTRAS) --strip-extras --generate-hashes --allow-unsafe --no-emit-index-url \
		--no-emit-find-links --no-emit-trusted-host --output-file requirements/dev.lock pyproject.toml
	$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --allow-unsafe --no-emit-index-url --no-emit-find-links \
		--no-emit-trusted-host --constraint requirements/dev.lock --output-file requirements/runtime.lock pyproject.toml
	cd requirements && ../$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --unsafe-package numpy --no-emit-index-url \
		--no-emit-find-links --no-emit-trusted-host --constraint dev.lock --output-file connect.lock connect.in
	cd requirements && for version in 4.2 4.1 4.0 3.5; do \
		../$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --no-emit-index-url --no-emit-find-links \
			--no-emit-trusted-host --output-file spark-$$version.lock spark-$$version.in || exit 1; \
	done
	cd requirements && for lock in build data failover fuzz tools; do \
		../$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --allow-unsafe --no-emit-index-url \
			--no-emit-find-links --no-emit-trusted-host --constraint dev.lock --output-file $$lock.lock $$lock.in || exit 1; \
	done
	$(BIN)/pip-compile --quiet --extra=airflow --strip-extras --generate-hashes --allow-unsafe --no-emit-index-url \
		--no-emit-find-links --no-emit-trusted-host --output-file requirements/airflow.lock pyproject.toml
	cd requirements && ../$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --allow-unsafe --no-emit-index-url \
		--no-emit-find-links --no-emit-trusted-host --output-file dbt.lock dbt.in

# Fails for a known vulnerability, and if the service does not respond. AUDIT_SERVICE=osv queries OSV instead of PyPI.
audit: $(AUDIT)/.installed
	$(AUDIT)/bin/python -m supply.audit

# Wheels for every CPython of this machine that orbitmq supports, and one for all platforms, interpreted.
release: installed tools java $(AUDIT)/.installed .venv/build/.installed
	rm -rf dist
	$(HATCHLING) -t sdist -d dist
	ORBITMQ_BUILD=interpreted $(HATCHLING) -t wheel -d dist
	$(BIN)/python -m supply.pythons wheels dist
	$(BIN)/pytest -q tests/supply/test_wheels.py
	$(AUDIT)/bin/python -m supply.sbom dist
	cd dist && sha256sum orbitmq-* >SHA256SUMS
