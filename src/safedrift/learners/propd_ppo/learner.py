"""PROPD-PPO (Ding & Lavaei, AAAI 2023), Algorithm 1 with the evaluation of Algorithm 2 or 3.

    for m = 1, ..., M:
        π_m ∝ π_{m-1} exp(α (Q_r + μ·Q_g)), or uniform at the start of an L-block
        act for H steps with π_m, observe rewards and utilities of the visited pairs
        μ ← clip(μ + η (b - V_g(x1) - ξ μ), 0, χ)
        Q_r, Q_g, V_g ← optimistic evaluation of π_m on the episodes of the W-block before m

The learner never sees the world: it knows sizes, the initial distribution, the feature maps where
the world has them, each episode's thresholds before the episode and its own trajectory after it.
Algorithm 1, line by line, is in `kernels.tabular.propd_ppo`, with Algorithm 3; Algorithm 2 is in
`kernels.linear.propd_ppo`. A simulation and an episode-by-episode loop run the same compiled code.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.records import (
    ChunkInput,
    ChunkOutput,
    Log,
    make_episode_buffer,
    make_log,
    make_trace,
)
from safedrift.kernels.types import Features
from safedrift.knowledge import Budgets, Dimensions, Knowledge, Sizes, Slater
from safedrift.learners import files
from safedrift.learners.forgetting import (
    Adaptive,
    Forgetting,
    Never,
    Periodic,
    alarmed,
    record,
    shown_alarms,
)
from safedrift.learners.generators import generator_state, restore_generator
from safedrift.learners.policies import Lease
from safedrift.learners.propd_ppo.box_engine import BoxEngine, BoxMaps
from safedrift.learners.propd_ppo.engines import Engine, LinearEngine, TableEngine
from safedrift.learners.propd_ppo.notes import notes_on
from safedrift.learners.propd_ppo.parameters import Parameters, window_count
from safedrift.learners.propd_ppo.settling_engine import SettlingEngine
from safedrift.learners.propd_ppo.tuning import tune
from safedrift.learners.protocol import PolicyLike, Problem, Trajectory, checked_thresholds

__all__ = ["PROPDPPO"]


class PROPDPPO:
    """The learner. Build it with `for_problem`, or from sizes and parameters of your own.

    Parameters
    ----------
    sizes : Sizes
        (M, H, S, A, K); M is None for a learner that goes on for ever.
    initial : array (S,) or None
        Distribution of the first state (the paper's x_1 is a one-hot vector). None: not known; the
        learner uses the shares of the first states it has seen.
    parameters : Parameters
        From `tune` or one of `theorem1` to `theorem4`.
    knowledge : Slater, LocalBudgets or None
        None: nothing is known. The parameters then have a `Settling`.
    seed : int or SeedSequence
        Of the actions drawn by `act` without a uniform.
    features : Features, optional
        The known feature maps of a linear-kernel CMDP: values are then estimated by least squares
        (Algorithm 2) instead of counts (Algorithm 3).
    box : optional
        Where states fill a box: an object with `features_at(points)`, `low` and `high`.
    forgetting : Forgetting, optional
        What is forgotten when; by default the paper's periodic restarts with W and L of the
        parameters. With least squares: `Periodic` or `Never`.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("maze", episodes=100)
    >>> learner = sd.PROPDPPO.for_problem(world, sd.Slater(gamma=0.45))
    >>> policy = learner.begin_episode(world.thresholds[0])
    >>> policy[0, 22]  # uniform in the first episode
    array([0.25, 0.25, 0.25, 0.25])
    """

    name = "propd-ppo"

    def __init__(
        self,
        sizes: Sizes,
        initial: ArrayLike | None,
        parameters: Parameters,
        knowledge: Knowledge | None,
        seed: int | np.random.SeedSequence = 0,
        *,
        features: Features | None = None,
        box: BoxMaps | None = None,
        forgetting: Forgetting | None = None,
    ) -> None:
        _check.kind("sizes", sizes, Sizes).check()
        _check.kind("parameters", parameters, Parameters)
        self.sizes = sizes
        self.parameters = parameters
        self.knowledge = knowledge
        self.features = features
        self.box = box
        self.initial = None
        if initial is not None:
            self.initial = _check.floats("initial", initial, (sizes.S,))
            _check.distribution("initial", self.initial)
        if box is not None and features is None:
            raise TypeError("features must be given with box; got None")
        own = Periodic(int(parameters.evaluation.W), int(parameters.improvement.L))
        self.forgetting: Forgetting = own if forgetting is None else forgetting
        if self.forgetting != own:
            parameters = _without_windows(parameters, self.forgetting)
        if box is not None and sizes.M is None and not isinstance(self.forgetting, Periodic):
            _check.fail(
                "forgetting",
                "Periodic where M is None: on a box all episodes since the last policy restart "
                "are kept",
                self.forgetting,
            )
        if features is not None and not isinstance(self.forgetting, Periodic | Never):
            _check.fail("forgetting", "Periodic or Never with least squares", self.forgetting)
        windows = window_count(sizes, own.W) if self.forgetting == own else 1
        start = np.full(sizes.S, 1 / sizes.S) if self.initial is None else self.initial
        self.engine: Engine
        if (knowledge is None) != (parameters.settling is not None):
            _check.fail(
                "knowledge", "None if and only if the parameters have a Settling", knowledge
            )
        if knowledge is None and features is not None:
            _check.fail("features", "None where nothing is told", "features")
        if features is None:
            table = TableEngine(sizes, start, parameters, self.forgetting, windows)
            self.engine = table
            if parameters.settling is not None:
                self.engine = SettlingEngine(table, parameters.dual, parameters.settling)
        elif box is None:
            self.engine = LinearEngine(sizes, start, parameters, windows, features)
        else:
            self.engine = BoxEngine(sizes, start, parameters, windows, features, box)
        self._generator = np.random.default_rng(_check.seed("seed", seed))
        self._thresholds: FloatArray | None = None  # of the episode in progress
        self._lease = Lease()  # of its policy
        self._last = (False, False, 0.0)  # policy restart, window restart, share at cap

    @classmethod
    def for_problem(
        cls,
        world: Problem,
        knowledge: Knowledge | None,
        *,
        mode: str = "practical",
        budgets: Budgets | None = None,
        rho: float = 0.5,
        p: float = 0.05,
        noisy: bool = False,
        seed: int | np.random.SeedSequence = 0,
        forgetting: Forgetting | None = None,
        **overrides: Any,
    ) -> PROPDPPO:
        """Set the learner up for a problem of known sizes and, where it has them, known features.

        A `DriftingCMDP` is learnt by counts (Algorithm 3, Theorems 3 and 4), a `LinearKernelCMDP`
        by least squares (Algorithm 2, Theorems 1 and 2).

        Parameters
        ----------
        knowledge
            `Slater(gamma)`, `LocalBudgets(...)`, or None: nothing is told, neither budgets nor a
            gap nor M. The learner is then not the paper's: data are forgotten adaptively, and
            policy and multipliers settle (`learners.propd_ppo.told_nothing`). Counts only.
        mode
            "printed", "repaired" or "practical"; see `learners.propd_ppo.parameters`.
        budgets
            Total variation budgets, needed by the first two modes.
        world
            Also a `ProblemSpec`. Where its M is None, give `forgetting`, or W and L, unless nothing
            is told.
        noisy
            Whether observed rewards and utilities are random around their means.
        forgetting
            By default the paper's periodic restarts, or `Adaptive` where nothing is told.
        **overrides
            alpha, L, eta, xi, chi, lagged, dual_signal, W, lam, bonus_scale; where nothing is told
            alpha, tau, eta, proportional, chi, rounds, dual_signal, lam, bonus_scale. Results
            record them.
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
        if knowledge is None:
            forgetting = Adaptive() if forgetting is None else forgetting
        elif sizes.M is None and forgetting is not None:
            # The window's own lengths; where it has none, nothing depends on these.
            lengths = {name: getattr(forgetting, name, None) or 1 for name in ("W", "L")}
            overrides = lengths | overrides
        parameters = tune(
            sizes,
            knowledge,
            budgets,
            dimensions=dimensions,
            mode=mode,
            rho=rho,
            p=p,
            noisy=noisy,
            overrides=overrides,
        )
        known = getattr(world, "initial_known", True)
        return cls(
            sizes,
            world.initial if known else None,
            parameters,
            knowledge,
            seed,
            features=features,
            box=getattr(world, "box", None),
            forgetting=forgetting,
        )

    def fresh(self, seed: int | np.random.SeedSequence = 0) -> PROPDPPO:
        """Return the same learner with nothing learnt yet."""
        return PROPDPPO(
            self.sizes,
            self.initial,
            self.parameters,
            self.knowledge,
            seed,
            features=self.features,
            box=self.box,
            forgetting=self.forgetting,
        )

    def __repr__(self) -> str:
        return (
            f"PROPDPPO({self.parameters.mode}, {self.parameters.source}, {self.sizes}, "
            f"episode={self.episode})"
        )

    # ------------------------------------------------------------ one episode

    def begin_episode(self, thresholds: ArrayLike) -> PolicyLike:
        """Start the next episode under thresholds b_m (K,) and return its policy.

        The policy is a view, to be read until the next call; np.array(policy) is a copy.
        """
        if self._thresholds is not None:
            raise RuntimeError("begin_episode was called twice; call end_episode in between")
        M = self.sizes.M
        if M is not None and self.episode >= M:
            raise RuntimeError(f"the learner was set up for M = {M} episodes and has finished them")
        wanted = checked_thresholds(thresholds, self.sizes)
        self._lease.end()
        self.reserve(1)
        self._thresholds = wanted
        forget = self.forgetting.schedule(self.episode, 1)
        opens = bool(forget.opens_window[0]) or alarmed(self.memory)
        self._last = (bool(forget.restarts[0]), opens, 0.0)
        policy = self.engine.begin(forget, wanted)
        self._lease = getattr(policy, "lease", self._lease)
        return policy

    def act(self, h: int, state: Any, u: float | None = None) -> int:
        """Draw an action at step h (from 0) in `state`: a number, or a point of the box (n,).

        `u` in [0, 1) decides; by default the learner's own generator provides it.
        """
        if self._thresholds is None:
            raise RuntimeError("act was called before begin_episode")
        h = _check.integer("h", h, lower=0, upper=self.sizes.H - 1)
        if u is None:
            u = self._generator.random()
        elif not 0 <= _check.real("u", u) < 1:
            _check.fail("u", "in [0, 1)", u)
        return self.engine.act(h, state, float(u))

    def end_episode(self, trajectory: Trajectory) -> None:
        """Learn from a finished episode."""
        if self._thresholds is None:
            raise RuntimeError("end_episode was called before begin_episode")
        _, H, _, _, K = self.sizes
        given = _check.kind("trajectory", trajectory, Trajectory)
        if isinstance(self.engine, BoxEngine):  # which knows the points of its box
            given = given._replace(states=self.engine.checked_states(given.states))
        states, actions, rewards, utilities = given.checked(self.sizes)
        signals = np.vstack((rewards, utilities))
        if self.initial is None:
            self._count_first_state(int(np.asarray(states)[0]))
        at_cap = self.engine.end(self._thresholds, np.asarray(states), actions, signals)
        self._last = (*self._last[:2], at_cap / (H * (1 + K)))
        self._thresholds = None

    def _count_first_state(self, s: int) -> None:
        """Where the initial distribution is not known: shares of the first states so far."""
        m = self.episode
        shares = self.memory.values.initial
        shares *= m / (m + 1)
        shares[s] += 1 / (m + 1)

    # ------------------------------------------------------------ a chunk of episodes

    def plays(self, arrays: Any) -> bool:
        """Whether chunks can be played in compiled code in a world of this kind."""
        wanted = getattr(self.engine, "plays_in", None)
        return wanted is not None and isinstance(arrays, wanted) and self.initial is not None

    def play_chunk(
        self, arrays: Any, inputs: ChunkInput, out: ChunkOutput, log: Log | None = None
    ) -> dict[str, NDArray[Any]]:
        """Play B episodes in one compiled call; returns their trace, first axis B.

        `log`, from `make_log`, also keeps estimates and trajectories, for an audit.
        """
        _, H, S, A, K = self.sizes
        B = len(inputs.action_uniforms)
        C = self.memory.values.v_start.size
        self._lease.end()
        self.reserve(B)
        schedule = self.forgetting.schedule(self.episode, B)
        opens = schedule.opens_window.copy()
        opens[0] |= alarmed(self.memory)
        trace = make_trace(B, K, C)
        log = make_log(0, C, H, S, A, K) if log is None else log
        self.engine.play(  # type: ignore[attr-defined]
            arrays,
            self.hyperparameters,
            self.memory,
            schedule,
            inputs,
            make_episode_buffer(H, K),
            out,
            trace,
            log,
        )
        log.v_start[:] = trace.v_start[: len(log.v_start)]
        restarts = schedule.restarts
        opens[1:] |= trace.alarm[:-1].any(axis=1)
        self._last = (bool(restarts[-1]), bool(opens[-1]), float(trace.at_cap[-1]))
        return {
            "mu": trace.mu,
            "estimated_reward": trace.v_start[:, 0],
            "estimated_utility": trace.v_start[:, 1 : 1 + K],
            "policy_restart": restarts,
            "window_restart": opens,
            "at_cap": trace.at_cap,
            **shown_alarms(self.memory, trace.alarm),
        }

    def reserve(self, episodes: int) -> None:
        """Make room for so many more episodes (the compiled code allocates nothing)."""
        self.engine.reserve(_check.integer("episodes", episodes, lower=0))

    # ------------------------------------------------------------ what it shows and stores

    @property
    def hyperparameters(self) -> Any:
        """What the compiled code works with (`Hyperparameters` or `LinearHyperparameters`)."""
        return self.engine.hyperparameters

    @property
    def memory(self) -> Any:
        """What has been learnt: the arrays of the compiled code."""
        return self.engine.memory

    @property
    def episode(self) -> int:
        """Episodes finished so far."""
        return int(self.memory.clock.episode[0])

    @property
    def mu(self) -> FloatArray:
        """Multipliers (K,)."""
        return np.array(self.memory.dual.mu)

    @property
    def estimates(self) -> FloatArray:
        """Last estimates of V_r and V_g,k at the initial distribution (1+K,)."""
        return np.array(self.memory.values.v_start[: 1 + self.sizes.K])

    def q(self) -> FloatArray:
        """Last Q estimates, reward then utilities, as an array (1+K, H, S, A)."""
        return self.engine.q()

    def trace(self) -> dict[str, Any]:
        """Return multipliers, estimates, restarts and the share of estimates at their cap.

        With `Adaptive`, "alarm" (2+K,) says for transitions, reward and utilities whether this
        episode raised one, and "window_restart" whether the one before did.
        """
        estimates = self.estimates
        restart, opened, at_cap = self._last
        return {
            "mu": self.mu,
            "estimated_reward": estimates[0],
            "estimated_utility": estimates[1:],
            "policy_restart": restart,
            "window_restart": opened,
            "at_cap": at_cap,
            **shown_alarms(self.memory),
        }

    def settings(self) -> dict[str, Any]:
        """Return parameters, knowledge and forgetting as plain data."""
        told, knowledge = _told(self.knowledge)
        return {
            "told": told,
            "parameters": self.parameters.record(),
            "knowledge": knowledge,
            "forgetting": record(self.forgetting),
        }

    def notes(self, trace: Mapping[str, NDArray[Any]]) -> list[str]:
        """Return what a user should know about a run with this trace, in sentences."""
        residual = float(getattr(self.memory.window, "residual", np.zeros(1))[0])
        return notes_on(self.parameters, self.forgetting, self.sizes.M, trace, residual)

    def check_problem(self, world: Problem) -> None:
        """Refuse a world with another initial distribution or other features."""
        told = getattr(world, "initial_known", True)
        if told != (self.initial is not None) or (
            self.initial is not None and not np.array_equal(world.initial, self.initial)
        ):
            _check.fail("the learner's initial distribution", "the world's", "another")
        on_box = getattr(world, "box", None) is not None
        if not _same(getattr(world, "features", None), self.features) or on_box != (
            self.box is not None
        ):
            _check.fail(
                "the learner",
                "made for this world's features: PROPDPPO.for_problem(world, ...)",
                "others",
            )

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything learnt so far as arrays, for `restore`."""
        if self._thresholds is not None:
            raise RuntimeError("state was called within an episode; call end_episode first")
        last = np.array(self._last, np.float64)
        return self.engine.state() | {"generator": generator_state(self._generator), "last": last}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` of a learner with the same settings returned."""
        for key in ("generator", "last"):
            if key not in state:
                _check.fail("state", "what state() of a learner like this returned", f"no {key!r}")
        self._lease.end()
        self.engine.restore(state)
        restore_generator(self._generator, state["generator"])
        restart, opened, at_cap = np.asarray(state["last"], np.float64)
        self._last = (bool(restart), bool(opened), float(at_cap))
        self._thresholds = None

    def save(self, file: str | os.PathLike[str]) -> Path:
        """Write everything learnt so far to a file, between two episodes (`files.save`)."""
        return files.save(self, file)

    def load(self, file: str | os.PathLike[str]) -> PROPDPPO:
        """Continue from a file of a learner with the same settings (`files.load`)."""
        return files.load(self, file)


def _told(knowledge: Knowledge | None) -> tuple[list[str], dict[str, Any]]:
    """What a learner is told, in words and as plain data."""
    if knowledge is None:
        return [], {"name": "none"}
    if isinstance(knowledge, Slater):
        return ["Slater gap"], {"name": knowledge.name, "gamma": knowledge.gamma}
    return ["local budgets"], {"name": knowledge.name}


def _same(one: Features | None, other: Features | None) -> bool:
    """Whether two sets of features, or none, are equal."""
    if one is None or other is None or one is other:
        return one is other
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in one._fields)


def _without_windows(parameters: Parameters, forgetting: Forgetting) -> Parameters:
    """Return parameters for windows that are not the W-blocks these were made for.

    LV and the like are bounds on the drift inside each W-block; elsewhere they mean nothing.
    """
    evaluation = parameters.evaluation
    changed: dict[str, Any] = {}
    for name in ("LV", "window_drift_P", "window_drift_g"):
        values = getattr(evaluation, name, None)
        if values is not None:
            if np.any(values):
                _check.fail(
                    "forgetting",
                    f"Periodic(W={evaluation.W}, L={parameters.improvement.L}) where the "
                    f"parameters have local variation terms ({name})",
                    forgetting,
                )
            changed[name] = np.zeros((1, *values.shape[1:]))
    return replace(parameters, evaluation=replace(evaluation, **changed))
