"""Parameters of PROPD-PPO in the linear-kernel setting: Theorems 1 and 2.

Assumption 1: P_h(x'|x,a) = ψ(x,a,x')ᵀ θ_h, r_h = φᵀ θ_r,h and g_h = φᵀ θ_g,h with ‖θ_h‖ ≤ √d1,
‖θ_r,h‖, ‖θ_g,h‖ ≤ √d2, ‖φ‖ ≤ 1 and ‖∫ψ V‖ ≤ √d1 for V in [0, 1]. Algorithm 2 estimates θ_h by a
ridge regression of V^τ_{h+1}(x^τ_{h+1}) on φ^τ_h = ∫ψ(x^τ_h, a^τ_h, x') V^τ_{h+1}(x') dx'.

Modes
-----
printed
    Exactly the theorem's formulas with C_1 = 1 and λ = 1, budgets in the norms of θ (eq. 6).
repaired
    Budget floor (E10), mirror-step constant (E3), dual step size and matching indices (E1, E5),
    explicit multipliers of the bonuses (E9), drift inside the bonus instead of LV (E8). Local
    budgets are max over (x, a) of the l1 change of P and of |change of g|.
practical
    Measured steps, restarts and a small bonus, the observed utility as dual signal. No theorem
    covers it, and it does not use local budgets: LV and spreads are zero.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.elementary import log
from safedrift.knowledge import (
    Budgets,
    Dimensions,
    Knowledge,
    LocalBudgets,
    Sizes,
    Slater,
    block_sums,
)
from safedrift.learners.propd_ppo.components import DualStep, LeastSquaresEvaluation, MirrorStep
from safedrift.learners.propd_ppo.linear_remarks import remarks
from safedrift.learners.propd_ppo.parameters import (
    Parameters,
    as_period,
    check_common,
    check_gap,
    descent_constant,
    power,
    practical_steps,
    regression_window,
    slater_steps,
    total_budgets,
)

__all__ = ["theorem1", "theorem2"]

# Measured, not derived, on five random blends of three scenarios (abrupt, gradual, periodic drift
# and random walks, M = 8000): what matters are short windows and long steps, because few unknowns
# are learnt fast. `lam` and `c` (bonus multipliers c (H-h) and c) hardly matter there.
PRACTICAL = {"alpha": 0.5, "L": 0.9, "eta": 0.03, "W": 0.35, "lam": 0.01, "c": 0.05}
ROWS_PER_UNKNOWN = 10  # a window holds at least so many episodes for each of the d unknowns


def theorem1(
    sizes: Sizes,
    dimensions: Dimensions,
    knowledge: LocalBudgets,
    budgets: Budgets | None,
    *,
    mode: str,
    p: float = 0.05,
    noisy: bool = False,
    W: int | None = None,
    lam: float | None = None,
) -> Parameters:
    """Theorem 1: linear-kernel CMDP, known local budgets; ξ > 0, χ = ∞, LV > 0.

    `W` and `lam` replace the theorem's, with all that is computed from them. Mode "practical" does
    not use the local budgets.

    Examples
    --------
    >>> import safedrift as sd
    >>> sizes, features = sd.Sizes(M=1000, H=5, S=20, A=3, K=1), sd.learners.Dimensions(4, 3)
    >>> used = sd.theorem1(sizes, features, sd.LocalBudgets(), None, mode="practical")
    >>> used.source, used.dual.chi
    ('Theorem 1', inf)
    """
    check_common(sizes, mode, p, noisy)
    M, H, K = sizes.known_M(), sizes.H, sizes.K
    _check.kind("knowledge", knowledge, LocalBudgets)
    _check.kind("dimensions", dimensions, Dimensions).check()
    if mode == "practical":
        improvement, dual, period = _practical_steps(sizes, dimensions, chi=np.inf)
    else:
        total, _ = total_budgets(budgets, M, d=dimensions.d, floored=mode == "repaired")
        alpha = total ** (1 / 3) / (H * M**0.5)
        if mode == "printed":
            xi = 2 * H * total ** (1 / 3) * M**-0.5
        else:
            xi = 8 * K * descent_constant(H) * alpha  # E3 with K multipliers
        improvement = MirrorStep(alpha, as_period(M**0.75 * power(total, -2 / 3), M))
        dual = DualStep(M**-0.5, xi, np.inf, lagged=mode == "repaired")
        period = as_period(regression_window(sizes, dimensions, budgets), M)
    W = period if W is None else W
    evaluation = _evaluation(sizes, dimensions, knowledge, W, lam, mode=mode, p=p, noisy=noisy)
    found = Parameters(improvement, dual, evaluation, "Theorem 1", mode, {}, noisy, budgets)
    return replace(found, remarks=remarks(found, sizes, dimensions))


def theorem2(
    sizes: Sizes,
    dimensions: Dimensions,
    knowledge: Slater,
    budgets: Budgets | None,
    *,
    mode: str,
    p: float = 0.05,
    noisy: bool = False,
    W: int | None = None,
    lam: float | None = None,
) -> Parameters:
    """Theorem 2: linear-kernel CMDP, known Slater gap; ξ = 0, χ = 2H/γ, LV = 0.

    `W` and `lam` replace the theorem's, with all that is computed from them.

    Examples
    --------
    >>> import safedrift as sd
    >>> sizes, features = sd.Sizes(M=1000, H=5, S=20, A=3, K=1), sd.learners.Dimensions(4, 3)
    >>> used = sd.theorem2(sizes, features, sd.Slater(0.5), None, mode="practical")
    >>> used.source, used.dual.chi  # 2 H / γ
    ('Theorem 2', 20.0)
    """
    check_common(sizes, mode, p, noisy)
    check_gap(knowledge, sizes.H)
    _check.kind("dimensions", dimensions, Dimensions).check()
    if mode == "practical":
        chi = 2 * sizes.H / knowledge.gamma
        improvement, dual, period = _practical_steps(sizes, dimensions, chi=chi)
    else:
        total, _ = total_budgets(
            budgets, sizes.known_M(), d=dimensions.d, floored=mode == "repaired"
        )
        improvement, dual = slater_steps(sizes, knowledge.gamma, total, mode)
        period = as_period(regression_window(sizes, dimensions, budgets), sizes.known_M())
    W = period if W is None else W
    evaluation = _evaluation(sizes, dimensions, knowledge, W, lam, mode=mode, p=p, noisy=noisy)
    found = Parameters(improvement, dual, evaluation, "Theorem 2", mode, {}, noisy, budgets)
    return replace(found, remarks=remarks(found, sizes, dimensions))


# ---------------------------------------------------------------- pieces


def _practical_steps(
    sizes: Sizes, dimensions: Dimensions, chi: float
) -> tuple[MirrorStep, DualStep, int]:
    """Measured constants; W is at least ten times the number of unknowns (and at most M)."""
    improvement, dual, W, _ = practical_steps(sizes, chi, PRACTICAL)
    return improvement, dual, min(max(W, ROWS_PER_UNKNOWN * dimensions.d), sizes.known_M())


def _evaluation(
    sizes: Sizes,
    dimensions: Dimensions,
    knowledge: Knowledge,
    W: int,
    lam: float | None,
    *,
    mode: str,
    p: float,
    noisy: bool,
) -> LeastSquaresEvaluation:
    W = _check.integer("W", W)
    ridge = PRACTICAL["lam"] if mode == "practical" else 1.0
    lam = _check.positive("lam", ridge if lam is None else lam)
    factors = _multipliers(sizes, dimensions, W, lam, mode=mode, p=p, noisy=noisy)
    drift = _drift_terms(sizes, dimensions, knowledge, W, mode=mode)
    return LeastSquaresEvaluation(W, lam, *factors, *drift)


def _multipliers(
    sizes: Sizes, dimensions: Dimensions, W: int, lam: float, *, mode: str, p: float, noisy: bool
) -> tuple[FloatArray, FloatArray]:
    """β_h and β_r,h, each (H,).

    Repaired (E9): V^τ_{h+1} - P_h^τ V^τ_{h+1} has conditional mean 0 and lies in an interval of
    length H-h, so it is sub-Gaussian with scale (H-h)/2. By Theorem 1 of Abbasi-Yadkori et al.
    (2011), for one step, channel and W-block, at all its episodes and with probability 1 - δ,

        ‖Σ φ_τ (V^τ - P^τ V^τ)‖²_{Λ⁻¹} ≤ ((H-h)/2)² (log det(Λ/λ) + 2 log(1/δ)),

    and log det(Λ/λ) ≤ d1 log(1 + W b² (H-h)² / (λ d1)). A union over steps, 1+K channels and
    W-blocks gives p/2. The ridge adds λ |φᵀΛ⁻¹θ| ≤ √(λ d1) ‖φ‖_{Λ⁻¹}. Rewards that are observed
    without noise have the ridge term √(λ d2) only; otherwise theirs is the same bound with scale
    1/2, ‖φ‖ ≤ 1 and the other p/2.
    """
    M, H, K = sizes.known_M(), sizes.H, sizes.K
    d1, d2, b = dimensions.d1, dimensions.d2, dimensions.largest
    span = np.arange(H - 1, -1, -1.0)  # H-h for h = 1..H
    if mode == "practical":
        return PRACTICAL["c"] * span, np.full(H, PRACTICAL["c"])
    if mode == "printed":
        beta = np.full(H, H * np.sqrt(dimensions.d * log(dimensions.d * W / p)))  # C_1 = 1
        return beta, beta.copy()
    events = H * (1 + K) * -(-M // W)
    sure = 2 * log(events / (p / 2))
    noise = span / 2 * np.sqrt(d1 * log(1 + W * (b * span) ** 2 / (lam * d1)) + sure)
    noise_r = np.sqrt(d2 * log(1 + W / (lam * d2)) + sure) / 2 if noisy else 0.0
    return noise + np.sqrt(lam * d1), np.full(H, noise_r + np.sqrt(lam * d2))


def _drift_terms(
    sizes: Sizes, dimensions: Dimensions, knowledge: Knowledge, W: int, *, mode: str
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """LV (blocks, K, H), window_drift_P (blocks, H) and window_drift_g (blocks, K, H).

    Printed: LV = B_P,E H² d1 √(d1 W) + B_g,E √(d2 W), budgets summed over steps, the same at every
    step. Repaired: |(P^m - P^τ) V| ≤ (H-h)/2 ‖P^m - P^τ‖₁ for V in [0, H-h], at most the sum of the
    changes inside the block (E8); see `LeastSquaresEvaluation` for the factor √n.
    """
    M, H, K = sizes.known_M(), sizes.H, sizes.K
    blocks = -(-M // W)
    LV, window_drift_P, window_drift_g = (
        np.zeros(s) for s in ((blocks, K, H), (blocks, H), (blocks, K, H))
    )
    if isinstance(knowledge, Slater):
        return LV, window_drift_P, window_drift_g
    transitions, utilities = (block_sums(change, W) for change in knowledge.per_episode(sizes))
    if mode == "printed":
        d1, d2 = dimensions.d1, dimensions.d2
        B_P, B_g = transitions.sum(axis=-1)[:, None], utilities.sum(axis=-1)
        LV += (B_P * H**2 * d1 * np.sqrt(d1 * W) + B_g * np.sqrt(d2 * W))[:, :, None]
    elif mode == "repaired":
        window_drift_P, window_drift_g = transitions * np.arange(H - 1, -1, -1.0) / 2, utilities
    return LV, window_drift_P, window_drift_g
