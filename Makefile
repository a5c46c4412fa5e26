# Two commands matter: `make demo` and `make test`. Both install what they need into .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := -c constraints.txt
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

.PHONY: demo test verify lint bench docs clean

demo: $(VENV)/core
	$(BIN)/graphelements demo --out demo

test: $(VENV)/test
	$(PYTEST)

verify: $(VENV)/test lint docs
	GRAPHELEMENTS_VERIFY=1 $(PYTEST) -m "long or not long" --cov=graphelements --cov-report=term --cov-fail-under=90

lint: $(VENV)/lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: $(VENV)/test
	$(BIN)/python -m benchmarks

docs: $(VENV)/docs
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) site demo .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage*

# Each extra has a stamp file that is made anew when the dependencies change.
$(VENV)/python: 
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'graphelements needs Python 3.11 or newer; set PYTHON=python3.11')"
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/core: $(VENV)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet $(CONSTRAINTS) -e .
	touch $@

$(VENV)/%: $(VENV)/core
	$(BIN)/python -m pip install --quiet $(CONSTRAINTS) -e ".[$*]"
	touch $@
