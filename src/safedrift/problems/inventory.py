"""Stock a shelf at low cost while demand grows, jumps and falls back.

Description
    A shop orders one article every morning for the same day. Demand that exceeds the stock is lost.
    Every delivery costs a fee, and stock left overnight costs interest, so the cheapest shelf is
    often empty: the contract with the brand requires a service level. The brand slowly becomes
    popular, then a campaign brings a shock, then demand falls back. An episode is a week of
    `horizon` days.
States
    Stock in the morning, 0 to `capacity`. A week starts with an empty shelf.
Actions
    Order 0, 1, ..., `largest` packs of `pack` pieces; pieces that do not fit are not delivered.
Transitions
    y = min(x + `pack` a, `capacity`) pieces are on the shelf, demand D is drawn, and
    x' = max(y - D, 0). D is binomial: each of `customers` buys a piece with probability 0.2
    (quiet), 0.4 (popular) or 0.6 (campaign).
Reward
    0.2 per piece sold, less 0.1 per piece left and 0.8 per delivery, on average over D, scaled
    linearly to [0, 1]: 0 and 1 are the worst and the best day of all three demands.
Utility and threshold
    Service level: the share min(y, D)/D of the day's demand that is served, 1 if D = 0, on average
    over D. The threshold is `service` * H.
Drift
    Transitions, rewards and utilities, which all follow the distribution of D; the threshold is
    fixed. Demand moves from quiet to popular in the first 60% of the episodes, jumps to the
    campaign for 15%, and moves back from popular to quiet in the rest.
Knowledge
    Ordering as much as possible every day serves almost everybody: the Slater gap is smallest
    during the campaign, 0.699 with the default options: `Slater(0.69)`. With other options,
    see `sd.optima(world).gamma`.
Budgets
    With the default options and M = 2000: B_P = 73.63, B_r = 44.88, B_g = 15.25, B_b = 0, gamma
    >= 0.6993.
Source
    Invented; the textbook periodic-review model with lost sales and a service constraint.
Version
    0
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray, IntArray
from safedrift.display import (
    Display,
    Drifting,
    Quantity,
    Snapshot,
    chosen,
    last_peak,
    shares,
)
from safedrift.kernels.sums import product
from safedrift.models import DriftingCMDP, TabularCMDP
from safedrift.models.outcomes import binomial, certain, outcomes

_BUY = (0.2, 0.4, 0.6)  # probability that a customer buys: quiet, popular, campaign
_MARGIN, _HOLDING, _DELIVERY = 0.2, 0.1, 0.8
_GROWTH, _SHOCK = 0.6, 0.15  # shares of all episodes


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    customers: int = 10,
    capacity: int = 10,
    pack: int = 3,
    largest: int = 3,
    horizon: int = 7,
    service: float = 0.9,
) -> DriftingCMDP:
    """Return the shelf; see the module docstring. Nothing is random: `seed` is unused.

    Parameters
    ----------
    customers
        Number of customers a day, who buy at most one piece each.
    capacity
        Places on the shelf: S = capacity + 1.
    pack, largest
        Pieces per pack and largest number of packs per delivery: A = largest + 1.
    service
        Required service level on average over the week, in (0, 1).
    """
    M, H = _check.integer("episodes", episodes), _check.integer("horizon", horizon)
    customers = _check.integer("customers", customers)
    capacity = _check.integer("capacity", capacity, lower=2)
    pack = _check.integer("pack", pack, upper=capacity)
    largest = _check.integer("largest", largest)
    service = _check.positive("service", service, upper=1, closed=False)
    order = pack * np.arange(largest + 1)
    days = [_day(customers, capacity, order, share) for share in _BUY]
    money = np.stack([day[2] for day in days])
    rewards = (money - money.min()) / (money.max() - money.min())
    S, A, threshold = capacity + 1, order.size, np.array([service * H])
    scenarios = []
    for (left, chance, _, served), reward in zip(days, rewards, strict=True):
        r, g = np.broadcast_to(reward, (H, S, A)), np.broadcast_to(served, (1, H, S, A))
        scenarios.append(TabularCMDP(outcomes(left, chance, H), r, g, threshold, certain(0, S)))
    return DriftingCMDP(scenarios, _demand(M), thresholds=np.full((M, 1), threshold))


def display(world: DriftingCMDP) -> Display:
    """Return stock, deliveries and lost sales over the week."""
    customers, pack = (chosen(world, build, name) for name in ("customers", "pack"))
    weights = shares(world.transition_path, len(_BUY))
    grown = int(_GROWTH * world.M) - 1  # before the campaign, which a learner has to forget
    snapshots = (
        Snapshot("quiet", world.M - 1),
        Snapshot("popular", max(grown, 0)),
        Snapshot("campaign", last_peak(weights[:, 2])),
    )
    x = np.arange(world.S)[:, None]
    y = np.minimum(x + pack * np.arange(world.A), world.S - 1)
    D = np.arange(customers + 1)
    chance = np.stack([binomial(D, customers, share) for share in _BUY])
    missed = product(np.maximum(D - y[..., None], 0), chance.T)  # (S, A, 3)
    lost = np.stack([product(missed, weights[snapshot.episode]) for snapshot in snapshots])
    shape = (world.H, world.S, world.A)
    return Display(
        snapshots,
        (Drifting("demand", ("quiet", "popular", "campaign"), weights),),
        (
            Quantity("stock after delivery, pieces", np.broadcast_to(y, shape)),
            Quantity("delivered, pieces", np.broadcast_to(y - x, shape)),
            Quantity(
                "lost sales, pieces", np.broadcast_to(lost[:, None], (len(snapshots), *shape))
            ),
        ),
        step="day of the week (from 0)",
    )


def _day(
    customers: int, capacity: int, order: IntArray, share: float
) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    """Stock left (S, A, D), chance of each demand (D,), money and service level (S, A)."""
    D = np.arange(customers + 1)
    chance = binomial(D, customers, share)
    chance /= chance.sum()
    y = np.minimum(np.arange(capacity + 1)[:, None, None] + order[:, None], capacity)
    sold = np.minimum(y, D)
    left = y - sold
    money = _MARGIN * sold - _HOLDING * left - _DELIVERY * (order > 0)[:, None]
    served = np.where(D > 0, sold / np.maximum(D, 1), 1.0)
    return left, chance, product(money, chance), product(served, chance).clip(0, 1)


def _demand(M: int) -> FloatArray:
    """Weights (M, 3) of quiet, popular and campaign."""
    time = np.arange(M) / M
    falling = (1 - time) / (1 - _GROWTH - _SHOCK)
    popular = np.where(time < _GROWTH, time / _GROWTH, falling)
    campaign = (time >= _GROWTH) & (time < _GROWTH + _SHOCK)
    weights = np.stack((1 - popular, popular, np.zeros(M)), axis=1)
    weights[campaign] = 0, 0, 1
    return weights
