"""A bandit over restart lengths: how long data stay true is learnt from what they earned.

Paper
    Ding and Lavaei (AAAI 2023) leave unknown variation budgets open. Bandits over restart lengths
    or windows are due to Cheung, Simchi-Levi and Zhu 2019 and 2020 (BOB); the bandit is EXP3.P of
    Auer, Cesa-Bianchi, Freund and Schapire 2002.
Idea
    Blocks of N = ⌈√M⌉ episodes. Each is played by a new learner that forgets everything every L
    episodes, and EXP3.P draws L among 1, 2, 4, ..., 2^j ≤ N. The payoff of a block with reward R,
    utilities G_k and thresholds b_k in sum:

        x = (R - χ Σ_k [b_k - G_k]_+ + χ K H N) / (H N (1 + χ K))
Constants
    Those of `exponential_weights.exp3p_rates` for M/N rounds. χ is 1 by default: the strict score
    gives reward and utility the same weight. N and the shortest length may be given.
Changed
    Nothing of the bandit. Any learner with counts can play the blocks; PROPD-PPO is told nothing.
    No block is longer than N, so that a learner never has more than √M episodes of data: the price
    of having enough rounds. The last, unfinished block teaches nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.records import ChunkInput, ChunkOutput
from safedrift.kernels.types import TableArrays, WeightPath
from safedrift.learners.checked import CheckedLearner, Setup, own_generator, tabular_setup
from safedrift.learners.exponential_weights import Bandit, Rates, block_payoff, exp3p_rates
from safedrift.learners.generators import generator_state, restore_generator
from safedrift.learners.protocol import Learner, PolicyLike, Problem, Trajectory
from safedrift.learners.rivals import (
    certainty_equivalence,
    opt_cmdp,
    posterior_sampling,
    propd_ppo,
)

__all__ = ["PLAYERS", "Block", "RestartBandit", "build", "over_restart_lengths"]

Factory = Callable[["Block", int], Learner]
"""Returns a learner for a block that forgets everything every so many episodes."""

PLAYERS: dict[str, Callable[..., Learner]] = {
    "opt-cmdp": opt_cmdp.build,
    "certainty-equivalence": certainty_equivalence.build,
    "posterior-sampling": posterior_sampling.build,
    "propd-ppo": lambda block, **given: propd_ppo.build(block, knowledge=None, **given),
}


class Block(NamedTuple):
    """A problem as long as a block."""

    M: int
    H: int
    S: int
    A: int
    K: int
    initial: FloatArray
    initial_known: bool


def build(
    world: Problem,
    *,
    learner: str = "opt-cmdp",
    block: int | None = None,
    shortest: int = 1,
    penalty: float = 1.0,
    rounds: int | None = None,
    seed: int | np.random.SeedSequence = 0,
) -> CheckedLearner:
    """Return the bandit over restart lengths of a named learner.

    Parameters
    ----------
    learner
        Who plays the blocks: one of `PLAYERS`.
    block, shortest, penalty, rounds
        As in `over_restart_lengths`.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("maze", episodes=400)
    >>> sd.learners.make("restart-bandit", world, learner="propd-ppo").settings()["lengths"]
    [1, 2, 4, 8, 16]
    """
    made = PLAYERS[_check.choice("learner", learner, tuple(PLAYERS))]

    def factory(problem: Block, length: int) -> Learner:
        return made(problem, forgetting="periodic", window=length)

    return over_restart_lengths(
        world, factory, block=block, shortest=shortest, penalty=penalty, rounds=rounds, seed=seed
    )


def over_restart_lengths(
    world: Problem,
    factory: Factory,
    *,
    block: int | None = None,
    shortest: int = 1,
    penalty: float = 1.0,
    rounds: int | None = None,
    seed: int | np.random.SeedSequence = 0,
) -> CheckedLearner:
    """Return a learner that restarts others, and learns how often they should forget.

    Parameters
    ----------
    factory
        `factory(problem, L)` returns a learner for `problem`, which is as long as a block, that
        forgets everything every L episodes.
    block
        N, by default ⌈√M⌉.
    shortest
        Restart lengths to choose among are this times 1, 2, 4, ..., up to the block.
    penalty
        χ: what one unit of missing utility costs, in units of reward.
    rounds
        Number of blocks that EXP3.P is set up for, by default M/N.

    Examples
    --------
    >>> import safedrift as sd
    >>> from safedrift.learners.restart_bandit import over_restart_lengths
    >>> def forgetful(problem, L):
    ...     return sd.learners.make("opt-dual", problem, forgetting="periodic", window=L)
    >>> world = sd.problems.make("stationary", episodes=1000)
    >>> over_restart_lengths(world, forgetful).settings()["lengths"]
    [1, 2, 4, 8, 16, 32]
    """
    setup = tabular_setup(world)
    M = setup.sizes.M
    if block is None:
        N = math.isqrt(setup.sizes.known_M("unless block is given") - 1) + 1
    else:
        N = _check.integer("block", block, upper=M or _check.LARGEST)
    least = _check.integer("shortest", shortest, upper=N)
    arms = [least * 2**j for j in range((N // least).bit_length())]
    if not 0 <= _check.real("penalty", penalty) < np.inf:
        _check.fail("penalty", "finite and >= 0", penalty)
    if rounds is None:
        T = math.ceil(setup.sizes.known_M("unless rounds is given") / N)
    else:
        T = _check.integer("rounds", rounds)
    rates = exp3p_rates(len(arms), T)
    return CheckedLearner(RestartBandit(setup, factory, N, arms, float(penalty), rates, seed), seed)


class RestartBandit:
    """An algorithm that plays blocks with new learners, whose restart lengths EXP3.P chooses."""

    name = "restart-bandit"

    def __init__(
        self,
        setup: Setup,
        factory: Factory,
        block: int,
        lengths: Sequence[int],
        penalty: float,
        rates: Rates,
        seed: int | np.random.SeedSequence,
    ) -> None:
        self.setup, self.factory, self.block, self.lengths = setup, factory, block, list(lengths)
        self.penalty, self.rates = penalty, rates
        self.bandit = Bandit(len(self.lengths), rates, own_generator(seed, 0))
        self._seeds = own_generator(seed, 1)  # of the learners
        self.episode = 0
        self.totals = np.zeros(1 + setup.sizes.K)  # of the block: reward, utilities less thresholds
        self._draw()
        self.plays_in = TableArrays if hasattr(self.inner, "play_chunk") else None

    def fresh(self, seed: int | np.random.SeedSequence) -> RestartBandit:
        """Return the same algorithm with nothing learnt yet."""
        return RestartBandit(
            self.setup.renewed(),
            self.factory,
            self.block,
            self.lengths,
            self.penalty,
            self.rates,
            seed,
        )

    # ------------------------------------------------------------ blocks

    def _draw(self) -> None:
        """Begin the block that the next episode belongs to."""
        self._start(self.bandit.draw(), int(self._seeds.integers(2**31)))

    def _start(self, arm: int, seed: int) -> None:
        self.arm, self.first, self._seed = arm, self.episode, seed
        self.totals[:] = 0.0
        _, H, S, A, K = self.setup.sizes
        problem = Block(self.block, H, S, A, K, self.setup.initial, self.setup.initial_known)
        self.inner = self.factory(problem, self.lengths[arm]).fresh(seed)

    def _turn(self) -> None:
        """End the block, if it is over, and begin the next."""
        if self.episode - self.first < self.block:
            return
        reward, *surplus = self.totals
        payoff = block_payoff(reward, surplus, self.block, self.setup.sizes.H, self.penalty)
        self.bandit.learn(self.arm, payoff)
        self._draw()

    def _count(self, returns: FloatArray, thresholds: FloatArray) -> None:
        """Add episodes with these sums of reward and utilities (n, 1+K) to the block, in order."""
        gains = returns.copy()
        gains[:, 1:] -= thresholds
        self.totals[:] = np.cumsum(np.vstack((self.totals, gains)), axis=0)[-1]
        self.episode += len(gains)

    # ------------------------------------------------------------ episodes

    def begin(self, thresholds: FloatArray) -> PolicyLike | FloatArray:
        """Return the policy of the block's learner."""
        self._turn()
        return self.inner.begin_episode(thresholds)

    def act(self, h: int, s: int, u: float) -> int:
        """Return the action of the block's learner."""
        return self.inner.act(h, s, u)

    def end(self, thresholds: FloatArray, states: Any, actions: Any, signals: FloatArray) -> None:
        """Let the block's learner learn from a finished episode."""
        self.inner.end_episode(Trajectory(states, actions, signals[0], signals[1:]))
        self._count(np.cumsum(signals, axis=1)[None, :, -1], thresholds)

    def play(self, arrays: Any, inputs: ChunkInput, out: ChunkOutput) -> dict[str, NDArray[Any]]:
        """Play B episodes, block by block."""
        B = len(inputs.action_uniforms)
        traces: list[dict[str, NDArray[Any]]] = []
        done, written = 0, 0
        while done < B:
            self._turn()
            n = min(B - done, self.first + self.block - self.episode)
            part = slice(done, done + n)
            given = ChunkInput(
                inputs.noisy,
                inputs.action_uniforms[part],
                inputs.world_uniforms[part],
                inputs.measured[part],
            )
            returns = out.returns[part]
            play: Any = self.inner.play_chunk  # type: ignore[attr-defined]
            found = play(
                _from(arrays, self.first), given, ChunkOutput(out.policies[written:], returns)
            )
            length = np.full(n, self.lengths[self.arm])
            traces.append({**found, "restart_length": length})
            self._count(returns, arrays.thresholds[self.episode : self.episode + n])
            done += n
            written += int(given.measured.sum())
        return {name: np.concatenate([trace[name] for trace in traces]) for name in traces[0]}

    # ------------------------------------------------------------ what it shows and stores

    def trace(self) -> dict[str, Any]:
        """Return what the block's learner shows, and its restart length."""
        return {**self.inner.trace(), "restart_length": self.lengths[self.arm]}

    def settings(self) -> dict[str, Any]:
        """Return the bandit's constants, and the settings of the learner of this block."""
        inner = self.inner.settings()
        return {
            "told": inner.get("told", []),
            "block": self.block,
            "lengths": self.lengths,
            "penalty": self.penalty,
            "rates": self.rates._asdict(),
            "learner": self.inner.name,
            "of_learner": {key: x for key, x in inner.items() if key not in ("told", "forgetting")},
        }

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the bandit, where the block stands, and what its learner has learnt."""
        own = {
            "block.place": np.array([self.episode, self.first, self.arm, self._seed]),
            "block.seeds": generator_state(self._seeds),
            "block.totals": self.totals.copy(),
        }
        inner = {f"inner.{name}": np.asarray(x) for name, x in self.inner.state().items()}
        return own | self.bandit.state() | inner

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        episode, first, arm, seed = (int(x) for x in state["block.place"])
        self.episode = first
        self._start(arm, seed)
        restore_generator(self._seeds, state["block.seeds"])
        self.episode = episode
        self.totals[:] = state["block.totals"]
        self.bandit.restore(state)
        start = len("inner.")
        self.inner.restore(
            {name[start:]: x for name, x in state.items() if name.startswith("inner.")}
        )


def _from(arrays: TableArrays, m: int) -> TableArrays:
    """Return the same world without its first m episodes; nothing is copied."""

    def rest(path: WeightPath) -> WeightPath:
        return WeightPath(path.scenario[m:], path.weight[m:])

    return arrays._replace(
        transition_path=rest(arrays.transition_path),
        reward_path=rest(arrays.reward_path),
        utility_path=rest(arrays.utility_path),
        thresholds=arrays.thresholds[m:],
    )
