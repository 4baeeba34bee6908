"""Worlds whose constraints pull in different directions: they do, and the docstrings are right."""

import itertools
import re
from dataclasses import replace
from math import comb

import numpy as np
import pytest
from test_named_worlds import refused, section

from safedrift import describe, optima, solve, variation
from safedrift.models import TabularCMDP
from safedrift.oracles import evaluate_episodes
from safedrift.problems import make

M = 40
NAMES = ("reservoir", "data_centre", "ward")
MOVES = {"reservoir": "P", "data_centre": "Pg", "ward": "Pb"}
GAMMA = {"reservoir": 0.43, "data_centre": 0.52, "ward": 0.36}
SIZES = {"reservoir": (12, 27, 4, 3), "data_centre": (10, 30, 4, 3), "ward": (7, 26, 5, 2)}


@pytest.mark.parametrize("name", NAMES)
def test_sizes_and_names_of_the_constraints(name):
    world = make(name, M)
    assert SIZES[name] == (world.H, world.S, world.A, world.K)
    assert len(world.constraint_names) == world.K
    text = " ".join(section(name, "Utility and threshold").split()).lower()
    for constraint in world.constraint_names:
        assert f"{constraint}:" in text
    assert world.with_thresholds(world.thresholds).constraint_names == world.constraint_names


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("episodes", "seed"), [(M, 0), (2_000, 1), (20_000, 2)])
def test_documented_slater_gap_holds(name, episodes, seed):
    world = make(name, episodes, seed)
    at = np.unique(np.linspace(0, episodes - 1, 100).astype(int))
    assert optima(world, at).gamma.min() >= GAMMA[name]
    assert f"Slater({GAMMA[name]:g})" in section(name, "Knowledge")


@pytest.mark.parametrize("name", NAMES)
def test_only_what_the_docstring_names_drifts(name):
    change = variation(make(name, M))
    moved = {part for part in "Prgb" if getattr(change, part).sum() > 0}
    assert moved == set(MOVES[name])


@pytest.mark.parametrize("name", NAMES)
def test_two_constraints_bind_in_most_episodes_and_every_one_in_some(name):
    found = describe(make(name, 20_000), np.arange(0, 20_000, 200))
    assert not found.warnings
    assert (found.multipliers > 1e-3).mean(axis=0).min() >= 0.3
    assert ((found.multipliers > 1e-3).sum(axis=1) >= 2).mean() >= 0.6


@pytest.mark.parametrize("name", NAMES)
def test_constraints_pull_in_different_directions(name):
    """Who is almost as safe as possible in one constraint breaks another: a pair, both ways."""
    world = make(name, M)
    pairs = set()
    for m in world.distinct[0]:
        today = world.at(int(m))
        best = [safest(today, k) for k in range(world.K)]
        for k, j in itertools.permutations(range(world.K), 2):
            two = replace(
                today,
                utilities=today.utilities[[k, j]],
                thresholds=np.array([best[k] - 0.05, today.thresholds[j]]),
            )
            if solve(two).gamma < 0:
                pairs.add((k, j))
    assert any((j, k) in pairs for k, j in pairs), pairs


def safest(cmdp, k):
    """max_π V_g,k."""
    alone = cmdp.utilities[k : k + 1]
    return solve(replace(cmdp, rewards=alone[0], utilities=alone, thresholds=[1e-6])).value


@pytest.mark.parametrize(
    ("name", "options", "sizes"),
    [
        ("reservoir", {"levels": 12, "horizon": 8, "reserve": 0.4}, (8, 36, 4)),
        ("data_centre", {"capacity": 19, "horizon": 8}, (8, 60, 4)),
        ("ward", {"beds": 20, "horizon": 10}, (10, 42, 5)),
    ],
)
def test_options_scale_the_sizes_and_the_world_stays_feasible(name, options, sizes):
    world = make(name, M, **options)
    assert sizes == (world.H, world.S, world.A)
    assert (optima(world).gamma > 0).all()


# ---------------------------------------------------------------- by simulation


class Reservoir:
    def start(self):
        return 4 * 3 + 1

    def step(self, rng, share, h, x, a):
        storage, weather = divmod(x, 3)
        released = min(a, storage)
        price = 0.6 + 0.4 * np.cos(2 * np.pi * h / 12)
        reward = released / 3 * (0.8 + 0.2 * storage / 8) * price
        need = 2 if 4 <= h < 9 else 1
        utility = [min((8 - storage) / 2, 1), storage / 8, min(released / need, 1)]
        p = (0.15, 0.4, 0.7)[weather] * (0.9 + 0.3 * np.cos(2 * np.pi * (h - 3) / 12))
        storage = min(storage - released + rng.binomial(3, p), 8)
        wet = rng.random() < share[0]
        u = rng.random()
        weather += -1 if u < (0.1 if wet else 0.35) else 1 if u > (0.65 if wet else 0.9) else 0
        return reward, utility, 3 * storage + min(max(weather, 0), 2)


