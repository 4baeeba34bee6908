"""Caveats of a bound: steps its proof lacks, and what in the learner it does not cover."""

from __future__ import annotations

import math

from safedrift.knowledge import Knowledge, Slater
from safedrift.learners.propd_ppo.components import (
    CountBonus,
    CountEvaluation,
    LeastSquaresEvaluation,
)
from safedrift.learners.propd_ppo.parameters import Parameters, descent_constant
from safedrift.theory.bound_terms import Constants, Setting

__all__ = ["bonus_constant", "caveats_of"]


def caveats_of(
    s: Setting, found: Parameters, knowledge: Knowledge, quantity: str
) -> tuple[str, ...]:
    """Reasons why DR or CV need not be below the bound, one sentence each."""
    against = (*_on_form(s, quantity), *_on_constants(s, found, quantity))
    against += _on_learner(s, found, quantity)
    if quantity == "violation" and isinstance(knowledge, Slater):
        against += _on_gap(s, knowledge)
    return against


def bonus_constant(s: Setting, found: Parameters) -> float:
    """C_1 or C_4 for which the learner's bonus is at most the printed one; nan if there is none.

    Linear: the largest β, or H where that is larger (the proof needs H/β ≤ 1), against
    H √(d log(dW/p)). Tabular: the printed bonus is 2β (n+1)^(-1/2), the repaired one
    root n^(-1/2) + tail/(n+λ) ≤ √2 (root + tail) (n+1)^(-1/2) for n ≥ 1.
    """
    part, W = found.evaluation, s.steps.W
    if s.dimensions is not None and isinstance(part, LeastSquaresEvaluation):
        d = s.dimensions.d
        most = float(max(part.beta.max(), part.beta_r.max(), s.H))
        return most / (s.H * math.sqrt(d * math.log(d * W / s.p)))
    if not (isinstance(part, CountEvaluation) and isinstance(part.bonus, CountBonus)):
        return math.nan
    bonus = part.bonus
    most = float((bonus.root + bonus.tail).max())
    most *= 1 / 2 if bonus.shift >= 1 else 2**-0.5
    return most / (s.H * math.sqrt(s.S * math.log(s.S * s.A * W / s.p)))


def _on_constants(s: Setting, found: Parameters, quantity: str) -> tuple[str, ...]:
    """C_2, C_3, C_5 or C_6 below what the proofs give for the learner's bonus."""
    least = bonus_constant(s, found)
    needed = vars(Constants.followed(least, least))
    names = ("C2", "C3") if s.dimensions is not None else ("C5", "C6")
    return tuple(
        f"{name} = {getattr(s.constants, name):g} is below {needed[name]:.4g}, which the proof "
        "gives for the learner's bonus"
        for name in (names if quantity == "violation" else names[:1])
        if getattr(s.constants, name) < needed[name] * (1 - 1e-12)
    )


def _on_form(s: Setting, quantity: str) -> tuple[str, ...]:
    """What the displayed inequality of a theorem loses; nothing of it stays in form "repaired"."""
    B, tabular, violation = s.budgets, s.dimensions is None, quantity == "violation"
    c, charged = descent_constant(s.H), s.H**2 / 2
    held = {
        "K > 1: the paper has one constraint": s.K > 1,
        "drift of the comparator is charged for Q_r, not for μ Q_g (errata E2)": B.P + B.star > 0,
        f"the mirror step is charged {charged:g} where it costs {c:g} (errata E3)": (
            c > charged and not (tabular and s.slater and violation)
        ),
        "drift of P in the l2 norm is charged too little in the windows (errata E8)": (
            tabular and B.P > 0 and _l2_too_small(s)
        ),
        "drift of P in the l2 norm is charged too little in the L-blocks (errata E13)": (
            tabular and B.P > 0 and (s.H - 1) * math.sqrt(s.S) > 4 * s.H
        ),
        "a factor 2 on the drift in the windows is lost in the final display": (
            (not tabular and not s.slater and not violation and B.P + B.r > 0)
            or (tabular and not s.slater and violation and B.P + B.g > 0)
        ),
        "the martingale of the regret is left out": s.slater and not (violation and tabular),
        "V_g^m is taken for V_g of the policy played": s.slater and violation,
        "M/L and M/W are not integers, their blocks are": bool(s.M % s.steps.L or s.M % s.steps.W),
    }
    return () if s.repaired else tuple(reason for reason, holds in held.items() if holds)


def _on_learner(s: Setting, found: Parameters, quantity: str) -> tuple[str, ...]:
    """What no form of the bound covers, because of the learner's parts."""
    scale = found.overrides.get("bonus_scale", 1.0)
    part, dual = found.evaluation, found.dual
    theorem = (1 if s.dimensions is not None else 3) + s.slater
    local = not s.repaired and not s.slater and quantity == "violation"  # else terms say it
    least = 2 * s.H**2 * s.steps.alpha * (1 - 1e-12)
    misfit = found.source != f"Theorem {theorem}"
    held = {
        f"the parameters are those of {found.source}": misfit,
        "mode 'practical': its bonus is no confidence bound (errata E9)": found.mode == "practical",
        "the logarithm in beta covers neither steps nor windows (errata E9)": (
            found.mode == "printed"
        ),
        f"bonus_scale = {scale:g}: the bonus is no confidence bound": scale < 1,
        f"lam = {part.lam:g}: the proofs take lambda = 1": part.lam != 1,
        f"the dual signal is {dual.dual_signal!r}, in the proofs V_g^m": (
            dual.dual_signal != "optimistic"
        ),
        "b_m meets V_g^(m-1) in the dual step and b_m drifts (errata E5)": (
            not dual.lagged and s.budgets.b > 0
        ),
        "LV is too small in the l2 norm (errata E8)": (
            found.mode == "printed"
            and not s.slater
            and s.dimensions is None
            and s.budgets.P > 0
            and _l2_too_small(s)
        ),
        f"eta xi = {dual.eta * dual.xi:.3g} is above 1/2": local and dual.eta * dual.xi > 0.5,
        f"xi = {dual.xi:.3g} is below 2 H² alpha": local and dual.xi < least,
    }
    return tuple(reason for reason, holds in held.items() if holds)


def _l2_too_small(s: Setting) -> bool:
    """Whether |ΔP V| can exceed H ‖ΔP‖_2 for V in [0, H-1] (E8)."""
    return (s.H - 1) / s.H * math.sqrt((s.S**2 - s.S % 2) / (4 * s.S)) > 1


def _on_gap(s: Setting, knowledge: Slater) -> tuple[str, ...]:
    """The violation under Slater: no form of it is proved."""
    least = 2 * s.H / knowledge.gamma
    reasons = [
        "the lemma behind 2δ/χ is false as stated: proved is Σ (χ - μ*_m)(b_m - V_g) ≤ δ only "
        "(errata E1)"
    ]
    if s.steps.xi > 0:
        reasons.append(f"xi = {s.steps.xi:g}: the proof takes xi = 0")
    if s.steps.chi < least * (1 - 1e-12):
        reasons.append(f"chi = {s.steps.chi:g} is below 2H/gamma = {least:g} (errata E4)")
    return tuple(reasons)
