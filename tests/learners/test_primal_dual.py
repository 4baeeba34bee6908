"""The primal-dual family against its twin, against PROPD-PPO, and in worlds solved on paper."""

import math
from dataclasses import replace

import numpy as np
import pytest

import naive_filters
import naive_primal_dual
import safedrift as sd
from builders import recorded_play, small_world
from safedrift.experiments.playing import play_chunks
from safedrift.learners import Adaptive, CheckedLearner, Discount, Never, Periodic, SlidingWindow
from safedrift.learners.checked import tabular_setup
from safedrift.learners.forgetting import MOVE_RATES, SIGNAL_RATES
from safedrift.learners.propd_ppo.components import BernsteinBonus, CountBonus
from safedrift.learners.rivals.primal_dual import SIGNS, Design, PrimalDual

NAMES = ("opdop", "opt-dual", "opt-primal-dual", "opt-pess-primal-dual", "regularised-primal-dual",
         "pid-lagrangian", "bisection", "propo")  # fmt: skip
# Large steps and small bonuses make every quantity move within few episodes.
LIVELY = Design(
    "mirror", "ascent", BernsteinBonus(0.1), 0.3, alpha=0.7, eta=0.4, xi=0.1, chi=3.0, theta=0.2,
    tau=0.3, kappa=0.2, gains=(0.5, 0.2, 0.6), smoothing=0.7, steps=9,
)  # fmt: skip
COUNTS = CountBonus(np.array([0.4, 0.3, 0.2]), np.array([0.02, 0.02, 0.02]))
AGES = 1 + np.arange(12) / 3


def learner_of(world, design, forgetting):
    return CheckedLearner(PrimalDual("some", tabular_setup(world), design, forgetting))


# ---------------------------------------------------------------- the twin


def twin_of(world, design, forgetting, play):
    H, lam = world.H, design.lam
    if isinstance(design.bonus, BernsteinBonus):
        bonus = naive_primal_dual.bernstein_bonus(design.bonus.c, H, lam)
    else:
        bonus = naive_primal_dual.count_bonus(design.bonus.root, design.bonus.tail, lam)
    whole = forgetting.schedule(0, world.M)
    regularised = design.policy == "regularised"
    names = ("policy", "multiplier", "prompt", "lagged", "alpha", "eta", "xi", "chi", "theta",
             "kappa", "gains", "smoothing", "steps", "margin", "scale", "lam",
             "rounds")  # fmt: skip
    return naive_primal_dual.primal_dual(
        play=play, thresholds=world.thresholds,
        sizes=(world.M, world.H, world.S, world.A, world.K), initial=world.initial,
        schedule=lambda m: [column[m] for column in whole], bonus=bonus,
        utility=SIGNS[design.utility],
        dual_signal=SIGNS.get(design.dual_signal, design.dual_signal),
        tau=design.tau if regularised else 0.0, every=design.replan_every,
        filters=filters_of(world, forgetting),
        **{name: getattr(design, name) for name in names},
    )  # fmt: skip


def filters_of(world, forgetting):
    """The twin of the filters of an adaptive forgetting; None for any other."""
    if not isinstance(forgetting, Adaptive):
        return None
    sizes = (world.M, world.H, world.S, world.A, world.K)
    limits = [math.log(21 / forgetting.false_alarms)] * 2  # 7 filters, 21 pairs of them
    return naive_filters.AdaptiveWindow(sizes, MOVE_RATES, SIGNAL_RATES, limits)


def assert_agrees(world, design, forgetting, noisy=False):
    learner = learner_of(world, design, forgetting)
    algorithm = learner.algorithm
    play, seen = recorded_play(world, 0, noisy)
    multipliers = []
    for m, expected in enumerate(twin_of(world, design, forgetting, play)):
        policy = np.asarray(learner.begin_episode(world.thresholds[m]))
        np.testing.assert_allclose(policy, expected["policy"], rtol=0, atol=1e-10)
        learner.end_episode(sd.Trajectory(*seen[m]))
        found = {
            "mu": algorithm.memory.dual.mu, "V": algorithm.memory.values.v_start[: 1 + world.K],
            "integral": algorithm.carried.integral,
        }  # fmt: skip
        for name, value in found.items():
            np.testing.assert_allclose(value, expected[name], rtol=0, atol=1e-10, err_msg=name)
        multipliers.append(expected["mu"])
    return np.array(multipliers)


POLICIES = {
    "mirror": {}, "mixed": {}, "regularised": {},
    "greedy": {"prompt": True}, "softmax": {"prompt": True, "replan_every": 4},
}  # fmt: skip
FORGETTINGS = [Never(), Periodic(9, 13), SlidingWindow(8), SlidingWindow(8, 11), Discount(0.8),
               Adaptive(0.5)]  # fmt: skip


