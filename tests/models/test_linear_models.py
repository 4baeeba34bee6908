"""Linear-kernel worlds: what is refused, and that all ways to write a world give the same one."""

import itertools
import re

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import safedrift as sd
from builders import dense_features, dense_weights
from conftest import drifting_worlds, random_cmdp, random_scenarios, rebuilt
from safedrift import DriftingCMDP, drift, local_budgets, optima, variation
from safedrift.models import LinearKernelCMDP, SuccessorFeatures
from safedrift.models.stepping import stepper_for
from safedrift.oracles import evaluate_episodes, safest_utilities
from safedrift.problems.random import with_gap

H, S, A, K, M, D1, D2 = 2, 3, 2, 2, 2, 2, 3
ONE_SENTENCE = re.compile(r"[^\n]+ must be [^\n]+; got [^\n]+")


def put(array, index, value):
    """A copy with one entry (or row) replaced."""
    array = np.array(array)
    array[index] = value
    return array


def finite(seed=0):
    """Arguments of a small world: two kernels, convex weights of them, rewards from a simplex."""
    rng = np.random.default_rng(seed)
    return {
        "psi": np.moveaxis(rng.dirichlet(np.ones(S), (D1, S, A)), 0, -1),
        "phi": rng.dirichlet(np.ones(D2), (S, A)),
        "theta": rng.dirichlet(np.ones(D1), (M, H)),
        "theta_r": rng.random((M, H, D2)),
        "theta_g": rng.random((M, K, H, D2)),
        "thresholds": np.ones((M, K)),
        "initial": np.full(S, 1 / S),
    }


def assert_refused(start, build, /, *arguments, **options):
    """One sentence that begins like this; TypeError where it is not even an array of numbers."""
    with pytest.raises((ValueError, TypeError)) as caught:
        build(*arguments, **options)
    message = str(caught.value)
    assert message.startswith(start)
    assert ONE_SENTENCE.fullmatch(message)


def test_the_small_world_is_valid():
    world = LinearKernelCMDP(**finite())
    sizes = (world.M, world.H, world.S, world.A, world.K, world.d1, world.d2)
    assert sizes == (M, H, S, A, K, D1, D2)
    assert repr(world) == "LinearKernelCMDP(M=2, H=2, S=3, A=2, K=2, d1=2, d2=3)"


# ---------------------------------------------------------------- finite: refused

KERNEL = "each kernel P(.|x,a) must be "


def changed(name, index, value):
    return {name: put(finite()[name], index, value)}


def scaled(name, other, factor):
    """The same products ⟨name, other⟩ with one factor too large and the other too small."""
    good = finite()
    return {name: good[name] / factor} | {each: good[each] * factor for each in other}


