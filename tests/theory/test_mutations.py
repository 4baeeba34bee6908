"""Learners that are broken on purpose, each caught by a certificate that says what is broken.

A mutant is the NumPy twin with one thought changed in its source. Its transcript is audited with
the constants the twin was given, so nothing but the changed line can be found.
"""

import inspect
import types

import numpy as np
import pytest

import naive
import safedrift as sd
from builders import (
    BUDGETS,
    IDENTITIES,
    LIVELY,
    STATISTICS,
    audited,
    broken_identities,
    build_linear,
    failed_statistics,
    linear_world,
    small_world,
    twin_transcript,
)
from safedrift.theory.certificate_rules import RELATIVE
from safedrift.theory.draw_statistics import THRESHOLD


def mutant(name, *changes):
    """A copy of the module of twins in which function `name` is changed, (old, new) by (old, new).

    Every old text must occur exactly once.
    """
    source, function = inspect.getsource(naive), inspect.getsource(getattr(naive, name))
    changed = function
    for old, new in changes:
        assert changed.count(old) == 1, (old, changed.count(old))
        changed = changed.replace(old, new)
    assert source.count(function) == 1
    module = types.ModuleType("mutant")
    exec(compile(source.replace(function, changed), "<mutant>", "exec"), vars(module))
    return module


def tabular(knowledge="slater", mode="repaired", **overrides):
    """A world that drifts inside both kinds of block, and a learner in which everything moves."""
    world = small_world(M=60, S=4, A=3, H=3, K=2, drift="abrupt", seed=3)
    return world, learner(world, knowledge, mode, overrides)


def linear(knowledge="slater", mode="repaired", **overrides):
    world = linear_world("scenarios", "scenarios", M=40, K=2, drift="abrupt", seed=3)
    return world, build_linear(world, knowledge, mode, **({"L": 13, "W": 17} | overrides))


def learner(world, knowledge, mode, overrides):
    if knowledge == "slater":
        told = sd.Slater(0.4)
    else:
        told = sd.local_budgets(world, "l2" if mode == "printed" else "l1")
    chosen = LIVELY | {"L": 13, "W": 17} | overrides
    return sd.PROPDPPO.for_problem(world, told, mode=mode, budgets=BUDGETS, rho=0.4, **chosen)


# ---------------------------------------------------------------- Algorithms 1 and 3

