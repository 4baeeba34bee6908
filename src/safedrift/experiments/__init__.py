"""Running it: a learner in a world, its results on disk, the paper's lemmas on it."""

from safedrift.experiments.certify import certify
from safedrift.experiments.run import Run
from safedrift.experiments.simulate import simulate

__all__ = ["Run", "certify", "simulate"]
