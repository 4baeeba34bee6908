"""Worlds: the CMDP of one episode, and how it drifts."""

from safedrift.models import box, drift
from safedrift.models.box import linear_kernel_on_box, refined
from safedrift.models.drifting import DriftingCMDP
from safedrift.models.episodes import evenly_spaced
from safedrift.models.linear import LinearKernelCMDP, SuccessorFeatures
from safedrift.models.tabular import Successors, TabularCMDP, from_costs

DriftingWorld = DriftingCMDP | LinearKernelCMDP

__all__ = [
    "DriftingCMDP",
    "DriftingWorld",
    "LinearKernelCMDP",
    "SuccessorFeatures",
    "Successors",
    "TabularCMDP",
    "box",
    "drift",
    "evenly_spaced",
    "from_costs",
    "linear_kernel_on_box",
    "refined",
]
