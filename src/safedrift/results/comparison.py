"""A comparison as data: one row per world, learner and seed, and what follows from the rows.

The ranking is by the interquartile mean of the strict score over all worlds and seeds. A learner is
ranked if all of its runs are done. Oracles (they are told the truth) are shown and never win.

"Not different" means: not significant at 5 percent after Holm's correction for all pairs of
learners, so the choice of the best among them is paid for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict

from safedrift import _check
from safedrift._check import FloatArray
from safedrift._late import late_method
from safedrift._version import __version__
from safedrift.results import statistics
from safedrift.results.scores import FIGURES, RunScore
from safedrift.results.statistics import Interval

__all__ = ["Comparison", "ComparisonManifest", "LearnerEntry", "Standing", "WorldEntry"]

LEVEL = 0.05
BEST, NOT_DIFFERENT, WORSE, UNTESTED = "best", "not different", "worse", "not tested"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class WorldEntry(_Record):
    """A world of a comparison: its label and sizes."""

    label: str
    sizes: dict[str, int]


class LearnerEntry(_Record):
    """A learner of a comparison.

    `options` were given by the user, `tuned` found by the search (None: not tuned), `told` is what
    the learner is told beyond sizes, initial distribution and its own trajectories.
    """

    label: str
    oracle: bool = False
    options: dict[str, Any] = {}
    tuned: dict[str, Any] | None = None
    told: list[str] = []


class ComparisonManifest(_Record):
    """Everything about a comparison that is not in its rows."""

    version: str = __version__
    worlds: list[WorldEntry]
    learners: list[LearnerEntry]
    seeds: list[int]
    noisy: bool = False
    measure_every: int = 1
    tune: int = 0


class Standing(NamedTuple):
    """A learner's place: its interquartile mean, and how it stands to the best."""

    learner: str
    place: int | None  # None for oracles and for learners that are not ranked
    score: Interval
    p_value: float  # adjusted, of being the same as the best
    status: str  # best, not different, worse, not tested, oracle, or why it is not ranked
    best_is_better: Interval | None  # probability that a run of the best beats one of this learner


