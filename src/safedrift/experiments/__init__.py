"""Running it: a learner in a world, its results on disk, the paper's lemmas on it."""

from safedrift.experiments.certification import certify
from safedrift.experiments.simulation import simulate

__all__ = ["certify", "simulate"]
