"""Sweeps on Ray: the same bytes, also when a machine is lost. Runs where Ray is installed."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from killing import kill_midway
from typer.testing import CliRunner

from safedrift.cli import app
from safedrift.experiments.engines import LocalEngine
from safedrift.experiments.ray_engine import RayEngine
from safedrift.experiments.studies import plan_of, study_from
from safedrift.experiments.sweeps import run_sweep

STUDY = {
    "episodes": 300,
    "seeds": 20,
    "problems": [{"name": "random", "options": {"states": [3, 4], "horizon": 3, "gamma": 0.2}}],
    "learners": [
        "uniform",
        "opt-cmdp",
        {"name": "propd-ppo", "options": {"eta": [0.05, 0.1, 0.2]}},
    ],
}


def plan(**changes):
    return plan_of(study_from({**STUDY, **changes}))


def test_without_the_extra_a_sentence_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.chdir(tmp_path)
    Path("study.yaml").write_text("episodes: 5\nproblems: [stationary]\nlearners: [uniform]\n")
    done = CliRunner().invoke(app, ["sweep", "study.yaml", "--engine", "ray"])
    assert done.exit_code == 2
    assert "pip install 'safedrift[ray]'" in done.stderr
    done = CliRunner().invoke(app, ["sweep", "study.yaml", "--address", "x"])
    assert "--address must be left out without --engine ray" in done.stderr


@pytest.mark.slow
def test_two_machines_one_of_them_lost_leave_the_same_bytes(tmp_path):
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    alone = run_sweep(plan(), tmp_path / "a")
    assert alone.runs == 200
    two = run_sweep(plan(), tmp_path / "c", engine=LocalEngine(2))
    assert two.results.read_bytes() == alone.results.read_bytes()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    lost = []
    try:
        second = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()

        def progress(stage, done, total, failed):
            if stage == "runs" and done >= 60 and not lost:
                lost.append(done)
                cluster.remove_node(second, allow_graceful=False)

        engine = RayEngine(cluster.address)
        found = run_sweep(plan(), tmp_path / "b", engine=engine, progress=progress)
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert lost
    assert (found.runs, found.failed, found.played) == (200, 0, 200)
    assert found.results.read_bytes() == alone.results.read_bytes()
    assert len((tmp_path / "b" / "rows.jsonl").read_bytes().splitlines()) == 200


@pytest.mark.slow
def test_the_driver_may_be_killed_and_started_again(tmp_path):
    pytest.importorskip("ray")
    file, out = tmp_path / "study.yaml", tmp_path / "b"
    study = {
        "episodes": 300,
        "seeds": 60,
        "problems": ["stationary"],
        "learners": ["uniform", "opdop"],
    }
    file.write_text(json.dumps(study))  # JSON is YAML
    alone = run_sweep(plan_of(study_from(study)), tmp_path / "a")
    arguments = [sys.executable, "-m", "safedrift", "sweep", str(file), "--out", str(out)]
    arguments += ["--engine", "ray", "--workers", "2"]
    kill_midway(arguments, out)
    rows = out / "rows.jsonl"
    left = len(rows.read_bytes().splitlines())
    assert 0 < left < 120
    subprocess.run(arguments, check=True, capture_output=True)
    table = pq.read_table(out / "results.parquet")
    assert table["run"].to_pylist() == list(range(120))
    assert set(table["status"].to_pylist()) == {"done"}
    assert (out / "results.parquet").read_bytes() == alone.results.read_bytes()
    assert len(rows.read_bytes().splitlines()) == 120


@pytest.mark.slow
def test_a_run_that_kills_its_worker_is_given_up(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    (tmp_path / "mine.py").write_text(
        "import os, signal\n"
        "from safedrift.learners import make\n"
        "def dies(world, now):\n"
        "    if now: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return make('uniform', world)\n"
    )
    name = f"{tmp_path}/mine.py:dies"
    learners = ["uniform", {"name": name, "options": {"now": [False, True]}}]
    study = plan(learners=learners, problems=["stationary"], seeds=1, episodes=20)
    found = run_sweep(study, tmp_path / "a", engine=RayEngine(workers=1))
    rows = pq.read_table(found.results).to_pylist()
    assert [row["status"] for row in rows] == ["done", "done", "failed"]
    assert rows[2]["error"] == "the process that played it died"
