"""Double-restart NS-Triple-Q: a bandit chooses the variation budget, epoch by epoch.

Paper
    Wei, Ghosh, Shroff, Ying and Zhou, "Provably efficient model-free algorithms for non-stationary
    CMDPs", AISTATS 2023 (arXiv 2303.05733), the part on unknown budgets.
Idea
    Epochs of W = M^(5/9) episodes. In each, a new NS-Triple-Q is set up for W episodes of a
    variation that EXP3 draws among B_j = W^(j/J), j = 0, ..., J = ⌈log W⌉. With N arms, weights
    w_j and n epochs in all:

        p_j = (1 - γ) w_j / Σ w + γ/N,    w_j ← w_j exp(γ x / (N p_j)) for the arm played,
        γ = min(1, √(N log N / ((e - 1) n))).

    The payoff x in [0, 1] of an epoch with mean reward R, utilities G_k and thresholds b_k:

        x = (R + ρ Σ_k (H - [b_k - G_k]_+)) / (H (1 + ρ K)).
Constants
    W is that of the paper. The arms, the payoff and γ are recalled from the same construction in
    Mao et al. 2021 (Double-Restart Q-UCB) and from Auer et al. 2002, not verified in this paper.
    The penalty ρ is 1 by default, our choice.
Changed
    As in `ns_triple_q`. The last, unfinished epoch teaches the bandit nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.records import ChunkInput, ChunkOutput
from safedrift.kernels.tabular.model_free import Rule
from safedrift.kernels.types import TableArrays
from safedrift.learners.checked import CheckedLearner, Setup, own_generator, tabular_setup
from safedrift.learners.exponential_weights import (
    Bandit,
    block_payoff,
    exp3_exploration,
    exp3_rates,
)
from safedrift.learners.policies import GreedyPolicy
from safedrift.learners.protocol import Problem
from safedrift.learners.rivals.model_free import (
    ModelFree,
    Triple,
    chosen,
    logarithm,
    power,
    triple_q_rule,
)

__all__ = ["TUNABLE", "DoubleRestart", "build"]

TUNABLE = {"eta": (0.03, 30.0, "log"), "bonus": (0.01, 1.0, "log")}


def build(
    world: Problem,
    *,
    constants: str = "practical",
    epoch: int | None = None,
    guesses: ArrayLike | None = None,
    exploration: float | None = None,
    penalty: float = 1.0,
    chi: float | None = None,
    eta: float | None = None,
    epsilon: float | None = None,
    bonus: float | None = None,
    utility_bonus: float | None = None,
    offset: float | None = None,
    seed: int | np.random.SeedSequence = 0,
) -> CheckedLearner:
    """Return double-restart NS-Triple-Q as a learner.

    Parameters
    ----------
    constants
        "practical" or "printed", for NS-Triple-Q inside an epoch; `chi` to `offset` replace one of
        them each, as in "ns-triple-q".
    epoch
        Episodes between two draws of the bandit, W.
    guesses : (N,)
        Budgets to choose among, each > 0: the variation inside an epoch.
    exploration
        γ of EXP3, in (0, 1].
    penalty
        ρ: what one unit of missing utility costs, in units of reward.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("maze", episodes=512)
    >>> settings = sd.learners.make("double-restart-triple-q", world).settings()
    >>> settings["epoch"], [round(guess, 2) for guess in settings["guesses"]]
    (32, [1.0, 2.38, 5.66, 13.45, 32.0])
    """
    setup = tabular_setup(world)
    if epoch is None:
        W = int(power(setup.sizes.known_M("unless epoch is given"), 5 / 9) + 1e-9)
    else:
        W = _check.integer("epoch", epoch, upper=setup.sizes.M or _check.LARGEST)
    J = max(math.ceil(logarithm(W)), 1)
    usual = [power(W, j / J) for j in range(J + 1)]
    budgets = usual if guesses is None else _check.floats("guesses", guesses, ("N",)).tolist()
    for j, guess in enumerate(budgets):
        if guess <= 0:
            _check.fail("guesses", "> 0", guess, j)
    if exploration is None:
        rounds = math.ceil(setup.sizes.known_M("unless exploration is given") / W)
        gamma = exp3_exploration(len(budgets), rounds)
    else:
        gamma = _check.positive("exploration", exploration, upper=1.0)
    options = Triple(constants, None, chi, eta, epsilon, bonus, utility_bonus, offset)
    rules = [
        triple_q_rule(setup.sizes, options, budget=guess, episodes=W, restarts=True)
        for guess in budgets
    ]
    recorded = {"told": [], "constants": constants, "epoch": W, "guesses": budgets}
    recorded |= {"exploration": gamma, "penalty": chosen("penalty", penalty, 1.0)}
    return CheckedLearner(DoubleRestart(setup, rules, recorded, seed), seed)


class DoubleRestart:
    """An algorithm that restarts NS-Triple-Q by one of several rules, which EXP3 chooses.

    Parameters
    ----------
    rules
        One for each arm.
    recorded
        `settings()` without the rules: epoch, guesses, exploration and penalty are read there.
    """

    name = "double-restart-triple-q"
    plays_in = TableArrays

    def __init__(
        self,
        setup: Setup,
        rules: Sequence[Rule],
        recorded: dict[str, Any],
        seed: int | np.random.SeedSequence,
    ) -> None:
        self.setup, self.rules, self.recorded = setup, rules, recorded
        self.inner = ModelFree(setup, self.name, rules[0], {}, constrained=True)
        rates = exp3_rates(len(rules), recorded["exploration"])
        self.bandit = Bandit(len(rules), rates, own_generator(seed, 0))
        self._last = 0  # arm of the latest episode
        self._draw()

    @property
    def episode(self) -> int:
        """Episodes finished so far."""
        return self.inner.episode

    def fresh(self, seed: int | np.random.SeedSequence) -> DoubleRestart:
        """Return the same algorithm with nothing learnt yet."""
        return DoubleRestart(self.setup, self.rules, self.recorded, seed)

    # ------------------------------------------------------------ the bandit

    def _draw(self) -> None:
        """Begin an epoch."""
        self.arm = self.bandit.draw()
        self.inner.restart(self.rules[self.arm])

    def _turn(self) -> None:
        """End an epoch, if this is the end of one, and begin the next."""
        self._last = self.arm
        W = self.recorded["epoch"]
        if self.episode % W:
            return
        reward, *surplus = self.inner.tables.totals
        payoff = block_payoff(reward, surplus, W, self.setup.sizes.H, self.recorded["penalty"])
        self.bandit.learn(self.arm, payoff)
        self._draw()

    # ------------------------------------------------------------ episodes

    def begin(self, thresholds: FloatArray) -> GreedyPolicy:
        """Return the greedy policy."""
        return self.inner.begin(thresholds)

    def act(self, h: int, s: int, u: float) -> int:
        """Return the greedy action."""
        return self.inner.act(h, s, u)

    def end(self, thresholds: FloatArray, states: Any, actions: Any, signals: FloatArray) -> None:
        """Learn from a finished episode."""
        self.inner.end(thresholds, states, actions, signals)
        self._turn()

    def play(self, arrays: Any, inputs: ChunkInput, out: ChunkOutput) -> dict[str, NDArray[Any]]:
        """Play B episodes, epoch by epoch."""
        B, W = len(inputs.action_uniforms), self.recorded["epoch"]
        trace = {"mu": np.empty((B, self.setup.sizes.K)), "guess": np.empty(B)}
        done, written = 0, 0
        while done < B:
            n = min(B - done, W - self.episode % W)
            part = slice(done, done + n)
            given = inputs._replace(
                action_uniforms=inputs.action_uniforms[part],
                world_uniforms=inputs.world_uniforms[part],
                measured=inputs.measured[part],
            )
            found = self.inner.play(
                arrays, given, ChunkOutput(out.policies[written:], out.returns[part])
            )
            trace["mu"][part], trace["guess"][part] = found["mu"], self._guess(self.arm)
            self._turn()
            trace["mu"][done + n - 1] = self.inner.tables.mu  # zero where an epoch has ended
            done += n
            written += int(given.measured.sum())
        return trace

    def _guess(self, arm: int) -> float:
        return float(self.recorded["guesses"][arm])

    def trace(self) -> dict[str, Any]:
        """Return the multipliers after the episode, and the budget guessed while it lasted."""
        return {**self.inner.trace(), "guess": self._guess(self._last)}

    def settings(self) -> dict[str, Any]:
        """Return every constant."""
        return {**self.recorded, "rules": [rule._asdict() for rule in self.rules]}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the tables, the bandit and its generator."""
        arms = {"arms": np.array([self.arm, self._last])}
        return self.inner.state() | arms | self.bandit.state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        self.arm, self._last = (int(arm) for arm in state["arms"])
        self.inner.rule = self.rules[self.arm]
        self.inner.restore(state)
        self.bandit.restore(state)
