"""Restarted softmax LSVI (Wei et al. 2023) for linear kernels.

"Provably efficient model-free algorithms for non-stationary CMDPs" (arXiv 2303.05733), the part
with linear function approximation: before every episode, optimistic least-squares values Q_r and
Q_g, the policy softmax(α (Q_r + μ Q_g)) inside the same backward pass, and a clipped dual step
μ ← clip(μ + η (b - V_g(x_1)), 0, 2H/γ) after it. All data are discarded every `window` episodes.

Changed: values are regressed on φ^V = ∫ψV and rewards on φ, because the paper's regression of
r + V on φ is not consistent in a linear-kernel CMDP, and the targets of an episode keep the V of
that episode (`rivals.linear` says why). K constraints have a multiplier each. Thresholds are not
tightened. Whether the paper's multipliers restart with the data could not be verified; here they
go on, unless `restart_multipliers`. Constants: see `rivals.linear`.
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift.learners.checked import CheckedLearner
from safedrift.learners.forgetting import Forgetting, Never, Periodic, record
from safedrift.learners.protocol import Problem
from safedrift.learners.rivals.linear import LeastSquaresValues, choose_constants, linear_setup

__all__ = ["build"]


def build(
    world: Problem,
    *,
    forgetting: str = "periodic",
    window: int | None = None,
    restart_multipliers: bool = False,
    gamma: float | None = None,
    budget: float | None = None,
    constants: str = "practical",
    alpha: float | None = None,
    eta: float | None = None,
    lam: float | None = None,
    bonus_scale: float = 1.0,
    seed: int | np.random.SeedSequence = 0,
) -> CheckedLearner:
    """Return restarted softmax LSVI for a world with features and finitely many states.

    Parameters
    ----------
    forgetting
        "periodic", or "never": the stationary algorithm (Ghosh et al. 2022).
    window
        Episodes between two restarts.
    restart_multipliers
        Whether the multipliers restart with the data.
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
    >>> learner = sd.learners.make("softmax-lsvi", world, gamma=0.5, window=10)
    >>> sd.simulate(world, learner).trace["mu"].shape
    (20, 1)
    """
    setup, features = linear_setup(world)
    _check.choice("forgetting", forgetting, ("periodic", "never"))
    _check.kind("restart_multipliers", restart_multipliers, bool)
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
        discounted=False,
    )
    rule: Forgetting = Never()
    if forgetting == "periodic":
        last = setup.sizes.M or _check.LARGEST
        rule = Periodic(chosen.window, chosen.window if restart_multipliers else last)
    kept = chosen.record() | {"constants": constants, "forgetting": record(rule)}
    algorithm = LeastSquaresValues(setup, features, "softmax-lsvi", chosen, rule, 1.0, kept)
    return CheckedLearner(algorithm, seed)
