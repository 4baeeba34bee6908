"""Statistics of what a run drew: evidence that it is not what the model and the policies say.

For each kind of draw (`kernels.audit.draws`, and the returns below) there is a wealth E_m that
starts at 1 and is a nonnegative supermartingale under the hypothesis that every draw comes from its
stated distribution. Ville's inequality:

    P( E_m ≥ 1/δ for any m ) ≤ δ,        δ = `FALSE_ALARM`,

however the learner adapts and the world drifts. The statistic of a certificate is the largest
log E_m; it fails above log 1/δ. No number of episodes or constant enters.

Returns. The return G of an episode lies in [0, H] and has the exact mean V = V_c^π, so G/V and
(H - G)/(H - V) have mean 1. Bettors stake a share of their money on either, in every episode.
"""

from __future__ import annotations

import math

import numpy as np

from safedrift._check import FloatArray
from safedrift.kernels.audit.draws import EACH_ACTION, OTHER_ACTION, STALE_POLICY, Bets

__all__ = ["FALSE_ALARM", "THRESHOLD", "Returns", "favourite"]

FALSE_ALARM = 1e-6  # of each certificate of kind "statistic", on an honest run
THRESHOLD = math.log(1 / FALSE_ALARM)

SHARES = np.array([0.5, 0.1])  # of its money that a bettor stakes on a return

_SHAPES = ("uniform", "flatter than stated", "sharper than stated")
_SIGNALS = (
    "those of the episode before",
    "of the pair visited in the episode before",
    "of the world of the episode before",
    "of the first episode's world",
    "of an unknown action",
    "of the step before",
    "too high",
    "too low",
)


class Returns:
    """Wealth of the bettors on returns: one for each signal, direction and share."""

    def __init__(self, H: int, K: int) -> None:
        self.H = H
        self.wealth = np.zeros((1 + K, 2, SHARES.size))  # logarithms

    def add(self, returns: FloatArray, values: FloatArray) -> FloatArray:
        """Take observed returns and exact values (B, 1+K); returns log E_m (B,)."""
        means = np.stack([values, self.H - values], axis=-1)
        found = np.stack([returns, self.H - returns], axis=-1)
        known = means > 1e-9 * self.H  # else the return is a constant, and nothing is staked
        ratio = np.where(known, found / np.where(known, means, 1.0), 1.0)
        factors = 1 + SHARES * (np.maximum(ratio, 0.0)[..., None] - 1)
        logs = self.wealth + np.cumsum(np.log(factors), axis=0)
        if len(logs):
            self.wealth = logs[-1]
        flat = logs.reshape(len(logs), -1)
        top = flat.max(axis=1, initial=0.0)
        return np.asarray(top + np.log(np.exp(flat - top[:, None]).mean(axis=1)))

    def favourite(self) -> str:
        """What the wealthiest bettor says."""
        c, low, _ = np.unravel_index(int(self.wealth.argmax()), self.wealth.shape)
        return f"{_signal(int(c))} too {'low' if low else 'high'}"


def favourite(bets: Bets, which: int) -> str:
    """What the wealthiest bettor on actions (0), states (1) or signals (2) says."""
    wealth = (bets.actions, bets.successors, bets.signals)[which]
    c, row, column = (int(x) for x in np.unravel_index(int(wealth.argmax()), wealth.shape))
    said = (_action, _successor, _signals)[which]
    if which == 1 and row == wealth.shape[1] - 1:
        return f"first states {said(column)}"
    kind = ("actions", "successors", _signal(c))[which]
    return f"{kind} {said(column)}" + (f", at step {row - 1}" if row else "")


def _action(column: int) -> str:
    if column < len(_SHAPES):
        return _SHAPES[column]
    if column == STALE_POLICY:
        return "of the policy of the episode before"
    action, rare = divmod(column - EACH_ACTION, 2)
    return f"with action {action} too {'rare' if rare else 'frequent'}"


def _successor(column: int) -> str:
    if column >= OTHER_ACTION:
        return f"of action a + {column - OTHER_ACTION + 1} (modulo A)"
    return (*_SHAPES, "of an unknown action", "of the first episode's world", "of the step before")[
        column
    ]


def _signals(column: int) -> str:
    return _SIGNALS[column]


def _signal(c: int) -> str:
    return "rewards" if c == 0 else f"utilities {c - 1}"
