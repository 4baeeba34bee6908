"""Theorem parameters: the printed formulas by hand, the repairs, and what is refused."""

import json

import numpy as np
import pytest

import safedrift as sd
from safedrift.learners.propd_ppo import Dimensions, Parameters, theorem3, theorem4, tune
from safedrift.learners.propd_ppo.components import BernsteinBonus, CountBonus
from safedrift.learners.propd_ppo.parameters import MODES

SIZES = sd.Sizes(M=2000, H=5, S=5, A=3, K=1)
BUDGETS = sd.Budgets(P=4.0, r=2.0, g=2.0, star=19.0)  # B_Δ = 8, B_Δ + B_* = 27


def test_theorem4_as_printed():
    found = theorem4(SIZES, sd.Slater(0.5), BUDGETS, mode="printed")
    M, H, S, A = 2000, 5, 5, 3
    assert found.improvement.alpha == pytest.approx(0.5 * H**-1.5 * M ** (-1 / 3) * 3)
    assert round(M ** (2 / 3) / 9) == found.improvement.L
    assert found.dual.eta == pytest.approx(M**-0.5)
    assert (found.dual.xi, found.dual.chi) == (0.0, 20.0)
    assert not found.dual.lagged
    W = round(S ** (2 / 3) * A ** (1 / 3) * (M / 8) ** (2 / 3))
    assert found.evaluation.W == W
    beta = H * np.sqrt(S * np.log(S * A * W / 0.05))
    np.testing.assert_allclose(found.evaluation.bonus.root, 2 * beta)
    assert (found.evaluation.bonus.shift, found.evaluation.lam) == (1.0, 1.0)
    assert not found.evaluation.LV.any()


@pytest.mark.parametrize("rho", [1 / 3, 5 / 12, 1 / 2])
def test_theorem3_as_printed(rho):
    changes = np.full((2000, 5), 1e-3), np.full((2000, 1, 5), 2e-3)
    found = theorem3(SIZES, sd.LocalBudgets(*changes), BUDGETS, mode="printed", rho=rho)
    M, H, S, A = 2000, 5, 5, 3
    assert found.improvement.alpha == pytest.approx(H ** (-1 / 3) * M**-rho * 3)
    assert round(H ** (-1 / 3) * M ** ((1 + rho) / 2) / 9) == found.improvement.L
    assert found.dual.eta == pytest.approx(H ** (-1 / 3) * M**-0.5)
    assert found.dual.xi == pytest.approx(2 * H ** (5 / 3) * 3 * M**-rho)
    assert found.dual.chi == np.inf
    W = min(round(H ** (2 / 3) * S ** (2 / 3) * A ** (1 / 3) * (M / 8) ** (2 / 3)), M)
    assert found.evaluation.W == W
    # LV = B_P,E H + B_g,E with W - 1 changes inside a block, summed over the 5 steps.
    expected = (W - 1) * 5 * (1e-3 * H + 2e-3)
    np.testing.assert_allclose(found.evaluation.LV[0], expected)


def test_printed_window_can_exceed_m_and_is_clipped():
    # 3107 by the formula at M = 2000, S = 5, A = 3, B_Δ = 0.1
    found = theorem4(SIZES, sd.Slater(0.5), sd.Budgets(0.1, 0, 0, 0), mode="printed")
    assert found.evaluation.W == 2000


def test_zero_budgets_freeze_the_printed_learner_and_not_the_repaired_one():
    still = sd.Budgets(0, 0, 0, 0)
    for knowledge in (sd.Slater(0.5), sd.LocalBudgets()):
        printed = tune(SIZES, knowledge, still, mode="printed")
        assert printed.improvement.alpha == 0
        repaired = tune(SIZES, knowledge, still, mode="repaired")
        assert repaired.improvement.alpha > 0
        assert repaired.improvement.L == SIZES.M
        assert repaired.evaluation.W == SIZES.M


def test_repaired_theorem4():
    found = theorem4(SIZES, sd.Slater(0.5), BUDGETS, mode="repaired")
    L, chi, H = found.improvement.L, 20.0, 5
    assert round(2000 ** (2 / 3) / 9) == L
    c = sum((H - h) ** 2 for h in range(H)) / (4 * H)
    assert found.improvement.alpha == pytest.approx(np.sqrt(np.log(3) / (c * L * (1 + chi**2))))
    assert found.dual.eta == pytest.approx(chi / (H * np.sqrt(L)))
    assert found.dual.lagged


