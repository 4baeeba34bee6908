"""Who learns: sees trajectories, never the truth (imports neither models nor oracles)."""

from safedrift.learners.propd_ppo import (
    PROPDPPO,
    Dimensions,
    Parameters,
    Policy,
    theorem1,
    theorem2,
    theorem3,
    theorem4,
    tune,
)

__all__ = [
    "PROPDPPO",
    "Dimensions",
    "Parameters",
    "Policy",
    "theorem1",
    "theorem2",
    "theorem3",
    "theorem4",
    "tune",
]
