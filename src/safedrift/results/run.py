"""A finished run: what the learner did, beside what was true, episode by episode.

    DR(n) = Σ_{m≤n} ( V_r*[m] - V_r[π_m, m] )           dynamic regret
    CV(n) = [ Σ_{m≤n} ( b_m - V_g[π_m, m] ) ]_+         long-run violation, per constraint

The positive-part versions sum [·]_+ of each episode instead, so that good episodes cannot pay for
bad ones. Where only every n-th episode was measured, each measured one stands for itself and the
unmeasured ones after it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from safedrift import _check
from safedrift._check import FloatArray, IntArray
from safedrift._version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    from safedrift.kernels.simulation import Record
    from safedrift.learners import PROPDPPO
    from safedrift.models import DriftingWorld
    from safedrift.oracles import Optima, Variation
    from safedrift.theory.certificates import Certificates

__all__ = ["Run", "info_of", "make_run"]

FORMAT = 1
RESIDUAL = 1e-6  # of the least-squares factors, above which a user should know


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """Arrays over the n measured episodes; K is the number of constraints.

    Attributes
    ----------
    episodes : (n,) which episodes were measured, from 0
    reward, optimal_reward : (n,) V_r[π_m, m] and V_r*[m], exact
    utility, thresholds : (n, K) V_g[π_m, m], exact, and b_m
        (where the world has no model, `reward` and `utility` are the observed sums, and all that
        would need one is NaN; see `truth_known`)
    mu, optimal_mu : (n, K) the learner's multipliers after its dual step, and μ*
    gamma : (n,) Slater gap of the episode
    estimated_reward, estimated_utility : (n,), (n, K) the learner's V_r^m and V_g^m at the start
    policy_restart, window_restart : (n,) whether the episode opens an L-block, a W-block
    at_cap : (n,) share of the estimates at the visited pairs that sit at their cap H-h+1
    observed : (n, 1+K) sums of the observed rewards and utilities
    drift_P, drift_r, drift_g, drift_b, drift_star : (n,) change since the last measured episode
        of transitions, rewards, utilities (l2, summed over steps; in a linear-kernel world of their
        coefficients), thresholds and optimal policy
    baseline_reward, baseline_utility : (n,), (n, K) exact values of the uniform policy
    info : dict
        Version, problem, sizes, seed, parameters and how they were chosen.
    world : the world it was played in, None for a run read from a file
    """

    episodes: IntArray
    reward: FloatArray
    optimal_reward: FloatArray
    utility: FloatArray
    thresholds: FloatArray
    mu: FloatArray
    optimal_mu: FloatArray
    gamma: FloatArray
    estimated_reward: FloatArray
    estimated_utility: FloatArray
    policy_restart: np.ndarray
    window_restart: np.ndarray
    at_cap: FloatArray
    observed: FloatArray
    drift_P: FloatArray
    drift_r: FloatArray
    drift_g: FloatArray
    drift_b: FloatArray
    drift_star: FloatArray
    baseline_reward: FloatArray
    baseline_utility: FloatArray
    info: dict[str, Any] = field(default_factory=dict)
    world: DriftingWorld | None = None

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={size}" for name, size in self.info["sizes"].items())
        return (
            f"Run({self.info['problem']}, {self.info['agent']}, {sizes}, seed={self.info['seed']})"
        )

    @property
    def truth_known(self) -> bool:
        """Whether the world has a model, so that values, optima and regret are exact."""
        return bool(self.info.get("truth", True))

    @property
    def _weights(self) -> FloatArray:
        """How many episodes each measured one stands for (n,); they add up to M."""
        return np.diff(self.episodes, append=self.info["sizes"]["M"]).astype(np.float64)

    @property
    def regret(self) -> FloatArray:
        """Per-episode regret V_r* - V_r (n,); negative where the learner breaks the constraint."""
        return self.optimal_reward - self.reward

    @property
    def shortfall(self) -> FloatArray:
        """Per-episode b - V_g (n, K); positive where the constraint is broken."""
        return self.thresholds - self.utility

    @property
    def dynamic_regret(self) -> FloatArray:
        """DR up to each measured episode (n,)."""
        return np.cumsum(self.regret * self._weights)

    @property
    def violation(self) -> FloatArray:
        """CV up to each measured episode (n, K)."""
        return np.maximum(np.cumsum(self.shortfall * self._weights[:, None], axis=0), 0)

    @property
    def positive_regret(self) -> FloatArray:
        """Σ [V_r* - V_r]_+ (n,)."""
        return np.cumsum(np.maximum(self.regret, 0) * self._weights)

    @property
    def positive_violation(self) -> FloatArray:
        """Σ [b - V_g]_+ (n, K)."""
        return np.cumsum(np.maximum(self.shortfall, 0) * self._weights[:, None], axis=0)

    @property
    def baseline_regret(self) -> FloatArray:
        """Per-episode regret of the uniform policy (n,)."""
        return self.optimal_reward - self.baseline_reward

    @property
    def cumulative_baseline_regret(self) -> FloatArray:
        """DR of the uniform policy up to each measured episode (n,)."""
        return np.cumsum(self.baseline_regret * self._weights)

    # ------------------------------------------------------------ summary

    def summary(self) -> dict[str, Any]:
        """Return the numbers a reader asks for first, as plain data."""
        M = int(self.info["sizes"]["M"])
        last = slice(-max(1, self.episodes.size // 10), None)
        found = {
            "problem": self.info.get("problem"),
            "agent": self.info["agent"],
            "mode": self.info["parameters"]["mode"],
            "knowledge": self.info["knowledge"],
            "seed": self.info["seed"],
            "sizes": self.info["sizes"],
            "truth": self.truth_known,
            "reward_per_episode": float(np.cumsum(self.reward * self._weights)[-1] / M),
            "last_tenth_reward_per_episode": float(self.reward[last].mean()),
            "dynamic_regret": float(self.dynamic_regret[-1]),
            "dynamic_regret_per_episode": float(self.dynamic_regret[-1] / M),
            "positive_regret_per_episode": float(self.positive_regret[-1] / M),
            "uniform_regret_per_episode": float(self.cumulative_baseline_regret[-1] / M),
            "last_tenth_regret_per_episode": float(self.regret[last].mean()),
            "violation": self.violation[-1].tolist(),
            "violation_per_episode": (self.violation[-1] / M).tolist(),
            "positive_violation_per_episode": (self.positive_violation[-1] / M).tolist(),
            "last_tenth_shortfall_per_episode": self.shortfall[last].mean(axis=0).tolist(),
            "smallest_slater_gap": float(self.gamma.min()),
            "estimates_at_cap": float(self.at_cap[last].mean()),
            "multiplier_at_cap": float((self.mu >= self._chi).mean()),
            "discretisation": self.info.get("discretisation"),
            "notes": self.notes(),
        }
        return found if self.truth_known else found | dict.fromkeys(_NEED_TRUTH)

    @property
    def _chi(self) -> float:
        return float(self.info["parameters"]["dual"]["chi"])

    @property
    def _advice(self) -> str:
        parameters = self.info["parameters"]
        if parameters["evaluation"]["W"] == 1:
            return "A window of one episode holds no data: set W larger, or use mode 'practical'."
        if parameters["mode"] == "practical":
            return "There are too few episodes to learn from, or the windows are too short."
        return (
            "Use mode 'practical', or scale the bonus down (bonus_scale=0.005 and lam=0.002 learn "
            "where the printed constants do not)."
        )

    def _uniform(self, part: slice) -> bool:
        """Whether reward and utilities are those of the uniform policy, almost."""
        worst = max(
            np.abs(self.reward - self.baseline_reward)[part].max(),
            np.abs(self.utility - self.baseline_utility)[part].max(),
        )
        return bool(worst < 1e-3) and self.info["sizes"]["A"] > 1

    def notes(self) -> list[str]:
        """Return what a user should be told about this run, in sentences."""
        told = list(self.info["parameters"].get("remarks", []))
        remarks = tuple(told)
        if not self.truth_known:
            told.append(
                "The world has no model: its best safe policy, and with it the regret, is unknown. "
                "Rewards, utilities and the violation are what was observed."
            )
        last = slice(-max(1, self.episodes.size // 10), None)
        share = float(self.at_cap[last].mean())
        if share > 0.95:
            told.append(
                f"The bonus is vacuous: {share:.0%} of the estimates along the last tenth of the "
                "episodes sit at their cap, so they say nothing and the policy stays (nearly) "
                f"uniform. {self._advice}"
            )
        said = any(remark.startswith("alpha = 0") for remark in remarks)
        if self.info["parameters"]["improvement"]["alpha"] == 0 and not said:
            told.append(
                "alpha is 0, as Theorems 3 and 4 print it for zero budgets: the policy never "
                "moves. Use mode 'repaired' or 'practical', or set alpha."
            )
        if self.info["parameters"]["improvement"]["L"] == 1 and self.info["sizes"]["M"] > 1:
            told.append(
                "L is 1: the policy starts afresh in every episode and is always uniform. Set L "
                "larger, or use mode 'practical'."
            )
        if not told and self.truth_known and self._uniform(last):
            told.append(
                "In the last tenth of the episodes the policy was as good as uniform: nothing was "
                "learnt. alpha may be too small, or lam or the bonus too large."
            )
        gamma = self.info["knowledge"].get("gamma")
        if gamma is not None and self.gamma.min() < gamma - 1e-9:
            at = int(self.gamma.argmin())
            told.append(
                f"The learner was told gamma = {gamma:g}, but episode {self.episodes[at]} has a "
                f"Slater gap of only {self.gamma[at]:.4g}: Assumption 3 does not hold."
            )
        if self.info["noisy"] and not self.info["parameters"]["noisy"]:
            told.append(
                "Observations were noisy, but the constants were chosen for exact ones: pass "
                "noisy=True to for_problem too."
            )
        hits = float((self.mu >= self._chi).mean())
        if hits > 0.05:
            told.append(
                f"The multiplier sat at its upper bound chi = {self._chi:g} in {hits:.0%} of the "
                "episodes: the learner could not meet the constraint in time. The world may drift "
                "faster than W episodes can follow (set W and L smaller), or there are too few "
                "episodes."
            )
        if self.info.get("residual", 0.0) > RESIDUAL:
            told.append(
                f"The least-squares factors had moved by {self.info['residual']:.1e} (relative) "
                "between two exact refreshes: the Gram matrices are close to singular. Set lam "
                "larger."
            )
        if self.info["measure_every"] > 1:
            told.append(
                f"One episode in {self.info['measure_every']} was measured and stands for the "
                "others; sums are estimates."
            )
        return told

    # ------------------------------------------------------------ files

    @property
    def digest(self) -> str:
        """Sixteen characters that tell this run from others, in memory and on disk."""
        info = json.dumps(self.info, sort_keys=True, allow_nan=True).encode()
        numbers = b"".join(getattr(self, name).tobytes() for name in ("mu", "reward", "observed"))
        return hashlib.sha256(info + numbers).hexdigest()[:16]

    def to_parquet(self, path: str | Path) -> None:
        """Write arrays and info to one Parquet file."""
        columns = {}
        for item in fields(self):
            if item.name in ("info", "world"):
                continue
            values = getattr(self, item.name)
            if values.ndim == 1:
                columns[item.name] = pa.array(values)
            else:
                for k in range(values.shape[1]):
                    columns[f"{item.name}.{k}"] = pa.array(values[:, k])
        table = pa.table(columns)
        info = json.dumps({"format": FORMAT, **self.info}, allow_nan=True)
        path = Path(path)
        if path.is_dir() or not path.parent.is_dir():
            _check.fail("path", "a file in an existing folder", path)
        partial = path.with_name(f"{path.name}.partial")
        pq.write_table(table.replace_schema_metadata({"safedrift": info}), partial)
        partial.replace(path)  # whole or not at all

    @classmethod
    def from_parquet(cls, path: str | Path) -> Run:
        """Read what `to_parquet` wrote."""
        table = pq.read_table(path)
        raw = (table.schema.metadata or {}).get(b"safedrift")
        whole = "a run written by Run.to_parquet"
        if raw is None:
            _check.fail(str(path), whole, "another Parquet file")
        try:
            info = json.loads(raw)
            if info.pop("format") != FORMAT:
                _check.fail(str(path), f"of run format {FORMAT}", "another format")
            missing = [key for key, kind in _INFO.items() if not isinstance(info.get(key), kind)]
            parts = info.get("parameters")
            if isinstance(parts, dict):
                missing += [key for key in _PARTS if not isinstance(parts.get(key), dict)]
            if not missing and "name" not in info["knowledge"]:
                missing = ["knowledge"]
        except (json.JSONDecodeError, AttributeError, TypeError, KeyError):
            _check.fail(str(path), whole, "one with unreadable settings")
        if missing:
            _check.fail(str(path), whole, f"one without the settings {', '.join(missing)}")
        if table.num_rows == 0:
            _check.fail(str(path), whole, "one without episodes")
        arrays = {
            item.name: _column(path, table, item.name)
            for item in fields(cls)
            if item.name not in ("info", "world")
        }
        return cls(**arrays, info=info)  # type: ignore[arg-type]

    def certify(
        self,
        world: DriftingWorld | None = None,
        *,
        p: float = 0.05,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> Certificates:
        """Check the paper's lemmas on this run, by playing it again with the same seed.

        Parameters
        ----------
        world
            Needed only for a run that was read from a file and played in a world of your own.
        p
            Failure probability of the lemmas that hold "with probability 1 - p".
        progress
            Called as progress("certifying", episodes done, episodes in all).
        """
        from safedrift.experiments.certification import certify_run

        return certify_run(self, world, p=p, progress=progress)

    def report(self, path: str | Path, certificates: Certificates | None = None) -> Path:
        """Write a self-contained HTML page, with a section on the lemmas if given them."""
        from safedrift.reports import write_page

        return write_page(self, path, certificates)


# Figures that mean nothing where only single episodes were observed.
_NEED_TRUTH = (
    "dynamic_regret", "dynamic_regret_per_episode", "positive_regret_per_episode",
    "uniform_regret_per_episode", "last_tenth_regret_per_episode",
    "positive_violation_per_episode", "smallest_slater_gap",
)  # fmt: skip

_INFO: dict[str, Any] = {
    "problem": (str, type(None)), "agent": str, "sizes": dict, "knowledge": dict,
    "parameters": dict, "seed": int, "noisy": bool, "measure_every": int,
}  # fmt: skip
_PARTS = ("improvement", "dual", "evaluation")


def _column(path: str | Path, table: pa.Table, name: str) -> np.ndarray:
    """One field of a run: a column, or columns name.0, name.1, ... side by side."""
    names = [n for n in table.column_names if n == name or n.rpartition(".")[0] == name]
    columns = [table[n].to_numpy() for n in names]
    if not columns or any(column.dtype.kind not in "bif" for column in columns):
        _check.fail(str(path), "a run written by Run.to_parquet", f"one without numbers for {name}")
    return columns[0] if names == [name] else np.stack(columns, axis=1)


def make_run(
    world: DriftingWorld,
    learner: PROPDPPO,
    truth: Optima,
    values: FloatArray,
    record: Record,
    drift: Variation,
    *,
    seed: int,
    noisy: bool,
    measure_every: int,
    discretisation: dict[str, Any] | None = None,
) -> Run:
    """Put learning and truth side by side."""
    from safedrift.oracles import evaluate_episodes

    at = truth.episodes
    K = world.K
    _, version = world.distinct
    _, first, place = np.unique(version[at], return_index=True, return_inverse=True)
    uniform = np.full((1, world.H, world.S, world.A), 1 / world.A)
    baseline = evaluate_episodes(world, at[first], uniform)[place]
    settings = learner.settings
    return Run(
        episodes=at,
        reward=values[:, 0],
        optimal_reward=truth.value,
        utility=values[:, 1:],
        thresholds=world.thresholds[at],
        mu=record.mu[at],
        optimal_mu=truth.multipliers,
        gamma=truth.gamma,
        estimated_reward=record.v_start[at, 0],
        estimated_utility=record.v_start[at, 1 : 1 + K],
        policy_restart=at % settings.L == 0,
        window_restart=at % settings.W == 0,
        at_cap=record.at_cap[at],
        observed=record.returns[at],
        drift_P=_since_last(drift.P.sum(axis=1), at),
        drift_r=_since_last(drift.r.sum(axis=1), at),
        drift_g=_since_last(drift.g.sum(axis=(1, 2)), at),
        drift_b=_since_last(drift.b.sum(axis=1), at),
        drift_star=truth.policy_change,
        baseline_reward=baseline[:, 0],
        baseline_utility=baseline[:, 1:],
        info=info_of(
            learner, world.name, world.recipe,
            seed=seed, noisy=noisy, measure_every=measure_every, discretisation=discretisation,
        ),
        world=world,
    )  # fmt: skip


def info_of(
    learner: PROPDPPO,
    problem: str | None,
    recipe: dict[str, object],
    *,
    seed: int,
    noisy: bool,
    measure_every: int,
    discretisation: dict[str, Any] | None = None,
    truth: bool = True,
) -> dict[str, Any]:
    """What is kept of a run besides its arrays, as plain data."""
    return {
        "version": __version__,
        "problem": problem,
        "recipe": recipe,
        "agent": learner.name,
        "sizes": learner.sizes._asdict(),
        "knowledge": _describe_knowledge(learner),
        "parameters": learner.parameters.record(),
        "seed": seed,
        "noisy": noisy,
        "measure_every": measure_every,
        "discretisation": discretisation,
        "residual": float(getattr(learner.memory, "residual", np.zeros(1))[0]),
        "truth": truth,
    }


def _since_last(per_episode: FloatArray, at: IntArray) -> FloatArray:
    """Sum per-episode changes from one listed episode (exclusive) to the next (inclusive)."""
    return np.diff(np.cumsum(per_episode)[at], prepend=0.0)


def _describe_knowledge(learner: PROPDPPO) -> dict[str, Any]:
    known = learner.knowledge
    gamma = getattr(known, "gamma", None)
    return {"name": known.name} if gamma is None else {"name": known.name, "gamma": gamma}
