"""What a learner is told: sizes, budgets, and one of the paper's two assumptions.

Assumption 2 (`LocalBudgets`) bounds how far a world moves between two consecutive episodes.
Assumption 3 (`Slater`) gives a γ such that some policy has V_g ≥ b + γ in every episode.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from safedrift import _check
from safedrift._check import FloatArray

__all__ = [
    "Budgets",
    "Dimensions",
    "Knowledge",
    "LocalBudgets",
    "ProblemSpec",
    "Sizes",
    "Slater",
    "block_sums",
]


class Sizes(NamedTuple):
    """Sizes of a problem: episodes, steps, states, actions, constraints.

    M is None where there is no last episode, or where it is not known.

    Examples
    --------
    >>> import safedrift as sd
    >>> sd.Sizes(M=1000, H=5, S=4, A=3, K=1)
    Sizes(M=1000, H=5, S=4, A=3, K=1)
    """

    M: int | None
    H: int
    S: int
    A: int
    K: int

    def check(self) -> None:
        """Raise unless all are integers >= 1; M may be None."""
        for name, size in self._asdict().items():
            if name != "M" or size is not None:
                _check.integer(name, size)

    def known_M(self, unless: str = "for a theorem") -> int:
        """Return M; where it is None, refuse and say what would make it unnecessary."""
        if self.M is None:
            _check.fail("M", f"an integer >= 1 {unless}", None)
        return self.M


@dataclass(frozen=True, eq=False)
class ProblemSpec:
    """A problem without a world: all that a tabular learner is told before it starts.

    Parameters
    ----------
    H, S, A, K
        Steps of an episode, states, actions, constraints.
    initial : int, array (S,) or None
        The first state, or its distribution. None: not known; learners then use the shares of the
        first states they have seen.
    M
        Number of episodes; None: the learner goes on for ever.
    features : Features or None
        For learners that know features: `features` of a `LinearKernelCMDP` with the same H, S and
        A, however long it is.

    Examples
    --------
    >>> import safedrift as sd
    >>> plant = sd.ProblemSpec(H=24, S=50, A=4, initial=0)
    >>> sd.learners.make("certainty-equivalence", plant, window=500).sizes
    Sizes(M=None, H=24, S=50, A=4, K=1)
    """

    H: int
    S: int
    A: int
    K: int = 1
    initial: Any = None  # (S,) after __post_init__
    M: int | None = None
    features: Any = None
    initial_known: bool = field(init=False)

    def __post_init__(self) -> None:
        Sizes(self.M, self.H, self.S, self.A, self.K).check()
        given, S = self.initial, self.S
        object.__setattr__(self, "initial_known", given is not None)
        if given is None:
            given = np.full(S, 1 / S)
        elif np.ndim(given) == 0:
            first = _check.integer("initial", given, lower=0, upper=S - 1)
            given = np.zeros(S)
            given[first] = 1.0
        checked = _check.floats("initial", given, (S,))
        _check.distribution("initial", checked)
        object.__setattr__(self, "initial", checked)


class Budgets(NamedTuple):
    """Total variation of a world over all episodes, in the paper's norms (eqs. 6 and 7).

    Examples
    --------
    >>> import safedrift as sd
    >>> sd.Budgets(P=2.0, r=0.5, g=1.0, star=3.0).delta  # B_P + B_r + B_g
    3.5
    """

    P: float
    r: float
    g: float
    star: float
    b: float = 0.0

    @property
    def delta(self) -> float:
        """B_Δ = B_P + B_r + B_g."""
        return self.P + self.r + self.g

    def check(self) -> None:
        """Raise unless all are finite and >= 0."""
        for name, value in self._asdict().items():
            if not 0 <= _check.real(f"budgets.{name}", value) < np.inf:
                _check.fail(f"budgets.{name}", "finite and >= 0", value)


class Dimensions(NamedTuple):
    """Dimensions of the features: d1 for transitions, d2 for rewards, and how large ∫ψ V can be.

    `bound` is the largest ‖∫ψ(x,a,x') V(x') dx'‖ over (x, a) and V in [0, 1]; None is √d1, all that
    Assumption 1 promises. It is at least 1/√d1, because V = 1 gives θᵀ∫ψ = 1 with ‖θ‖ ≤ √d1.

    Examples
    --------
    >>> import safedrift as sd
    >>> sd.learners.Dimensions(d1=4, d2=3)
    Dimensions(d1=4, d2=3, bound=None)
    """

    d1: int
    d2: int
    bound: float | None = None

    @property
    def d(self) -> int:
        """max(d1, d2)."""
        return max(self.d1, self.d2)

    @property
    def largest(self) -> float:
        """`bound`, or √d1 where it is not given."""
        return float(np.sqrt(self.d1)) if self.bound is None else float(self.bound)

    def check(self) -> None:
        """Raise unless d1 and d2 are integers >= 1 and `bound` is possible."""
        root = float(np.sqrt(_check.integer("d1", self.d1)))
        _check.integer("d2", self.d2)
        if self.bound is None:
            return
        rounding = 1 + 1e-9
        if not 1 / root / rounding <= _check.real("bound", self.bound) <= root * rounding:
            _check.fail("bound", f"in [{1 / root:.3g}, {root:.3g}], from 1/√d1 to √d1", self.bound)


@dataclass(frozen=True)
class Slater:
    """Assumption 3: in every episode some policy has utility ≥ threshold + gamma.

    Examples
    --------
    >>> import safedrift as sd
    >>> sd.Slater(gamma=0.5)
    Slater(gamma=0.5)
    >>> sd.Slater(gamma=-1)
    Traceback (most recent call last):
    ValueError: gamma must be > 0; got -1
    """

    gamma: float

    def __post_init__(self) -> None:
        if _check.positive("gamma", self.gamma) < 1e-12:
            _check.fail("gamma", ">= 1e-12 (the multipliers may grow to 2H/gamma)", self.gamma)

    name = "slater"


@dataclass(frozen=True, eq=False)
class LocalBudgets:
    """Assumption 2: how much transitions and utilities may change between consecutive episodes.

    Parameters
    ----------
    transitions : float or array (M, H)
        Size of P_h^m - P_h^{m-1}. A float bounds every step of every episode.
    utilities : float or array (M, K, H)
        Size of g_k,h^m - g_k,h^{m-1}.

    Notes
    -----
    The budget of an epoch is the sum over the episodes inside it, so one forecast covers every
    epoch length. Mode "printed" expects the paper's l2 norms: over all (x, a, x'), in a
    linear-kernel world of the changes of theta; the other modes expect max over (x, a) of the l1
    norm of P and of |g| (see docs/errata.md, E8).
    `safedrift.local_budgets(world, norm)` computes either from a known world.

    Examples
    --------
    >>> import safedrift as sd
    >>> known = sd.LocalBudgets(transitions=0.01, utilities=0.0)
    >>> P, g = known.per_episode(sd.Sizes(M=3, H=2, S=4, A=3, K=1))
    >>> P.tolist()
    [[0.01, 0.01], [0.01, 0.01], [0.01, 0.01]]
    """

    transitions: ArrayLike = field(default=0.0)
    utilities: ArrayLike = field(default=0.0)

    name = "local-budgets"

    def __post_init__(self) -> None:
        for name in ("transitions", "utilities"):
            values = _check.numbers(name, getattr(self, name))
            _check.everywhere(name, values, np.isfinite(values) & (values >= 0), "finite and >= 0")
            object.__setattr__(self, name, values)

    def per_episode(self, sizes: Sizes) -> tuple[FloatArray, FloatArray]:
        """Return the two forecasts as arrays (M, H) and (M, K, H)."""
        M = sizes.known_M("with LocalBudgets, which are a forecast for every episode")
        H, K = sizes.H, sizes.K
        shapes = {"transitions": (M, H), "utilities": (M, K, H)}
        full = []
        for name, shape in shapes.items():
            values = np.asarray(getattr(self, name))
            if values.ndim and values.shape != shape:
                _check.fail(f"LocalBudgets.{name}", f"a number or of shape {shape}", values.shape)
            full.append(np.broadcast_to(values, shape))
        return full[0], full[1]


def block_sums(per_episode: FloatArray, length: int) -> FloatArray:
    """Sum changes inside blocks of `length` episodes; changes between blocks are not counted.

    Examples
    --------
    >>> import numpy as np
    >>> from safedrift.oracles import block_sums
    >>> block_sums(np.array([[0.0], [1.0], [1.0], [1.0]]), 2).tolist()
    [[1.0], [1.0]]
    """
    length = _check.integer("length", length)
    inside = np.array(per_episode)
    inside[::length] = 0.0
    return np.asarray(np.add.reduceat(inside, np.arange(0, len(inside), length), axis=0))


Knowledge = Slater | LocalBudgets
