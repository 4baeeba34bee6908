"""`safedrift compare`: what it prints, leaves behind and refuses."""

import json
import re

import pytest
from typer.testing import CliRunner

import safedrift as sd
from safedrift.cli import app, compare_command
from safedrift.cli.compare_command import figure, interval, spread
from safedrift.results.statistics import Interval

WORLDS = ["random:states=3,horizon=3,gamma=0.2", "stationary"]
SMALL = ["compare", *WORLDS, "-n", "40", "--workers", "1", "--seeds", "3"]
THREE = ["--learners", "uniform", "optimum", "mine.py:Mine"]
MINE = """
import safedrift as sd
def Mine(world):
    return sd.PROPDPPO.for_problem(world, sd.Slater(0.2))
def picky(world):
    raise ValueError("K must be 2; got 1")
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


def command(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_prints_tables_and_a_verdict_and_leaves_files(here):
    done = command(*SMALL, *THREE, "--out", "c", "--json", "all.json")
    assert done.exit_code == 0, done.output
    names = {path.name for path in (here / "c").iterdir()}
    assert names == {"comparison.json", "comparison.parquet", "report.html", "rows.jsonl"}
    found = sd.Comparison.from_parquet(here / "c" / "comparison.parquet")
    assert found.worlds == tuple(WORLDS)
    assert found.learners == ("uniform", "optimum", "mine.py:Mine")
    assert found.verdict() in done.stdout
    for word in ("stationary (M = 40)", "strict score", "oracle", "Untuned", "c/report.html"):
        assert word in done.stdout
    plain = json.loads((here / "all.json").read_text(), parse_constant=pytest.fail)
    assert plain["verdict"] == found.verdict()
    assert len(plain["rows"]) == 18


def test_same_folder_continues_and_prints_the_same(here):
    first = command(*SMALL, *THREE, "--out", "c")
    rows = (here / "c" / "rows.jsonl").read_text()
    again = command(*SMALL, *THREE, "--out", "c")
    assert again.stdout == first.stdout
    assert (here / "c" / "rows.jsonl").read_text() == rows


def test_json_alone_on_stdout():
    done = command(*SMALL, "--learners", "uniform", "--noisy", "--json", "-", "--out", "c")
    plain = json.loads(done.stdout, parse_constant=pytest.fail)
    assert plain["manifest"]["noisy"] is True
    assert plain["complete"] is True


def test_default_folder_is_new(here):
    assert command(*SMALL, "--learners", "uniform").exit_code == 0
    (folder,) = (here / "runs").iterdir()
    assert folder.name.endswith("-compare")


def test_stopping_keeps_what_is_there(here, monkeypatch):
    from safedrift import experiments

    inner = experiments.compare

    def stops(*arguments, progress, **options):
        calls = []

        def counting(stage, done, total):
            progress(stage, done, total)
            calls.extend([stage] * (stage == "playing"))
            if len(calls) == 6:
                raise KeyboardInterrupt

        return inner(*arguments, progress=counting, **options)

    monkeypatch.setattr(experiments, "compare", stops)
    done = command(*SMALL, *THREE, "--out", "c")
    assert done.exit_code == 130
    assert "stopped after 5 of 18 runs; the same command with --out c continues" in done.stderr
    assert "Incomplete: 13 of 18 runs are still missing." in done.stdout
    assert (here / "c" / "report.html").is_file()
    monkeypatch.undo()
    monkeypatch.chdir(here)
    assert command(*SMALL, *THREE, "--out", "c").exit_code == 0
    assert sd.Comparison.from_parquet(here / "c" / "comparison.parquet").complete


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([*SMALL, "--learners", "unifrom"], "(did you mean 'uniform'?)"),
        ([*SMALL, "--learners", "uniform:x=1"], "uniform must be without options"),
        ([*SMALL, "--learners", "mine.py:Mime"], "(did you mean 'Mine'?)"),
        ([*SMALL, "--learners", "uniform", "uniform"], "learners must be different from each"),
        ([*SMALL, "--learners", "mine.py:picky"], "mine.py:picky cannot play random:states=3"),
        (["compare", "maze", "maze", "--learners", "uniform"], "'maze' twice"),
        (["compare", "mase", "--learners", "uniform"], "(did you mean 'maze'?)"),
        (["compare", "maze", "--learners", "uniform", "--seeds", "0"], "--seeds must be an int"),
        (["compare", "maze", "--learners", "uniform", "-n", "0"], "episodes must be an integer"),
        (["compare", "thermostat", "-n", "20", "--learners", "uniform"], "finitely many states"),
        ([*SMALL, "--learners", "uniform", "--json", "no/where"], "--json must be a file in an"),
        ([*SMALL, "--learners", "uniform", "--out", "mine.py"], "out must be a folder"),
    ],
)
def test_mistakes_are_one_sentence(arguments, sentence, here):
    done = command(*arguments)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.output
    assert not (here / "runs").exists()


def test_learners_and_worlds_must_be_given():
    assert command("compare", "maze").exit_code == 2
    assert command("compare", "--learners", "uniform").exit_code == 2


def test_skipping_says_what_was_left_out():
    done = command(*SMALL, "--learners", "mine.py:picky", "uniform", "--skip", "--out", "c")
    assert done.exit_code == 0, done.output
    assert "refused" in done.stdout
    assert re.search(r"mine.py:picky: 6 runs without a result.*K must be 2; got 1", done.stdout)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["a", "-x", "b", "c", "--y", "d"], ["a", "-x", "b", "-x", "c", "--y", "d"]),
        (["-x", "b", "-x", "c"], ["-x", "b", "-x", "c"]),
        (["a", "-x"], ["a", "-x"]),
        (["-y", "a", "b"], ["-y", "a", "b"]),
    ],
)
def test_option_with_several_values(given, wanted):
    assert spread("-x", given) == wanted


def test_figures_in_the_terminal():
    nan = float("nan")
    assert interval(Interval(0.5, 0.4, 0.61234)) == "0.500 [0.400, 0.612]"
    assert interval(Interval(0.5, nan, nan)) == interval(Interval(0.5, 0.5, 0.5)) == "0.500"
    assert interval(Interval(nan, nan, nan)) == figure(Interval(nan, nan, nan)) == "-"
    assert figure(Interval(-1e-17, 0, 0)) == "0.000"


def test_narrow_terminals_get_fewer_columns(here):
    command(*SMALL, *THREE, "--out", "c")
    found = sd.Comparison.from_parquet(here / "c" / "comparison.parquet")
    console = compare_command.Console
    wide, narrow = (
        len(compare_command._world_table(found, WORLDS[1], console(width=n)).columns)
        for n in (150, 55)
    )
    assert (wide, narrow) == (9, 5)
