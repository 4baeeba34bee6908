"""The command: what it prints, leaves behind and refuses."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from safedrift.cli import app
from safedrift.problems import PROBLEMS

SMALL = ["run", "random", "-n", "60", "-o", "states=3", "-o", "horizon=3", "-o", "gamma=0.2"]


def command(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_run_leaves_page_numbers_and_summary(tmp_path):
    done = command(*SMALL, "--out", tmp_path / "a")
    assert done.exit_code == 0, done.output
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert names == {"report.html", "records.parquet", "summary.json", "manifest.json"}
    assert "report.html" in done.stdout
    assert "regret" in done.stdout


def test_json_is_strict_and_alone(tmp_path):
    done = command(*SMALL, "--out", tmp_path / "a", "--json", "--knowledge", "local-budgets")
    summary = json.loads(done.stdout, parse_constant=pytest.fail)
    assert summary["sizes"] == {"M": 60, "H": 3, "S": 3, "A": 3, "K": 1}
    assert summary["out"].endswith("a")
    assert json.loads((tmp_path / "a" / "summary.json").read_text())["seed"] == 0


def test_same_command_same_numbers(tmp_path):
    one = command(*SMALL, "--out", tmp_path / "a", "--json", "--seed", 3)
    two = command(*SMALL, "--out", tmp_path / "b", "--json", "--seed", 3)
    first, second = json.loads(one.stdout), json.loads(two.stdout)
    assert first.pop("out") != second.pop("out")
    assert first == second


def test_overrides_and_options_are_recorded(tmp_path):
    from safedrift import Run

    done = command(*SMALL, "--out", tmp_path / "a", "--set", "alpha=0.3", "--set", "W=20")
    assert done.exit_code == 0, done.output
    manifest = Run.from_parquet(tmp_path / "a" / "records.parquet").manifest
    settings = manifest.learner.settings
    assert settings["parameters"]["overrides"] == {"alpha": 0.3, "W": 20}
    assert manifest.options["states"] == 3


@pytest.mark.parametrize("mode", ["printed", "repaired", "practical"])
@pytest.mark.parametrize("knowledge", ["slater", "local-budgets"])
def test_every_mode_and_knowledge(tmp_path, mode, knowledge):
    done = command(*SMALL, "--out", tmp_path / "a", "--mode", mode, "--knowledge", knowledge)
    assert done.exit_code == 0, done.output


def test_a_learner_can_be_told_nothing(tmp_path):
    done = command(
        *SMALL, "--out", tmp_path / "a", "--knowledge", "none", "--set", "tau=0.1", "--json"
    )
    assert done.exit_code == 0, done.output
    settings = json.loads(done.stdout)["settings"]
    assert (settings["told"], settings["knowledge"]) == ([], {"name": "none"})
    assert settings["parameters"]["settling"]["tau"] == 0.1
    for options, sentence in [
        (("--gamma", "0.3"), "--gamma must be left out with --knowledge none; got 0.3"),
        (("--mode", "printed"), "--mode with --knowledge none must be one of 'practical'"),
        (("--set", "W=3"), "override must be one of 'alpha', 'tau'"),
    ]:
        done = command(*SMALL, "--out", tmp_path / "b", "--knowledge", "none", *options)
        assert done.exit_code == 2
        assert sentence in done.stderr


def test_results_on_disk_are_not_lost(tmp_path):
    assert command(*SMALL, "--out", tmp_path / "a").exit_code == 0
    before = (tmp_path / "a" / "records.parquet").read_bytes()
    again = command(*SMALL, "--out", tmp_path / "a", "--seed", 1)
    assert again.exit_code == 2
    assert "new or empty folder" in again.stderr
    assert (tmp_path / "a" / "records.parquet").read_bytes() == before
    failed = command(*SMALL, "--out", tmp_path / "a", "--force", "--set", "L=0")
    assert failed.exit_code == 2
    assert (tmp_path / "a" / "records.parquet").read_bytes() == before
    assert command(*SMALL, "--out", tmp_path / "a", "--seed", 1, "--force").exit_code == 0
    assert (tmp_path / "a" / "records.parquet").read_bytes() != before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["run", "mars"],
            f"problem must be one of {', '.join(map(repr, PROBLEMS))}; got 'mars'",
        ),
        (["run", "maze", "-o", "colour=red"], "option of maze must be one of"),
        (["run", "maze", "-o", "size"], "--option must be NAME=VALUE; got 'size'"),
        (["run", "maze", "-o", "slip=2"], "slip must be in [0, 1); got 2"),
        (["run", "maze", "-n", "0"], "episodes must be an integer >= 1; got 0"),
        ([*SMALL, "--gamma", "-1"], "gamma must be > 0; got -1"),
        ([*SMALL, "--gamma", "nan"], "gamma must be a number; got nan"),
        ([*SMALL, "--rho", "0.9", "--knowledge", "local-budgets"], "rho must be in [1/3, 1/2]"),
        ([*SMALL, "--set", "L=0"], "L must be an integer >= 1; got 0"),
        ([*SMALL, "--set", "W=-3"], "W must be an integer >= 1; got -3"),
        ([*SMALL, "--set", "colour=1"], "override must be one of"),
        ([*SMALL, "--measure-every", "0"], "measure_every must be an integer in [1, 60]; got 0"),
        ([*SMALL, "--seed", "-4"], "seed must be an integer >= 0; got -4"),
        ([*SMALL, "-o", "B_P=1e9"], "B_P must be at most"),
        (["run", "random", "-n", "20", "-o", "gamma=4.9"], "gamma must be below"),
        ([*SMALL, "--set", "mode=printed"], "override must be one of"),
        ([*SMALL, "--set", "L=1000000000000000000000000000000"], "L must be an integer in"),
        (["run", "maze", "-n", "99999999999999999999"], "episodes must be an integer in"),
        (["run", "random", "-n", "9", "-o", "states=200000"], "not enough memory"),
        ([*SMALL, "--rho", "9"], "rho must be in [1/3, 1/2]; got 9.0"),
        ([*SMALL, "--rho", "nan"], "rho must be a number; got nan"),
        ([*SMALL, "--mode", "printed", "--rho", "0"], "rho must be in [1/3, 1/2]; got 0.0"),
        ([*SMALL, "-o", "states=4"], "--option states must be given once; got 'states=4' as well"),
        ([*SMALL, "--set", "L=3", "--set", "L=3"], "--set L must be given once; got 'L=3' as well"),
        ([*SMALL, "--set", "bonus_scale=inf"], "bonus_scale must be in [0, 1e+06]; got inf"),
        ([*SMALL, "-o", "episodes=5"], "episodes must be given with --episodes; got --option"),
        ([*SMALL, "-o", "seed=5"], "seed must be given with --world-seed; got --option seed"),
        ([*SMALL, "-o", "name=maze"], "option of random must be one of"),
        ([*SMALL, "--world-seed", "-1"], "--world-seed must be an integer >= 0; got -1"),
        ([*SMALL, "--gamma", "99"], "gamma must be at most H = 3"),
        (["run", "x.yaml", "-n", "-1"], "--episodes must be an integer >= 1; got -1"),
        (["problems", "maze", "-o", "size=5", "-o", "size=6"], "--option size must be given once"),
        (["problems", "maze", "-o", "episodes=6"], "episodes must be given with --episodes"),
        (["report", "nowhere"], "source must be a run's folder"),
        (["problems", "mars"], "problem must be one of"),
    ],
)
def test_bad_input_gets_one_sentence_and_exit_code_2(tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    done = command(*arguments)
    assert done.exit_code == 2
    assert sentence in done.stderr.replace("\n", " ")
    assert done.stderr.startswith("safedrift: ")
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.output
    assert list(tmp_path.iterdir()) == []


def test_help_teaches_the_tool():
    text = command("run", "--help").output
    for word in ("Examples", "--knowledge", "--mode", "--set", "report.html", "dynamic regret"):
        assert word in text


def test_problems_are_listed_and_told():
    assert "maze" in command("problems").output
    assert "Utility and threshold" in command("problems", "maze").output


def test_report_is_made_again(tmp_path):
    command(*SMALL, "--out", tmp_path / "a")
    (tmp_path / "a" / "report.html").unlink()
    assert command("report", tmp_path / "a").exit_code == 0
    assert (tmp_path / "a" / "report.html").stat().st_size > 10_000


def test_an_impossible_folder_is_refused_before_anything_is_computed(tmp_path):
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        done = command("run", "maze", "-n", "1000000000", "--out", out)
        assert done.exit_code == 2
        assert "out must be a folder" in done.stderr
    assert (tmp_path / "file").read_text() == "mine"


def test_runs_of_the_same_second_get_folders_of_their_own(tmp_path, monkeypatch):
    from datetime import datetime
    from importlib import import_module

    class Frozen(datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2026, 1, 1)

    monkeypatch.setattr(import_module("safedrift.cli.run_command"), "datetime", Frozen)
    monkeypatch.chdir(tmp_path)
    for _ in range(3):
        assert command(*SMALL, "--json").exit_code == 0
    assert len(list((tmp_path / "runs").iterdir())) == 3


def test_theory_prints_constants_and_bounds_of_all_theorems():
    done = command("theory", "--S", 5, "--A", 3)
    assert done.exit_code == 0, done.output
    for number in (1, 2, 3, 4):
        assert f"Theorem {number}, regret" in done.stdout
        assert f"Theorem {number}, violation" in done.stdout
    assert "vacuous" in done.stdout


def test_theory_as_json_is_strict_and_agrees_with_the_library():
    import safedrift as sd

    done = command("theory", "--json", "--theorem", 4, "--M", 20000, "--B-star", 3)
    (found,) = json.loads(done.stdout, parse_constant=pytest.fail)
    sizes, budgets = sd.Sizes(20000, 5, 5, 3, 1), sd.Budgets(4, 2, 1, 3)
    printed = sd.theorem4(sizes, sd.Slater(0.5), budgets, mode="printed")
    assert found["constants"]["printed"]["alpha"] == printed.improvement.alpha
    regret, violation = sd.theory.bounds(sizes, sd.Slater(0.5), budgets, printed)
    assert found["bounds"][0]["rows"][-2]["value"] == regret.total
    assert found["bounds"][1]["rows"][-2]["value"] == violation.total


@pytest.mark.parametrize(
    ("option", "message"),
    [(("--gamma", -1), "gamma must be > 0; got -1.0"), (("--M", 0), "M must be an integer >= 1"),
     (("--gamma", "nan", "--theorem", 3), "gamma must be a number; got nan"),
     (("--gamma", 1e300), "gamma must be at most H = 5"),
     (("--d1", 0, "--theorem", 4), "d1 must be an integer >= 1; got 0"),
     (("--rho", "nan", "--theorem", 4), "rho must be a number; got nan"),
     (("--p", 1e-320), "p must be at least 1e-100; got 1e-320"),
     (("--rho", 0.9), "rho must be in [1/3, 1/2]"), (("--B-P", -1), "B_P must be finite and >= 0")],
)  # fmt: skip
def test_theory_refuses_in_one_sentence(option, message):
    done = command("theory", *option)
    assert done.exit_code == 2
    assert message in done.stderr


# ---------------------------------------------------------------- the command itself


def test_version_is_printed_and_nothing_else():
    from safedrift import __version__

    done = command("--version")
    assert (done.exit_code, done.stdout) == (0, f"safedrift {__version__}\n")


def test_python_m_safedrift_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "safedrift", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == command("--version").stdout


def test_without_arguments_help_is_shown():
    done = command()
    for word in ("--version", "run", "problems", "report", "certify", "theory"):
        assert word in done.output


@pytest.mark.parametrize("error", [KeyError("x"), AssertionError(), ZeroDivisionError("by\nzero")])
def test_a_fault_of_our_own_is_one_sentence_too(monkeypatch, error):
    def broken(*arguments, **options):
        raise error

    monkeypatch.setattr("safedrift.cli.report_command.read_run", broken)
    done = command("report", "somewhere")
    assert done.exit_code == 1
    assert done.stderr.startswith(
        f"safedrift: internal error, please report it: {type(error).__name__}"
    )
    assert len(done.stderr.strip().splitlines()) == 1
    monkeypatch.setenv("SAFEDRIFT_TRACEBACK", "1")
    assert command("report", "somewhere").exception is error


def test_constraints_are_shown_by_name(tmp_path):
    told = ["run", "ward", "--episodes", "60", "--out", str(tmp_path / "run")]
    shown = CliRunner().invoke(app, told).output
    assert "violation, free beds" in shown
    assert "at least 4.9" in shown
