"""The audit against its NumPy twin, against any chunking, and against bad input."""

import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
import safedrift as sd
from builders import (
    BUDGETS,
    IDENTITIES,
    LIVELY,
    SIGNALS,
    audited,
    box_world,
    broken_identities,
    build_linear,
    dense_features,
    linear_settings,
    periods,
    small_world,
    twin_transcript,
)
from safedrift.experiments.certification import certify, transcript
from safedrift.kernels.audit import memory as kernels
from safedrift.kernels.tabular.memory import BERNSTEIN_BONUS
from safedrift.learners.propd_ppo.parameters import MODES
from safedrift.oracles import optimal_policies
from safedrift.theory import Transcript
from safedrift.theory.audit import BUCKETS, Audit, Slacks
from safedrift.theory.certificates import Certificates, Place
from safedrift.theory.draw_statistics import FALSE_ALARM

KNOWLEDGE = ("slater", "local-budgets")
START = np.array([0.5, 0.0, 0.3, 0.2])


def build(world, knowledge="slater", mode="repaired", **overrides):
    """A learner by counts or by least squares, whichever the world asks for, with lively steps."""
    overrides = {"L": 13, "W": 17} | overrides
    if isinstance(world, sd.LinearKernelCMDP):
        return build_linear(world, knowledge, mode, **overrides)
    told = sd.Slater(0.4)
    if knowledge != "slater":
        told = sd.local_budgets(world, "l2" if mode == "printed" else "l1")
    return sd.PROPDPPO.for_problem(
        world, told, mode=mode, budgets=BUDGETS, rho=0.4, **(LIVELY | overrides)
    )


def world_of(kind, **options):
    world = small_world(**({"M": 40, "seed": 3} | options))
    if options.get("start") is not None:  # another start may be a worse one
        world = world.with_thresholds(0.6 * world.thresholds)
    if kind == "slow":  # a little drift in every episode
        weights = np.zeros((world.M, len(world.scenarios)))
        weights[:, 1] = 1e-3 * np.arange(world.M) / world.M
        weights[:, 0] = 1 - weights[:, 1]
        return sd.DriftingCMDP(world.scenarios, weights, thresholds=0 * world.thresholds + 0.1)
    if kind == "tabular":
        return world
    return world.as_linear_kernel("scenarios", "one-hot" if kind == "one-hot" else "scenarios")


def played(world, agent, seed=0, noisy=False):
    """Certificates and the whole transcript of a run."""
    parts = []
    found = certify(world, agent, seed, noisy=noisy, witness=lambda part, *_: parts.append(part))
    scripts = [transcript(part) for part in parts]
    return found, Transcript(*(np.concatenate(arrays) for arrays in zip(*scripts, strict=True)))


# ---------------------------------------------------------------- identities

# dual_signal, K, noise, random first state
VARIANTS = [("optimistic", 1, False, False), ("plain", 2, True, True), ("observed", 2, False, True)]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v[0])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("knowledge", KNOWLEDGE)
@pytest.mark.parametrize("kind", ["tabular", "linear"])
def test_identities_hold_in_every_setting(kind, knowledge, mode, variant):
    dual_signal, K, noisy, random_start = variant
    world = world_of(kind, K=K, drift="linear" if noisy else "abrupt",
                     start=START if random_start else None)  # fmt: skip
    found = certify(world, build(world, knowledge, mode, dual_signal=dual_signal), 5, noisy=noisy)
    for id in IDENTITIES:
        assert found[id].result == "holds"
        assert found[id].printed.slack <= 1e-12
    assert found.identities_hold
    for id in ("one-step-descent", "primal-step", "visitation", "elliptical-potential"):
        assert found[id].repaired.holds
    for id in ("primal-blocks", "comparator-drift", "regret-chain", "primal-violation",
               "dual-regret", "dual-violation"):  # fmt: skip
        assert found[id].repaired.holds, id
    assert found["projection"].printed.holds
    assert found["multiplier-bound"].printed.holds


# ---------------------------------------------------------------- the twin

COLUMNS = {
    "policy": kernels.POLICY, "dual": kernels.DUAL, "evaluation": kernels.EVALUATION,
    "performance": kernels.PERFORMANCE, "start": kernels.START,
    "descent": kernels.DESCENT, "primal": kernels.PRIMAL, "visitation": kernels.VISITATION,
    "prediction": kernels.PREDICTION, "optimism": kernels.OPTIMISM,
    "transitions": kernels.TRANSITIONS, "signals": kernels.SIGNALS, "ellipse": kernels.ELLIPTICAL,
    "projection": kernels.PROJECTION, "normalised": kernels.NORMALISED,
}  # fmt: skip

# The lemmas that say at what share of places they fail, and the twin's name for them.
SHARES = {
    "prediction-error": "prediction", "optimism": "optimism", "transition-bonus": "transitions",
    "signal-bonus": "signals", "self-normalised": "normalised",
}  # fmt: skip


