"""Discounted least-squares value iteration (after OPT-WLSVI, Touati & Vincent 2020), constrained.

"Efficient learning in non-stationary linear Markov decision processes" (arXiv 2010.12870): data of
age n enter the regressions with weight ζ^n, and the bonus uses the variance of that weighted
estimator, x ↦ √(xᵀ Λ⁻¹ Λ' Λ⁻¹ x), with Λ' made of squared weights. Nothing is ever restarted.

Changed: OPT-WLSVI has no constraint and plays the greedy policy of Q_r. To make it comparable it is
given the multiplier and the softmax policy of `softmax-lsvi`, so this is not the paper's algorithm
but its way of forgetting inside a primal-dual one; no theorem covers the combination. As there,
values are regressed on φ^V = ∫ψV with the V of their episode, and rewards on φ (`rivals.linear`
says why). By default ζ = 1 - 1/window. That the paper's bonus has the form above is recalled and
agrees with a summary of the paper; its constants are recalled, not verified.
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift.learners.checked import CheckedLearner
from safedrift.learners.forgetting import Never
from safedrift.learners.protocol import Problem
from safedrift.learners.rivals.linear import LeastSquaresValues, choose_constants, linear_setup

__all__ = ["build"]


def build(
    world: Problem,
    *,
    discount: float | None = None,
    window: int | None = None,
    gamma: float | None = None,
    budget: float | None = None,
    constants: str = "practical",
    alpha: float | None = None,
    eta: float | None = None,
    lam: float | None = None,
    bonus_scale: float = 1.0,
    seed: int | np.random.SeedSequence = 0,
) -> CheckedLearner:
    """Return discounted least-squares value iteration for a world with features.

    Parameters
    ----------
    discount
        ζ in (0, 1]; by default 1 - 1/window. With 1 nothing is forgotten.
    window
        Effective number of episodes that are remembered.
    gamma
        Slater gap, if known: multipliers stay below 2H/gamma.
    budget
        Variation budget of all episodes, if known; the printed window uses it.
    constants
        "practical" or "printed".
    alpha, eta, lam
        Inverse temperature, dual step size and ridge parameter by hand.
    bonus_scale
        A factor on the bonuses.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("blend", episodes=20)
    >>> learner = sd.learners.make("discounted-lsvi", world, gamma=0.5, discount=0.9)
    >>> sd.simulate(world, learner).trace["mu"].shape
    (20, 1)
    """
    setup, features = linear_setup(world)
    if discount is not None and window is not None:
        raise TypeError("discount or window must be given, not both; got both")
    chosen = choose_constants(
        setup.sizes,
        features,
        constants=constants,
        gamma=gamma,
        budget=budget,
        window=window,
        alpha=alpha,
        eta=eta,
        lam=lam,
        bonus_scale=bonus_scale,
        discounted=True,
    )
    if discount is None:
        zeta = 1 - 1 / max(chosen.window, 2)
    else:
        zeta = _check.positive("discount", discount, upper=1.0)
    kept = chosen.record() | {"constants": constants, "discount": zeta}
    kept.pop("window")
    algorithm = LeastSquaresValues(setup, features, "discounted-lsvi", chosen, Never(), zeta, kept)
    return CheckedLearner(algorithm, seed)
