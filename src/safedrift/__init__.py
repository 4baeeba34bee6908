"""safedrift: safe reinforcement learning in a world that drifts.

PROPD-PPO (Ding & Lavaei, AAAI 2023) for constrained MDPs whose rewards, utilities, transitions and
thresholds change from episode to episode, with exact dynamic regret and constraint violation.

Names are loaded when first used (PEP 562): `import safedrift` takes little longer than importing
Gymnasium, with which it registers the named worlds.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from safedrift import problems
from safedrift._late import provide as _provide
from safedrift._version import __version__

if TYPE_CHECKING:
    from safedrift import learners, oracles, theory
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

# Where each name of __all__ is; for type checkers the imports above say the same.
_PLACES = {
    "adapters.gymnasium_worlds": "GymnasiumWorld from_gymnasium",
    "adapters.transitions": "Transition",
    "experiments": "Callback certify check_learner compare measure_truth simulate simulate_many",
    "gpu": "devices",
    "knowledge": "Budgets LocalBudgets ProblemSpec Sizes Slater",
    "learners": """
        PROPDPPO Learner Parameters Trajectory export_policy load_learner load_policy
        save_learner theorem1 theorem2 theorem3 theorem4
    """,
    "models": """
        DriftingCMDP LinearKernelCMDP SuccessorFeatures Successors TabularCMDP box drift
        from_costs linear_kernel_on_box refined
    """,
    "oracles": "Description budgets describe evaluate local_budgets optima solve variation",
    "results": "Comparison ManyRuns Run Truth",
    "scale": "Scale at_least at_most",
}
_PLACE = {name: place for place, names in _PLACES.items() for name in names.split()}
_ROOMS = ("experiments", "learners", "models", "oracles", "results", "theory")


if not TYPE_CHECKING:  # type checkers are to report names that do not exist

    def __getattr__(name: str) -> Any:
        """Load a name, or a room, the first time that it is asked for."""
        if name in _ROOMS:
            return _import_module(f"safedrift.{name}")
        if name not in _PLACE:
            raise AttributeError(f"module 'safedrift' has no attribute {name!r}")
        value = getattr(_import_module(f"safedrift.{_PLACE[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})


_provide(
    {
        "Run.report": "safedrift.reports:report",
        "Run.certify": "safedrift.experiments.certification:certify_run",
        "Comparison.report": "safedrift.reports.comparison_page:report",
    }
)
