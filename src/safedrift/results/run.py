"""A finished run of any learner: what it achieved, beside what was true, episode by episode.

    DR(n) = Σ_{m≤n} ( V_r*[m] - V_r[π_m, m] )           dynamic regret
    CV(n) = [ Σ_{m≤n} ( b_m - V_g[π_m, m] ) ]_+         long-run violation, per constraint

The positive-part versions sum [·]_+ of each episode instead, so that good episodes cannot pay for
bad ones. Where only every n-th episode was measured, each measured one stands for itself and the
unmeasured ones after it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from safedrift._check import FloatArray, IntArray
from safedrift._late import late_method
from safedrift.results.manifest import Manifest
from safedrift.results.truth import Outcome, Truth
from safedrift.scale import Scale

__all__ = ["Run", "run_method"]


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A run over n measured episodes with K constraints.

    Attributes
    ----------
    truth : Truth
        Optima, thresholds, drift: what is true whoever plays.
    outcome : Outcome
        Exact (or observed) values of the learner's policies.
    trace : dict of arrays with first axis n
        What the learner showed: multipliers, estimates, restarts, ...; may be empty.
    manifest : Manifest
        Version, problem, learner and its settings, sizes, seed.
    policy : (H, S, A) the last policy; None for a run read from a file
    learner : the learner after the last episode, ready to go on; None for a run read from a file

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=200)
    >>> learner = sd.PROPDPPO.for_problem(world, sd.Slater(gamma=0.2))
    >>> run = sd.simulate(world, learner, seed=0)
    >>> run
    Run(stationary, propd-ppo, M=200, H=10, S=8, A=3, K=1, seed=0)
    >>> run.dynamic_regret.shape, run.violation.shape
    ((200,), (200, 1))
    """

    truth: Truth
    outcome: Outcome
    trace: dict[str, NDArray[Any]]
    manifest: Manifest
    policy: FloatArray | None = field(default=None)
    learner: Any = field(default=None)

    # Of rooms above this one.
    report: ClassVar[Callable[..., Path]] = late_method(
        "Run.report", "Write a self-contained HTML page: report(path, certificates=None)."
    )
    certify: ClassVar[Callable[..., Any]] = late_method(
        "Run.certify", "Check the paper's lemmas: `certify(world=None, learner=None, *, p=0.05)`."
    )
    # Attached by the modules that provide them (see `run_method`).
    summary: ClassVar[Callable[..., dict[str, Any]]]
    notes: ClassVar[Callable[..., list[str]]]
    verdict: ClassVar[Callable[..., str]]
    to_parquet: ClassVar[Callable[..., None]]
    from_parquet: ClassVar[Callable[..., Run]]
    from_folder: ClassVar[Callable[..., Run]]

    def __repr__(self) -> str:
        manifest = self.manifest
        sizes = ", ".join(f"{name}={size}" for name, size in manifest.sizes)
        world = manifest.problem or manifest.environment or "a world of your own"
        return f"Run({world}, {manifest.learner.name}, {sizes}, seed={manifest.seed})"

    def __str__(self) -> str:
        return "\n".join([repr(self), self.verdict(), *(f"Note. {note}" for note in self.notes())])

    @property
    def episodes(self) -> IntArray:
        """Numbers (n,) of the measured episodes, from 0."""
        return self.truth.episodes

    @property
    def weights(self) -> FloatArray:
        """How many episodes each measured one stands for (n,); they add up to M."""
        return np.diff(self.episodes, append=self.manifest.sizes.M).astype(np.float64)

    @property
    def regret(self) -> FloatArray:
        """Per-episode regret V_r* - V_r (n,); negative where the learner breaks the constraint."""
        return self.truth.optimal_reward - self.outcome.reward

    @property
    def shortfall(self) -> FloatArray:
        """Per-episode b - V_g (n, K); positive where the constraint is broken."""
        return self.truth.thresholds - self.outcome.utility

    @property
    def dynamic_regret(self) -> FloatArray:
        """DR up to each measured episode (n,)."""
        return np.cumsum(self.regret * self.weights)

    @property
    def violation(self) -> FloatArray:
        """CV up to each measured episode (n, K)."""
        return np.maximum(np.cumsum(self.shortfall * self.weights[:, None], axis=0), 0)

    @property
    def positive_regret(self) -> FloatArray:
        """Σ [V_r* - V_r]_+ (n,)."""
        return np.cumsum(np.maximum(self.regret, 0) * self.weights)

    @property
    def positive_violation(self) -> FloatArray:
        """Σ [b - V_g]_+ (n, K)."""
        return np.cumsum(np.maximum(self.shortfall, 0) * self.weights[:, None], axis=0)

    @property
    def baseline_regret(self) -> FloatArray:
        """Per-episode regret of the uniform policy (n,)."""
        return self.truth.optimal_reward - self.truth.baseline_reward

    @property
    def cumulative_baseline_regret(self) -> FloatArray:
        """DR of the uniform policy up to each measured episode (n,)."""
        return np.cumsum(self.baseline_regret * self.weights)

    @cached_property
    def scale(self) -> Scale | None:
        """The world's units; None where rewards and utilities are in [0, 1] per step."""
        plain = self.manifest.scale
        return None if plain is None else Scale.from_record(plain)

    @cached_property
    def in_units(self) -> Run:
        """The same run with values, thresholds and multipliers in the world's own units.

        A cost that may be at most c is a utility -cost that must be at least -c: so regret,
        shortfall and violation keep their meaning. The Slater gap and the drift stay scaled.
        """
        scale, H = self.scale, self.manifest.sizes.H
        if scale is None:
            return self
        truth, outcome = self.truth, self.outcome
        price = scale.reward_width / scale.widths
        trace = dict(self.trace)
        if "mu" in trace:
            trace["mu"] = trace["mu"] * price
        seen = outcome.observed
        converted = replace(
            self,
            truth=replace(
                truth,
                thresholds=scale.signed_sums(truth.thresholds, H),
                optimal_reward=scale.reward_sum(truth.optimal_reward, H),
                optimal_mu=truth.optimal_mu * price,
                baseline_reward=scale.reward_sum(truth.baseline_reward, H),
                baseline_utility=scale.signed_sums(truth.baseline_utility, H),
            ),
            outcome=replace(
                outcome,
                reward=scale.reward_sum(outcome.reward, H),
                utility=scale.signed_sums(outcome.utility, H),
                observed=np.column_stack(
                    (scale.reward_sum(seen[:, 0], H), scale.signed_sums(seen[:, 1:], H))
                ),
            ),
            trace=trace,
        )
        converted.__dict__["in_units"] = converted  # once is enough
        return converted

    def constraint(self, k: int) -> str:
        """Return what constraint k is called: its name, or "constraint 1", "constraint 2", ..."""
        names = self.manifest.constraints
        return f"constraint {k + 1}" if names is None else names[k]

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return every stored array by name; those of the trace as "trace.NAME"."""
        found = {**vars(self.truth), **vars(self.outcome)}
        return found | {f"trace.{name}": values for name, values in self.trace.items()}

    @property
    def digest(self) -> str:
        """Sixteen characters that tell this run from others, in memory and on disk."""
        hashed = hashlib.sha256(self.manifest.model_dump_json().encode())
        for name, values in self.columns().items():
            hashed.update(name.encode() + np.ascontiguousarray(values).tobytes())
        return hashed.hexdigest()[:16]


F = TypeVar("F", bound=Callable[..., Any])


def run_method(name: str) -> Callable[[F], F]:
    """Make a function whose first argument is a run the method `name` of `Run`.

    Files and summaries are modules of their own, which import this one; so their functions are
    attached here by name instead of being imported.
    """

    def attach(function: F) -> F:
        setattr(Run, name, function)
        return function

    return attach
