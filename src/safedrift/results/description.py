"""A world in numbers: optima over some of its episodes, the price of safety, variation budgets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from safedrift._check import FloatArray, IntArray
from safedrift.knowledge import Budgets, Sizes

__all__ = ["BINDS", "Description"]

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
    constraints : names of the K constraints; empty if they have only numbers
    warnings : reasons why the world tests nothing, e.g. that the constraint never binds

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> found = sd.describe(world)
    >>> round(float(found.value[0]), 3), found.binding.tolist()
    (6.387, [1.0])
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
    warnings: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()

    @property
    def price(self) -> FloatArray:
        """The price of safety in each episode (n,)."""
        return self.free_value - self.value

    def record(self) -> dict[str, Any]:
        """Return everything as plain JSON data, with None for NaN and infinity."""
        arrays = (
            "episodes",
            "feasible",
            "gamma",
            "multipliers",
            "value",
            "free_value",
            "price",
            "thresholds",
            "binding",
        )
        plain: dict[str, Any] = {"name": self.name, "sizes": self.sizes._asdict()}
        plain |= {name: _plain(getattr(self, name).tolist()) for name in arrays}
        named = {f"B_{key}": _plain(value) for key, value in self.budgets._asdict().items()}
        words = {"warnings": list(self.warnings), "constraints": list(self.constraints)}
        return plain | named | words

    def constraint(self, k: int) -> str:
        """Return the name of constraint k, or its number from 1."""
        return self.constraints[k] if self.constraints else f"{k + 1}"

    def rows(self) -> list[tuple[str, FloatArray]]:
        """Return the quantities that change over the episodes, (name, values (n,))."""
        several = self.multipliers.shape[1] > 1 or self.constraints
        found = [("V_r*", self.value), ("free value", self.free_value), ("price", self.price)]
        for name, values in (("mu*", self.multipliers), ("threshold", self.thresholds)):
            found += [
                (f"{name} {self.constraint(k)}" if several else name, v)
                for k, v in enumerate(values.T)
            ]
        return [*found, ("gamma", self.gamma)]

    def __str__(self) -> str:
        M, n = self.sizes.M, self.episodes.size
        sizes = ", ".join(f"{key} = {value:,}" for key, value in self.sizes._asdict().items())
        lines = [f"{self.name or 'a world'}: {sizes}; {n:,} of {M:,} episodes solved", ""]
        wide = max(12, 1 + max(len(name) for name, _ in self.rows()))
        lines.append(f"{'':<{wide}}" + "".join(f"{head:>11}" for head in _HEADS))
        for name, values in self.rows():
            lines.append(f"{name:<{wide}}" + "".join(f"{_short(x):>11}" for x in _figures(values)))
        lines += ["", *self._sentences()]
        return "\n".join(lines)

    def _sentences(self) -> list[str]:
        B = self.budgets
        shares = ", ".join(f"{share:.0%}" for share in self.binding)
        known = ", ".join(f"B_{key} = {_short(getattr(B, key))}" for key in "Prgb")
        star = f"B_* = {_short(B.star)}"
        if np.isnan(B.star):
            star = "B_* is known only when all episodes are solved"
        binds = f"The constraint binds in {shares} of these episodes."
        if self.constraints:
            each = zip(self.constraints, self.binding, strict=True)
            shares = ", ".join(f"{name} in {share:.0%}" for name, share in each)
            binds = f"Constraints bind: {shares} of these episodes."
        told = [binds, f"{known}; {star}."]
        if not self.feasible.all():
            wrong = self.episodes[~self.feasible]
            told.append(f"No policy is safe in {wrong.size:,} of them, the first is {wrong[0]:,}.")
        return [*told, *(f"Warning: {sentence}" for sentence in self.warnings)]


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
