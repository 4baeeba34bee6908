"""One sweep as the page shows it: progress, rate, failures, scores of every learner so far."""

from __future__ import annotations

from typing import Any

import numpy as np

from safedrift.experiments.sweep_reader import SHOWN_FIGURES, SweepReader
from safedrift.experiments.sweeps import STUDY
from safedrift.reports.html import math_parts
from safedrift.reports.summary_text import number
from safedrift.results.folder_locks import heartbeat_age
from safedrift.results.scores import FIGURES
from safedrift.watching.figures import plain_record, score_plot
from safedrift.watching.folders import Found, sentence, stamp_of, written_at
from safedrift.watching.pace import Pace

__all__ = ["WatchedSweep"]

_MOST_LEARNERS = 200  # in the table
_MOST_DRAWN = 30
_MOST_ERRORS = 20


class WatchedSweep:
    """A sweep that is looked at again and again."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self._reader: SweepReader | None = None
        self._pace = Pace()
        self._stamp: object = None
        self.state = "damaged"
        self.error: str | None = None
        self.started = ""

    def look(self) -> None:
        """Read the rows that were added."""
        try:
            stamp = stamp_of(self.found.path / STUDY)
            if stamp != self._stamp:
                self._stamp, self._reader, self.error = stamp, None, None
                self._reader = SweepReader(self.found.path)
                self.started = written_at(self.found.path / STUDY)
            if self._reader is not None:
                self._reader.update()
                self.state, self.error = self._reader.state, None
        except Exception as error:  # whatever is in the folder, the others are shown
            self.state, self.error = "damaged", sentence(error)

    @property
    def version(self) -> str:
        """Changes whenever there is something new to show."""
        reader = self._reader
        seen = None if reader is None else (reader.done, reader.failed, reader.damaged)
        return repr((self._stamp, self.state, self.error, seen))

    def row(self, until: float) -> dict[str, Any]:
        """Return the row of the list."""
        reader = self._reader
        row = {"id": self.found.id, "kind": "sweep", "name": self.found.name, "state": self.state,
               "title": None, "error": self.error, "started": self.started}  # fmt: skip
        if reader is None:
            return plain_record(row)
        beat = None
        if self.state == "running":
            self._pace.see(reader.done)
            beat = heartbeat_age(self.found.path)
        worlds, learners, seeds = reader.worlds, len(reader.learners), reader.seeds
        return plain_record(row | {
            "title": f"{_many(worlds, 'world')} × {_many(learners, 'learner')} × "
                     f"{_many(seeds, 'seed')}",
            "done": reader.done, "total": reader.total, "failed": reader.failed,
            "rate": self._pace.rate, "left": self._pace.left(reader.total), "beat": beat,
        })  # fmt: skip

    def detail(self) -> dict[str, Any]:
        """Return everything that is shown of the sweep, or what is wrong with it."""
        shown: dict[str, Any] = {
            "id": self.found.id, "kind": "sweep", "name": self.found.name, "title": self.found.name,
        }  # fmt: skip
        reader = self._reader
        if reader is None:
            return plain_record(shown | {"problem": self.error})
        worlds = reader.common_worlds()
        means = [
            (x, [x.mean(i, worlds) for i in range(len(SHOWN_FIGURES))]) for x in reader.learners
        ]
        means.sort(key=lambda x: (np.isnan(x[1][0]), x[1][0]))
        drawn = [(x.label, found[0], x.error_of_mean(0, worlds)) for x, found in means
                 if not np.isnan(found[0])]  # fmt: skip
        rows = [
            [x.label, *map(_shown, found), f"{x.done:,}", f"{x.failed:,}" if x.failed else ""]
            for x, found in means
        ]
        definitions = [math_parts(FIGURES[name].replace("_+", "₊")) for name in SHOWN_FIGURES]
        return plain_record(shown | {
            "problem": self.error,
            "learners": rows[:_MOST_LEARNERS],
            "more_learners": max(0, len(rows) - _MOST_LEARNERS),
            "errors": [[f"{count:,}", error or "without a reason"]
                       for error, count in reader.errors.most_common(_MOST_ERRORS)],
            "more_errors": max(0, len(reader.errors) - _MOST_ERRORS),
            "damaged": reader.damaged,
            "common_worlds": len(worlds),
            "worlds": reader.worlds,
        }) | {
            "definitions": definitions,
            "figure": score_plot(drawn[:_MOST_DRAWN]) if drawn else None,
            "drawn": min(len(drawn), _MOST_DRAWN),
        }  # fmt: skip


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _shown(value: float) -> str:
    return "" if np.isnan(value) else number(value)
