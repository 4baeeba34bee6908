"""Stream a video over random fast and slow links, from an empty buffer (Kitamura et al. 2025).

Description
    The streaming family of the paper on episode-wise safety. The seed draws the links and the
    play-out. The slow link must be used often enough.
States
    Packets in the buffer, 0 to 5. An episode starts with an empty buffer.
Actions
    0 fast link, 1 slow link.
Transitions
    A packet arrives with probability μ over the fast link, uniform in [0.5, 0.9], and 1 - μ over
    the slow one. One leaves with probability ℓ, uniform in [0.1, 0.4]. One more with μ(1 - ℓ), one
    less with (1 - μ)ℓ, else the same; a full and an empty buffer stay so.
Reward
    1 for every step that does not start with an empty buffer. A published reward is V_r.
Utility and threshold
    1 for every step on the slow link. The threshold is `share` * H: the slow link alone reaches H.
    A published utility is V_g.
Drift
    None: P, r, g and b are fixed.
Knowledge
    The slow link alone: `Slater((1 - share) H)` holds with equality, 1.6 with the default options.
Budgets
    With the default options and M = 2000: B_P = 0, B_r = 0, B_g = 0, B_b = 0, gamma >= 1.6.
Source
    T. Kitamura et al., Provably efficient RL under episode-wise safety in constrained MDPs with
    linear function approximation, 2025, and the authors' code. Worlds of the same distribution,
    not the same draws.
Version
    0
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift.display import Display
from safedrift.models import DriftingCMDP, TabularCMDP, drift
from safedrift.models.outcomes import certain
from safedrift.problems.published import media
from safedrift.problems.published.buffers import buffer_transitions
from safedrift.problems.published.draws import generator
from safedrift.problems.published.scaling import SAME, Published

PUBLISHED = Published(
    "Kitamura et al. 2025", episodes=10_000, runs=10, reward=SAME, constraint=SAME
)


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    capacity: int = 5,
    horizon: int = 4,
    share: float = 0.6,
) -> DriftingCMDP:
    """Return a random player; see the module docstring.

    Parameters
    ----------
    capacity
        Packets in a full buffer: S = capacity + 1.
    share
        Required share of steps on the slow link, in (0, 1).
    """
    M, H = _check.integer("episodes", episodes), _check.integer("horizon", horizon)
    S = 1 + _check.integer("capacity", capacity)
    share = _check.positive("share", share, upper=1, closed=False)
    u = generator(_check.integer("seed", seed, lower=0)).random(2)
    fast, playout = 0.5 + 0.4 * u[0], 0.1 + 0.3 * u[1]
    P = buffer_transitions(S, (fast, 1 - fast), playout, H)
    rewards = np.broadcast_to(np.minimum(np.arange(S), 1.0)[:, None], (H, S, 2))
    utilities = np.broadcast_to([0.0, 1.0], (1, H, S, 2))
    cmdp = TabularCMDP(P, rewards, utilities, np.array([share * H]), certain(0, S))
    return DriftingCMDP([cmdp], drift.stationary(M, 1))


def display(world: DriftingCMDP) -> Display:
    """Return the buffer and the use of the fast link over the steps."""
    return media.display(world)
