"""A comparison in sentences: its verdict, and what to know before believing it."""

from __future__ import annotations

import numpy as np

from safedrift.results.comparison import (
    NOT_DIFFERENT,
    UNTESTED,
    WORSE,
    Comparison,
    Standing,
    comparison_method,
)
from safedrift.results.statistics import Interval

__all__ = ["notes", "verdict"]


@comparison_method("verdict")
def verdict(comparison: Comparison) -> str:
    """Return one sentence: who has the smallest strict score, and whom it does not beat."""
    standings = [entry for entry in comparison.ranking() if entry.place is not None]
    if not standings or not comparison.ranked_worlds or not comparison.ranked_seeds:
        return "There is no winner: no learner has finished all of its runs."
    best, others = standings[0], standings[1:]
    worlds, seeds = len(comparison.ranked_worlds), comparison.ranked_seeds
    runs = _count(seeds, "seed")
    where = (
        f"{runs} in {comparison.ranked_worlds[0]}" if worlds == 1 else f"{worlds} worlds and {runs}"
    )
    start = (
        f"{best.learner} has the smallest strict score, {_with_interval(best.score)}, "
        f"the interquartile mean over {where}"
    )
    return f"{start}; {_against_others(others)}."


@comparison_method("notes")
def notes(comparison: Comparison) -> list[str]:
    """Return what a reader should know before believing the table, in sentences."""
    found = []
    missing = comparison.planned - len(comparison.rows)
    if missing:
        found.append(f"Incomplete: {missing:,} of {comparison.planned:,} runs are still missing.")
    for label in comparison.learners:
        rows = comparison.failures(label)
        if rows:
            first = rows[0]
            found.append(
                f"{label}: {_count(len(rows), 'run')} without a result, the first in "
                f"{first.world} with seed {first.seed}: {first.error}"
            )
    for world in comparison.worlds:
        losses = [row.uniform_loss for row in comparison.rows if row.world == world and row.done]
        if losses and all(np.isnan(r.strict_score) for r in comparison.rows if r.world == world):
            found.append(
                f"{world}: the uniform policy loses nothing there, so the strict score is "
                "undefined and the world is left out of the ranking."
            )
    if len(comparison.manifest.seeds) == 1:
        found.append("One seed: there are no intervals and no tests.")
    if comparison.manifest.measure_every > 1:
        found.append(
            f"One episode in {comparison.manifest.measure_every} was measured and stands for the "
            "others; scores are estimates."
        )
    return [*found, _tuning_note(comparison)]


def _tuning_note(comparison: Comparison) -> str:
    if not comparison.manifest.tune:
        return "Untuned: every learner has its default options, or those in its name."
    tuned = [entry for entry in comparison.manifest.learners if entry.tuned is not None]
    each = "; ".join(
        f"{entry.label} {', '.join(f'{k}={v}' for k, v in entry.tuned.items()) or 'defaults'}"
        for entry in tuned
        if entry.tuned is not None
    )
    rest = [e.label for e in comparison.manifest.learners if e.tuned is None]
    nothing = f" Nothing to tune: {', '.join(rest)}." if rest else ""
    return (
        f"Tuned: {comparison.manifest.tune} random settings each, on worlds that are not compared "
        f"here. {each or 'No learner had anything to tune'}.{nothing}"
    )


def _with_interval(score: Interval) -> str:
    if np.isnan(score.low):
        return f"{score.value:.4g} ({score.note})"
    return f"{score.value:.4g} (95% interval {score.low:.4g} to {score.high:.4g})"


def _against_others(others: list[Standing]) -> str:
    """The second half of the verdict."""
    if not others:
        return "there is no other learner to compare it with"
    groups = {
        status: [entry.learner for entry in others if entry.status == status]
        for status in (NOT_DIFFERENT, UNTESTED, WORSE)
    }
    told = []
    if groups[NOT_DIFFERENT]:
        told.append(f"not significantly different from {_list(groups[NOT_DIFFERENT])}")
    if groups[UNTESTED]:
        told.append(f"too few runs for a test against {_list(groups[UNTESTED])}")
    if groups[WORSE]:
        rest = groups[NOT_DIFFERENT] or groups[UNTESTED]
        all_others = "the rest" if rest or len(groups[WORSE]) > 3 else _list(groups[WORSE])
        told.append(f"significantly better than {all_others}")
    return ", ".join(told)


def _list(names: list[str]) -> str:
    """Names as in a sentence; of more than four, the first three."""
    if len(names) > 4:
        names = [*names[:3], f"{len(names) - 3} others"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _count(n: int, thing: str) -> str:
    return f"{n:,} {thing}" + ("" if n == 1 else "s")