REFUSED = {
    "psi of rank 3": ({"psi": np.ones((S, A, S))}, "psi must be an array of shape (3, 2, 3, 2);"),
    "psi of other S": ({"psi": np.ones((S, A, S + 1, D1))},
                       "psi must be an array of shape (3, 2, 3, 2); got shape (3, 2, 4, 2)"),
    "psi of other d1": ({"psi": np.ones((S, A, S, D1 + 1))},
                        "psi must be an array of shape (3, 2, 3, 2); got shape (3, 2, 3, 3)"),
    "psi of other H": ({"psi": np.ones((H + 1, S, A, S, D1))},
                       "psi must be an array of shape (2, 3, 2, 3, 2); got shape (3, 3, 2, 3, 2)"),
    "psi ragged": ({"psi": [[1, 2], [3]]}, "psi must be an array of numbers; got list"),
    "psi not finite": (changed("psi", (0, 1, 2, 0), np.nan),
                       "psi must be finite; got nan at index (0, 1, 2, 0)"),
    "psi of zeros": ({"psi": np.zeros((S, A, S, D1))},
                     "the successors of each pair in psi must be one or more; got 0 at index (0,"),
    "psi with an empty row": (changed("psi", (2, 1), 0),
                              "the successors of each pair in psi must be one or more; got 0 at "
                              "index (2, 1)"),
    "phi of rank 2": ({"phi": np.ones((S, A))}, "phi must be an array of shape (3, A, 3);"),
    "phi of other S": ({"phi": np.ones((S + 1, A, D2))},
                       "phi must be an array of shape (3, A, 3); got shape (4, 2, 3)"),
    "phi of other d2": ({"phi": np.ones((S, A, D2 + 1))},
                        "phi must be an array of shape (3, A, 3);"),
    "phi of other H": ({"phi": np.ones((H + 1, S, A, D2))},
                       "phi must be an array of shape (2, 3, A, 3);"),
    "phi without actions": ({"phi": np.ones((S, 0, D2))},
                            "phi must be an array of shape (3, A, 3); got shape (3, 0, 3)"),
    "phi not finite": (changed("phi", (1, 1, 2), np.inf),
                       "phi must be finite; got inf at index (1, 1, 2)"),
    "phi unknown": ({"phi": "something"}, "phi must be one of 'one-hot'; got 'something'"),
    "phi one-hot, d2 not S*A": ({"phi": "one-hot", "theta_r": np.ones((M, H, 4)),
                                 "theta_g": np.ones((M, K, H, 4))},
                                "theta_r must be of S*A entries with phi = 'one-hot', S = 3; got"),
    "theta_g of other d2": ({"theta_g": np.ones((M, K, H, D2 + 1))},
                            "theta_g must be an array of shape (2, K, 2, 3);"),
    "theta_r of other M": ({"theta_r": np.ones((M + 1, H, D2))},
                           "theta_r must be an array of shape (2, 2, d2);"),
    "theta empty": ({"theta": np.ones((0, H, D1))}, "theta must be an array of shape (M, H, d1);"),
    "theta not finite": (changed("theta", (1, 0, 1), np.nan),
                         "theta must be finite; got nan at index (1, 0, 1)"),
    "sum above 1": (changed("theta", (1, 1), [0.5, 0.6]),
                    KERNEL + "of integral 1 within 1e-09; got 1.1 at index (episode 1, step 1, "
                    "state 0, action 0)"),
    "sum below 1": (changed("psi", (2, 1, 0), 0), KERNEL + "of integral 1 within 1e-09; got 0."),
    "sum of a huge psi": ({"psi": np.full((S, A, S, D1), 1e308)}, KERNEL + "of integral 1"),
    "sum of a huge psi without weight": (
        {"psi": put(finite()["psi"], (..., 1), 1e308), "theta": np.tile([1.0, 0.0], (M, H, 1))},
        KERNEL + "of integral 1"),
    "negative probability": (changed("theta", (0, 1), [1.3, -0.3]), KERNEL + ">= 0; got -"),
    "theta too long": (scaled("psi", ["theta"], 3.0),
                       "the norm of theta must be at most sqrt(2) = 1.41421 (Assumption 1); got"),
    "theta_r too long": (scaled("phi", ["theta_r", "theta_g"], 30.0),
                         "the norm of theta_r must be at most sqrt(3) = 1.73205 (Assumption 1);"),
    "theta_g too long": (
        scaled("phi", ["theta_g"], 30.0) | {"theta_r": np.zeros((M, H, D2))},
        "the norm of theta_g must be at most sqrt(3) = 1.73205 (Assumption 1);"),
    "phi too long": (scaled("theta_r", ["phi"], 3.0),
                     "the norm of phi must be at most 1 (the proofs need it; divide phi by"),
    "integral of psi too long": (scaled("theta", ["psi"], 3.0),
                                 "the norm of the integral of psi*V over x' must be at most "
                                 "sqrt(2) = 1.41421 for V in [0, 1] (Assumption 1); got 4.24264"),
    "reward above 1": ({"theta_r": np.full((M, H, D2), 1.0), "phi": np.full((S, A, D2), 0.5)},
                       "rewards <phi, theta_r> must be in [0, 1]; got 1.5 at index (episode 0, "
                       "step 0, state 0, action 0)"),
    "reward below 0": (changed("theta_r", (1, 1), [0, -1e-3, 0]),
                       "rewards <phi, theta_r> must be in [0, 1]; got -"),
    "utility above 1": (
        {"phi": put(np.full((S, A, D2), 1 / 3), (2, 1), [1, 0, 0])}
        | changed("theta_g", (1, 1, 0), [1.25, 0, 0]),
        "utilities <phi, theta_g[:, 1]> must be in [0, 1]; got 1.25 at index (episode 1, step 0, "
        "state 2, action 1)"),
    "threshold of 0": (changed("thresholds", (1, 0), 0),
                       "thresholds must be in (0, H] = (0, 2]; got 0.0 at index (1, 0)"),
    "threshold above H": (changed("thresholds", (0, 1), 2.001),
                          "thresholds must be in (0, H] = (0, 2]; got 2.001 at index (0, 1)"),
    "thresholds of another M": ({"thresholds": np.ones((M + 1, K))},
                                "thresholds must be an array of shape (2, 2); got shape (3, 2)"),
    "initial sums to 1.5": ({"initial": np.full(S, 0.5)},
                            "each row of initial must be a distribution (sum 1); got 1.5"),
    "initial negative": ({"initial": [-0.5, 1, 0.5]}, "initial must be >= 0; got -0.5 at index 0"),
    "initial empty": ({"initial": []}, "initial must be an array of shape (S,); got shape (0,)"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "start"), REFUSED.values(), ids=REFUSED)
def test_refused(changes, start):
    assert_refused(start, LinearKernelCMDP, **finite() | changes)


@pytest.mark.parametrize("wrong", [(0, 1, 0, 1), (1, 2, 1, 0)])
def test_kernels_of_every_step_are_checked_and_named(wrong):
    good = finite()
    psi = np.repeat(good["psi"][None], H, axis=0)
    psi[wrong[:3]] *= 1.01
    place = "(episode 0, step {}, state {}, action {})".format(*wrong)
    with pytest.raises(ValueError, match=re.escape(f"got 1.01 at index {place}")):
        LinearKernelCMDP(**good | {"psi": psi})


@pytest.mark.parametrize("size", [1, 10**9], ids=["one by one", "at once"])
def test_a_negative_probability_is_found_in_any_block(monkeypatch, size):
    """ψ = (P, Q - P') sums to (1, 0): coefficients (1, c) give a kernel where c is small."""
    monkeypatch.setattr("safedrift.models.linear._BLOCK_BYTES", size)
    good = finite()
    P, Q = good["psi"][..., 0], good["psi"][..., 1]
    good["psi"] = np.stack([P, P - Q], axis=-1)
    good["theta"] = np.tile([1.0, 0.0], (M, H, 1))
    assert LinearKernelCMDP(**good).quadrature_error < 1e-12
    good["theta"][1, 1, 1] = 0.999 * np.sqrt(D1 - 1)
    values = P + 0.999 * (P - Q)
    s, a, x = np.argwhere(values < -1e-12)[0]
    start = (
        f"{KERNEL}>= 0; got {values[s, a, x]:.6g} at successor {x} at index (episode 1, step 1, "
        f"state {s}, action {a})"
    )
    assert_refused(start, LinearKernelCMDP, **good)
    good["psi"] = np.repeat(good["psi"][None], H, axis=0)  # rows of its own for each step
    assert_refused(start, LinearKernelCMDP, **good)


