"""Arrays that travel together, and the decorators under which kernels are compiled.

A compiled function takes arrays and writes into arrays. It draws no random numbers (uniforms come
in), validates nothing and raises nothing; the learner's allocate nothing either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from safedrift.kernels.notice import announce_compiling

F = TypeVar("F", bound=Callable[..., Any])

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int32]

announce_compiling()


# Without Numba's reference counts (_nrt) arrays travel freely between compiled functions: counting
# them costs more than an episode of a small world. The price is that nothing may be allocated.
# Division by zero gives inf or nan, as in NumPy; no fast-math: same seed, same bits.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}
_ENTRY: dict[str, Any] = {"cache": True, "nogil": True, "no_cfunc_wrapper": True, **_OPTIONS}
_UNWRAPPED: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, **_OPTIONS}


def jit(function: F) -> F:
    """Compile an entry point: kept on disk, and runs beside other threads (no GIL)."""
    return _compile(function, **_ENTRY)


def jit_part(function: F) -> F:
    """Compile a part of an entry point, to be called from compiled code only."""
    return _compile(function, **_UNWRAPPED)


def jit_shared(function: F) -> F:
    """Compile a large part of several entry points: kept on disk, where the others find it."""
    return _compile(function, cache=True, **_UNWRAPPED)


def jit_inline(function: F) -> F:
    """Compile a part into its caller: passing many arrays would cost more than its work."""
    return _compile(function, forceinline=True, **_UNWRAPPED)


def jit_reordered(function: F) -> F:
    """Compile a part whose sums and minima may be taken in any order: faster, not for learners."""
    flags = {"reassoc", "contract", "nnan", "nsz"}
    return _compile(function, fastmath=flags, forceinline=True, **_UNWRAPPED)


def jit_source_inline(function: F) -> F:
    """Write a part out in its caller's place before anything is compiled (compiles faster)."""
    return _compile(function, inline="always", **_OPTIONS)


def _compile(function: F, **options: Any) -> F:
    compiled: F = numba.njit(**options)(function)
    return compiled


def prepared(values: ArrayLike) -> FloatArray:
    """Return `values` as kernels are compiled for: writable doubles in C order."""
    array = np.ascontiguousarray(values, np.float64)
    return array if array.flags.writeable else array.copy()


class Successors(NamedTuple):
    """Transitions as successor lists, rows in the order (step, state, action).

    Row i = (h*S + s)*A + a holds entries offsets[i] .. offsets[i+1].

    Examples
    --------
    One step, two states, one action: stay in 0, or leave 1 for either state.

    >>> import numpy as np
    >>> import safedrift as sd
    >>> lists = sd.Successors(
    ...     offsets=np.array([0, 1, 3]),
    ...     states=np.array([0, 0, 1]),
    ...     probabilities=np.array([1.0, 0.5, 0.5]),
    ... )
    >>> zeros = np.zeros((1, 2, 1))
    >>> world = sd.TabularCMDP(lists, zeros, zeros[None], [1e-9], [1.0, 0.0])
    >>> world.dense_transitions()[0, :, 0].tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """

    offsets: NDArray[np.int64]  # (H*S*A + 1,)
    states: IndexArray  # (entries,)
    probabilities: FloatArray  # (entries,)


class WeightPath(NamedTuple):
    """Convex weights through the scenarios, the J non-zero ones of each episode."""

    scenario: IndexArray  # (M, J) scenario numbers
    weight: FloatArray  # (M, J) summing to 1 in each row


class TableArrays(NamedTuple):
    """A drifting CMDP as the kernels see it: N scenarios, M episodes."""

    # Unsigned indices into arrays: signed ones would cost a test for negative values each time.
    offsets: NDArray[np.int64]  # (H*S*A + 1,)
    states: NDArray[np.uint32]  # (entries,) successors, common to all scenarios
    probabilities: FloatArray  # (N, entries)
    cumulative: FloatArray  # (N, entries) running sums within each row
    rewards: FloatArray  # (N, H, S, A)
    utilities: FloatArray  # (N, K, H, S, A)
    initial_states: IndexArray  # (I,) support of the initial distribution
    initial: FloatArray  # (I,)
    transition_path: WeightPath
    reward_path: WeightPath
    utility_path: WeightPath
    thresholds: FloatArray  # (M, K)


class Features(NamedTuple):
    """The feature maps of a linear-kernel CMDP on S states: known to everybody, learner included.

    Row i = (h*S + s)*A + a of ψ holds entries offsets[i] .. offsets[i+1]. Features that are the
    same at every step are stored for one step: h is then 0.
    """

    offsets: NDArray[np.int64]  # (S*A + 1,) or (H*S*A + 1,)
    states: NDArray[np.uint32]  # (entries,) successors
    psi: FloatArray  # (entries, d1) ψ(x, a, x'), times the quadrature weight of x' on a box
    phi: FloatArray  # (1 or H, d2, A*S) φ(x, a), pair a*S + s; (1, 0, A*S) where one_hot
    one_hot: bool  # φ(x, a) is the unit vector of the pair: d2 = S*A


class LinearArrays(NamedTuple):
    """A linear-kernel CMDP as the simulation sees it."""

    features: Features
    theta: FloatArray  # (M, H, d1)
    theta_r: FloatArray  # (M, H, d2)
    theta_g: FloatArray  # (M, K, H, d2)
    initial_states: IndexArray  # (I,) support of the initial distribution
    initial: FloatArray  # (I,)
    thresholds: FloatArray  # (M, K)
