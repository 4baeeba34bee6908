"""Gymnasium environments with finitely many states and actions as worlds without a model.

`from_gymnasium` defines an episode as a learner sees it:

    states      its observations as numbers, and one more, "over", where an ended episode stays
    episodes    `horizon` steps; after an early end the rest is spent in "over"
    rewards     (r - low)/(high - low); an ended episode earns r = 0
    utilities   utility(transition), one or K numbers in [0, 1]; `over` in an ended episode

so that a sum V of rewards here is (V_raw - H low)/(high - low) of a sum in the environment's units.
With a `Scale`, utilities and thresholds are in units of their own too, and so are results.
The learner sees only its trajectories. Regret is exact in environments made by safedrift, and
unknown in others.
"""

from __future__ import annotations

import math
from collections.abc import Sized
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from numpy.typing import ArrayLike

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.adapters.environment import DriftingEnv
from safedrift.adapters.transitions import (
    Signal,
    Transition,
    called,
    checked_range,
    from_info,
    made_environment,
    utilities_of,
)
from safedrift.models import DriftingWorld
from safedrift.models.tabular import checked_thresholds
from safedrift.scale import Scale

__all__ = ["EnvironmentStepper", "GymnasiumWorld", "from_gymnasium"]

EPISODES = 20_000
MOST_STATES = 10_000_000  # larger tables do not fit into memory


@dataclass(frozen=True, eq=False)
class GymnasiumWorld:
    """An environment as a world without a model; built by `from_gymnasium`.

    Attributes
    ----------
    env : the environment; it is used, never closed
    H, S, A : steps, states with "over" as the last, actions
    thresholds : (M, K) b_m
    initial : (S,) distribution of the first state; uniform if unknown
    initial_known : whether it is known; otherwise a learner gets the shares of those seen so far
    utility, over : of a transition; (K,) of a step of an ended episode
    reward_range : raw rewards that become 0 and 1
    name : of the environment
    model : the world behind the environment, or None if unknown; it has no "over"
    scale : units of rewards and constraints; None: utilities are in [0, 1]

    Examples
    --------
    >>> import safedrift as sd
    >>> sd.from_gymnasium("FrozenLake-v1", 15, lambda t: 1.0 - t.terminated, 14.0, episodes=100)
    GymnasiumWorld(FrozenLake-v1, M=100, H=15, S=17, A=4, K=1)
    """

    env: gymnasium.Env[Any, Any]
    H: int
    S: int
    A: int
    thresholds: FloatArray
    initial: FloatArray
    initial_known: bool
    utility: Signal
    over: FloatArray
    reward_range: tuple[float, float]
    name: str
    model: DriftingWorld | None = None
    scale: Scale | None = None

    @property
    def M(self) -> int:
        """Number of episodes."""
        return int(self.thresholds.shape[0])

    @property
    def K(self) -> int:
        """Number of constraints."""
        return int(self.thresholds.shape[1])

    @property
    def constraint_names(self) -> tuple[str, ...]:
        """Names of the constraints; none if they have only numbers."""
        if self.scale is not None:
            return self.scale.names
        return tuple(getattr(self.model, "constraint_names", ()))

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={getattr(self, name)}" for name in ("M", "H", "S", "A", "K"))
        return f"GymnasiumWorld({self.name}, {sizes})"


