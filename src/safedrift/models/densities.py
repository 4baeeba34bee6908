"""Base densities on a box, with exact draws from them: the components of a mixture kernel.

    ψ_i(x, a, y) = p_i(y | x, a),  P(y | x, a) = Σ_i θ_i p_i(y | x, a)

To draw from the mixture, draw i with probabilities θ, then from p_i.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from safedrift import _check
from safedrift._check import FloatArray, IntArray
from safedrift.kernels.probability import truncated_normal_density, truncated_normal_draw
from safedrift.kernels.types import prepared
from safedrift.models.features import rank
from safedrift.models.quadrature import sides, vector

__all__ = ["BaseDensity", "mixture", "truncated_normal"]

Psi = Callable[[FloatArray, IntArray, FloatArray], FloatArray]
"""psi(x (p, n), a (p, 1), y (q, n)) -> (p, q, d1): one state and one action per row"""
Sample = Callable[[FloatArray, int, int, FloatArray], FloatArray]
"""sample(x (n,), a, i, u (n,)) -> (n,): a draw from base density i, by uniforms u"""


class BaseDensity(NamedTuple):
    """One base simulator on a box: its density, and an exact draw from it.

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> base = sd.box.truncated_normal(lambda x, a: x, sd=0.2, low=0.0, high=1.0)
    >>> isinstance(base, sd.box.BaseDensity)
    True
    """

    density: Callable[[FloatArray, IntArray, FloatArray], FloatArray]
    """(p, n), (p, 1), (q, n) -> (p, q)"""
    sample: Callable[[FloatArray, int, FloatArray], FloatArray]
    """(n,), a, (n,) -> (n,)"""


def truncated_normal(
    mean: Callable[[FloatArray, IntArray], FloatArray],
    sd: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
) -> BaseDensity:
    """Normal around mean(x (p, n), a (p, 1)) -> (p, n), independent coordinates, in a box.

    `sd` is the standard deviation before truncation to the box, a number or (n,).

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> base = sd.box.truncated_normal(lambda x, a: x, sd=0.1, low=0.0, high=1.0)
    >>> rule = sd.box.gauss_legendre(0.0, 1.0, nodes=64)
    >>> heights = base.density(np.array([[0.5]]), np.array([[0]]), rule.nodes)
    >>> round(float((heights.ravel() * rule.weights).sum()), 9)  # a density
    1.0
    """
    check_function("mean", mean)
    lower, upper = sides(low, high)
    deviations = vector("sd", sd, 1 if rank(sd) == 0 else lower.size)
    _check.everywhere("sd", deviations, deviations > 0, "> 0")
    each = prepared(np.broadcast_to(deviations, lower.shape))
    normal = _TruncatedNormal(mean, each, prepared(lower), prepared(upper))
    return BaseDensity(normal.density, normal.sample)


@dataclass(frozen=True, eq=False)
class _TruncatedNormal:
    mean: Callable[[FloatArray, IntArray], FloatArray]
    sd: FloatArray
    low: FloatArray
    high: FloatArray

    def density(self, x: FloatArray, a: IntArray, y: FloatArray) -> FloatArray:
        """(p, q) at y (q, n)."""
        centre = called("mean", self.mean, x, a, shape=x.shape)
        mass, out = np.empty(x.shape), np.empty((len(x), len(y)))
        truncated_normal_density(
            prepared(centre), self.sd, self.low, self.high, prepared(y), mass, out
        )
        _check_mass(centre, mass)
        return out

    def sample(self, x: FloatArray, a: int, u: FloatArray) -> FloatArray:
        """(n,) by the inverse distribution function at u (n,)."""
        centre = called("mean", self.mean, x[None], np.array([[a]]), shape=(1, x.size))
        mass, out = np.empty(x.shape), np.empty(x.shape)
        truncated_normal_draw(
            prepared(centre[0]), self.sd, self.low, self.high, prepared(u), mass, out
        )
        _check_mass(centre, mass)
        return out


def _check_mass(centre: FloatArray, mass: FloatArray) -> None:
    """Check that the box holds something of each normal."""
    if not mass.min(initial=np.inf) > 1e-290:
        ok = np.broadcast_to(mass > 1e-290, centre.shape)
        _check.everywhere("mean(x, a)", centre, ok, "within 36 standard deviations of the box")


def mixture(bases: Sequence[BaseDensity]) -> tuple[Psi, Sample]:
    """ψ whose components are the base densities, and a draw from each of them.

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> near, far = (
    ...     sd.box.truncated_normal(lambda x, a, shift=shift: x + shift, sd=0.2, low=0.0, high=1.0)
    ...     for shift in (0.0, 0.3)
    ... )
    >>> psi, sample = sd.box.mixture([near, far])
    >>> at = np.array([[0.5]]), np.array([[0]]), np.array([[0.5], [0.8]])
    >>> psi(*at).shape  # points, nodes, components
    (1, 2, 2)
    """
    listed = tuple(_check.kind("bases", bases, (list, tuple)))
    if not listed:
        _check.fail("bases", "at least one BaseDensity", "none")
    for i, base in enumerate(listed):
        _check.kind(f"bases[{i}]", base, BaseDensity)
    mixed = _Mixture(listed)
    return mixed.psi, mixed.sample


@dataclass(frozen=True, eq=False)
class _Mixture:
    bases: tuple[BaseDensity, ...]

    def psi(self, x: FloatArray, a: IntArray, y: FloatArray) -> FloatArray:
        """(p, q, d1) at y (q, n)."""
        return np.stack([base.density(x, a, y) for base in self.bases], axis=-1)

    def sample(self, x: FloatArray, a: int, i: int, u: FloatArray) -> FloatArray:
        """(n,) from base density i."""
        return self.bases[i].sample(x, a, u)


def components(psi: object, sample: object) -> tuple[_TruncatedNormal, ...]:
    """The cut normals of a mixture, none where ψ or the draws are made of something else."""
    mixed = getattr(psi, "__self__", None)
    if mixed is None or getattr(sample, "__self__", None) is not mixed:
        return ()
    bases = mixed.bases if isinstance(mixed, _Mixture) else ()
    parts = [getattr(base.density, "__self__", None) for base in bases]
    draws = [getattr(base.sample, "__self__", None) for base in bases]
    normal = tuple(part for part in parts if isinstance(part, _TruncatedNormal))
    return normal if list(normal) == draws else ()


# ---------------------------------------------------------------- functions of the user


def check_function(name: str, value: object) -> None:
    """Fail unless `value` can be called."""
    if not callable(value):
        raise TypeError(f"{name} must be a function; got {type(value).__name__}")


def called(
    name: str, function: Callable[..., FloatArray], *arguments: Any, shape: tuple[int, ...]
) -> FloatArray:
    """Return function(*arguments), checked to be an array of `shape`."""
    try:
        values = function(*arguments)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        call = _described(name, arguments)
        raise ValueError(f"{call} must be an array of shape {shape}; got {problem}") from error
    fits = isinstance(values, np.ndarray) and values.dtype == np.float64 and values.shape == shape
    if fits and np.isfinite(values).all():  # a shortcut: no copy
        return values
    return _check.floats(_described(name, arguments), values, shape)


def _described(name: str, arguments: tuple[Any, ...]) -> str:
    """A call as text, arrays by their shapes."""
    words = (f"array {x.shape}" if isinstance(x, np.ndarray) else f"{x}" for x in arguments)
    return f"{name}({', '.join(words)})"
