"""The numbers a reader asks for first, and what a reader should know, for a run of any learner."""

from __future__ import annotations

from typing import Any

import numpy as np

from safedrift._check import FloatArray
from safedrift.results.run import Run, run_method
from safedrift.results.scores import last_tenth, strict_score
from safedrift.results.verdicts import safety, verdict, warnings

__all__ = ["notes", "summary"]

# Figures that mean nothing where only single episodes were observed.
_NEED_TRUTH = (
    "strict_score",
    "last_tenth_strict_score",
    "uniform_loss_per_episode",
    "dynamic_regret",
    "dynamic_regret_per_episode",
    "positive_regret_per_episode",
    "uniform_regret_per_episode",
    "last_tenth_regret_per_episode",
    "positive_violation_per_episode",
    "smallest_slater_gap",
)


@run_method("summary")
def summary(run: Run) -> dict[str, Any]:
    """Return the numbers a reader asks for first, as plain data, in the world's own units.

    What concerns constraints is a list, in the order of "constraints" where they have names. The
    Slater gap, the learner's trace, the strict score and the uniform policy's loss are scaled to
    [0, 1] per step.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> run = sd.simulate(world, sd.learners.make("uniform", world), seed=0)
    >>> found = run.summary()
    >>> round(found["dynamic_regret_per_episode"], 3), found["sizes"]["M"]
    (2.075, 50)
    """
    given, run = run, run.in_units
    manifest, truth, outcome = run.manifest, run.truth, run.outcome
    M = manifest.sizes.M
    levels = np.ones(manifest.sizes.K) if run.scale is None else run.scale.signs
    last, strict, safe = last_tenth(run), strict_score(given), safety(given)
    found = {
        "verdict": verdict(given),
        "problem": manifest.problem,
        "learner": manifest.learner.name,
        "settings": manifest.learner.settings,
        "seed": manifest.seed,
        "sizes": manifest.sizes.model_dump(),
        "constraints": manifest.constraints,
        "scale": manifest.scale,
        "truth_known": truth.known,
        "strict_score": _or_none(strict.whole),
        "last_tenth_strict_score": _or_none(strict.last_tenth),
        "uniform_loss_per_episode": strict.uniform_loss,
        "safe_in_the_long_run": safe.safe_in_the_long_run,
        "safe_in_the_last_tenth": safe.safe_lately,
        "reward_per_episode": float(np.cumsum(outcome.reward * run.weights)[-1] / M),
        "last_tenth_reward_per_episode": float(outcome.reward[last].mean()),
        "dynamic_regret": float(run.dynamic_regret[-1]),
        "dynamic_regret_per_episode": float(run.dynamic_regret[-1] / M),
        "positive_regret_per_episode": float(run.positive_regret[-1] / M),
        "uniform_regret_per_episode": float(run.cumulative_baseline_regret[-1] / M),
        "last_tenth_regret_per_episode": float(run.regret[last].mean()),
        "utility_per_episode": (levels * _mean(outcome.utility, run.weights)).tolist(),
        "last_tenth_utility_per_episode": (levels * outcome.utility[last].mean(axis=0)).tolist(),
        "threshold_per_episode": (levels * _mean(truth.thresholds, run.weights)).tolist(),
        "violation": run.violation[-1].tolist(),
        "violation_per_episode": (run.violation[-1] / M).tolist(),
        "positive_violation_per_episode": (run.positive_violation[-1] / M).tolist(),
        "last_tenth_shortfall_per_episode": run.shortfall[last].mean(axis=0).tolist(),
        "smallest_slater_gap": float(truth.gamma.min()),
        "last_tenth_trace": {
            name: np.asarray(values[last].mean(axis=0)).tolist()
            for name, values in given.trace.items()
        },
        "discretisation": manifest.discretisation,
        "events": [str(event) for event in manifest.learner.events],
        "notes": notes(given),
    }
    return found if truth.known else found | dict.fromkeys(_NEED_TRUTH)


@run_method("notes")
def notes(run: Run) -> list[str]:
    """Return what a user should know about this run, in sentences.

    First come warnings about the last tenth, then the learner's own notes.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> run = sd.simulate(world, sd.learners.make("uniform", world), seed=0)
    >>> isinstance(run.notes(), list)
    True
    """
    manifest, truth = run.manifest, run.truth
    found = [*warnings(run), *manifest.learner.notes]
    if not truth.known:
        found.append(
            "The world has no model: its best safe policy, and with it the regret, is unknown. "
            "Rewards, utilities and the violation are what was observed."
        )
    if not manifest.learner.notes and truth.known and _as_good_as_uniform(run):
        found.append(
            "In the last tenth of the episodes the policy was as good as uniform: nothing was "
            "learnt."
        )
    settings = manifest.learner.settings
    gamma = _entry(settings, "knowledge", "gamma")
    if gamma is not None and truth.known and truth.gamma.min() < gamma - 1e-9:
        at = int(truth.gamma.argmin())
        found.append(
            f"The learner was given gamma = {gamma:g}, but episode {run.episodes[at]} has a "
            f"Slater gap of only {truth.gamma[at]:.4g}: Assumption 3 does not hold."
        )
    if manifest.noisy and _entry(settings, "parameters", "noisy") is False:
        found.append(
            "Observations were noisy, but the constants were chosen for exact ones: pass "
            "noisy=True to for_problem too."
        )
    if manifest.measure_every > 1:
        found.append(
            f"One episode in {manifest.measure_every} was measured and stands for the "
            "others; sums are estimates."
        )
    if manifest.measure_log is not None:
        found.append(
            f"{run.episodes.size:,} log-spaced episodes were measured and stand for those after "
            "them; sums are estimates."
        )
    return found


def _mean(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Mean (K,) over episodes of values (n, K)."""
    return np.asarray(np.cumsum(values * weights[:, None], axis=0)[-1] / weights.sum())


def _or_none(value: float) -> float | None:
    """None for NaN: where the uniform policy loses nothing, there is no score."""
    return None if np.isnan(value) else value


def _entry(settings: dict[str, Any], group: str, name: str) -> Any:
    """An entry of a learner's settings, where it has such a group."""
    found = settings.get(group)
    return found.get(name) if isinstance(found, dict) else None


def _as_good_as_uniform(run: Run) -> bool:
    """Whether late rewards and utilities are those of the uniform policy, almost."""
    last, truth, outcome = last_tenth(run), run.truth, run.outcome
    worst = max(
        np.abs(outcome.reward - truth.baseline_reward)[last].max(),
        np.abs(outcome.utility - truth.baseline_utility)[last].max(),
    )
    return bool(worst < 1e-3) and run.manifest.sizes.A > 1
