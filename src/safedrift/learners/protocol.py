"""What a learner is: anything with these methods can be simulated, measured and reported.

    for each episode m:
        policy = learner.begin_episode(thresholds)            # b_m (K,)
        for each step h:
            action = learner.act(h, state, u)                 # u in [0, 1): deterministic given u
        learner.end_episode(Trajectory(states, actions, rewards, utilities))
        learner.trace()                                       # what it shows of this episode

A learner sees its own trajectories and nothing else. `experiments.check_learner` tests whether one
keeps the rules stated here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.records import ChunkInput, ChunkOutput
from safedrift.knowledge import Sizes

__all__ = [
    "FastPath",
    "Learner",
    "PolicyLike",
    "Problem",
    "Trajectory",
    "checked_thresholds",
]


class Trajectory(NamedTuple):
    """A finished episode, as the learner saw it.

    Examples
    --------
    >>> import safedrift as sd
    >>> sd.Trajectory(states=[0, 1], actions=[1, 0], rewards=[0.0, 1.0], utilities=[[1.0, 0.5]])
    Trajectory(states=[0, 1], actions=[1, 0], rewards=[0.0, 1.0], utilities=[[1.0, 0.5]])
    """

    states: ArrayLike  # (H,) of ints, or (H, n) of floats where states fill a box
    actions: ArrayLike  # (H,) of ints
    rewards: ArrayLike  # (H,)
    utilities: ArrayLike  # (K, H), or (H,) where K = 1

    def checked(self, sizes: Sizes) -> Trajectory:
        """Return the same episode as arrays, or raise one error that names what is wrong.

        States are checked by number, unless they are points (H, n) of a box.
        """
        _, H, S, A, K = sizes
        points = np.ndim(self.states) == 2
        states = np.asarray(self.states) if points else _indices("states", self.states, H, S)
        one = K == 1 and np.ndim(self.utilities) == 1
        signals = {
            "rewards": _check.floats("rewards", self.rewards, (H,)),
            "utilities": _check.floats(
                "utilities", [self.utilities] if one else self.utilities, (K, H)
            ),
        }
        for name, seen in signals.items():
            _check.everywhere(name, seen, (seen >= 0) & (seen <= 1), "in [0, 1]")
        return Trajectory(states, _indices("actions", self.actions, H, A), **signals)


def checked_thresholds(thresholds: ArrayLike, sizes: Sizes) -> FloatArray:
    """Return the thresholds of an episode as a new array (K,), or raise one clear error.

    Examples
    --------
    >>> import safedrift as sd
    >>> sd.learners.checked_thresholds([2.5], sd.Sizes(M=10, H=4, S=3, A=2, K=1)).tolist()
    [2.5]
    """
    H, K = sizes.H, sizes.K
    array = _check.floats("thresholds", np.atleast_1d(np.asarray(thresholds, float)), (K,))
    _check.everywhere("thresholds", array, (array > 0) & (array <= H), f"in (0, {H}]")
    return array.copy()  # kernels are compiled for arrays that can be written to


def _indices(name: str, given: ArrayLike, H: int, upper: int) -> NDArray[np.int64]:
    """Check the states or actions of an episode."""
    array = np.asarray(given)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers; got {array.dtype}")
    if array.shape != (H,):
        _check.fail(
            name,
            f"of shape (H,) = ({H},): an episode lasts H steps, one that ends early stays in an "
            "absorbing state",
            f"shape {array.shape}",
        )
    _check.everywhere(name, array, (array >= 0) & (array < upper), f"in [0, {upper})")
    return np.array(array, np.int64)


@runtime_checkable
class PolicyLike(Protocol):
    """A policy: np.asarray(policy) is an array (H, S, A) of action probabilities.

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> policy = sd.learners.make("uniform", world).begin_episode(world.thresholds[0])
    >>> np.asarray(policy).shape
    (10, 8, 3)
    """

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the probabilities (H, S, A); on a box, at its nodes."""


class Problem(Protocol):
    """What a learner may know of a problem before it starts: sizes and the first state.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> spec = sd.ProblemSpec(H=10, S=8, A=3, K=1)
    >>> [sd.learners.make("uniform", x).sizes.S for x in (world, spec)]
    [8, 8]
    """

    @property
    def M(self) -> int | None:
        """Number of episodes; None where there is no last one."""

    @property
    def H(self) -> int:
        """Steps of an episode."""

    @property
    def S(self) -> int:
        """Number of states."""

    @property
    def A(self) -> int:
        """Number of actions."""

    @property
    def K(self) -> int:
        """Number of constraints."""

    @property
    def initial(self) -> FloatArray:
        """Distribution of the first state (S,)."""


@runtime_checkable
class Learner(Protocol):
    """A learner of constrained MDPs that change from episode to episode.

    Attributes
    ----------
    name
        Short and stable, for results.
    sizes
        (M, H, S, A, K); M may be None where no last episode is known.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> learner = sd.learners.make("uniform", world)
    >>> isinstance(learner, sd.Learner)
    True
    >>> learner.begin_episode(world.thresholds[0]).shape
    (10, 8, 3)
    >>> learner.act(0, 2, u=0.5)
    1
    """

    name: str
    sizes: Sizes

    def begin_episode(self, thresholds: ArrayLike) -> PolicyLike | FloatArray:
        """Start the next episode under thresholds (K,) and return its policy (H, S, A)."""

    def act(self, h: int, state: Any, u: float | None = None) -> int:
        """Draw an action at step h (from 0) in `state`.

        Given a uniform `u` in [0, 1) the action is a function of it; without one the learner's own
        generator provides it.
        """

    def end_episode(self, trajectory: Trajectory) -> None:
        """Learn from a finished episode."""

    def trace(self) -> Mapping[str, ArrayLike]:
        """Return what the learner has to show of the episode just finished.

        Named numbers or one-dimensional arrays, the same names and sizes after every episode; may
        be empty. Runs record them.
        """

    def settings(self) -> dict[str, Any]:
        """Return plain data (JSON) that, with `name`, says how the learner was set up."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything learnt so far, and the generator's state, as arrays.

        Called between episodes.
        """

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned, with the same numbers as if never interrupted."""

    def fresh(self, seed: int | np.random.SeedSequence = 0) -> Learner:
        """Return the same learner with nothing learnt yet."""


@runtime_checkable
class FastPath(Protocol):
    """Optional: a learner that plays a whole chunk of episodes in one compiled call.

    The numbers must be those of the episode-by-episode loop.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> isinstance(sd.PROPDPPO.for_problem(world, sd.Slater(0.2)), sd.learners.FastPath)
    True
    """

    def plays(self, arrays: Any) -> bool:
        """Whether the learner can play in a world of this kind (`TableArrays`, ...)."""

    def play_chunk(
        self, arrays: Any, inputs: ChunkInput, out: ChunkOutput
    ) -> Mapping[str, NDArray[Any]]:
        """Play B episodes, fill `out`, and return the trace with a first axis of length B."""
