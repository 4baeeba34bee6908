"""Model-free learners: Q-learning with optimism, frames and virtual queues.

The mathematics is in `kernels.tabular.model_free`; this module gives it the learner protocol, and
the constants of the Triple-Q family. With T = the number of episodes, B = the variation budget:

                   printed                                   practical
    frame          T^0.6 / B^(2/3)                           the same
    χ              T^0.2                                     the same
    η              T^0.2 B^(1/3)                             1e-4 T^0.2 √(S A H⁴) B^(1/3)
    ε              8 √(S A H⁶ ι³) B^(1/3) / T^0.2            0.02 H
    bonus          H/4 √ι √((χ + 1)/(χ + t))                 0.2 √(log T) / √t
    for utilities  the same                                  0.01 times that
    offset         2 H b~, b~ = the budget of a frame        0
    lift           2 H³ √ι / η                               0.0012 H

with ι = 128 log(√(2 S A H) T).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.elementary import exp, log
from safedrift.kernels.records import ChunkInput, ChunkOutput, make_episode_buffer
from safedrift.kernels.tabular import model_free as kernels
from safedrift.kernels.tabular.model_free import Rule
from safedrift.kernels.types import TableArrays, prepared
from safedrift.knowledge import Sizes
from safedrift.learners.checked import Setup
from safedrift.learners.policies import GreedyPolicy

__all__ = [
    "CONSTANTS",
    "POWERS",
    "ModelFree",
    "Triple",
    "chosen",
    "logarithm",
    "power",
    "triple_q_rule",
]

CONSTANTS = ("practical", "printed")
POWERS = "for the Triple-Q family, whose constants are powers of it"
_OF_QUEUES = ("chi", "utility_width", "eta", "epsilon", "lift")  # not used without constraints


# ---------------------------------------------------------------- constants


def power(x: float, exponent: float) -> float:
    """Return x^exponent, the same bits on every machine."""
    return float(exp(exponent * float(log(x))))


def logarithm(x: float) -> float:
    """Return log x, the same bits on every machine."""
    return float(log(x))


def chosen(name: str, value: float | None, default: float) -> float:
    """Return an option >= 0, or its default where it is None."""
    if value is None:
        return default
    number = _check.real(name, value)
    if not 0 <= number < math.inf:
        _check.fail(name, "finite and >= 0", value)
    return number


class Triple(NamedTuple):
    """Options of the Triple-Q family; None stands for what `constants` says."""

    constants: str
    frame: int | None = None
    chi: float | None = None
    eta: float | None = None
    epsilon: float | None = None
    bonus: float | None = None
    utility_bonus: float | None = None
    offset: float | None = None
    lift: float | None = None


def triple_q_rule(
    sizes: Sizes, options: Triple, *, budget: float, episodes: int, restarts: bool
) -> Rule:
    """Return the constants of the Triple-Q family for so many episodes of a given variation."""
    _, H, S, A, _ = sizes
    printed = _check.choice("constants", options.constants, CONSTANTS) == "printed"
    T, root = float(episodes), power(budget, 1 / 3)
    iota = 128 * logarithm(math.sqrt(2 * S * A * H) * T)
    fifth = power(T, 0.2)
    # A whole power may be rounded below the integer that it is.
    frame = min(max(int(power(T, 0.6) / root**2 + 1e-9), 1), episodes)
    if options.frame is not None:
        frame = _check.integer("frame", options.frame)
    chi = chosen("chi", options.chi, fifth)
    unit = fifth * root * (1.0 if printed else 1e-4 * math.sqrt(S * A) * H**2)
    eta = unit if options.eta is None else _check.positive("eta", options.eta)
    margin = 8 * math.sqrt(S * A * float(H) ** 6 * iota**3) * root / fifth
    width = H / 4 * math.sqrt(iota) if printed else 0.2 * math.sqrt(logarithm(T))
    width = chosen("bonus", options.bonus, width)
    share = chosen("utility_bonus", options.utility_bonus, 1.0 if printed else 0.01)
    local = 2 * H * budget * frame / T if printed and restarts else 0.0
    lift = 2 * H**3 * math.sqrt(iota) / eta if printed else 0.0012 * H
    return Rule(
        staged=False,
        restarts=restarts,
        frame=frame,
        chi=chi,
        chi_bonus=chi if printed else 0.0,
        width=width,
        utility_width=share * width,
        offset=chosen("offset", options.offset, local),
        eta=eta,
        epsilon=chosen("epsilon", options.epsilon, margin if printed else 0.02 * H),
        lift=0.0 if restarts else chosen("lift", options.lift, lift),
    )


# ---------------------------------------------------------------- the algorithm


class ModelFree:
    """An algorithm that learns Q tables by a `Rule`.

    Parameters
    ----------
    constrained
        Whether it heeds the constraints: one queue and one table C for each of them.
    recorded
        Of its settings: what it is told, and constants that are not in the rule.
    """

    plays_in = TableArrays

    def __init__(
        self, setup: Setup, name: str, rule: Rule, recorded: dict[str, Any], *, constrained: bool
    ) -> None:
        _, H, S, A, K = setup.sizes
        self.setup, self.name, self.rule = setup, name, rule
        self.recorded, self.constrained = recorded, constrained
        C = 1 + K if constrained else 1
        self.tables = kernels.make_tables(H, S, A, K, C, rule)
        self.episode = 0
        self._actions = np.zeros((H, S), np.int64)  # greedy, of the episode in progress
        # States (H,) whose actions may be out of date; None: all of them.
        self._visited: NDArray[np.int64] | None = None

    def fresh(self, seed: int | np.random.SeedSequence) -> ModelFree:
        """Return the same algorithm with nothing learnt yet."""
        parts = (self.setup, self.name, self.rule, self.recorded)
        return ModelFree(*parts, constrained=self.constrained)

    def begin(self, thresholds: FloatArray) -> GreedyPolicy:
        """Return the greedy policy."""
        _, H, _, A, _ = self.setup.sizes
        if self._visited is None:
            self._actions = self._greedy(self.tables.q)
            self._visited = np.zeros(H, np.int64)  # no harm in doing these again
        else:
            h = np.arange(H)
            self._actions[h, self._visited] = self._greedy(self.tables.q[h, self._visited])
        return GreedyPolicy(self._actions, A)

    def _greedy(self, q: FloatArray) -> NDArray[np.int64]:
        """Actions (...) of tables q (..., A, C)."""
        score = q[..., 0].copy()
        for k, mu in enumerate(self.tables.mu):
            score += mu * q[..., 1 + k]
        return np.asarray(score.argmax(axis=-1))

    def act(self, h: int, s: int, u: float) -> int:
        """Return the greedy action."""
        return int(self._actions[h, s])

    def end(self, thresholds: FloatArray, states: Any, actions: Any, signals: FloatArray) -> None:
        """Learn from a finished episode."""
        path = (np.array(states, np.int64), np.array(actions, np.int64), prepared(signals))
        kernels.learn_episode(self.tables, self.rule, prepared(thresholds), *path)
        frame_ended = self.tables.clock[0] == 0  # all tables and multipliers have changed
        self._visited = None if frame_ended else path[0]
        self.episode += 1

    def play(self, arrays: Any, inputs: ChunkInput, out: ChunkOutput) -> dict[str, NDArray[Any]]:
        """Play B episodes."""
        _, H, _, _, K = self.setup.sizes
        B = len(inputs.action_uniforms)
        mu = np.empty((B, self.tables.mu.size))
        buffer = make_episode_buffer(H, K)
        kernels.play(arrays, self.episode, self.tables, self.rule, inputs, buffer, out, mu)
        self.episode += B
        self._visited = None
        return {"mu": mu} if self.constrained else {}

    def restart(self, rule: Rule) -> None:
        """Forget everything but the number of episodes, and go on by another rule."""
        self.rule = rule
        kernels.forget(self.tables, rule.staged)
        for part in (self.tables.queues, self.tables.mu, self.tables.missing, self.tables.totals):
            part[:] = 0.0
        self.tables.clock[:] = 0
        self._visited = None

    def trace(self) -> dict[str, Any]:
        """Return the multipliers Z/η after the episode."""
        return {"mu": self.tables.mu.copy()} if self.constrained else {}

    def settings(self) -> dict[str, Any]:
        """Return every constant that is used."""
        unused = () if self.constrained else _OF_QUEUES
        used = {name: x for name, x in self.rule._asdict().items() if name not in unused}
        return {**self.recorded, **used}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the tables and the number of finished episodes."""
        own: dict[str, NDArray[Any]] = {"episode": np.array(self.episode)}
        return own | {name: part.copy() for name, part in self.tables._asdict().items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        for name, part in self.tables._asdict().items():
            part[...] = state[name]
        self.episode = int(state["episode"])
        self._visited = None
