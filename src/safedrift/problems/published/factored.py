"""Walk round a circle of three states when only half of the steps may move (Bura et al. 2022).

Description
    The factored world of DOPE, after AlwaysSafe: small enough to be solved on paper. Moving on pays
    more in later states and costs 1.
States
    0, 1, 2. An episode starts in state 0.
Actions
    0 stay, 1 move on to x + 1 modulo 3.
Reward
    (x + 1)/3 for moving, nothing for staying, as in the authors' code (`pays` = "moving"). With
    `pays` = "always" it is (x + 1)/3 for every step. A published reward is V_r.
Utility and threshold
    1 for staying. The threshold H - `limit` allows `limit` expected moves. A published cost is
    H - V_g.
Drift
    None: P, r, g and b are fixed.
Knowledge
    Staying costs nothing: `Slater(limit)` holds with equality, 3 with the default options.
Closed form
    Three moves are one round and pay 2. All tours with n moves pay 2/3 n at most, with equality
    for whole rounds. With the default options the best value is 2, the price of a move μ* = 2/3,
    and the value without the constraint 4. With `pays` = "always", two moves lead to state 2 for
    good: 1/3 + 2/3 + 4 = 5, and the constraint is slack.
Budgets
    With the default options and M = 2000: B_P = 0, B_r = 0, B_g = 0, B_b = 0, gamma >= 3.
Source
    A. Bura, A. HasanzadeZonuzy, D. Kalathil, S. Shakkottai and J.-F. Chamberland, DOPE: doubly
    optimistic and pessimistic exploration for safe reinforcement learning, NeurIPS 2022 (arXiv
    2112.00885), and the authors' code.
Version
    0
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift.models import DriftingCMDP, TabularCMDP, drift, from_costs
from safedrift.models.outcomes import certain, outcomes
from safedrift.problems.published.scaling import COST, SAME, Published

PUBLISHED = Published(
    "Bura et al., NeurIPS 2022", episodes=100_000, runs=20, reward=SAME, constraint=COST
)


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    horizon: int = 6,
    limit: float | None = None,
    pays: str = "moving",
) -> DriftingCMDP:
    """Return the circle; see the module docstring. Nothing is random: `seed` is unused.

    Parameters
    ----------
    limit
        Allowed moves per episode; H/2 by default.
    pays
        "moving" or "always".
    """
    M, H = _check.integer("episodes", episodes), _check.integer("horizon", horizon)
    limit = _check.positive("limit", H / 2 if limit is None else limit, upper=H, closed=False)
    _check.choice("pays", pays, ("moving", "always"))
    x, moves = np.arange(3)[:, None], np.arange(2)
    after = ((x + moves) % 3)[..., None]
    paid = (x + 1) / 3 * (moves if pays == "moving" else np.ones(2))
    costs = np.broadcast_to(moves.astype(np.float64), (1, H, 3, 2))
    utilities, thresholds = from_costs(costs, np.array([limit]))
    P, rewards = outcomes(after, np.ones(1), H), np.broadcast_to(paid, (H, 3, 2))
    cmdp = TabularCMDP(P, rewards, utilities, thresholds, certain(0, 3))
    return DriftingCMDP([cmdp], drift.stationary(M, 1))
