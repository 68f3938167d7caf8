# fencepost's one front door. `make` alone says what there is.
VENV   ?= .venv
PYTHON ?=
BIN    := $(VENV)/bin
PY     := $(BIN)/python
# What ruff and mypy look at: the rooms themselves, since the links at the root point into them.
SOURCES := fencepost pyspark_fencepost tests bench examples deploy
# Extra words for the tools: make test ARGS="-k fencing -x", make bench KAFKA=127.0.0.1:9392 KAFKA_PID=4711
ARGS ?=
# Test processes at once; 0: one after the other. With ARGS there is one process, and every option of pytest does its work.
WORKERS ?= auto
AT_ONCE := $(if $(ARGS),,-n $(WORKERS) --dist loadscope --no-loadscope-reorder)
SEEDS ?= 2000
# Container images often forbid Python to keep compiled modules. Then each of the thousands of processes that the tests
# start compiles everything anew, and a test process takes three times as long before its first test.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo cluster-demo test sim check format stubs docs bench spark-versions compat pins clean

help: ## This text
	@echo "fencepost: a broker that speaks Kafka's protocol, with true transactions and no JVM"
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-20s %s\n", $$1, $$2}'
	@echo
	@echo "Each makes its own $(VENV) at first use, from any Python >= 3.11. Spark's part needs Java 17 or newer."
	@echo "Then:  $(BIN)/fencepost serve --data ./data --listen 127.0.0.1:9092"

setup: ## Only make the virtual environment
	@PYTHON="$(PYTHON)" sh tools/set_up.sh "$(VENV)"

demo: setup ## 336,776 real flights through transactions, kills and Spark; exits 1 on any difference
	@sh tools/check_java.sh
	$(PY) -m examples.flights $(ARGS)

cluster-demo: setup ## The same with three brokers over PostgreSQL and an object store, and a killed database
	@sh tools/check_java.sh
	$(PY) -m examples.flights --cluster --directory .demo-cluster $(ARGS)

test: setup ## All tests, with other people's clients and Spark, in several processes (WORKERS=0: in one)
	@sh tools/check_java.sh
	$(PY) -m $(if $(ARGS),pytest $(ARGS),tests.second_look $(AT_ONCE) --durations=50)

sim: setup ## Many simulated worlds: make sim SEEDS=20000 (a seed that goes wrong says how to see it again)
	$(PY) -m tests.simulation --seeds $(SEEDS) $(ARGS)

check: setup ## What to run before a commit: format, lint, types, architecture, fast tests (none marked `long`)
	$(BIN)/ruff format --check $(wildcard $(SOURCES))
	$(BIN)/ruff check $(wildcard $(SOURCES))
	$(BIN)/mypy --strict fencepost
	$(BIN)/lint-imports
	$(PY) -m pytest -q $(AT_ONCE) -m "not long" tests/unit tests/property tests/architecture $(ARGS)

format: setup ## Let ruff write the code's form
	$(BIN)/ruff format $(wildcard $(SOURCES))
	$(BIN)/ruff check --fix $(wildcard $(SOURCES))

stubs: setup ## Write the type stub, the lists of the API and the reference anew after a change of what they show
	$(PY) -m tests.architecture.sync_stub
	$(PY) -m tests.architecture.public_names
	$(PY) -m tests.architecture.public_api
	$(PY) -m deploy.docs_site.reference

docs: setup ## The documentation as a site, into the folder site; a broken link, anchor or drawing ends it
	$(PY) -m deploy.docs_site site

bench: setup ## Load against fencepost, beside a Kafka where KAFKA=host:port names one; table into bench/out
	$(PY) -m bench $(if $(KAFKA),--kafka $(KAFKA)) $(if $(KAFKA_PID),--kafka-pid $(KAFKA_PID)) $(ARGS)

spark-versions: setup ## The Spark connector with each version of Spark that it allows, and with Spark Connect (takes a quarter of an hour)
	$(PY) -m tests.spark.versions $(ARGS)

compat: setup ## Core tests with the lowest and the newest dependencies, on every Python here (ARGS="3.11 3.14t": on these)
	$(PY) -m tests.compat $(ARGS)

pins: setup ## Update all pinned versions from pyproject.toml (with the uv of .venv)
	PATH="$(BIN):$$PATH" sh deploy/pins.sh

clean: ## Remove what the other targets made
	rm -rf $(VENV) .spark-versions .compat .demo .demo-cluster bench/out tests/interop/java/.jars tests/interop/members/node_modules tests/interop/members/.built build dist site *.egg-info spark-warehouse
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
