"""One run as the page shows it: a row in the list, and its curves, figures and events.

A finished run is read from its records, an unfinished one from its journal. What cannot be read is
a sentence in the row.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from safedrift import _check
from safedrift._files import open_plain_file
from safedrift.experiments.live_runs import LiveRun
from safedrift.experiments.run_folder import JOURNAL
from safedrift.experiments.run_listing import RunEntry, entry_from
from safedrift.reports.html import math_parts
from safedrift.reports.summary_text import (
    CHANGES_CAPTION,
    CHANGES_HEAD,
    configuration,
    flatten,
    headline,
    key_figures,
    noticed_changes,
    number,
)
from safedrift.results.folder_locks import heartbeat_age
from safedrift.results.manifest import Manifest
from safedrift.results.run import Run
from safedrift.results.run_folders import (
    MANIFEST,
    RECORDS,
    FolderManifest,
    from_folder,
    read_folder_manifest,
    state_of,
)
from safedrift.watching.figures import plain, plain_record, plots_of
from safedrift.watching.folders import Found, sentence, stamp_of
from safedrift.watching.pace import Pace

__all__ = ["WatchedRun"]

MOST_BYTES = 2**28  # of a file that is read
MOST_NUMBERS = 2**25  # of a finished run that is drawn
_MOST_ROWS = 300  # of a table of settings
_NUMBERS = {"BOOLEAN", "INT32", "INT64", "FLOAT", "DOUBLE"}


class WatchedRun:
    """A run folder that is looked at again and again."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self._stamp: object = None
        self._manifest: FolderManifest | None = None
        self._live: LiveRun | None = None
        self._pace = Pace()
        self._figures: tuple[object, dict[str, Any]] | None = None
        self.entry = RunEntry(found.path, "damaged")

    # ------------------------------------------------------------ in the list

    def look(self) -> None:
        """See whether it goes on: the manifest is read if it has changed."""
        path = self.found.path
        try:
            stamp = stamp_of(path / MANIFEST)
            if stamp != self._stamp:
                self._stamp, self._manifest = stamp, None
                self._manifest = read_folder_manifest(path)
            if self._manifest is not None:
                state = state_of(self.found.lock, self._manifest)
                self.entry = entry_from(path, self._manifest, state)
        except (ValueError, OSError) as error:
            self.entry = RunEntry(path, "damaged", error=sentence(error))

    @property
    def version(self) -> str:
        """Changes whenever there is something new to show."""
        journal = stamp_of(self.found.path / JOURNAL)
        return repr((self._stamp, self.entry.state, self.entry.error, journal))

    @property
    def started(self) -> str:
        """When, as the manifest says."""
        return "" if self._manifest is None else self._manifest.started

    def row(self, until: float) -> dict[str, Any]:
        """Return the row of the list; figures that are not known yet may wait for another time.

        Parameters
        ----------
        until
            When (`monotonic`) there is no time left to read figures.
        """
        if (self._figures is None or self._figures[0] != self.version) and monotonic() < until:
            self._figures = self.version, self._read_figures()
        known = {} if self._figures is None else self._figures[1]
        entry = self.entry
        done = max(entry.done or 0, known.get("done") or 0)
        beat = None
        if entry.state == "running":
            self._pace.see(done)
            beat = heartbeat_age(self.found.lock)
        wrong = [text for text in (entry.error, known.get("error")) if text]
        title = f"{entry.problem or 'a world of your own'}: {entry.learner}"
        return plain_record({
            "id": self.found.id, "kind": "run", "name": self.found.name, "state": entry.state,
            "title": title if entry.learner else None, "seed": entry.seed,
            "done": None if entry.total is None else done, "total": entry.total,
            "rate": self._pace.rate, "left": self._pace.left(entry.total or 0), "beat": beat,
            "regret": known.get("regret"), "violation": known.get("violation"),
            "events": known.get("events"), "error": "; ".join(wrong) or None,
            "started": self.started, "pending": self._figures is None,
        })  # fmt: skip

    def _read_figures(self) -> dict[str, Any]:
        """The figures of the row, or what is wrong."""
        if self.entry.state == "damaged":
            return {}
        try:
            run = self._run()
            if run is None:
                return {}
            found = run.summary()
        except Exception as error:  # whatever is in the folder, the others are shown
            return {"error": sentence(error)}
        regret = found["dynamic_regret_per_episode"]
        return {
            "done": run.manifest.sizes.M,
            "regret": None if regret is None else number(regret),
            "violation": number(found["violation_per_episode"]),
            "events": len(run.manifest.learner.events),
        }

    def _run(self) -> Run | None:
        """The run so far; None if there is nothing yet."""
        if self._manifest is None:
            return None
        if self.entry.state == "done":
            self._live = None
            _check_records(self.found.path / RECORDS)
            return from_folder(self.found.path)
        if self._live is None:
            self._live = LiveRun(self.found.path, MOST_BYTES)
        found = self._live.so_far(self._manifest)
        if self.entry.state != "running":
            self._live = None  # it may never be looked at again
        return found

    # ------------------------------------------------------------ as a whole

    def detail(self) -> dict[str, Any]:
        """Return everything that is shown of the run, or what is wrong with it."""
        shown = {"id": self.found.id, "kind": "run", "name": self.found.name}
        settings = None if self._manifest is None else self._manifest.run
        if self._manifest is None or settings is None:
            return plain_record(shown | {"problem": self.entry.error})
        try:
            shown |= _about(self._manifest, settings)
            run = self._run()
            return plain_record(shown) | (
                {"figures": []} if run is None else _curves(run, settings)
            )
        except Exception as error:  # whatever is in the folder, the page goes on
            return plain_record(shown | {"problem": sentence(error)})


