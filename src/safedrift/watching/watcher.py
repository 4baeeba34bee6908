"""Everything in a folder, looked at again and again."""

from __future__ import annotations

import hashlib
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

import numpy as np

from safedrift.watching.folders import MOST_FOLDERS, Found, find_folders
from safedrift.watching.runs import WatchedRun
from safedrift.watching.sweeps import WatchedSweep

__all__ = ["Watcher"]

_FRESH = 0.5  # seconds for which a look around is good enough
_READING = 0.4  # seconds for figures of runs that were not read yet, in one look
_ORDER = {"running": 0, "damaged": 2}


class Watcher:
    """The runs and sweeps in a folder.

    Parameters
    ----------
    root
        The folder; only what lies in it is read, and nothing is written.

    Examples
    --------
    >>> import tempfile
    >>> from safedrift.watching.watcher import Watcher
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Watcher(folder).overview()["folders"]
    []
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).resolve()
        self._known: dict[Found, WatchedRun | WatchedSweep] = {}
        self._by_id: dict[str, WatchedRun | WatchedSweep] = {}
        self._looked = float("-inf")
        self._overview: dict[str, Any] = {}
        self._lock = Lock()

    def overview(self) -> dict[str, Any]:
        """Return one row for every run and sweep: running ones first, then the newest."""
        with self._lock, np.errstate(all="ignore"):
            if monotonic() - self._looked > _FRESH:
                self._look()
                self._looked = monotonic()
            return self._overview

    def _look(self) -> None:
        found = find_folders(self.root)
        self._known = {x: self._known.get(x) or _watched(x) for x in found}
        self._by_id = {x.id: item for x, item in self._known.items()}
        items = list(self._known.values())
        for item in items:
            item.look()
        until = monotonic() + _READING
        rows = [(item.started, item.row(until)) for item in items]
        rows.sort(key=lambda x: x[0], reverse=True)
        rows.sort(key=lambda x: _ORDER.get(x[1]["state"], 1))
        self._overview = {
            "folder": str(self.root),
            "alone": len(found) == 1 and found[0].path == self.root,
            "folders": [row for _, row in rows],
            "full": MOST_FOLDERS if len(found) == MOST_FOLDERS else None,
            "there": self.root.is_dir(),
        }

    def detail(self, id: str, seen: str | None = None) -> tuple[str, dict[str, Any] | None] | None:
        """Return the version and everything that is shown of a run or a sweep.

        None for an id that is not in the list; no data where `seen` is the version of now.
        """
        with self._lock, np.errstate(all="ignore"):
            item = self._by_id.get(id)
            if item is None:
                return None
            item.look()
            version = hashlib.sha256(f"{id} {item.version}".encode()).hexdigest()[:16]
            return version, None if version == seen else item.detail()


def _watched(found: Found) -> WatchedRun | WatchedSweep:
    return WatchedRun(found) if found.kind == "run" else WatchedSweep(found)
