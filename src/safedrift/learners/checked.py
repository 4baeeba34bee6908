"""The learner protocol around an algorithm: order of calls, checks, generator, checkpoints.

An `Algorithm` is arrays and compiled functions; `CheckedLearner` is what everybody else sees of
it. One module per algorithm in `learners` has a function `build(world, ...)` that returns one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.records import ChunkInput, ChunkOutput
from safedrift.knowledge import Sizes
from safedrift.learners import files
from safedrift.learners.events import Event
from safedrift.learners.generators import generator_state, restore_generator
from safedrift.learners.policies import Lease
from safedrift.learners.protocol import PolicyLike, Problem, Trajectory, checked_thresholds

__all__ = ["Algorithm", "CheckedLearner", "Setup", "own_generator", "tabular_setup"]


class Setup(NamedTuple):
    """What every algorithm is told of a problem."""

    sizes: Sizes
    initial: FloatArray  # (S,) distribution of the first state, or shares of those seen so far
    initial_known: bool

    def renewed(self) -> Setup:
        """Return the same before the first episode."""
        S = self.sizes.S
        initial = self.initial.copy() if self.initial_known else np.full(S, 1 / S)
        return self._replace(initial=initial)


def tabular_setup(world: Problem) -> Setup:
    """Return what a tabular algorithm is told of a world; refuse one whose states fill a box."""
    for name in (*Sizes._fields, "initial"):
        if not hasattr(world, name):
            raise TypeError(
                f"world must have M, H, S, A, K and initial; got {type(world).__name__}"
            )
    if getattr(world, "box", None) is not None:
        _check.fail("world", "one with finitely many states", "a world whose states fill a box")
    known = bool(getattr(world, "initial_known", True))
    initial = np.array(world.initial, float) if known else np.full(world.S, 1 / world.S)
    return Setup(Sizes(world.M, world.H, world.S, world.A, world.K), initial, known)


class Algorithm(Protocol):
    """What a learner does, given checked input.

    `episode` counts finished episodes. `trace`, `settings`, `state`, `restore` and `fresh` are
    those of `Learner`. One that also has `plays_in` (a kind of world arrays) and
    `play(arrays, inputs, out)` offers a fast path.
    """

    name: str
    setup: Setup

    @property
    def episode(self) -> int:
        """Episodes finished so far."""

    def begin(self, thresholds: FloatArray) -> PolicyLike | FloatArray:
        """Start the next episode and return its policy (H, S, A)."""

    def act(self, h: int, s: int, u: float) -> int:
        """Return the action that the uniform u draws in state s at step h."""

    def end(self, thresholds: FloatArray, states: Any, actions: Any, signals: FloatArray) -> None:
        """Learn from a finished episode: states and actions (H,), signals (1+K, H)."""

    def trace(self) -> dict[str, Any]:
        """Return what there is to show of the episode just finished."""

    def settings(self) -> dict[str, Any]:
        """Return plain data that says how the algorithm was set up."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything learnt so far, as arrays that are nobody else's."""

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a copy of what `state` returned."""

    def fresh(self, seed: int | np.random.SeedSequence) -> Algorithm:
        """Return the same algorithm with nothing learnt yet."""


class CheckedLearner:
    """A learner made of an `Algorithm`.

    Parameters
    ----------
    algorithm
        Owns everything that is learnt.
    seed
        Of the actions drawn by `act` without a uniform.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> learner = sd.learners.make("opt-cmdp", world)
    >>> type(learner).__name__, learner.name, learner.episode
    ('CheckedLearner', 'opt-cmdp', 0)
    """

    def __init__(self, algorithm: Algorithm, seed: int | np.random.SeedSequence = 0) -> None:
        self.algorithm = algorithm
        self.name = algorithm.name
        self.sizes = algorithm.setup.sizes
        self._generator = np.random.default_rng(_check.seed("seed", seed))
        self._thresholds: FloatArray | None = None  # of the episode in progress
        self._lease = Lease()  # of its policy

    def __repr__(self) -> str:
        return f"{self.name}({self.sizes}, episode={self.episode})"

    @property
    def episode(self) -> int:
        """Episodes finished so far."""
        return int(self.algorithm.episode)

    def fresh(self, seed: int | np.random.SeedSequence = 0) -> CheckedLearner:
        """Return the same learner with nothing learnt yet."""
        return CheckedLearner(self.algorithm.fresh(seed), seed)

    def begin_episode(self, thresholds: ArrayLike) -> PolicyLike | FloatArray:
        """Start the next episode under thresholds b_m (K,) and return its policy (H, S, A).

        The policy may be a view, to be read until the next call; np.array(policy) is a copy.
        """
        if self._thresholds is not None:
            raise RuntimeError("begin_episode was called twice; call end_episode in between")
        wanted = checked_thresholds(thresholds, self.sizes)
        self._lease.end()
        policy = self.algorithm.begin(wanted)
        self._lease = getattr(policy, "lease", self._lease)
        self._thresholds = wanted
        return policy

    def act(self, h: int, state: Any, u: float | None = None) -> int:
        """Draw an action at step h (from 0) in `state`; `u` in [0, 1) decides, if given."""
        if self._thresholds is None:
            raise RuntimeError("act was called before begin_episode")
        h = _check.integer("h", h, lower=0, upper=self.sizes.H - 1)
        state = _check.integer("state", state, lower=0, upper=self.sizes.S - 1)
        if u is None:
            u = self._generator.random()
        elif not 0 <= _check.real("u", u) < 1:
            _check.fail("u", "in [0, 1)", u)
        return int(self.algorithm.act(h, state, float(u)))

    def end_episode(self, trajectory: Trajectory) -> None:
        """Learn from a finished episode."""
        if self._thresholds is None:
            raise RuntimeError("end_episode was called before begin_episode")
        given = _check.kind("trajectory", trajectory, Trajectory)
        states, actions, rewards, utilities = given.checked(self.sizes)
        setup, m = self.algorithm.setup, self.algorithm.episode
        if not setup.initial_known:  # shares of the first states so far
            setup.initial[:] *= m / (m + 1)
            setup.initial[np.asarray(states)[0]] += 1 / (m + 1)
        signals = np.vstack((rewards, utilities))
        self.algorithm.end(self._thresholds, np.asarray(states), np.asarray(actions), signals)
        self._thresholds = None

    def trace(self) -> dict[str, Any]:
        """Return what the algorithm has to show of the episode just finished."""
        return self.algorithm.trace()

    def events(self) -> list[Event]:
        """Return the changes of the world that the algorithm noticed lately, the oldest first.

        Empty where it does not look for any.
        """
        noticed = getattr(self.algorithm, "events", None)
        return [] if noticed is None else list(noticed())

    def settings(self) -> dict[str, Any]:
        """Return plain data that says how the algorithm was set up."""
        return self.algorithm.settings()

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything learnt so far, and the generator's state, as arrays."""
        if self._thresholds is not None:
            raise RuntimeError("state was called within an episode; call end_episode first")
        own: dict[str, NDArray[Any]] = {"generator": generator_state(self._generator)}
        if not self.algorithm.setup.initial_known:
            own["initial"] = self.algorithm.setup.initial.copy()
        return own | self.algorithm.state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        if "generator" not in state:
            _check.fail("state", "what state() of a learner like this returned", "no 'generator'")
        self._lease.end()
        restore_generator(self._generator, state["generator"])
        if not self.algorithm.setup.initial_known:
            self.algorithm.setup.initial[:] = state["initial"]
        self.algorithm.restore(state)
        self._thresholds = None

    def save(self, file: str | os.PathLike[str]) -> Path:
        """Write everything learnt so far to a file, between two episodes (`files.save`)."""
        return files.save(self, file)

    def load(self, file: str | os.PathLike[str]) -> CheckedLearner:
        """Continue from a file of a learner with the same settings (`files.load`)."""
        return files.load(self, file)

    # ------------------------------------------------------------ a chunk of episodes

    def plays(self, arrays: Any) -> bool:
        """Whether chunks can be played in compiled code in a world of this kind."""
        wanted = getattr(self.algorithm, "plays_in", None)
        known = self.algorithm.setup.initial_known
        return wanted is not None and isinstance(arrays, wanted) and known

    def play_chunk(
        self, arrays: Any, inputs: ChunkInput, out: ChunkOutput
    ) -> Mapping[str, NDArray[Any]]:
        """Play B episodes in compiled code, fill `out` and return the trace, first axis B."""
        self._lease.end()
        play: Any = self.algorithm.play  # type: ignore[attr-defined]
        found: Mapping[str, NDArray[Any]] = play(arrays, inputs, out)
        return found


def own_generator(seed: int | np.random.SeedSequence, stream: int) -> np.random.Generator:
    """Return a generator for an algorithm's own draws, apart from those of its actions."""
    given = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    key = (*given.spawn_key, 1 + stream)
    return np.random.default_rng(np.random.SeedSequence(given.entropy, spawn_key=key))
