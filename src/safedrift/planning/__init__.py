"""Arrays in, constrained optimum out: for learners that plan and for the oracles."""

from safedrift.planning.constrained import Plan, plan

__all__ = ["Plan", "plan"]