def from_gymnasium(
    env: str | gymnasium.Env[Any, Any],
    horizon: int | None = None,
    utility: Signal | None = None,
    threshold: ArrayLike | None = None,
    *,
    episodes: int | None = None,
    reward_range: tuple[float, float] = (0.0, 1.0),
    over: ArrayLike | None = None,
    initial: ArrayLike | None = None,
    scale: Scale | None = None,
    **options: Any,
) -> GymnasiumWorld:
    """Return an environment as a world for `PROPDPPO.for_problem` and `simulate`.

    Parameters
    ----------
    env
        An environment, or its id, with `options` for `gymnasium.make`. Observations are Discrete,
        MultiDiscrete or a Tuple of Discrete; actions are Discrete.
    horizon
        H, the steps of an episode; longer episodes are truncated.
    utility
        Function of a `Transition`: a number in [0, 1], or K of them. By default info["utility"],
        or else 1 - info["cost"].
    threshold : float or array (K,) or (M, K)
        Lower bound for the expected sum of utilities over an episode, in (0, H].
    episodes
        M, by default 20,000.
    reward_range
        The environment's rewards that become 0 and 1; the range must contain 0.
    over : float or array (K,)
        Utility of each remaining step when an episode ends early; by default the best, 1.
    initial : array (S,) or (S - 1,), optional
        Distribution of the first state, if known and not provided by the environment.
    scale
        Units of rewards and constraints: `utility`, `threshold` and `over` are then in these
        units, in the order of the constraints or dicts by name, and so are results. It replaces
        `reward_range`. A constraint may be a cost, `at_most(low, high)`.

    Notes
    -----
    An environment made by safedrift (`gymnasium.make("safedrift/maze-v0")`) has a horizon,
    thresholds and episodes. If these three and `utility` are omitted, runs in it are measured
    exactly, as in the world behind it.

    Examples
    --------
    >>> import safedrift as sd
    >>> def dry_feet(t):  # 0 for the step into a hole
    ...     return 0.0 if t.terminated and t.reward == 0 else 1.0
    >>> lake = sd.from_gymnasium("FrozenLake-v1", 15, dry_feet, threshold=14.5, episodes=100)
    >>> lake.M, lake.H, lake.S, lake.A, lake.K  # 16 cells and the state "over"
    (100, 15, 17, 4, 1)
    """
    if isinstance(env, str) and env.startswith("safedrift/") and episodes is not None:
        options, episodes = options | {"episodes": episodes}, None
    env = made_environment(env, options)
    n, A = math.prod(_counts(env.observation_space)), _actions(env)
    if n > MOST_STATES:
        _check.fail("observation_space", f"of at most {MOST_STATES:,} values", f"{n:,}")
    if utility is not None and not callable(utility):
        raise TypeError(f"utility must be a function of a Transition; got {utility!r}")
    if scale is not None:
        _check.kind("scale", scale, Scale)
        if reward_range != (0.0, 1.0):
            _check.fail("reward_range", "left out where scale has one", reward_range)
        reward_range = scale.reward
    low, high = checked_range(reward_range)
    if not low <= 0 <= high:
        name = "reward_range" if scale is None else "scale.reward"
        _check.fail(name, "around 0, which an ended episode earns", reward_range)
    inner = env.unwrapped
    model = None
    if isinstance(inner, DriftingEnv):
        changes = (horizon, utility, threshold, episodes, initial, scale)
        as_it_is = type(inner) is DriftingEnv and _wrapped_by(env, *_IDLE)
        if as_it_is and all(x is None for x in changes) and (low, high) == (0, 1):
            model = inner.world
        horizon = inner.world.H if horizon is None else horizon
        episodes = inner.world.M if episodes is None else episodes
    H = _check.integer("horizon", horizon)
    M = _check.integer("episodes", EPISODES if episodes is None else episodes)
    if scale is not None and threshold is not None:
        threshold = scale.to_thresholds(threshold, H)
    if isinstance(inner, DriftingEnv) and threshold is None:  # fixed after its last episode
        threshold = inner.world.thresholds[np.minimum(np.arange(M), inner.world.M - 1)]
    thresholds = _thresholds(threshold, M, H)
    first = _told_start(env) if initial is None else initial
    S = n if model is not None else n + 1
    return GymnasiumWorld(
        env=env,
        H=H,
        S=S,
        A=A,
        thresholds=thresholds,
        initial=_initial(first, n, S),
        initial_known=first is not None,
        utility=from_info if utility is None else utility,
        over=_over(over, thresholds.shape[1], scale),
        reward_range=(low, high),
        name=inner.spec.id if inner.spec is not None else type(inner).__name__,
        model=model,
        scale=scale,
    )


class EnvironmentStepper:
    """Steps through an environment, which has a generator of its own (see `models.stepping`).

    Parameters
    ----------
    seed
        Seed of the first reset; later resets have none, so that the drift continues.
    """

    next_draws = 0

    def __init__(self, world: GymnasiumWorld, seed: int | None = None) -> None:
        self._world, self._seed = world, seed
        self._first_action = int(getattr(world.env.action_space, "start", 0))
        self._seen: Any = None
        self._ended = False

    def first(self, m: int, u: FloatArray) -> int:
        """Reset the environment."""
        world = self._world
        seed = self._seed if m == 0 else None
        outcome = called(f"reset of episode {m}", world.env.reset, seed=seed)
        self._seen, _ = _several("reset", outcome, 2)
        self._ended = False
        return _number(world.env.observation_space, self._seen, f"episode {m}, step 0")

    def signals(self, m: int, h: int, x: int, a: int, u: FloatArray) -> FloatArray:
        """Make a step and return reward and utilities (1+K,)."""
        world, where = self._world, f"episode {m}, step {h}"
        low, high = world.reward_range
        values = np.empty(1 + world.K)
        if self._ended:
            earned, values[1:] = 0.0, world.over
        else:
            action = self._first_action + a
            outcome = called(f"step of {where}", world.env.step, action)
            after, reward, terminated, truncated, info = _several("step", outcome, 5)
            earned, self._ended = _real(reward, where), bool(terminated or truncated)
            step = Transition(self._seen, action, after, earned, bool(terminated), info)
            values[1:] = utilities_of(world.utility, step, world.K, where, world.scale)
            self._seen = after
        if world.scale is not None:
            values[0] = world.scale.to_reward(earned, where)
            return values
        if not low <= earned <= high:
            _check.fail(f"the reward of {where}", f"in reward_range, [{low:g}, {high:g}]", earned)
        values[0] = (earned - low) / (high - low)
        return values

    def next(self, m: int, h: int, x: int, a: int, u: FloatArray) -> int:
        """Return the state the step led to; an ended episode stays in "over"."""
        if self._ended:
            return self._world.S - 1
        where = f"episode {m}, step {h + 1}"
        return _number(self._world.env.observation_space, self._seen, where)