@pytest.mark.parametrize("forgetting", FORGETTINGS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_agrees_with_the_twin(policy, forgetting):
    world = small_world(M=45, K=2, seed=3)
    design = replace(LIVELY, policy=policy, **POLICIES[policy])
    multipliers = assert_agrees(world, design, forgetting, noisy=True)
    assert np.ptp(multipliers, axis=0).min() > 0.05


@pytest.mark.parametrize("multiplier", ["ascent", "pid"])
@pytest.mark.parametrize("policy", ["mirror", "mixed", "regularised"])
@pytest.mark.parametrize(("signal", "rounds"), [("policy", 1), ("plain", 3), ("pessimistic", 2)])
def test_rounds_agree_with_the_twin(policy, multiplier, signal, rounds):
    world = small_world(M=40, K=2, seed=9)
    design = replace(LIVELY, policy=policy, multiplier=multiplier, prompt=multiplier == "pid",
                     dual_signal=signal, rounds=rounds)  # fmt: skip
    multipliers = assert_agrees(world, design, SlidingWindow(12))
    assert np.ptp(multipliers, axis=0).min() > 0.05


@pytest.mark.parametrize("policy", ["mirror", "greedy", "softmax"])
def test_pid_agrees_with_the_twin(policy):
    world = small_world(M=45, K=2, seed=4)
    design = replace(LIVELY, policy=policy, multiplier="pid", prompt=True)
    multipliers = assert_agrees(world, design, Periodic(20, 20))
    assert np.ptp(multipliers, axis=0).min() > 0.05


@pytest.mark.parametrize("margin", [0.0, 0.3])
@pytest.mark.parametrize("policy", ["greedy", "softmax"])
def test_bisection_agrees_with_the_twin(policy, margin):
    world = small_world(M=45, seed=5, successors=2)
    design = replace(LIVELY, policy=policy, multiplier="bisection", prompt=True, replan_every=3,
                     margin=np.array([margin]))  # fmt: skip
    multipliers = assert_agrees(world, design, SlidingWindow(12))
    inside = (multipliers > 0) & (multipliers < design.chi)
    assert inside.mean() > 0.1


@pytest.mark.parametrize("signal", ["policy", "plain", "pessimistic", "observed"])
@pytest.mark.parametrize("utility", SIGNS)
@pytest.mark.parametrize("bonus", [LIVELY.bonus, COUNTS], ids=["bernstein", "counts"])
def test_every_estimate_agrees_with_the_twin(bonus, utility, signal):
    world = small_world(M=25, K=2, seed=6, start=np.array([0.5, 0.0, 0.3, 0.2]))
    changes = {"bonus": bonus, "utility": utility, "dual_signal": signal}
    assert_agrees(world, replace(LIVELY, **changes), SlidingWindow(9))
    planned = {"policy": "softmax", "prompt": True, "margin": AGES / 20, "scale": AGES}
    assert_agrees(world, replace(LIVELY, **planned, **changes), Periodic(16, 16))


# ---------------------------------------------------------------- relatives


def columns_of(world, learner):
    parts = list(play_chunks(world, learner.fresh(2), 3, True, np.arange(world.M)))
    return [np.concatenate([part.policies for part in parts]),
            np.concatenate([part.trace["mu"] for part in parts]),
            np.concatenate([part.trace["estimated_utility"] for part in parts])]  # fmt: skip


@pytest.mark.parametrize("constraints", [1, 2])
@pytest.mark.parametrize("signal", ["policy", "plain", "observed"])
@pytest.mark.parametrize("mode", ["practical", "repaired", "printed"])
def test_settings_of_propd_ppo_give_its_numbers_bit_for_bit(mode, signal, constraints):
    world = small_world(M=80, S=6, H=4, K=constraints, seed=7)
    own = sd.PROPDPPO.for_problem(
        world, sd.Slater(0.4), mode=mode, budgets=sd.Budgets(2.0, 1.0, 1.0, 3.0), alpha=0.4,
        eta=0.3, L=25, W=30, bonus_scale=0.1,
        dual_signal="optimistic" if signal == "policy" else signal,
    )  # fmt: skip
    parts = own.parameters
    design = Design(
        "mirror", "ascent", parts.evaluation.bonus, parts.evaluation.lam, dual_signal=signal,
        lagged=parts.dual.lagged, alpha=0.4, eta=0.3, xi=parts.dual.xi, chi=parts.dual.chi,
    )  # fmt: skip
    same = learner_of(world, design, Periodic(30, 25))
    for expected, found in zip(columns_of(world, own), columns_of(world, same), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", NAMES)
def test_windows_of_all_episodes_are_the_stationary_parent_bit_for_bit(name):
    world = small_world(M=60, S=5, H=4, seed=8)
    parent = columns_of(world, sd.learners.make(name, world, forgetting="never"))
    for forgetting in ("periodic", "sliding"):
        child = sd.learners.make(name, world, forgetting=forgetting, window=world.M)
        for expected, found in zip(parent, columns_of(world, child), strict=True):
            np.testing.assert_array_equal(found, expected)
    shorter = sd.learners.make(name, world, forgetting="periodic", window=20)
    assert not np.array_equal(columns_of(world, shorter)[0], parent[0])


# ---------------------------------------------------------------- answers known on paper


def two_arms(b, M=3000, g=1.0):
    """One step: arm 0 pays reward 1, arm 1 utility g. V_g = g π(1): the optimum has π(1) = b/g."""
    P = np.ones((1, 1, 2, 1))
    signals = np.array([[[1.0, 0.0]]]), np.array([[[[0.0, g]]]])
    return sd.DriftingCMDP([sd.TabularCMDP(P, *signals, [b], [1.0])], np.ones((M, 1)))


def played(world, design):
    """Trace of all episodes, and the algorithm after them."""
    learner = learner_of(world, design, Never())
    parts = list(play_chunks(world, learner, 0, False, np.arange(world.M)))
    columns = {name: np.concatenate([part.trace[name] for part in parts])
               for name in parts[0].trace}  # fmt: skip
    return columns, learner.algorithm


EXACT = {"bonus": CountBonus(np.zeros(1), np.zeros(1)), "lam": 1e-12}


def test_the_regularised_method_settles_at_its_fixed_point():
    """π(1) = σ((μ - 1)/τ) and μ = (b - π(1))/τ: log(p/(1-p)) = ((b - p)/τ - 1)/τ."""
    b, tau = 0.6, 0.5
    low, high = 0.0, 1.0
    for _ in range(100):
        p = (low + high) / 2
        grows = math.log(p / (1 - p)) > ((b - p) / tau - 1) / tau
        low, high = (low, p) if grows else (p, high)
    trace, algorithm = played(two_arms(b), Design(
        "regularised", "ascent", alpha=0.2, eta=0.2, tau=tau, xi=tau, **EXACT))  # fmt: skip
    assert trace["estimated_utility"][-1, 0] == pytest.approx(p, abs=1e-9)
    assert algorithm.memory.dual.mu[0] == pytest.approx((b - p) / tau, abs=1e-9)


def test_bisection_finds_the_multiplier():
    """σ((μ - 1)/κ) = b at μ = 1 + κ log(b/(1-b))."""
    b, kappa = 0.7, 0.4
    trace, algorithm = played(two_arms(b, 50), Design(
        "softmax", "bisection", prompt=True, kappa=kappa, chi=16.0, steps=30, **EXACT))  # fmt: skip
    mu = 1 + kappa * math.log(b / (1 - b))
    assert algorithm.memory.dual.mu[0] == pytest.approx(mu, abs=16 / 2**30)
    assert trace["estimated_utility"][-1, 0] == pytest.approx(b, abs=1e-7)


@pytest.mark.parametrize(("b", "mu"), [(0.01, 0.0), (1.0, 16.0)])
def test_bisection_stays_at_an_end_that_is_enough_or_the_best_there_is(b, mu):
    """μ = 0 has V_g = σ(-1/κ) > 0.01; no μ has V_g = 1."""
    _, algorithm = played(two_arms(b, 50), Design(
        "softmax", "bisection", prompt=True, kappa=0.4, chi=16.0, steps=9, **EXACT))  # fmt: skip
    assert algorithm.memory.dual.mu[0] == mu


def test_a_greedy_policy_shares_ties_and_alternates_around_the_optimum():
    """r + μ g is 1 or μ: arm 1 is played while μ > 1, so a share b of the episodes."""
    world = two_arms(0.3, 4000)
    trace, _ = played(world, Design("greedy", "ascent", prompt=True, eta=0.05, **EXACT))
    assert trace["estimated_utility"][1000:].mean() == pytest.approx(0.3, abs=0.01)
    optimistic = EXACT | {"bonus": BernsteinBonus(0.0)}  # arm 1, untried, is at its cap
    first = learner_of(world, Design("greedy", "ascent", **optimistic), Never())
    first.begin_episode([0.3])
    first.end_episode(sd.Trajectory([0], [0], [1.0], [[0.0]]))
    np.testing.assert_array_equal(first.begin_episode([0.3])[0, 0], [0.5, 0.5])


def test_mixing_with_the_uniform_policy_bounds_it_below():
    """μ = 0: π(1) = θ/2 e^0 / Z, with Z = (1 - θ/2) e^α + θ/2 once π(1) has settled."""
    theta, alpha = 0.1, 0.5
    _, algorithm = played(two_arms(1e-9, 500), Design(
        "mixed", "ascent", alpha=alpha, eta=0.0, theta=theta, **EXACT))  # fmt: skip
    p = algorithm.memory.policy.pi[0, 1, 0]
    q = (1 - theta) * p + theta / 2
    assert p == pytest.approx(q / ((1 - q) * math.exp(alpha) + q), abs=1e-12)
    assert 0.05 < p < 0.1


def test_pid_does_not_wind_up():
    """Infeasible for 300 episodes (d ≥ 1/2), easy afterwards: μ comes down, unless I has grown."""
    M = 600
    thresholds = np.where(np.arange(M) < 300, 1.0, 0.05)[:, None]
    world = two_arms(0.5, M, g=0.5).with_thresholds(thresholds)
    design = Design(
        "softmax", "pid", prompt=True, kappa=1.0, gains=(0.5, 0.1, 0.0), chi=4.0, **EXACT
    )
    (trace, _), (longer, _) = (played(world, replace(design, chi=chi)) for chi in (4.0, np.inf))
    assert trace["mu"][100:300].min() > 3.9
    assert trace["mu"][520:].max() < 0.1
    assert longer["mu"][420].min() > 4.0


# ---------------------------------------------------------------- building


def test_printed_constants_need_the_gap_and_are_recorded():
    world = small_world(M=50)
    for name in ("opdop", "opt-dual", "opt-primal-dual", "opt-pess-primal-dual",
                 "regularised-primal-dual"):  # fmt: skip
        with pytest.raises(TypeError, match="gamma must be given with constants='printed'"):
            sd.learners.make(name, world, constants="printed")
        found = sd.learners.make(name, world, constants="printed", gamma=0.5).settings()
        assert found["told"] == ["Slater gap"]
        assert found["constants"] == "printed"
        assert sd.learners.make(name, world).settings()["told"] == []
        with pytest.raises(ValueError, match="gamma must be at most H = 3"):
            sd.learners.make(name, world, gamma=4.0)
    with pytest.raises(TypeError, match="gamma must be given: propd-ppo"):
        sd.learners.make("propd-ppo", world)


def test_constants_of_opdop_as_printed():
    world = small_world(M=400, A=3, H=3)
    found = sd.learners.make("opdop", world, constants="printed", gamma=0.5).settings()
    assert found["alpha"] == pytest.approx(math.sqrt(math.log(3) / (9 * 400)))
    assert (found["eta"], found["theta"], found["chi"], found["lam"]) == (0.05, 1 / 400, 12.0, 1.0)
    assert found["bonus"]["root"] == pytest.approx(
        2 * 3 * math.sqrt(4 * math.log(4 * 3 * 3 * 400 / 0.05))
    )


@pytest.mark.parametrize("name", NAMES)
def test_options_replace_constants(name):
    world = small_world(M=30)
    for option, (low, _, _) in sd.learners.LEARNERS[name].TUNABLE.items():
        value = max(low, 1e-3)
        built, usual = (sd.learners.make(name, world, **chosen).settings()
                        for chosen in ({option: value}, {}))  # fmt: skip
        assert built != usual


def test_bad_designs_are_refused():
    world = small_world(M=5, K=2)
    for changes, message in [
        ({"policy": "softmx"}, "did you mean 'softmax'"),
        ({"policy": "mixed", "theta": 0.0}, "theta must be in"),
        ({"multiplier": "bisection"}, "'greedy' or 'softmax' with bisection"),
        ({"policy": "regularised", "alpha": 1.0, "tau": 2.0}, "tau must be in"),
        ({"gains": (1.0, -1.0, 0.0)}, "gains must be >= 0"),
        ({"rounds": -1}, "rounds must be an integer"),
        ({"rounds": 1, "policy": "greedy"}, "rounds must be 0 with policy 'greedy'"),
        ({"rounds": 1, "dual_signal": "observed"}, "rounds must be 0 with dual_signal"),
        ({"smoothing": 1.0}, "smoothing must be in"),
        ({"scale": np.array([1.0, 0.0])}, "scale must be > 0; got 0.0 at index 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            replace(LIVELY, **changes)
    with pytest.raises(ValueError, match=r"K must be 1 .* one constraint.*; got 2"):
        sd.learners.make("bisection", world)
    with pytest.raises(ValueError, match="constants must be one of"):
        sd.learners.make("opdop", world, constants="practicle")
