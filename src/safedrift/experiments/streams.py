"""Randomness of a run: one SeedSequence with named children.

Actions come from "learner", states and noise from "world"; numbers are drawn a chunk at a time and
do not depend on how episodes are cut into chunks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from safedrift import _check

__all__ = ["listed_seeds", "seeds"]


def seeds(seed: int) -> dict[str, np.random.SeedSequence]:
    """Return the named children of a run's seed."""
    names = ("world", "learner")
    return dict(zip(names, np.random.SeedSequence(seed).spawn(len(names)), strict=True))


def listed_seeds(wanted: int | Sequence[int]) -> list[int]:
    """Return different seeds; a number n stands for 0, ..., n - 1.

    Examples
    --------
    >>> from safedrift.experiments.streams import listed_seeds
    >>> listed_seeds(3), listed_seeds([7, 5])
    ([0, 1, 2], [7, 5])
    """
    if isinstance(wanted, int | np.integer) and not isinstance(wanted, bool):
        return list(range(_check.integer("seeds", wanted)))
    listed: list[int] = _check.integers("seeds", wanted, 0, _check.LARGEST).tolist()
    seen = set[int]()
    for seed in listed:
        if seed in seen:
            _check.fail("seeds", "different from each other", f"{seed} twice")
        seen.add(seed)
    return listed
