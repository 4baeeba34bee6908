"""What a homogeneity test remembers: room for it, and more of it (`homogeneity` has the test).

Memory follows what was visited: at most H·S·A pairs with their observed successors, for ever.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift.kernels.types import FloatArray

BUCKETS = 32  # two of each size 1, 2, ..., 2^15


class HomogeneitySettings(NamedTuple):
    """Numbers that a test is built with."""

    limit: float  # c


class HomogeneityTest(NamedTuple):
    """Buckets of the pairs in a window's slots and of its transitions; smallest buckets first.

    Of two buckets of a size, the first is filled first.
    """

    visits: FloatArray  # (H, A, cap, buckets)
    sums: FloatArray  # (1+K, H, A, cap, buckets) of rewards and utilities
    first: NDArray[np.int64]  # (H, A, cap, buckets) episode of the first visit
    times: FloatArray  # (H, E, buckets) of each transition
    alarm: NDArray[np.bool_]  # (2+K,) raised by the last episode
    settings: HomogeneitySettings


def make_test(H: int, A: int, K: int, limit: float, buckets: int = BUCKETS) -> HomogeneityTest:
    """Return a test that has seen nothing, without room for slots yet."""
    return HomogeneityTest(
        visits=np.zeros((H, A, 0, buckets)),
        sums=np.zeros((1 + K, H, A, 0, buckets)),
        first=np.zeros((H, A, 0, buckets), np.int64),
        times=np.zeros((H, 0, buckets)),
        alarm=np.zeros(2 + K, bool),
        settings=HomogeneitySettings(limit),
    )


def with_test_room(test: HomogeneityTest, cap: int, edges: int) -> HomogeneityTest:
    """Return the same test with room for so many slots and transitions per step."""
    sizes = {"visits": cap, "sums": cap, "first": cap, "times": edges}
    changed: dict[str, Any] = {}
    for name, size in sizes.items():
        array = getattr(test, name)
        if size > array.shape[-2]:
            changed[name] = np.zeros((*array.shape[:-2], size, array.shape[-1]), array.dtype)
            changed[name][..., : array.shape[-2], :] = array
    return test._replace(**changed)
