"""One step of a Gymnasium environment, and its utilities.

A utility is a function of one `Transition` and returns a number in [0, 1], or K of them:

    def stays_dry(t):
        return 0.0 if t.terminated and t.reward == 0 else 1.0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.scale import Scale

__all__ = [
    "Signal",
    "Transition",
    "called",
    "checked_range",
    "from_info",
    "made_environment",
    "utilities_of",
]


class Transition(NamedTuple):
    """A step in the environment's own terms: states, action, reward and `info`.

    Examples
    --------
    >>> import safedrift as sd
    >>> t = sd.Transition(14, 2, 15, 1.0, True, {})
    >>> 0.0 if t.terminated and t.reward == 0 else 1.0
    1.0
    """

    state: Any
    action: int
    next_state: Any
    reward: float
    terminated: bool
    info: dict[str, Any]


Signal = Callable[[Transition], Any]
"""A number, or K numbers, of a transition."""


def utilities_of(
    utility: Signal, step: Transition, K: int, where: object, scale: Scale | None = None
) -> FloatArray:
    """Return the utilities (K,) of a step in [0, 1]; errors name `where` it happened.

    With a scale, `utility` returns numbers in its units, in order or by name.
    """
    name = f"utility(...) of {where}"
    if scale is not None:
        raw = _own_units(step, scale) if utility is from_info else called(name, utility, step)
        return scale.to_utilities(raw, str(where))
    found = utility(step) if utility is from_info else called(name, utility, step)
    try:
        values = _check.numbers(name, found).reshape(-1)
    except TypeError:
        raise TypeError(f"{name} must be {_wanted(K)}; got {found!r}") from None
    if values.size != K:
        _check.fail(name, _wanted(K), f"{values.size} numbers")
    if not ((values >= 0) & (values <= 1)).all():
        _check.fail(name, _wanted(K), values[0] if K == 1 else values.tolist())
    return values


def made_environment(
    env: str | gymnasium.Env[Any, Any], options: dict[str, Any]
) -> gymnasium.Env[Any, Any]:
    """Return an environment as it is, or make the one of an id with `options`."""
    if isinstance(env, str):
        try:
            return gymnasium.make(env, **options)
        except gymnasium.error.Error as error:
            words = " ".join(str(error).split())
            raise ValueError(
                f"env must be the id of an environment; got {env!r} ({words})"
            ) from error
    if not isinstance(env, gymnasium.Env):
        raise TypeError(f"env must be a Gymnasium environment or the id of one; got {env!r}")
    if options:
        _check.fail("options", "none with an environment that is made already", ", ".join(options))
    return env


def called(name: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call third-party code; any exception becomes one error that names the function."""
    try:
        return function(*arguments, **named)
    except Exception as error:
        words = " ".join(str(error).split())
        raise RuntimeError(f"{name} failed: {type(error).__name__}: {words}") from error


def checked_range(reward_range: Any) -> tuple[float, float]:
    """Return the two ends of a range of rewards."""
    ends = tuple(_check.numbers("reward_range", reward_range).ravel().tolist())
    if len(ends) != 2 or not np.isfinite(ends).all() or not ends[0] < ends[1]:
        _check.fail("reward_range", "two finite numbers, the smaller first", reward_range)
    return _check.real("reward_range", ends[0]), _check.real("reward_range", ends[1])


def from_info(step: Transition) -> Any:
    """The utility that an environment puts into `info`: "utility", or else 1 - "cost"."""
    if "utility" in step.info:
        return step.info["utility"]
    if "cost" in step.info:
        try:
            cost = _check.numbers("info['cost']", step.info["cost"])
        except TypeError:
            got = repr(step.info["cost"])
            raise TypeError(
                f"info['cost'] must be in [0, 1], or utility given; got {got}"
            ) from None
        if not ((cost >= 0) & (cost <= 1)).all():
            _check.fail("info['cost']", "in [0, 1], or utility given", step.info["cost"])
        return 1.0 - cost
    _check.fail(
        "utility", "given where info has neither 'utility' nor 'cost'", ", ".join(step.info) or "{}"
    )


def _own_units(step: Transition, scale: Scale) -> Any:
    """What an environment puts into `info`: "cost" where all are at most, "utility" else."""
    key = "cost" if all(limit.at_most for limit in scale.limits) else "utility"
    if key not in step.info:
        _check.fail("utility", f"given where info has no {key!r}", ", ".join(step.info) or "{}")
    return step.info[key]


def _wanted(K: int) -> str:
    return "in [0, 1]" if K == 1 else f"{K} numbers in [0, 1]"
