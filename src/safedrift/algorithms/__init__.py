"""Who learns: sees trajectories, never the truth (imports neither models nor oracles)."""

from safedrift.algorithms.knowledge import Budgets, LocalBudgets, Sizes, Slater
from safedrift.algorithms.parameters import Parameters, theorem3, theorem4, tune
from safedrift.algorithms.propd_ppo import PROPDPPO, Policy

__all__ = [
    "PROPDPPO",
    "Budgets",
    "LocalBudgets",
    "Parameters",
    "Policy",
    "Sizes",
    "Slater",
    "theorem3",
    "theorem4",
    "tune",
]