def test_wrong_numbers_are_found_in_any_block(monkeypatch):
    monkeypatch.setattr("safedrift.models.linear._BLOCK_BYTES", 1)
    for name in ("sum above 1", "utility above 1", "reward below 0"):
        changes, start = REFUSED[name]
        assert_refused(start, LinearKernelCMDP, **finite() | changes)


def lists():
    """ψ of the small world as successor lists."""
    return SuccessorFeatures(
        np.arange(S * A + 1) * S, np.tile(np.arange(S), S * A), finite()["psi"].reshape(-1, D1)
    )


LISTS = {
    "no arrays": (SuccessorFeatures(None, None, None), "psi.offsets must be an array of numbers;"),
    "text": (lists()._replace(offsets="all"), "psi.offsets must be an array of numbers; got str"),
    "ragged": (lists()._replace(states=[[0], [1, 2]]), "psi.states must be an array of numbers;"),
    "empty": (lists()._replace(states=[]), "psi.states must be an array of shape (states,);"),
    "floats": (lists()._replace(states=np.zeros(18)), "psi.states must be integers; got float64"),
    "two axes": (lists()._replace(offsets=[[0, 18]]), "psi.offsets must be an array of shape"),
    "few rows": (lists()._replace(offsets=[0, 9, 18]),
                 "psi.offsets must be of length S*A + 1 = 7 or H*S*A + 1 = 13; got 3"),
    "start at 1": (lists()._replace(offsets=[1, 3, 6, 9, 12, 15, 18]),
                   "psi.offsets must be from 0 to 18; got 1 to 18"),
    "end early": (lists()._replace(offsets=[0, 3, 6, 9, 12, 15, 17]),
                  "psi.offsets must be from 0 to 18; got 0 to 17"),
    "falling": (lists()._replace(offsets=[0, 6, 3, 9, 12, 15, 18]),
                "the successors of each pair in psi must be one or more; got -3 at index (0, 1)"),
    "empty row": (lists()._replace(offsets=[0, 3, 6, 6, 12, 15, 18]),
                  "the successors of each pair in psi must be one or more; got 0 at index (1, 0)"),
    "negative": (lists()._replace(offsets=-np.arange(7)), "psi.offsets must be in [0, "),
    "state S": (lists()._replace(states=put(lists().states, 4, 3)),
                "psi.states must be in [0, 2]; got 3 at index 4"),
    "state -1": (lists()._replace(states=put(lists().states, 4, -1)),
                 "psi.states must be in [0, 2]; got -1 at index 4"),
    "few states": (lists()._replace(states=lists().states[1:]),
                   "psi.states must be of length 18; got 17"),
    "twice": (lists()._replace(states=put(lists().states, 16, 2)),
              "the successors of each pair in psi must be distinct states; got 2 twice at index "
              "(2, 1)"),
    "twice, apart": (lists()._replace(states=put(lists().states, slice(9, 12), [1, 0, 1])),
                     "the successors of each pair in psi must be distinct states; got 1 twice at "
                     "index (1, 1)"),
    "another d1": (lists()._replace(psi=np.ones((18, 3))),
                   "psi.psi must be an array of shape (entries, 2); got shape (18, 3)"),
    "not finite": (lists()._replace(psi=put(lists().psi, (7, 1), np.inf)),
                   "psi.psi must be finite; got inf at index (7, 1)"),
}  # fmt: skip


@pytest.mark.parametrize(("psi", "start"), LISTS.values(), ids=LISTS)
def test_successor_lists_are_checked(psi, start):
    assert_refused(start, LinearKernelCMDP, **finite() | {"psi": psi})


def test_each_step_of_successor_lists_is_named():
    two = SuccessorFeatures(
        np.arange(H * S * A + 1) * S, np.tile(np.arange(S), H * S * A), np.tile(lists().psi, (2, 1))
    )
    twice = two._replace(states=put(two.states, [21, 22], 0))  # row 7 of 12
    start = "the successors of each pair in psi must be distinct states; got 0 twice at index "
    assert_refused(start + "(1, 0, 1)", LinearKernelCMDP, **finite() | {"psi": twice})


