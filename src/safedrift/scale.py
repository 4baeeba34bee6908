"""Rewards and constraints in the user's own units, mapped to [0, 1] per step and back.

Learners need rewards and utilities in [0, 1], and constraints of the form "utility ≥ threshold". A
signal with values in [low, high] per step and an episode of H steps are mapped by

    reward               r → (r - low)/(high - low)
    at least b           u → (u - low)/(high - low),    b → (b - H low)/(high - low)
    at most b            c → (high - c)/(high - low),   b → (H high - b)/(high - low)

so that a policy meets a constraint in one form if and only if it does in the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray

__all__ = ["Limit", "Scale", "at_least", "at_most"]

ROUNDING = 1e-9  # of the width of a range: a value so little outside is rounding


@dataclass(frozen=True)
class Limit:
    """One constraint: its range per step, and on which side of the threshold it is safe."""

    low: float
    high: float
    unit: str = ""
    at_most: bool = False

    def __post_init__(self) -> None:
        _check_range("range of a constraint", (self.low, self.high))
        _check.kind("unit", self.unit, str)


def at_least(low: float, high: float, unit: str = "") -> Limit:
    """Return a constraint on a utility: its expected sum must be at least the threshold.

    Parameters
    ----------
    low, high
        Smallest and largest value of one step.
    unit
        For results, e.g. "kWh".

    Examples
    --------
    >>> import safedrift as sd
    >>> sd.at_least(0, 1, "share")
    Limit(low=0, high=1, unit='share', at_most=False)
    """
    return Limit(low, high, unit)


def at_most(low: float, high: float, unit: str = "") -> Limit:
    """Return a constraint on a cost: its expected sum may be at most the threshold.

    Parameters
    ----------
    low, high
        Smallest and largest value of one step.
    unit
        For results, e.g. "kWh".

    Examples
    --------
    >>> import safedrift as sd
    >>> sd.at_most(0, 40, "kWh").at_most
    True
    """
    return Limit(low, high, unit, at_most=True)


@dataclass(frozen=True)
class Scale:
    """The units of a world: ranges of its reward and of its constraints, which have names.

    Parameters
    ----------
    reward : (low, high)
        Smallest and largest reward of one step.
    constraints
        By name, in the order of the K utilities: `at_least(low, high)`, `at_most(low, high)`, or
        (low, high), which is the former.
    reward_unit
        For results, e.g. "EUR".

    Examples
    --------
    >>> import safedrift as sd
    >>> scale = sd.Scale(
    ...     reward=(-20, 80),
    ...     constraints={"energy": sd.at_most(0, 40, "kWh"), "comfort": sd.at_least(0, 1)},
    ... )
    >>> scale.to_utilities({"energy": 10, "comfort": 1}, "step 0").tolist()
    [0.75, 1.0]
    >>> scale.to_thresholds({"energy": 300, "comfort": 20}, 24).tolist()
    [16.5, 20.0]
    """

    reward: tuple[float, float]
    constraints: Mapping[str, Limit | tuple[float, float]]
    reward_unit: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reward", _check_range("scale.reward", self.reward))
        _check.kind("reward_unit", self.reward_unit, str)
        if not isinstance(self.constraints, Mapping) or not self.constraints:
            raise TypeError(
                "scale.constraints must be a dict of at least one name and its at_least(...) or "
                f"at_most(...); got {self.constraints!r}"
            )
        limits = {}
        for name, given in self.constraints.items():
            if not isinstance(name, str) or not name:
                raise TypeError(f"a name in scale.constraints must be a text; got {name!r}")
            if not isinstance(given, Limit):
                given = Limit(*_check_range(f"scale.constraints[{name!r}]", given))
            limits[name] = given
        object.__setattr__(self, "constraints", limits)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the constraints."""
        return tuple(self.constraints)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The constraints in their order."""
        return tuple(x for x in self.constraints.values() if isinstance(x, Limit))

    @property
    def reward_width(self) -> float:
        """What one unit of a scaled reward is worth."""
        return self.reward[1] - self.reward[0]

    @property
    def widths(self) -> FloatArray:
        """What one unit of each scaled utility is worth (K,)."""
        return np.array([limit.high - limit.low for limit in self.limits])

    @property
    def signs(self) -> FloatArray:
        """1 where a constraint is at least, -1 where it is at most (K,)."""
        return np.array([-1.0 if limit.at_most else 1.0 for limit in self.limits])

    # ------------------------------------------------------------ to [0, 1]

    def to_reward(self, value: float, where: str) -> float:
        """Return a reward in [0, 1]; `where` names the step in errors."""
        return _inside(f"the reward of {where}", value, *self.reward)

    def to_utilities(self, values: Any, where: str) -> FloatArray:
        """Return utilities (K,) in [0, 1] of K numbers, in order or by name."""
        found = self._in_order(values, f"the constraints of {where}")
        out = np.empty(found.size)
        for k, (name, limit) in enumerate(zip(self.names, self.limits, strict=True)):
            share = _inside(f"{name!r} of {where}", float(found[k]), limit.low, limit.high)
            out[k] = 1.0 - share if limit.at_most else share
        return out

    def to_thresholds(self, thresholds: Any, H: int) -> FloatArray:
        """Return thresholds (..., K) in (0, H] of sums over H steps, in order or by name."""
        given = thresholds
        if isinstance(thresholds, Mapping):
            given = np.stack(np.broadcast_arrays(*self._by_name(thresholds, "threshold")), axis=-1)
        values = np.atleast_1d(_check.numbers("threshold", given))
        if values.shape[-1] != len(self.names):
            wanted = f"one for each of {', '.join(map(repr, self.names))}"
            _check.fail("threshold", wanted, f"shape {values.shape}")
        out = np.empty(values.shape)
        for k, (name, limit) in enumerate(zip(self.names, self.limits, strict=True)):
            low, high, b = H * limit.low, H * limit.high, values[..., k]
            ok = (b >= low) & (b < high) if limit.at_most else (b > low) & (b <= high)
            ends = f"[{low:g}, {high:g})" if limit.at_most else f"({low:g}, {high:g}]"
            allowed = f"in {ends}, the range of {H} steps"
            _check.everywhere(f"threshold of {name!r}", b, np.asarray(ok), allowed)
            far = high - b if limit.at_most else b - low
            out[..., k] = np.minimum(far / (limit.high - limit.low), H)
        return out

    def _in_order(self, values: Any, name: str) -> FloatArray:
        if isinstance(values, Mapping):
            values = [float(_check.real(name, x)) for x in self._by_name(values, name)]
        try:
            found = _check.numbers(name, values).reshape(-1)
        except TypeError:
            raise TypeError(f"{name} must be {self._wanted()}; got {values!r}") from None
        if found.size != len(self.names):
            _check.fail(name, self._wanted(), f"{found.size} numbers")
        return found

    def _by_name(self, values: Mapping[str, Any], name: str) -> list[Any]:
        for given in values:
            _check.choice(f"a name in {name}", given, self.names)
        for wanted in self.names:
            if wanted not in values:
                _check.fail(name, self._wanted(), f"none for {wanted!r}")
        return [values[wanted] for wanted in self.names]

    def _wanted(self) -> str:
        return f"one number for each of {', '.join(map(repr, self.names))}"

    # ------------------------------------------------------------ and back

    def reward_sum(self, value: Any, H: int) -> Any:
        """Return sums of rewards over H steps in the user's units."""
        return H * self.reward[0] + self.reward_width * value

    def signed_sums(self, values: FloatArray, H: int) -> FloatArray:
        """Return sums of utilities (..., K) over H steps in the user's units, costs as -cost.

        So "at least the threshold" stays right for both.
        """
        offsets = [-H * x.high if x.at_most else H * x.low for x in self.limits]
        return np.asarray(values * self.widths + np.array(offsets))

    # ------------------------------------------------------------ on disk

    def record(self) -> dict[str, Any]:
        """Return plain data; `from_record` reads it."""
        return {
            "reward": list(self.reward),
            "reward_unit": self.reward_unit,
            "constraints": [{"name": name, **vars(limit)} for name, limit in
                            zip(self.names, self.limits, strict=True)],
        }  # fmt: skip

    @classmethod
    def from_record(cls, plain: Mapping[str, Any]) -> Scale:
        """Return the scale that `record` described."""
        limits = {}
        for entry in plain["constraints"]:
            rest = {key: value for key, value in entry.items() if key != "name"}
            limits[entry["name"]] = Limit(**rest)
        return cls(tuple(plain["reward"]), limits, plain["reward_unit"])


def _check_range(name: str, ends: Any) -> tuple[float, float]:
    found = tuple(_check.numbers(name, ends).ravel().tolist())
    if len(found) != 2 or not np.isfinite(found).all() or not found[0] < found[1]:
        _check.fail(name, "two finite numbers, the smaller first", ends)
    return found


def _inside(name: str, value: float, low: float, high: float) -> float:
    """The place of a value between low (0) and high (1)."""
    slack = ROUNDING * (high - low)
    if not low - slack <= value <= high + slack:
        _check.fail(name, f"in [{low:g}, {high:g}], its range in scale", f"{value:g}")
    return min(max((value - low) / (high - low), 0.0), 1.0)