@dataclass(frozen=True, eq=False)
class Comparison:
    """Scores of several learners in several worlds with common random numbers.

    `table()` has one row per world and learner, `ranking()` one per learner, `verdict()` is one
    sentence. `report(path)` writes a page.

    Examples
    --------
    >>> import safedrift as sd
    >>> found = sd.compare(["stationary"], ["uniform", "optimum"], seeds=2, episodes=50, workers=1)
    >>> [(row["learner"], round(row["strict_score"].value, 6)) for row in found.table()]
    [('uniform', 1.0), ('optimum', 0.0)]
    """

    manifest: ComparisonManifest
    rows: tuple[RunScore, ...]

    report: ClassVar[Callable[..., Path]] = late_method(
        "Comparison.report", "Write a self-contained HTML page: report(path)."
    )
    # Attached by the modules that provide them (see `comparison_method`).
    to_parquet: ClassVar[Callable[..., Path]]
    from_parquet: ClassVar[Callable[..., Comparison]]
    to_json: ClassVar[Callable[..., str]]
    verdict: ClassVar[Callable[..., str]]
    notes: ClassVar[Callable[..., list[str]]]

    def __repr__(self) -> str:
        m = self.manifest
        return (
            f"Comparison({len(m.learners)} learners, {len(m.worlds)} worlds, {len(m.seeds)} seeds, "
            f"{len(self.rows)} of {self.planned} runs)"
        )

    # ------------------------------------------------------------ rows

    @property
    def worlds(self) -> tuple[str, ...]:
        """Labels of the worlds."""
        return tuple(entry.label for entry in self.manifest.worlds)

    @property
    def learners(self) -> tuple[str, ...]:
        """Labels of the learners."""
        return tuple(entry.label for entry in self.manifest.learners)

    @property
    def oracles(self) -> tuple[str, ...]:
        """Labels of those learners that are told the truth."""
        return tuple(entry.label for entry in self.manifest.learners if entry.oracle)

    @property
    def planned(self) -> int:
        """Number of runs that the whole comparison has."""
        return len(self.worlds) * len(self.learners) * len(self.manifest.seeds)

    @property
    def complete(self) -> bool:
        """Whether every run has its row, done or not."""
        return len(self.rows) == self.planned

    @cached_property
    def _by_cell(self) -> dict[tuple[str, str, int], RunScore]:
        return {(row.world, row.learner, row.seed): row for row in self.rows}

    def cell(self, world: str, learner: str) -> list[RunScore]:
        """Return the finished runs of a learner in a world, in the order of the seeds."""
        found = (self._by_cell.get((world, learner, seed)) for seed in self.manifest.seeds)
        return [row for row in found if row is not None and row.done]

    def figures(self, name: str, learner: str) -> FloatArray:
        """Return a figure (a name in `FIGURES`) of every world and seed (W, N); NaN if missing."""
        _check.choice("figure", name, (*FIGURES, "uniform_loss", "seconds_per_episode"))
        _check.choice("learner", learner, self.learners)
        seeds = self.manifest.seeds
        out = np.full((len(self.worlds), len(seeds)), np.nan)
        for i, world in enumerate(self.worlds):
            for j, seed in enumerate(seeds):
                row = self._by_cell.get((world, learner, seed))
                if row is not None and row.done:
                    out[i, j] = getattr(row, name)
        return out

    def failures(self, learner: str) -> list[RunScore]:
        """Return the rows of a learner whose runs failed or were refused."""
        return [row for row in self.rows if row.learner == learner and not row.done]

    # ------------------------------------------------------------ tables

    def table(self) -> list[dict[str, Any]]:
        """Return one row per world and learner: figures as `Interval`, and how it stands.

        The rows are the same whenever the comparison is run again.
        """
        return [dict(row) for row in self._table]

    @cached_property
    def _table(self) -> tuple[dict[str, Any], ...]:
        return tuple(row for world in self.worlds for row in self._world_table(world))

    def _world_table(self, world: str) -> list[dict[str, Any]]:
        standing = self._standings_in(world)
        found = []
        for label in self.learners:
            runs = self.cell(world, label)
            row: dict[str, Any] = {"world": world, "learner": label, "runs": len(runs)}
            for name in FIGURES:
                values = np.array([getattr(run, name) for run in runs])
                row[name] = statistics.mean_interval(values[~np.isnan(values)])
            found.append(row | {"status": standing[label]})
        return found

    def _standings_in(self, world: str) -> dict[str, str]:
        """How each learner stands to the best of one world: paired t-tests, Holm over all pairs."""
        at = self.worlds.index(world)
        scores = {label: self.figures("strict_score", label)[at] for label in self.learners}
        known = {
            label: values
            for label, values in scores.items()
            if label not in self.oracles and not np.isnan(values).all()
        }
        found = {label: self._untested(world, label) for label in self.learners}
        if len(known) < 2:
            return found
        pairs = list(combinations(known, 2))
        raw = []
        for one, other in pairs:
            both = ~np.isnan(known[one]) & ~np.isnan(known[other])
            raw.append(statistics.paired_t_test(known[one][both], known[other][both]))
        adjusted = dict(zip(map(frozenset, pairs), statistics.holm(raw), strict=True))
        best = min(known, key=lambda label: np.nanmean(known[label]))
        for label in known:
            found[label] = BEST if label == best else _status(adjusted[frozenset((label, best))])
        return found

    def _untested(self, world: str, learner: str) -> str:
        """The status of a learner in a world before any test."""
        if not self.cell(world, learner):
            failed = {row.status for row in self.failures(learner) if row.world == world}
            return min(failed, default=UNTESTED)
        return "oracle" if learner in self.oracles else UNTESTED

    def timings(self) -> dict[str, dict[str, float]]:
        """Return the median seconds per episode of each learner in each world; never the same."""
        found: dict[str, dict[str, float]] = {}
        for label in self.learners:
            seconds = self.figures("seconds_per_episode", label)
            found[label] = {
                world: float(np.nanmedian(row)) if not np.isnan(row).all() else np.nan
                for world, row in zip(self.worlds, seconds, strict=True)
            }
        return found

    def score_parts(self, learner: str) -> FloatArray:
        """Return regret and violation over the uniform policy's loss (2, W), means over seeds.

        Positive parts of each episode: the two add up to the strict score.
        """
        parts = np.full((2, len(self.worlds)), np.nan)
        for i, world in enumerate(self.worlds):
            runs = [run for run in self.cell(world, learner) if not np.isnan(run.strict_score)]
            if runs:
                losses = [(run.positive_regret, run.positive_violation) for run in runs]
                parts[:, i] = np.mean(losses, axis=0) / runs[0].uniform_loss
        return parts

    def profiles(self, levels: int = 101) -> tuple[FloatArray, dict[str, FloatArray]]:
        """Return levels τ (T,) and each ranked learner's share of runs at most τ, with its band.

        An entry is (3, T): share, lower and upper end of its 95% interval.
        """
        scores = {label: self.ranked_scores(label) for label in self.ranked}
        largest = max(float(values.max()) for values in scores.values())
        at = np.linspace(0, 1.02 * largest, levels)
        found = {
            label: statistics.performance_profile(values, at) for label, values in scores.items()
        }
        return at, found

    # ------------------------------------------------------------ ranking

    @cached_property
    def ranked(self) -> tuple[str, ...]:
        """Learners that are ranked: no oracles, and none of their runs failed."""
        return tuple(
            label
            for label in self.learners
            if label not in self.oracles
            and not self.failures(label)
            and not np.isnan(self.figures("strict_score", label)).all()
        )

    @cached_property
    def _used(self) -> tuple[np.ndarray, np.ndarray]:
        """Worlds (W,) and seeds (N,) of the ranking: where every ranked learner has a score."""
        if not self.ranked:
            return np.zeros(len(self.worlds), bool), np.zeros(len(self.manifest.seeds), bool)
        have = np.all(
            [~np.isnan(self.figures("strict_score", label)) for label in self.ranked], axis=0
        )
        worlds = have.any(axis=1)
        return worlds, have[worlds].all(axis=0) if worlds.any() else have.any(axis=0)

    @property
    def ranked_worlds(self) -> tuple[str, ...]:
        """Worlds that the ranking is made from."""
        return tuple(w for w, used in zip(self.worlds, self._used[0], strict=True) if used)

    @property
    def ranked_seeds(self) -> int:
        """Number of seeds that the ranking is made from."""
        return int(self._used[1].sum())

    def ranked_scores(self, learner: str) -> FloatArray:
        """Return the strict scores (W, N) of the worlds and seeds that the ranking is made from."""
        worlds, seeds = self._used
        return np.asarray(self.figures("strict_score", learner)[worlds][:, seeds])

    def ranking(self) -> list[Standing]:
        """Return every learner, the best first; oracles and learners without a rank come last."""
        return list(self._ranking)

    @cached_property
    def _ranking(self) -> tuple[Standing, ...]:
        scores = {label: self.ranked_scores(label) for label in self.learners}
        middle = {label: self._middle(values) for label, values in scores.items()}
        order = sorted(self.ranked, key=lambda label: middle[label].value)
        adjusted = self._pairwise(order, scores)
        found = []
        for place, label in enumerate(order, start=1):
            if place == 1:
                alone = len(order) == 1
                status, p, better = (UNTESTED if alone else BEST), np.nan, None
            else:
                p = adjusted[frozenset((label, order[0]))]
                status = _status(p)
                better = statistics.probability_of_improvement(scores[order[0]], scores[label])
            found.append(Standing(label, place, middle[label], p, status, better))
        for label in self.learners:
            if label not in order:
                status = "oracle" if label in self.oracles else self._why_not_ranked(label)
                found.append(Standing(label, None, middle[label], np.nan, status, None))
        return tuple(found)

    def _middle(self, scores: FloatArray) -> Interval:
        if scores.size == 0 or np.isnan(scores).any():
            return Interval(np.nan, np.nan, np.nan, "runs are missing")
        return statistics.stratified_interval(statistics.pooled_iqm, (scores,))

    def _pairwise(
        self, order: list[str], scores: dict[str, FloatArray]
    ) -> dict[frozenset[str], float]:
        """Adjusted p-values of all pairs of ranked learners."""
        pairs = list(combinations(order, 2))
        if not pairs:
            return {}
        p = statistics.iqm_tests([scores[label] for label in order])
        raw = [float(p[order.index(a), order.index(b)]) for a, b in pairs]
        return dict(zip(map(frozenset, pairs), statistics.holm(raw), strict=True))

    def _why_not_ranked(self, label: str) -> str:
        failed, planned = self.failures(label), len(self.worlds) * len(self.manifest.seeds)
        if failed:
            how = " or ".join(sorted({row.status for row in failed}))
            return f"not ranked: {len(failed)} of {planned} runs {how}"
        return "not ranked: no score"


def _status(p: float) -> str:
    if np.isnan(p):
        return UNTESTED
    return WORSE if p < LEVEL else NOT_DIFFERENT


def comparison_method(name: str) -> Callable[[Any], Any]:
    """Make a function whose first argument is a comparison the method `name` of `Comparison`."""

    def attach(function: Any) -> Any:
        setattr(Comparison, name, function)
        return function

    return attach
