"""Random worlds for calibration and for evaluation: alike, and with nothing in common."""

import numpy as np
import pytest

import safedrift as sd
from safedrift.experiments import calibration
from safedrift.experiments.evaluation import (
    EPISODES,
    FAMILIES,
    KINDS,
    drift_of,
    evaluation_worlds,
    make_worlds,
)
from safedrift.experiments.row_files import world_digest
from safedrift.problems.random import DRIFTS

ALL = {(family, kind): evaluation_worlds(kind, family) for family in FAMILIES for kind in KINDS}


def seeds_of(family):
    return {o["seed"] for kind in KINDS for o in ALL[family, kind].values()}


def test_seeds_of_the_families_do_not_overlap():
    used = set(range(calibration.SEED, calibration.SEED + len(calibration.WORLDS)))
    used.add(calibration.SEED)  # of the runs of a search
    assert not seeds_of("calibration") & seeds_of("evaluation")
    assert not (seeds_of("calibration") | seeds_of("evaluation")) & used
    assert min(seeds_of("evaluation")) >= 2 * 10**6 > max(seeds_of("calibration"))


def test_no_world_is_in_both_families():
    def digests(family):
        return {
            world_digest(
                sd.problems.make("random", **{**options, "episodes": 40, **short(options)})
            )
            for kind in ("long", "fast")
            for options in ALL[family, kind].values()
        }

    def short(options):
        return {"episodes": 40} | {x: 10 for x in ("period", "every") if x in options}

    one, other = digests("calibration"), digests("evaluation")
    assert len(one) == len(other) == 38
    assert not one & other
    own = {world_digest(sd.problems.make("random", 40, calibration.SEED + i, **options))
           for i, options in enumerate(calibration.WORLDS.values())}  # fmt: skip
    assert not own & (one | other)


@pytest.mark.parametrize("family", FAMILIES)
def test_sizes_and_drifts(family):
    long, short, fast = (ALL[family, kind] for kind in ("long", "short", "fast"))
    assert (len(long), len(fast)) == (28, 10)
    assert {drift_of(label) for label in long} == set(DRIFTS) - {"bursts"}
    assert all(drift_of(label) == o["drift"] for label, o in long.items())
    assert {(o["drift"], o["period"]) for o in fast.values()} == {("periodic", 500)}
    for label, options in long.items():
        same = {k: v for k, v in short[label].items() if k not in ("episodes", "every", "period")}
        assert same == {k: options[k] for k in same}
    for options in (*long.values(), *fast.values()):
        assert 4 <= options["states"] <= 30
        assert 2 <= options["actions"] <= 5
        assert 3 <= options["horizon"] <= 10
        assert 0.039 < options["gamma"] / options["horizon"] < 0.121
    assert 0.3 < np.mean([not o["per_step"] for o in long.values()]) < 0.4
    assert 0.3 < np.mean([o["successors"] is None for o in long.values()]) < 0.8
    assert {o["episodes"] for o in long.values()} == {EPISODES["long"]} == {50_000}


def test_worlds_of_a_family_are_built():
    worlds = make_worlds("short", "calibration")
    assert list(worlds) == list(ALL["calibration", "short"])
    for label, world in worlds.items():
        options = ALL["calibration", "short"][label]
        sizes = [options[name] for name in ("states", "actions", "horizon")]
        assert [2000, *sizes] == [world.M, world.S, world.A, world.H]
        changes = len(world.distinct[0]) > 1
        assert changes == (options["drift"] != "stationary")


def test_unknown_kind_and_family_are_named():
    with pytest.raises(ValueError, match="kind must be one of"):
        evaluation_worlds("slow")
    with pytest.raises(ValueError, match="family must be one of"):
        evaluation_worlds("long", "test")


def test_random_worlds_with_the_same_model_at_every_step():
    world = sd.problems.make("random", 30, 5, per_step=False, horizon=4, drift="linear", B_r=1.0)
    for m in (0, 13, 29):
        cmdp = world.at(m)
        for array in (cmdp.dense_transitions(), cmdp.rewards, cmdp.utilities[0]):
            assert (array == array[:1]).all()
    assert not (sd.problems.make("random", 2, 5).at(0).rewards[1:]
                == sd.problems.make("random", 2, 5).at(0).rewards[:1]).any()  # fmt: skip
    assert sd.optima(world).gamma == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("drift", "pace", "path"),
    [
        ("abrupt", {"switches": 5}, lambda: sd.drift.abrupt(40, 3, 5)),
        ("periodic", {"period": 8}, lambda: sd.drift.periodic(40, 3, 8)),
        ("random_walk", {"step": 0.3}, lambda: sd.drift.random_walk(40, 3, 0.3, seed=7)),
        ("alternating", {"every": 4}, lambda: sd.drift.alternating(40, 3, 4)),
    ],
)
def test_pace_of_a_random_world(drift, pace, path):
    named = sd.problems.make("random", 40, 7, drift=drift, **pace)
    given = sd.problems.make("random", 40, 7, weights=path())
    assert world_digest(named) == world_digest(given)
    assert world_digest(named) != world_digest(sd.problems.make("random", 40, 7, drift=drift))


def test_a_pace_that_the_drift_does_not_have_is_an_error():
    with pytest.raises(ValueError, match="period must be left out where the drift is abrupt"):
        sd.problems.make("random", 40, period=5)
