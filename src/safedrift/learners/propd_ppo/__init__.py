"""PROPD-PPO (Ding & Lavaei, AAAI 2023): the learner, its components and its parameters."""

from safedrift.knowledge import Dimensions
from safedrift.learners.propd_ppo.learner import PROPDPPO
from safedrift.learners.propd_ppo.linear_theorems import theorem1, theorem2
from safedrift.learners.propd_ppo.parameters import Parameters
from safedrift.learners.propd_ppo.tabular_theorems import theorem3, theorem4
from safedrift.learners.propd_ppo.tuning import tune

__all__ = [
    "PROPDPPO",
    "Dimensions",
    "Parameters",
    "theorem1",
    "theorem2",
    "theorem3",
    "theorem4",
    "tune",
]
