# Everything is installed into .venv; the first command of a new machine may be any of these.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check bench studies clean

demo: .venv/ready  ## run PROPD-PPO in the drifting maze and leave a page to look at
	$(BIN)/safedrift run maze --episodes 20000 --out demo --force

test: .venv/ready  ## ruff, mypy and all tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n auto

check: .venv/ready  ## ruff and mypy only, mending what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy

bench: .venv/ready  ## side-by-side benchmarks: a table, and JSON in benchmarks/results
	$(BIN)/python benchmarks/bench.py --json benchmarks/results/bench.json

studies: .venv/ready  ## pictures and tables of docs/, anew (half an hour)
	$(BIN)/python studies/features_against_tables.py --out docs
	$(BIN)/python studies/nodes.py --out docs
	$(BIN)/python studies/pictures.py --out docs/problems
	$(BIN)/python studies/rates.py --out docs
	$(BIN)/python studies/recorded_data.py --out docs/problems

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv demo benchmarks/results build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