def _about(manifest: FolderManifest, settings: Manifest) -> dict[str, Any]:
    """What the manifest tells."""
    named = settings.model_dump() | {
        "id": manifest.id,
        "safedrift": manifest.version,
        "versions": manifest.versions,
        "platform": manifest.platform,
        "git": manifest.git,
        "host": manifest.host,
        "started": manifest.started,
        "finished": manifest.finished,
        "seconds": manifest.seconds,
        "sessions": manifest.sessions,
    }
    named["learner"].pop("events")
    return {
        "title": f"{settings.problem or settings.environment or 'run'}: {settings.learner.name}",
        "changes": noticed_changes(settings)[-_MOST_ROWS:],
        "changes_head": CHANGES_HEAD,
        "changes_caption": CHANGES_CAPTION,
        "parameters": list(islice(flatten(named), _MOST_ROWS)),
    }


def _curves(run: Run, settings: Manifest) -> dict[str, Any]:
    """Figures and plots of the episodes so far."""
    whole = replace(run, manifest=settings)
    marked = run.manifest.learner.model_copy(update={"events": settings.learner.events})
    run = replace(run, manifest=run.manifest.model_copy(update={"learner": marked}))
    words = {
        "configuration": configuration(whole),
        "headline": headline(run),
        "notes": run.notes(),
    }
    return plain_record(words) | {
        "figures": [[plain(a), plain(b), math_parts(c)] for a, b, c in key_figures(run)],
        "plots": plots_of(run, settings.sizes.M),
    }


def _check_records(path: Path) -> None:
    """Refuse records that would fill the memory; whatever else is wrong shows when they are read.

    A small file may hold very many numbers.
    """
    try:
        with open_plain_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            found = pq.read_metadata(file) if size <= MOST_BYTES else None
    except (OSError, pa.ArrowException):
        return
    if found is None:
        wanted = f"at most {MOST_BYTES / 2**20:,.0f} MiB to be watched"
        _check.fail(str(path), wanted, f"{size / 2**20:,.0f} MiB")
    columns = range(found.num_columns)
    if not all(found.schema.column(i).physical_type in _NUMBERS for i in columns):
        _check.fail(str(path), "a run written by Run.to_parquet", "one with other than numbers")
    if found.num_rows * found.num_columns > MOST_NUMBERS:
        wanted = f"at most {MOST_NUMBERS:,} numbers to be watched ('safedrift report' draws more)"
        _check.fail(str(path), wanted, f"{found.num_rows:,} rows of {found.num_columns}")