def findings(world, agent, script, noisy=False):
    """What the compiled audit finds in each episode."""
    audit, kept = Audit(world, agent, noisy=noisy), []
    audit._keep = kept.append
    audit.add_episodes(script)
    return kept[0]


def naive_audit(world, agent, script):
    s = agent.hyperparameters
    cmdps = [world.at(m) for m in range(world.M)]
    worlds = [(c.dense_transitions(), np.concatenate([c.rewards[None], c.utilities]))
              for c in cmdps]  # fmt: skip
    changes = naive.variation([(P, c[0], c[1:], world.thresholds[m])
                               for m, (P, c) in enumerate(worlds)])  # fmt: skip
    drift = {f"c_{norm}": np.concatenate([changes[f"r_{norm}"][:, None], changes[f"g_{norm}"]], 1)
             for norm in ("l2", "l1")} | {n: changes[n] for n in ("P_l2", "P_l1")}  # fmt: skip
    names = ("alpha", "eta", "xi", "chi", "lagged", "lam", "LV")
    told = {name: getattr(s, name) for name in names} | periods(agent.forgetting)
    told |= {
        "dual_signal": SIGNALS[s.dual_signal],
        "local": isinstance(agent.knowledge, sd.LocalBudgets),
    }
    if agent.features is not None:
        psi, phi = dense_features(world)
        names = ("beta", "beta_r", "window_drift_P", "window_drift_g")
        told["features"] = {"psi": psi, "phi": phi} | {n: linear_settings(agent)[n] for n in names}
        signals = np.concatenate([world.theta_r[:, None], world.theta_g], axis=1)
        drift["P_l2"] = np.linalg.norm(differences(world.theta), axis=-1)
        drift["c_l2"] = np.linalg.norm(differences(signals), axis=-1)
    elif s.bonus == BERNSTEIN_BONUS:
        told["bonus"] = naive.bernstein_bonus(s.c, world.H, s.lam)
    elif s.shift > 0:
        told |= {"bonus": naive.printed_bonus(s.root[0] / 2, s.lam), "halved": True}
    else:
        told["bonus"] = naive.repaired_bonus(s.root, s.tail, s.lam)
    _, policies, place = optimal_policies(world)
    return naive.audit(
        worlds=worlds, fresh=np.append(True, np.diff(world.distinct[1]) != 0),
        stars=policies[place], script=script, thresholds=world.thresholds, initial=world.initial,
        drift=drift, **told,
    )  # fmt: skip


def differences(theta):
    """θ^m - θ^{m-1}, zero in the first episode."""
    return np.diff(theta, axis=0, prepend=theta[:1])


# world, knowledge, mode, dual signal, K, noise, drift, W, factor on the bonus. With a small bonus
# and a short window both sides of every bound are within reach.
TWINS = [
    ("tabular", "slater", "repaired", "optimistic", 1, False, "abrupt", 9, 0.05),
    ("tabular", "slater", "practical", "plain", 2, True, "linear", 9, 1.0),
    ("tabular", "local-budgets", "printed", "observed", 2, False, "random_walk", 9, 0.05),
    ("tabular", "local-budgets", "printed", "optimistic", 2, False, "linear", 2, 1e-3),
    ("tabular", "local-budgets", "repaired", "plain", 2, True, "linear", 2, 1e-3),
    ("slow", "local-budgets", "printed", "optimistic", 1, False, "abrupt", 9, 1e-3),
    ("linear", "slater", "printed", "optimistic", 2, False, "linear", 9, 0.05),
    ("linear", "slater", "practical", "plain", 1, True, "abrupt", 9, 0.05),
    ("one-hot", "local-budgets", "repaired", "observed", 2, True, "random_walk", 9, 0.05),
    ("linear", "local-budgets", "repaired", "plain", 2, False, "linear", 2, 1e-3),
    ("linear", "local-budgets", "printed", "optimistic", 1, False, "abrupt", 9, 0.05),
]


