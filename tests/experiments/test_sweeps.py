"""Sweeps: what a study says, what is played, what survives."""

import json
import os
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from killing import kill_midway

import safedrift as sd
from safedrift.experiments.engines import LocalEngine, batch_size
from safedrift.experiments.estimates import estimate
from safedrift.experiments.row_logs import RowLog
from safedrift.experiments.studies import plan_of, read_study, study_from
from safedrift.experiments.sweeps import run_sweep
from safedrift.results.scores import score

SMALL = {"name": "random", "options": {"states": [3, 4], "horizon": 3, "gamma": 0.2}}
STUDY = {
    "episodes": 40,
    "seeds": 3,
    "problems": [SMALL, "stationary"],
    "learners": ["uniform", {"name": "propd-ppo", "options": {"eta": [0.05, 0.2]}}],
}


def plan(**changes):
    return plan_of(study_from({**STUDY, **changes}))


def table_of(found):
    return pq.read_table(found.results).to_pylist()


# ---------------------------------------------------------------- the plan


def test_a_plan_is_problems_times_learners_times_seeds():
    found = plan()
    assert found.runs == 27
    assert [place.label for place in found.places] == [
        "random:states=3,horizon=3,gamma=0.2",
        "random:states=4,horizon=3,gamma=0.2",
        "stationary",
    ]
    assert [x.label for x in found.entrants] == [
        "uniform", "propd-ppo:eta=0.05", "propd-ppo:eta=0.2",
    ]  # fmt: skip
    runs = [found.run(i) for i in range(found.runs)]
    assert len(set(runs)) == 27
    assert runs[:4] == [(0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, 0)]


def test_seeds_and_worlds_may_be_listed():
    found = plan(seeds=[7, 5], problems=[{"name": "random", "seed": [1, 2]}])
    assert list(found.seeds) == [7, 5]
    assert [place.label for place in found.places] == ["random:seed=1", "random:seed=2"]


def test_ranges_are_drawn_from_with_a_seed():
    learner = {
        "name": "propd-ppo",
        "options": {"eta": {"low": 0.001, "high": 0.1, "scale": "log"}, "alpha": [0.1, 0.2],
                    "window": {"low": 5, "high": 50}},
    }  # fmt: skip
    one = plan(learners=[learner], random={"samples": 20, "seed": 3})
    chosen = [entrant.chosen for entrant in one.entrants]
    assert len(chosen) == 40
    rates = np.array([x["eta"] for x in chosen[::2]])
    assert ((rates >= 0.001) & (rates <= 0.1)).all()
    assert (rates < 0.01).sum() in range(4, 17)
    assert all(isinstance(x["window"], int) for x in chosen)
    assert [
        x.chosen for x in plan(learners=[learner], random={"samples": 20, "seed": 3}).entrants
    ] == chosen
    other = plan(learners=[learner], random={"samples": 20, "seed": 4})
    assert [x.chosen for x in other.entrants] != chosen


