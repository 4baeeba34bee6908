"""PROPD-PPO (Ding & Lavaei, AAAI 2023): the learner, its components and its parameters."""

from safedrift.learners.propd_ppo.learner import PROPDPPO
from safedrift.learners.propd_ppo.linear_parameters import Dimensions, theorem1, theorem2
from safedrift.learners.propd_ppo.parameters import Parameters, theorem3, theorem4, tune

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
