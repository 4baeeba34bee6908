"""PROPD-PPO (Ding & Lavaei, AAAI 2023), Algorithm 1 with the evaluation of Algorithm 2 or 3.

    for m = 1, ..., M:
        π_m ∝ π_{m-1} exp(α (Q_r + μ·Q_g)), or uniform at the start of an L-block
        act for H steps with π_m, observe rewards and utilities of the visited pairs
        μ ← clip(μ + η (b - V_g(x1) - ξ μ), 0, χ)
        Q_r, Q_g, V_g ← optimistic evaluation of π_m on the episodes of the W-block before m

The learner never sees the world: it is told sizes, the initial distribution, the feature maps where
the world has them, each episode's thresholds before the episode and its own trajectory after it.
The compiled parts, line by line, are in `safedrift.kernels.tabular.propd_ppo` (Algorithms 1 and 3) and
`safedrift.kernels.linear.propd_ppo` (Algorithm 2); simulation and a user's own loop drive the same ones.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.linear.memory import LinearMemory, LinearSettings
from safedrift.kernels.tabular.memory import Memory, Settings
from safedrift.kernels.types import Features
from safedrift.knowledge import Budgets, Dimensions, Knowledge, Sizes
from safedrift.learners.propd_ppo.engines import (
    BoxEngine,
    BoxMaps,
    BoxPolicy,
    Engine,
    LinearEngine,
    Policy,
    TableEngine,
    indices,
)
from safedrift.learners.propd_ppo.parameters import Parameters
from safedrift.learners.propd_ppo.tuning import tune

__all__ = ["PROPDPPO", "Problem"]


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


class PROPDPPO:
    """The learner. Build it with `for_problem`, or from sizes and parameters of your own.

    Parameters
    ----------
    sizes : Sizes
        (M, H, S, A, K).
    initial : array (S,)
        Distribution of the first state (the paper's x_1 is a one-hot vector).
    parameters : Parameters
        From `tune` or one of `theorem1` to `theorem4`.
    knowledge : Slater or LocalBudgets
    seed : int or SeedSequence
        Of the actions drawn by `act`.
    features : Features, optional
        The known feature maps of a linear-kernel CMDP: values are then estimated by least squares
        (Algorithm 2) instead of counts (Algorithm 3).
    box : optional
        Where states fill a box: an object with `features_at(points)`, `low` and `high`.
    """

    name = "propd-ppo"

    def __init__(
        self,
        sizes: Sizes,
        initial: ArrayLike,
        parameters: Parameters,
        knowledge: Knowledge,
        seed: int | np.random.SeedSequence = 0,
        *,
        features: Features | None = None,
        box: BoxMaps | None = None,
    ) -> None:
        _check.kind("sizes", sizes, Sizes).check()
        _check.kind("parameters", parameters, Parameters)
        self.sizes = sizes
        self.parameters = parameters
        self.knowledge = knowledge
        self.features = features
        self.box = box
        self.initial = _check.floats("initial", initial, (sizes.S,))
        _check.distribution("initial", self.initial)
        if box is not None and features is None:
            raise TypeError("features must be given with box; got None")
        self.engine: Engine
        if features is None:
            self.engine = TableEngine(sizes, self.initial, parameters)
        elif box is None:
            self.engine = LinearEngine(sizes, self.initial, parameters, features)
        else:
            self.engine = BoxEngine(sizes, self.initial, parameters, features, box)
        self._generator = np.random.default_rng(_check.seed("seed", seed))
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
        """Set the learner up for a problem of known sizes and, where it has them, known features.

        A `DriftingCMDP` is learnt by counts (Algorithm 3, Theorems 3 and 4), a `LinearKernelCMDP`
        by least squares (Algorithm 2, Theorems 1 and 2).

        Parameters
        ----------
        knowledge
            `Slater(gamma)` or `LocalBudgets(...)`.
        mode
            "printed", "repaired" or "practical"; see `safedrift.learners.propd_ppo.parameters`.
        budgets
            Total variation budgets, needed by the first two modes.
        noisy
            Whether observed rewards and utilities are random around their means.
        **overrides
            alpha, L, eta, xi, chi, lagged, feed, W, lam, bonus_scale; recorded in the result.
        """
        for name in (*Sizes._fields, "initial"):
            if not hasattr(world, name):
                raise TypeError(
                    "world must be a DriftingCMDP or a LinearKernelCMDP; "
                    f"got {type(world).__name__}"
                )
        sizes = Sizes(world.M, world.H, world.S, world.A, world.K)
        features = getattr(world, "features", None)
        dimensions = None
        if features is not None:
            dimensions = Dimensions(*(getattr(world, name) for name in ("d1", "d2", "bound")))
        parameters = tune(
            sizes, knowledge, budgets, dimensions=dimensions, mode=mode, rho=rho, p=p, noisy=noisy,
            overrides=overrides,
        )  # fmt: skip
        return cls(
            sizes, world.initial, parameters, knowledge, seed, features=features,
            box=getattr(world, "box", None),
        )  # fmt: skip

    def fresh(self, seed: int | np.random.SeedSequence = 0) -> PROPDPPO:
        """Return the same learner with nothing learnt yet."""
        return PROPDPPO(
            self.sizes, self.initial, self.parameters, self.knowledge, seed,
            features=self.features, box=self.box,
        )  # fmt: skip

    def __repr__(self) -> str:
        return (
            f"PROPDPPO({self.parameters.mode}, {self.parameters.source}, {self.sizes}, "
            f"episode={self.episode})"
        )

    @property
    def settings(self) -> Settings | LinearSettings:
        """What the compiled parts are told."""
        return self.engine.settings

    @property
    def memory(self) -> Memory | LinearMemory:
        """What has been learnt: the arrays of the compiled parts."""
        return self.engine.memory

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
        return self.engine.q()

    def reserve(self, episodes: int) -> None:
        """Make room for so many more episodes (the compiled parts allocate nothing)."""
        self.engine.reserve(_check.integer("episodes", episodes, lower=0))

    # ------------------------------------------------------------ a user's own loop

    def begin_episode(self, thresholds: ArrayLike) -> Policy | BoxPolicy:
        """Start the next episode under thresholds b_m (K,) and return its policy."""
        if self._thresholds is not None:
            raise RuntimeError("begin_episode was called twice; call end_episode in between")
        M, H, _, _, K = self.sizes
        if self.episode >= M:
            raise RuntimeError(f"the learner was set up for M = {M} episodes and has finished them")
        wanted = _check.floats("thresholds", np.atleast_1d(np.asarray(thresholds, float)), (K,))
        _check.everywhere("thresholds", wanted, (wanted > 0) & (wanted <= H), f"in (0, {H}]")
        self.reserve(1)
        self._thresholds = wanted
        return self.engine.begin(self.episode)

    def act(self, h: int, state: Any) -> int:
        """Draw an action at step h (from 0) in `state`: a number, or a point of the box (n,)."""
        if self._thresholds is None:
            raise RuntimeError("act was called before begin_episode")
        h = _check.integer("h", h, lower=0, upper=self.sizes.H - 1)
        return self.engine.act(h, state, self._generator.random())

    def end_episode(
        self, states: ArrayLike, actions: ArrayLike, rewards: ArrayLike, utilities: ArrayLike
    ) -> None:
        """Learn from a finished episode.

        Parameters
        ----------
        states : (H,) of ints, or (H, n) of floats on a box
            The state before each action.
        actions : (H,) of ints
        rewards : (H,)
        utilities : (K, H), or (H,) where K = 1
        """
        if self._thresholds is None:
            raise RuntimeError("end_episode was called before begin_episode")
        _, H, _, A, K = self.sizes
        taken = indices("actions", actions, H, A)
        values = np.empty((1 + K, H))
        values[0] = _check.floats("rewards", rewards, (H,))
        one = K == 1 and np.ndim(utilities) == 1
        values[1:] = _check.floats("utilities", [utilities] if one else utilities, (K, H))
        for name, seen in (("rewards", values[0]), ("utilities", values[1:])):
            _check.everywhere(name, seen, (seen >= 0) & (seen <= 1), "in [0, 1]")
        self.engine.end(self.episode, self._thresholds, states, taken, values)
        self._thresholds = None