def test_a_million_runs_are_planned_without_a_list_of_them():
    found = plan(seeds=200_000)
    assert found.runs == 1_800_000
    assert found.run(found.runs - 1) == (2, 2, 199_999)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"sedes": 3}, r"a key in study must be one of .*; got 'sedes' \(did you mean 'seeds'\?\)"),
        (
            {"problems": [{"name": "maze", "optoins": {}}]},
            r"'optoins' \(did you mean 'options'",
        ),
        ({"learners": [{"nmae": "uniform"}]}, r"study must be a study with 'learners\[0\].name'"),
        ({"problems": ["mase"]}, r"problem must be one of .*did you mean 'maze'"),
        ({"problems": [{"name": "maze", "options": {"sise": 3}}]}, r"did you mean 'size'"),
        ({"learners": ["unifrom"]}, r"did you mean 'uniform'"),
        ({"learners": [{"name": "opt-cmdp", "options": {"windwo": 3}}]}, r"did you mean 'window'"),
        ({"seeds": 0}, r"seeds must be a number of seeds >= 1 or a list of seeds >= 0"),
        ({"seeds": [1, 1]}, r"seeds must be different from each other"),
        ({"seeds": [-1]}, r"seeds must be a number of seeds >= 1"),
        ({"seeds": "many"}, r"seeds.* in study must be right; got 'many'"),
        ({"episodes": 0}, r"episodes in study must be right; got 0 \(Input should be greater"),
        ({"episodes": 1.5}, r"episodes in study must be right; got 1.5"),
        ({"problems": []}, r"problems in study must be right; got \[\]"),
        ({"problems": None}, r"problems in study must be right; got None"),
        ({"problems": ["maze", "maze"]}, r"problems must be different from each other; got 'maze'"),
        ({"learners": [{"name": "opt-cmdp", "options": {"window": []}}]}, r"at least one value"),
        (
            {"learners": [{"name": "opt-cmdp", "options": {"window": {"low": 1, "high": 9}}}]},
            r"the study must be one with 'random'",
        ),
        (
            {"learners": [{"name": "opt-cmdp", "options": {"window": {"lo": 1, "high": 9}}}]},
            r"option window of opt-cmdp must be a range with low, high and scale",
        ),
        (
            {
                "learners": [{"name": "opt-cmdp", "options": {"window": {"low": 9, "high": 1}}}],
                "random": {"samples": 2},
            },
            r"a range low <= high",
        ),
        ({"random": {"samples": 0}}, r"random.samples in study must be right; got 0"),
    ],
    ids=str,
)
def test_a_wrong_study_gets_a_sentence(change, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        plan(**change)


def test_a_study_file_says_the_same(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text(
        textwrap.dedent("""
            episodes: 40
            seeds: 3
            problems:
              - {name: random, options: {states: [3, 4], horizon: 3, gamma: 0.2}}
              - stationary
            learners:
              - uniform
              - {name: propd-ppo, options: {eta: [0.05, 0.2]}}
        """)
    )
    assert plan_of(read_study(file)).record() == plan().record()
    with pytest.raises(ValueError, match="study must be an existing YAML file"):
        read_study(tmp_path / "other.yaml")


YAML = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["episodes", "seeds", "problems", "learners", "random", "name", "options", "seed",
             "samples", "low", "high", "scale", "eta", "states", "noisy", "measure_log"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=800, suppress_health_check=[HealthCheck.too_slow])
@given(plain=YAML, good=st.booleans(), data=st.data())
def test_any_data_are_a_plan_or_a_sentence(plain, good, data):
    """Data of any kind, or a good study with one entry replaced."""
    if good:
        key = data.draw(st.sampled_from([*STUDY, "random", "noisy", "measure_log"]))
        plain = {**STUDY, key: plain}
    with suppress(ValueError, TypeError):
        assert plan_of(study_from(plain)).runs >= 1


@settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet="seds:episodl[]{}-,&*!|>\n \t'\"#%@0123", max_size=80))
def test_any_text_is_a_study_or_a_sentence(tmp_path, text):
    (tmp_path / "study.yaml").write_text(text, encoding="utf-8")
    with suppress(ValueError, TypeError):
        plan_of(read_study(tmp_path / "study.yaml"))


# ---------------------------------------------------------------- playing


def test_rows_are_those_of_single_runs(tmp_path):
    found = plan()
    rows = table_of(run_sweep(found, tmp_path / "a"))
    assert [row["run"] for row in rows] == list(range(27))
    for i in (0, 5, 26):
        place, entrant, seed = found.run(i)
        world = found.places[place].build()
        truth = sd.measure_truth(world)
        learner = found.entrants[entrant].build(world, float(truth.gamma.min()), False)
        run = sd.simulate(world, learner, seed, truth=truth)
        names = {"key": "", "world": "", "learner": "", "seed": seed}
        assert rows[i]["strict_score"] == score(run, names, seconds=0.0).strict_score
        assert rows[i]["seed"] == seed
        assert json.loads(rows[i]["settings"]) == run.manifest.learner.settings
    assert rows[0]["problem.states"] == 3
    assert rows[-1]["problem.states"] is None
    assert rows[-1]["learner.eta"] == 0.2


def test_one_and_two_workers_leave_the_same_bytes(tmp_path):
    one = run_sweep(plan(), tmp_path / "a")
    two = run_sweep(plan(), tmp_path / "b", engine=LocalEngine(2))
    assert (two.runs, two.failed, two.played) == (27, 0, 27)
    assert one.results.read_bytes() == two.results.read_bytes()


class Stop(Exception):
    pass


