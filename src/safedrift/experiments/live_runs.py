"""A run that is still playing, or was stopped, as a `Run` of the episodes so far.

Its measured episodes are those whose rows are in the journal. Its M is the first episode that is
not covered by them: so DR(M)/M and CV(M)/M are those of the episodes played.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedrift import _check
from safedrift.experiments.journals import JournalReader, Rows
from safedrift.experiments.run_folder import JOURNAL, TRUTH, truth_key
from safedrift.experiments.truth_files import read_truth
from safedrift.results.manifest import Manifest
from safedrift.results.run import Run
from safedrift.results.run_folders import FolderManifest
from safedrift.results.truth import Outcome, Truth

__all__ = ["LiveRun", "run_so_far"]

_OUTCOME = tuple(item.name for item in fields(Outcome))
_WIDE = {"thresholds": 0, "optimal_mu": 0, "baseline_utility": 0, "utility": 0, "observed": 1}


class LiveRun:
    """The unfinished run in a folder, read again and again; nothing is changed there.

    Parameters
    ----------
    folder
        That the run is written to.
    most
        Bytes of a file that are read at most; longer ones are refused with a sentence.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self.folder, self.most = folder, most
        self._journal = JournalReader(folder / JOURNAL, most)
        self._truth: tuple[str, Truth] | None = None

    def so_far(self, manifest: FolderManifest) -> Run | None:
        """Return the run up to the last row; None before the first."""
        self._journal.update()
        if manifest.run is None or not self._journal.rows:
            return None
        truth = self._read_truth(manifest.run, manifest.world)
        return run_so_far(manifest.run, truth, self._journal.rows)

    def _read_truth(self, run: Manifest, world: str | None) -> Truth:
        path = self.folder / TRUTH
        key = truth_key(world, run.measure_every, run.measure_log)
        if self._truth is None or self._truth[0] != key:
            if path.is_symlink() or (path.exists() and not path.is_file()):
                _check.fail(str(path), "a plain file", "a link, a pipe or a folder")
            if path.stat().st_size > self.most:
                wanted = f"at most {self.most / 2**20:,.0f} MiB to be watched"
                _check.fail(str(path), wanted, f"{path.stat().st_size / 2**20:,.0f} MiB")
            self._truth = key, read_truth(path, key)
        return self._truth[1]


def run_so_far(settings: Manifest, truth: Truth, rows: Rows) -> Run:
    """Return the run of the first n measured episodes.

    Parameters
    ----------
    settings
        Of the whole run.
    truth
        About all its measured episodes.
    rows
        Of the first n of them, as in the journal: reward (n,), utility (n, K), observed (n, 1+K)
        and "trace.NAME" of what the learner shows.

    Examples
    --------
    >>> import safedrift as sd
    >>> from safedrift.experiments.live_runs import run_so_far
    >>> world = sd.problems.make("stationary", episodes=100)
    >>> run = sd.simulate(world, sd.learners.make("uniform", world))
    >>> first = {name: x[:30] for name, x in vars(run.outcome).items()}
    >>> half = run_so_far(run.manifest, run.truth, first)
    >>> half.manifest.sizes.M, bool(half.dynamic_regret[-1] == run.dynamic_regret[29])
    (30, True)
    """
    missing = [name for name in _OUTCOME if name not in rows]
    if missing:
        _check.fail("rows", "those of a run", f"rows without {', '.join(missing)}")
    n, whole = len(rows["reward"]), truth.episodes.size
    if not 0 < n <= whole:
        _check.fail("rows", f"between 1 and the {whole} measured episodes", n)
    K, M = settings.sizes.K, settings.sizes.M
    _check_lengths({name: np.asarray(x) for name, x in vars(truth).items()}, whole, K)
    _check_lengths(rows, n, K)
    done = int(truth.episodes[n]) if n < whole else M
    if not n <= done <= M:
        _check.fail("episodes", f"numbers of some of {M} episodes", done, n)
    part = Truth(**{name: values[:n] for name, values in vars(truth).items()})
    outcome = Outcome(**{name: rows[name] for name in _OUTCOME})
    trace = {name.removeprefix("trace."): x for name, x in rows.items() if name not in _OUTCOME}
    sizes = settings.sizes.model_copy(update={"M": done})
    return Run(part, outcome, trace, settings.model_copy(update={"sizes": sizes}))


def _check_lengths(columns: dict[str, NDArray[Any]], n: int, K: int) -> None:
    """Refuse columns of n episodes that have another shape than a run with K constraints."""
    for name, values in columns.items():
        more = _WIDE.get(name)
        wanted = (n,) if more is None else (n, K + more)
        fits = values.shape[:1] == (n,) if name.startswith("trace.") else values.shape == wanted
        if not fits or values.ndim > 2:
            _check.fail(name, f"of shape {wanted}", f"shape {values.shape}")
