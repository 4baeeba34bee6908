"""Runs of the program for a card beside those of the CPU engine: worlds, learners, comparisons."""

from dataclasses import replace

import numpy as np

import safedrift as sd
from conftest import random_scenarios
from safedrift.experiments.playing import play_chunks
from safedrift.experiments.streams import seeds
from safedrift.gpu.program import ALL, HOT, MOST, NOTHING, Layout
from safedrift.gpu.runs import Measured, generator_words, play_batches
from safedrift.kernels.records import make_log
from safedrift.learners.forgetting import Never
from safedrift.learners.propd_ppo.components import BernsteinBonus, CountBonus
from safedrift.results.many_runs import recorded_rows

M = 60
WORLDS = {  # of the comparison on a card
    "small": {"drift": "linear", "K": 1, "S": 5, "A": 3, "H": 5},
    "middle": {"drift": "separate", "K": 2, "S": 20, "A": 5, "H": 10},
    "large": {"drift": "abrupt", "K": 3, "S": 150, "A": 4, "H": 6, "successors": 9},
}
LAYOUTS = [  # of the small one
    Layout(5, 18, ALL, 6), Layout(5, 24, MOST, 6), Layout(5, 24, HOT, 6), Layout(5, 3, ALL, 3),
    Layout(8, 16, ALL), Layout(16, 3, ALL), Layout(32, 4, ALL), Layout(64, 1, HOT),
    Layout(32, 2, NOTHING), Layout(128, 1, NOTHING),
]  # fmt: skip


def small_world(drift="linear", K=1, S=4, A=3, H=3, successors=None, episodes=M, seed=0):
    """Three scenarios; `drift` is a path of `sd.drift`, separate ones, or none."""
    rng = np.random.default_rng(seed)
    scenarios = random_scenarios(rng, 3, H, S, A, K, successors=successors)
    if drift == "none":
        return sd.DriftingCMDP(scenarios[:1], np.zeros(episodes, np.int64))
    if drift == "separate":  # transitions jump, rewards and utilities move, each in its own way
        return sd.DriftingCMDP(
            scenarios,
            transition_weights=rng.integers(0, 3, episodes),
            reward_weights=sd.drift.linear(episodes, 3),
            utility_weights=rng.dirichlet(np.ones(3), episodes),
            weights=sd.drift.linear(episodes, 3),
        )
    paths = {
        "linear": lambda: sd.drift.linear(episodes, 3),
        "abrupt": lambda: rng.integers(0, 3, episodes),
        "mixed": lambda: rng.dirichlet(np.ones(3), episodes),
    }
    return sd.DriftingCMDP(scenarios, paths[drift]())


def words(listed):
    """The streams of seeds (R, 2, 4), as `simulate` has them."""
    children = [seeds(seed) for seed in listed]
    return np.array(
        [[generator_words(c["learner"]), generator_words(c["world"])] for c in children], np.uint64
    )


def measured(world):
    episodes = np.arange(world.M)
    optimal = np.linspace(1, 2, world.M)  # any numbers: exact values are compared through sums
    return Measured(episodes, optimal, np.ones(world.M), recorded_rows(episodes, world.M))


def expected(world, learner, seed, noisy):
    """Trajectories, multipliers, estimates and sums of the CPU engine."""
    _, H, S, A, K = learner.sizes
    C = learner.memory.values.v_start.size
    fresh = learner.fresh(seeds(seed)["learner"])
    log = [
        (part, sd.oracles.evaluate_episodes(world, part.measured, part.policies))
        for part in play_chunks(
            world, fresh, seed, noisy, np.arange(world.M),
            make_log=lambda B: make_log(B, C, H, S, A, K),
        )
    ]  # fmt: skip
    values = np.concatenate([found for _, found in log])
    regret = measured(world).optimal_reward[:, None] - values[:, :1]
    short = world.thresholds - values[:, 1:]
    terms = np.hstack((regret, np.maximum(regret, 0), short, np.maximum(short, 0)))
    return {
        "states": np.concatenate([part.log.states for part, _ in log]),
        "actions": np.concatenate([part.log.actions for part, _ in log]),
        "mu": np.concatenate([part.trace["mu"] for part, _ in log]),
        "v": np.concatenate([part.log.v_start for part, _ in log]),
        "sums": np.cumsum(terms, axis=0),
    }


def check_same(machine, world, learners, listed, *, noisy=False, layout=None):
    """Trajectories are equal, values to 1e-10."""
    batches = play_batches(
        machine, world.arrays, learners, words(listed), noisy, measured(world), log=True,
        layout=layout,
    )  # fmt: skip
    seen = []
    for batch in batches:
        parts = {
            name: np.concatenate([log[name] for log in batch.logs], axis=1)
            for name in batch.logs[0]
        }
        for j, number in enumerate(batch.runs):
            seen.append(int(number))
            learner = learners[number // len(listed)]
            wanted = expected(world, learner, listed[number % len(listed)], noisy)
            for name in ("states", "actions"):
                np.testing.assert_array_equal(parts[name][j], wanted[name])
            for name in ("mu", "v"):
                np.testing.assert_allclose(parts[name][j], wanted[name], rtol=0, atol=1e-10)
            np.testing.assert_allclose(batch.sums[j], wanted["sums"], rtol=1e-10, atol=1e-10)
    assert sorted(seen) == list(range(len(learners) * len(listed)))


def agents(world):
    """Every mode, both kinds of knowledge, every bonus and dual signal, periods and none."""
    made = sd.PROPDPPO.for_problem
    slater = sd.Slater(0.3)
    changes = np.random.default_rng(5).uniform(0, 0.02, (world.M, 1 + world.K, world.H))
    local = sd.LocalBudgets(changes[:, 0], changes[:, 1:])  # small: estimates below their caps
    still = np.zeros(world.M)  # B_*: no need to solve the world
    total = {norm: sd.budgets(world, still, norm) for norm in ("l2", "l1")}
    short = {"W": 13, "L": 20}
    learners = [
        made(world, slater, alpha=0.8, eta=0.3, **short),
        made(world, slater, mode="printed", budgets=total["l2"]),
        made(world, slater, mode="repaired", budgets=total["l1"], bonus_scale=1e-3, **short),
        made(world, slater, dual_signal="optimistic", bonus_scale=0.1, lagged=True, W=9, L=9),
        made(world, slater, dual_signal="plain", W=17, L=60),
        made(world, slater, dual_signal="observed", W=30, L=11, chi=0.5),
        made(world, slater, forgetting=Never(), alpha=3e5, chi=50.0, eta=9.0),
        made(world, local, alpha=0.5, **short),
        made(
            world, local, mode="printed", budgets=total["l2"], bonus_scale=0.01, alpha=0.2, **short
        ),
    ]
    learners += [with_bonus(learners[i]) for i in (0, 4)]
    assert {type(x.parameters.evaluation.bonus).__name__ for x in learners} == {
        "CountBonus",
        "BernsteinBonus",
    }
    return learners


def with_bonus(learner):
    """The same learner with the other kind of bonus."""
    old = learner.parameters
    H = learner.sizes.H
    bonus = BernsteinBonus(0.4)
    if isinstance(old.evaluation.bonus, BernsteinBonus):
        bonus = CountBonus(np.full(H, 0.3), np.linspace(0, 0.2, H), 0.0)
    changed = replace(old, evaluation=replace(old.evaluation, bonus=bonus))
    return sd.PROPDPPO(learner.sizes, learner.initial, changed, learner.knowledge)