@pytest.mark.parametrize("shape", ["played", "random", "huge"])
@pytest.mark.parametrize("case", TWINS, ids=lambda case: "-".join(map(str, case)))
def test_audit_agrees_with_its_twin(case, shape):
    """Every column, every term, in every episode; also on transcripts that no learner made."""
    kind, knowledge, mode, dual_signal, K, noisy, drift, W, scale = case
    world = world_of(kind, M=24, K=K, drift=drift, start=START if noisy else None)
    agent = build(world, knowledge, mode, dual_signal=dual_signal, L=7, W=W, bonus_scale=scale)
    if shape == "played":
        script = played(world, agent, 1, noisy)[1]
    else:
        price = 1.0 if shape == "random" else 1e5
        script = random_script(np.random.default_rng(0), world, agent, price)
    expected = naive_audit(world, agent, script)
    out = findings(world, agent, script)
    for name, column in COLUMNS.items():
        want = expected[name]
        got = out.worst[:, column] if want.ndim == 1 else out.worst[:, column : column + 2]
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9, err_msg=name)
        if f"{name} count" in expected:
            got = out.broken[:, column] if want.ndim == 1 else out.broken[:, column : column + 2]
            np.testing.assert_array_equal(got, expected[f"{name} count"][..., 0], err_msg=name)
    np.testing.assert_allclose(out.terms, expected["terms"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(out.dual_signal, expected["fed"], rtol=0, atol=1e-9)
    if shape != "huge":  # true of any numbers with V = <Q, pi>: no certificate
        assert expected["expansion"].max() < 1e-12
    np.testing.assert_allclose(out.star_change, expected["star_change"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", ["played", "random"])
@pytest.mark.parametrize("case", TWINS, ids=lambda case: "-".join(map(str, case)))
def test_tests_of_the_draws_agree_with_their_twin(case, shape):
    """Also on transcripts that no learner made, whose draws do not fit at all."""
    kind, knowledge, mode, dual_signal, K, noisy, drift, W, scale = case
    world = world_of(kind, M=24, K=K, drift=drift, start=START if noisy else None, successors=3)
    agent = build(world, knowledge, mode, dual_signal=dual_signal, L=7, W=W, bonus_scale=scale)
    if shape == "played":
        script = played(world, agent, 1, noisy)[1]
    else:
        rng = np.random.default_rng(0)
        script = random_script(rng, world, agent)
        script.policies[3, 1, :, 0], script.policies[3, 1, :, 1:] = 0.0, 1 / (world.A - 1)
        if noisy:
            script.values[:] = script.values > 0.5
            script.values[5, 0, 1] = 0.25
    audit = Audit(world, agent, noisy=noisy)
    kept = []
    audit._keep = kept.append
    audit.add_episodes(script)
    cmdps = [world.at(m) for m in range(world.M)]
    worlds = [(c.dense_transitions(), np.concatenate([c.rewards[None], c.utilities]))
              for c in cmdps]  # fmt: skip
    expected = naive.draws(worlds, script, world.initial, noisy)
    out = kept[0]
    np.testing.assert_array_equal(out.worst[:, kernels.POSSIBLE], expected["possible"])
    assert expected["possible"].any() == (shape == "random")
    np.testing.assert_allclose(
        out.worst[:, kernels.OBSERVATIONS], expected["observations"], rtol=0, atol=1e-12
    )
    assert (expected["observations"].max() > 1e-9) == (shape == "random")
    evidence = expected["evidence"]
    np.testing.assert_allclose(out.evidence, evidence[:, :3], rtol=1e-9, atol=1e-9)
    for i, name in enumerate(("actions", "successors", "signals", "returns")):
        slack = np.log(1 / FALSE_ALARM) - evidence[:, i]
        assert audit.others[name].smallest == pytest.approx(slack.min(), abs=1e-9), name


@pytest.mark.parametrize("lagged", [False, True])
@pytest.mark.parametrize("case", TWINS, ids=lambda case: "-".join(map(str, case)))
def test_both_sides_of_the_lemmas_on_runs_agree_with_the_twin(case, lagged):
    kind, knowledge, mode, dual_signal, K, noisy, drift, W, scale = case
    world = world_of(kind, M=24, K=K, drift=drift, start=START if noisy else None)
    chosen = {"dual_signal": dual_signal, "lagged": lagged, "xi": 0.3}
    agent = build(world, knowledge, mode, L=7, W=W, bonus_scale=scale, **chosen)
    found, script = played(world, agent, 1, noisy)
    twin = naive_audit(world, agent, script)
    for id, name in SHARES.items():
        broken, places = twin[f"{name} count"].sum(axis=0).T
        forms = (
            [found[id].printed] if name == "normalised" else [found[id].printed, found[id].repaired]
        )
        shares = [0.0 if form is None else form.share for form in forms]
        np.testing.assert_allclose(shares, broken / np.maximum(places, 1), rtol=1e-12, err_msg=id)
    optima = optimal_policies(world)[0]
    names = ("alpha", "eta", "xi", "chi", "lagged")
    sides = naive.audit_sums(
        twin, mu=script.mu, b=world.thresholds, optimum=optima.value,
        multipliers=optima.multipliers, B_P=sd.oracles.variation(world, "l2").P.sum(),
        B_P_l1=sd.oracles.variation(world, "l1").P.sum(), A=world.A,
        norm=1.0 if agent.features is None else np.sqrt(world.d1),
        told={name: getattr(agent.hyperparameters, name) for name in names}
        | {"L": agent.forgetting.L},
    )  # fmt: skip
    bound = world.H / optima.gamma - optima.multipliers.sum(axis=1)
    assert found["multiplier-bound"].printed.slack == pytest.approx(bound.min())
    assert found["multiplier-bound"].printed.place == (bound.argmin(), None, None, None)
    assert ("slater-run" in sides) == (found["slater-run"].result != "does not apply")
    for id, (left, printed, repaired) in sides.items():
        item = found[id.removesuffix(" repaired")]
        for form, right in ((item.printed, printed), (item.repaired, repaired)):
            if right is not None:
                assert form.slack == pytest.approx(right - left, rel=1e-9, abs=1e-8), id
                assert form.left is None or form.left == pytest.approx(left, rel=1e-9, abs=1e-8)


def random_script(rng, world, agent, price=1.0):
    """Random policies, estimates and multipliers, with V = ⟨Q, π⟩."""
    M, H, S, A, K = agent.sizes
    C = agent.memory.values.v_start.size
    policies = rng.dirichlet(np.full(A, 0.7), (M, H, S))
    q = rng.random((M, C, H, S, A)) * np.arange(H, 0, -1)[:, None, None]
    V = (policies[:, None] * q).sum(axis=-1)
    return Transcript(
        policies, q, V[:, :, 0] @ world.initial, price * rng.exponential(1.0, (M, K)),
        rng.integers(S, size=(M, H)), rng.integers(A, size=(M, H)), rng.random((M, 1 + K, H)),
    )  # fmt: skip


def mirrored(script, world, agent):
    """The same with policies that are mirror steps along its estimates."""
    s, K = agent.hyperparameters, world.K
    log_pi = np.zeros(script.policies.shape[1:])
    for m in range(len(script.mu)):
        log_pi = naive.improved(
            np.zeros_like(log_pi) if m % agent.forgetting.L == 0 else log_pi, 0.0
        )
        script.policies[m] = np.exp(log_pi)
        Q = script.q[m, 0] + np.tensordot(script.mu[m], script.q[m, 1 : 1 + K], axes=1)
        log_pi = log_pi + s.alpha * Q
    V = (script.policies[:, None] * script.q).sum(axis=-1)
    return script._replace(v_start=V[:, :, 0] @ world.initial)


# ---------------------------------------------------------------- the same run, the same words


@pytest.mark.parametrize("drift", ["random_walk", "abrupt"])
@pytest.mark.parametrize("kind", ["tabular", "linear"])
def test_pieces_of_any_size_give_the_same_certificates(kind, drift):
    world = world_of(kind, M=40, K=2, drift=drift)
    agent = build(world, "local-budgets", "printed", L=11, W=9, dual_signal="plain")
    found, script = played(world, agent)
    whole = audited(world, agent, script).record()
    assert whole == found.record()
    for pieces in ([1] * 40, [7, 1, 13, 19], [39, 1], [11, 11, 11, 7]):
        in_pieces = audited(world, agent, script, pieces=pieces).record()
        for one, other in zip(in_pieces["certificates"], whole["certificates"], strict=True):
            if one["kind"] == "identity":  # where the largest residual is, is up to rounding
                assert one["result"] == other["result"] == "holds"
                assert max(one["printed"]["slack"], other["printed"]["slack"]) < 1e-14
            else:
                assert close(one, other), one["id"]


def close(one, other):
    """Whether two records agree; sums may be added in another order, and zeros in other places."""
    if isinstance(one, dict):
        if "place" in one and max(abs(float(form["slack"])) for form in (one, other)) < 1e-14:
            one, other = one | {"place": []}, other | {"place": []}
        return one.keys() == other.keys() and all(close(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(close, one, other))
    if isinstance(one, float):
        return one == pytest.approx(other, rel=1e-11, abs=1e-11)
    return one == other


@pytest.mark.parametrize("kind", ["tabular", "linear"])
@pytest.mark.parametrize("mode", MODES)
def test_record_round_trip(kind, mode):
    world = world_of(kind, K=2)
    found = certify(world, build(world, "local-budgets", mode))
    text = json.dumps(found.record(), allow_nan=False)
    again = Certificates.from_record(json.loads(text))
    assert again == found
    assert again.record() == found.record()
    assert str(again) == str(found)
    assert [item.id for item in again] == [item["id"] for item in found.record()["certificates"]]
    assert len({item.id for item in found}) == len(found) == 37


def test_infinities_survive_the_round_trip():
    """alpha = 0: the mirror steps are free and their bound is infinite."""
    world = world_of("tabular")
    found = certify(world, build(world, alpha=0.0))
    assert found["primal-blocks"].printed.right == np.inf
    assert (
        Certificates.from_record(json.loads(json.dumps(found.record(), allow_nan=False))) == found
    )


def test_certificates_depend_on_nothing_but_world_learner_and_seed():
    world = world_of("tabular", K=2)
    agent = build(world, dual_signal="plain")
    found = certify(world, agent, 7)
    run = sd.simulate(world, agent, seed=7)
    agent.begin_episode(world.thresholds[0])  # a learner that has begun is started afresh
    assert certify(world, agent, 7) == found
    calls = []
    assert certify(world, agent, 7, progress=lambda *call: calls.append(call)) == found
    assert calls[-1] == ("certifying", world.M, world.M)
    assert certify(world, agent, 8) != found
    measured = sd.simulate(world, agent, seed=7, measure_every=10)
    np.testing.assert_array_equal(
        measured.trace["mu"], run.trace["mu"][::10][: len(measured.trace["mu"])]
    )
    assert certify(world, agent, 7) == found
    # The numbers on which the certificates are built are those of the run.
    script = played(world, agent, 7)[1]
    np.testing.assert_array_equal(script.mu, run.trace["mu"])
    left = found["regret-decomposition"].printed.left
    assert left == pytest.approx(run.regret.sum(), abs=1e-9)


# ---------------------------------------------------------------- slacks and places


def test_slacks_by_hand():
    kept = Slacks(10)
    assert (kept.width, kept.buckets.size, kept.quantiles()) == (1, 10, None)
    kept.add(0, np.array([3.0, 1.0, 2.0]), broken=1)
    kept.add(3, np.zeros(0))
    kept.add(3, np.array([5.0, 1.0]), lambda i: Place(3 + i, 1, 2, 0), broken=2)
    assert (kept.smallest, kept.place, kept.broken) == (1.0, Place(1), 3)  # the first of equals
    assert kept.quantiles() == (1.0, 1.0, 2.0, 3.0, 5.0)
    kept.add(5, np.array([0.5, np.nan]), lambda i: Place(5 + i, 1, 2, 0))
    assert (kept.smallest, kept.place) == (-np.inf, Place(6, 1, 2, 0))  # a nan is the worst


def test_slacks_of_a_long_run_are_kept_in_buckets():
    M = 2 * BUCKETS + 1
    kept = Slacks(M)
    assert (kept.width, kept.buckets.size) == (3, -(-M // 3))
    kept.add(0, np.arange(M, dtype=float)[:5])
    kept.add(5, np.arange(M, dtype=float)[5:])
    np.testing.assert_array_equal(kept.buckets, np.arange(0, M, 3))
    assert Slacks(BUCKETS).buckets.size == BUCKETS
    assert Slacks(BUCKETS + 1).width == 2


def planted(kind, part, index, value):
    """A run's transcript with one number changed."""
    world = world_of(kind, M=40)
    agent = build(world, L=40, W=40)
    _, script = played(world, agent)
    arrays = {name: array.copy() for name, array in script._asdict().items()}
    arrays[part][index] += value
    return audited(world, agent, Transcript(**arrays))


@pytest.mark.parametrize("kind", ["tabular", "linear"])
def test_a_planted_error_is_found_in_its_place(kind):
    """One estimate off by a little, in episode 23, step 1, state 2, action 0, of the utility."""
    m, h, x, a = 23, 1, 2, 0
    found = planted(kind, "q", (m, 1, h, x, a), -1e-3)["evaluation"]
    assert found.result == "fails"
    assert found.printed.place == (m, h, x, a)
    assert found.printed.slack == pytest.approx(1e-3 / 2)  # relative to H-h+1 = 2
    assert list(found.printed.quantiles) == sorted(found.printed.quantiles)
    assert found.printed.quantiles[-1] == found.printed.slack > 1e6 * found.printed.quantiles[0]
    found = planted(kind, "policies", (m, h, x, a), 1e-3)["policy-step"]
    assert found.result == "fails"
    assert found.printed.place == (m, h, x, a)
    assert found.printed.slack == pytest.approx(1e-3)
    found = planted(kind, "mu", (m, 0), 0.25)
    assert found["dual-step"].result == "fails"
    assert found["dual-step"].printed.place.m in (m, m + 1)
    assert found["dual-step"].printed.place[1:] == (None, None, None)
    found = planted(kind, "v_start", (m, 1), 0.3)
    assert found["performance-difference"].printed.place.m == m
    assert found["performance-difference"].printed.slack == pytest.approx(0.1)  # relative to H
    assert found["start-value"].printed.slack == pytest.approx(0.1)
    assert found["start-value"].printed.place.m == m


@pytest.mark.parametrize("what", ["action", "first state", "successor"])
@pytest.mark.parametrize("kind", ["tabular", "linear"])
def test_an_impossible_draw_is_found_in_its_place(kind, what):
    world = world_of(kind, M=40, start=START, successors=2)
    agent = build(world, L=40, W=40)
    found, script = played(world, agent)
    assert found["possible-path"].result == "holds"
    m, h = 23, 1
    x, a = script.states[m, h], script.actions[m, h]
    if what == "action":
        script.policies[m, h, x, a] = 0.0
        script.policies[m, h, x] /= script.policies[m, h, x].sum()
    elif what == "first state":
        h, x, a = 0, 1, 0
        script.states[m, 0] = x  # START is 0 there
    else:
        P = world.at(m).dense_transitions()
        script.states[m, h + 1] = P[h, x, a].argmin()
        assert P[h, x, a].min() == 0
    found = audited(world, agent, script)["possible-path"]
    assert found.result == "fails"
    assert found.printed.slack == 1
    if what != "first state":  # that also leads where its successor does not come from
        assert found.printed.place == (m, h, x, a)
    assert found.printed.place.m == m


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("kind", ["tabular", "linear"])
def test_a_wrong_observation_is_found_in_its_place(kind, noisy):
    world = world_of(kind, M=40, K=2)
    agent = build(world)
    _, script = played(world, agent, noisy=noisy)
    m, h = 23, 1
    script.values[m, 2, h] += 1e-6
    found = audited(world, agent, script, noisy=noisy)["observations"]
    assert found.result == "fails"
    assert found.printed.slack == pytest.approx(1.0 if noisy else 1e-6)
    assert found.printed.place == (m, h, script.states[m, h], script.actions[m, h])


def still_world(M):
    """A world without drift."""
    world = small_world(M=M, seed=3)
    weights = np.zeros(M, int)
    return sd.DriftingCMDP(world.scenarios[:1], weights, thresholds=np.full((M, 1), 0.5))


def test_a_planted_optimism_is_found_in_its_place():
    """With the valid bonus ι_g ≤ 0; one estimate is set to 0 where the truth is positive."""
    world = still_world(40)
    agent = build(world, bonus_scale=1.0, L=40, W=40)
    found, script = played(world, agent)
    assert found["optimism"].result == "holds"
    m, h, x, a = 31, 0, 3, 2
    script.q[m, 1, h, x, a] = 0.0
    V = (script.policies[m] * script.q[m, 1]).sum(axis=-1)
    script.v_start[m, 1] = V[0] @ world.initial
    cmdp = world.at(m)
    iota = cmdp.utilities[0, h, x, a] + cmdp.dense_transitions()[h, x, a] @ V[h + 1]
    for pieces in ([40], [20, 20], [32, 8]):
        found = audited(world, agent, script, pieces=pieces)
        for id in ("optimism", "prediction-error"):
            assert found[id].result == "fails"
            for form in (found[id].printed, found[id].repaired):
                assert form.place == (m, h, x, a)
                assert form.slack == pytest.approx(-iota)
        assert found["optimism"].printed.share == pytest.approx(1 / script.q[:, 1].size)
        assert found["prediction-error"].printed.share == pytest.approx(1 / script.q.size)
        assert found["transition-bonus"].result == found["signal-bonus"].result == "holds"


def test_the_tightest_place_is_given_where_a_statement_holds():
    """The place of a positive slack, by hand: bonus less |P̂V - PV|, everywhere."""
    world = still_world(40)
    agent = build(world, bonus_scale=1.0, L=40, W=40)
    found, script = played(world, agent)
    s, cmdp = agent.hyperparameters, world.at(0)
    P, sizes = cmdp.dense_transitions(), (world.H, world.S, world.A, 1)
    bonus = naive.repaired_bonus(s.root, s.tail, s.lam)
    inside = {"P_l1": np.zeros(world.H), "c_l1": np.zeros((2, world.H))}
    past, best = [], (np.inf, None)
    for m in range(world.M):
        V = (script.policies[m] * script.q[m]).sum(axis=-1)
        V = np.concatenate([V, np.zeros((2, 1, world.S))], axis=1)
        parts = naive.counted_parts(past, V, s.lam, bonus, False, inside, sizes)
        for c in range(2):
            for h in range(world.H - 1):
                slack = parts["bonus"][c, h] - abs(parts["ahead"][c, h] - P[h] @ V[c, h + 1])
                x, a = np.unravel_index(slack.argmin(), slack.shape)
                if slack[x, a] < best[0] - 1e-12:
                    best = slack[x, a], (m, h, x, a)
        pairs = list(zip(range(world.H), script.states[m], script.actions[m], strict=True))
        past.append({"pairs": pairs, "signals": script.values[m], "states": script.states[m]})
    assert best[0] > 0.1
    assert found["transition-bonus"].repaired.slack == pytest.approx(best[0])
    assert found["transition-bonus"].repaired.place == best[1]


def test_shares_count_the_places_that_fail():
    """Estimates of the utility are all 0 in one episode: ι_g > 0 at every pair of it."""
    world = still_world(20)
    agent = build(world, bonus_scale=1.0, L=20, W=20)
    found, script = played(world, agent)
    assert found["optimism"].printed.share == 0
    script.q[7, 1] = 0
    script.v_start[7, 1] = 0
    found = audited(world, agent, script)
    assert found["optimism"].printed.share == pytest.approx(1 / 20)
    assert found["prediction-error"].repaired.share == pytest.approx(0.5 / 20)


@pytest.mark.parametrize("off", [2e-4, 2e-7])
def test_a_small_failure_of_the_slater_lemma_is_a_failure(off):
    """One state, r = (1, 0), g = (0, 1), b = 1/2, so V* = 1/2 and mu* = 1; C = chi = 4.

    With pi = (1/2 - x, 1/2 + x): short = -x, delta = -3x. The printed 2 delta/C >= short is
    -x/2 >= 0 off by x/2; repaired, delta = (C - mu*) short with equality.
    """
    cmdp = sd.TabularCMDP(np.ones((1, 1, 2, 1)), np.array([[[1.0, 0.0]]]),
                          np.array([[[[0.0, 1.0]]]]), [0.5], [1.0])  # fmt: skip
    world = sd.DriftingCMDP([cmdp], np.zeros(3, dtype=int))
    agent = build(world, chi=4.0)
    policies = np.full((3, 1, 1, 2), 0.5) + off * np.array([-1.0, 1.0])
    script = Transcript(
        policies, np.zeros((3, 2, 1, 1, 2)), np.zeros((3, 2)), np.zeros((3, 1)),
        np.zeros((3, 1), int), np.zeros((3, 1), int), np.zeros((3, 2, 1)),
    )  # fmt: skip
    found = audited(world, agent, script)["slater-episode"]
    assert found.result == "fails as printed, holds as repaired"
    assert found.printed.slack == pytest.approx(-off / 2)
    assert found.repaired.slack == pytest.approx(0, abs=1e-12)


# ---------------------------------------------------------------- what does not apply


def test_statements_that_do_not_apply_say_why():
    world = world_of("tabular")
    found = certify(world, build(world, eta=0.0, chi=1e-6))
    for id in ("dual-regret", "dual-violation"):
        assert found[id].result == "does not apply"
        assert "eta is 0" in found[id].note
    assert "regresses nothing" in found["self-normalised"].note
    assert "twice the largest mu*" in found["slater-run"].note
    assert "local budgets" in found["prediction-sum-g"].note
    found = certify(world, build(world, "local-budgets"))
    assert "chi is infinite" in found["slater-episode"].note
    assert found["prediction-sum-g"].result != "does not apply"
    found = certify(world, build(world, mode="practical"))
    assert "no constant" in found["regret-bound"].note
    assert found["regret-bound"].result == "not claimed in this mode"
    assert found["self-normalised"].result == "does not apply"
    still = still_world(9)
    found = certify(still, build(still))
    assert found["visitation"].result == "does not apply"
    assert "never changes" in found["visitation"].note


def test_what_a_mode_gives_up_is_not_called_a_failure():
    world = world_of("tabular", M=60)
    small = {"bonus_scale": 0.01}
    for mode, result in (("practical", "not claimed in this mode"), ("repaired", "fails")):
        found = certify(world, build(world, mode=mode, **small))
        assert not found["optimism"].printed.holds
        assert found["optimism"].result == result
        assert ("optimism" in found.failed) == (mode == "repaired")
        again = Certificates.from_record(found.record())
        assert [item.result for item in again] == [item.result for item in found]


@pytest.mark.parametrize("kind", ["tabular", "linear"])
@pytest.mark.parametrize("knowledge", KNOWLEDGE)
@pytest.mark.parametrize("mode", MODES)
def test_every_statement_that_does_not_apply_has_a_note(kind, knowledge, mode):
    for H in (1, 3):
        world = world_of(kind, H=H, M=12)
        found = certify(world, build(world, knowledge, mode))
        assert found.identities_hold
        for item in found:
            nothing = ("does not apply", "not claimed in this mode")[: 1 + (mode == "practical")]
            assert item.printed is not None or item.result in nothing
            assert item.printed is None or item.result != "does not apply"
            if item.printed is None:
                assert item.note, item.id
                assert item.repaired is None


# ---------------------------------------------------------------- bad input


def test_worlds_on_a_box_are_refused():
    world = box_world(M=4)
    agent = sd.PROPDPPO.for_problem(world, sd.Slater(0.4))
    with pytest.raises(ValueError, match="finitely many states to be certified; got one on a box"):
        certify(world, agent)


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_p_is_a_probability(p):
    world = world_of("tabular", M=4)
    with pytest.raises(ValueError, match="p must be"):
        certify(world, build(world), p=p)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("policies", np.nan, "script.policies must be finite; got nan at index (3, 0, 1, 1)"),
        ("q", np.inf, "script.q must be finite; got inf at index (3, 0, 1, 1, 0)"),
        ("states", 4, "script.states must be in [0, 4); got 4 at index (3, 0)"),
        ("actions", -1, "script.actions must be in [0, 3); got -1 at index (3, 0)"),
    ],
)
def test_numbers_out_of_range_in_a_transcript_are_refused(name, value, message):
    world = small_world(M=6)
    agent = sd.PROPDPPO.for_problem(world, sd.Slater(0.4))
    script = twin_transcript(world, agent)
    values = np.array(getattr(script, name))
    values[(3, 0, 1, 1, 0)[: values.ndim]] = value
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        Audit(world, agent).add_episodes(script._replace(**{name: values}))


@pytest.mark.parametrize("name", Transcript._fields)
def test_arrays_of_another_shape_are_refused(name):
    world = small_world(M=6)
    agent = sd.PROPDPPO.for_problem(world, sd.Slater(0.4))
    script = twin_transcript(world, agent)
    shorter = np.array(getattr(script, name))[:, :-1]
    with pytest.raises(ValueError, match=rf"^script\.{name} must be .*of shape"):
        Audit(world, agent).add_episodes(script._replace(**{name: shorter}))


def test_no_bonus_at_all_has_no_constants():
    world = small_world(M=6)
    agent = sd.PROPDPPO.for_problem(
        world, sd.Slater(0.4), mode="repaired", budgets=BUDGETS, bonus_scale=0.0
    )
    found = sd.certify(world, agent)
    assert found.identities_hold
    assert found["regret-bound"].result == "does not apply"


def test_audits_want_all_episodes_and_no_more():
    world = world_of("tabular", M=12)
    agent = build(world)
    _, script = played(world, agent)
    with pytest.raises(ValueError, match="must see all M = 12 episodes; got 5"):
        audited(world, agent, script, pieces=[5])
    audit = Audit(world, agent)
    audit.add_episodes(script)
    with pytest.raises(ValueError, match="episodes must be at most M = 12; got 24"):
        audit.add_episodes(script)


def test_infeasible_worlds_are_refused():
    world = world_of("tabular", M=12)
    high = world.thresholds.copy()
    high[7] = world.H
    world = world.with_thresholds(high)
    with pytest.raises(ValueError, match="feasible in every episode; got no safe policy in epis"):
        certify(world, build(world))


def test_certify_checks_what_it_is_given():
    world = world_of("tabular", M=12)
    agent = build(world)
    with pytest.raises(TypeError, match="world"):
        certify("maze", agent)
    with pytest.raises(TypeError, match="learner"):
        certify(world, "propd-ppo")
    with pytest.raises(TypeError, match="noisy"):
        certify(world, agent, noisy=1)
    with pytest.raises(ValueError, match="seed"):
        certify(world, agent, -1)
    with pytest.raises(ValueError, match="M"):
        certify(world_of("tabular", M=13), agent)
    with pytest.raises(KeyError, match=r"no certificate 'lemma 3'; there are policy-step"):
        certify(world, agent)["lemma 3"]


# ---------------------------------------------------------------- any transcript at all

ALWAYS = (  # whatever policies, estimates in range and multipliers
    "one-step-descent", "primal-step", "visitation", "slater-episode", "slater-run",
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.tuples(*(st.integers(*ends) for ends in ((1, 12), (1, 4), (2, 4), (2, 3), (1, 2)))),
    drift=st.sampled_from(["abrupt", "linear", "random_walk"]),
    alpha=st.sampled_from([1e-4, 0.1, 1.0, 5.0]),
    price=st.sampled_from([0.0, 1.0, 30.0]),
    seed=st.integers(0, 2**16),
)
def test_expansions_and_repaired_lemmas_hold_for_any_transcript(sizes, drift, alpha, price, seed):
    M, H, S, A, K = sizes
    world = small_world(M=M, H=H, S=S, A=A, K=K, drift=drift, seed=seed)
    agent = sd.PROPDPPO.for_problem(  # gamma of small_world is 0.01: chi covers every mu*
        world, sd.Slater(0.01), mode="repaired", budgets=BUDGETS, alpha=alpha, L=5, W=4
    )
    script = mirrored(random_script(np.random.default_rng(seed), world, agent, price), world, agent)
    found = audited(world, agent, script)
    expansions = {"performance-difference", "start-value", "regret-decomposition"}
    assert not broken_identities(found) & (expansions | {"policy-step"})
    for id in ALWAYS:
        assert found[id].repaired is None or found[id].repaired.holds, id
    assert found["slater-run"].repaired is not None
    assert found["multiplier-bound"].printed.holds
    # V^m that is not the mean of Q^m under π^m is noticed.
    script.v_start[M // 2] += 1e-3
    broken = broken_identities(audited(world, agent, script)) & expansions
    assert {"performance-difference", "start-value"} <= broken


@pytest.mark.parametrize("kind", ["tabular", "linear"])
def test_estimates_above_their_cap_break_the_one_step_descent(kind):
    """The lemma needs Q ≤ H-h+1; the check is not vacuous."""
    world = world_of(kind, A=2)
    agent = build(world, alpha=1e-3)
    script = random_script(np.random.default_rng(0), world, agent, 0.0)
    script.q[..., 0], script.q[..., 1] = 0.0, 4.0
    found = audited(world, agent, mirrored(script, world, agent))
    assert not found["one-step-descent"].repaired.holds
    assert not found["primal-step"].repaired.holds


@pytest.mark.parametrize("pieces", [[40], [20, 20], [24, 16]])
@pytest.mark.parametrize("kind", ["tabular", "linear"])
def test_the_one_step_descent_is_that_of_the_recorded_policies(kind, pieces):
    """One policy of a run is replaced by the uniform one: the steps to it and from it lose more."""
    world = world_of(kind)
    agent = build(world, L=40, W=40, alpha=0.05)
    _, script = played(world, agent)
    found = audited(world, agent, script, pieces=pieces)
    assert found["one-step-descent"].result == "holds"
    script.policies[24] = 1 / world.A
    found = audited(world, agent, script, pieces=pieces)
    assert found["one-step-descent"].result == found["primal-step"].result == "fails"
    assert found["one-step-descent"].repaired.place.m in (24, 25)  # the episode that was led to


def test_a_run_without_mirror_steps_says_so():
    world = world_of("tabular", M=6)
    found = certify(world, build(world, L=1))
    for id in ("one-step-descent", "primal-step"):
        assert found[id].result == "does not apply"
        assert "no mirror step" in found[id].note
