"""Work a machine fast or carefully in a world that never changes, solved on paper.

Description
    A shop owns a few equal machines and works on one of them per episode, drawn at random. Working
    fast pays more and may break the machine for the rest of the episode; working carefully does
    not. Nothing drifts: this is the control among the problems, solved in closed form below.
States
    Machine i of `machines` runs: 2 i; it is broken: 2 i + 1.
Actions
    0 wait, 1 work carefully, 2 work fast.
Transitions
    A running machine breaks with probability p = `wear` when it works fast. A broken machine
    stays broken.
Reward
    Of a running machine: 0 waiting, c = `careful` working carefully, 1 working fast. Of a broken
    one: 0.
Utility and threshold
    1 for every step on a running machine. The threshold b = `uptime` is the expected number of such
    steps.
Drift
    None: P, r, g and b are fixed.
Knowledge
    Never working fast breaks nothing: `Slater(H - uptime)` holds with equality, 0.5 with the
    default options. All budgets are zero: `LocalBudgets()` holds too.
Closed form
    For a price μ of uptime, fast work with n steps to go is worth 1 - c now and costs p times the
    value of n - 1 more steps, which grows with n. So the best policies work carefully first and
    fast in the last j steps. With q = 1 - p and the sum (1 - q^j)/p of 1, q, ..., q^(j-1) they
    reach V_r(j) = c (H - j) + (1 - q^j)/p and V_g(j) = H - j + (1 - q^j)/p. The optimum mixes the
    two with V_g(j+1) ≤ b < V_g(j), V_r* = V_r(j) + μ* (V_g(j) - b), at the price
    μ* = (q^j - c)/(1 - q^j). Where that is negative, or b < V_g(H), the constraint does not bind
    and V_r* is the largest V_r(j). Default options: j = 3, μ* = 0.229/0.271 = 0.845 and
    V_r* = 6.21 + 0.21 μ* = 6.387.
Budgets
    With the default options and M = 2000: B_P = 0, B_r = 0, B_g = 0, B_b = 0, gamma >= 0.5.
Source
    Invented.
Version
    0
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift.models import DriftingCMDP, TabularCMDP, drift
from safedrift.models.outcomes import outcomes


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    machines: int = 4,
    horizon: int = 10,
    wear: float = 0.1,
    careful: float = 0.5,
    uptime: float | None = None,
) -> DriftingCMDP:
    """Return the shop; see the module docstring. Nothing is random: `seed` is unused.

    Parameters
    ----------
    wear
        Probability that fast work breaks the machine.
    careful
        Reward of careful work; that of fast work is 1.
    uptime
        Required steps on a running machine; 0.95 H by default.
    """
    M, H = _check.integer("episodes", episodes), _check.integer("horizon", horizon)
    machines = _check.integer("machines", machines)
    wear = _check.positive("wear", wear, upper=1, closed=False)
    careful = _check.positive("careful", careful, upper=1, closed=False)
    uptime = 0.95 * H if uptime is None else uptime
    uptime = _check.positive("uptime", uptime, upper=H, closed=False)
    S = 2 * machines
    x = np.arange(S)
    runs = (x % 2 == 0)[:, None]
    after = np.stack((x, x - x % 2 + 1), axis=-1)[:, None]
    breaks = runs * np.array([0.0, 0.0, wear])
    P = outcomes(after, np.stack((1 - breaks, breaks), axis=-1), H)
    rewards = np.broadcast_to(runs * np.array([0.0, careful, 1.0]), (H, S, 3))
    utilities = np.broadcast_to(runs, (1, H, S, 3))
    initial = runs[:, 0] / machines
    cmdp = TabularCMDP(P, rewards, utilities, np.array([uptime]), initial)
    return DriftingCMDP([cmdp], drift.stationary(M, 1))
