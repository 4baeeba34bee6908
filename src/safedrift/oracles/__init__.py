"""Truth: exact values, constrained optima and variation budgets. Learners never see it."""

from safedrift.oracles.description import (
    Description,
    describe,
    free_values,
    smallest_gap,
)
from safedrift.oracles.occupancies import expected, occupancy
from safedrift.oracles.optimality import (
    Optima,
    Optimum,
    evaluate,
    evaluate_episodes,
    optima,
    optimal_policies,
    safest_utilities,
    solve,
)
from safedrift.oracles.variations import Variation, block_sums, budgets, local_budgets, variation

__all__ = [
    "Description",
    "Optima",
    "Optimum",
    "Variation",
    "block_sums",
    "budgets",
    "describe",
    "evaluate",
    "evaluate_episodes",
    "expected",
    "free_values",
    "local_budgets",
    "occupancy",
    "optima",
    "optimal_policies",
    "safest_utilities",
    "smallest_gap",
    "solve",
    "variation",
]
