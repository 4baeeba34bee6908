"""Stream a video over a fast or a slow link so that its buffer is rarely empty (Bura et al. 2022).

Description
    The media streaming world of DOPE. A player takes packets out of a buffer, a link fills it. The
    fast link is expensive and may be used in half of the steps.
States
    Packets in the buffer, 0 to 9. An episode starts with an empty buffer.
Actions
    0 fast link, 1 slow link.
Transitions
    A packet arrives with probability μ = `fast` or `slow`, and one leaves with probability
    ℓ = `playout`, independently: one more with μ(1 - ℓ), one less with (1 - μ)ℓ, else the same; a
    full and an empty buffer stay so.
Reward
    1 for every step that does not start with an empty buffer. The paper minimises the number of
    empty steps, H - V_r.
Utility and threshold
    1 for every step on the slow link. The threshold H - `limit` allows `limit` expected steps on
    the fast one. A published cost is H - V_g.
Drift
    None: P, r, g and b are fixed.
Knowledge
    The slow link costs nothing: `Slater(limit)` holds with equality, 5 with the default options.
Budgets
    With the default options and M = 2000: B_P = 0, B_r = 0, B_g = 0, B_b = 0, gamma >= 5.
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
from safedrift.display import Display, Drifting, Quantity, Snapshot, allowed_per_step
from safedrift.models import DriftingCMDP, TabularCMDP, drift, from_costs
from safedrift.models.outcomes import certain
from safedrift.problems.published.buffers import buffer_transitions
from safedrift.problems.published.scaling import COST, Published

PUBLISHED = Published(
    "Bura et al., NeurIPS 2022", episodes=100_000, runs=20, reward=COST, constraint=COST
)


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    capacity: int = 9,
    horizon: int = 10,
    fast: float = 0.9,
    slow: float = 0.1,
    playout: float = 0.8,
    limit: float | None = None,
) -> DriftingCMDP:
    """Return the player; see the module docstring. Nothing is random: `seed` is unused.

    Parameters
    ----------
    capacity
        Packets in a full buffer: S = capacity + 1.
    fast, slow
        Probability that a packet arrives, by link.
    playout
        Probability that a packet leaves.
    limit
        Allowed steps on the fast link; H/2 by default.
    """
    M, H = _check.integer("episodes", episodes), _check.integer("horizon", horizon)
    S = 1 + _check.integer("capacity", capacity)
    for name, value in (("fast", fast), ("slow", slow), ("playout", playout)):
        _check.positive(name, value, upper=1, closed=False)
    limit = _check.positive("limit", H / 2 if limit is None else limit, upper=H, closed=False)
    P = buffer_transitions(S, (fast, slow), playout, H)
    rewards = np.broadcast_to(np.minimum(np.arange(S), 1.0)[:, None], (H, S, 2))
    costs = np.broadcast_to([1.0, 0.0], (1, H, S, 2))
    utilities, thresholds = from_costs(costs, np.array([limit]))
    cmdp = TabularCMDP(P, rewards, utilities, thresholds, certain(0, S))
    return DriftingCMDP([cmdp], drift.stationary(M, 1))


def display(world: DriftingCMDP) -> Display:
    """Return the buffer and the use of the fast link over the steps."""
    snapshots = (Snapshot("always", world.M - 1),)
    shape = (world.H, world.S, world.A)
    x = np.arange(world.S)[:, None]
    return Display(
        snapshots,
        (Drifting("threshold b", ("b",), world.thresholds, shares=False),),
        (
            Quantity("packets in the buffer", np.broadcast_to(x, shape)),
            Quantity("empty buffer, share of episodes", np.broadcast_to(x == 0, shape)),
            Quantity(
                "fast link, share of episodes",
                np.broadcast_to(np.array([1.0, 0.0]), shape),
                limits=allowed_per_step(world, snapshots),
                wanted="allowed on average",
            ),
        ),
    )
