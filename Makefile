.DEFAULT_GOAL := help
.PHONY: installed kills buckets help setup demo demo-all test check static laws histories conformance cluster crash connect ingests sessions sparks airflow airflow-lock faults foreign mutations concurrency queue publishes backups bench scale year format lock thorough

PYTHON ?= python3
BIN := .venv/bin
PURE := not spark and not slow and not live and not whole

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## Make .venv ready: packages, Java if there is none, Delta (a minute, once)
	@$(PYTHON) scripts/bootstrap.py

demo: setup  ## See it work on the flights of 2013
	@$(BIN)/python -m scripts.demo

demo-all: setup  ## See the rest, too: lifetimes, a work queue, a killed run, an Iggy topic, a mistake undone
	@$(BIN)/python -m scripts.demo_all

test: static  ## Run every check and every test
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder --by-turns

check: static  ## Check format, lint, types, imports, and the tests of pure functions (seconds)
	LAW_EXAMPLES=25 $(BIN)/pytest -n 2 -m "$(PURE)" tests/architecture tests/retention retention

static: setup
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --cache-dir .import_linter_cache

laws: setup  ## Try every law on 2,000 small worlds (hours)
	LAW_EXAMPLES=2000 $(BIN)/pytest -n 2 -m law

histories: setup  ## Do 100,000 random things to small streams, and hold each against a model (an hour of one core)
	RETENTION_HISTORIES=100000 $(BIN)/pytest tests/histories -s

conformance: setup  ## Judge every case of the real servers on every store and engine (minutes)
	RETENTION_CONFORMANCE=all $(BIN)/pytest tests/conformance

thorough: setup  ## Try every test on every format, and some for longer, not on one by turns as `make test` (an hour)
	RETENTION_THOROUGH=all $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

cluster: setup  ## Send every job to a standalone Spark cluster, and kill parts of it (minutes)
	RETENTION_CLUSTER=all $(BIN)/pytest tests/cluster

crash: setup  ## Kill every write path at every step, and its recovery at every step again (two hours)
	RETENTION_CRASHES=twice $(BIN)/pytest tests/crash

installed: setup  ## Install a wheel and an sdist in empty environments, and use them without a clone (a minute)
	RETENTION_INSTALLED=1 $(BIN)/pytest tests/installed

kills: setup  ## Kill 50 runs of Python, Spark and spark-submit at random moments, and let the next one go on (half an hour)
	RETENTION_KILLS=50 $(BIN)/pytest tests/crash/test_kills.py -s

connect: setup  ## Do with a real Spark Connect server what is done with a session of one's own (a minute)
	RETENTION_CONNECT=all $(BIN)/pytest tests/connect

sessions: setup  ## Give every command and job its Spark session on every way, each in a process of its own (half an hour)
	RETENTION_SESSIONS=all $(BIN)/pytest tests/sessions

ingests: setup  ## Ingest three growing sources hourly for a month, and kill every other process (an hour)
	RETENTION_INGEST_HOURS=720 $(BIN)/pytest -o faulthandler_timeout=0 tests/crash/test_hourly_ingest.py -s

sparks: setup  ## Try Spark 4.0, 4.1 and 4.2, each in an environment of its own (minutes each)
	$(BIN)/python -m scripts.sparks $(SPARKS)

airflow: setup  ## Try the DAGs in an Airflow of their own: whole runs, scheduler, approvals, kills (minutes)
	$(BIN)/python -m scripts.airflow_environment $(AIRFLOW_TESTS)

airflow-lock: setup  ## Write requirements-airflow.lock anew from requirements-airflow.in
	$(BIN)/uv pip compile requirements-airflow.in --quiet --universal --python-version 3.11 --no-annotate \
		--generate-hashes --no-emit-index-url --custom-compile-command "make airflow-lock" -o requirements-airflow.lock

concurrency: setup  ## Let appenders, readers and maintainers work on one stream at once, a minute each (minutes)
	RETENTION_CONCURRENCY=60 $(BIN)/pytest tests/concurrency -s

queue: setup  ## Let eight processes work off a queue of 100,000 messages, and kill seven of them (minutes)
	RETENTION_QUEUE=100000 $(BIN)/pytest tests/concurrency/test_queue_groups.py -s

publishes: setup  ## Compact and reclaim what 500 small publishes leave, and count what is left (a minute)
	RETENTION_PUBLISHES=500 $(BIN)/pytest tests/retention/apply/reclaim/test_beside.py -k small_publishes

buckets: setup  ## Do 2,000 operations on buckets here and on a real server, and fight 1,000 times for a lock (half an hour)
	RETENTION_BUCKETS=2000 RETENTION_LOCKS=1000 $(BIN)/pytest -o faulthandler_timeout=0 tests/live/test_buckets.py tests/concurrency/test_locks.py -s

backups: setup  ## Back 50 streams of a real server up while they are in use, and import each as the server restores it (minutes)
	RETENTION_BACKUPS=50 $(BIN)/pytest tests/live/test_busy_backups.py -s

foreign: setup  ## Let Spark, deltalake and Polars do everything to our tables, and damage every file (minutes)
	RETENTION_FOREIGN=all $(BIN)/pytest tests/contract/test_foreign_hands.py tests/contract/test_foreign_rows.py \
		tests/contract/test_table_features.py tests/contract/test_protocols.py tests/safety/test_contradictions.py tests/safety/test_damage.py

faults: setup  ## Fail every operation on a disk and every request to an object store (hours)
	RETENTION_FAULTS=all $(BIN)/pytest tests/safety/test_failing_storage.py tests/safety/test_failing_object_store.py

mutations: setup  ## Change 10,000 logs of each era of Iggy at random, and let in nothing that was not there (minutes)
	RETENTION_MUTATIONS=10000 $(BIN)/pytest tests/retention/formats/iggy/test_mutations.py

bench: setup  ## Measure against the same work done by hand with other libraries
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.ttl
	$(BIN)/python -m benchmarks.markers
	$(BIN)/python -m benchmarks.metadata
	$(BIN)/python -m benchmarks.topics
	$(BIN)/python -m benchmarks.broker
	$(BIN)/python -m benchmarks.appends
	$(BIN)/python -m benchmarks.consumers
	$(BIN)/python -m benchmarks.compaction
	$(BIN)/python -m benchmarks.reclaim
	$(BIN)/python -m benchmarks.cold
	$(BIN)/python -m benchmarks.buckets
	$(BIN)/python -m benchmarks.growth --millions 5

scale: setup  ## Stand for a terabyte: 100 million subjects, a million files, 100 million acks (an hour or two, 20 GB of disk)
	$(BIN)/python -m benchmarks.scale

year: setup  ## Live through a year of hourly publishes and nightly maintenance, six times (hours; needs a C compiler)
	$(BIN)/python -m benchmarks.year

format: setup  ## Format the code and mend what lint can mend
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

lock: setup  ## Write requirements.lock, and requirements-image.lock of the Dockerfile, anew from pyproject.toml
	$(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 \
		--extra spark --extra demo --extra dev --extra bench --extra java --extra notebook --extra connect --extra lineage --no-annotate \
		--generate-hashes --no-emit-index-url --custom-compile-command "make lock" -o requirements.lock
	$(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 \
		--extra spark --extra connect --extra lineage --constraint requirements.lock --no-annotate \
		--generate-hashes --no-emit-index-url --custom-compile-command "make lock" -o requirements-image.lock
