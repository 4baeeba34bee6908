"""safedrift: safe reinforcement learning in a world that drifts.

PROPD-PPO (Ding & Lavaei, AAAI 2023) for constrained MDPs whose rewards, utilities, transitions and
thresholds change from episode to episode, with exact dynamic regret and constraint violation.
"""

from pathlib import Path as _Path

from safedrift import learners, oracles, problems, theory
from safedrift._version import __version__
from safedrift.adapters.gymnasium_worlds import GymnasiumWorld, from_gymnasium
from safedrift.adapters.transitions import Transition
from safedrift.experiments import (
    Callback,
    certify,
    check_learner,
    compare,
    measure_truth,
    simulate,
    simulate_many,
)
from safedrift.gpu import devices
from safedrift.knowledge import Budgets, LocalBudgets, ProblemSpec, Sizes, Slater
from safedrift.learners import (
    PROPDPPO,
    Learner,
    Parameters,
    Trajectory,
    export_policy,
    load_learner,
    load_policy,
    save_learner,
    theorem1,
    theorem2,
    theorem3,
    theorem4,
)
from safedrift.models import (
    DriftingCMDP,
    LinearKernelCMDP,
    SuccessorFeatures,
    Successors,
    TabularCMDP,
    box,
    drift,
    from_costs,
    linear_kernel_on_box,
    refined,
)
from safedrift.oracles import (
    Description,
    budgets,
    describe,
    evaluate,
    local_budgets,
    optima,
    solve,
    variation,
)
from safedrift.results import Comparison, ManyRuns, Run, Truth
from safedrift.results.comparison import comparison_method as _comparison_method
from safedrift.results.run import run_method as _run_method
from safedrift.scale import Scale, at_least, at_most

__all__ = [
    "PROPDPPO",
    "Budgets",
    "Callback",
    "Comparison",
    "Description",
    "DriftingCMDP",
    "GymnasiumWorld",
    "Learner",
    "LinearKernelCMDP",
    "LocalBudgets",
    "ManyRuns",
    "Parameters",
    "ProblemSpec",
    "Run",
    "Scale",
    "Sizes",
    "Slater",
    "SuccessorFeatures",
    "Successors",
    "TabularCMDP",
    "Trajectory",
    "Transition",
    "Truth",
    "__version__",
    "at_least",
    "at_most",
    "box",
    "budgets",
    "certify",
    "check_learner",
    "compare",
    "describe",
    "devices",
    "drift",
    "evaluate",
    "export_policy",
    "from_costs",
    "from_gymnasium",
    "learners",
    "linear_kernel_on_box",
    "load_learner",
    "load_policy",
    "local_budgets",
    "measure_truth",
    "optima",
    "oracles",
    "problems",
    "refined",
    "save_learner",
    "simulate",
    "simulate_many",
    "solve",
    "theorem1",
    "theorem2",
    "theorem3",
    "theorem4",
    "theory",
    "variation",
]


@_run_method("report")
def _report(run: Run, path: str | _Path, certificates: theory.Certificates | None = None) -> _Path:
    """Write a self-contained HTML page, with a section on the lemmas if given certificates."""
    from safedrift.reports import report  # plotly takes a while to import

    return report(run, path, certificates)


@_comparison_method("report")
def _report_comparison(comparison: Comparison, path: str | _Path) -> _Path:
    """Write a self-contained HTML page: verdict, ranking, curves, table."""
    from safedrift.reports.comparison_page import report

    return report(comparison, path)
