"""Results: a run of any learner as data, in memory and on disk."""

from safedrift.results.run import Run

__all__ = ["Run"]
