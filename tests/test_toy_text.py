"""Gymnasium's transition tables as exact worlds."""

import re

import gymnasium
import numpy as np
import pytest

import safedrift as sd
from safedrift.problems.cliff_walking import cliff_walking, on_the_path, one_step
from safedrift.problems.frozen_lake import dry_feet, frozen_lake
from safedrift.problems.toy_text import from_table, thawing

LOOSE = 0.01  # a threshold that every policy meets


def value_iteration(env, H):
    """Largest expected sum of raw rewards over H steps, from the raw table."""
    P = env.unwrapped.P
    V = np.zeros(len(P))
    for _ in range(H):
        V = np.array(
            [
                max(sum(p * (r + (0 if end else V[y])) for p, y, r, end in P[s][a]) for a in P[s])
                for s in range(len(P))
            ]
        )
    return env.unwrapped.initial_state_distrib @ V


@pytest.mark.parametrize(
    ("id", "options"),
    [
        ("FrozenLake-v1", {"is_slippery": True}),
        ("FrozenLake-v1", {"is_slippery": False, "map_name": "8x8"}),
        ("CliffWalking-v1", {"is_slippery": True}),
        ("CliffWalking-v1", {}),
        ("Taxi-v4", {}),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_optimum_is_that_of_value_iteration_on_the_raw_table(id, options):
    H = 14
    env = gymnasium.make(id, **options)
    cmdp = from_table(env, H, lambda *transition: 1.0, LOOSE)
    raw = [r for row in env.unwrapped.P.values() for a in row.values() for _, _, r, _ in a]
    low, high = min(0, *raw), max(0, *raw)
    found = sd.solve(cmdp).value * (high - low) + H * low
    assert found == pytest.approx(value_iteration(env, H), abs=1e-9)


def test_utility_counts_falls_and_the_end_is_absorbing():
    """A walk that falls for sure: down from the start of the dry lake, right into the hole."""
    H = 6
    cmdp = from_table("FrozenLake-v1", H, dry_feet, H - 0.5, is_slippery=False)
    policy = np.zeros((H, 17, 4))
    policy[..., 2] = 1  # right,
    policy[0, :, :] = [0, 1, 0, 0]  # but first down: cell 4, then the hole 5
    reward, utility = sd.evaluate(cmdp, policy)
    assert reward == 0
    assert utility == H - 1  # one step falls, the others do not
    P = cmdp.dense_transitions()
    assert P[0, 4, 2, 16] == 1  # over
    assert (P[:, 16, :, 16] == 1).all()


def test_falling_off_the_cliff_costs_utility_and_time_only():
    H = 5
    cmdp = from_table("CliffWalking-v1", H, on_the_path, H - 0.5, reward=one_step)
    always_right = np.zeros((H, 49, 4))
    always_right[..., 1] = 1
    reward, utility = sd.evaluate(cmdp, always_right)  # from the start into the cliff, every time
    assert (reward, utility) == (0, 0)


@pytest.mark.parametrize(("make", "limit"), [(frozen_lake, "risk"), (cliff_walking, "falls")])
def test_drifting_ground(make, limit):
    world = make(200, cycles=2.0)
    change = sd.variation(world)
    assert change.P.sum() > 0
    assert change.b.sum() == 0
    found = sd.optima(world)
    np.testing.assert_allclose(found.gamma, 0.1, atol=1e-9)  # some policy never falls
    assert 0.5 < (found.multipliers > 1e-9).mean() < 1
    wider = sd.optima(make(200, cycles=2.0, **{limit: 0.3}))
    assert (wider.value >= found.value - 1e-9).all()


def test_the_ground_is_slippery_first_and_dry_after_half_a_cycle():
    weights = thawing(100, 2.0)
    np.testing.assert_allclose(weights[[0, 25, 50]], [[1, 0], [0, 1], [1, 0]], atol=1e-12)
    np.testing.assert_allclose(weights.sum(axis=1), 1)


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (ValueError, "env must be one with a transition table", ("CartPole-v1", 5, dry_feet, 1.0)),
        (ValueError, "utility(...) must be in [0, 1]; got 2.0",
         ("FrozenLake-v1", 5, lambda *t: 2.0, 1.0)),
        (ValueError, "horizon must be", ("FrozenLake-v1", 0, dry_feet, 1.0)),
        (ValueError, "thresholds must be", ("FrozenLake-v1", 5, dry_feet, 9.0)),
    ],
)  # fmt: skip
def test_refused(error, message, arguments):
    with pytest.raises(error, match="^" + re.escape(message)):
        from_table(*arguments)


def test_refused_ranges_and_options():
    with pytest.raises(ValueError, match=r"^reward_range must be around \[0.0, 1.0\]"):
        from_table("FrozenLake-v1", 5, dry_feet, 1.0, reward_range=(0.0, 0.5))
    env = gymnasium.make("FrozenLake-v1")
    with pytest.raises(ValueError, match=r"^options must be none with an environment"):
        from_table(env, 5, dry_feet, 1.0, is_slippery=True)
