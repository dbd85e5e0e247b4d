# Each target creates the environment that it needs.
PYTHON ?= python3
VENV ?= .venv
BENCH_VENV ?= .venv-bench
WHEEL_VENV ?= .venv-wheel
SMOKE_VENV ?= .venv-smoke
BIN = $(VENV)/bin
FUZZ_SECONDS ?= 600
# many tests wait for processes that they start: three workers keep two cores busy. Each begins with a third of the files,
# so that fixtures of a file are set up once and no two workers compile the same kernels at the same time.
WORKERS ?= -n 3 --dist worksteal
# most files of the packages are never imported: those that are get compiled then
export PIP_NO_COMPILE = 1
# tests that use every dependency, for the lowest versions and for other interpreters
SMOKE = tests/test_evaluation.py tests/test_lists.py tests/cli/test_evaluate.py tests/cli/test_report.py
SMOKE_EXTRAS = tests/cli/test_train.py tests/cli/test_recommend.py tests/losses/test_objectives.py tests/models/test_saving.py \
	$(addprefix tests/integrations/test_,boosting_metrics.py boosting_catboost.py torchmetrics.py lightning.py \
	ir_measures.py ir_datasets.py mlflow.py optuna.py sklearn.py)
OLDEST_VENV ?= .venv-oldest
# sentence-transformers and pyterrier need newer versions of what the other extras allow
OLDEST_EXTRAS ?= all,xgboost,catboost,torchmetrics,lightning,ir-measures,ir-datasets,mlflow,notebook
PYTHONS ?= python3.11 python3.12 python3.13
# for example PYTHONS_EXTRAS=all PYTHONS_TESTS="tests/cli tests/models", which brings gigabytes of CUDA packages with torch
PYTHONS_EXTRAS ?= report,cluster,tune
PYTHONS_TESTS ?= tests/report/test_safe_text.py
# the records of the comparison of training methods, outside the repository: hours of computing, kept between runs
TRAINING_STORE ?= ../rankbound-training
.PHONY: setup demo test pytest coverage wheel wheel-smoke wheel-test lint bench models-report docs fuzz oldest pythons clean

setup: $(VENV)/.ready-test  ## the environment for development

demo: $(VENV)/.ready  ## train rankers with a plain and a bounded loss on generated data; write demo-output/report.html
	$(BIN)/rankbound demo -o demo-output

test: lint pytest  ## linters and all tests

pytest: $(VENV)/.ready-test  ## all tests
	$(BIN)/pytest $(WORKERS)

coverage: $(VENV)/.ready-test  ## the same tests with branch coverage of src; fails below 92 %
	$(BIN)/pytest $(WORKERS) --cov

