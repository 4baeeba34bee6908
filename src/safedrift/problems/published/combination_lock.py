"""Open one of two combination locks whose prizes swap, when one of them is tolled (Mao et al.).

Description
    The bidirectional combination lock of RestartQ-UCB. The first action chooses a lock, a chain of
    H - 1 states. In each of them one action is right and leads on, the other falls off. The last
    state of a chain pays. The paper has no constraint; here one chain costs a toll.
States
    0 the start, 1 to H - 1 the first chain, H to 2H - 2 the second, 2H - 1 fallen off: S = 10.
Actions
    0, 1. At the start they choose the chain. In each state of a chain one is right; the seed draws
    which.
Transitions
    The choice and each right action lead on with probability `success`, else off. A wrong one leads
    off. Who fell off stays there.
Reward
    The right action in the last state of a chain pays its prize, in the last step. Being off pays
    0.125/H per step. A published reward is V_r.
Utility and threshold
    1 for every step that does not start on the second chain. The threshold H - `limit` allows
    `limit` expected steps there; with `limit` = H - 1 there is no constraint, as in the paper.
Drift
    Rewards only. `drift` = "abrupt": the prizes (0.25, 1) of the chains become (1, 0.25) and back,
    every M/`swaps` episodes. "gradual": prizes 0.25 + 0.75 m/M and 1 - 0.75 m/M.
Knowledge
    The first chain has no toll: `Slater(limit)` holds with equality, 2 with the default options.
Closed form
    With q = `success`, the best walk along a chain with prize z is worth q^(H-1) z plus the little
    that falling off pays, and spends q + q² + ... + q^(H-1) steps on the chain. The constraint
    binds while the second prize is larger, and allows the second chain with probability
    `limit`/(q + ... + q^(H-1)).
Budgets
    With the default options and M = 2000: B_P = 0, B_r = 51.97, B_g = 0, B_b = 0, gamma >= 2.
Source
    W. Mao, K. Zhang, R. Zhu, D. Simchi-Levi and T. Başar, Near-optimal model-free reinforcement
    learning in non-stationary episodic MDPs (RestartQ-UCB), ICML 2021; the layout of the ten states
    is our reading. The toll is ours.
Version
    0
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.display import Display, Drifting, Quantity, Snapshot, last_peak, shares
from safedrift.models import DriftingCMDP, TabularCMDP, from_costs
from safedrift.models import drift as paths
from safedrift.models.outcomes import certain, outcomes
from safedrift.problems.published.draws import generator
from safedrift.problems.published.scaling import COST, SAME, Published

PUBLISHED = Published("Mao et al., ICML 2021", episodes=5_000, runs=5, reward=SAME, constraint=COST)

_LOW, _HIGH, _OFF = 0.25, 1.0, 0.125
_NAMES = ("second prize high", "first prize high")


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    horizon: int = 5,
    success: float = 0.98,
    drift: str = "abrupt",
    swaps: int = 50,
    limit: float = 2.0,
) -> DriftingCMDP:
    """Return the locks; see the module docstring. `seed` draws the right actions.

    Parameters
    ----------
    drift
        "abrupt" or "gradual".
    swaps
        Number of stretches of equal prizes in an abrupt world.
    limit
        Allowed steps on the second chain.
    """
    M, H = _check.integer("episodes", episodes), _check.integer("horizon", horizon, lower=2)
    success = _check.positive("success", success, upper=1)
    _check.choice("drift", drift, ("abrupt", "gradual"))
    swaps = min(_check.integer("swaps", swaps), M)
    limit = _check.positive("limit", limit, upper=H, closed=False)
    n = H - 1  # states of a chain
    S, off = 2 * H, 2 * H - 1
    right = generator(_check.integer("seed", seed, lower=0)).integers(0, 2, 2 * n)
    after, chance = np.full((S, 2, 2), off), np.zeros((S, 2, 2))
    chance[..., 1] = 1.0  # off, unless it is said otherwise
    after[0, :, 0], chance[0] = (1, 1 + n), (success, 1 - success)
    chain = np.arange(1, off)
    onward = chain[chain % n != 0]  # all but the last states of the two chains
    after[onward, right[onward - 1], 0] = onward + 1
    chance[onward, right[onward - 1]] = success, 1 - success
    costs = np.zeros((1, H, S, 2))
    costs[:, :, 1 + n : off] = 1.0
    utilities, thresholds = from_costs(costs, np.array([limit]))
    P, scenarios = outcomes(after, chance, H), []
    for prizes in ((_LOW, _HIGH), (_HIGH, _LOW)):
        rewards = np.zeros((H, S, 2))
        rewards[:, off] = _OFF / H
        for last, prize in zip((n, 2 * n), prizes, strict=True):
            rewards[H - 1, last, right[last - 1]] = prize
        scenarios.append(TabularCMDP(P, rewards, utilities, thresholds, certain(0, S)))
    return DriftingCMDP(scenarios, _prizes(M, drift, swaps))


def display(world: DriftingCMDP) -> Display:
    """Return where the agent is over the steps."""
    weights = shares(world.reward_path, 2)
    seen = [n for n in range(2) if weights[:, n].max() > 0.5]
    snapshots = tuple(Snapshot(_NAMES[n], last_peak(weights[:, n])) for n in seen)
    n, shape = world.H - 1, (world.H, world.S, world.A)
    x = np.arange(world.S)[:, None]
    places = {
        "first chain": (x > 0) & (x <= n),
        "second chain": (x > n) & (x <= 2 * n),
        "fallen off": x > 2 * n,
    }
    quantities = (
        Quantity(f"{place}, share of episodes", np.broadcast_to(here, shape))
        for place, here in places.items()
    )
    return Display(snapshots, (Drifting("prizes", _NAMES, weights),), tuple(quantities))


def _prizes(M: int, drift: str, swaps: int) -> FloatArray:
    """Weights (M, 2) of a high second and a high first prize."""
    if drift == "abrupt":
        return paths.abrupt(M, 2, swaps - 1)
    t = np.arange(M) / M
    return np.stack((1 - t, t), axis=1)
