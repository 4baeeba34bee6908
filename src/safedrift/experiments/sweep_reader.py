"""A sweep while it goes on: runs done and failed, scores of every learner so far.

Rows are read as the file grows, each once; nothing is changed in the folder. A run that failed and
was played again counts once, with its last row.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from safedrift import _check
from safedrift._files import open_plain_file, plain_file
from safedrift.experiments.row_logs import read_lines
from safedrift.experiments.studies import Study, study_from
from safedrift.experiments.sweeps import RESULTS, ROWS, STUDY, read_study_record
from safedrift.results.folder_locks import in_use

__all__ = ["SHOWN_FIGURES", "LearnerTally", "SweepReader"]

SHOWN_FIGURES = ("strict_score", "regret", "violation")
LONGEST_STUDY = 2**26  # bytes
LONGEST_ROWS = 2**31
_STEP = 2**23  # bytes of rows that are read at once
_WANTED = "the study of a sweep, as safedrift wrote it"


class _Row(NamedTuple):
    """What is kept of a run."""

    world: int
    learner: int
    done: bool
    figures: tuple[float, ...]  # of SHOWN_FIGURES; NaN where there is none
    error: str


class _Sums:
    """Count, sum and sum of squares of each of SHOWN_FIGURES, over runs in one world."""

    def __init__(self) -> None:
        self.numbers = np.zeros((len(SHOWN_FIGURES), 3))

    def add(self, figures: tuple[float, ...], sign: int) -> None:
        x = np.array(figures)
        known = np.isfinite(x)
        x = np.where(known, x, 0.0)
        self.numbers += sign * np.stack((known, x, x * x), axis=1)

    def mean(self, i: int) -> float:
        n, total, _ = self.numbers[i]
        return float(total / n) if n > 0 else np.nan

    def squared_error(self, i: int) -> float:
        """Of the mean; NaN with fewer than two runs."""
        n, total, squares = self.numbers[i]
        if n < 2:
            return np.nan
        return float(max(squares / n - (total / n) ** 2, 0.0) / (n - 1))


@dataclass
class LearnerTally:
    """What the runs of a learner came to, world by world.

    Means are those over worlds of the means over runs: the worlds are given, the seeds random.
    """

    label: str
    done: int = 0
    failed: int = 0
    by_world: dict[int, _Sums] = field(default_factory=dict)

    def count(self, row: _Row, sign: int) -> None:
        """Add a row (1) or take it away (-1)."""
        if not row.done:
            self.failed += sign
            return
        self.done += sign
        self.by_world.setdefault(row.world, _Sums()).add(row.figures, sign)

    def worlds(self) -> set[int]:
        """Return the worlds in which there is a strict score."""
        return {world for world, sums in self.by_world.items() if sums.numbers[0, 0] > 0}

    def mean(self, i: int, worlds: Iterable[int]) -> float:
        """Mean of figure i over some worlds; NaN without any."""
        found = [self.by_world[world].mean(i) for world in worlds if world in self.by_world]
        return float(np.mean(found)) if found else np.nan

    def error_of_mean(self, i: int, worlds: Iterable[int]) -> float:
        """Standard error of that mean, over seeds; NaN with fewer than two runs in a world."""
        found = [self.by_world[x].squared_error(i) for x in worlds if x in self.by_world]
        return float(np.sqrt(np.sum(found)) / len(found)) if found else np.nan


class SweepReader:
    """The sweep in a folder, read again and again.

    Attributes
    ----------
    total : runs of the study
    worlds, seeds : how many
    learners : one tally each, in the order of the study
    errors : how many runs failed with each sentence
    damaged : lines that cannot be read; their runs are played again
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / STUDY
        if not plain_file(path) or path.stat().st_size > LONGEST_STUDY:
            _check.fail(str(path), _WANTED, "a link, or a file that is too long")
        record = read_study_record(path)
        try:
            self.study: Study = study_from(record["study"], str(path))
            self.worlds = len(record["worlds"])
            self._labels = [str(item["label"]) for item in record["learners"]]
        except (KeyError, TypeError) as error:
            _check.fail(str(path), _WANTED, f"another text ({error!r})")
        self.seeds = len(self.study.seed_list)
        self.total = self.worlds * len(self._labels) * self.seeds
        self._start_again()

    def _start_again(self) -> None:
        self.learners = [LearnerTally(label) for label in self._labels]
        self.errors: Counter[str] = Counter()
        self.damaged = 0
        self._rows: dict[int, _Row] = {}
        self._read = 0
        self._file: tuple[int, int] | None = None

    @property
    def done(self) -> int:
        """How many runs have come to an end."""
        return len(self._rows)

    @property
    def failed(self) -> int:
        """How many of them failed."""
        return sum(tally.failed for tally in self.learners)

    def common_worlds(self) -> set[int]:
        """Return the worlds in which all learners have a score, but for those without any yet.

        A sweep goes world by world. Means over other worlds than the rest would be unfair.
        """
        found = [worlds for tally in self.learners if (worlds := tally.worlds())]
        return set.intersection(*found) if found else set()

    @property
    def state(self) -> str:
        """Return "running", "done" or "interrupted"."""
        if in_use(self.folder):
            return "running"
        finished = plain_file(self.folder / RESULTS) and self.done == self.total
        return "done" if finished else "interrupted"

    def update(self) -> bool:
        """Read rows that were added, a part of them if there are many; return if all were read."""
        path = self.folder / ROWS
        if path.is_symlink():
            _check.fail(str(path), "a file", "a link")
        if not path.is_file():
            return True
        with open_plain_file(path) as file:
            found = os.fstat(file.fileno())
            if found.st_size > LONGEST_ROWS:
                wanted = f"at most {LONGEST_ROWS / 2**30:.0f} GiB to be watched"
                _check.fail(str(path), wanted, f"{found.st_size / 2**30:.1f} GiB")
            name = (found.st_dev, found.st_ino)
            if name != self._file or found.st_size < self._read:
                self._start_again()
            self._file = name
            file.seek(self._read)
            data = file.read(_STEP)
        whole = data[: data.rfind(b"\n") + 1]
        if not whole and len(data) == _STEP:
            _check.fail(str(path), "rows of a sweep, one per line", "a line that is too long")
        for row in read_lines(whole):
            self._take(row)
        self._read += len(whole)
        return len(data) < _STEP

    def _take(self, row: dict[str, Any] | None) -> None:
        """Count a row, in place of an earlier one of the same run."""
        kept = None if row is None else self._kept(row)
        if row is None or kept is None:
            self.damaged += 1
            return
        i = row["run"]
        before = self._rows.get(i)
        if before is not None:
            self._count(before, -1)
        self._rows[i] = kept
        self._count(kept, 1)

    def _kept(self, row: dict[str, Any]) -> _Row | None:
        """What is kept of a row; None if it is none of this study."""
        i = row["run"]
        if not 0 <= i < self.total:
            return None
        world, learner = divmod(i // self.seeds, len(self._labels))
        status, error = row.get("status"), row.get("error")
        if row.get("learner") != self._labels[learner] or not isinstance(status, str):
            return None
        figures = tuple(_number(row.get(name)) for name in SHOWN_FIGURES)
        why = error if isinstance(error, str) else ""
        return _Row(world, learner, status == "done", figures, why)

    def _count(self, row: _Row, sign: int) -> None:
        self.learners[row.learner].count(row, sign)
        if not row.done:
            self.errors[row.error] += sign
            if not self.errors[row.error]:
                del self.errors[row.error]


def _number(value: Any) -> float:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and abs(value) < 1e150 else np.nan
