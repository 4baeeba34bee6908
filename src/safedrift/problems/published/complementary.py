"""Random worlds in which reward and utility add up to one in every step (Kitamura et al. 2024).

Description
    The ablation of regularised primal-dual learning. What earns reward earns no utility: V_r + V_g
    = H for every policy, so all policies that meet the threshold with equality are optimal. Such a
    world tests whether the multiplier settles, and nothing else: see `docs/published.md`.
States, actions
    `states`, `actions`, without meaning. The first state is drawn too.
Transitions
    P_h(.|x, a) is Dirichlet(`concentration`) for each step, state and action.
Reward
    r_h(x, a) is 1 with probability 1/2, else 0. A published reward is V_r.
Utility and threshold
    g = 1 - r. The threshold is `share` of the largest utility that a policy reaches. A published
    utility is V_g.
Drift
    None: P, r, g and b are fixed.
Closed form
    V_r* = H - b and μ* = 1, if some policy earns more reward than H - b; else the constraint is
    slack.
Knowledge
    The gap is what `share` leaves of the largest utility: see `sd.optima(world).gamma`.
Budgets
    With the default options and M = 2000: B_P = 0, B_r = 0, B_g = 0, B_b = 0, gamma >= 4.24.
Source
    T. Kitamura et al., A policy gradient primal-dual algorithm for constrained MDPs with uniform
    PAC guarantees, 2024 (arXiv 2401.17780), and the authors' code. Worlds of the same
    distribution, not the same draws.
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
    "Kitamura et al. 2024", episodes=300_000, runs=1, reward=SAME, constraint=SAME
)


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    states: int = 30,
    actions: int = 3,
    horizon: int = 10,
    concentration: float = 0.1,
    share: float = 0.5,
) -> DriftingCMDP:
    """Return a random world; see the module docstring.

    Parameters
    ----------
    concentration
        Parameter of the Dirichlet distribution, in (0, 1).
    share
        Threshold as a share of the largest utility, in (0, 1).
    """
    M, H = _check.integer("episodes", episodes), _check.integer("horizon", horizon)
    S, A = _check.integer("states", states), _check.integer("actions", actions)
    concentration = _check.positive("concentration", concentration, upper=1, closed=False)
    share = _check.positive("share", share, upper=1, closed=False)
    rng = generator(_check.integer("seed", seed, lower=0))
    while True:
        rewards = bernoulli(rng, 0.5, (H, S, A))
        P = dirichlet(rng, concentration, (H, S, A, S))
        start = int(rng.integers(S))
        if largest_utility(P, 1 - rewards, start) > 0:
            return with_share(M, P, rewards, 1 - rewards, start, share)
