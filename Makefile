# The two commands of the README are `make quickstart` and `make test`; both set everything up first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
INSTALLED := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
OUT ?= quickstart
# One worker more than cores: tests that wait for a server or a process leave their core to others.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

.DEFAULT_GOAL := help
.PHONY: help test lint docs quickstart bench experiments people-tiny format clean system

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing; install Python 3.10 or newer"; exit 1; }
	@$(PYTHON) scripts/check_python.py
	@$(PYTHON) -m venv $(VENV)

$(INSTALLED): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing SlimReID into $(VENV) ..."
	@$(PIP) -e '.[train]'
	@touch $@

$(DEV): $(INSTALLED)
	@echo "installing what the tests need ..."
	@$(PIP) -e '.[dev,train,export,gallery,serve,ray]'
	@touch $@

test: $(DEV) system lint docs ## Lint, check types, build the documentation and run all tests
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST)

lint: $(DEV) ## Check style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

docs: $(DEV) ## Build the documentation site into site/ (open site/index.html)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

format: $(DEV) ## Put the code into the common format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

system:
	@sh scripts/system_packages.sh

quickstart: $(INSTALLED) ## Make a world, search it, train three models, measure them, write a report
	@$(BIN)/slimreid quickstart --out $(OUT)

bench: $(DEV) ## Run all benchmarks
	@for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

experiments: $(INSTALLED) ## Run every experiment of docs/results.md, as far as not done (ARGS='--list')
	@$(BIN)/python research/run.py $(ARGS)
	@case '$(ARGS)' in '') $(BIN)/python research/old_mask.py;; esac
	@$(BIN)/python research/tables.py

people-tiny: $(DEV) ## Train the built-in model: MARKET=Market-1501's images, WEIGHTS=ImageNet weights of timm (hours; resumable)
	@$(BIN)/python research/people_tiny.py '$(MARKET)' '$(WEIGHTS)'

clean: ## Remove the virtual environment and everything generated
	@rm -rf $(VENV) $(OUT) site .pytest_cache .mypy_cache .ruff_cache .hypothesis
