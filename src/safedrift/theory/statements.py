"""What the certificates state: the paper's lemmas in words and symbols, printed and repaired.

Where the paper is wrong (docs/errata.md) there are two forms. "Printed" is the paper's conclusion
for the numbers of a run, whatever constants the learner uses; "repaired" is what holds instead.
Writing μ for Σ_k μ_k, c = H(H+1)(2H+1)/48, and B'_P for the budget of the transitions in the norm
max over (x, a) of ‖·‖_1, the repaired statements are

    primal step     α c (1+μ)² per episode instead of α H² (1+μ)²/2               E3
    blocks          ⌈M/L⌉ blocks, drift of π* times max (1+μ)                     E2, E3
    visits          ‖Δd_h‖_1 ≤ Σ_{j<h} (max ‖ΔP_j‖_1 + max ‖Δπ*_j‖_1)            E13
    comparator      H² L (B'_P + B_*)                                             E13
    errors          drift of the window (H-h)/2 max ‖ΔP_h‖_1 + max |Δg_h|         E8
    potential       Σ min(1, ‖φ‖²) instead of Σ ‖φ‖²                              E12
    dual            b_m paired as the learner pairs it, μ^1 as it was             E5
    Slater          Σ (C - μ*) (b - V_g) ≤ δ                                      E1

A statement that reads differently in a setting has an entry "id/setting".
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FOR_ANY_LEARNER", "IDS", "STATEMENTS", "Statement", "statement"]

IDENTITY, INEQUALITY, PROBABILITY = "identity", "inequality", "probability"
STATISTIC = "statistic"  # fails on an honest run with probability FALSE_ALARM at most
ALGEBRA = "algebra"  # true of any numbers whatever: cannot fail


class Statement(NamedTuple):
    """One statement of the paper."""

    label: str  # what the paper calls it
    words: str
    maths: str
    kind: str
    erratum: str = ""


_ERRORS = "Bounds on model prediction error"
_PREDICTED = "ι lies between minus twice the bonus and the drift of the window, everywhere"
_OPTIMISM = "the estimate of a utility is not below its truth, but for drift"
_VISITS = "how far the states that the optimal policy visits move from one episode to the next"
_REPAIRED_VISITS = "repaired ‖Δd_h‖_1 ≤ Σ_{j<h} (max ‖ΔP_j‖_1 + max ‖Δπ*_j‖_1)"
_NEVER = "is never above log(1/false alarm)"
_PRICES = "no fixed price in hindsight does much better, at its best and on a grid"

STATEMENTS: dict[str, Statement] = {
    # The lines of the algorithms, done again from their definitions.
    "policy-step": Statement(
        "Alg. 1, lines 4-8",
        "the policy is the mirror step, uniform at a restart",
        "π_m ∝ π_{m-1} exp(α (Q_r + μ·Q_g)), π_m = 1/A where m opens an L-block",
        IDENTITY,
    ),
    "dual-step": Statement(
        "Alg. 1, line 12",
        "the multiplier is the projected gradient step",
        "μ^m = clip(μ^{m-1} + η (b - V_g^{m-1} - ξ μ^{m-1}), 0, χ)",
        IDENTITY,
    ),
    "evaluation/tabular": Statement(
        "Alg. 3, lines 3-8",
        "Q is estimated from the episodes of the window before m, no other",
        "Q^m = clip(ĉ + P̂V^m + bonus + LV, 0, H-h+1)",
        IDENTITY,
    ),
    "start-value": Statement(
        "Alg. 2, line 12; Alg. 3, line 8",
        "the value at the start is the mean of the estimates under the policy",
        "V^m = Σ_x initial(x) ⟨Q^m_1(x, ·), π_m(·|x)⟩",
        IDENTITY,
    ),
    "evaluation/linear": Statement(
        "Alg. 2, lines 3-12",
        "Q is estimated from the episodes of the window before m, no other",
        "Q^m = clip(⟨φ, u⟩ + ⟨φ^m, w⟩ + bonuses + LV, 0, H-h+1)",
        IDENTITY,
    ),
    # Identities of the proofs.
    "performance-difference": Statement(
        "Performance difference lemma with model prediction error",
        "what the estimate misses of the optimum, in every episode, for r and each g",
        "V*_c - V_c^m = Σ_h E*[⟨Q_c, π* - π⟩] + Σ_h E*[ι_c]",
        IDENTITY,
    ),
    "regret-decomposition": Statement(
        "Dynamic regret decomposition",
        "DR(M), with the oracle's optima, is the sum of its named terms",
        "DR = Σ E_ℓ⟨Q_r, π* - π⟩ + Σ (E_m - E_ℓ)⟨Q_r, π* - π⟩ + Σ E*[ι_r] - Σ ι_r(x, a) + S_r",
        IDENTITY,
    ),
    # What the run drew.
    "possible-path": Statement(
        "Alg. 1, lines 9 and 10",
        "every first state, action and successor has positive probability",
        "initial(x_1) > 0, π_m(a_h|x_h) > 0, P^m_h(x_{h+1}|x_h, a_h) > 0",
        IDENTITY,
    ),
    "observations": Statement(
        "Alg. 1, line 10",
        "rewards and utilities are the model's at the visited pairs; if noisy, 0 or 1",
        "r, g observed = r^m_h(x_h, a_h), g^m_h(x_h, a_h)",
        IDENTITY,
    ),
    "action-statistics": Statement(
        "Alg. 1, line 9",
        "actions are drawn from the reported policy",
        f"log wealth of bets against a_h ~ π_m(·|x_h) {_NEVER}",
        STATISTIC,
    ),
    "transition-statistics": Statement(
        "Model: transitions",
        "first states and successors are drawn from the world of their episode",
        f"log wealth of bets against x_{{h+1}} ~ P^m_h(·|x_h, a_h) {_NEVER}",
        STATISTIC,
    ),
    "signal-statistics": Statement(
        "Model: noisy rewards and utilities",
        "noisy signals have the model's means",
        f"log wealth of bets against r, g ~ Bernoulli(mean at (x_h, a_h)) {_NEVER}",
        STATISTIC,
    ),
    "return-statistics": Statement(
        "Definition of V_r and V_g",
        "returns have the exact values of the policies as their means",
        f"log wealth of bets against E[Σ_h r, g] = V_r^π, V_g^π {_NEVER}",
        STATISTIC,
    ),
    "martingale-r": Statement(
        "Martingale bound for dynamic regret",
        "the martingale of the rewards stays below Azuma's bound",
        "|S_r| ≤ 4 H √(H M log(4/p))",
        PROBABILITY,
    ),
    "martingale-g": Statement(
        "Martingale bound for constraint violation",
        "the martingale of each utility stays below Azuma's bound",
        "|S_g| ≤ 4 H √(H M log(4/p))",
        PROBABILITY,
    ),
    # Single steps.
    "one-step-descent": Statement(
        "One-step descent lemma",
        "what a mirror step between recorded policies loses at one state, against any comparator",
        "⟨Q, π* - π⟩ - (D(π*|π) - D(π*|π'))/α ≤ α (1+μ)² H²/2; sharp α (1+μ)² (H-h+1)²/8",
        INEQUALITY,
        "E3",
    ),
    "primal-step": Statement(
        "Primal step for dynamic regret",
        "what these mirror steps lose in one episode, along any states",
        "Σ_h (the above) ≤ α (1+μ)² H²/2; repaired α (1+μ)² H(H+1)(2H+1)/48",
        INEQUALITY,
        "E3",
    ),
    "visitation/tabular": Statement(
        "Smoothness of the visitation measure, tabular",
        _VISITS,
        f"max_x |Δd_h(x)| ≤ Σ_{{j≤h}} (‖ΔP_j‖_2 + max ‖Δπ*_j‖_1); {_REPAIRED_VISITS}",
        INEQUALITY,
        "E13",
    ),
    "visitation/linear": Statement(
        "Smoothness of the visitation measure, linear kernel",
        _VISITS,
        f"max_x |Δd_h(x)| ≤ Σ_{{j≤h}} (√d1 ‖Δθ_j‖ + max ‖Δπ*_j‖_1); {_REPAIRED_VISITS}",
        INEQUALITY,
        "E13",
    ),
    # Estimation.
    "prediction-error/slater": Statement(
        f"{_ERRORS}, {{setting}}, no local budgets",
        _PREDICTED,
        "-2 bonus - drift ≤ ι_c ≤ drift",
        PROBABILITY,
        "E8",
    ),
    "prediction-error/local": Statement(
        f"{_ERRORS}, {{setting}}, local budgets",
        _PREDICTED,
        "-2 bonus - drift ≤ ι_r ≤ drift, -2 bonus - 2 drift ≤ ι_g ≤ 0",
        PROBABILITY,
        "E8",
    ),
    "optimism/slater": Statement(
        f"{_ERRORS}, {{setting}}, no local budgets: ι_g from above",
        _OPTIMISM,
        "ι_g ≤ drift of the window",
        PROBABILITY,
        "E7, E8",
    ),
    "optimism/local": Statement(
        f"{_ERRORS}, {{setting}}, local budgets: sign of ι_g",
        _OPTIMISM,
        "ι_g ≤ 0",
        PROBABILITY,
        "E7, E8",
    ),
    "transition-bonus": Statement(
        "Bonus of the transitions covers their error, {setting}",
        "the estimate of P V^m is within its bonus, but for drift",
        "|P̂V_c^m - P V_c^m| ≤ Γ_c + drift of P",
        PROBABILITY,
        "E8, E9",
    ),
    "signal-bonus": Statement(
        "Bonus of rewards and utilities covers their error, {setting}",
        "the estimates of r and g are within their bonus, but for drift",
        "|ĉ - c| ≤ Γ + drift of c",
        PROBABILITY,
        "E8",
    ),
    "self-normalised": Statement(
        "Concentration of value targets (self-normalised process)",
        "the noise of the value targets is below β in the norm of Λ^-1",
        "‖Σ φ^τ (V^τ(x') - P^τ V^τ)‖_{Λ^-1} ≤ β",
        PROBABILITY,
    ),
    "elliptical-potential": Statement(
        "Elliptical potential lemma",
        "the squared norms of the features add up to no more than a logarithm, in every window",
        "log(det Λ_t/det Λ_1) ≤ Σ ‖φ‖²_{Λ^-1} ≤ 2 log(det Λ_t/det Λ_1); repaired with min(1, ·)",
        INEQUALITY,
        "E12",
    ),
    "projection": Statement(
        "Lemma D.1 of Jin et al.",
        "the features of a window, in its own norm, have squares that add up to at most d",
        "Σ φ_iᵀ Λ^-1 φ_i = d - λ tr Λ^-1 ≤ d",
        ALGEBRA,
    ),
    # Sums of steps.
    "primal-blocks": Statement(
        "Bound for the first term in (R.2)",
        "mirror steps over all blocks, seen from the states of each block's first optimum",
        "Σ E_ℓ⟨Q_r + μ·Q_g, π*_m - π_m⟩ ≤ H M log A/(α L) + α H² Σ (1+μ²) + H² L B_*; repaired "
        "H ⌈M/L⌉ log A/α + α c Σ (1+μ)² + max(1+μ) H² L B_*",
        INEQUALITY,
        "E2, E3",
    ),
    "comparator-drift": Statement(
        "Bound for the second term in (R.2)",
        "drift of transitions and optimal policies inside L-blocks",
        "Σ (E_m - E_ℓ)⟨Q_r, π* - π⟩ ≤ 2 H² L (√d1 B_P + B_*), without √d1 if tabular; repaired "
        "H² L (B'_P + B_*)",
        INEQUALITY,
        "E13",
    ),
    "regret-chain": Statement(
        "Dynamic regret before the dual step",
        "DR(M) is at most mirror steps, drift, dual terms, prediction errors and chance",
        "DR ≤ policy terms - Σ μ (V*_g - V_g^m) + Σ E*[ι_r + μ·ι_g] - Σ ι_r(x, a) + S_r",
        INEQUALITY,
        "E2, E3",
    ),
    "primal-violation": Statement(
        "Primal step for constraint violation",
        "the priced violation of the estimates is at most reward given up, policy terms and errors",
        "Σ μ (b - V_g^m) ≤ H M + policy terms + Σ E*[ι_r + μ·ι_g] - Σ ι_r(x, a) + S_r, printed "
        "with η H² (M+1) + (η ξ² - ξ) Σ μ² besides",
        INEQUALITY,
        "E2, E3",
    ),
    "dual-regret": Statement(
        "Dual step for dynamic regret",
        "raising the price of a met constraint costs little",
        "-Σ μ (V*_g - V_g^m) ≤ η H² (M+1) + (η ξ² - ξ) Σ μ²; repaired with (μ^1)²/(2η) and "
        "Σ μ |b paired - b|",
        INEQUALITY,
        "E5",
    ),
    "dual-violation/local": Statement(
        "Dual step for constraint violation",
        _PRICES,
        "Σ (μ - μ^m)(b - V_g^m) - (ξ M/2 + 1/(2η)) μ² ≤ η H² M for all μ",
        INEQUALITY,
        "E5",
    ),
    "dual-violation/slater": Statement(
        "Change of mu under the Slater condition",
        _PRICES,
        "Σ (μ - μ^m)(b - V_g^m) ≤ μ²/(2η) + η H² M/2 for μ in [0, χ]",
        INEQUALITY,
        "E5",
    ),
    # The optimum.
    "multiplier-bound": Statement(
        "Lemma 1; boundedness of mu*",
        "the optimal multipliers of every episode are at most H over its Slater gap",
        "Σ_k μ*_k ≤ H/γ_m",
        INEQUALITY,
    ),
    "slater-episode": Statement(
        "Constraint violation under Slater condition",
        "in every episode, a policy good in reward plus C times violation violates little",
        "b - V_g ≤ 2δ_m/C; repaired Σ_k (C - μ*_k)(b_k - V_g,k) ≤ δ_m",
        INEQUALITY,
        "E1",
    ),
    "slater-run": Statement(
        "Constraint violation under uniform Slater condition",
        "the same for the sums over all episodes",
        "Σ (b - V_g) ≤ 2δ/C; repaired Σ (C - μ*)(b - V_g) ≤ δ",
        INEQUALITY,
        "E1",
    ),
    # The theorems.
    "prediction-sum-r": Statement(
        "Model prediction error bound for dynamic regret, {setting}",
        "prediction errors of the run, under the optimal policies minus along the path",
        "Σ (E*[ι_r + μ·ι_g] - ι_r(x, a)) ≤ C E(W) + drift in the windows",
        PROBABILITY,
        "E8",
    ),
    "prediction-sum-g": Statement(
        "Model prediction error bound for constraint violation, {setting}",
        "prediction errors of each utility along the path",
        "-Σ ι_g(x, a) ≤ C E(W) + drift in the windows",
        PROBABILITY,
        "E8",
    ),
    "regret-bound": Statement(
        "Theorem {theorem}: bound on DR(M) before Õ",
        "the dynamic regret is below the explicit bound",
        "DR(M) ≤ the terms that safedrift theory prints",
        PROBABILITY,
        "E2, E3, E8, E13",
    ),
    "violation-bound": Statement(
        "Theorem {theorem}: bound on CV(M) before Õ",
        "the violation is below the explicit bound",
        "CV(M) ≤ the terms that safedrift theory prints",
        PROBABILITY,
        "E1, E2, E3, E8, E13",
    ),
}

IDS = tuple(dict.fromkeys(key.partition("/")[0] for key in STATEMENTS))

# Statements on policies, draws and optima: they need no estimates, so they apply to any learner.
FOR_ANY_LEARNER = (
    "possible-path",
    "observations",
    "action-statistics",
    "transition-statistics",
    "signal-statistics",
    "return-statistics",
    "visitation",
    "multiplier-bound",
)


def statement(id: str, *, linear: bool, local: bool) -> Statement:
    """Return what certificate `id` states in a setting."""
    words = ("linear" if linear else "tabular", "local" if local else "slater")
    for key in (id, *(f"{id}/{word}" for word in words)):
        if key in STATEMENTS:
            found = STATEMENTS[key]
            theorem = (1 if linear else 3) + (not local)
            setting = "linear kernel" if linear else "tabular"
            return found._replace(label=found.label.format(setting=setting, theorem=theorem))
    raise KeyError(id)
