"""Worlds that test nothing get a warning, others do not: worlds solved on paper."""

import json

import numpy as np
import pytest
from test_commands import command

import safedrift as sd
from safedrift.oracles import degeneracy
from safedrift.problems import PROBLEMS, make

H = 2


def one_state(rewards, utilities, thresholds):
    """One state, `len(rewards)` actions: V = Σ_h of the chosen action's numbers."""
    r = np.broadcast_to(rewards, (H, 1, len(rewards)))
    g = np.stack([np.broadcast_to(u, (H, 1, len(rewards))) for u in utilities])
    return sd.TabularCMDP(np.ones((H, 1, len(rewards), 1)), r, g, thresholds, [1.0])


def always(*parts, M=10):
    return sd.DriftingCMDP([one_state(*parts)], sd.drift.stationary(M, 1))


def said(world):
    return sd.describe(world).warnings


def only(world, words):
    """The world gets one warning, which contains these words."""
    (sentence,) = said(world)
    assert words in sentence
    return sentence


# ---------------------------------------------------------------- the constraint


def test_a_constraint_that_costs_reward_is_fine():
    # Rich and unsafe, poor and safe, and one that is neither: half of each is optimal, V_r* = 1.
    assert said(always([1, 0, 0], [[0, 1, 0]], [1.0])) == ()


def test_a_constraint_that_the_best_policy_meets_never_binds():
    world = always([1, 0, 0], [[0.6, 1, 0]], [1.1])
    assert sd.describe(world).price == pytest.approx(0)
    only(world, "The constraint never binds: the best policy without it is safe.")


