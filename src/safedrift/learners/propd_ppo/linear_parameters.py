"""Parameters of PROPD-PPO in the linear-kernel setting: Theorems 1 and 2, and what they are worth.

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
    Measured steps, restarts and a small bonus, a dual fed with the observed utility. No theorem
    covers it, and it does not use local budgets: LV and spreads are zero.

What a bonus can be worth. With n episodes in the window and features of norm at most f, the largest
eigenvalue of Λ is at most λ + n f² and the smallest at most λ + n f²/d, whatever was observed.
Hence every feature of norm f has ‖·‖_{Λ⁻¹} ≥ f / √(λ + n f²), and those in the least explored
direction f / √(λ + n f²/d). `remarks` compares the bonuses that follow with H.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.knowledge import (
    Budgets,
    Knowledge,
    LocalBudgets,
    Sizes,
    Slater,
    block_sums,
)
from safedrift.learners.propd_ppo.components import DualStep, LeastSquaresEvaluation, MirrorStep
from safedrift.learners.propd_ppo.parameters import (
    MODES,
    Parameters,
    as_period,
    descent_constant,
    power,
    practical_steps,
    slater_steps,
    total_budgets,
)

__all__ = ["Dimensions", "remarks", "theorem1", "theorem2"]


class Dimensions(NamedTuple):
    """Of the features: d1 for transitions, d2 for rewards, and how large ∫ψ V can be.

    `bound` is the largest ‖∫ψ(x,a,x') V(x') dx'‖ over (x, a) and V in [0, 1]; None is √d1, all that
    Assumption 1 promises. It is at least 1/√d1, because V = 1 gives θᵀ∫ψ = 1 with ‖θ‖ ≤ √d1.
    """

    d1: int
    d2: int
    bound: float | None = None

    @property
    def d(self) -> int:
        """max(d1, d2)."""
        return max(self.d1, self.d2)

    @property
    def largest(self) -> float:
        """`bound`, or √d1 where it is not given."""
        return float(np.sqrt(self.d1)) if self.bound is None else float(self.bound)


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
    """
    M, H, K = sizes.M, sizes.H, sizes.K
    _check.kind("knowledge", knowledge, LocalBudgets)
    check_told(dimensions, mode)
    if mode == "practical":
        improvement, dual, period = _preset(sizes, dimensions, chi=np.inf)
    else:
        total, _ = total_budgets(budgets, M, d=dimensions.d, floored=mode == "repaired")
        alpha = total ** (1 / 3) / (H * M**0.5)
        if mode == "printed":
            xi = 2 * H * total ** (1 / 3) * M**-0.5
        else:
            xi = 8 * K * descent_constant(H) * alpha  # E3 with K multipliers
        improvement = MirrorStep(alpha, as_period(M**0.75 * power(total, -2 / 3), M))
        dual = DualStep(M**-0.5, xi, np.inf, lagged=mode == "repaired")
        period = as_period(_window(sizes, dimensions, budgets), M)
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
    """
    _check.kind("knowledge", knowledge, Slater)
    check_told(dimensions, mode)
    if mode == "practical":
        chi = 2 * sizes.H / knowledge.gamma
        improvement, dual, period = _preset(sizes, dimensions, chi=chi)
    else:
        total, _ = total_budgets(budgets, sizes.M, d=dimensions.d, floored=mode == "repaired")
        improvement, dual = slater_steps(sizes, knowledge.gamma, total, mode)
        period = as_period(_window(sizes, dimensions, budgets), sizes.M)
    W = period if W is None else W
    evaluation = _evaluation(sizes, dimensions, knowledge, W, lam, mode=mode, p=p, noisy=noisy)
    found = Parameters(improvement, dual, evaluation, "Theorem 2", mode, {}, noisy, budgets)
    return replace(found, remarks=remarks(found, sizes, dimensions))


# ---------------------------------------------------------------- pieces

# Measured, not derived, on five random blends of three scenarios (abrupt, gradual, periodic drift
# and random walks, M = 8000): what matters are short windows and long steps, because few unknowns
# are learnt fast. `lam` and `c` (bonus multipliers c (H-h) and c) hardly matter there.
_PRACTICAL = {"alpha": 0.5, "L": 0.9, "eta": 0.03, "W": 0.35, "lam": 0.01, "c": 0.05}
_ROWS_PER_UNKNOWN = 10  # a window holds at least so many episodes for each of the d unknowns


def _preset(sizes: Sizes, dimensions: Dimensions, chi: float) -> tuple[MirrorStep, DualStep, int]:
    """Measured constants; W is at least ten times the number of unknowns (and at most M)."""
    improvement, dual, W, _ = practical_steps(sizes, chi, _PRACTICAL)
    return improvement, dual, min(max(W, _ROWS_PER_UNKNOWN * dimensions.d), sizes.M)


def check_told(dimensions: Dimensions, mode: str) -> None:
    _check.choice("mode", mode, MODES)
    d1, d2, bound = _check.kind("dimensions", dimensions, Dimensions)
    root = float(np.sqrt(_check.integer("d1", d1)))
    _check.integer("d2", d2)
    if bound is not None:
        rounding = 1 + 1e-9
        if not 1 / root / rounding <= _check.real("bound", bound) <= root * rounding:
            _check.fail("bound", f"in [{1 / root:.3g}, {root:.3g}], from 1/√d1 to √d1", bound)


def _window(sizes: Sizes, dimensions: Dimensions, budgets: Budgets | None) -> float:
    """W = d^(-1/4) H^(-1) M^(1/2) B_Δ^(-1/2) before rounding; infinite where nothing drifts.

    There is no floor on B_Δ here, in any mode: it would let a world without drift forget its data
    every M^(3/4)/(d^(1/4) H) episodes, and α, which needs the floor of E10, does not depend on W.
    """
    _, delta = total_budgets(budgets, sizes.M, floored=False)
    return float(dimensions.d**-0.25 / sizes.H * sizes.M**0.5) * power(delta, -0.5)


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
    ridge = _PRACTICAL["lam"] if mode == "practical" else 1.0
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
    M, H, K = sizes.M, sizes.H, sizes.K
    d1, d2, b = dimensions.d1, dimensions.d2, dimensions.largest
    _check.positive("p", p, upper=1.0, closed=False)
    span = np.arange(H - 1, -1, -1.0)  # H-h for h = 1..H
    if mode == "practical":
        return _PRACTICAL["c"] * span, np.full(H, _PRACTICAL["c"])
    if mode == "printed":
        beta = np.full(H, H * np.sqrt(dimensions.d * np.log(dimensions.d * W / p)))  # C_1 = 1
        return beta, beta.copy()
    events = H * (1 + K) * -(-M // W)
    sure = 2 * np.log(events / (p / 2))
    noise = span / 2 * np.sqrt(d1 * np.log1p(W * (b * span) ** 2 / (lam * d1)) + sure)
    noise_r = np.sqrt(d2 * np.log1p(W / (lam * d2)) + sure) / 2 if noisy else 0.0
    return noise + np.sqrt(lam * d1), np.full(H, noise_r + np.sqrt(lam * d2))


def _drift_terms(
    sizes: Sizes, dimensions: Dimensions, knowledge: Knowledge, W: int, *, mode: str
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """LV (blocks, K, H), spread_P (blocks, H) and spread_g (blocks, K, H).

    Printed: LV = B_P,E H² d1 √(d1 W) + B_g,E √(d2 W), budgets summed over steps, the same at every
    step. Repaired: |(P^m - P^τ) V| ≤ (H-h)/2 ‖P^m - P^τ‖₁ for V in [0, H-h], at most the sum of the
    changes inside the block (E8); see `LeastSquaresEvaluation` for the factor √n.
    """
    M, H, K = sizes.M, sizes.H, sizes.K
    blocks = -(-M // W)
    LV, spread_P, spread_g = (np.zeros(s) for s in ((blocks, K, H), (blocks, H), (blocks, K, H)))
    if isinstance(knowledge, Slater):
        return LV, spread_P, spread_g
    transitions, utilities = (block_sums(change, W) for change in knowledge.per_episode(sizes))
    if mode == "printed":
        d1, d2 = dimensions.d1, dimensions.d2
        B_P, B_g = transitions.sum(axis=-1)[:, None], utilities.sum(axis=-1)
        LV += (B_P * H**2 * d1 * np.sqrt(d1 * W) + B_g * np.sqrt(d2 * W))[:, :, None]
    elif mode == "repaired":
        spread_P, spread_g = transitions * np.arange(H - 1, -1, -1.0) / 2, utilities
    return LV, spread_P, spread_g


# ---------------------------------------------------------------- what the constants are worth


def remarks(found: Parameters, sizes: Sizes, dimensions: Dimensions) -> tuple[str, ...]:
    """Say which constants of the linear-kernel setting say nothing, one sentence each.

    Looked at: α = 0 (E10); a window without past episodes or with fewer than unknowns; bonuses, LV
    and spreads of at least H, the largest value there is (E8, E9). Bonuses are bounded from below
    for all data a full window can hold, so a sentence is true whatever happens; silence promises
    nothing.
    """
    part = found.evaluation
    if not isinstance(part, LeastSquaresEvaluation):
        raise TypeError(f"evaluation must be a LeastSquaresEvaluation; got {type(part).__name__}")
    said = []
    if found.improvement.alpha == 0:
        said.append("alpha = 0: the policy never leaves the uniform one (errata E10)")
    past = min(part.W, sizes.M) - 1
    if past == 0:
        said.append(_on_empty_window(found, part.W, sizes, dimensions))
    elif past < dimensions.d:
        said.append(
            f"W = {part.W}: a full window holds {past} past episode{'s' * (past > 1)}, fewer than "
            f"the d = {dimensions.d} unknowns of a regression"
        )
    return (*said, *_on_bonus(part, sizes, dimensions), *_on_drift(found, part, sizes, dimensions))


def _on_empty_window(found: Parameters, W: int, sizes: Sizes, dimensions: Dimensions) -> str:
    shown = f"{W}"
    if found.mode != "practical" and "W" not in found.overrides:
        formula = _window(sizes, dimensions, found.budgets)
        shown = f"{formula:.3g} (unrounded)" if as_period(formula, sizes.M) == W else shown
    return f"W = {shown}: a window of one episode holds no past episode, no estimate ever uses data"


def _on_bonus(part: LeastSquaresEvaluation, sizes: Sizes, dimensions: Dimensions) -> list[str]:
    H, past = sizes.H, min(part.W, sizes.M) - 1
    # (β f, n f², d) at the first step: ∫ψ V with V ≤ H-1, then φ.
    f, beta, beta_r = dimensions.largest * (H - 1), float(part.beta[0]), float(part.beta_r[0])
    both = [(beta * f, past * f**2, dimensions.d1), (beta_r, past, dimensions.d2)]
    everywhere = sum(top / np.sqrt(part.lam + seen) for top, seen, _ in both)
    somewhere = max(top / np.sqrt(part.lam + seen / d) for top, seen, d in both)
    if everywhere >= H:
        found = f"with the largest features has bonuses of at least {everywhere:.3g} in sum"
    elif somewhere >= H:
        found = (
            "with the largest features in the least explored direction has a bonus of at least "
            f"{somewhere:.3g}"
        )
    else:
        return []
    when = f"whatever the {past} past episodes of a full window visited" if past else "without data"
    return [
        f"beta = {beta:.3g}, beta_r = {beta_r:.3g}: {when}, a first-step pair {found}, not less "
        f"than H = {H}; its estimate says nothing (errata E9)"
    ]


def _on_drift(
    found: Parameters, part: LeastSquaresEvaluation, sizes: Sizes, dimensions: Dimensions
) -> list[str]:
    H, lam, f = sizes.H, part.lam, dimensions.largest * (sizes.H - 1)
    past = np.minimum(part.W, sizes.M - np.arange(0, sizes.M, part.W))[:, None] - 1
    moved_P = part.spread_P[:, :1] * f / np.sqrt(lam + past * f**2)
    moved_g = part.spread_g[:, :, 0] / np.sqrt(lam + past)
    said = []
    for name, most, meaning in (
        ("LV", part.LV.max(axis=2), "Q_g is at its cap unless estimate and bonus are below zero"),
        ("bonus for drift", np.sqrt(past) * (moved_P + moved_g),
         "reached at the end of the block by first-step pairs with features of the largest norm"),
    ):  # fmt: skip
        per_block = most.max(axis=1)
        if per_block.max() >= H:
            said.append(
                f"{name} = {per_block.max():.3g} in block {per_block.argmax() + 1} of "
                f"{found.source} is at least H = {H} (it is in {(per_block >= H).sum()} of "
                f"{per_block.size} blocks): {meaning}, the estimate of the constraint says nothing "
                "(errata E8)"
            )
    return said
