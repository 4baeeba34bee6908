"""A run as one row of a comparison.

    strict score = ( Σ_m [V_r* - V_r]_+ + Σ_k Σ_m [b_k - V_g,k]_+ ) / the uniform policy's

Good episodes cannot pay for bad ones: 0 is the optimum of every single episode, 1 is as bad as the
uniform policy. Other figures are per episode; those of several constraints are added up.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from safedrift._check import FloatArray, IntArray
from safedrift.results.run import Run
from safedrift.results.truth import Truth

__all__ = [
    "CURVES",
    "FIGURES",
    "RunScore",
    "StrictScore",
    "last_tenth",
    "score",
    "score_of_sums",
    "strict_score",
    "wanted_sums",
]

NO_LOSS = 1e-9  # per episode: a uniform policy that loses less than this is optimal

FIGURES = {
    "strict_score": "(Σ [V_r* - V_r]_+ + Σ [b - V_g]_+) / the uniform policy's",
    "regret": "DR(M)/M, DR = Σ (V_r* - V_r)",
    "violation": "CV(M)/M, CV = [Σ (b - V_g)]_+, added up over constraints",
    "positive_regret": "Σ [V_r* - V_r]_+ / M",
    "positive_violation": "Σ [b - V_g]_+ / M, added up over constraints",
    "last_tenth_score": "the strict score of the last tenth of the episodes",
    "last_tenth_regret": "mean of V_r* - V_r over the last tenth",
    "last_tenth_violation": "[mean of b - V_g]_+ over the last tenth, added up over constraints",
}
"""The figures of a run and their definitions."""

CURVES = ("positive_regret", "positive_violation")


@dataclass(frozen=True)
class RunScore:
    """One run of a comparison, or what stopped it.

    Attributes
    ----------
    key : tells this run from others, with everything that its numbers depend on
    status : "done", "failed" (the run raised an error) or "refused" (the learner cannot play there)
    error : one sentence, empty where the run is done
    uniform_loss : the uniform policy's [V_r* - V_r]_+ + Σ_k [b_k - V_g,k]_+ per episode
    seconds_per_episode : of playing and learning, measuring not counted; differs from run to run
    settings : of the learner, as it records them
    curve_episodes, curves : a few episodes, and cumulative figures there (names in `CURVES`)
    """

    key: str
    world: str
    learner: str
    seed: int
    status: str
    error: str = ""
    strict_score: float = np.nan
    regret: float = np.nan
    violation: float = np.nan
    positive_regret: float = np.nan
    positive_violation: float = np.nan
    last_tenth_score: float = np.nan
    last_tenth_regret: float = np.nan
    last_tenth_violation: float = np.nan
    uniform_loss: float = np.nan
    seconds_per_episode: float = np.nan
    settings: dict[str, Any] | None = None
    curve_episodes: tuple[int, ...] = ()
    curves: dict[str, tuple[float, ...]] | None = None

    @property
    def done(self) -> bool:
        """Whether the run came to its end."""
        return self.status == "done"

    def record(self) -> dict[str, Any]:
        """Return plain JSON data, with None for NaN."""
        plain = asdict(self)
        return {
            name: None if isinstance(value, float) and np.isnan(value) else value
            for name, value in plain.items()
        }

    @classmethod
    def from_record(cls, plain: dict[str, Any]) -> RunScore:
        """Return the row that `record` described."""
        known = {item.name: item for item in fields(cls)}
        given = {name: plain[name] for name in known if name in plain}
        for name, value in given.items():
            if value is None and known[name].type == "float":
                given[name] = np.nan
        given["curve_episodes"] = tuple(given.get("curve_episodes") or ())
        curves = given.get("curves")
        given["curves"] = curves and {name: tuple(values) for name, values in curves.items()}
        return cls(**given)


class StrictScore(NamedTuple):
    """The strict score of a run, of its last tenth, and what the uniform policy loses per episode.

    Scores are NaN where the uniform policy loses nothing.
    """

    whole: float
    last_tenth: float
    uniform_loss: float


def strict_score(run: Run) -> StrictScore:
    """Return the strict score of a run, whose truth must be known.

    It is taken of rewards and utilities in [0, 1] per step, whatever the units of the world.

    Examples
    --------
    >>> import safedrift as sd
    >>> from safedrift.results.scores import strict_score
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> strict_score(sd.simulate(world, sd.learners.make("uniform", world))).whole
    1.0
    """
    last, weights = last_tenth(run), run.weights
    uniform = _losses(run.baseline_regret, run.truth.thresholds - run.truth.baseline_utility)
    losses = _losses(run.regret, run.shortfall)
    return StrictScore(
        whole=_ratio(losses, uniform, weights),
        last_tenth=_ratio(losses[last], uniform[last], weights[last]),
        uniform_loss=_total(uniform * weights) / run.manifest.sizes.M,
    )


def last_tenth(run: Run) -> slice:
    """Return the measured episodes among the last tenth of all; at least one."""
    if run.manifest.measure_log is None:
        return slice(-max(1, run.episodes.size // 10), None)
    M = run.manifest.sizes.M
    return slice(min(run.episodes.searchsorted(M - M // 10), run.episodes.size - 1), None)


def score(run: Run, names: dict[str, Any], *, seconds: float, points: int = 200) -> RunScore:
    """Return the row of a finished run.

    Parameters
    ----------
    names
        key, world, learner and seed.
    seconds
        Per episode.
    points
        Of the curves, evenly spaced; 0 keeps none.
    """
    M = run.manifest.sizes.M
    last = last_tenth(run)
    strict = strict_score(run)
    per_constraint = run.violation[-1]
    late = [_total(column) / column.size for column in run.shortfall[last].T]
    at = _evenly_spaced(run.episodes.size, points)
    drawn = {
        "positive_regret": run.positive_regret[at],
        "positive_violation": _over_constraints(run.positive_violation[at]),
    }
    return RunScore(
        **names,
        status="done",
        strict_score=strict.whole,
        regret=float(run.dynamic_regret[-1] / M),
        violation=_total(per_constraint) / M,
        positive_regret=float(run.positive_regret[-1] / M),
        positive_violation=_total(run.positive_violation[-1]) / M,
        last_tenth_score=strict.last_tenth,
        last_tenth_regret=_total(run.regret[last]) / run.regret[last].size,
        last_tenth_violation=float(sum(max(value, 0.0) for value in late)),
        uniform_loss=strict.uniform_loss,
        seconds_per_episode=seconds,
        settings=run.manifest.learner.settings,
        curve_episodes=tuple(int(m) for m in run.episodes[at]),
        curves={name: _short(values) for name, values in drawn.items()} if points else None,
    )


# ---------------------------------------------------------------- of running sums


def wanted_sums(n: int, points: int) -> IntArray:
    """Return at which of n measured episodes `score_of_sums` wants running sums."""
    last = max(1, n // 10)
    needed = [max(n - last - 1, 0), max(n - 2, 0), n - 1]
    found: IntArray = np.union1d(needed, _evenly_spaced(n, points)).astype(np.int64)
    return found


def score_of_sums(
    truth: Truth,
    M: int,
    sums: FloatArray,
    names: dict[str, Any],
    *,
    seconds: float,
    points: int,
    settings: dict[str, Any],
) -> RunScore:
    """Return the row of a run of which only running sums are known, as `score` would.

    Parameters
    ----------
    truth
        Of n measured episodes; every n-th one of M.
    sums : (len(wanted_sums(n, points)), 2 + 2K)
        Σ weight (regret, its positive part, shortfalls, their positive parts).
    """
    n, K = truth.episodes.size, truth.thresholds.shape[1]
    weights = np.diff(truth.episodes, append=M).astype(np.float64)
    rows = dict(zip(wanted_sums(n, points).tolist(), sums, strict=True))
    last = slice(-max(1, n // 10), None)
    size = max(1, n // 10)
    end = rows[n - 1]
    before = rows[n - size - 1] if n > size else np.zeros(2 + 2 * K)
    # Means of the last tenth count every measured episode once; only the last has another weight.
    own = end - (rows[n - 2] if n > 1 else 0.0)
    late = ((end - own - before) / weights[0] + own / weights[-1]) / size
    uniform = _losses(
        truth.optimal_reward - truth.baseline_reward, truth.thresholds - truth.baseline_utility
    )

    def strict(total: FloatArray, part: slice) -> float:
        reference = _total(uniform[part] * weights[part])
        losses = float(total[1] + total[2 + K :].sum())
        return losses / reference if reference > NO_LOSS * weights[part].sum() else np.nan

    at = _evenly_spaced(n, points)
    drawn = {
        "positive_regret": np.array([rows[i][1] for i in at]),
        "positive_violation": np.array([rows[i][2 + K :].sum() for i in at]),
    }
    return RunScore(
        **names,
        status="done",
        strict_score=strict(end, slice(None)),
        regret=float(end[0] / M),
        violation=float(np.maximum(end[2 : 2 + K], 0).sum() / M),
        positive_regret=float(end[1] / M),
        positive_violation=float(end[2 + K :].sum() / M),
        last_tenth_score=strict(end - before, last),
        last_tenth_regret=float(late[0]),
        last_tenth_violation=float(np.maximum(late[2 : 2 + K], 0).sum()),
        uniform_loss=_total(uniform * weights) / M,
        seconds_per_episode=seconds,
        settings=settings,
        curve_episodes=tuple(int(m) for m in truth.episodes[at]),
        curves={name: _short(values) for name, values in drawn.items()} if points else None,
    )


def _losses(regret: FloatArray, shortfall: FloatArray) -> FloatArray:
    """[V_r* - V_r]_+ + Σ_k [b_k - V_g,k]_+ of each measured episode (n,)."""
    return np.maximum(regret, 0) + _over_constraints(np.maximum(shortfall, 0))


def _over_constraints(values: FloatArray) -> FloatArray:
    """Sums (n,) of (n, K), in the order of the constraints."""
    return np.asarray(np.cumsum(values, axis=1)[:, -1])


def _ratio(losses: FloatArray, uniform: FloatArray, weights: FloatArray) -> float:
    """Losses over the uniform policy's; NaN where that loses nothing."""
    reference = _total(uniform * weights)
    return _total(losses * weights) / reference if reference > NO_LOSS * weights.sum() else np.nan


def _total(values: FloatArray) -> float:
    """The sum from left to right, the same on every machine."""
    return float(np.cumsum(values)[-1])


def _evenly_spaced(n: int, points: int) -> Any:
    """At most `points` of the indices 0, ..., n - 1, the last one among them."""
    if points == 0:
        return np.empty(0, np.int64)
    return np.unique(np.linspace(0, n - 1, min(points, n)).round().astype(np.int64))


def _short(values: FloatArray) -> tuple[float, ...]:
    """Six digits, enough to draw."""
    return tuple(float(f"{value:.6g}") for value in values)