def test_a_stopped_sweep_goes_on_where_it_was(tmp_path):
    whole = run_sweep(plan(), tmp_path / "a")

    def stop(stage, done, total, failed):
        if stage == "runs" and done == 10:
            raise Stop

    with pytest.raises(Stop):
        run_sweep(plan(), tmp_path / "b", progress=stop)
    assert not (tmp_path / "b" / "results.parquet").exists()
    with (tmp_path / "b" / "rows.jsonl").open("ab") as file:
        file.write(b"0123 half a li")
    again = run_sweep(plan(), tmp_path / "b")
    assert again.played == 17
    assert again.results.read_bytes() == whole.results.read_bytes()
    assert run_sweep(plan(), tmp_path / "b").played == 0


@pytest.mark.slow
def test_kill_9_of_the_sweep_itself(tmp_path):
    """The driver dies with its workers; nothing is lost, nothing doubled."""
    file = tmp_path / "study.yaml"
    file.write_text(
        "episodes: 300\nseeds: 40\nproblems: [stationary]\nlearners: [uniform, opt-cmdp]\n"
    )
    out = tmp_path / "b"
    arguments = [sys.executable, "-m", "safedrift", "sweep", str(file), "--out", str(out)]
    arguments += ["--workers", "2"]
    kill_midway(arguments, out)
    found = run_sweep(plan_of(read_study(file)), out)
    assert 0 < found.played < 80
    alone = run_sweep(plan_of(read_study(file)), tmp_path / "a")
    assert alone.results.read_bytes() == found.results.read_bytes()
    assert len((out / "rows.jsonl").read_bytes().splitlines()) == 80


def test_damaged_lines_are_played_again(tmp_path):
    whole = run_sweep(plan(), tmp_path / "a")
    data = whole.results.read_bytes()
    rows = tmp_path / "a" / "rows.jsonl"
    lines = rows.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b"uniform", b"unifarm")
    lines[5] = b"\n"
    rows.write_bytes(b"".join(lines))
    told = []
    again = run_sweep(plan(), tmp_path / "a", tell=told.append)
    assert again.played == 2
    assert [sentence.split(" of ")[0] for sentence in told] == ["line 4", "line 6"]
    assert again.results.read_bytes() == data


def test_rows_of_a_forger_are_played_again(tmp_path):
    whole = run_sweep(plan(), tmp_path / "a")
    data = whole.results.read_bytes()
    log = RowLog(tmp_path / "a" / "rows.jsonl", print)
    log.add([{"run": 2}, {"run": 99, "status": "done"}, {**log.rows[4], "seed": "x"}])
    log.close()
    again = run_sweep(plan(), tmp_path / "a")
    assert again.played == 2
    assert again.results.read_bytes() == data


def test_a_damaged_truth_is_solved_again(tmp_path):
    whole = run_sweep(plan(), tmp_path / "a")
    data = whole.results.read_bytes()
    for file in (tmp_path / "a" / "truths").iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    (tmp_path / "a" / "rows.jsonl").unlink()
    assert run_sweep(plan(), tmp_path / "a").results.read_bytes() == data


def test_a_changed_study_is_refused_with_the_difference(tmp_path):
    run_sweep(plan(), tmp_path / "a")
    with pytest.raises(ValueError, match=r"one that differs: study.episodes is 41 instead of 40"):
        run_sweep(plan(episodes=41), tmp_path / "a")
    with pytest.raises(ValueError, match=r"learners\[3\]"):
        run_sweep(plan(learners=[*STUDY["learners"], "opdop"]), tmp_path / "a")
    study = tmp_path / "a" / "study.json"
    study.write_text(study.read_text().replace("40", "41", 1))
    with pytest.raises(ValueError, match=r"study\.json must be as safedrift wrote it"):
        run_sweep(plan(), tmp_path / "a")


def test_a_changed_file_of_ones_own_is_another_study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "from safedrift.learners import make\n"
    text += "def mine(world, rate=1):\n    return make('uniform', world)\n"
    Path("mine.py").write_text(text)
    learners = [{"name": "mine.py:mine", "options": {"rate": [1, 2]}}]
    found = run_sweep(plan(learners=learners), "a")
    assert {row["learner.rate"] for row in table_of(found)} == {1, 2}
    Path("mine.py").write_text(text + "# changed\n")
    with pytest.raises(ValueError, match=r"learners\[0\].content is"):
        run_sweep(plan(learners=learners), "a")


