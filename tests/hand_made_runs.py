"""Runs written down by hand."""

from __future__ import annotations

import numpy as np

from safedrift.results import LearnerRecord, Manifest, Outcome, Run, SizesRecord, Truth

PARAMETERS = {
    "source": "Theorem 4",
    "mode": "practical",
    "overrides": {},
    "improvement": {"alpha": 0.1, "L": 7},
    "dual": {"eta": 0.1, "xi": 0.0, "chi": float("inf")},
    "evaluation": {"W": 25, "lam": 1.0, "LV": [[float(i)] * 3 for i in range(40)]},
}
SETTINGS = {
    "parameters": PARAMETERS,
    "knowledge": {"name": "slater", "gamma": 0.4},
    "forgetting": {"kind": "Periodic", "W": 25, "L": 7},
}


def make_run(n=60, K=1, measure_every=1, shortfall=0.0, regret=0.5, problem=None, **learner) -> Run:
    """A run of constant regret and shortfall, written down by hand."""
    one, many = np.ones(n), np.ones((n, K))
    truth = Truth(
        episodes=np.arange(n) * measure_every,
        thresholds=many,
        optimal_reward=2 * one,
        optimal_mu=0.25 * many,
        gamma=0.4 * one,
        drift_P=0 * one,
        drift_r=one,
        drift_g=0 * one,
        drift_b=0 * one,
        drift_star=one,
        baseline_reward=0 * one,
        baseline_utility=many,
    )
    trace = {
        "mu": 0.5 * many,
        "estimated_reward": one,
        "estimated_utility": many,
        "policy_restart": np.arange(n) == 0,
        "window_restart": np.arange(n) == 0,
        "at_cap": 0 * one,
    }
    manifest = Manifest(
        problem=problem,
        learner=LearnerRecord(**{"name": "propd-ppo", "settings": SETTINGS} | learner),
        sizes=SizesRecord(M=n * measure_every, H=3, S=2, A=2, K=K),
        seed=3,
        noisy=False,
        measure_every=measure_every,
    )
    outcome = Outcome(2 * one - regret, many - shortfall, np.ones((n, 1 + K)))
    return Run(truth, outcome, trace, manifest)