# What nobody should hand over, and in one sentence hears that it is not taken.
ODD = [
    "twelve", "", b"x", [[1, 2], [3]], object(), {"a": 1}, [], np.zeros(0), [None], -1.5, 1e308,
    -1e308, np.nan, [np.inf], np.ones((1,) * 7), np.array(["a"]), np.full((M, H, D1), 1e308),
    np.full((M, K, H, D2), -1e308), np.full((S, A, S, D1), -1e308), np.full((S, A, D2), 1e308),
    SuccessorFeatures([0], [0], [0]),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("name", finite())
def test_no_odd_input_gets_past_one_sentence(name):
    for value in ODD:
        assert_refused("", LinearKernelCMDP, **finite() | {name: value})


# ---------------------------------------------------------------- the same world in other words


def assert_same_worlds(linear, world, tolerance=1e-12):
    """Every episode is the same CMDP."""
    assert (linear.M, linear.H, linear.S, linear.A, linear.K) == (
        world.M, world.H, world.S, world.A, world.K,
    )  # fmt: skip
    np.testing.assert_array_equal(linear.initial, world.initial)
    for m in range(world.M):
        found, expected = linear.at(m), world.at(m)
        P = found.dense_transitions()
        np.testing.assert_allclose(P, expected.dense_transitions(), rtol=0, atol=tolerance)
        for name in ("rewards", "utilities", "thresholds"):
            np.testing.assert_allclose(
                getattr(found, name), getattr(expected, name), rtol=0, atol=tolerance, err_msg=name
            )


def by_hand(world):
    """Arguments of the linear-kernel world of all scenarios, dense, one ψ and φ per step."""
    N = len(world.scenarios)
    w_P, w_r, w_g = (
        dense_weights(path, N)
        for path in (world.transition_path, world.reward_path, world.utility_path)
    )
    psi = np.stack([s.dense_transitions() for s in world.scenarios], axis=-1)
    phi = np.stack(
        [s.rewards for s in world.scenarios]
        + [s.utilities[k] for k in range(world.K) for s in world.scenarios],
        axis=-1,
    )
    d2 = N * (1 + world.K)
    theta_r, theta_g = np.zeros((world.M, d2)), np.zeros((world.M, world.K, d2))
    theta_r[:, :N] = w_r
    for k in range(world.K):
        theta_g[:, k, N * (1 + k) : N * (2 + k)] = w_g
    scale = np.sqrt(d2)  # entries of φ are at most 1
    return {
        "psi": psi,
        "phi": phi / scale,
        "theta": np.repeat(w_P[:, None], world.H, axis=1),
        "theta_r": np.repeat(theta_r[:, None], world.H, axis=1) * scale,
        "theta_g": np.repeat(theta_g[:, :, None], world.H, axis=2) * scale,
        "thresholds": world.thresholds,
        "initial": world.initial,
    }


def listed(psi):
    """Dense ψ (..., S, d1) as successor lists, row by row."""
    offsets, states, values = [0], [], []
    for row in psi.reshape(-1, *psi.shape[-2:]):
        support = np.flatnonzero(row.any(axis=-1))
        states += list(support)
        values += list(row[support])
        offsets.append(len(states))
    return SuccessorFeatures(np.array(offsets), np.array(states), np.array(values))


FORMS = [("scenarios", "scenarios"), ("scenarios", "one-hot"), ("tabular", "scenarios"),
         ("tabular", "one-hot")]  # fmt: skip


def all_forms(world):
    """The world in every form there is."""
    parts = by_hand(world)
    yield LinearKernelCMDP(**parts)
    yield LinearKernelCMDP(**parts | {"psi": listed(parts["psi"])})
    for features, rewards in FORMS:
        yield world.as_linear_kernel(features, rewards)


@settings(max_examples=40)
@given(st.integers(1, 3).flatmap(lambda K: drifting_worlds(K=K)))
def test_all_forms_are_the_same_world(world):
    for linear in all_forms(world):
        assert_same_worlds(linear, world)
        assert linear.quadrature_error < 1e-12
        first, version = world.distinct  # merged scenarios may make more episodes alike
        np.testing.assert_array_equal(linear.distinct[1], linear.distinct[1][first[version]])


def still_steps(rng, N, H=3, S=4, A=2, K=1, successors=None):
    """Scenarios that are the same at every step."""
    found = []
    for cmdp in random_scenarios(rng, N, 1, S, A, K, successors=successors):
        P, r, g = cmdp.transitions, cmdp.rewards, cmdp.utilities
        found.append(
            sd.TabularCMDP(
                P.repeat(H, 0), r.repeat(H, 0), g.repeat(H, 1), cmdp.thresholds, cmdp.initial
            )
        )
    return found


@pytest.mark.parametrize("successors", [None, 1, 2])
def test_steps_that_are_alike_are_stored_once(successors):
    rng = np.random.default_rng(3)
    scenarios = still_steps(rng, 3, successors=successors)
    world = DriftingCMDP(scenarios, drift.random_walk(12, 3, 0.3, seed=1))
    parts = by_hand(world)
    one = {"psi": parts["psi"][0], "phi": parts["phi"][0]}
    for linear in (
        world.as_linear_kernel(),
        LinearKernelCMDP(**parts | one),
        LinearKernelCMDP(**parts | one | {"psi": listed(parts["psi"][0])}),
    ):
        assert linear.features.offsets.size == world.S * world.A + 1
        assert linear.features.phi.shape[0] == 1
        assert_same_worlds(linear, world)
    # One number at the last step is enough to need all steps.
    P = scenarios[2].transitions.copy()
    P[-1, 0, 0] = P[-1, 0, 0][::-1]
    scenarios[2] = rebuilt(scenarios[2], transitions=P)
    world = DriftingCMDP(scenarios, drift.random_walk(12, 3, 0.3, seed=1))
    linear = world.as_linear_kernel()
    assert linear.features.offsets.size == world.H * world.S * world.A + 1
    assert linear.features.phi.shape[0] == 1
    assert_same_worlds(linear, world)


def test_steps_may_differ_in_nothing_but_their_successors():
    cmdp = random_cmdp(np.random.default_rng(3), 2, 4, 2)
    P = np.eye(4)[np.array([[0, 1, 2, 3], [3, 2, 1, 0]])][:, :, None].repeat(2, axis=2)
    world = DriftingCMDP([rebuilt(cmdp, transitions=P)], np.zeros(2, int))
    assert_same_worlds(world.as_linear_kernel(), world)


def test_scenarios_that_are_alike_are_merged():
    rng = np.random.default_rng(4)
    a, b = random_scenarios(rng, 2, K=2)
    same_P = rebuilt(b, transitions=a.transitions)
    same_r = rebuilt(b, rewards=a.rewards)
    paths = [rng.dirichlet(np.ones(5), 6) for _ in range(4)]
    names = ("weights", "transition_weights", "reward_weights", "utility_weights")
    world = DriftingCMDP([a, a, b, same_P, same_r], **dict(zip(names, paths, strict=True)))
    linear = world.as_linear_kernel()
    assert (linear.d1, linear.d2) == (2, 2 + 2 * 2)
    assert_same_worlds(linear, world)
    w = paths[1]
    np.testing.assert_allclose(linear.theta[:, 0, 0], w[:, 0] + w[:, 1] + w[:, 3], atol=1e-15)
    np.testing.assert_allclose(linear.theta.sum(axis=-1), 1, atol=1e-12)


def test_the_form_says_how_many_features_there_are():
    world = DriftingCMDP(random_scenarios(np.random.default_rng(5), 3, K=2), drift.linear(4, 3))
    sizes = [(x.d1, x.d2) for x in (world.as_linear_kernel(*form) for form in FORMS)]
    table, pairs = world.S**2 * world.A, world.S * world.A
    assert sizes == [(3, 9), (3, pairs), (table, 9), (table, pairs)]
    for form in FORMS:
        linear = world.as_linear_kernel(*form)
        assert linear.features.one_hot == (form[1] == "one-hot")
        if not linear.features.one_hot:  # scaled, and no more than needed
            largest = np.linalg.norm(dense_features(linear)[1], axis=-1).max()
            assert largest == pytest.approx(1, abs=1e-12)


def test_the_tabular_reduction_is_the_papers():
    """ψ = e_{x,a,x'}, θ = P, φ = e_{x,a}, θ_r = r, θ_g = g."""
    world = DriftingCMDP(random_scenarios(np.random.default_rng(6), 3, K=2), drift.linear(4, 3))
    linear = world.as_linear_kernel("tabular", "one-hot")
    psi, phi = dense_features(linear)
    n, pairs = world.S**2 * world.A, world.S * world.A
    np.testing.assert_array_equal(psi.reshape(world.H, n, n), np.eye(n)[None].repeat(world.H, 0))
    np.testing.assert_array_equal(phi.reshape(world.H, pairs, pairs)[0], np.eye(pairs))
    for m in range(world.M):
        cmdp = world.at(m)
        for found, expected in (
            (linear.theta[m], cmdp.dense_transitions()),
            (linear.theta_r[m], cmdp.rewards),
            (linear.theta_g[m], cmdp.utilities),
        ):
            np.testing.assert_allclose(found.ravel(), expected.ravel(), atol=1e-15)
    assert linear.bound == pytest.approx(np.sqrt(world.S))


def test_names_and_recipes_are_kept():
    world = sd.problems.make("random", episodes=3)
    linear = world.as_linear_kernel()
    assert (linear.name, linear.recipe) == (world.name, world.recipe)


@pytest.mark.parametrize("options", [{"features": "deep"}, {"features": np.zeros(2)}])
def test_unknown_forms_are_refused(options):
    world = DriftingCMDP([random_cmdp(np.random.default_rng(0))], np.zeros(1, int))
    start = "features must be one of 'scenarios', 'tabular'; got '"
    assert_refused(start, world.as_linear_kernel, **options)
    start = "rewards must be one of 'scenarios', 'one-hot'; got '"
    assert_refused(start, world.as_linear_kernel, rewards=options["features"])


def test_the_tabular_reduction_is_for_small_worlds():
    world = DriftingCMDP([random_cmdp(np.random.default_rng(0), 1, 46, 2)], np.zeros(1, int))
    start = "S*S*A must be at most 4096 with features='tabular'; got 4232"
    assert_refused(start, world.as_linear_kernel, "tabular")


def test_a_world_without_rewards_has_features_too():
    cmdp = random_cmdp(np.random.default_rng(7), K=1)
    cmdp = rebuilt(cmdp, rewards=0 * cmdp.rewards, utilities=0 * cmdp.utilities)
    world = DriftingCMDP([cmdp], np.zeros(2, int))
    assert_same_worlds(world.as_linear_kernel(), world)


# ---------------------------------------------------------------- oracles agree

ORACLE_WORLDS = {
    "one constraint": dict(K=1, seed=0),
    "two constraints": dict(K=2, seed=1),
    "few successors": dict(K=1, seed=2, successors=2),
}


def oracle_world(K, seed, successors=None, M=45):
    """Separate random walks of P, r and g, with repeats; feasible in every episode."""
    rng = np.random.default_rng(seed)
    scenarios = random_scenarios(rng, 3, 3, 4, 2, K, successors=successors)
    paths = [drift.random_walk(M, 3, 0.4, seed=10 * seed + i) for i in range(3)]
    for path in paths:
        path[5:9], path[20:40] = path[5], path[2]
    names = ("transition_weights", "reward_weights", "utility_weights")
    paths = dict(zip(names, paths, strict=True))
    return with_gap(DriftingCMDP(scenarios, thresholds=np.ones((M, K)), **paths), 0.05)


@pytest.mark.parametrize("options", ORACLE_WORLDS.values(), ids=ORACLE_WORLDS)
def test_oracles_agree_in_every_form(options):
    world = oracle_world(**options)
    episodes = np.array([3, 0, 41, 3, 7, *range(30, 45), *range(20)])
    rng = np.random.default_rng(0)
    policies = rng.dirichlet(np.ones(world.A), (episodes.size, world.H, world.S))
    expected = (
        evaluate_episodes(world, episodes, policies),
        evaluate_episodes(world, episodes, policies[:1]),
        safest_utilities(world, episodes),
    )
    truth = optima(world)
    assert truth.feasible.all()
    assert truth.multipliers.max() > 0.01  # the constraint matters
    for linear in all_forms(world):
        found = (
            evaluate_episodes(linear, episodes, policies),
            evaluate_episodes(linear, episodes, policies[:1]),
            safest_utilities(linear, episodes),
        )
        for got, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12)
        best = optima(linear)
        for name in ("value", "gamma"):
            np.testing.assert_allclose(getattr(best, name), getattr(truth, name), atol=1e-9)
        for name in ("multipliers", "policy_change"):
            np.testing.assert_allclose(getattr(best, name), getattr(truth, name), atol=1e-6)


