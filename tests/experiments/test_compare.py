"""Comparisons: same luck for all, failures as rows, stopping and continuing, bad input."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import safedrift as sd
from safedrift.experiments import ComparisonStopped, calibration, comparison, reference_points
from safedrift.experiments.entrants import entrants, parse_options, tunable
from safedrift.experiments.row_files import NAME, RowFile, world_digest
from safedrift.experiments.workers import stopwatch
from safedrift.results.scores import score

LEARNERS = """
import os
import safedrift as sd
from safedrift.experiments.reference_points import optimum

TUNABLE = {"eta": (0.01, 1.0, "log"), "window": (5, 50, "linear"), "kind": ("a", "b")}

def build(world, **overrides):
    return sd.PROPDPPO.for_problem(world, sd.Slater(0.2), **overrides)

def eager(world):
    return build(world, eta=1.0)

def dies(world):
    if os.environ.get("OMP_NUM_THREADS") == "1" and os.environ.get("SAFEDRIFT_THREADS") == "1":
        os._exit(3)
    return build(world)

class Fails:
    name = "fails"

    def __init__(self, world):
        self.inner = world if hasattr(world, "begin_episode") else build(world)
        self.sizes = self.inner.sizes

    def __getattr__(self, name):
        if name in ("inner", "plays", "play_chunk"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def fresh(self, seed=0):
        return Fails(self.inner.fresh(seed))

    def end_episode(self, trajectory):
        raise RuntimeError("two\\n  lines")

def picky(world):
    if world.K > 1:
        raise ValueError("K must be 1; got " + str(world.K))
    return build(world)
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("mine") / "mine.py"
    path.write_text(LEARNERS)
    return str(path)


def small(M=60, seed=0, **options):
    return sd.problems.make("random", M, seed, states=3, horizon=3, gamma=0.2, **options)


def ppo(world, eta=0.2):
    return sd.PROPDPPO.for_problem(world, sd.Slater(0.2), eta=eta)


def two_worlds():
    return {"one": small(), "two": small(40, 1, drift="linear")}


PAIR = {"ppo": ppo, "uniform": "uniform"}


# ---------------------------------------------------------------- numbers


def test_rows_are_those_of_single_simulations():
    world = small()
    found = sd.compare({"w": world}, PAIR, seeds=[3, 5], noisy=True, workers=1)
    assert [(row.learner, row.seed) for row in found.rows] == [
        ("ppo", 3), ("ppo", 5), ("uniform", 3), ("uniform", 5),
    ]  # fmt: skip
    run = sd.simulate(world, ppo(world), 5, noisy=True)
    row = found.rows[1]
    loss = np.maximum(run.regret, 0).sum() + np.maximum(run.shortfall, 0).sum()
    uniform = np.maximum(run.baseline_regret, 0).sum()
    uniform += np.maximum(run.truth.thresholds - run.truth.baseline_utility, 0).sum()
    assert row.strict_score == pytest.approx(loss / uniform, rel=1e-12)
    assert row.regret == pytest.approx(run.regret.mean(), rel=1e-12)
    assert row.violation == pytest.approx(max(run.shortfall.mean(), 0), rel=1e-12, abs=1e-15)
    assert row.positive_regret == pytest.approx(np.maximum(run.regret, 0).mean(), rel=1e-12)
    assert row.uniform_loss == pytest.approx(uniform / world.M, rel=1e-12)
    last = slice(54, 60)
    late = np.maximum(run.regret[last], 0).sum() + np.maximum(run.shortfall[last], 0).sum()
    base = np.maximum(run.baseline_regret[last], 0).sum()
    base += np.maximum((run.truth.thresholds - run.truth.baseline_utility)[last], 0).sum()
    assert row.last_tenth_score == pytest.approx(late / base, rel=1e-12)
    assert row.last_tenth_regret == pytest.approx(run.regret[last].mean(), rel=1e-12)
    assert row.curve_episodes[-1] == 59
    assert row.curves["positive_regret"][-1] == pytest.approx(run.positive_regret[-1], rel=1e-5)
    assert row.settings == run.manifest.learner.settings
    assert row.seconds_per_episode > 0


def test_several_constraints_are_added_up_and_skipped_episodes_counted():
    world = small(constraints=2)
    run = sd.simulate(world, ppo(world), 0, measure_every=7)
    names = {"key": "k", "world": "w", "learner": "l", "seed": 0}
    row = score(run, names, seconds=1.0, points=3)
    weights = np.array([7] * 8 + [4])
    loss = np.maximum(run.regret, 0) + np.maximum(run.shortfall, 0).sum(axis=1)
    short = np.maximum(run.truth.thresholds - run.truth.baseline_utility, 0).sum(axis=1)
    uniform = np.maximum(run.baseline_regret, 0) + short
    assert row.strict_score == pytest.approx((loss * weights).sum() / (uniform * weights).sum())
    assert row.violation == pytest.approx(run.violation[-1].sum() / 60)
    assert row.curve_episodes == (0, 28, 56)


def test_good_episodes_do_not_pay_for_bad_ones():
    """Half the episodes earn 1 too much and are 1 unsafe, half the other way round."""
    run = sd.simulate(small(), ppo(small()))
    swing = np.where(np.arange(60) % 2, 1.0, -1.0)
    outcome = replace(
        run.outcome,
        reward=run.truth.optimal_reward + swing,
        utility=run.truth.thresholds - swing[:, None],
    )
    names = {"key": "k", "world": "w", "learner": "l", "seed": 0}
    row = score(replace(run, outcome=outcome), names, seconds=1.0)
    assert (row.regret, row.violation) == pytest.approx((0, 0), abs=1e-12)
    assert (row.positive_regret, row.positive_violation) == pytest.approx((0.5, 0.5))
    assert row.strict_score == pytest.approx(1 / row.uniform_loss)
    nobody = replace(run.truth, baseline_reward=run.truth.optimal_reward,
                     baseline_utility=run.truth.thresholds)  # fmt: skip
    free = score(replace(run, truth=nobody), names, seconds=1.0)
    assert np.isnan(free.strict_score)
    assert np.isnan(free.last_tenth_score)


def test_uniform_scores_one_and_the_optimum_zero():
    labels = ["uniform", "optimum", "optimum-of-first-episode"]
    found = sd.compare(two_worlds(), labels, seeds=2, workers=1)
    scores = {label: found.figures("strict_score", label) for label in labels}
    np.testing.assert_array_equal(scores["uniform"], 1)
    np.testing.assert_allclose(scores["optimum"], 0, atol=1e-9)
    assert (scores["optimum-of-first-episode"] > 1e-3).all()
    assert found.oracles == ("optimum", "optimum-of-first-episode")
    assert found.manifest.learners[2].told == ["the world of episode 0"]
    assert found.verdict().startswith("uniform has")


def test_oracles_keep_the_protocol():
    sd.check_learner(reference_points.optimum)
    sd.check_learner(reference_points.optimum_of_first_episode)


def test_two_equal_learners_are_not_different():
    found = sd.compare(two_worlds(), {"a": ppo, "b": ppo}, seeds=4, workers=1)
    one, two = (found.figures("strict_score", label) for label in "ab")
    np.testing.assert_array_equal(one, two)
    assert {entry.learner: entry.status for entry in found.ranking()} == {
        "a": "best", "b": "not different",
    }  # fmt: skip


def test_table_does_not_change_when_run_again():
    one, two = (sd.compare(two_worlds(), PAIR, seeds=3, workers=1) for _ in range(2))
    assert repr(one.table()) == repr(two.table())
    assert repr(one.ranking()) == repr(two.ranking())
    assert one.verdict() == two.verdict()


def test_stopwatch_changes_no_numbers():
    world = small()
    timed = stopwatch(ppo(world))
    run = sd.simulate(world, timed, 2)
    assert run.digest == sd.simulate(world, ppo(world), 2).digest
    assert timed.spent.per_episode(world.M) > 0


# ---------------------------------------------------------------- processes


def test_processes_and_files_of_ones_own_give_the_same_table(file):
    """What cannot be sent to a process (a function made here) plays at home."""
    learners = {
        "own": f"{file}:build",
        "fails": f"{file}:Fails",
        "local": lambda world: ppo(world, 0.3),
    }
    one, two = (sd.compare(two_worlds(), learners, seeds=2, workers=n) for n in (1, 2))
    assert repr(one.table()) == repr(two.table())
    assert [row.status for row in two.rows].count("failed") == 4
    failed = next(row for row in two.rows if not row.done)
    assert failed.error == "RuntimeError: two lines"
    assert failed.learner == "fails"
    assert len(two.rows) == 12


@pytest.mark.slow
def test_process_that_dies_is_a_row_and_stops_nothing(file):
    found = sd.compare(
        {"w": small()}, [f"{file}:build", f"{file}:dies", "uniform"], seeds=2, workers=2,
    )  # fmt: skip
    states = {(row.learner, row.seed): row.status for row in found.rows}
    assert states == {
        ("mine.py:build", 0): "done", ("mine.py:build", 1): "done",
        ("mine.py:dies", 0): "failed", ("mine.py:dies", 1): "failed",
        ("uniform", 0): "done", ("uniform", 1): "done",
    }  # fmt: skip
    assert {row.error for row in found.rows} == {"", "the process that played it died"}


# ---------------------------------------------------------------- stopping and continuing


def stop_after(n):
    count = 0

    def progress(stage, done, total):
        nonlocal count
        count += stage == "playing"
        if count > n:  # the first call is before the first run
            raise KeyboardInterrupt

    return progress


def test_stopped_and_continued_is_the_same_as_never_stopped(tmp_path, monkeypatch):
    whole = sd.compare(two_worlds(), PAIR, seeds=3, workers=1)
    options = {"seeds": 3, "workers": 1, "out": tmp_path / "c"}
    with pytest.raises(ComparisonStopped, match="stopped after 5 of 12 runs") as stopped:
        sd.compare(two_worlds(), PAIR, progress=stop_after(5), **options)
    assert len(stopped.value.comparison.rows) == 5
    assert stopped.value.comparison.ranked_seeds == 1  # seed 0 everywhere came first
    rows = tmp_path / "c" / NAME
    assert len(rows.read_text().splitlines()) == 5
    with rows.open("a") as half:
        half.write('{"key": "half a li')  # as a power cut leaves it
    played = []
    inner = comparison.rows_of

    def counting(tasks, *more):
        played.extend(tasks)
        return inner(tasks, *more)

    monkeypatch.setattr(comparison, "rows_of", counting)
    found = sd.compare(two_worlds(), PAIR, **options)
    assert len(played) == 7
    assert repr(found.table()) == repr(whole.table())
    assert found.manifest == whole.manifest
    again = sd.compare(two_worlds(), PAIR, **options)
    assert len(played) == 7
    assert repr(again.table()) == repr(whole.table())


def test_what_numbers_depend_on_is_played_again(tmp_path, file):
    def statuses(worlds, learners, **options):
        before = len(RowFile(tmp_path / "c").known)
        sd.compare(worlds, learners, out=tmp_path / "c", workers=1, **options)
        return len(RowFile(tmp_path / "c").known) - before

    world = {"w": small()}
    assert statuses(world, [f"{file}:build"], seeds=2) == 2
    assert statuses(world, [f"{file}:build"], seeds=3) == 1
    assert statuses(world, [f"{file}:build"], seeds=2, noisy=True) == 2
    assert statuses(world, [f"{file}:build"], seeds=2, measure_every=3) == 2
    assert statuses({"w": small(61)}, [f"{file}:build"], seeds=2) == 2
    Path(file).write_text(LEARNERS.replace("eta=1.0", "eta=0.9"))
    assert statuses(world, [f"{file}:build"], seeds=2) == 2
    Path(file).write_text(LEARNERS)


def test_failed_runs_are_tried_again(tmp_path):
    broken = True

    def sometimes(world):
        if broken and calls:
            raise ValueError("not today")
        calls.append(1)
        return ppo(world)

    calls = []
    options = {"seeds": 2, "workers": 1, "out": tmp_path}
    found = sd.compare({"w": small()}, {"sometimes": sometimes}, **options)
    assert [row.error for row in found.rows] == ["ValueError: not today"] * 2
    broken = False
    found = sd.compare({"w": small()}, {"sometimes": sometimes}, **options)
    assert all(row.done for row in found.rows)


def test_folder_with_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(ValueError, match="out must be a new or empty folder, or one of an earlier"):
        sd.compare({"w": small()}, PAIR, seeds=1, out=tmp_path)
    with pytest.raises(ValueError, match="out must be a folder; got the file"):
        sd.compare({"w": small()}, PAIR, seeds=1, out=tmp_path / "thesis.txt")
    (tmp_path / NAME).write_text("[1]\n")
    with pytest.raises(ValueError, match="got another text in line 1"):
        sd.compare({"w": small()}, PAIR, seeds=1, out=tmp_path)


def test_digest_of_a_world_sees_every_array():
    world = small()
    assert world_digest(world) == world_digest(small())
    assert world_digest(world) != world_digest(small(seed=1))
    assert world_digest(world) != world_digest(world.with_thresholds(world.thresholds * 0.9))


# ---------------------------------------------------------------- tuning


@pytest.fixture
def tiny_calibration(monkeypatch):
    monkeypatch.setattr(calibration, "EPISODES", 40)
    worlds = {"calibration": {"states": 3, "horizon": 3, "gamma": 0.2}}
    monkeypatch.setattr(calibration, "WORLDS", worlds)


def test_search_finds_the_better_setting_and_says_so(tmp_path, tiny_calibration):
    path = tmp_path / "tune.py"
    path.write_text(
        "import safedrift as sd\n"
        "from safedrift.experiments.reference_points import optimum\n"
        "TUNABLE = {'clever': (True, False)}\n"
        "def build(world, clever=False):\n"
        "    return optimum(world) if clever else sd.learners.make('uniform', world)\n"
    )
    learners = {"tuned": f"{path}:build", "uniform": "uniform"}
    plain = sd.compare({"w": small()}, learners, seeds=2, workers=1)
    found = sd.compare({"w": small()}, learners, seeds=2, workers=1, tune=5, out=tmp_path / "c")
    assert plain.manifest.learners[0].tuned is None
    assert any(note.startswith("Untuned") for note in plain.notes())
    assert found.manifest.learners[0].tuned == {"clever": True}
    assert found.manifest.learners[1].tuned is None
    assert found.figures("strict_score", "tuned").max() < 1e-9
    assert found.notes()[-1] == (
        "Tuned: 5 random settings each, on worlds that are not compared here. tuned clever=True. "
        "Nothing to tune: uniform."
    )
    before = (tmp_path / "c" / NAME).read_text()
    again = sd.compare({"w": small()}, learners, seeds=2, workers=1, tune=5, out=tmp_path / "c")
    assert (tmp_path / "c" / NAME).read_text() == before  # the search was not done again
    assert again.manifest == found.manifest


def test_settings_start_with_the_defaults_and_stay_in_their_ranges(file):
    (own,) = entrants([f"{file}:build"])
    few, many = (calibration.settings_of(own, n) for n in (3, 30))
    assert few == many[:3]
    assert many[0] == {}
    for setting in many[1:]:
        assert 0.01 <= setting["eta"] <= 1
        assert 5 <= setting["window"] <= 50
        assert isinstance(setting["window"], int)
        assert setting["kind"] in ("a", "b")
    assert {setting["kind"] for setting in many[1:]} == {"a", "b"}
    etas = np.log([setting["eta"] for setting in many[1:]])
    assert np.median(etas) == pytest.approx(np.log(0.1), abs=0.8)
    (uniform,) = entrants(["uniform"])
    assert tunable(uniform) == {}


def test_given_options_are_not_tuned(monkeypatch):
    from types import ModuleType

    from safedrift.learners import catalogue

    module = ModuleType("probe")
    module.build = lambda world, *, gamma=None, noisy=False, eta=0.1, seed=0: ppo(world, eta)
    module.TUNABLE = {"eta": (0.1, 1.0, "log"), "gamma": (0.1, 0.2, "linear")}
    monkeypatch.setitem(catalogue.LEARNERS, "probe", module)
    (own,) = entrants(["probe:eta=0.5"])
    assert set(tunable(own)) == {"gamma"}


@pytest.mark.parametrize("wrong", [0.3, (), (1.0, 0.1, "log"), (0.0, 1.0, "log")])
def test_bad_ranges_are_named(wrong):
    with pytest.raises(ValueError, match=r"TUNABLE\['x'\] of mine must be"):
        calibration.draw_setting("mine", {"x": wrong}, np.random.default_rng(0))


def test_calibration_worlds_are_not_worlds_that_are_compared():
    names = set(sd.problems.PROBLEMS)
    assert not names & set(calibration.WORLDS)
    assert calibration.SEED >= 10**6
    own = {world_digest(sd.problems.make("random", 20, calibration.SEED + i, **options))
           for i, options in enumerate(calibration.WORLDS.values())}  # fmt: skip
    assert len(own) == len(calibration.WORLDS)
    assert world_digest(sd.problems.make("random", 20)) not in own


# ---------------------------------------------------------------- what a learner is told


def test_learners_are_told_what_they_do_not_play_without(monkeypatch):
    from types import ModuleType

    from safedrift.learners import catalogue

    told = []

    def build(world, *, needy=True, gamma=None, safe_policy=None, safe_utility=None, noisy=None,
              seed=0):  # fmt: skip
        if needy and gamma is None:
            raise TypeError("gamma must be given; got None")
        told.append((gamma, safe_policy, safe_utility, noisy))
        return ppo(world)

    module = ModuleType("probe")
    module.build = build
    monkeypatch.setitem(catalogue.LEARNERS, "probe", module)
    world = small()
    options = {"seeds": 1, "noisy": True, "workers": 1}
    sd.compare({"w": world}, ["probe"], **options)
    gamma, policy, utility, noisy = told[-1]
    assert (gamma, noisy) == (sd.measure_truth(world).gamma.min(), True)
    today = world.at(0)
    np.testing.assert_allclose(sd.evaluate(today, policy)[1:], utility)
    assert (utility - today.thresholds).min() == pytest.approx(sd.solve(today).gamma)
    sd.compare({"w": world}, ["probe:gamma=0.07,noisy=false"], **options)
    assert told[-1] == (0.07, None, None, False)
    sd.compare({"w": world}, ["probe:needy=false"], **options)
    assert told[-1] == (None, None, None, True)


def test_named_learners_say_what_they_were_told():
    found = sd.compare({"w": small()}, ["propd-ppo", "opdop"], seeds=1, workers=1)
    told = {entry.label: entry.told for entry in found.manifest.learners}
    assert told["propd-ppo"] == ["Slater gap"]
    assert "Slater gap" not in told["opdop"]
    gamma = found.rows[0].settings["knowledge"]["gamma"]
    assert gamma == sd.measure_truth(small()).gamma.min()


def test_world_without_a_gap_is_a_failed_row_for_those_who_need_one():
    world = small()
    best = sd.oracles.safest_utilities(world, np.arange(world.M))
    tight = world.with_thresholds(best)
    found = sd.compare({"w": tight}, ["propd-ppo", "uniform"], seeds=1, workers=1)
    assert found.rows[0].error.startswith("ValueError: the smallest Slater gap of the world must")
    assert found.rows[1].done


# ---------------------------------------------------------------- bad input

ONE = {"w": None}


@pytest.mark.parametrize(
    ("worlds", "learners", "options", "sentence"),
    [
        (["mazee"], ["uniform"], {}, "problem must be one of .*did you mean 'maze'"),
        (["maze:sise=4"], ["uniform"], {}, "option of maze must be one of .*mean 'size'"),
        (["maze:size"], ["uniform"], {}, "options of 'maze:size' must be NAME=VALUE,"),
        (["maze", "maze"], ["uniform"], {}, "worlds must be different .* 'maze' twice"),
        ([], ["uniform"], {}, "worlds must be at least one; got none"),
        (ONE, ["unifrom"], {}, "learner must be one of .*did you mean 'uniform'"),
        (ONE, ["uniform:bonus=1"], {}, "uniform must be without options; it has none"),
        (ONE, ["optimum:x=1"], {}, "optimum must be without options; it has none"),
        (ONE, ["uniform", "uniform"], {}, "learners must be different .* 'uniform' twice"),
        (ONE, [], {}, "learners must be at least one; got none"),
        (ONE, ["nowhere.py:Mine"], {}, "learner must be a name or FILE.py:NAME of an existing"),
        (ONE, ["uniform"], {"seeds": 0}, "seeds must be an integer >= 1; got 0"),
        (ONE, ["uniform"], {"seeds": [1, 2, 1]}, "seeds must be different .* 1 twice"),
        (ONE, ["uniform"], {"seeds": []}, "seeds must be"),
        (ONE, ["uniform"], {"measure_every": 61}, "measure_every must be an integer in"),
        (ONE, ["uniform"], {"tune": -1}, "tune must be an integer >= 0; got -1"),
        (ONE, ["uniform"], {"workers": 0}, "workers must be an integer >= 1; got 0"),
        (["thermostat"], ["uniform"], {"episodes": 9},
         "uniform cannot play thermostat: world must be one with finitely many states"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(worlds, learners, options, sentence):
    given = {"w": small()} if worlds is ONE else worlds
    with pytest.raises((ValueError, TypeError), match=sentence) as error:
        sd.compare(given, learners, **{"seeds": 1, "workers": 1, **options})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("worlds", "learners", "sentence"),
    [
        ("maze", ["uniform"], "worlds must be a list of worlds; got 'maze'"),
        (["maze"], "uniform", "learners must be a list of learners; got 'uniform'"),
        (["maze"], [3], "a learner must be a name, FILE.py:NAME or a callable"),
        ([3], ["uniform"], "world must be a DriftingCMDP or LinearKernelCMDP; got int"),
    ],
)
def test_wrong_types_are_one_sentence(worlds, learners, sentence):
    with pytest.raises(TypeError, match=sentence):
        sd.compare(worlds, learners, seeds=1)


def test_learner_that_cannot_take_a_world_is_refused_or_skipped(file):
    worlds = {"one": small(), "two": small(constraints=2)}
    learners = [f"{file}:picky", "uniform"]
    with pytest.raises(ValueError, match=r"mine.py:picky cannot play two: K must be 1; got 2"):
        sd.compare(worlds, learners, seeds=1, workers=1)
    found = sd.compare(worlds, learners, seeds=1, workers=1, skip=True)
    refused = [row for row in found.rows if row.status == "refused"]
    assert [(row.world, row.error) for row in refused] == [("two", "K must be 1; got 2")]
    assert [row["status"] for row in found.table()][2:] == ["refused", "not tested"]
    assert found.ranked == ("uniform",)


def test_files_that_are_no_learners(tmp_path, file):
    with pytest.raises(ValueError, match=r"a learner in .*did you mean 'eager'"):
        entrants([f"{file}:eagr"])
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_this_name\n")
    with pytest.raises(ValueError, match="must be a Python file that can be imported; got Module"):
        entrants([f"{broken}:x"])
    with pytest.raises(ValueError, match="cannot play w: learner must have"):
        sd.compare({"w": small()}, {"x": lambda world: 3}, seeds=1)
    other = sd.problems.make("maze", 60)
    with pytest.raises(ValueError, match="cannot play w: the learner's H must be the world's, 3"):
        sd.compare({"w": small()}, {"x": lambda world: ppo(other)}, seeds=1)


def test_environment_without_a_model_is_refused():
    import gymnasium

    env = gymnasium.make("CliffWalking-v1")
    world = sd.from_gymnasium(env, 5, lambda t: 1.0, [1.0], episodes=10, reward_range=(-100, 0))
    with pytest.raises(ValueError, match="world must be one with a model"):
        sd.compare([world], ["uniform"], seeds=1)


def test_options_are_parsed_as_python_would_write_them():
    text = "a=1,b=0.5,c=true,d=none,e=word,f=1e-3"
    wanted = {"a": 1, "b": 0.5, "c": True, "d": None, "e": "word", "f": 1e-3}
    assert parse_options("x", text) == wanted
    with pytest.raises(ValueError, match="option a of 'x' must be given once; got twice"):
        parse_options("x", "a=1,a=2")


def test_rows_survive_their_file(tmp_path):
    found = sd.compare({"w": small()}, PAIR, seeds=1, workers=1, out=tmp_path / "c")
    again = RowFile(tmp_path / "c")
    assert repr(sorted(again.known.values(), key=lambda r: r.key)) == repr(
        sorted(found.rows, key=lambda r: r.key)
    )
    for line in (tmp_path / "c" / NAME).read_text().splitlines():
        json.loads(line)
