"""`safedrift report` finds out what a folder holds."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import safedrift as sd
from safedrift.cli import app
from safedrift.experiments.engines import LocalEngine
from safedrift.experiments.studies import plan_of, study_from
from safedrift.experiments.sweeps import run_sweep
from safedrift.results.sweep_comparison import from_sweep

STUDY = {
    "episodes": 20,
    "seeds": 2,
    "problems": ["stationary"],
    "learners": ["uniform", "opt-cmdp", "optimum"],
}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep") / "s"
    run_sweep(plan_of(study_from(STUDY)), folder, engine=LocalEngine(1))
    return folder


def test_a_sweep_is_a_comparison(sweep):
    found = from_sweep(sweep / "results.parquet")
    other = sd.compare(["stationary"], STUDY["learners"], 2, episodes=20, workers=1)
    assert found.oracles == ("optimum",)
    assert found.complete
    assert found.verdict() == other.verdict()
    assert [row["strict_score"] for row in found.table()] == [
        row["strict_score"] for row in other.table()
    ]


def test_a_sweep_has_a_page_and_figures(sweep, tmp_path):
    done = CliRunner().invoke(
        app, ["report", str(sweep), "--out", str(tmp_path / "p.html"), "--figures", str(tmp_path)]
    )
    assert done.exit_code == 0, done.output
    verdict = from_sweep(sweep / "results.parquet").verdict()
    assert verdict in (tmp_path / "p.html").read_text(encoding="utf-8")
    assert (tmp_path / "ranking.pdf").is_file()


def test_an_unfinished_sweep_is_refused(tmp_path):
    (tmp_path / "study.json").write_text("{}")
    done = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert done.exit_code == 2
    assert "must be a finished sweep" in done.stderr.replace("\n", " ")
