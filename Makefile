# What one can do here. Each target makes the environment it needs.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
.PHONY: demo test lint bench models-report docs clean

demo: $(VENV)/.ready  ## train rankers with a plain and a bounded loss on generated data; writes demo-output/report.html
	$(BIN)/rankbound demo -o demo-output

test: $(VENV)/.ready-test lint  ## everything CI checks
	$(BIN)/pytest -n 2

lint: $(VENV)/.ready-test
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

bench: $(VENV)/.ready-bench  ## speed against peers, in one run
	$(BIN)/python -m bench

models-report: $(VENV)/.ready-test  ## quality of the rankers on real data (RANKBOUND_DATA) beside published numbers
	$(BIN)/python -m bench.models_report
	$(BIN)/python -m bench.factorization_report

docs: $(VENV)/.ready-docs
	$(BIN)/mkdocs build --strict

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet -c constraints.txt --editable ".[all]"
	touch $@

$(VENV)/.ready-test: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet -c constraints.txt --group test --group lint
	touch $@

$(VENV)/.ready-bench: $(VENV)/.ready-test
	$(BIN)/python -m pip install --quiet -c constraints.txt --group bench
	touch $@

$(VENV)/.ready-docs: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet -c constraints.txt --group docs
	touch $@

clean:
	rm -rf $(VENV) demo-output site build dist
