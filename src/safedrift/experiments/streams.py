"""Randomness of a run: one SeedSequence with named children.

Actions come from "learner", states and noise from "world"; numbers are drawn a chunk at a time and
do not depend on how episodes are cut into chunks.
"""

from __future__ import annotations

import numpy as np

__all__ = ["seeds"]


def seeds(seed: int) -> dict[str, np.random.SeedSequence]:
    """Return the named children of a run's seed."""
    names = ("world", "learner")
    return dict(zip(names, np.random.SeedSequence(seed).spawn(len(names)), strict=True))