def test_repaired_mirror_step_minimises_its_two_terms():
    """α of the repaired Theorem 4 minimises H log A/(α L) + α c (1+χ²) 2 over α (E3)."""
    found = theorem4(SIZES, sd.Slater(0.5), BUDGETS, mode="repaired")
    L, H, chi = found.improvement.L, 5, 20.0
    c = H * (H + 1) * (2 * H + 1) / 48

    def cost(alpha):
        return H * np.log(3) / (alpha * L) + 2 * alpha * c * (1 + chi**2)

    best = found.improvement.alpha
    assert cost(best) < min(cost(0.99 * best), cost(1.01 * best))


def test_repaired_theorem3_regularisation_dominates_the_mirror_step():
    """α c (1+μ)² + (η ξ² - ξ) μ² ≤ 2 α c for every μ ≥ 0, which is what ξ is for (E3)."""
    for H in (2, 5, 20):
        sizes = sd.Sizes(2000, H, 5, 3, 1)
        found = theorem3(sizes, sd.LocalBudgets(), BUDGETS, mode="repaired", rho=0.5)
        alpha, eta, xi = found.improvement.alpha, found.dual.eta, found.dual.xi
        c = H * (H + 1) * (2 * H + 1) / 48
        assert xi == pytest.approx(8 * c * alpha)
        assert eta * xi <= 0.75
        mu = np.linspace(0, 1e3, 100_001)
        left = alpha * c * (1 + mu) ** 2 + (eta * xi**2 - xi) * mu**2
        assert (left <= 2 * alpha * c + 1e-9).all()


def test_one_step_descent_with_the_sharp_constant():
    """<Q, π* - π> ≤ α q²/8 + (D(π*|π) - D(π*|π'))/α for Q in [0, q] (E3): Hoeffding's lemma."""
    rng = np.random.default_rng(0)
    tightest = np.inf
    for _ in range(5000):
        A = int(rng.integers(2, 5))
        q, alpha = rng.uniform(0.1, 10), rng.uniform(0.001, 2)
        Q = q * rng.choice([0.0, 1.0], A) if rng.random() < 0.5 else q * rng.random(A)
        pi, star = rng.dirichlet(np.ones(A), 2)
        new = pi * np.exp(alpha * (Q - Q.max()))
        new /= new.sum()
        gain = (star * (np.log(new) - np.log(pi))).sum() / alpha
        slack = alpha * q**2 / 8 + gain - Q @ (star - pi)
        assert slack >= -1e-9
        tightest = min(tightest, slack / (alpha * q**2))
    assert tightest < 0.01  # the constant 1/8 cannot be much smaller


def test_repaired_bonus_covers_the_estimation_error():
    """E9's explicit bonus bounds |r̂ + P̂V - (r + PV)| for every V in [0, H-h], with prob. 1 - p."""
    rng = np.random.default_rng(1)
    H, S, h = 4, 5, 1
    sizes = sd.Sizes(1000, H, S, 1, 1)
    bonus = theorem4(sizes, sd.Slater(0.5), BUDGETS, mode="repaired").evaluation.bonus
    span = H - h - 1
    for n in (1, 3, 10, 100, 1000):
        P = rng.dirichlet(np.ones(S), 200)
        for p in P:
            counts = rng.multinomial(n, p)
            difference = counts / (n + 1) - p
            # worst V in [0, span]^S for the estimate, both signs; deterministic reward 1
            worst = max(
                difference[difference > 0].sum() * span,
                -difference[difference < 0].sum() * span + 1 / (n + 1),
            )
            assert worst <= bonus.root[h] / np.sqrt(n) + bonus.tail[h] / (n + 1) + 1e-12


