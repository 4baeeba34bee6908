"""A world in numbers: optima over the episodes, the price of safety, variation budgets.

    price[m] = max_π V_r(π) - max { V_r(π) : V_g(π) ≥ b_m }

Optima are computed at a few episodes, budgets over all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray, IntArray
from safedrift.kernels import exact
from safedrift.knowledge import Budgets, Sizes
from safedrift.models import DriftingWorld
from safedrift.oracles.chunks import Progress, in_chunks
from safedrift.oracles.optimality import optima, scratch_for
from safedrift.oracles.variations import variation

__all__ = ["Description", "describe", "evenly_spaced", "free_values", "smallest_gap"]

MOST = 200  # episodes described by default
BINDS = 1e-9  # a multiplier up to this counts as zero


@dataclass(frozen=True, eq=False)
class Description:
    """Optima of n episodes of a world, and the variation of the whole world.

    Attributes
    ----------
    name : name of the problem or the file, or None
    sizes : (M, H, S, A, K)
    episodes : (n,)
    feasible : (n,) whether some policy meets the thresholds
    gamma : (n,) Slater gap, negative where infeasible
    multipliers : (n, K) μ*, infinite where infeasible
    value : (n,) V_r*, NaN where infeasible
    free_value : (n,) the optimum without constraints
    price : (n,) `free_value` - `value`, the price of safety
    thresholds : (n, K) b_m
    binding : (K,) share of the feasible episodes in which the constraint binds, μ* > 0
    budgets : B_P, B_r, B_g and B_b of all M episodes in the paper's norms; B_* (`star`) is NaN
        unless all episodes were solved and are feasible
    """

    name: str | None
    sizes: Sizes
    episodes: IntArray
    feasible: np.ndarray
    gamma: FloatArray
    multipliers: FloatArray
    value: FloatArray
    free_value: FloatArray
    thresholds: FloatArray
    binding: FloatArray
    budgets: Budgets

    @property
    def price(self) -> FloatArray:
        """The price of safety in each episode (n,)."""
        return self.free_value - self.value

    def record(self) -> dict[str, Any]:
        """Return everything as plain JSON data, with None for NaN and infinity."""
        arrays = ("episodes", "feasible", "gamma", "multipliers", "value", "free_value", "price",
                  "thresholds", "binding")  # fmt: skip
        plain: dict[str, Any] = {"name": self.name, "sizes": self.sizes._asdict()}
        plain |= {name: _plain(getattr(self, name).tolist()) for name in arrays}
        named = {f"B_{key}": _plain(value) for key, value in self.budgets._asdict().items()}
        return plain | named

    def rows(self) -> list[tuple[str, FloatArray]]:
        """Return the quantities that change over the episodes, (name, values (n,))."""
        several = self.multipliers.shape[1] > 1
        found = [("V_r*", self.value), ("free value", self.free_value), ("price", self.price)]
        for name, values in (("mu*", self.multipliers), ("threshold", self.thresholds)):
            found += [(f"{name} {k + 1}" if several else name, v) for k, v in enumerate(values.T)]
        return [*found, ("gamma", self.gamma)]

    def __str__(self) -> str:
        M, n = self.sizes.M, self.episodes.size
        sizes = ", ".join(f"{key} = {value:,}" for key, value in self.sizes._asdict().items())
        lines = [f"{self.name or 'a world'}: {sizes}; {n:,} of {M:,} episodes solved", ""]
        lines.append(f"{'':<12}" + "".join(f"{head:>11}" for head in _HEADS))
        for name, values in self.rows():
            lines.append(f"{name:<12}" + "".join(f"{_short(x):>11}" for x in _figures(values)))
        lines += ["", *self._sentences()]
        return "\n".join(lines)

    def _sentences(self) -> list[str]:
        B = self.budgets
        shares = ", ".join(f"{share:.0%}" for share in self.binding)
        known = ", ".join(f"B_{key} = {_short(getattr(B, key))}" for key in "Prgb")
        star = f"B_* = {_short(B.star)}"
        if np.isnan(B.star):
            star = "B_* is known only when all episodes are solved"
        told = [f"The constraint binds in {shares} of these episodes.", f"{known}; {star}."]
        if not self.feasible.all():
            wrong = self.episodes[~self.feasible]
            told.append(f"No policy is safe in {wrong.size:,} of them, the first is {wrong[0]:,}.")
        return told


_HEADS = ("first", "last", "mean", "smallest", "largest")


def _figures(values: FloatArray) -> tuple[float, ...]:
    """First and last; mean, smallest and largest of the finite values."""
    known = values[np.isfinite(values)]
    if not known.size:
        return (np.nan,) * len(_HEADS)
    return values[0], values[-1], known.mean(), known.min(), known.max()


def _short(value: float) -> str:
    """At most four digits; rounding errors are zero."""
    return "0" if abs(value) < BINDS else f"{value:.4g}"


def _plain(value: Any) -> Any:
    """Strict JSON: None for NaN and infinity."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def describe(
    world: DriftingWorld, episodes: IntArray | None = None, progress: Progress | None = None
) -> Description:
    """Return optima, prices of safety and variation budgets of a world.

    Parameters
    ----------
    episodes : (n,) increasing
        Where the optimum is computed; by default at most 200, evenly spaced, ends included.
    progress
        Called with numbers that add up to n.

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> P, r = np.ones((2, 1, 2, 1)), np.broadcast_to([1.0, 0.0], (2, 1, 2))
    >>> low, high = (sd.TabularCMDP(P, r, 1 - r[None], [b], [1.0]) for b in (0.5, 1.5))
    >>> world = sd.DriftingCMDP([low, high], sd.drift.linear(5, 2))
    >>> found = sd.describe(world)
    >>> found.value.round(6).tolist()  # V_r*
    [1.5, 1.25, 1.0, 0.75, 0.5]
    >>> found.price.round(6).tolist()  # the best value without the constraint is 2
    [0.5, 0.75, 1.0, 1.25, 1.5]
    >>> found.binding.tolist()
    [1.0]
    """
    _check.kind("world", world, get_args(DriftingWorld))
    if episodes is None:
        episodes = evenly_spaced(world.M)
    episodes = _check.integers("episodes", episodes, 0, world.M - 1)
    _check.everywhere("episodes", episodes[1:], np.diff(episodes) > 0, "increasing")
    change = variation(world)
    found = optima(world, episodes, progress)
    whole = episodes.size == world.M and found.feasible.all()
    moved = float(found.policy_change.sum()) if whole else np.nan
    safe = found.multipliers[found.feasible]
    return Description(
        name=world.name,
        sizes=Sizes(world.M, world.H, world.S, world.A, world.K),
        episodes=episodes,
        feasible=found.feasible,
        gamma=found.gamma,
        multipliers=found.multipliers,
        value=found.value,
        free_value=free_values(world, episodes),
        thresholds=found.thresholds,
        binding=(safe > BINDS).mean(axis=0) if len(safe) else np.full(world.K, np.nan),
        budgets=Budgets(
            P=float(change.P.sum()), r=float(change.r.sum()), g=float(change.g.sum()), star=moved,
            b=float(change.b.sum()),
        ),
    )  # fmt: skip


