"""What the paper promises: explicit bounds behind Theorems 1 to 4."""

from safedrift.theory.bounds import Bound, Row, bounds, table
from safedrift.theory.rates import Rate, crossover, rate
from safedrift.theory.terms import Constants, Term

__all__ = [
    "Bound",
    "Constants",
    "Rate",
    "Row",
    "Term",
    "bounds",
    "crossover",
    "rate",
    "table",
]
