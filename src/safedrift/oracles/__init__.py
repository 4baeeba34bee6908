"""What is true: exact values, constrained optima, variation budgets. Learners never see this."""

from safedrift.oracles.budgets import Variation, block_sums, budgets, local_budgets, variation
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
    "Optima",
    "Optimum",
    "Variation",
    "block_sums",
    "budgets",
    "evaluate",
    "evaluate_episodes",
    "local_budgets",
    "optima",
    "optimal_policies",
    "safest_utilities",
    "solve",
    "variation",
]