# ---------------------------------------------------------------- spaces


def _counts(space: spaces.Space[Any]) -> list[int]:
    """Number of values of each part of an observation."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return [int(n) for n in space.nvec.ravel()]
    if isinstance(space, spaces.Tuple) and all(isinstance(s, spaces.Discrete) for s in space):
        return [int(part.n) for part in space]
    raise TypeError(
        "observation_space must be Discrete, MultiDiscrete or a Tuple of Discrete (a Gymnasium "
        f"wrapper can make it so); got {type(space).__name__}"
    )


def _number(space: spaces.Space[Any], seen: Any, where: str) -> int:
    """The number of an observation, the last part counting fastest."""
    if isinstance(space, spaces.Discrete) and space.contains(seen):
        return int(seen) - int(space.start)
    counts = _counts(space)
    parts: Any = space if isinstance(space, spaces.Tuple) else [space]
    found, first = np.ravel(np.asarray(seen)), np.concatenate([np.ravel(p.start) for p in parts])
    place = found - first if found.shape == first.shape else found
    whole = place.shape == (len(counts),) and place.dtype.kind in "iu"
    if not whole or (place < 0).any() or (place >= counts).any():
        _check.fail(f"the observation of {where}", f"in {space}", seen)
    return int(np.ravel_multi_index(place, counts))


def _actions(env: gymnasium.Env[Any, Any]) -> int:
    space = env.action_space
    if not isinstance(space, spaces.Discrete):
        raise TypeError(f"action_space must be Discrete; got {type(space).__name__}")
    return int(space.n)


_IDLE = (PassiveEnvChecker, OrderEnforcing)  # wrappers of gymnasium.make that change nothing


def _wrapped_by(env: gymnasium.Env[Any, Any], *harmless: type) -> bool:
    """Whether an environment has no wrappers except these."""
    while env is not env.unwrapped:
        if not isinstance(env, harmless):
            return False
        env = env.env  # type: ignore[attr-defined]
    return True


def _told_start(env: gymnasium.Env[Any, Any]) -> ArrayLike | None:
    """The environment's own distribution of the first state, unless it is wrapped."""
    inner = env.unwrapped
    if not _wrapped_by(env, *_IDLE, TimeLimit):  # observations may have other numbers
        return None
    if isinstance(inner, DriftingEnv):
        return inner.world.initial
    return getattr(inner, "initial_state_distrib", None)


# ---------------------------------------------------------------- arguments


def _thresholds(threshold: ArrayLike | None, M: int, H: int) -> FloatArray:
    if threshold is None:
        raise TypeError("threshold must be a number, or an array (K,) or (M, K); got None")
    given = np.asarray(threshold)
    if given.ndim < 2:
        given = np.tile(np.atleast_1d(given), (M, 1))
    return checked_thresholds(given, M, given.shape[-1], H)


def _initial(initial: ArrayLike | None, n: int, S: int) -> FloatArray:
    """The distribution of the first state (S,): uniform on the n real states if unknown."""
    if initial is None:
        initial = np.full(n, 1 / n)
    given = _check.numbers("initial", initial)
    if given.shape == (n,) and n < S:
        given = np.append(given, 0.0)
    checked = _check.floats("initial", given, (S,))
    _check.distribution("initial", checked)
    return checked


def _over(over: ArrayLike | None, K: int, scale: Scale | None) -> FloatArray:
    """Utilities (K,) in [0, 1] of a step after the end; by default the best."""
    if scale is not None and over is not None:
        return scale.to_utilities(over, "over")
    given = np.asarray(1.0 if over is None else over)
    values = _check.floats("over", np.full(K, given) if given.ndim == 0 else given, (K,))
    _check.everywhere("over", values, (values >= 0) & (values <= 1), "in [0, 1]")
    return values


def _several(name: str, outcome: Any, count: int) -> Any:
    """What `reset` or `step` returned, checked to have as many values as in Gymnasium."""
    if not isinstance(outcome, Sized) or len(outcome) != count:
        got = len(outcome) if isinstance(outcome, Sized) else type(outcome).__name__
        _check.fail(f"what {name} returns", f"{count} things, as in Gymnasium", got)
    return outcome


def _real(reward: Any, where: str) -> float:
    try:
        return float(reward)
    except (TypeError, ValueError):
        raise TypeError(f"the reward of {where} must be a number; got {reward!r}") from None