def evenly_spaced(M: int, most: int = MOST) -> IntArray:
    """Return at most `most` of M episodes, evenly spaced, including the first and the last."""
    _check.integer("M", M)
    _check.integer("most", most, lower=2)
    return np.unique(np.linspace(0, M - 1, min(M, most)).round().astype(np.int64))


def smallest_gap(world: DriftingWorld) -> float:
    """Return the smallest Slater gap γ of all episodes, e.g. for `Slater(gamma)`."""
    return float(optima(world, world.distinct[0]).gamma.min())


def free_values(world: DriftingWorld, episodes: IntArray) -> FloatArray:
    """Return max_π V_r (n,) of each listed episode over all policies, safe or not."""
    episodes = _check.integers("episodes", episodes, 0, world.M - 1)
    _, version = world.distinct
    _, first, number = np.unique(version[episodes], return_index=True, return_inverse=True)
    listed = episodes[first]
    out = np.empty((listed.size, 1))

    def work(part: slice) -> None:
        arrays, place = world.tables(listed[part])
        # With rewards in place of utilities, the safest policy maximises V_r.
        rich = arrays._replace(utilities=arrays.rewards[:, None], utility_path=arrays.reward_path)
        exact.safest_utilities(rich, place, out[part], scratch_for(arrays))

    in_chunks(work, listed.size, world.chunk)
    return np.asarray(out[number, 0])
