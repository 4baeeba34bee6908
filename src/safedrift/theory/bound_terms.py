"""The terms of the explicit bounds in the proofs of Theorems 1 to 4.

Notation: T = HM, B_* the variation of the optimal policies, E(W) the estimation error

    linear kernel   dH²M W^(-1/2) √(log(dH²W+1) log(dW/p)),
    tabular         MH²S √(A/W) √(log(SAW/p) log(M+1)).

Regret, printed (local budgets; under Slater α H² M(1+χ²), drift factors 2+χ and no martingale):

    H M log A/(αL) + αH²M + H²L(2√d1 B_P + 3B_*) + ηH²(M+1) + Σ_m (αH² + ηξ² - ξ)|μ^m|²
    + 4H√(T log(4/p)) + C E(W) + drift inside the data windows.

Violation under local budgets: for every μ ≥ 0, μ CV - (ξM/2 + 1/(2η)) μ² ≤ R0 + μ R1, hence

    CV ≤ R1 + 2√(A0 R0),   A0 = ξM/2 + 1/(2η).

Violation under Slater: CV ≤ 2δ/χ (the last lemma of the appendix, false as stated: errata E1).

Form "repaired" puts in what the printed inequalities lose:

- blocks are counted as ⌈M/L⌉ and ⌈M/W⌉;
- the mirror step costs αc(1+Σμ_k)² per episode, c = H(H+1)(2H+1)/48 (E3);
- drift of the comparator is charged for Q_r + Σμ_k Q_g,k: a factor 1 + Kμ̄ (E2), where μ̄ is a
  bound of the multipliers, min(χ, max(H/ξ, ηH), ηH(M+1)), so at most χ under Slater;
- tabular drift of P is in the l2 norm and ‖·‖_1 ≤ √S ‖·‖_2: max(1, √S/2) in the windows (E8) and
  max(2, √S/2) in the visitation probabilities (E13), whose printed 2H² covers √S H(H-1)/2 else;
- the factor 2 on the drift of the windows that the proofs have and two final displays lose;
- the printed tabular LV is added at every step: 1+H times the drift and not twice (E8);
- the martingale, and under Slater the error V_g^m - V_g of the played policies at weight χ;
- the first dual step, which may be made before anything is seen (E5): M+1 steps for M.

It takes K constraints: (1+Σμ_k)² ≤ (1+Kχ)² or 2(1+KΣμ_k²), and KηH² for K dual steps. A violation
bound is for each constraint by itself. Form "printed" is the paper's: one constraint.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from safedrift.knowledge import Budgets, Dimensions
from safedrift.learners.propd_ppo.parameters import descent_constant

__all__ = ["Constants", "Setting", "Steps", "Term", "regret_terms", "violation_terms"]


@dataclass(frozen=True)
class Constants:
    """The absolute constants of the paper, none of which it names.

    C1 and C4 scale the bonuses ("> 1") and enter no term by themselves. C2 and C3 (linear), C5 and
    C6 (tabular) scale E(W) in regret and violation.

    Examples
    --------
    >>> import safedrift as sd
    >>> sizes, gap = sd.Sizes(M=100_000, H=5, S=5, A=3, K=1), sd.Slater(0.5)
    >>> drift = sd.Budgets(P=1.0, r=1.0, g=1.0, star=1.0)
    >>> used = sd.theorem4(sizes, gap, drift, mode="printed")
    >>> small, _ = sd.theory.bounds(sizes, gap, drift, used, constants=sd.theory.Constants(C1=0.1))
    >>> large, _ = sd.theory.bounds(sizes, gap, drift, used)
    >>> small.total <= large.total
    True
    """

    C1: float = 1.0
    C2: float = 1.0
    C3: float = 1.0
    C4: float = 1.0
    C5: float = 1.0
    C6: float = 1.0

    @classmethod
    def followed(cls, C1: float = 1.0, C4: float = 1.0) -> Constants:
        """Constants that follow from those of the bonuses: C2 = C3 = 4√2 C1 and C5 = C6 = 8 C4.

        Linear: twice the bonuses, each of two sums at most β M W^(-1/2) H √(2d log(dH²W+1)).
        Tabular: 4β Σ (n+1)^(-1/2) with Σ ≤ 2√(SAW) per step and block (and no log(M+1)).
        """
        return cls(C1, 4 * 2**0.5 * C1, 4 * 2**0.5 * C1, C4, 8 * C4, 8 * C4)


class Steps(NamedTuple):
    """The parameters that enter a bound; L and W need not be integers."""

    alpha: float
    L: float
    eta: float
    xi: float
    chi: float
    W: float


@dataclass(frozen=True)
class Term:
    """One summand of a bound: its number, its formula and where the paper has it.

    Examples
    --------
    >>> import safedrift as sd
    >>> sizes, gap = sd.Sizes(M=100_000, H=5, S=5, A=3, K=1), sd.Slater(0.5)
    >>> drift = sd.Budgets(P=1.0, r=1.0, g=1.0, star=1.0)
    >>> used = sd.theorem4(sizes, gap, drift, mode="printed")
    >>> regret, _ = sd.theory.bounds(sizes, gap, drift, used)
    >>> regret.largest.name, regret.largest.source
    ('estimation', "Lemma 'Model prediction error bound'")
    """

    name: str
    value: float
    formula: str
    source: str


@dataclass(frozen=True)
class Setting:
    """All numbers that the terms need; M, L and W need not be integers."""

    M: float
    H: int
    S: int
    A: int
    K: int
    budgets: Budgets
    steps: Steps
    slater: bool
    repaired: bool
    dimensions: Dimensions | None
    p: float
    constants: Constants
    summed_lv: bool  # whether LV sums its budget over steps, as printed

    @property
    def multiplier(self) -> float:
        """μ̄: no multiplier exceeds it, because μ ← clip(μ + η(b - V_g - ξμ), 0, χ), b - V_g ≤ H."""
        _, _, eta, xi, chi, _ = self.steps
        settled = max(self.H / xi, eta * self.H) if xi > 0 else math.inf
        return min(chi, settled, eta * self.H * (self.M + 1))

    @property
    def price(self) -> float:
        """1 + Kμ̄ in the repaired form, 1 as printed: what Q_r + Σμ_k Q_g,k is worth (E2)."""
        return 1 + self.K * self.multiplier if self.repaired else 1.0


def _blocks(s: Setting, length: float) -> float:
    return float(math.ceil(s.M / length)) if s.repaired else s.M / length


def over(top: float, bottom: float) -> float:
    """top / bottom with 0 / 0 = 0, infinite where a step size is zero (E10)."""
    if bottom > 0:
        return top / bottom
    return math.inf if top > 0 else 0.0


def _times(coefficient: float, factor: float) -> float:
    """coefficient · factor with 0 · ∞ = 0."""
    return coefficient * factor if coefficient > 0 else 0.0


# ---------------------------------------------------------------- policy


def _restarts(s: Setting) -> Term:
    value = over(s.H * _blocks(s, s.steps.L) * math.log(s.A), s.steps.alpha)
    formula = "H ⌈M/L⌉ log A / α" if s.repaired else "H M log A / (α L)"
    return Term("policy restarts", value, formula, "Lemma 'Bound for the first term in (R.2)'")


def _descent(s: Setting, *, cubed: bool = False) -> Term:
    """All but the |μ|² of local budgets; `cubed` is how the violation proof of Theorem 4 has it."""
    alpha, chi = s.steps.alpha, s.steps.chi
    if s.repaired:
        c = descent_constant(s.H)
        size = _times(alpha * c * s.M, (1 + s.K * chi) ** 2) if s.slater else 2 * alpha * c * s.M
        formula = "α c M (1+Kχ)²" if s.slater else "2 α c M"
    else:
        size = alpha * s.H ** (3 if cubed else 2) * s.M
        size = _times(size, 1 + chi**2) if s.slater else size
        formula = f"α {'H³' if cubed else 'H²'} M" + " (1+χ²)" * s.slater
    return Term("mirror steps", size, formula, "Lemma 'Primal step'; errata E3")


def _comparator(s: Setting) -> list[Term]:
    """Drift of P and of the optimal policy inside an L-block."""
    L, priced = s.steps.L, " (1+Kμ̄)" * s.repaired
    if s.dimensions is not None:
        norm, text = 2 * math.sqrt(s.dimensions.d1), "2√d1"
    else:
        norm = max(2.0, math.sqrt(s.S) / 2) if s.repaired else 2.0
        text = "max(2, √S/2)" if s.repaired else "2"
    scale = s.H**2 * L
    source = "Lemma 'Bound for the second term in (R.2)'; errata E2"
    return [
        Term(
            "drift of transitions in L-blocks",
            _times(scale * norm * s.budgets.P, s.price),
            f"{text} H² L B_P{priced}",
            source,
        ),
        Term(
            "drift of optimal policies in L-blocks",
            _times(3 * scale * s.budgets.star, s.price),
            f"3 H² L B_*{priced}",
            source,
        ),
    ]


# ---------------------------------------------------------------- dual


def _dual(s: Setting) -> Term:
    K = s.K if s.repaired else 1
    value = K * s.steps.eta * s.H**2 * (s.M + 1)
    return Term("dual steps", value, f"{'K ' * s.repaired}η H² (M+1)", "Lemma 'Dual step'")


def _quadratic(s: Setting, *, violation: bool = False) -> Term:
    """What is left of Σ_m |μ^m|², at most μ̄² each: zero wherever its coefficient is not positive.

    As printed αH² + ηξ² - ξ (under Slater ηξ² - ξ: αH² is in the mirror steps). In the violation
    proof the dual step leaves ηξ² - ξ/2 and not ηξ² - ξ, which the repaired form takes.
    """
    alpha, _, eta, xi, _, _ = s.steps
    source = "Lemma 'Dual step'; errata E3"
    if s.repaired:
        mirror = 0.0 if s.slater else 2 * alpha * descent_constant(s.H) * s.K
        left = mirror + eta * xi**2 - (xi / 2 if violation else xi)
        formula = f"[{'2Kαc + ' * (not s.slater)}ηξ² - {'ξ/2' if violation else 'ξ'}]_+ K (M+1) μ̄²"
        return Term("multipliers", _times(left, s.K * (s.M + 1) * s.multiplier**2), formula, source)
    left = (0.0 if s.slater else alpha * s.H**2) + eta * xi**2 - xi
    formula = f"[{'αH² + ' * (not s.slater)}ηξ² - ξ]_+ (M+1) μ̄²"
    return Term("multipliers", _times(left, (s.M + 1) * s.multiplier**2), formula, source)


# ---------------------------------------------------------------- estimation


def _martingale(s: Setting, name: str = "chance") -> Term:
    value = 4 * math.sqrt(s.H**3 * s.M * math.log(4 / s.p))
    return Term(name, value, "4 H √(H M log(4/p))", "Lemma 'Martingale bound'")


def _estimation(s: Setting, *, utility: bool = False, name: str = "estimation") -> Term:
    """C E(W) of the module docstring, M W^(-1/2) counted as ⌈M/W⌉ W^(1/2) where repaired."""
    W, C = s.steps.W, s.constants
    rows = _blocks(s, W) * math.sqrt(W)
    many = "⌈M/W⌉ W^(1/2)" if s.repaired else "M W^(-1/2)"
    source = "Lemma 'Model prediction error bound'"
    if s.dimensions is None:
        scale, sign = (C.C6, "C6") if utility else (C.C5, "C5")
        logs = math.log(s.S * s.A * W / s.p) * math.log(s.M + 1)
        value = scale * rows * s.H**2 * s.S * math.sqrt(s.A) * math.sqrt(logs)
        return Term(name, value, f"{sign} H² S √A {many} √(log(SAW/p) log(M+1))", source)
    scale, sign, d = *((C.C3, "C3") if utility else (C.C2, "C2")), s.dimensions.d
    logs = math.log(d * s.H**2 * W + 1) * math.log(d * W / s.p)
    value = scale * d * s.H**2 * rows * math.sqrt(logs)
    return Term(name, value, f"{sign} d H² {many} √(log(dH²W+1) log(dW/p))", source)


def _windows(s: Setting, P: float, r: float, g: float, where: str = "") -> list[Term]:
    """Drift inside the data windows: `P` times B_P and `r` B_r + `g` B_g, in their units."""
    W, B, source = s.steps.W, s.budgets, "Lemma 'Model prediction error bound'; errata E8"
    if s.dimensions is None:
        norm = max(1.0, math.sqrt(s.S) / 2) if s.repaired else 1.0
        unit_P, form_P = norm * s.H * W, "H W" + " max(1, √S/2)" * s.repaired
        unit, form = W, "W"
    else:
        d1, d2 = s.dimensions.d1, s.dimensions.d2
        unit_P, unit = s.H**3 * d1**1.5 * W**1.5, s.H * d2**0.5 * W**1.5
        form_P, form = "H³ d1^(3/2) W^(3/2)", "H d2^(1/2) W^(3/2)"
    moved = " + ".join(f"{c:.4g} {b}" for c, b in ((r, "B_r"), (g, "B_g")) if c)
    signals = _times(B.r, r) + _times(B.g, g)
    return [
        Term(
            f"drift of transitions in windows{where}",
            _times(B.P * unit_P, P),
            f"{P:.4g} B_P {form_P}",
            source,
        ),
        Term(
            f"drift of rewards and utilities in windows{where}",
            signals * unit,
            f"({moved}) {form}",
            source,
        ),
    ]


# ---------------------------------------------------------------- assembly


def regret_terms(s: Setting) -> list[Term]:
    """Terms whose sum bounds DR(M)."""
    chi, K = s.steps.chi, s.K if s.repaired else 1
    theorem1 = not s.slater and s.dimensions is not None
    twice = 1.0 if theorem1 and not s.repaired else 2.0
    priced = (2 + K * chi, 2.0, chi) if s.slater else (twice, twice, 0.0)
    found = [_restarts(s), _descent(s), *_comparator(s), _dual(s), _quadratic(s), _estimation(s)]
    if s.repaired or not s.slater:
        found.append(_martingale(s))
    return [*found, *_windows(s, *priced)]


def violation_terms(s: Setting) -> list[Term]:
    """Terms whose sum bounds CV(M), or would if the last lemma of the appendix were true (E1)."""
    return _slater_violation(s) if s.slater else _local_violation(s)


def _scaled(terms: list[Term], factor: Callable[[float], float], text: str) -> list[Term]:
    return [replace(t, value=factor(t.value), formula=f"{text} · {t.formula}") for t in terms]


def _utilities(s: Setting, moved: float) -> list[Term]:
    """Σ_m (V_g^m - V_g) of the policies played, with `moved` times the drift of the windows."""
    found = _estimation(s, utility=True, name="estimation of utilities")
    windows = _windows(s, moved, 0.0, moved, ", utilities")
    return [found, *windows, _martingale(s, "chance, utilities")]


def _local_violation(s: Setting) -> list[Term]:
    """R1 + 2√(A0 R0); each term of R0 is shown with its share of the root, 2√(A0/R0) times it."""
    _, _, eta, xi, _, _ = s.steps
    K = s.K if s.repaired else 1
    inner = [
        Term("reward given up", s.H * s.M, "H M", "Lemma 'Primal step for constraint violation'"),
        _restarts(s),
        _descent(s),
        *_comparator(s),
    ]
    inner += [] if s.repaired else [_dual(s)]  # stands for ηξ²Σ|μ|², which `_quadratic` has
    count, text = (s.M + 1, "K η H² (M+1)") if s.repaired else (s.M, "η H² M")
    second = Term(
        "dual steps, comparator",
        K * eta * s.H**2 * count,
        text,
        "Lemma 'Dual step for constraint violation'",
    )
    inner += [
        second,
        _quadratic(s, violation=True),
        _estimation(s),
        _martingale(s),
        *_windows(s, 2.0, 2.0, 0.0),
    ]
    A0, R0 = xi * s.M / 2 + over(1.0, 2 * eta), sum(t.value for t in inner)
    root = 2 * math.sqrt(A0 / R0) if math.isfinite(A0) and math.isfinite(R0) else math.inf

    def share(value: float) -> float:
        return _times(value, root) if math.isfinite(R0) else (math.inf if math.isinf(value) else 0)

    once = 2.0
    if s.dimensions is None:
        once = (1.0 + s.H if s.summed_lv else 2.0) if s.repaired else 1.0
    return [*_scaled(inner, share, "2√(A0/R0)"), *_utilities(s, once)]


def _slater_violation(s: Setting) -> list[Term]:
    """2δ/χ term by term."""
    _, _, eta, _, chi, _ = s.steps
    K = s.K if s.repaired else 1
    tabular = s.dimensions is None
    count, text = (s.M + 1, "K η H² (M+1)/2") if s.repaired else (s.M, "η H² M/2")
    inner = [_restarts(s), _descent(s, cubed=tabular), *_comparator(s), _estimation(s)]
    inner += _windows(s, 2 + K * chi, 2.0, chi)
    inner += [
        Term("dual start", over(chi**2, 2 * eta), "χ²/(2η)", "eq. 'change of mu'"),
        Term("dual steps", K * eta * s.H**2 * count / 2, text, "eq. 'change of mu'"),
    ]
    inner += [_martingale(s)] if tabular or s.repaired else []
    played = _utilities(s, 1.0) if s.repaired else []
    found = _scaled(inner, lambda value: over(2 * value, chi), "2/χ")
    return [*found, *_scaled(played, lambda value: 2 * value, "2")]