@pytest.mark.parametrize("options", ORACLE_WORLDS.values(), ids=ORACLE_WORLDS)
def test_budgets_agree_in_every_form(options):
    world = oracle_world(**options)
    expected = {norm: variation(world, norm) for norm in ("l1", "l2")}
    assert expected["l1"].P.max() > 0.01
    for linear in all_forms(world):
        for got, wanted in zip(variation(linear, "l1"), expected["l1"], strict=True):
            np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12)
        found = local_budgets(linear, "l1")
        np.testing.assert_allclose(found.transitions, expected["l1"].P, rtol=0, atol=1e-12)
        np.testing.assert_allclose(found.utilities, expected["l1"].g, rtol=0, atol=1e-12)
    table = world.as_linear_kernel("tabular", "one-hot")
    for got, wanted in zip(variation(table, "l2"), expected["l2"], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12)
    # Without a table, "l2" is the change of the coefficients: here of the weights.
    weights = dense_weights(world.transition_path, 3)
    change = np.linalg.norm(np.diff(weights, axis=0, prepend=weights[:1]), axis=1)
    found = local_budgets(world.as_linear_kernel(), "l2").transitions
    np.testing.assert_allclose(found, np.tile(change[:, None], world.H), rtol=0, atol=1e-12)


def test_changes_do_not_depend_on_blocks(monkeypatch):
    linear = oracle_world(K=2, seed=1).as_linear_kernel()
    expected = variation(linear, "l1")
    monkeypatch.setattr("safedrift.models.linear._BLOCK_BYTES", 1)
    for got, wanted in zip(variation(linear, "l1"), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-14)


