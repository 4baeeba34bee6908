"""Order stock when orders and storage are limited (Bura et al. 2022).

Description
    The inventory world of DOPE. A shop orders every morning for the same day. Demand is met in full
    or not at all. Ordering and storing cost money, of which little may be spent.
States
    Stock in the morning, 0 to 5. An episode starts with an empty shelf.
Actions
    Order a = 0, 1, ..., 5 pieces; pieces that do not fit are not ordered.
Transitions
    y = min(x + a, 5) pieces are on the shelf, demand D is drawn, and x' = max(y - D, 0). D is 0 to
    5 with probabilities 0.3, 0.2, 0.2, 0.2, 0.05, 0.05.
Reward
    Revenue 0.08 D if y ≥ D, else 0, divided by 0.132, its largest mean. `revenue` = "demand" takes
    the mean over D. "next_stock" weights demand d by the probability of the stock after it, as the
    authors' code does: when the shelf is sold out, this includes all demands that were refused.
    A published reward is V_r.
Utility and threshold
    Cost 4 + 2 a for an order of a > 0 pieces, plus y for storage, divided by its largest value 19;
    the utility is 1 less this. The threshold is H - `limit`; a published cost is H - V_g.
Drift
    None: P, r, g and b are fixed.
Knowledge
    Ordering nothing costs nothing: `Slater(limit)` holds with equality, 3.5 with the default
    options.
Budgets
    With the default options and M = 2000: B_P = 0, B_r = 0, B_g = 0, B_b = 0, gamma >= 3.5.
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
from safedrift._check import FloatArray
from safedrift.display import Display, Drifting, Quantity, Snapshot, allowed_per_step
from safedrift.kernels.sums import product
from safedrift.models import DriftingCMDP, TabularCMDP, drift, from_costs
from safedrift.models.outcomes import certain, outcomes
from safedrift.problems.published.scaling import COST, SAME, Published

PUBLISHED = Published(
    "Bura et al., NeurIPS 2022", episodes=1_000_000, runs=20, reward=SAME, constraint=COST
)

_DEMAND = np.array([0.3, 0.2, 0.2, 0.2, 0.05, 0.05])
_S = _DEMAND.size


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    horizon: int = 7,
    limit: float | None = None,
    revenue: str = "demand",
) -> DriftingCMDP:
    """Return the shop; see the module docstring. Nothing is random: `seed` is unused.

    Parameters
    ----------
    limit
        Allowed cost per episode; H/2 by default.
    revenue
        "demand" or "next_stock": whose probability weights the revenue.
    """
    M, H = _check.integer("episodes", episodes), _check.integer("horizon", horizon)
    limit = _check.positive("limit", H / 2 if limit is None else limit, upper=H, closed=False)
    _check.choice("revenue", revenue, ("demand", "next_stock"))
    y, ordered = _stock()
    left = np.maximum(y[..., None] - np.arange(_S), 0)
    earned = _revenue(y, left, revenue)
    cost = np.where(ordered > 0, 4 + 2 * ordered, 0) + y
    shape = (H, _S, _S)
    utilities, thresholds = from_costs(
        np.broadcast_to(cost / cost.max(), (1, *shape)), np.array([limit])
    )
    rewards = np.broadcast_to(np.minimum(earned / 0.132, 1), shape)
    P = outcomes(left, _DEMAND, H)
    cmdp = TabularCMDP(P, rewards, utilities, thresholds, certain(0, _S))
    return DriftingCMDP([cmdp], drift.stationary(M, 1))


def display(world: DriftingCMDP) -> Display:
    """Return stock, orders and costs over the days."""
    snapshots = (Snapshot("always", world.M - 1),)
    shape = (world.H, world.S, world.A)
    y, ordered = _stock()
    cost = 1 - world.scenarios[0].utilities[0]
    return Display(
        snapshots,
        (Drifting("threshold b", ("b",), world.thresholds, shares=False),),
        (
            Quantity("stock after delivery, pieces", np.broadcast_to(y, shape)),
            Quantity("ordered, pieces", np.broadcast_to(ordered, shape)),
            Quantity(
                "cost, share of the largest",
                cost,
                limits=allowed_per_step(world, snapshots),
                wanted="allowed on average",
            ),
        ),
        step="day (from 0)",
    )


def _stock() -> tuple[np.ndarray, np.ndarray]:
    """Stock after delivery and pieces ordered (S, A)."""
    x = np.arange(_S)[:, None]
    y = np.minimum(x + np.arange(_S), _S - 1)
    return y, y - x


def _revenue(y: np.ndarray, left: np.ndarray, weights: str) -> FloatArray:
    """Mean revenue (S, A)."""
    d = np.arange(_S)
    met = np.where(d <= y[..., None], 0.08 * d, 0.0)
    if weights == "demand":
        return product(met, _DEMAND)
    chance = np.zeros((_S, _S, _S))  # of each stock after the day
    for demand in d:
        for stock in d:
            chance[..., stock] += _DEMAND[demand] * (left[..., demand] == stock)
    weight = np.take_along_axis(chance, left, axis=2)
    total = np.zeros((_S, _S))
    for demand in d:
        total += weight[..., demand] * met[..., demand]
    return total
