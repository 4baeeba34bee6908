"""Which constants of the linear-kernel setting are vacuous, in sentences.

What a bonus can be worth. With n episodes in the window and features of norm at most f, the largest
eigenvalue of Λ is at most λ + n f² and the smallest at most λ + n f²/d, whatever was observed.
Hence every feature of norm f has ‖·‖_{Λ⁻¹} ≥ f / √(λ + n f²), and those in the least explored
direction f / √(λ + n f²/d). `remarks` compares the bonuses that follow with H.
"""

from __future__ import annotations

import numpy as np

from safedrift.knowledge import Dimensions, Sizes
from safedrift.learners.propd_ppo.components import LeastSquaresEvaluation
from safedrift.learners.propd_ppo.parameters import Parameters, as_period, regression_window

__all__ = ["remarks"]


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
    past = min(part.W, sizes.known_M()) - 1
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
        formula = regression_window(sizes, dimensions, found.budgets)
        shown = f"{formula:.3g} (unrounded)" if as_period(formula, sizes.known_M()) == W else shown
    return f"W = {shown}: a window of one episode holds no past episode, no estimate ever uses data"


def _on_bonus(part: LeastSquaresEvaluation, sizes: Sizes, dimensions: Dimensions) -> list[str]:
    H, past = sizes.H, min(part.W, sizes.known_M()) - 1
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
    past = np.minimum(part.W, sizes.known_M() - np.arange(0, sizes.known_M(), part.W))[:, None] - 1
    moved_P = part.window_drift_P[:, :1] * f / np.sqrt(lam + past * f**2)
    moved_g = part.window_drift_g[:, :, 0] / np.sqrt(lam + past)
    said = []
    for name, most, meaning in (
        ("LV", part.LV.max(axis=2), "Q_g is at its cap unless estimate and bonus are below zero"),
        (
            "bonus for drift",
            np.sqrt(past) * (moved_P + moved_g),
            "reached at the end of the block by first-step pairs with features of the largest norm",
        ),
    ):
        per_block = most.max(axis=1)
        if per_block.max() >= H:
            said.append(
                f"{name} = {per_block.max():.3g} in block {per_block.argmax() + 1} of "
                f"{found.source} is at least H = {H} (it is in {(per_block >= H).sum()} of "
                f"{per_block.size} blocks): {meaning}, the estimate of the constraint says nothing "
                "(errata E8)"
            )
    return said