wheel:  ## build the wheel into dist/
	rm -rf dist
	$(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir dist .

wheel-smoke: wheel  ## install the wheel without extras in an environment of its own and evaluate with it
	rm -rf $(SMOKE_VENV)
	$(PYTHON) -m venv $(SMOKE_VENV)
	$(SMOKE_VENV)/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd $(SMOKE_VENV) && bin/rankbound bounds AP --n 2 --relevant 1
	cd $(SMOKE_VENV) && bin/python -c 'import rankbound; assert rankbound.evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, ["nDCG"]).mean() == {"nDCG": 1.0}'
	! $(SMOKE_VENV)/bin/python -m zipfile --list dist/*.whl | grep -E '^(benchmarks|fuzz|tests)/'

wheel-test: $(WHEEL_VENV)/.ready-test  ## the tests against the built and installed wheel
	$(WHEEL_VENV)/bin/pytest $(WORKERS) tests --pyargs rankbound

lint: $(VENV)/.ready-test  ## ruff, mypy and import-linter
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

bench: $(BENCH_VENV)/.ready  ## time and memory compared with other libraries; writes bench-results/
	$(BENCH_VENV)/bin/python -m benchmarks -o bench-results $(PARTS)

models-report: $(VENV)/.ready-test $(BENCH_VENV)/.ready  ## quality of the rankers on real data (RANKBOUND_DATA); resumes from TRAINING_STORE
	$(BIN)/python -m benchmarks.quality.models
	$(BIN)/python -m benchmarks.quality.factorization
	$(BENCH_VENV)/bin/python -m benchmarks.quality.training run --store $(TRAINING_STORE)
	$(BENCH_VENV)/bin/python -m benchmarks.quality.training report --store $(TRAINING_STORE) -o docs/results

fuzz: $(VENV)/.ready-fuzz  ## every reader and parser on damaged input, FUZZ_SECONDS each (default: 600)
	$(BIN)/python -m fuzz --seconds $(FUZZ_SECONDS) $(FUZZ)

oldest:  ## the smoke tests with the lowest version of every dependency that pyproject.toml allows
	rm -rf $(OLDEST_VENV)
	$(PYTHON) -m venv $(OLDEST_VENV)
	$(PYTHON) tests/lower_bounds.py > $(OLDEST_VENV)/lower-bounds.txt
	$(OLDEST_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(OLDEST_VENV)/bin/python -m pip install --quiet -c $(OLDEST_VENV)/lower-bounds.txt --editable ".[$(OLDEST_EXTRAS)]"
	$(OLDEST_VENV)/bin/python -m pip install --quiet -c $(OLDEST_VENV)/lower-bounds.txt pytest hypothesis pytrec_eval-terrier pyarrow
	$(OLDEST_VENV)/bin/python -m pytest -q -o filterwarnings=default $(SMOKE) $(SMOKE_EXTRAS)

pythons:  ## evaluate with each interpreter of PYTHONS, and run PYTHONS_TESTS; one that is not to be had is skipped
	@for python in $(PYTHONS); do \
		if ! $$python -c "" 2> /dev/null; then echo "skipped $$python: there is no such interpreter"; continue; fi; \
		venv=.venv-$$($$python -c "import sys; print('python{}.{}'.format(*sys.version_info))"); \
		rm -rf $$venv && $$python -m venv $$venv && \
		$$venv/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1" && \
		$$venv/bin/python -m pip install --quiet -c constraints.txt --editable ".[$(PYTHONS_EXTRAS)]" && \
		$$venv/bin/python -m pip install --quiet -c constraints.txt pytest hypothesis pytrec_eval-terrier pyarrow && \
		echo "$$venv" && $$venv/bin/rankbound bounds AP --n 2 --relevant 1 && \
		$$venv/bin/rankbound distribution nDCG --n 9 --relevant 3 --json > /dev/null && \
		$$venv/bin/python -c 'import rankbound; assert rankbound.evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, ["nDCG"]).mean() == {"nDCG": 1.0}' && \
		$$venv/bin/python -m pytest -q -o filterwarnings=default $(PYTHONS_TESTS) || exit 1; \
	done

docs: $(VENV)/.ready-docs  ## the documentation site; fails on warnings such as broken links
	$(BIN)/mkdocs build --strict

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet -c constraints.txt --editable ".[all]"
	touch $@

$(VENV)/.ready-test: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet -c constraints.txt --editable ".[integrations]" --group test --group lint --group docs
	touch $(VENV)/.ready $(VENV)/.ready-docs $@

# peers have an environment of their own, so that the versions they pin do not constrain the tests
$(BENCH_VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BENCH_VENV)/bin/python -m pip install --quiet -c constraints.txt --editable ".[all]" --group bench
	touch $@

$(VENV)/.ready-fuzz: $(VENV)/.ready-test
	$(BIN)/python -m pip install --quiet -c constraints.txt --group fuzz
	touch $@

$(WHEEL_VENV)/.ready-test: pyproject.toml constraints.txt $(shell find src -type f -not -path "*__pycache__*")
	rm -rf $(WHEEL_VENV) dist
	$(PYTHON) -m venv $(WHEEL_VENV)
	$(WHEEL_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(WHEEL_VENV)/bin/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	$(WHEEL_VENV)/bin/python -m pip install --quiet -c constraints.txt "$$(ls dist/*.whl)[integrations]" --group test
	touch $@

$(VENV)/.ready-docs: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet -c constraints.txt --group docs
	touch $@

clean:
	rm -rf $(VENV) $(BENCH_VENV) $(WHEEL_VENV) $(SMOKE_VENV) $(OLDEST_VENV) .venv-python3.* demo-output bench-results site build dist