# name: what is done to the twin, the identities that must break (and no others), the learner
STEP = "log_pi = log_pi + alpha * (Q_r + np.tensordot(mu, Q_g, axes=1))"
DUAL = "mu = np.clip(mu + eta * (b - V_fed - xi * mu), 0, chi)"
ENTERS = "for h in range(H):  # the episode enters the window"
EVALUATE = "Q_r, V_r = evaluate(n3, n2, sum_r, pi, lam, bonus, np.zeros(H))"
INDENT = "\n        "
TABULAR = {
    "dual step with the wrong sign": (
        "propd_ppo", [(DUAL, DUAL.replace("mu + eta", "mu - eta"))], {"dual-step"}, {},
    ),
    "dual step not clipped at 0": (
        "propd_ppo", [(DUAL, DUAL.replace("0, chi", "-np.inf, chi"))], {"dual-step"},
        {"bonus_scale": 1.0},
    ),
    "dual step not clipped at chi": (
        "propd_ppo", [(DUAL, DUAL.replace("0, chi", "0, np.inf"))], {"dual-step"},
        {"chi": 0.1, "dual_signal": "observed"},
    ),
    "dual step without its regularisation": (
        "propd_ppo", [(DUAL, DUAL.replace("xi * mu", "0 * mu"))], {"dual-step"},
        {"knowledge": "local-budgets", "dual_signal": "observed"},
    ),
    "dual step against the threshold of the wrong episode": (
        "propd_ppo", [("b_before if lagged else thresholds[m]", "thresholds[m]")], {"dual-step"},
        {"dual_signal": "observed"},
    ),
    "dual step fed with the episode before last": (
        "propd_ppo",
        [("V_fed = V_g.copy()", "V_fed, V_old = (V_old if m else V_g), V_g.copy()")],
        {"dual-step"}, {"xi": 0.5},
    ),
    "multipliers reset at a policy restart": (
        "propd_ppo",
        [("            log_pi = np.full((H, S, A), -np.log(A))",
          "            log_pi, mu = np.full((H, S, A), -np.log(A)), np.zeros(K)")],
        {"dual-step"}, {"dual_signal": "observed"},
    ),
    "current episode already in the data": (
        "propd_ppo",
        [(ENTERS, "for h in range(0):"),
         (EVALUATE, INDENT.join([
             "for h in range(H):", "    n2[h, states[h], actions[h]] += 1",
             "    sum_r[h, states[h], actions[h]] += rewards[h]",
             "    sum_g[:, h, states[h], actions[h]] += utilities[:, h]",
             "    if h + 1 < H:", "        n3[h, states[h], actions[h], states[h + 1]] += 1",
             EVALUATE]))],
        {"evaluation"}, {},
    ),
    "episode counted twice": (
        "propd_ppo", [("n2[h, x, a] += 1", "n2[h, x, a] += 2")], {"evaluation"}, {},
    ),
    "stale Q in the policy step": (
        "propd_ppo",
        [(STEP, INDENT.join([
            "stale = kept if m % L > 1 else (Q_r, Q_g)", "kept = Q_r, Q_g",
            STEP.replace("Q_r", "stale[0]").replace("Q_g", "stale[1]")]))],
        {"policy-step"}, {},
    ),
    "policy that climbs where it should pay": (
        "propd_ppo", [(STEP, STEP.replace("Q_r + np", "Q_r - np"))], {"policy-step"},
        {"dual_signal": "observed"},
    ),
    "policy that ignores the multipliers": (
        "propd_ppo", [(STEP, STEP.replace("tensordot(mu", "tensordot(0 * mu"))], {"policy-step"},
        {"dual_signal": "observed"},
    ),
    "no policy restart": (
        "propd_ppo", [("if m % L == 0:", "if m == 0:")], {"policy-step"}, {},
    ),
    "no window restart": (
        "propd_ppo", [("if m % W == 0:", "if m == 0:")], {"evaluation"}, {},
    ),
    "window restart at the policy's": (
        "propd_ppo", [("if m % W == 0:", "if m % L == 0:")], {"evaluation"}, {},
    ),
    "bonus halved": (
        "evaluate", [("bonus(h, n, n3[h], V)", "bonus(h, n, n3[h], V) / 2")], {"evaluation"}, {},
    ),
    "bonus on the utilities only": (
        "propd_ppo", [(EVALUATE, EVALUATE.replace("bonus", "no_bonus"))], {"evaluation"}, {},
    ),
    "cap H at every step": (
        "evaluate", [("np.minimum(Q[h], H - h)", "np.minimum(Q[h], H)")], {"evaluation"},
        {"bonus_scale": 1.0},
    ),
    "LV left out, printed": (
        "evaluate", [(" + LV[h]", "")], {"evaluation"},
        {"knowledge": "local-budgets", "mode": "printed"},
    ),
    "LV left out, repaired": (
        "evaluate", [(" + LV[h]", "")], {"evaluation"}, {"knowledge": "local-budgets"},
    ),
    "LV of the next step": (
        "evaluate", [("LV[h]", "LV[min(h + 1, H - 1)]")], {"evaluation"},
        {"knowledge": "local-budgets"},
    ),
    "transition counter uses the action (E6)": (
        "propd_ppo", [("n3[h, x, a, states[h + 1]]", "n3[h, x, a, actions[h + 1]]")],
        {"evaluation"}, {},
    ),
    "current reward in place of the observed ones (E6)": (
        "propd_ppo", [(EVALUATE, INDENT.join(["sum_r = n2 * play.now(m)[0]", EVALUATE]))],
        {"evaluation"}, {},
    ),
    "ridge left out of the transitions": (
        "evaluate", [("(n[:, :, None] + lam)", "np.maximum(n[:, :, None], 1)")],
        {"evaluation"}, {},
    ),
    "ridge left out of rewards and utilities": (
        "evaluate", [("sums[h] / (n + lam)", "sums[h] / np.maximum(n, 1)")], {"evaluation"}, {},
    ),
    "V of the uniform policy": (
        "evaluate", [("V = (pi[h] * Q[h]).sum(axis=1)", "V = Q[h].mean(axis=1)")],
        {"dual-step", "evaluation", "start-value", "performance-difference"}, {"xi": 0.5},
    ),
    "V_g of the uniform policy, fed to the dual": (
        "propd_ppo",
        [("Q_g[k], value = evaluate(n3, n2, sum_g[k], pi, lam, bonus, LV[m // W, k])",
          "Q_g[k], value = evaluate(n3, n2, sum_g[k], 0 * pi + 1 / A, lam, bonus, LV[m // W, k])")],
        {"dual-step", "evaluation", "start-value", "performance-difference"}, {"xi": 0.5},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABULAR)
def test_broken_tabular_learner_is_caught(name):
    function, changes, broken, options = TABULAR[name]
    world, agent = tabular(**options)
    check(world, agent, mutant(function, *changes), broken)


def check(world, agent, twins, broken):
    """The mutant breaks exactly those identities; the twin breaks none in the same world."""
    assert broken_identities(audited(world, agent, twin_transcript(world, agent, twins))) == broken
    found = audited(world, agent, twin_transcript(world, agent))
    assert all(found[id].printed.slack <= RELATIVE for id in IDENTITIES)
    assert found.identities_hold


# ---------------------------------------------------------------- Algorithms 1 and 2

LINEAR_STEP = "improved(log_pi, alpha * (Q[0] + np.tensordot(mu, Q[1 : 1 + K], axes=1)))"
LSTDS = "lstds = [lstd(past, psi, phi, pi, lam, c, *channel) for c, channel in enumerate(channels)]"
SIGNALS = '"signals": np.vstack([rewards, utilities]),'
LINEAR = {
    "dual step with the wrong sign": (
        "propd_ppo_linear", [(DUAL, DUAL.replace("mu + eta", "mu - eta"))], {"dual-step"}, {},
    ),
    "multipliers reset at a policy restart": (
        "propd_ppo_linear",
        [("Q = np.zeros((1 + K, H, S, A))", "Q, mu = np.zeros((1 + K, H, S, A)), np.zeros(K)")],
        {"dual-step"}, {"dual_signal": "observed"},
    ),
    "dual fed with the observed utility": (
        "seen_by_dual", [('if dual_signal == "observed":', "if True:")], {"dual-step"}, {"xi": 0.5},
    ),
    "policy that climbs where it should pay": (
        "propd_ppo_linear", [(LINEAR_STEP, LINEAR_STEP.replace("Q[0] + np", "Q[0] - np"))],
        {"policy-step"}, {"dual_signal": "observed"},
    ),
    "no policy restart": (
        "propd_ppo_linear", [("if m % L == 0:", "if m == 0:")], {"policy-step"}, {},
    ),
    "no window restart": (
        "propd_ppo_linear", [("if m % W == 0:", "if m == 0:")], {"evaluation"}, {},
    ),
    "current episode already in the data": (
        "propd_ppo_linear",  # evaluated again with the episode in the data
        [("        at_cap = sum(", INDENT.join([
             "", LSTDS, "Q = np.stack([one['Q'] for one in lstds])",
             "V = np.stack([one['V'] for one in lstds])",
             "V_fed = seen_by_dual(dual_signal, V[:, 0] @ initial, utilities)",
             "at_cap = sum("])[1:])],
        {"evaluation"}, {},
    ),
    "bonus of the transitions halved": (
        "lstd_q", [("Gamma = fit", "Gamma = 0.5 * fit")], {"evaluation"}, {},
    ),
    "bonus of the rewards halved": (
        "lstd_q", [("Gamma_r = fit", "Gamma_r = 0.5 * fit")], {"evaluation"}, {},
    ),
    "cap H at every step": (
        "lstd", [('"cap": H - h', '"cap": H')], {"evaluation"}, {"bonus_scale": 1.0},
    ),
    "LV left out, printed": (
        "lstd_q", [(' + fit["LV"]', "")], {"evaluation"},
        {"knowledge": "local-budgets", "mode": "printed"},
    ),
    "bonus does not grow with the drift of the transitions, repaired": (
        "lstd_channels", [("beta + window_drift_P[block] * np.sqrt(n)", "beta")], {"evaluation"},
        {"knowledge": "local-budgets"},
    ),
    "bonus does not grow with the drift of the utilities, repaired": (
        "lstd_channels", [("beta_r + window_drift_g[block, k] * np.sqrt(n)", "beta_r")],
        {"evaluation"}, {"knowledge": "local-budgets"},
    ),
    "ridge left out": (
        "ridge", [("lam * np.eye(d)", "1e-6 * lam * np.eye(d)")], {"evaluation"}, {},
    ),
    "current reward in place of the observed ones (E6)": (
        "propd_ppo_linear",
        [(SIGNALS, SIGNALS + ' "pairs": (states, actions),'),
         (LSTDS, INDENT.join([
             "for old in past:",
             "    old['signals'] = play.now(m)[:, np.arange(H), old['pairs'][0], old['pairs'][1]]",
             LSTDS]))],
        {"evaluation"}, {},
    ),
    "value targets of the next action's step": (
        "propd_ppo_linear",
        [("V[c, h + 1, states[h + 1]]", "V[c, h + 1, actions[h + 1]]")], {"evaluation"}, {},
    ),
    "value targets one step off": (
        "propd_ppo_linear",
        [("targets[c, h] = V[c, h + 1, states[h + 1]]", "targets[c, h] = V[c, h, states[h + 1]]")],
        {"evaluation"}, {},
    ),
    "features of the reward's value for all channels": (
        "propd_ppo_linear", [("= V[c, h + 1] @ psi", "= V[0, h + 1] @ psi")], {"evaluation"}, {},
    ),
    "V of the uniform policy": (
        "lstd", [("V_next = (pi[h] * Q).sum(axis=1)", "V_next = Q.mean(axis=1)")],
        {"dual-step", "evaluation", "start-value", "performance-difference"}, {"xi": 0.5},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LINEAR)
def test_broken_linear_learner_is_caught(name):
    function, changes, broken, options = LINEAR[name]
    world, agent = linear(**options)
    check(world, agent, mutant(function, *changes), broken)


# ---------------------------------------------------------------- acting, stepping, observing

ACTS = "a = draw(pi[h, x], action_uniforms[m, h])"
STEPS = "x = draw(P[h, x, a], u[h + 1])"
BEGINS = "x = draw(initial, u[0])"
SEES = "rewards[h], utilities[:, h] = r[h, x, a], g[:, h, x, a]"
TOSSES = "rewards[h] = float(v[0] < rewards[h])"
ENDS = "        return states, actions, rewards, utilities"
WORLD = "P, r, g, initial = at(m)"
YESTERDAY = "_, r, g, _ = at(max(m - 1, 0))"

REPEATS = [
    (WORLD, WORLD + "; old = getattr(play, 'seen', None)"),
    (
        ENDS,
        "        play.seen, rewards = rewards, (rewards if old is None else old)\n" + ENDS,
    ),
]

# name: what is done to the draws, the identities and statistics that must fail; whether it is
# noisy. `returns` may fail besides: they follow from all the others.
DRAWS = {
    "acts uniformly": (
        [(ACTS, "a = int(action_uniforms[m, h] * pi.shape[2])")],
        set(), {"action-statistics"}, False,
    ),
    "acts greedily": (
        [(ACTS, "a = int(pi[h, x].argmax())")], set(), {"action-statistics"}, False,
    ),
    "acts with one action too often": (
        [(ACTS, ACTS + " if action_uniforms[m, h] % 0.1 > 0.03 else 2")],
        set(), {"action-statistics"}, True,
    ),
    "successors of another action": (
        [(STEPS, "x = draw(P[h, x, (a + 1) % P.shape[2]], u[h + 1])")],
        set(), {"transition-statistics"}, False,
    ),
    "successors of an action out of the policy": (
        [(STEPS, "x = draw(pi[h, x] @ P[h, x], u[h + 1])")],
        set(), {"transition-statistics"}, True,
    ),
    "successors of the first episode's world": (
        [(STEPS, "x = draw(at(0)[0][h, x, a], u[h + 1])")],
        set(), {"transition-statistics"}, False,
    ),
    "successors that the world does not have": (
        [(STEPS, "x = (x + 1) % len(initial)")],
        {"possible-path"}, {"transition-statistics"}, False,
    ),
    "first states equally likely": (
        [(BEGINS, "x = int(u[0] * len(initial))")], {"possible-path"}, {"transition-statistics"},
        False,
    ),
    "rewards of the world of the episode before": (
        [(SEES, YESTERDAY + "; " + SEES)], {"observations"}, set(), False,
    ),
    "rewards that were seen in the episode before": (
        REPEATS,
        {"observations"}, set(), False,
    ),
    "noisy rewards that were seen in the episode before": (
        REPEATS,
        set(), {"signal-statistics"}, True,
    ),
    "noisy rewards of another action": (
        [(TOSSES, "rewards[h] = float(v[0] < r[h, x, (a + 1) % r.shape[2]])")],
        set(), {"signal-statistics"}, True,
    ),
    "noisy rewards that are none": (
        [(TOSSES, "rewards[h] = rewards[h]")], {"observations"}, set(), True,
    ),
}  # fmt: skip


LINEAR_DRAWS = ("acts uniformly", "successors of another action",
                "rewards of the world of the episode before",
                "noisy rewards that were seen in the episode before")  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name"),
    [*(("tabular", name) for name in DRAWS), *(("linear", name) for name in LINEAR_DRAWS)],
)
def test_wrong_draws_are_caught(name, kind):
    """K = 2; the learner itself is right: it has to be caught by what it drew.

    Successors that the world does not have are not in the auditor's lists of successors, and then
    the tabular `evaluation` fails as well.
    """
    changes, identities, statistics, noisy = DRAWS[name]
    world = drawn_world(kind, 500 if kind == "tabular" else 300)
    agent = drawn_agent(world)
    script = twin_transcript(world, agent, mutant("simulated_play", *changes), noisy=noisy)
    found = audited(world, agent, script, noisy=noisy)
    broken = broken_identities(found)
    assert identities <= broken
    assert broken <= identities | ({"evaluation"} if "possible-path" in broken else set()) | (
        {"possible-path"} if name.startswith("successors") else set()
    )
    assert failed_statistics(found) - {"return-statistics"} == statistics
    assert found.statistics_hold == (not failed_statistics(found))
    assert not (found.identities_hold and found.statistics_hold)


def drawn_world(kind, M, seed=3):
    """Few successors and a random first state: there is something impossible to draw."""
    start = np.array([0.5, 0.0, 0.3, 0.2])
    world = small_world(M=M, K=2, drift="abrupt", seed=seed, successors=3, start=start)
    world = world.with_thresholds(0.6 * world.thresholds)
    return world if kind == "tabular" else world.as_linear_kernel("scenarios", "scenarios")


def drawn_agent(world, **overrides):
    chosen = {"L": 100, "W": 100, "alpha": 0.1} | overrides
    if isinstance(world, sd.LinearKernelCMDP):  # whose twin takes W times as long
        return build_linear(world, "slater", "repaired", **(chosen | {"W": 15}))
    return learner(world, "slater", "repaired", chosen)


def test_a_failing_statistic_says_what_explains_the_draws_best():
    world = drawn_world("tabular", 500)
    agent = drawn_agent(world)
    for name, id, said in (
        ("acts uniformly", "action-statistics", "actions uniform"),
        ("successors of another action", "transition-statistics", "of action a + 1 (modulo A)"),
        ("successors of the first episode's world", "transition-statistics", "first episode"),
        ("first states equally likely", "transition-statistics", "first states uniform"),
        ("noisy rewards that were seen in the episode before", "signal-statistics", "the episode"),
    ):
        changes, _, _, noisy = DRAWS[name]
        script = twin_transcript(world, agent, mutant("simulated_play", *changes), noisy=noisy)
        found = audited(world, agent, script, noisy=noisy)[id]
        assert found.result == "fails", name
        assert said in found.note, found.note
        assert "with probability at most 1e-06" in found.note


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("kind", ["tabular", "linear"])
def test_honest_runs_raise_no_alarm(kind, noisy):
    """Wealth is 1 on average at most: above 100 in one run of a hundred, above 1e6 never."""
    largest = []
    for seed in range(25):
        world = drawn_world(kind, 200, seed=seed % 5)
        agent = drawn_agent(world, alpha=(0.1, 0.7)[seed % 2])
        found = sd.certify(world, agent, seed, noisy=noisy)
        assert found.identities_hold
        assert found.statistics_hold
        forms = [found[id].printed for id in STATISTICS]
        largest += [THRESHOLD - form.slack for form in forms if form is not None]
    assert (np.array(largest) > np.log(100)).mean() <= 0.03
    assert np.mean(largest) < 2


# ---------------------------------------------------------------- what the lemmas notice

DUAL_LEMMAS = ("dual-regret", "dual-violation")
WRONG_SIGN = (DUAL, DUAL.replace("mu + eta", "mu - eta"))


def longer(**overrides):
    world = small_world(M=400, S=4, A=3, H=3, drift="abrupt", seed=3)
    return world, learner(world, "slater", "repaired", {"L": 100, "W": 100} | overrides)


def results(world, agent, twins, ids):
    found = audited(world, agent, twin_transcript(world, agent, twins))
    return [found[id].result for id in ids]


@pytest.mark.parametrize(
    ("scale", "failing"),
    [(0.05, "dual-violation"), (1.0, "dual-regret")],  # estimates below b, and above it
)
def test_dual_lemmas_notice_the_wrong_sign(scale, failing):
    world, agent = longer(eta=0.02, bonus_scale=scale)
    wrong = mutant("propd_ppo", WRONG_SIGN)
    assert results(world, agent, naive, DUAL_LEMMAS) == ["holds", "holds"]
    found = dict(zip(DUAL_LEMMAS, results(world, agent, wrong, DUAL_LEMMAS), strict=True))
    assert found[failing] == "fails"


def test_lemmas_on_prediction_errors_notice_half_a_bonus():
    """With the valid bonus of E9 both hold; the mutant's estimates are not optimistic."""
    ids = ("prediction-error", "optimism")
    world, agent = longer(bonus_scale=1.0)
    half = mutant("evaluate", ("bonus(h, n, n3[h], V)", "bonus(h, n, n3[h], V) / 2"))
    assert results(world, agent, naive, ids) == ["holds", "holds"]
    assert results(world, agent, half, ids) == ["fails", "fails"]


@pytest.mark.parametrize(
    ("scale", "transitions"), [(1.0, "holds"), (0.5, "holds"), (0.1, "fails"), (0.02, "fails")]
)
def test_lemmas_notice_a_small_bonus_in_the_settings(scale, transitions):
    """Half the bonus does not cover the ridge of the signals; a tenth not the transitions."""
    world, agent = longer(bonus_scale=scale)
    ids = ("prediction-error", "optimism", "signal-bonus", "transition-bonus")
    found = audited(world, agent, twin_transcript(world, agent))
    assert found.identities_hold  # the learner does what it was told
    others = "holds" if scale == 1 else "fails"
    assert [found[id].result for id in ids] == [others, others, others, transitions]
    for id in ids:
        assert (found[id].printed.share > 0) == (found[id].result == "fails")