def test_values_do_not_depend_on_chunks(monkeypatch):
    linear = oracle_world(K=1, seed=0).as_linear_kernel()
    policies = np.full((1, linear.H, linear.S, linear.A), 1 / linear.A)
    episodes = np.arange(linear.M)
    expected = evaluate_episodes(linear, episodes, policies)
    assert linear.chunk == 32
    monkeypatch.setattr("safedrift.models.linear._BLOCK_BYTES", 8 * 5 * 3 * 4 * 2 * 4)
    assert linear.chunk == 5
    np.testing.assert_allclose(evaluate_episodes(linear, episodes, policies), expected, atol=1e-13)
    rng = np.random.default_rng(0)
    one_step = DriftingCMDP(still_steps(rng, 2), drift.linear(6, 2)).as_linear_kernel()
    assert one_step.chunk == 5  # tables have all steps
    monkeypatch.setattr("safedrift.models.linear._BLOCK_BYTES", 1)
    assert linear.chunk == 1


def test_tables_name_the_place_of_each_episode():
    world = oracle_world(K=2, seed=1)
    linear = world.as_linear_kernel("scenarios", "one-hot")
    episodes = np.array([41, 5, 6, 2, 30, 41])
    tables, place = linear.tables(episodes)
    assert tables.probabilities.shape[0] == 3  # 5 and 6 are one world, 2 and 30 another
    np.testing.assert_array_equal(place == place[:, None], np.array([
        [1, 0, 0, 0, 0, 1], [0, 1, 1, 0, 0, 0], [0, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 0], [1, 0, 0, 0, 0, 1],
    ], bool))  # fmt: skip
    for m, i in zip(episodes, place, strict=True):
        np.testing.assert_allclose(tables.rewards[i], world.at(m).rewards, atol=1e-14)
        np.testing.assert_allclose(tables.utilities[i], world.at(m).utilities, atol=1e-14)
        np.testing.assert_array_equal(tables.thresholds[i], world.thresholds[m])


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (2, 3, 2, 2), (1, 4, 1, 1), (2, 1, 3, 1)])
def test_kernels_see_one_type(sizes):
    """Whatever the sizes: compiled once, for tabular and linear worlds."""
    scenarios = random_scenarios(np.random.default_rng(8), 2, *sizes)
    world = DriftingCMDP(scenarios, drift.linear(3, 2))
    usual = oracle_world(K=1, seed=0)
    wanted = numba.typeof(usual.as_linear_kernel().arrays)
    for form in FORMS:
        linear = world.as_linear_kernel(*form)
        assert numba.typeof(linear.tables(np.arange(3))[0]) == numba.typeof(usual.arrays)
        assert numba.typeof(linear.arrays) == wanted
        assert all(array.flags.writeable for array in linear.features[:4])