class DataCentre:
    def start(self):
        return 3 * 2

    def step(self, rng, share, h, x, a):
        jobs, heat = divmod(x, 3)
        regime = int(np.argmax(share))
        p = (0.25, 0.5, 0.85, 0.5)[a]
        chance = [comb(3, n) * p**n * (1 - p) ** (3 - n) for n in range(4)]
        reward = sum(c * min(n, jobs) for n, c in enumerate(chance)) / 3
        carbon = (0.7, 0.9, 0.7, 1.0)[regime]
        utility = [1 - jobs / 9, 1 - (0.2, 0.5, 1.0, 0.45)[a] * carbon, 1 - heat / 2]
        jobs = max(jobs - rng.choice(4, p=chance), 0)
        if a != 3:
            jobs = min(jobs + rng.binomial(3, (0.4, 0.65, 0.4, 0.2)[regime]), 9)
        u = rng.random()
        hotter, cooler = (0.05, 0.25, 0.7, 0.25)[a], (0.6, 0.3, 0.05, 0.3)[a]
        heat += 1 if u < hotter else -1 if u < hotter + cooler else 0
        return reward, utility, 3 * jobs + min(max(heat, 0), 2)


class Ward:
    def start(self):
        return 2 * 9

    def step(self, rng, share, h, x, a):
        taken, outbreak = divmod(x, 2)
        early, admitted = a > 2, min((0, 2, 4, 0, 2)[a], 12 - taken)
        utility = [1 - taken / 12, 1 - early * taken / 12]
        left = taken - rng.binomial(taken, 0.4 if early else 0.15)
        came = rng.binomial(4, 0.7 if outbreak else 0.25)
        season = int(rng.random() < share[1])
        chance = ((0.1, 0.5), (0.4, 0.8))[season][outbreak]
        after = min(left + admitted + came, 12)
        return admitted / 4, utility, 2 * after + int(rng.random() < chance)


SIMULATORS = {"reservoir": Reservoir, "data_centre": DataCentre, "ward": Ward}


@pytest.mark.parametrize("name", NAMES)
def test_exact_values_agree_with_an_independent_simulation(name):
    world, simulator, n = make(name, M, seed=4), SIMULATORS[name](), 4_000
    rng = np.random.default_rng(3)
    policy = rng.dirichlet(np.ones(world.A), (world.H, world.S))
    for m in (3, 29):
        share = np.zeros(len(world.scenarios))
        share[world.transition_path.scenario[m]] = world.transition_path.weight[m]
        returns = np.zeros((n, 1 + world.K))
        for total in returns:
            x = simulator.start()
            for h in range(world.H):
                a = int((policy[h, x].cumsum() < rng.random()).sum())
                reward, utility, x = simulator.step(rng, share, h, x, a)
                total += [reward, *utility]
        exact = evaluate_episodes(world, np.array([m]), policy[None])[0]
        error = returns.std(axis=0) / np.sqrt(n)
        assert (np.abs(returns.mean(axis=0) - exact) <= 4 * error).all()


def test_thresholds_of_the_ward_rise():
    world = make("ward", M, rise=0.1)
    np.testing.assert_allclose(world.thresholds[[0, -1], 0], [7 * 0.3, 7 * 0.4])
    np.testing.assert_allclose(world.thresholds[:, 1], 7 * 0.7)


def test_one_world_is_a_valid_cmdp_of_several_constraints():
    assert isinstance(make("ward", 1).at(0), TabularCMDP)
    assert re.match(r"DriftingCMDP\(M=1, .*K=2", repr(make("ward", 1)))


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("reservoir", {"levels": 3}, ValueError, "levels must be an integer >= 4; got 3"),
        ("reservoir", {"reserve": 1.0}, ValueError, "reserve must be in (0, 1); got 1.0"),
        ("reservoir", {"period": 0}, ValueError, "period must be > 0; got 0"),
        ("data_centre", {"capacity": 3}, ValueError, "capacity must be an integer >= 4; got 3"),
        ("data_centre", {"wear": "low"}, TypeError, "wear must be a number; got 'low'"),
        ("data_centre", {"changes": -1}, ValueError, "changes must be an integer >= 0; got -1"),
        ("ward", {"beds": 2}, ValueError, "beds must be an integer >= 4; got 2"),
        ("ward", {"rise": 0.7}, ValueError, "rise must be in [0, 0.7); got 0.7"),
        ("ward", {"step": 0}, ValueError, "step must be in (0, 1e+06]; got 0"),
    ],
)
def test_wrong_options(name, options, error, message):
    refused(error, message, name, **options)


def test_description_names_the_constraints():
    found = describe(make("ward", M))
    assert found.constraints == ("free beds", "aftercare")
    assert "mu* aftercare" in dict(found.rows())
    assert "free beds in 100%, aftercare in 100%" in str(found)
    assert found.record()["constraints"] == ["free beds", "aftercare"]
