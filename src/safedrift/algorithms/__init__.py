"""Who learns: sees trajectories, never the truth (imports neither models nor oracles)."""

from safedrift.algorithms.engines import Policy
from safedrift.algorithms.knowledge import Budgets, LocalBudgets, Sizes, Slater
from safedrift.algorithms.linear_parameters import Dimensions, theorem1, theorem2
from safedrift.algorithms.parameters import Parameters, theorem3, theorem4, tune
from safedrift.algorithms.propd_ppo import PROPDPPO

__all__ = [
    "PROPDPPO",
    "Budgets",
    "Dimensions",
    "LocalBudgets",
    "Parameters",
    "Policy",
    "Sizes",
    "Slater",
    "theorem1",
    "theorem2",
    "theorem3",
    "theorem4",
    "tune",
]
