"""Running it: simulation and its results."""

from safedrift.experiments.run import Run
from safedrift.experiments.simulate import simulate

__all__ = ["Run", "simulate"]
