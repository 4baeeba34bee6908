"""`safedrift sweep` from the command line."""

import json
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from safedrift.cli import app

STUDY = """
episodes: 30
seeds: 2
problems: [stationary]
learners: [uniform, opt-cmdp]
"""


def command(*arguments):
    return CliRunner().invoke(app, ["sweep", *map(str, arguments)])


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(STUDY)
    return tmp_path / "study.yaml"


def test_a_sweep_leaves_results_and_a_table(study):
    done = command("study.yaml", "--workers", 1)
    assert done.exit_code == 0, done.output
    assert "4 runs, 0 failed; look at sweeps/study/results.parquet" in done.stdout
    assert "opt-cmdp" in done.stdout
    found = json.loads(command("study.yaml", "--workers", 1, "--json").stdout)
    assert found == {"out": "sweeps/study", "results": "sweeps/study/results.parquet", "runs": 4,
                     "failed": 0, "played": 0}  # fmt: skip


def test_a_dry_run_plays_nothing(study):
    done = command("study.yaml", "--dry-run")
    assert done.exit_code == 0, done.output
    for words in ("1 worlds: stationary", "2 learners: uniform, opt-cmdp", "4 runs", "MiB on disk"):
        assert words in done.stdout
    assert list(study.parent.iterdir()) == [study]
    study.write_text(STUDY.replace("seeds: 2", "seeds: 500000"))
    alone = json.loads(command("study.yaml", "--dry-run", "--json").stdout)
    shared = json.loads(command("study.yaml", "--dry-run", "--nodes", 100, "--json").stdout)
    assert alone["runs"] == 1_000_000
    assert shared["seconds"] < alone["seconds"] / 10


def test_failures_are_told(study):
    study.write_text(STUDY.replace("[uniform, opt-cmdp]", "[uniform, softmax-lsvi]"))
    done = command("study.yaml", "--workers", 1)
    assert done.exit_code == 0
    assert "4 runs, 2 failed" in done.stdout
    assert "2 failed: " in done.stdout
    assert "will fail: softmax-lsvi in stationary" in command("study.yaml", "--dry-run").stdout


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("seeds", "sedes"), "did you mean 'seeds'"),
        (("seeds: 2", "seeds: two"), "seeds"),
        (("stationary", "statoinary"), "did you mean 'stationary'"),
        (("[uniform, opt-cmdp]", "[uniform"), "must be YAML"),
        (("episodes: 30", "episodes: -1"), "episodes in study.yaml must be right; got -1"),
        ((STUDY, ""), "must be a mapping; got an empty file"),
        ((STUDY, "a: &x [1]\nb: *x"), "without aliases"),
        (("episodes: 30", "episodes: !!python/object:os.system 30"), "written without tags"),
    ],
)
def test_wrong_studies_get_one_sentence(study, change, sentence):
    study.write_text(STUDY.replace(*change))
    done = command("study.yaml")
    assert done.exit_code == 2, done.output
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "internal error" not in done.stderr
    assert list(study.parent.iterdir()) == [study]


@pytest.mark.parametrize(
    "arguments",
    [["nowhere.yaml"], ["study.yaml", "--workers", "0"], ["study.yaml", "--nodes", "0"],
     ["study.yaml", "--out", "study.yaml"], ["."]],
)  # fmt: skip
def test_wrong_arguments_get_one_sentence(study, arguments):
    done = command(*arguments)
    assert done.exit_code == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "internal error" not in done.stderr


@pytest.mark.slow
def test_a_sweep_that_is_stopped_goes_on(study):
    study.write_text("episodes: 400\nseeds: 200\nproblems: [stationary]\nlearners: [opt-cmdp]\n")
    arguments = [sys.executable, "-m", "safedrift", "sweep", "study.yaml", "--workers", "2"]
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    rows = study.parent / "sweeps" / "study" / "rows.jsonl"
    try:
        while process.poll() is None and not (rows.exists() and rows.stat().st_size):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 2
    assert "stopped; the same command goes on in sweeps/study" in errors
    assert "Traceback" not in errors
    found = json.loads(command("study.yaml", "--workers", 1, "--json").stdout)
    assert 0 < found["played"] < 200


WORDS = ["study.yaml", "--out", "--workers", "--nodes", "--dry-run", "--json", "1", "-1", "x", "",
         "--retry-failed", "../x", "\x00", "--seeds"]  # fmt: skip


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(st.sampled_from(WORDS), max_size=4))
def test_any_flags_end_in_an_answer_or_a_sentence(study, words):
    study.write_text("episodes: 5\nproblems: [stationary]\nlearners: [uniform]\n")
    done = command(*words, "--workers", "1")
    assert done.exit_code in (0, 1, 2)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert "internal error" not in done.output
