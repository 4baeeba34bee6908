"""Running it: a learner in a world, its results on disk, the paper's lemmas on it."""

from safedrift.experiments.callbacks import Callback
from safedrift.experiments.certification import certify
from safedrift.experiments.comparison import ComparisonStopped, compare
from safedrift.experiments.contract import ContractError, check_learner
from safedrift.experiments.many_runs import simulate_many
from safedrift.experiments.simulation import measure_truth, simulate

__all__ = [
    "Callback",
    "ComparisonStopped",
    "ContractError",
    "certify",
    "check_learner",
    "compare",
    "measure_truth",
    "simulate",
    "simulate_many",
]