def test_repaired_lv_covers_the_drift_of_the_window():
    """|(P-P')V + g - g'| ≤ LV_h in a block, V in [0, H-h]; the printed l2 form is not (E8)."""
    S, H = 30, 2
    P = np.full((2, H, S, 1, S), 1 / S)
    P[1, 0, :, 0, : S // 2] = 2 / S
    P[1, 0, :, 0, S // 2 :] = 0.0
    initial = np.eye(S)[0]
    flat = np.full((1, H, S, 1), 0.5)
    cmdps = [sd.TabularCMDP(p, flat[0], flat, [0.5], initial) for p in P]
    world = sd.DriftingCMDP(cmdps, np.array([0, 1]))
    V = np.where(np.arange(S) < S // 2, 1.0, 0.0)  # V_2 ≤ H - 1 = 1
    error = abs((P[1, 0, 0, 0] - P[0, 0, 0, 0]) @ V)
    sizes = sd.Sizes(2, H, S, 1, 1)
    found = theorem3(sizes, sd.local_budgets(world, "l1"), BUDGETS, mode="repaired", W=2)
    assert found.evaluation.LV[0, 0, 0] == pytest.approx(error)
    # per (x, a), as the lemma uses it, the l2 norm times H is too small for many states
    row = np.linalg.norm(P[1, 0, 0, 0] - P[0, 0, 0, 0])
    assert error > row * (H - 1)


def test_practical_needs_no_budgets_and_records_what_it_is():
    found = tune(SIZES, sd.Slater(0.5))
    assert isinstance(found.evaluation.bonus, BernsteinBonus)
    record = found.record()
    assert record["mode"] == "practical"
    assert record["dual"]["dual_signal"] == "observed"
    assert record["evaluation"]["bonus"]["kind"] == "BernsteinBonus"


def test_practical_does_not_use_local_budgets():
    told = sd.LocalBudgets(transitions=0.1, utilities=0.2)
    assert not tune(SIZES, told).evaluation.LV.any()
    assert tune(SIZES, told, BUDGETS, mode="repaired").evaluation.LV.all()


def test_overrides_are_applied_and_recorded():
    found = tune(
        SIZES, sd.Slater(0.5), BUDGETS, mode="printed",
        overrides={"alpha": 0.3, "W": 77, "bonus_scale": 0.1, "lam": 0.5},
    )  # fmt: skip
    assert found.improvement.alpha == 0.3
    assert found.evaluation.W == 77
    assert isinstance(found.evaluation.bonus, CountBonus)
    assert found.evaluation.bonus.shift == 0.5
    beta = 5 * np.sqrt(5 * np.log(5 * 3 * 77 / 0.05))
    np.testing.assert_allclose(found.evaluation.bonus.root, 0.1 * 2 * beta)
    assert found.record()["overrides"] == {"alpha": 0.3, "W": 77, "bonus_scale": 0.1, "lam": 0.5}


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: sd.Slater(0), ValueError, "gamma must be > 0; got 0"),
        (lambda: sd.Slater(-1.0), ValueError, "gamma must be > 0; got -1.0"),
        (lambda: sd.Slater("a"), TypeError, "gamma must be a number; got 'a'"),
        (lambda: sd.LocalBudgets(transitions=-1.0), ValueError, "transitions must be finite"),
        (lambda: tune(SIZES, sd.LocalBudgets(), BUDGETS, mode="printed", rho=0.6), ValueError,
         r"rho must be in \[1/3, 1/2\]; got 0.6"),
        (lambda: tune(SIZES, sd.Slater(0.5), BUDGETS, mode="printed", p=1.0), ValueError,
         r"p must be in \(0, 1\); got 1.0"),
        (lambda: tune(SIZES, sd.Slater(0.5), mode="printed"), TypeError, "budgets must be given"),
        (lambda: tune(SIZES, sd.Slater(0.5), mode="fast"), ValueError, "mode must be one of"),
        (lambda: tune(SIZES, sd.Slater(0.5), overrides={"L": 0}), ValueError, "L must be an int"),
        (lambda: tune(SIZES, sd.Slater(0.5), overrides={"W": -2}), ValueError, "W must be an int"),
        (lambda: tune(SIZES, sd.Slater(0.5), overrides={"W": 1.5}), TypeError, "W must be an int"),
        (lambda: tune(SIZES, sd.Slater(0.5), overrides={"beta": 1}), ValueError, "override must"),
        (lambda: tune(SIZES, sd.Slater(0.5), overrides={"eta": np.nan}), ValueError, "eta must be"),
        (lambda: tune(SIZES, sd.Slater(0.5), overrides={"lam": 0}), ValueError, "lam must be > 0"),
        (lambda: tune(SIZES, sd.Slater(0.5), sd.Budgets(np.nan, 0, 0, 0), mode="printed"),
         ValueError, "budgets.P must be"),
        (lambda: tune(SIZES, sd.LocalBudgets(np.zeros((3, 5)))), ValueError,
         r"LocalBudgets.transitions must be a number or of shape \(2000, 5\)"),
    ],
)  # fmt: skip
def test_refused(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call()


def test_several_multipliers_ask_for_smaller_steps_and_more_regularisation():
    """(1 + Σμ_k)² ≤ 2 (1 + K Σμ_k²) and ≤ 2 (1 + (Kχ)²): E3 with K multipliers."""
    one, three = SIZES, SIZES._replace(K=3)
    alpha = [
        theorem4(s, sd.Slater(0.5), BUDGETS, mode="repaired").improvement.alpha
        for s in (one, three)
    ]
    assert alpha[1] == pytest.approx(alpha[0] * np.sqrt((1 + 20.0**2) / (1 + 60.0**2)))
    xi = [theorem3(s, sd.LocalBudgets(), BUDGETS, mode="repaired").dual.xi for s in (one, three)]
    assert xi[1] == pytest.approx(3 * xi[0])


@pytest.mark.parametrize("theorem", [theorem3, theorem4])
def test_theorems_know_their_modes(theorem):
    told = sd.Slater(0.5) if theorem is theorem4 else sd.LocalBudgets()
    with pytest.raises(ValueError, match="mode must be one of 'printed'"):
        theorem(SIZES, told, BUDGETS, mode="Printed")


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: CountBonus(np.array([np.nan]), np.zeros(1)), ValueError, "root must be finite"),
        (lambda: CountBonus(np.zeros(2), -np.ones(2)), ValueError, "tail must be >= 0"),
        (lambda: BernsteinBonus(np.inf), ValueError, "c must be finite"),
        (lambda: tune(SIZES, sd.Slater), TypeError, "knowledge must be a Slater or LocalBudgets"),
        (lambda: tune(SIZES, sd.Slater(1), noisy="no"), TypeError, "noisy must be a bool; got str"),
        (lambda: tune(SIZES, sd.Slater(1), (1, 1, 1, 1)), TypeError, "budgets must be a Budgets"),
        (
            lambda: tune(SIZES, sd.Slater(1), overrides={"lagged": "no"}),
            TypeError,
            "lagged must be",
        ),
        (
            lambda: tune(SIZES, sd.Slater(1), overrides={"alpha": 1e9}),
            ValueError,
            "alpha must be in",
        ),
        (
            lambda: tune(SIZES, sd.Slater(1), overrides={"L": 10**30}),
            ValueError,
            "L must be an int",
        ),
        (
            lambda: tune(SIZES, sd.Slater(1), overrides={"bonus_scale": np.inf}),
            ValueError,
            r"bonus_scale must be in \[0, 1e\+06\]; got inf",
        ),
        (lambda: tune(SIZES, sd.Slater(1), rho=9), ValueError, r"rho must be in \[1/3, 1/2\]"),
        (lambda: tune(SIZES, sd.Slater(1), rho=np.nan), ValueError, "rho must be a number; got na"),
        (
            lambda: theorem3(SIZES, sd.Slater(1), BUDGETS, mode="printed"),
            TypeError,
            "knowledge must be a LocalBudgets; got Slater",
        ),
        (
            lambda: theorem4(SIZES, sd.LocalBudgets(), BUDGETS, mode="printed"),
            TypeError,
            "knowledge must be a Slater; got LocalBudgets",
        ),
        (
            lambda: theorem4(SIZES, sd.Slater(1), BUDGETS, mode="printed", noisy=1),
            TypeError,
            "noisy must be a bool; got int",
        ),
        (
            lambda: sd.LocalBudgets("a"),
            TypeError,
            "transitions must be a number or an array of numbers; got str",
        ),
        (lambda: sd.LocalBudgets(0.1, ["0.2"]), TypeError, "utilities must be a number or an arr"),
        (lambda: sd.LocalBudgets(None), TypeError, "transitions must be a number .*; got NoneType"),
        (
            lambda: sd.LocalBudgets(0.1, [0.1, np.nan]),
            ValueError,
            "utilities must be finite and >= 0; got nan at index 1",
        ),
    ],
)
def test_refused_too(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("noisy", [False, True])
def test_every_theorem_keeps_what_it_was_told(mode, noisy):
    """Called directly, a theorem records noise and budgets as `tune` does."""
    even, gap, sizes = sd.LocalBudgets(1e-3, 1e-3), sd.Slater(0.5), Dimensions(4, 3)
    common = {"mode": mode, "noisy": noisy}
    pairs = [
        (sd.theorem1(SIZES, sizes, even, BUDGETS, **common),
         tune(SIZES, even, BUDGETS, dimensions=sizes, **common)),
        (sd.theorem2(SIZES, sizes, gap, BUDGETS, **common),
         tune(SIZES, gap, BUDGETS, dimensions=sizes, **common)),
        (theorem3(SIZES, even, BUDGETS, **common), tune(SIZES, even, BUDGETS, **common)),
        (theorem4(SIZES, gap, BUDGETS, **common), tune(SIZES, gap, BUDGETS, **common)),
    ]  # fmt: skip
    for direct, tuned in pairs:
        assert direct.noisy is noisy, direct.source
        assert direct.budgets == BUDGETS
        assert direct.record() == tuned.record()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dimensions", [None, Dimensions(4, 3)])
@pytest.mark.parametrize("knowledge", [sd.Slater(0.5), sd.LocalBudgets(1e-3, 1e-3)])
def test_recorded_parameters_are_read_again(mode, dimensions, knowledge):
    chosen = {"W": 70, "alpha": 0.2, "bonus_scale": 0.5}
    found = tune(
        SIZES, knowledge, BUDGETS, mode=mode, dimensions=dimensions, noisy=True, overrides=chosen
    )
    text = json.dumps(found.record())
    again = Parameters.from_record(json.loads(text), SIZES)
    assert json.dumps(again.record()) == text
    assert again.evaluation.LV.shape == (29, 1, 5)
