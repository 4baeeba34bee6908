"""Parameters of PROPD-PPO in the tabular setting: Theorems 3 and 4, one pure function each.

Algorithm 3 counts visits. Its bonus at a pair that was visited n times is 2β (n + λ)^(-1/2) as
printed, and root_h / √n + tail_h / (n + λ) as repaired (E9); the local variation term LV is added
to Q_g. The modes are those of `safedrift.learners.propd_ppo.parameters`.
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.elementary import log
from safedrift.knowledge import Budgets, LocalBudgets, Sizes, Slater, block_sums
from safedrift.learners.propd_ppo.components import (
    BernsteinBonus,
    CountBonus,
    CountEvaluation,
    DualStep,
    MirrorStep,
)
from safedrift.learners.propd_ppo.parameters import (
    Parameters,
    as_period,
    check_common,
    check_gap,
    descent_constant,
    power,
    practical_steps,
    slater_steps,
    total_budgets,
)

__all__ = ["check_rho", "theorem3", "theorem4"]

# Measured, not derived (docs/errata.md, E9, E14): Bernstein bonus with a small c, the
# observed utility as dual signal, restarts every few M^(2/3) episodes.
PRACTICAL = {"alpha": 0.15, "L": 1.7, "eta": 0.03, "W": 3.4, "lam": 0.004, "c": 0.05}


def theorem3(
    sizes: Sizes,
    knowledge: LocalBudgets,
    budgets: Budgets | None,
    *,
    mode: str,
    rho: float = 0.5,
    p: float = 0.05,
    noisy: bool = False,
    W: int | None = None,
    lam: float | None = None,
) -> Parameters:
    """Theorem 3: tabular CMDP, known local budgets; ξ > 0, χ = ∞, LV > 0.

    `W` and `lam` replace the theorem's, with all that is computed from them.

    Examples
    --------
    >>> import safedrift as sd
    >>> sizes = sd.Sizes(M=1000, H=5, S=5, A=3, K=1)
    >>> used = sd.theorem3(sizes, sd.LocalBudgets(), None, mode="practical")
    >>> used.source, used.dual.chi
    ('Theorem 3', inf)
    """
    check_common(sizes, mode, p, noisy)
    _, H, S, A, K = sizes
    M = sizes.known_M()
    _check.kind("knowledge", knowledge, LocalBudgets)
    check_rho(rho)
    if mode == "practical":
        improvement, dual, period, ridge = practical_steps(sizes, np.inf, PRACTICAL)
    else:
        total, delta = total_budgets(budgets, M, floored=mode == "repaired")
        alpha = H ** (-1 / 3) * M**-rho * total ** (1 / 3)
        eta = H ** (-1 / 3) * M**-0.5
        if mode == "printed":
            xi = 2 * H ** (5 / 3) * total ** (1 / 3) * M**-rho
        else:
            # (1 + Σμ_k)² ≤ 2 (1 + K Σμ_k²): E3 with K multipliers
            xi = 8 * K * descent_constant(H) * alpha
        L = as_period(H ** (-1 / 3) * M ** ((1 + rho) / 2) * power(total, -2 / 3), M)
        period = as_period(
            H ** (2 / 3) * S ** (2 / 3) * A ** (1 / 3) * M ** (2 / 3) * power(delta, -2 / 3), M
        )
        ridge = 1.0
        improvement = MirrorStep(alpha, L)
        dual = DualStep(eta, xi, np.inf, lagged=mode == "repaired")
    W = _check.integer("W", period if W is None else W)
    lam = _check.positive("lam", ridge if lam is None else lam)
    transitions, utilities = knowledge.per_episode(sizes)
    if mode == "printed":
        LV = _printed_lv(transitions, utilities, W)
    elif mode == "repaired":
        LV = _repaired_lv(transitions, utilities, W)
    else:  # LV would hide the constraint from the policy while the dual sees it (E14)
        LV = np.zeros((-(-M // W), K, H))
    bonus = _bonus(sizes, W, lam, mode=mode, p=p, noisy=noisy)
    evaluation = CountEvaluation(W, lam, bonus, LV)
    return Parameters(improvement, dual, evaluation, "Theorem 3", mode, {}, noisy, budgets)


def theorem4(
    sizes: Sizes,
    knowledge: Slater,
    budgets: Budgets | None,
    *,
    mode: str,
    p: float = 0.05,
    noisy: bool = False,
    W: int | None = None,
    lam: float | None = None,
) -> Parameters:
    """Theorem 4: tabular CMDP, known Slater gap; ξ = 0, χ = 2H/γ, LV = 0.

    `W` and `lam` replace the theorem's, with all that is computed from them.

    Examples
    --------
    >>> import safedrift as sd
    >>> sizes = sd.Sizes(M=1000, H=5, S=5, A=3, K=1)
    >>> used = sd.theorem4(sizes, sd.Slater(0.5), None, mode="practical")
    >>> used.source, used.dual.chi  # 2 H / γ
    ('Theorem 4', 20.0)
    """
    check_common(sizes, mode, p, noisy)
    check_gap(knowledge, sizes.H)
    _, H, S, A, K = sizes
    M = sizes.known_M()
    if mode == "practical":
        chi = 2 * H / knowledge.gamma
        improvement, dual, period, ridge = practical_steps(sizes, chi, PRACTICAL)
    else:
        total, delta = total_budgets(budgets, M, floored=mode == "repaired")
        improvement, dual = slater_steps(sizes, knowledge.gamma, total, mode)
        period = as_period(S ** (2 / 3) * A ** (1 / 3) * M ** (2 / 3) * power(delta, -2 / 3), M)
        ridge = 1.0
    W = _check.integer("W", period if W is None else W)
    lam = _check.positive("lam", ridge if lam is None else lam)
    bonus = _bonus(sizes, W, lam, mode=mode, p=p, noisy=noisy)
    evaluation = CountEvaluation(W, lam, bonus, np.zeros((-(-M // W), K, H)))
    return Parameters(improvement, dual, evaluation, "Theorem 4", mode, {}, noisy, budgets)


def check_rho(rho: float) -> None:
    """Fail unless ρ is one that Theorem 3 admits."""
    if not 1 / 3 <= _check.real("rho", rho) <= 1 / 2:
        _check.fail("rho", "in [1/3, 1/2]", rho)


# ---------------------------------------------------------------- bonus and LV


def _bonus(
    sizes: Sizes, W: int, lam: float, *, mode: str, p: float, noisy: bool
) -> CountBonus | BernsteinBonus:
    _, H, S, A, K = sizes
    M = sizes.known_M()
    left = np.arange(H, 0, -1.0)  # H-h+1 for h = 1..H
    if mode == "printed":
        beta = H * np.sqrt(S * log(S * A * W / p))  # C_4 = 1
        return CountBonus(np.full(H, 2 * beta), np.zeros(H), shift=lam)
    if mode == "practical":
        return BernsteinBonus(PRACTICAL["c"])
    # E9: |(P̂-P)V| ≤ (H-h) sqrt((S ln 2 + ln(2SAHM/p)) / (2n)) + λ (H-h)/(n+λ) for V ≤ H-h.
    # Deterministic rewards add λ/(n+λ); Bernoulli ones a Hoeffding term over 1+K signals too.
    span = left - 1
    root = span * np.sqrt((S * log(2) + log(2 * S * A * H * M / p)) / 2)
    if noisy:
        root = root + np.sqrt(log(2 * (1 + K) * S * A * H * M / p) / 2)
    return CountBonus(root, lam * left, shift=0.0)


def _printed_lv(transitions: FloatArray, utilities: FloatArray, W: int) -> FloatArray:
    """LV = B_P,E H + B_g,E, budgets summed over steps and the same at every step."""
    H = transitions.shape[1]
    B_P = block_sums(transitions, W).sum(axis=-1)[:, None]
    B_g = block_sums(utilities, W).sum(axis=-1)
    return np.repeat((B_P * H + B_g)[:, :, None], H, axis=2)


def _repaired_lv(transitions: FloatArray, utilities: FloatArray, W: int) -> FloatArray:
    """LV_h = (H-h)/2 max‖ΔP_h‖₁ + max|Δg_h| over the block (E8), with V_{h+1} ≤ H-h."""
    H = transitions.shape[1]
    span = np.arange(H - 1, -1, -1.0)
    return block_sums(transitions, W)[:, None, :] * span / 2 + block_sums(utilities, W)
