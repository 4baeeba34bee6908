"""Many runs of one world as data: running sums of each run at log-spaced episodes.

With L learners (or settings of one) and R seeds, for each run and each recorded episode n

    dynamic_regret        Σ_{m≤n} ( V_r*[m] - V_r[π_m, m] )
    positive_regret       Σ_{m≤n} [ V_r*[m] - V_r[π_m, m] ]_+
    violation             [ Σ_{m≤n} ( b_m - V_g[π_m, m] ) ]_+      per constraint
    positive_violation    Σ_{m≤n} [ b_m - V_g[π_m, m] ]_+          per constraint

Every episode is measured and enters the sums; only some of the sums are kept. So the size of the
result grows with log M.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from safedrift import _check
from safedrift._check import FloatArray, IntArray
from safedrift._files import write_whole
from safedrift._version import __version__
from safedrift.results.manifest import LearnerRecord, Record, SizesRecord
from safedrift.results.measured import measured_episodes

__all__ = ["FIGURES", "ManyRuns", "ManyRunsManifest", "recorded_rows"]

FIGURES = ("dynamic_regret", "positive_regret", "violation", "positive_violation")
_WANTED = "a file written by ManyRuns.to_parquet"
_KEY = b"safedrift-many-runs"


class ManyRunsManifest(Record):
    """Everything about many runs that is not an array.

    Attributes
    ----------
    version : of safedrift
    problem : name of the world; None for one of your own
    learners : label of each learner, and what it was
    device : "cpu", or "gpu" and its name
    noisy, measure_every : as in `simulate`
    """

    version: str = __version__
    problem: str | None
    sizes: SizesRecord
    learners: dict[str, LearnerRecord]
    device: str = "cpu"
    noisy: bool = False
    measure_every: int = 1


@dataclass(frozen=True, eq=False, repr=False)
class ManyRuns:
    """Runs of L learners with R seeds in one world with K constraints; see `simulate_many`.

    Attributes
    ----------
    manifest : ManyRunsManifest
    seeds : (R,)
    episodes : (n,) recorded episodes, from 0, the last one measured included
    dynamic_regret, positive_regret : (L, R, n)
    violation, positive_violation : (L, R, n, K)

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=200)
    >>> found = sd.simulate_many(world, ["uniform", "propd-ppo:gamma=0.2"], seeds=4)
    >>> found
    ManyRuns(stationary, 2 learners, 4 seeds, M=200, H=10, S=8, A=3, K=1)
    >>> found.mean("dynamic_regret").shape, found.quantiles("violation", [0.1, 0.9]).shape
    ((2, 143), (2, 2, 143, 1))
    """

    manifest: ManyRunsManifest
    seeds: IntArray
    episodes: IntArray
    dynamic_regret: FloatArray
    positive_regret: FloatArray
    violation: FloatArray
    positive_violation: FloatArray

    @property
    def learners(self) -> tuple[str, ...]:
        """Labels of the learners (L,)."""
        return tuple(self.manifest.learners)

    def mean(self, figure: str) -> FloatArray:
        """Return the mean over seeds, (L, n) or (L, n, K)."""
        return np.asarray(self._figure(figure).mean(axis=1))

    def quantiles(self, figure: str, q: Sequence[float] = (0.1, 0.5, 0.9)) -> FloatArray:
        """Return quantiles over seeds, (len(q), L, n) or (len(q), L, n, K)."""
        levels = _check.floats("q", q, ("quantiles",))
        _check.everywhere("q", levels, (levels >= 0) & (levels <= 1), "in [0, 1]")
        return np.quantile(self._figure(figure), levels, axis=1)

    def _figure(self, name: str) -> FloatArray:
        values: FloatArray = getattr(self, _check.choice("figure", name, FIGURES))
        return values

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={size}" for name, size in self.manifest.sizes)
        world = self.manifest.problem or "a world of your own"
        L, R = self.dynamic_regret.shape[:2]
        return f"ManyRuns({world}, {_count(L, 'learner')}, {_count(R, 'seed')}, {sizes})"

    def __str__(self) -> str:
        """Totals of each learner: the mean over seeds, and the 10% and 90% quantiles."""
        lines = [repr(self)]
        for i, label in enumerate(self.learners):
            parts = []
            for name in ("dynamic_regret", "violation"):
                last = self._figure(name)[i, :, -1].reshape(len(self.seeds), -1)
                for k in range(last.shape[1]):
                    low, high = np.quantile(last[:, k], (0.1, 0.9))
                    which = f" {k + 1}" if last.shape[1] > 1 else ""
                    title = name.replace("_", " ") + which
                    parts.append(f"{title} {last[:, k].mean():.4g} ({low:.4g} to {high:.4g})")
            lines.append(f"  {label}: {', '.join(parts)}")
        return "\n".join(lines)

    # ------------------------------------------------------------ tables and files

    def to_table(self) -> pa.Table:
        """Return one row per learner, seed and recorded episode; violations are numbered from 0."""
        L, R, n = self.dynamic_regret.shape
        K = self.violation.shape[3]
        place = np.repeat(np.arange(L, dtype=np.int32), R * n)
        columns: dict[str, Any] = {
            "learner": pa.DictionaryArray.from_arrays(place, list(self.learners)),
            "seed": np.tile(np.repeat(self.seeds, n), L),
            "episode": np.tile(self.episodes, L * R),
        }
        for name in FIGURES[:2]:
            columns[name] = self._figure(name).ravel()
        for name in FIGURES[2:]:
            columns |= {f"{name}.{k}": self._figure(name)[..., k].ravel() for k in range(K)}
        return pa.table(columns).replace_schema_metadata({_KEY: self.manifest.model_dump_json()})

    def to_parquet(self, path: str | Path) -> Path:
        """Write the table, with the manifest as metadata, whole or not at all."""
        path = Path(path)
        if path.is_dir() or not path.parent.is_dir():
            _check.fail("path", "a file in an existing folder", path)
        table = self.to_table()
        return write_whole(path, lambda file: pq.write_table(table, file, compression="zstd"))

    @staticmethod
    def from_parquet(path: str | Path) -> ManyRuns:
        """Read what `to_parquet` wrote."""
        table = pq.read_table(path)
        text = (table.schema.metadata or {}).get(_KEY)
        if text is None:
            _check.fail(str(path), _WANTED, "another Parquet file")
        try:
            manifest = ManyRunsManifest.model_validate_json(text)
            return _from_table(table, manifest)
        except (ValidationError, KeyError, ValueError) as error:
            reason = " ".join(str(error).split())[:120]
            _check.fail(str(path), _WANTED, f"one that cannot be read ({reason})")


def _from_table(table: pa.Table, manifest: ManyRunsManifest) -> ManyRuns:
    """The arrays of a table that `to_table` made."""
    K, L = manifest.sizes.K, len(manifest.learners)
    seeds, first = np.unique(table["seed"].to_numpy(), return_index=True)
    seeds = seeds[np.argsort(first)]
    shape = (L, seeds.size, table.num_rows // (L * seeds.size))
    plain = {name: table[name].to_numpy().reshape(shape) for name in FIGURES[:2]}
    for name in FIGURES[2:]:
        columns = [table[f"{name}.{k}"].to_numpy().reshape(shape) for k in range(K)]
        plain[name] = np.stack(columns, axis=-1)
    return ManyRuns(manifest, seeds, table["episode"].to_numpy()[: shape[2]].copy(), **plain)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def recorded_rows(measured: IntArray, log: int) -> IntArray:
    """Return which of the measured episodes (n,) are recorded: log-spaced, and the last.

    Parameters
    ----------
    log
        Each recorded one is a log-th further than the one before; see `results.measured`.

    Examples
    --------
    >>> import numpy as np
    >>> from safedrift.results.many_runs import recorded_rows
    >>> recorded_rows(np.arange(40), 4).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18, 22, 27, 33, 39]
    """
    n = measured.size
    return np.union1d(measured_episodes(n, log=log), [n - 1])
