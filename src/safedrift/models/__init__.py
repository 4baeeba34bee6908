"""What the world is: one episode's CMDP, and how it drifts."""

from safedrift.models import drift
from safedrift.models.drifting import DriftingCMDP
from safedrift.models.tabular import Successors, TabularCMDP, from_costs

__all__ = ["DriftingCMDP", "Successors", "TabularCMDP", "drift", "from_costs"]
