# Each target creates the environment that it needs: .venv is small and enough for `make demo` and `make test`, .venv-all
# has every tool that rankbound works with.
PYTHON ?= python3
VENV ?= .venv
ALL_VENV ?= .venv-all
BENCH_VENV ?= .venv-bench
WHEEL_VENV ?= .venv-wheel
SMOKE_VENV ?= .venv-smoke
PLAIN_VENV ?= .venv-plain
PLAIN_TESTS ?= tests/losses tests/models/test_factorization.py tests/models/test_recommenders.py
BIN = $(VENV)/bin
ALL_BIN = $(ALL_VENV)/bin
FUZZ_SECONDS ?= 600
SANITIZED ?= $(addprefix tests/losses/test_,kernels.py properties.py long_lists.py lambda.py softmax.py distillation.py stochastic.py)
# many tests wait for processes that they start: three workers keep two cores busy. Each begins with a third of the files,
# so that fixtures of a file are set up once and no two workers compile the same kernels at the same time.
WORKERS ?= -n 3 --dist worksteal
# what an installation depends on: pip compiles the kernels
PACKAGE = pyproject.toml constraints.txt setup.py $(wildcard src/rankbound/kernels/*.cpp src/rankbound/kernels/*.hpp)
# most files of the packages are never imported: those that are get compiled then
export PIP_NO_COMPILE = 1
# tests that use every dependency, for the lowest versions and for other interpreters
SMOKE = tests/test_evaluation.py tests/test_lists.py tests/cli/test_evaluate.py tests/cli/test_report.py
SMOKE_EXTRAS = tests/cli/test_train.py tests/cli/test_recommend.py tests/losses/test_objectives.py tests/models/test_saving.py \
	$(addprefix tests/integrations/test_,boosting_metrics.py boosting_catboost.py torchmetrics.py lightning.py \
	ir_measures.py ir_datasets.py mlflow.py optuna.py sklearn.py)
OLDEST_VENV ?= .venv-oldest
# sentence-transformers and pyterrier need newer versions of what the other extras allow
OLDEST_EXTRAS ?= standard,xgboost,catboost,torchmetrics,lightning,ir-measures,ir-datasets,mlflow,notebook
PYTHONS ?= python3.11 python3.12 python3.13
# for example PYTHONS_EXTRAS=all PYTHONS_TESTS="tests/cli tests/models", which brings gigabytes of CUDA packages with torch
PYTHONS_EXTRAS ?= report,cluster,tune
PYTHONS_TESTS ?= tests/report/test_safe_text.py
# the records of the comparison of training methods, outside the repository: hours of computing, kept between runs
TRAINING_STORE ?= ../rankbound-training
.PHONY: kernels sanitize setup setup-demo demo test fast-tests test-all all-tests coverage wheel-plain package wheel-test lint bench models-report docs fuzz oldest pythons clean

setup: $(VENV)/.ready-test  ## the environment for development

setup-demo: $(VENV)/.ready  ## the environment of `make demo` alone

demo: $(VENV)/.ready  ## train LightGBM with its objective and with ours on generated data; write demo-output/report.html
	$(BIN)/rankbound demo -o demo-output

test: $(VENV)/.ready-test  ## linters and the fast tests, side by side: without data, browser, JVM or root
	$(MAKE) --jobs 2 lint fast-tests

fast-tests: $(VENV)/.ready-test  ## the fast tests alone; they run in any folder and locale
	$(BIN)/python -m pytest $(WORKERS)

test-all: $(ALL_VENV)/.ready $(VENV)/.ready-docs  ## all tests, with real data where RANKBOUND_DATA points to it, and the documentation
	$(MAKE) --jobs 2 docs all-tests

all-tests: $(ALL_VENV)/.ready  ## all tests alone
	$(ALL_BIN)/python -m pytest --everything $(WORKERS)

coverage: $(ALL_VENV)/.ready  ## all tests with branch coverage of src; fails below 97 %
	$(ALL_BIN)/python -m pytest --everything $(WORKERS) --cov

kernels: $(VENV)/.ready  ## the compiled kernels in the source tree, after a change of their sources
	$(BIN)/python -m pip install --quiet --no-deps --editable .

sanitize: $(VENV)/.ready-test  ## the tests of the kernels with the address and undefined-behavior sanitizers, in a copy of the sources
	rm -rf build/sanitize && mkdir -p build/sanitize && cp -r setup.py pyproject.toml README.md LICENSE src tests benchmarks build/sanitize
	rm -f build/sanitize/src/rankbound/kernels/*.so
	$(BIN)/python -m pip install --quiet "setuptools>=77"
	cd build/sanitize && RANKBOUND_SANITIZE=1 $(abspath $(BIN))/python setup.py --quiet build_ext --inplace
	cd build/sanitize && PYTHONPATH=src ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
		LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libubsan.so) $$(g++ -print-file-name=libstdc++.so)" \
		$(abspath $(BIN))/python -m pytest -n 0 -q -p no:cacheprovider $(SANITIZED)

package:  ## build wheel and source distribution, check both, install each in an empty environment and evaluate with it
	rm -rf $(SMOKE_VENV) dist build
	$(PYTHON) -m venv $(SMOKE_VENV)/tools
	$(SMOKE_VENV)/tools/bin/python -m pip install --quiet --disable-pip-version-check build twine
	$(SMOKE_VENV)/tools/bin/python -m build --outdir dist . > $(SMOKE_VENV)/build.log || (cat $(SMOKE_VENV)/build.log; false)
	$(SMOKE_VENV)/tools/bin/python -m twine check --strict dist/*
	! $(PYTHON) -m zipfile --list dist/*.whl | grep -E '^(benchmarks|fuzz|tests|docs)/'
	! tar --list --file dist/*.tar.gz | grep -E '^[^/]*/(benchmarks|fuzz|tests|docs)/'
	@for built in dist/*.whl dist/*.tar.gz; do \
		rm -rf $(SMOKE_VENV)/empty && $(PYTHON) -m venv $(SMOKE_VENV)/empty && \
		$(SMOKE_VENV)/empty/bin/python -m pip install --quiet --disable-pip-version-check $$built && \
		(cd $(SMOKE_VENV)/empty && bin/rankbound --version && bin/rankbound bounds AP --n 2 --relevant 1 && \
		bin/python -c 'import rankbound; assert rankbound.evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, ["nDCG"]).mean() == {"nDCG": 1.0}' && \
		du -sh lib) || exit 1; \
	done

wheel-plain:  ## the wheel as it is built without a compiler, and the losses by their formulas in torch
	rm -rf $(PLAIN_VENV) $(PLAIN_VENV)-wheel build
	CC=false CXX=false $(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir $(PLAIN_VENV)-wheel .
	! $(PYTHON) -m zipfile --list $(PLAIN_VENV)-wheel/*.whl | grep -E "kernels/.*[.](so|dll|dylib)"
	$(PYTHON) -m venv $(PLAIN_VENV)
	$(PLAIN_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(PLAIN_VENV)/bin/python -m pip install --quiet $(PLAIN_VENV)-wheel/*.whl
	$(PLAIN_VENV)/bin/rankbound --version | grep "kernels: none"
	cd $(PLAIN_VENV) && bin/rankbound bounds AP --n 2 --relevant 1
	cd $(PLAIN_VENV) && bin/python -c 'import rankbound.losses as l; l.lightgbm_objective()([1, 0], [0.5, 0.0], None, [2])' 2>&1 | grep "torch"
	$(PLAIN_VENV)/bin/python -m pip install --quiet -c constraints.txt "$$(ls $(PLAIN_VENV)-wheel/*.whl)[train]" pytest hypothesis
	cd $(PLAIN_VENV) && bin/python -c 'import rankbound.losses as l; print(l.lightgbm_objective()([1, 0], [0.5, 0.0], None, [2]))'
	$(PLAIN_VENV)/bin/python -m pytest -q -p no:cacheprovider $(PLAIN_TESTS)

wheel-test: $(WHEEL_VENV)/.ready-test  ## the tests against the built and installed wheel
	$(WHEEL_VENV)/bin/python -m pytest --everything $(WORKERS) tests --pyargs rankbound

lint: $(VENV)/.ready-test  ## ruff, mypy and import-linter
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/python -m mypy && $(BIN)/lint-imports

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

$(VENV)/.ready: $(PACKAGE)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet -c constraints.txt --editable ".[trees,report]"
	touch $@

$(VENV)/.ready-test: $(PACKAGE)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet -c constraints.txt --editable ".[standard]" --group test --group lint
	touch $(VENV)/.ready $@

$(ALL_VENV)/.ready: export RANKBOUND_ALL_KERNELS = 1
$(ALL_VENV)/.ready: $(PACKAGE)
	$(PYTHON) -m venv $(ALL_VENV)
	$(ALL_BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(ALL_BIN)/python -m pip install --quiet -c constraints.txt --editable ".[integrations]" --group test-all
	touch $@

# peers have an environment of their own, so that the versions they pin do not constrain the tests
$(BENCH_VENV)/.ready: $(PACKAGE)
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BENCH_VENV)/bin/python -m pip install --quiet -c constraints.txt --editable ".[standard]" --group bench
	touch $@

$(VENV)/.ready-fuzz: $(VENV)/.ready-test
	$(BIN)/python -m pip install --quiet -c constraints.txt --group fuzz
	touch $@

$(WHEEL_VENV)/.ready-test: pyproject.toml constraints.txt setup.py $(shell find src -type f -not -path "*__pycache__*")
	rm -rf $(WHEEL_VENV) dist
	$(PYTHON) -m venv $(WHEEL_VENV)
	$(WHEEL_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(WHEEL_VENV)/bin/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	$(WHEEL_VENV)/bin/python -m pip install --quiet -c constraints.txt "$$(ls dist/*.whl)[integrations]" --group test-all
	touch $@

$(VENV)/.ready-docs: $(VENV)/.ready-test
	$(BIN)/python -m pip install --quiet -c constraints.txt --group docs
	touch $@

clean:
	rm -rf $(VENV) $(ALL_VENV) $(BENCH_VENV) $(WHEEL_VENV) $(SMOKE_VENV) $(PLAIN_VENV) $(PLAIN_VENV)-wheel $(OLDEST_VENV) .venv-python3.* demo-output bench-results site build dist
