"""Whether a learner did well, in one sentence.

    gap closed = 1 - strict score

so 100% is the best safe policy of every episode and 0% is the uniform policy. A run is safe in the
long run if CV(M) = 0 for every constraint, and lately if the mean of b - V_g over the last tenth of
the episodes is not positive.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from safedrift._check import FloatArray
from safedrift.results.run import Run, run_method
from safedrift.results.scores import last_tenth, strict_score
from safedrift.results.wording import ROUNDING, episodes_label, is_cost, number, utility_unit

__all__ = ["Safety", "gap_closed", "safety", "verdict", "warnings"]

# What a strict score up to a level is called.
_WORDS = (
    (0.02, "was nearly optimal"),
    (0.1, "came close to the optimum"),
    (0.35, "came most of the way to the optimum"),
    (0.7, "came part of the way to the optimum"),
    (0.98, "was little better than the uniform policy"),
    (math.inf, "was no better than the uniform policy"),
)
WORSE = 1.1  # a last tenth is called worse if its score exceeds the whole run's by this factor ...
WORSE_BY = 0.01  # ... and by this


class Safety(NamedTuple):
    """Utility missing per episode, in the world's own units (K,); zero or less is safe."""

    long_run: FloatArray  # CV(M)/M
    last_tenth: FloatArray  # mean of b - V_g over the last tenth

    @property
    def safe_in_the_long_run(self) -> bool:
        """Whether CV(M) = 0 for every constraint, up to rounding."""
        return bool((self.long_run <= ROUNDING).all())

    @property
    def safe_lately(self) -> bool:
        """Whether the last tenth meets every constraint on average."""
        return bool((self.last_tenth <= ROUNDING).all())


def safety(run: Run) -> Safety:
    """Return how much utility was missing, in the long run and lately."""
    own = run.in_units
    late = own.shortfall[last_tenth(run)].mean(axis=0)
    return Safety(own.violation[-1] / run.manifest.sizes.M, np.asarray(late))


@run_method("verdict")
def verdict(run: Run) -> str:
    """Return one sentence: how far from the best safe policy, and safe or not.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> run = sd.simulate(world, sd.learners.make("uniform", world))
    >>> run.verdict().split(":")[0]
    'uniform was no better than the uniform policy'
    """
    name = run.manifest.learner.name
    if not run.truth.known:
        own, last = run.in_units, last_tenth(run)
        mean = float(np.cumsum(own.outcome.reward * run.weights)[-1] / run.manifest.sizes.M)
        unit = "" if run.scale is None else run.scale.reward_unit
        earned = f"{number(mean)} {unit or 'reward'} per episode"
        return (
            f"{name} earned {earned} ({number(float(own.outcome.reward[last].mean()))} in the last "
            "tenth); how far that is from the best safe policy is unknown, as the world has no "
            f"model; as observed, it was {_safety_words(run)}."
        )
    return f"{name} {_distance(run)}; it was {_safety_words(run)}."


def _distance(run: Run) -> str:
    """How far from the best safe policy, in words and percent."""
    found, best = strict_score(run), f"the best safe policy of each {episodes_label(run)[:-1]}"
    if math.isnan(found.whole):
        lost = float(run.in_units.dynamic_regret[-1] / run.manifest.sizes.M)
        return (
            f"lost {number(lost)} reward per episode against {best}, where the uniform policy is "
            "optimal already"
        )
    words = next(words for level, words in _WORDS if found.whole <= level)
    late = (
        ""
        if math.isnan(found.last_tenth)
        else f" ({gap_closed(found.last_tenth)} in the last tenth)"
    )
    return (
        f"{words}: it closed {gap_closed(found.whole)} of the gap between the uniform policy and "
        f"{best}{late}"
    )


def gap_closed(score: float) -> str:
    """Return in percent how much of the gap a strict score closes; 100% is nothing but the optimum.

    Examples
    --------
    >>> from safedrift.results.verdicts import gap_closed
    >>> gap_closed(0.21), gap_closed(0.0004), gap_closed(1.5)
    ('79%', '99.9%', '−50%')
    """
    share = 100 * (1 - score)
    text = f"{math.floor(10 * share + 1e-6) / 10:g}" if share > 99 else f"{share:.0f}"
    return f"{'0' if text == '-0' else text}%".replace("-", "−")


def _safety_words(run: Run) -> str:
    found = safety(run)
    long_run, late = (_misses(run, missing) for missing in found)
    if not long_run and not late:
        return "safe in the long run and in the last tenth"
    if not late:
        return f"unsafe in the long run ({long_run}) but safe in the last tenth"
    if not long_run:
        return f"safe in the long run but unsafe in the last tenth ({late})"
    return f"unsafe in the long run ({long_run}) and in the last tenth ({late})"


def _misses(run: Run, missing: FloatArray) -> str:
    """Which constraints are missed, and by how much per episode; empty if none is."""
    alone = run.manifest.sizes.K == 1 and run.manifest.constraints is None
    told = []
    for k in np.flatnonzero(missing > ROUNDING).tolist():
        side = "above" if is_cost(run, k) else "below"
        amount = f"{number(float(missing[k]))} {utility_unit(run, k)} {side} the threshold"
        amount += _level(run, k)
        told.append(amount if alone else f"“{run.constraint(k)}” {amount}")
    return ", ".join(told)


def _level(run: Run, k: int) -> str:
    """The threshold itself, where it is always the same."""
    b = run.in_units.truth.thresholds[:, k]
    if np.ptp(b) > ROUNDING * max(1.0, float(np.abs(b).max())):
        return ""
    return f" of {number(float(-b[0] if is_cost(run, k) else b[0]))}"


def warnings(run: Run) -> list[str]:
    """Return what to worry about in the last tenth of the episodes, in sentences."""
    found, told = safety(run), []
    if not found.safe_lately:
        told.append(
            f"Warning: the last tenth of the episodes was unsafe: {_misses(run, found.last_tenth)}."
        )
    if run.truth.known:
        score = strict_score(run)
        if score.last_tenth > max(WORSE * score.whole, score.whole + WORSE_BY):
            told.append(
                "Warning: the last tenth of the episodes was worse than the whole run: its strict "
                f"score is {number(score.last_tenth)}, that of the run {number(score.whole)}."
            )
    return told
