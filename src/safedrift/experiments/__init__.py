"""Running it: a learner in a world, its results on disk, the paper's lemmas on it."""

from safedrift.experiments.certification import certify
from safedrift.experiments.simulation import measure_truth, simulate

__all__ = ["certify", "measure_truth", "simulate"]
