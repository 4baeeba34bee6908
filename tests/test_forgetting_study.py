"""The study of ways to forget: what it plays and stores, and what docs/adaptive.md says of it."""

import importlib.util
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import safedrift as sd
from safedrift.learners import adaptive_planner

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def study():
    path = ROOT / "studies" / "forgetting.py"
    spec = importlib.util.spec_from_file_location("forgetting_study", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_of_the_page_are_those_of_the_stored_rows(study):
    text = (ROOT / "docs" / "adaptive.md").read_text(encoding="utf-8")
    folder = ROOT / "docs" / "forgetting"
    found = {x: sd.Comparison.from_parquet(folder / f"{x}.parquet") for x in study.SIGNALS}
    assert study.forgetting_table(found) in text
    assert study.ablation_table(pq.read_table(folder / "ablation.parquet").to_pylist()) in text


def test_script_plays_stores_and_counts(study, tmp_path, monkeypatch):
    monkeypatch.setattr(study, "EPISODES", 20)
    monkeypatch.setattr(study, "learners", lambda: {("u", "never"): "uniform"})
    given = ["play", "--out", str(tmp_path), "--work", str(tmp_path / "work"), "--seeds", "0", "1",
             "--worlds", "abrupt 2", "--measure-every", "5"]  # fmt: skip
    study.main(given)
    found = {
        x: sd.Comparison.from_parquet(tmp_path / "forgetting" / f"{x}.parquet")
        for x in study.SIGNALS
    }
    line = "| `u` | never | 1.000 / 1.000 | 1.000 / 1.000 |"
    assert line in study.forgetting_table(found)


def test_every_part_of_the_planner_is_left_out_once(study):
    rates = len(adaptive_planner.MOVE_RATES) + len(adaptive_planner.SIGNAL_RATES)
    found = study.variants()
    bonuses_and_exploration = 4
    assert len(found) == 1 + rates + 1 + len(adaptive_planner.POOLING) + 2 + bonuses_and_exploration
    for constants, _ in found.values():
        for name, kept in constants.items():
            assert set(kept) < set(getattr(adaptive_planner, name))
    for module, replaced in study.COMPILED.values():
        assert set(replaced) <= set(vars(module))
    rows = pq.read_table(ROOT / "docs" / "forgetting" / "ablation.parquet").to_pylist()
    assert {row["variant"] for row in rows} == {*found, *study.COMPILED}
    lines = study.ablation_table([
        {"variant": "x", "world": "w", "signals": signals, "seed": seed, "strict_score": score}
        for signals, seed, score in (("exact", 0, 0.1), ("exact", 1, 0.3), ("bernoulli", 0, 0.5))
    ])  # fmt: skip
    assert "| x | .200 | .500 |" in lines
