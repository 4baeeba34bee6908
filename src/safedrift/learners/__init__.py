"""Who learns: sees trajectories, never the truth (imports neither models nor oracles)."""

from safedrift.learners.catalogue import LEARNERS, documentation, make, options
from safedrift.learners.checked import CheckedLearner
from safedrift.learners.files import load as load_learner
from safedrift.learners.files import save as save_learner
from safedrift.learners.forgetting import (
    Adaptive,
    Discount,
    Forgetting,
    Homogeneity,
    Never,
    Periodic,
    SlidingWindow,
)
from safedrift.learners.generators import generator_state, restore_generator
from safedrift.learners.policies import GreedyPolicy, TabularPolicy, draw_action
from safedrift.learners.policy_files import export_policy, load_policy
from safedrift.learners.propd_ppo import (
    PROPDPPO,
    Dimensions,
    Parameters,
    theorem1,
    theorem2,
    theorem3,
    theorem4,
    tune,
)
from safedrift.learners.protocol import (
    FastPath,
    Learner,
    PolicyLike,
    Problem,
    Trajectory,
    checked_thresholds,
)

__all__ = [
    "LEARNERS",
    "PROPDPPO",
    "Adaptive",
    "CheckedLearner",
    "Dimensions",
    "Discount",
    "FastPath",
    "Forgetting",
    "GreedyPolicy",
    "Homogeneity",
    "Learner",
    "Never",
    "Parameters",
    "Periodic",
    "PolicyLike",
    "Problem",
    "SlidingWindow",
    "TabularPolicy",
    "Trajectory",
    "checked_thresholds",
    "documentation",
    "draw_action",
    "export_policy",
    "generator_state",
    "load_learner",
    "load_policy",
    "make",
    "options",
    "restore_generator",
    "save_learner",
    "theorem1",
    "theorem2",
    "theorem3",
    "theorem4",
    "tune",
]
