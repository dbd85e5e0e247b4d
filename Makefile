# What one can do here. Each target makes the environment it needs.
PYTHON ?= python3
VENV ?= .venv
BENCH_VENV ?= .venv-bench
WHEEL_VENV ?= .venv-wheel
BIN = $(VENV)/bin
FUZZ_SECONDS ?= 600
.PHONY: demo test coverage wheel-test lint bench models-report docs fuzz clean

demo: $(VENV)/.ready  ## train rankers with a plain and a bounded loss on generated data; writes demo-output/report.html
	$(BIN)/rankbound demo -o demo-output

test: $(VENV)/.ready-test lint  ## everything CI checks
	$(BIN)/pytest -n 2

coverage: $(VENV)/.ready-test  ## the same tests, and which branches of src they take; fails below 92 %
	$(BIN)/pytest -n 2 --cov

wheel-test: $(WHEEL_VENV)/.ready-test  ## the tests against the built and installed wheel, as users have it
	$(WHEEL_VENV)/bin/pytest -n 2 tests --pyargs rankbound

lint: $(VENV)/.ready-test
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

bench: $(BENCH_VENV)/.ready  ## time and memory compared with other libraries; writes bench-results/
	$(BENCH_VENV)/bin/python -m benchmarks -o bench-results $(PARTS)

models-report: $(VENV)/.ready-test  ## quality of the rankers on real data (RANKBOUND_DATA) next to published numbers
	$(BIN)/python -m benchmarks.quality.models
	$(BIN)/python -m benchmarks.quality.factorization

fuzz: $(VENV)/.ready-fuzz  ## every reader and parser against damaged input, 10 minutes each (FUZZ_SECONDS for less)
	$(BIN)/python -m fuzz --seconds $(FUZZ_SECONDS) $(FUZZ)

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

# the peers have an environment of their own: what they pin must not decide what we are tested with
$(BENCH_VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BENCH_VENV)/bin/python -m pip install --quiet -c constraints.txt --editable ".[all]" --group bench
	touch $@

$(VENV)/.ready-fuzz: $(VENV)/.ready-test
	$(BIN)/python -m pip install --quiet -c constraints.txt --group fuzz
	touch $@

$(WHEEL_VENV)/.ready-test: pyproject.toml constraints.txt $(shell git ls-files src)
	rm -rf $(WHEEL_VENV) dist
	$(PYTHON) -m venv $(WHEEL_VENV)
	$(WHEEL_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(WHEEL_VENV)/bin/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	$(WHEEL_VENV)/bin/python -m pip install --quiet -c constraints.txt "$$(ls dist/*.whl)[all]" --group test
	touch $@

$(VENV)/.ready-docs: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet -c constraints.txt --group docs
	touch $@

clean:
	rm -rf $(VENV) $(BENCH_VENV) $(WHEEL_VENV) demo-output bench-results site build dist
