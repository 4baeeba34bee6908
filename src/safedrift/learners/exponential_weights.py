"""A bandit with exponential weights, EXP3 and EXP3.P (Auer, Cesa-Bianchi, Freund, Schapire 2002).

    p_j = (1 - γ) w_j / Σ w + γ/N
    w_j ← w_j exp(ρ (x̂_j + β/p_j)),    x̂_j = x/p_j for the arm played, 0 for the others

for N arms and payoffs x in [0, 1]. EXP3 has ρ = γ/N and β = 0. EXP3.P has ρ = γ/3N and a β that
makes x̂_j + β/p_j an upper confidence bound: its regret is small with high probability, not only on
average.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift._check import FloatArray
from safedrift.kernels.elementary import exp, log
from safedrift.learners.generators import generator_state, restore_generator
from safedrift.learners.policies import draw_action

__all__ = ["Bandit", "Rates", "block_payoff", "exp3_exploration", "exp3_rates", "exp3p_rates"]

_FAILURE = 0.05  # δ of EXP3.P


class Rates(NamedTuple):
    """γ, ρ and β."""

    exploration: float
    learning: float
    confidence: float


def exp3_exploration(arms: int, rounds: int) -> float:
    """Return γ = min(1, √(N log N / ((e - 1) n))) for n rounds (Auer et al., Corollary 3.2)."""
    return min(1.0, math.sqrt(arms * _logarithm(arms) / ((math.e - 1) * rounds)))


def exp3_rates(arms: int, exploration: float) -> Rates:
    """Return the rates of EXP3."""
    return Rates(exploration, exploration / arms, 0.0)


def exp3p_rates(arms: int, rounds: int) -> Rates:
    """Return the rates of EXP3.P for so many rounds (Auer et al., Theorem 6.3).

    γ = min(3/5, 2 √(3/5 N log N / n)), ρ = γ/3N, β = 2 √log(N n/δ) / √(N n), δ = 0.05.

    Examples
    --------
    >>> from safedrift.learners.exponential_weights import exp3p_rates
    >>> [round(rate, 4) for rate in exp3p_rates(arms=8, rounds=224)]
    [0.4222, 0.0176, 0.153]
    """
    gamma = min(0.6, 2 * math.sqrt(0.6 * arms * _logarithm(arms) / rounds))
    beta = 2 * math.sqrt(_logarithm(arms * rounds / _FAILURE)) / math.sqrt(arms * rounds)
    return Rates(gamma, gamma / (3 * arms), beta)


def block_payoff(
    reward: float, surplus: Sequence[float], episodes: int, H: int, penalty: float
) -> float:
    """Return what a block of episodes was worth, in [0, 1].

        (R - χ Σ_k [b_k - G_k]_+ + χ K H n) / (H n (1 + χ K))

    Parameters
    ----------
    reward
        R, sum of the block's rewards.
    surplus : (K,)
        G_k - b_k, sums of the block's utilities less those of its thresholds.
    episodes
        n
    penalty
        χ: what one unit of missing utility costs, in units of reward.
    """
    kept = 0.0
    for found in surplus:
        kept += H - max(-float(found) / episodes, 0.0)
    return (float(reward) / episodes + penalty * kept) / (H * (1 + penalty * len(surplus)))


class Bandit:
    """Weights of N arms, and the generator that draws one."""

    def __init__(self, arms: int, rates: Rates, generator: np.random.Generator) -> None:
        self.rates = rates
        self.logs = np.zeros(arms)  # log w
        self._generator = generator

    def probabilities(self) -> FloatArray:
        """Return p (N,)."""
        gamma = self.rates.exploration
        weights = exp(self.logs - self.logs.max())
        total = float(np.cumsum(weights)[-1])
        return np.asarray((1 - gamma) * weights / total + gamma / self.logs.size)

    def draw(self) -> int:
        """Return an arm."""
        return draw_action(self.probabilities(), self._generator.random())

    def learn(self, arm: int, payoff: float) -> None:
        """Let the payoff of an arm that was played change all weights."""
        p = self.probabilities()
        self.logs += self.rates.learning * self.rates.confidence / p
        self.logs[arm] += self.rates.learning * payoff / p[arm]

    def state(self) -> dict[str, NDArray[Any]]:
        """Return weights and generator as arrays."""
        return {"weights": self.logs.copy(), "bandit_generator": generator_state(self._generator)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        self.logs[:] = state["weights"]
        restore_generator(self._generator, state["bandit_generator"])


def _logarithm(x: float) -> float:
    return float(log([x])[0])