# ---------------------------------------------------------------- accepted


def test_arrays_are_copies_and_coefficients_cannot_be_written():
    parts = finite()
    world = LinearKernelCMDP(**parts)
    before = world.at(1).dense_transitions().copy()
    for array in parts.values():
        array[...] = 7
    np.testing.assert_array_equal(world.at(1).dense_transitions(), before)
    for name in ("theta", "theta_r", "theta_g", "thresholds", "initial"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(world, name)[...] = 0
    mine = listed(finite()["psi"])
    own = LinearKernelCMDP(**finite() | {"psi": mine})
    mine.psi[:] = 7
    np.testing.assert_allclose(own.at(1).dense_transitions(), before, atol=1e-15)


def test_limits_are_allowed():
    """Norms √d1, √d2 and 1, rewards 0 and 1, thresholds H."""
    psi = np.zeros((1, 1, 1, 2))
    psi[..., 0] = 1 / np.sqrt(2)
    world = LinearKernelCMDP(
        psi, np.ones((1, 1, 1)), [[[np.sqrt(2), 0]]], [[[1.0]]], [[[[0.0]]]], [[1.0]], [1.0]
    )
    assert world.at(0).dense_transitions() == pytest.approx(1)
    assert world.bound == pytest.approx(1 / np.sqrt(2))
    psi = np.tile([[1.0, 0.0], [0.0, 1.0]], (2, 1, 1, 1))  # ∫ψ = (1, 1), of norm √2
    world = LinearKernelCMDP(
        psi, "one-hot", [[[1, 0]]], [[[1 + 4e-10, -4e-10]]], [[[[1, 1]]]], [[1]], [1, 0]
    )
    assert world.bound == np.sqrt(2)
    np.testing.assert_array_equal(world.at(0).rewards, [[[1], [0]]])  # rounding is cut off


def test_successors_may_come_in_any_order():
    mine = lists()
    order = np.concatenate([3 * i + np.random.default_rng(i).permutation(3) for i in range(6)])
    turned = SuccessorFeatures(mine.offsets, mine.states[order], mine.psi[order])
    world, other = (LinearKernelCMDP(**finite() | {"psi": psi}) for psi in (mine, turned))
    assert_same_worlds(other, world)


def test_with_thresholds_changes_nothing_else():
    world = oracle_world(K=2, seed=1).as_linear_kernel()
    before = world.arrays.thresholds.copy()  # cached now; the other must not inherit it
    assert world.distinct[0].size < world.M
    b = np.random.default_rng(0).uniform(0.1, 2, (world.M, 2))
    other = world.with_thresholds(b)
    np.testing.assert_array_equal(other.thresholds, b)
    np.testing.assert_array_equal(other.arrays.thresholds, b)
    np.testing.assert_array_equal(other.distinct[0], np.arange(world.M))
    np.testing.assert_array_equal(other.at(3).thresholds, b[3])
    np.testing.assert_array_equal(world.arrays.thresholds, before)
    assert other.features is world.features  # what `simulate` asks for
    assert_refused("thresholds must be in (0, H] = (0, 3]; got 5.3", world.with_thresholds, b + 4)


@pytest.mark.parametrize("part", ["theta", "theta_r", "theta_g", "thresholds"])
def test_any_part_can_make_a_world_distinct(part):
    parts = finite()
    for name in ("theta", "theta_r", "theta_g", "thresholds"):
        parts[name] = np.repeat(parts[name][:1], 5, axis=0)
    assert LinearKernelCMDP(**parts).distinct[0].tolist() == [0]
    parts[part][[1, 4]] = 0.5
    first, version = LinearKernelCMDP(**parts).distinct
    assert (first.tolist(), version.tolist()) == ([0, 1], [0, 1, 0, 0, 1])


# ---------------------------------------------------------------- signed features


def turned(parts, T, R):
    """ψ T with T⁻¹ θ and φ R with Rᵀ θ_r: the same products."""
    back = np.linalg.inv(T)
    return parts | {
        "psi": parts["psi"] @ T,
        "theta": parts["theta"] @ back.T,
        "phi": parts["phi"] @ R,
        "theta_r": parts["theta_r"] @ R,
        "theta_g": parts["theta_g"] @ R,
    }


def rotation(rng, d):
    return np.linalg.qr(rng.standard_normal((d, d)))[0]


@settings(max_examples=40)
@given(st.integers(1, 2).flatmap(lambda K: drifting_worlds(K=K)), st.integers(0, 2**32 - 1))
def test_a_change_of_basis_is_the_same_world(world, seed):
    rng = np.random.default_rng(seed)
    parts = by_hand(world)
    T, R = rotation(rng, parts["psi"].shape[-1]), rotation(rng, parts["phi"].shape[-1])
    linear = LinearKernelCMDP(**turned(parts, T, R))
    assert_same_worlds(linear, world)
    # ‖∫ψV‖ is what it was: √d1 at V = 1.
    assert linear.bound == pytest.approx(np.sqrt(linear.d1))
    for got, wanted in zip(variation(linear, "l1"), variation(world, "l1"), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12)


def test_coefficients_need_not_be_convex():
    world = DriftingCMDP(random_scenarios(np.random.default_rng(9), 2), drift.linear(6, 2))
    parts = by_hand(world)
    T = np.array([[0.8, 0.5], [-0.25, 0.7]])  # no rotation
    linear = LinearKernelCMDP(**turned(parts, T, np.eye(parts["phi"].shape[-1])))
    assert linear.features.psi.min() < -0.01
    assert linear.theta.min() < -0.01
    assert_same_worlds(linear, world)
    np.testing.assert_allclose(optima(linear).value, optima(world).value, atol=1e-9)


def largest_integral(psi):
    """max over V in {0, 1}^S of ‖Σ ψ V‖, by trying all V: ψ (rows, S, d1)."""
    every = np.array(list(itertools.product((0.0, 1.0), repeat=psi.shape[1])))
    return np.linalg.norm(np.einsum("vs,rsd->rvd", every, psi), axis=-1).max()


@settings(max_examples=60)
@given(st.integers(2, 5), st.integers(1, 4), st.floats(0.0, 1.0), st.integers(0, 2**32 - 1))
def test_the_bound_of_integrals_is_one(S, d1, size, seed):
    """ψ = (P, Q_2, ..., Q_d1) with Q that sum to anything: θ = e_1 is valid whatever they are."""
    rng = np.random.default_rng(seed)
    psi = size * rng.standard_normal((S, 1, S, d1))
    psi[..., 0] = rng.dirichlet(np.ones(S), (S, 1))
    theta = np.eye(d1)[:1][None]
    worst, limit = largest_integral(psi.reshape(S, S, d1)), np.sqrt(d1)

    def build():
        ones = np.full((1, 1, S), 0.5)
        return LinearKernelCMDP(psi, "one-hot", theta, ones, ones[None], [[1.0]], np.eye(S)[0])

    if worst <= limit * (1 - 1e-9):
        bound = build().bound
        assert worst <= bound * (1 + 1e-12)
        assert 1 / limit <= bound <= limit
    elif worst > d1 * (1 + 1e-8):  # the search overlooks no more than a factor of √d1
        assert_refused("the norm of the integral of psi*V over x' must be at most", build)


@pytest.mark.parametrize(
    ("column", "norm"), [([10.0, -10.0], "10.01"), ([1.8, -1.0], "1.868"), ([-1.8, 1.0], "1.868")]
)
def test_an_integral_that_only_some_value_function_makes_long_is_found(column, norm):
    """V = 1 in one of the two states is worse than V = 1 in both."""
    psi = np.stack([[0.5, 0.5], column], axis=-1)
    half = np.full((1, 1, 2), 0.5)
    with pytest.raises(ValueError, match=rf"integral of psi\*V .* got {norm}.* at index \(0, 0\)"):
        LinearKernelCMDP(
            np.tile(psi, (2, 1, 1, 1)), "one-hot", [[[1, 0]]], half, half[None], [[1]], [1, 0]
        )


def test_the_bound_of_densities_is_exact():
    world = LinearKernelCMDP(**finite())
    assert world.bound == pytest.approx(largest_integral(finite()["psi"].reshape(-1, S, D1)))


# ---------------------------------------------------------------- draws among finitely many states


def drawn(linear, m, h, s, a, u):
    return stepper_for(linear).next(m, h, s, a, np.array([u], float))


@settings(max_examples=25)
@given(drifting_worlds(), st.booleans(), st.integers(0, 2**32 - 1))
def test_successors_are_drawn_by_their_probabilities(world, signed, seed):
    rng = np.random.default_rng(seed)
    parts = by_hand(world)
    if signed:
        T = rotation(rng, parts["psi"].shape[-1])
        parts = turned(parts, T, np.eye(parts["phi"].shape[-1]))
    linear = LinearKernelCMDP(**parts)
    for _ in range(6):
        m, h, s, a = (int(rng.integers(n)) for n in (world.M, world.H, world.S, world.A))
        p = world.at(m).dense_transitions()[h, s, a]
        edges = np.cumsum(p)
        ends = (1e-9, 1 - 1e-9) if signed else (0.0, 1 - 2**-53)
        for u in (*ends, *rng.random(10)):
            found = drawn(linear, m, h, s, a, u)
            assert p[found] > 1e-13  # never where it cannot go
            if np.abs(edges - u).min() > 1e-12:  # and where inverting the sums says
                assert found == min(int(np.searchsorted(edges, u, side="right")), p.size - 1)


def test_every_step_has_its_own_successors():
    world = DriftingCMDP(
        random_scenarios(np.random.default_rng(11), 2, 3, 4, 2), drift.linear(5, 2)
    )
    n = 2000
    for linear in (world.as_linear_kernel(), world.as_linear_kernel("tabular")):
        for m, h, s, a in ((0, 0, 3, 1), (2, 1, 1, 0), (4, 2, 0, 1)):
            states = [drawn(linear, m, h, s, a, (i + 0.5) / n) for i in range(n)]
            shares = np.bincount(states, minlength=4) / n
            wanted = world.at(m).dense_transitions()[h, s, a]
            np.testing.assert_allclose(shares, wanted, atol=1 / n + 1e-12)


def test_intervals_of_uniforms_contain_their_lower_end():
    psi = np.array([[0.25, 0.0, 0.25, 0.5, 0.0]]).repeat(5, axis=0)[:, None, :, None]
    half = np.full((1, 1, 5), 0.5)
    linear = LinearKernelCMDP(psi, "one-hot", [[[1]]], half, half[None], [[1]], np.eye(5)[0])
    found = [drawn(linear, 0, 0, 1, 0, u) for u in (0, 0.25 - 1e-16, 0.25, 0.5 - 1e-16, 0.5, 1.0)]
    assert found == [0, 0, 2, 2, 3, 3]
