"""Small random worlds with rare rewards and rare utilities (Kitamura et al. 2025).

Description
    The random family of the paper on episode-wise safety. The seed draws the world: rewards and
    utilities are sparse zeros and ones, and most transitions are almost certain.
States, actions
    `states`, `actions`, without meaning. The first state is drawn too.
Transitions
    P_h(.|x, a) is Dirichlet(`concentration`) for each step, state and action.
Reward
    r_h(x, a) is 1 with probability `density`, else 0. A published reward is V_r.
Utility and threshold
    g_h(x, a) is 1 with probability `density`, else 0. The threshold is `share` of the largest
    utility that a policy reaches. Worlds in which it is 0 are drawn again. The constraint never
    binds in 15 of the seeds 0 to 99, not in 0: see `sd.describe`.
Drift
    None: P, r, g and b are fixed.
Knowledge
    The gap is what `share` leaves of the largest utility: see `sd.optima(world).gamma`.
Budgets
    With the default options and M = 2000: B_P = 0, B_r = 0, B_g = 0, B_b = 0, gamma >= 0.7977.
Source
    T. Kitamura et al., Provably efficient RL under episode-wise safety in constrained MDPs with
    linear function approximation, 2025, and the authors' code. Worlds of the same distribution,
    not the same draws.
Version
    0
"""

from __future__ import annotations

from safedrift import _check
from safedrift.models import DriftingCMDP
from safedrift.problems.published.draws import bernoulli, dirichlet, generator
from safedrift.problems.published.scaling import SAME, Published
from safedrift.problems.published.thresholds import largest_utility, with_share

PUBLISHED = Published(
    "Kitamura et al. 2025", episodes=10_000, runs=10, reward=SAME, constraint=SAME
)


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    states: int = 5,
    actions: int = 3,
    horizon: int = 4,
    density: float = 0.1,
    concentration: float = 0.1,
    share: float = 0.6,
) -> DriftingCMDP:
    """Return a random world; see the module docstring.

    Parameters
    ----------
    density
        Probability of a reward, and of a utility.
    concentration
        Parameter of the Dirichlet distribution, in (0, 1).
    share
        Threshold as a share of the largest utility, in (0, 1).
    """
    M, H = _check.integer("episodes", episodes), _check.integer("horizon", horizon)
    S, A = _check.integer("states", states), _check.integer("actions", actions)
    density = _check.positive("density", density, upper=1)
    concentration = _check.positive("concentration", concentration, upper=1, closed=False)
    share = _check.positive("share", share, upper=1, closed=False)
    rng = generator(_check.integer("seed", seed, lower=0))
    while True:
        rewards, utilities = (bernoulli(rng, density, (H, S, A)) for _ in range(2))
        P = dirichlet(rng, concentration, (H, S, A, S))
        start = int(rng.integers(S))
        if rewards.any() and largest_utility(P, utilities, start) > 0:
            return with_share(M, P, rewards, utilities, start, share)
