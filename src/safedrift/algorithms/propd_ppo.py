"""PROPD-PPO (Ding & Lavaei, AAAI 2023), Algorithm 1 with the evaluation of Algorithm 3.

    for m = 1, ..., M:
        π_m ∝ π_{m-1} exp(α (Q_r + μ·Q_g)), or uniform at the start of an L-block
        act for H steps with π_m, observe rewards and utilities of the visited pairs
        μ ← clip(μ + η (b - V_g(x1) - ξ μ), 0, χ)
        Q_r, Q_g, V_g ← optimistic evaluation of π_m on the episodes of the W-block before m

The learner never sees the world: it is told sizes, the initial distribution, each episode's
thresholds before the episode and its own trajectory after it. The compiled parts, line by line,
are in `safedrift.kernels.learner`; simulation and a user's own loop drive the same ones.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.algorithms.knowledge import Budgets, Knowledge, Sizes
from safedrift.algorithms.parameters import Parameters, tune
from safedrift.algorithms.parts import kernel_settings
from safedrift.kernels import learner
from safedrift.kernels.memory import PLAIN, Memory, make_memory, with_room, with_views

__all__ = ["PROPDPPO", "Policy", "Problem"]


class Problem(Protocol):
    """What a learner may ask of a problem when it is set up: sizes and the first state."""

    M: int
    H: int
    S: int
    A: int
    K: int

    @property
    def initial(self) -> FloatArray:
        """Distribution of the first state (S,)."""


class Policy:
    """A snapshot of π_m: `policy[h, s]` is a distribution, np.asarray(policy) is (H, S, A)."""

    def __init__(self, memory: Memory) -> None:
        self.shape = (*memory.slot_of.shape, memory.pi.shape[1])
        used = int(memory.slots.max())
        self._slots = memory.slots.copy()
        self._state = memory.state[:, :used].copy()
        self._pi = memory.pi[:, :, :used].copy()

    def __getitem__(self, key: tuple[int, int]) -> FloatArray:
        H, S, A = self.shape
        if not isinstance(key, tuple) or len(key) != 2:
            raise TypeError(f"policy[h, s] needs a step and a state; got {key!r}")
        h = _check.integer("h", key[0], lower=0, upper=H - 1)
        s = _check.integer("s", key[1], lower=0, upper=S - 1)
        found = np.flatnonzero(self._state[h, : self._slots[h]] == s)
        if found.size:
            return np.asarray(self._pi[h, :, found[0]])
        return np.full(A, 1 / A)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        H, _, A = self.shape
        dense = np.full(self.shape, 1 / A)
        for h in range(H):
            n = self._slots[h]
            dense[h, self._state[h, :n]] = self._pi[h, :, :n].T
        return dense if dtype is None else dense.astype(dtype)


class PROPDPPO:
    """The learner. Build it with `for_problem`, or from sizes and parameters of your own.

    Parameters
    ----------
    sizes : Sizes
        (M, H, S, A, K).
    initial : array (S,)
        Distribution of the first state (the paper's x_1 is a one-hot vector).
    parameters : Parameters
        From `tune`, `theorem3` or `theorem4`.
    knowledge : Slater or LocalBudgets
    seed : int or SeedSequence
        Of the actions drawn by `act`.
    """

    name = "propd-ppo"

    def __init__(
        self,
        sizes: Sizes,
        initial: ArrayLike,
        parameters: Parameters,
        knowledge: Knowledge,
        seed: int | np.random.SeedSequence = 0,
    ) -> None:
        for name, value in zip(Sizes._fields, sizes, strict=True):
            _check.integer(name, value)
        self.sizes = sizes
        self.parameters = parameters
        self.knowledge = knowledge
        self.initial = _check.floats("initial", initial, (sizes.S,))
        _check.distribution("initial", self.initial)
        self.settings = kernel_settings(
            parameters.improvement, parameters.dual, parameters.evaluation, sizes.H
        )
        blocks = -(-sizes.M // self.settings.W)
        if self.settings.LV.shape != (blocks, sizes.K, sizes.H):
            _check.fail("LV", f"of shape {(blocks, sizes.K, sizes.H)}", self.settings.LV.shape)
        for part in ("root", "tail"):
            if getattr(self.settings, part).shape != (sizes.H,):
                _check.fail(f"bonus.{part}", f"of shape ({sizes.H},)", getattr(self.settings, part))
        channels = 1 + sizes.K * (2 if self.settings.feed == PLAIN else 1)
        self.memory = make_memory(*sizes[1:], channels, self.initial)
        self._generator = np.random.default_rng(seed)
        self._thresholds: FloatArray | None = None

    @classmethod
    def for_problem(
        cls,
        world: Problem,
        knowledge: Knowledge,
        *,
        mode: str = "practical",
        budgets: Budgets | None = None,
        rho: float = 0.5,
        p: float = 0.05,
        noisy: bool = False,
        seed: int | np.random.SeedSequence = 0,
        **overrides: Any,
    ) -> PROPDPPO:
        """Set the learner up for a problem of known sizes.

        Parameters
        ----------
        knowledge
            `Slater(gamma)` or `LocalBudgets(...)`.
        mode
            "printed", "repaired" or "practical"; see `safedrift.algorithms.parameters`.
        budgets
            Total variation budgets, needed by the first two modes.
        noisy
            Whether observed rewards and utilities are random around their means.
        **overrides
            alpha, L, eta, xi, chi, lagged, feed, W, lam, bonus_scale; recorded in the result.
        """
        for name in (*Sizes._fields, "initial"):
            if not hasattr(world, name):
                raise TypeError(f"world must be a DriftingCMDP; got {type(world).__name__}")
        sizes = Sizes(world.M, world.H, world.S, world.A, world.K)
        parameters = tune(
            sizes, knowledge, budgets, mode=mode, rho=rho, p=p, noisy=noisy, overrides=overrides
        )
        return cls(sizes, world.initial, parameters, knowledge, seed)

    def fresh(self, seed: int | np.random.SeedSequence = 0) -> PROPDPPO:
        """Return the same learner with nothing learnt yet."""
        return PROPDPPO(self.sizes, self.initial, self.parameters, self.knowledge, seed)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a copied learner: its views must share bytes again."""
        self.__dict__.update(state)
        self.memory = with_views(self.memory)

    def __repr__(self) -> str:
        return (
            f"PROPDPPO({self.parameters.mode}, {self.parameters.source}, {self.sizes}, "
            f"episode={self.episode})"
        )

    @property
    def episode(self) -> int:
        """Episodes finished so far."""
        return int(self.memory.episode[0])

    @property
    def mu(self) -> FloatArray:
        """Multipliers (K,)."""
        return self.memory.mu.copy()

    @property
    def estimates(self) -> FloatArray:
        """Last estimates of V_r and V_g,k at the initial distribution (1+K,)."""
        return self.memory.v_start[: 1 + self.sizes.K].copy()

    def q(self) -> FloatArray:
        """Last Q estimates, reward then utilities, as an array (1+K, H, S, A)."""
        H, S, A, K = self.sizes[1:]
        full = np.empty((self.memory.q.shape[0], H, S, A))
        learner.write_estimates(self.memory, full)
        return full[: 1 + K]

    def reserve(self, episodes: int) -> None:
        """Make room for so many more episodes (the compiled parts allocate nothing)."""
        self.memory = with_room(self.memory, _check.integer("episodes", episodes, lower=0))

    # ------------------------------------------------------------ a user's own loop

    def begin_episode(self, thresholds: ArrayLike) -> Policy:
        """Start the next episode under thresholds b_m (K,) and return its policy."""
        if self._thresholds is not None:
            raise RuntimeError("begin_episode was called twice; call end_episode in between")
        M, H, _, _, K = self.sizes
        if self.episode >= M:
            raise RuntimeError(f"the learner was set up for M = {M} episodes and has finished them")
        wanted = _check.floats("thresholds", np.atleast_1d(np.asarray(thresholds, float)), (K,))
        _check.everywhere("thresholds", wanted, (wanted > 0) & (wanted <= H), f"in (0, {H}]")
        self.reserve(1)
        learner.begin(self.episode, self.settings, self.memory)
        self._thresholds = wanted
        return Policy(self.memory)

    def act(self, h: int, state: int) -> int:
        """Draw an action at step h (from 0) in `state`."""
        if self._thresholds is None:
            raise RuntimeError("act was called before begin_episode")
        h = _check.integer("h", h, lower=0, upper=self.sizes.H - 1)
        state = _check.integer("state", state, lower=0, upper=self.sizes.S - 1)
        return int(learner.draw(h, state, self._generator.random(), self.memory))

    def end_episode(
        self, states: ArrayLike, actions: ArrayLike, rewards: ArrayLike, utilities: ArrayLike
    ) -> None:
        """Learn from a finished episode.

        Parameters
        ----------
        states, actions : (H,) of ints
            The state before each action, and the action.
        rewards : (H,)
        utilities : (K, H), or (H,) where K = 1
        """
        if self._thresholds is None:
            raise RuntimeError("end_episode was called before begin_episode")
        M, H, S, A, K = self.sizes
        path = _indices("states", states, H, S)
        taken = _indices("actions", actions, H, A)
        values = np.empty((1 + K, H))
        values[0] = _check.floats("rewards", rewards, (H,))
        one = K == 1 and np.ndim(utilities) == 1
        values[1:] = _check.floats("utilities", [utilities] if one else utilities, (K, H))
        for name, seen in (("rewards", values[0]), ("utilities", values[1:])):
            _check.everywhere(name, seen, (seen >= 0) & (seen <= 1), "in [0, 1]")
        learner.end(self.episode, self._thresholds, path, taken, values, self.settings, self.memory)
        self._thresholds = None


def _indices(name: str, given: ArrayLike, H: int, upper: int) -> NDArray[np.int64]:
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
    return np.ascontiguousarray(array, dtype=np.int64)
