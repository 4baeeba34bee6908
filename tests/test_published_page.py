"""The page of published experiments shows what is stored, and its script runs."""

import importlib.util
import json
from pathlib import Path

import pytest

import safedrift as sd
from safedrift.problems import PROBLEMS

ROOT = Path(__file__).parents[1]
STORE = json.loads((ROOT / "docs" / "published.json").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "published.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def study():
    spec = importlib.util.spec_from_file_location("published", ROOT / "studies" / "published.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_of_the_page_are_those_of_the_stored_results(study):
    assert study.with_tables(PAGE, STORE) == PAGE


def test_every_published_world_has_an_experiment_and_a_section(study):
    worlds = {name for name, module in PROBLEMS.items() if hasattr(module, "PUBLISHED")}
    assert {experiment.problem for experiment in study.EXPERIMENTS.values()} == worlds
    headings = {
        word for line in PAGE.splitlines() if line[:3] == "## " for word in line[3:].split()
    }
    assert worlds <= {word.strip(",") for word in headings}


@pytest.mark.parametrize("name", ["factored", "media", "triple_q_grid", "combination_lock"])
def test_stored_optima_are_those_of_the_oracle(study, name):
    for stored, found in zip(STORE["exact"][name]["rows"], study.exact(name)["rows"], strict=True):
        assert stored == pytest.approx(found)


def test_a_run_is_a_row_in_published_units(study, monkeypatch):
    monkeypatch.setattr(study, "sizes_of", lambda key: (60, 1))
    study.world_and_truth.cache_clear()
    row = study.play(("media", "uniform", 0))
    stored = STORE["exact"]["media"]["rows"][0]
    assert row["reward"] == pytest.approx(stored["uniform"])  # empty steps
    assert row["constraint"] == pytest.approx(stored["uniform cost"])
    assert row["regret"] == pytest.approx(60 * (stored["uniform"] - stored["optimum"]))
    failed = study.play(("media", "nobody", 0))
    assert failed["error"].startswith("ValueError: learner must be one of")
    study.world_and_truth.cache_clear()


def test_learners_without_numbers_are_named(study):
    first, second, *_ = study.EXPERIMENTS["media"].learners
    rows = [{"experiment": "media", "learner": first, "run": 0, "error": "ValueError: no"}]
    text = study.runs_table("media", rows)
    assert f"`{first}` (ValueError: no)" in text
    assert f"`{second}` (not run)" in text
    assert "uniform" in sd.learners.LEARNERS