def test_other_folders_are_refused(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    for out in (tmp_path / "mine", tmp_path / "mine" / "thesis.txt"):
        with pytest.raises(ValueError, match="out must be a"):
            run_sweep(plan(), out)
    run_sweep(plan(), tmp_path / "a")
    (tmp_path / "a" / "rows.jsonl").unlink()
    (tmp_path / "a" / "truths").rename(tmp_path / "elsewhere")
    (tmp_path / "a" / "truths").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="truths must be a folder; got a link"):
        run_sweep(plan(), tmp_path / "a")


def test_failed_runs_are_recorded_and_do_not_stop_the_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "import pathlib\n"
        "import safedrift as sd\n"
        "def raises(world):\n    raise ZeroDivisionError('by\\nzero')\n"
        "def late(world):\n"
        "    if pathlib.Path('ready').exists():\n"
        "        return sd.learners.make('uniform', world)\n"
        "    raise RuntimeError('not yet')\n"
    )
    learners = ["mine.py:raises", "mine.py:late", "uniform"]
    study = plan(learners=learners, problems=["stationary"], seeds=2)
    found = run_sweep(study, "a")
    rows = table_of(found)
    assert found.failed == 4
    assert [row["status"] for row in rows] == ["failed"] * 4 + ["done"] * 2
    assert rows[0]["error"] == "ZeroDivisionError: by zero"
    assert rows[2]["error"] == "RuntimeError: not yet"
    assert rows[2]["strict_score"] is None
    assert run_sweep(study, "a").played == 0
    Path("ready").touch()
    again = run_sweep(study, "a", retry_failed=True)
    assert (again.played, again.failed) == (4, 2)


@pytest.mark.slow
def test_a_process_that_dies_takes_only_its_own_run_with_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "import os, signal, time\n"
        "from safedrift.learners import make\n"
        "def dies(world, number):\n"
        "    time.sleep(0.1)\n"
        "    if number == 2: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return make('uniform', world)\n"
    )
    learners = [{"name": "mine.py:dies", "options": {"number": list(range(9))}}]
    study = plan(learners=learners, problems=["stationary"], seeds=1)
    rows = table_of(run_sweep(study, "a", engine=LocalEngine(2)))
    assert [row["status"] for row in rows] == ["done"] * 2 + ["failed"] + ["done"] * 6
    assert rows[2]["error"] == "the process that played it died"


def test_a_world_without_an_optimum_fails_all_its_runs(tmp_path):
    impossible = {"name": "random", "options": {"gamma": 4.99}}
    found = run_sweep(plan(problems=["stationary", impossible]), tmp_path / "a")
    rows = table_of(found)
    assert [row["status"] for row in rows] == ["done"] * 9 + ["failed"] * 9
    assert "gamma must be" in rows[-1]["error"]


def test_two_sweeps_do_not_share_a_folder(tmp_path):
    run_sweep(plan(), tmp_path / "a")

    def other(stage, done, total, failed):
        with pytest.raises(ValueError, match="a folder that no other run is using"):
            run_sweep(plan(), tmp_path / "b")

    run_sweep(plan(seeds=1), tmp_path / "b", progress=other)


def test_an_estimate_is_of_the_right_size():
    found = estimate(plan(), 2)
    assert (found.runs, found.worlds, found.learners) == (27, 3, 3)
    assert 0 < found.playing < 100
    assert found.bytes > 27 * 500
    assert found.failures == ()
    big = estimate(plan(seeds=200_000), 200)
    assert big.playing > 1000 * found.playing
    wrong = estimate(plan(problems=[{"name": "random", "options": {"gamma": 4.99}}]), 1)
    assert "gamma must be" in wrong.failures[0]


def test_batches_take_a_fraction_of_a_second():
    assert batch_size(1, 10.0) == 1
    assert batch_size(10, 0.099) == 20
    assert batch_size(10, 0.0) == 100


# ---------------------------------------------------------------- recipes of the docs

DOCS = Path(__file__).parents[2] / "docs" / "experiments.md"


@pytest.mark.parametrize("library", ["pandas", "polars", "duckdb"])
def test_results_open_in(library, tmp_path, monkeypatch):
    pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    run_sweep(plan(), "sweeps/study")
    blocks = DOCS.read_text(encoding="utf-8").split("```python\n")[1:]
    (recipe,) = [x.partition("```")[0] for x in blocks if f"import {library}" in x]
    names = {}
    exec(recipe, names)
    means = names["means"]
    assert len(means) == 9
    assert os.listdir("sweeps") == ["study"]
