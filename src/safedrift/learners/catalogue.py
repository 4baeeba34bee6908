"""Learners by name: `make("uniform", world)`; `LEARNERS` lists them."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

from safedrift import _check
from safedrift.learners import adaptive_linear_planner, adaptive_planner, restart_bandit
from safedrift.learners.protocol import Learner, Problem
from safedrift.learners.rivals import (
    bisection,
    certainty_equivalence,
    discounted_lsvi,
    dope,
    double_restart_triple_q,
    fixed,
    ns_triple_q,
    opdop,
    opt_cmdp,
    opt_dual,
    opt_pess_primal_dual,
    opt_primal_dual,
    pid_lagrangian,
    posterior_sampling,
    propd_ppo,
    propo,
    regularised_primal_dual,
    restart_q_ucb,
    softmax_lsvi,
    triple_q,
)

__all__ = ["LEARNERS", "documentation", "make", "options"]

LEARNERS: dict[str, ModuleType] = {
    "uniform": fixed,
    "adaptive-planner": adaptive_planner,
    "adaptive-linear-planner": adaptive_linear_planner,
    "propd-ppo": propd_ppo,
    "restart-bandit": restart_bandit,
    "certainty-equivalence": certainty_equivalence,
    "opt-cmdp": opt_cmdp,
    "posterior-sampling": posterior_sampling,
    "dope": dope,
    "opdop": opdop,
    "opt-dual": opt_dual,
    "opt-primal-dual": opt_primal_dual,
    "opt-pess-primal-dual": opt_pess_primal_dual,
    "regularised-primal-dual": regularised_primal_dual,
    "pid-lagrangian": pid_lagrangian,
    "bisection": bisection,
    "propo": propo,
    "triple-q": triple_q,
    "ns-triple-q": ns_triple_q,
    "double-restart-triple-q": double_restart_triple_q,
    "restart-q-ucb": restart_q_ucb,
    "softmax-lsvi": softmax_lsvi,
    "discounted-lsvi": discounted_lsvi,
}


def make(name: str, world: Problem, **chosen: Any) -> Learner:
    """Build a named learner for a world.

    Parameters
    ----------
    name
        One of `LEARNERS`.
    world
        Its sizes, first state and features, where it has them, are what the learner sees of it.
    **chosen
        Options of the learner; see `options(name)` and `documentation(name)`.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("maze", episodes=100)
    >>> sd.learners.make("uniform", world).name
    'uniform'
    """
    _check.choice("learner", name, tuple(LEARNERS))
    for given in chosen:
        _check.choice(f"option of {name}", given, (*options(name), "seed"))
    learner: Learner = LEARNERS[name].build(world, **chosen)
    return learner


def documentation(name: str) -> str:
    """Return the description of a learner: its paper, what it does, what was changed.

    Examples
    --------
    >>> import safedrift as sd
    >>> print(sd.learners.documentation("opt-cmdp").splitlines()[0])
    OptCMDP-bonus (Efroni, Mannor and Pirotta 2020, arXiv 2003.02189): optimistic planning.
    """
    _check.choice("learner", name, tuple(LEARNERS))
    return inspect.getdoc(LEARNERS[name]) or ""


def options(name: str) -> dict[str, Any]:
    """Return the options of a learner and their defaults.

    Examples
    --------
    >>> import safedrift as sd
    >>> sd.learners.options("opt-cmdp")["replan_every"]
    25
    """
    _check.choice("learner", name, tuple(LEARNERS))
    known = inspect.signature(LEARNERS[name].build).parameters
    return {key: p.default for key, p in known.items() if key not in ("world", "seed")}
