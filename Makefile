# Everything is installed into .venv; the first command of a new machine may be any of these.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := -m pip install --quiet --disable-pip-version-check
# The versions that were tested; `make test CONSTRAINTS=` installs the newest instead.
CONSTRAINTS ?= --constraint constraints.txt
SCRATCH := build/newest

.PHONY: demo test test-all test-gpu check docs docs-test bench studies constraints clean

demo: .venv/ready  ## three learners in the drifting maze beside the optimum: demo/report.html
	$(BIN)/safedrift demo --out demo

test: .venv/ready  ## ruff, mypy and the tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy & types=$$!; $(BIN)/pytest -n auto && wait $$types

test-all: .venv/ready  ## the slow tests too, and an audit of every simulation that a test makes
	$(BIN)/pytest -n auto -m '' --audit

test-gpu: .venv/ready  ## the tests that need a card, with CuPy for CUDA 13
	@$(BIN)/python $(INSTALL) $(CONSTRAINTS) --editable '.[dev,gpu]'
	$(BIN)/pytest tests/gpu -m gpu

check: .venv/ready  ## ruff and mypy only, fixing what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy

docs: .venv/docs  ## the site in docs/_build/html; a warning or a broken link inside it is an error
	$(BIN)/python notebooks/write.py
	$(BIN)/sphinx-build -W --keep-going -q -b html -d docs/_build/doctrees docs docs/_build/html
	@echo 'Open docs/_build/html/index.html'

docs-test: .venv/ready  ## links of the pages, names in the paper map, and all code in README and docs
	$(BIN)/pytest -m '' tests/test_readme.py tests/test_site.py tests/test_paper_map.py \
	  tests/experiments/test_contract.py tests/experiments/test_sweeps.py::test_results_open_in \
	  tests/worldfiles/test_yaml_file.py::test_the_file_of_the_guide_runs_as_written

bench: .venv/ready  ## side-by-side benchmarks: a table, and JSON in benchmarks/results
	$(BIN)/python benchmarks/bench.py --json benchmarks/results/bench.json

studies: .venv/ready  ## draw the pictures and tables of docs/ again (some hours the first time)
	$(BIN)/python studies/comparison.py --out docs
	$(BIN)/python studies/features_against_tables.py --out docs
	$(BIN)/python studies/nodes.py --out docs
	$(BIN)/python studies/pictures.py --out docs/problems
	$(BIN)/python studies/published.py --out docs
	$(BIN)/python studies/rates.py --out docs
	$(BIN)/python studies/recorded_data.py --out docs/problems

.venv/ready: pyproject.toml constraints.txt
	@echo 'Installing safedrift and what it needs into .venv (a minute or two) ...'
	@$(PYTHON) -m venv .venv
	@$(BIN)/python $(INSTALL) $(CONSTRAINTS) --editable '.[dev]'
	@touch $@
	@echo 'Installed. The first run of each kind of world compiles for up to a minute.'

.venv/docs: .venv/ready
	@echo 'Installing what the site needs into .venv ...'
	@$(BIN)/python $(INSTALL) $(CONSTRAINTS) --editable '.[docs]'
	@touch $@

constraints:  ## resolve the newest versions in a scratch environment and write constraints.txt
	@echo 'Installing the newest versions into $(SCRATCH) (a minute or two) ...'
	@rm -rf $(SCRATCH)
	@$(PYTHON) -m venv $(SCRATCH)
	@$(SCRATCH)/bin/python $(INSTALL) '.[dev,docs]'
	@{ echo "# Versions tested on $$($(PYTHON) -V); \`make constraints\` writes the newest here."; \
	   $(SCRATCH)/bin/python -m pip --disable-pip-version-check freeze --exclude safedrift; \
	 } > $(SCRATCH)/constraints.txt
	@mv $(SCRATCH)/constraints.txt constraints.txt
	@rm -rf $(SCRATCH)
	@echo 'Wrote constraints.txt; run `make test` before you commit it.'

clean:
	rm -rf .venv demo benchmarks/results build dist docs/_build docs/generated .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
