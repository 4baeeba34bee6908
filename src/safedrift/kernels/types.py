"""Arrays that travel together, and the decorators under which kernels are compiled.

A compiled function takes arrays and writes into arrays. It draws no random numbers (uniforms come
in), validates nothing and raises nothing; the learner's allocate nothing either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

F = TypeVar("F", bound=Callable[..., Any])

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int32]


# Without Numba's reference counts (_nrt) arrays travel freely between compiled functions: counting
# them costs more than an episode of a small world. The price is that nothing may be allocated.
_OPTIONS: dict[str, Any] = {"cache": True, "error_model": "numpy", "_nrt": False}


def jit(function: F) -> F:
    """Compile for one thread, IEEE arithmetic (no fast-math: same seed, same bits)."""
    compiled: F = numba.njit(**_OPTIONS)(function)
    return compiled


def jit_inline(function: F) -> F:
    """Compile as a piece of its caller: passing many arrays would cost more than the work."""
    compiled: F = numba.njit(forceinline=True, **_OPTIONS)(function)
    return compiled


def jit_alloc(function: F) -> F:
    """Compile code that may allocate and copy arrays; runs beside other threads (no GIL)."""
    compiled: F = numba.njit(cache=True, error_model="numpy", nogil=True)(function)
    return compiled


class Successors(NamedTuple):
    """Transitions as successor lists, rows in the order (step, state, action).

    Row i = (h*S + s)*A + a holds entries offsets[i] .. offsets[i+1].
    """

    offsets: NDArray[np.int64]  # (H*S*A + 1,)
    states: IndexArray  # (entries,)
    probabilities: FloatArray  # (entries,)


class Path(NamedTuple):
    """Convex weights through the scenarios, the J non-zero ones of each episode."""

    index: IndexArray  # (M, J) scenario numbers
    weight: FloatArray  # (M, J) summing to 1 in each row


class World(NamedTuple):
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
    transition_path: Path
    reward_path: Path
    utility_path: Path
    thresholds: FloatArray  # (M, K)
