.DEFAULT_GOAL := help
.PHONY: help setup demo demo-all check static suite test long conformance bench bench-full format lock docs pictures screenshots notebooks

PYTHON ?= python3
BIN := .venv/bin
PURE := not spark and not slow and not live and not whole
BENCHMARKS := "" .ttl .markers .metadata .topics .broker .appends .consumers .compaction .reclaim .cold .buckets .tables .verify .erasure .erasing .holds .single_writes .sync .curves .floors

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo; echo "make long NAME=…"; $(PYTHON) -m scripts.long

setup:  ## Make .venv ready: packages, Java if there is none, Delta (a minute, once)
	@$(PYTHON) scripts/bootstrap.py

demo: setup  ## See it work on the flights of 2013
	@$(BIN)/python -m scripts.demo

demo-all: setup  ## See the rest, too: lifetimes, a work queue, a killed run, an Iggy topic, a mistake undone
	@$(BIN)/python -m scripts.demo_all

test: setup  ## Run every check and every test
	@$(MAKE) --no-print-directory --jobs 2 static suite

suite: setup
	LAW_EXAMPLES=25 $(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder --by-turns

check: static  ## Check format, lint, types, imports, and the tests of pure functions (seconds)
	LAW_EXAMPLES=25 $(BIN)/pytest -n 2 -m "$(PURE)" tests/architecture tests/retention retention

static: setup
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --cache-dir .import_linter_cache

long: $(if $(NAME),setup)  ## List the long runs; NAME=crash starts one, ARGS adds arguments
	@$(PYTHON) -m scripts.long $(NAME) $(ARGS)

conformance:  ## Judge every case of the real servers on every store and engine (the long run of that name)
	@$(MAKE) --no-print-directory long NAME=conformance

bench: setup  ## Measure against the same work done by hand with other libraries, half an hour
	$(BIN)/python -m benchmarks.half_hour

bench-full: setup  ## The same at full size, and with Spark (hours)
	for module in $(BENCHMARKS); do $(BIN)/python -m benchmarks$$module || exit 1; done
	$(BIN)/python -m benchmarks.growth --millions 5

format: setup  ## Format the code and mend what lint can mend
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

lock: setup  ## Write the locks anew: requirements.lock, requirements-image.lock (Dockerfile), requirements-airflow.lock
	$(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 \
		--extra spark --extra demo --extra dev --extra bench --extra java --extra notebook --extra connect --extra lineage --extra nats --extra plots --extra iggy --no-annotate \
		--generate-hashes --no-emit-index-url --custom-compile-command "make lock" -o requirements.lock
	$(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 \
		--extra spark --extra connect --extra lineage --extra nats --extra iggy --constraint requirements.lock --no-annotate \
		--generate-hashes --no-emit-index-url --custom-compile-command "make lock" -o requirements-image.lock
	$(BIN)/uv pip compile requirements-airflow.in --quiet --universal --python-version 3.11 --no-annotate \
		--generate-hashes --no-emit-index-url --custom-compile-command "make lock" -o requirements-airflow.lock

notebooks: setup  ## Execute the notebooks and store their outputs in them
	@$(BIN)/python -m scripts.notebooks

screenshots: setup  ## Take the screenshots of docs/pictures anew (a Chromium)
	@$(BIN)/python -m scripts.screenshots

pictures: setup  ## Draw the pictures of docs/pictures anew
	@$(BIN)/python -m scripts.pictures
	@$(BIN)/python -m scripts.rule_pictures
	@$(BIN)/python -m scripts.dashboard_picture

docs: setup  ## Write anew what documents take from code (outputs, the reference, schemas), and build the site into site/
	$(BIN)/python -m retention.views.json_schemas schemas/json
	$(BIN)/python -m scripts.reference
	ACCEPT=1 $(BIN)/pytest tests/docs/test_readme.py tests/docs/test_operating.py tests/docs/test_ingest.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