def test_a_constraint_that_binds_in_one_of_twenty_episodes_hardly_binds():
    # In that one it costs 2 of the 2 that can be earned: 5 % of all prices, which is not cheap.
    slack, hard = one_state([1, 0, 0], [[0.6, 1, 0]], [1.1]), one_state([1, 0, 0], [[0, 1, 0]], [2])
    rare = sd.DriftingCMDP([slack, hard], np.arange(20) // 19)
    only(rare, "The constraint hardly binds: in 5.0% of these episodes.")
    often = sd.DriftingCMDP([slack, hard], np.arange(20) // 18)
    assert said(often) == ()


@pytest.mark.parametrize(("lost", "cheap"), [(0.006, True), (0.007, False)])
def test_price_is_compared_with_what_the_uniform_policy_loses(lost, cheap):
    # Actions earn 1, 1 - lost and 0; only the second is safe enough. The price is 2 lost, and the
    # uniform policy earns 2 (2 - lost)/3, which is (2 + 2 lost)/3 less than 2: 1.8 % or 2.1 %.
    world = always([1, 1 - lost, 0], [[0, 1, 0]], [2.0])
    assert sd.describe(world).price == pytest.approx(2 * lost)
    share = 2 * lost / ((2 + 2 * lost) / 3)
    assert (share < degeneracy.CHEAP) == cheap
    if cheap:
        only(world, f"Safety costs hardly anything: {share:.1%} of what")
    else:
        assert said(world) == ()


def test_each_of_several_constraints_is_judged():
    world = always([1, 0, 0], [[0, 1, 0], [0.6, 1, 0]], [1.0, 0.5])
    only(world, "Constraint 2 never binds")


# ---------------------------------------------------------------- the uniform policy


@pytest.mark.parametrize(("poor", "near"), [(2, True), (3, False)])
def test_uniform_policy_that_is_safe_and_nearly_optimal(poor, near):
    # 50 safe actions, all but `poor` of them earn 1 and these 0: V_r* = 2, the uniform policy loses
    # 2 poor/50, of a range of 2: 4 % or 6 %.
    rewards = [1] * (50 - poor) + [0] * poor
    told = [w for w in said(always(rewards, [[1] * 49 + [0.5]], [1.5])) if "uniform" in w]
    assert told == (
        ["The uniform policy is safe and nearly optimal in 100% of these episodes."] * near
    )


def test_uniform_policy_that_is_good_in_every_second_episode():
    good = one_state([1, *(0.99,) * 38, 0], [[0, *(1,) * 38, 1]], [1.94])
    bad = one_state([1, *(0,) * 39], [[0, *(1,) * 39]], [0.5])
    half = sd.DriftingCMDP([good, bad], np.array([0, 1, 0, 1]))
    assert any("nearly optimal in 50% of these episodes" in w for w in said(half))
    less = sd.DriftingCMDP([good, bad], np.array([0, 1, 1, 0, 1]))
    assert not any("uniform" in w for w in said(less))


def test_uniform_policy_that_is_nearly_optimal_but_unsafe_is_fine():
    # 49 of 50 actions earn 1, ten are safe: the uniform policy loses 2 % and has a utility of 0.4.
    world = always([1] * 49 + [0], [[1] * 10 + [0] * 40], [1.5])
    assert not any("uniform" in sentence for sentence in said(world))
    assert any("uniform" in w for w in said(always([1] * 49 + [0], [[1] * 10 + [0] * 40], [0.3])))


# ---------------------------------------------------------------- r + g constant


def test_sum_of_reward_and_utility_that_is_constant():
    # r + g = 1: V_r* = H - b. The uniform policy earns 1, which is 0.4 less than 1.4, of 2.
    sentence = only(always([1, 0], [[0, 1]], [0.6]), "r + g is constant")
    assert "every policy that meets the threshold exactly is optimal" in sentence
    assert said(always([1, 0, 0], [[0, 1, 0.9]], [0.6])) == ()


def test_sum_may_depend_on_the_step_but_not_on_one_bit_of_a_table():
    r = np.array([[[1.0, 0.0]], [[0.5, 0.0]]])
    g = np.array([1.0, 0.5])[:, None, None] - r
    assert degeneracy.sum_is_constant(r, g[None]).all()
    g[1, 0, 0] += 1e-9
    assert not degeneracy.sum_is_constant(r, g[None]).any()
    two = np.stack((1 - r, np.broadcast_to(0.3, r.shape)))
    np.testing.assert_array_equal(degeneracy.sum_is_constant(r, two), [True, False])


def test_sum_that_is_constant_in_the_first_episode_only_is_fine():
    same, other = one_state([1, 0], [[0, 1]], [0.6]), one_state([1, 0.2], [[0, 1]], [0.6])
    assert said(sd.DriftingCMDP([same, other], np.array([0, 0, 1]))) == ()
    first = one_state([1, 0], [[0, 1], [0, 0.5]], [0.6, 0.3])  # constant with its first utility,
    second = one_state([1, 0], [[0, 0.5], [0, 1]], [0.3, 0.6])  # and with its second
    for path in ([0, 1], [1, 0]):
        told = said(sd.DriftingCMDP([first, second], np.array(path)))
        assert not any("constant" in sentence for sentence in told)
    (told,) = [w for w in said(sd.DriftingCMDP([second], np.zeros(2, int))) if "constant" in w]
    assert told.startswith("r + g 2 is constant")


# ---------------------------------------------------------------- whole worlds


SUSPECT = {
    "drifting_grid": ["Safety costs hardly anything"],
    "triple_q_grid": ["The constraint never binds"],
    "complementary": ["The uniform policy is safe and nearly optimal", "r + g is constant"],
}


@pytest.mark.parametrize("name", [name for name in PROBLEMS if name not in ("taxi", "departures")])
def test_named_worlds_that_test_something(name):
    found = said(make(name, episodes=40))
    assert len(found) == len(SUSPECT.get(name, []))
    for sentence, words in zip(found, SUSPECT.get(name, []), strict=True):
        assert sentence.startswith(words)


def test_evidence_by_hand_is_what_the_warnings_see(monkeypatch):
    """Lowest, highest and uniform values, episode by episode."""
    seen = []
    monkeypatch.setattr(
        "safedrift.oracles.description.warnings_of", lambda found: seen.append(found) or ()
    )
    world = make("energy", episodes=60)
    sd.describe(world, np.array([0, 7, 31]))
    (found,) = seen
    for place, m in enumerate((0, 7, 31)):
        today = world.at(m)
        P = today.dense_transitions()
        low, high, flat = (np.zeros(world.S) for _ in range(3))
        for h in reversed(range(world.H)):
            low = (today.rewards[h] + P[h] @ low).min(axis=1)
            high = (today.rewards[h] + P[h] @ high).max(axis=1)
            flat = (today.rewards[h] + P[h] @ flat).mean(axis=1)
        values = [today.initial @ V for V in (low, high, flat)]
        got = (found.lowest_value, found.free_value, found.uniform_reward)
        np.testing.assert_allclose([x[place] for x in got], values, atol=1e-9)


def test_episodes_that_no_policy_meets_are_left_out(monkeypatch):
    poor = one_state([1, 0, 0], [[0, 0.4, 0]], [1.0])
    assert said(sd.DriftingCMDP([poor], np.zeros(5, int))) == ()
    safe = one_state([1, 0, 0], [[0, 1, 0]], [1.0])
    seen = []
    monkeypatch.setattr("safedrift.oracles.description.warnings_of", seen.append)
    sd.describe(sd.DriftingCMDP([poor, safe], np.array([0, 1, 1])))
    (found,) = seen
    assert {len(values) for values in found[:-1]} == {2}
    np.testing.assert_allclose(found.uniform_utility, 2 / 3)
    np.testing.assert_allclose(found.value, 1)


def test_command_prints_and_records_the_warnings():
    done = command("problems", "triple_q_grid", "-n", 5)
    assert "Warning: The constraint never binds" in " ".join(done.stdout.split())
    record = json.loads(command("problems", "triple_q_grid", "-n", 5, "--json").stdout)
    assert record["warnings"] == ["The constraint never binds: the best policy without it is safe."]
    assert "Warning" not in command("problems", "maze", "-n", 40).stdout
