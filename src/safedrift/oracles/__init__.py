"""What is true: exact values, constrained optima, variation budgets. Learners never see this."""

from safedrift.oracles.budgets import Variation, block_sums, budgets, local_budgets, variation
from safedrift.oracles.describe import Description, describe, free_values, spread
from safedrift.oracles.occupancy import expected, occupancy
from safedrift.oracles.solve import (
    Optima,
    Optimum,
    evaluate,
    evaluate_episodes,
    optima,
    optimal_policies,
    safest_utilities,
    solve,
)

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
    "solve",
    "spread",
    "variation",
]
