"""Rows of a comparison on disk, one JSON line each, written as runs finish.

A row is found again by its key, which stands for everything that its numbers depend on. So the same
comparison continues where it stopped, and a larger one (more seeds, another learner) takes over
what is there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from safedrift import _check
from safedrift._version import __version__
from safedrift.models import DriftingWorld
from safedrift.results.scores import RunScore

__all__ = ["RowFile", "key_of", "world_digest"]

NAME = "rows.jsonl"


class RowFile:
    """The rows in a folder, or nowhere (None).

    Parameters
    ----------
    folder
        New, empty, or that of an earlier comparison.
    """

    def __init__(self, folder: str | Path | None) -> None:
        self.path = None if folder is None else Path(folder) / NAME
        self.known: dict[str, RunScore] = {}
        if self.path is None:
            return
        if self.path.parent.exists() and not self.path.parent.is_dir():
            _check.fail("out", "a folder", f"the file {folder}")
        if self.path.is_file():
            self._read()
        elif self.path.parent.is_dir() and any(self.path.parent.iterdir()):
            _check.fail("out", "a new or empty folder, or one of an earlier comparison", folder)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def _read(self) -> None:
        """Take every whole line; cut off one that was half written."""
        if self.path is None:
            return
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            self.path.write_bytes(whole)
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                row = RunScore.from_record(json.loads(line))
            except (ValueError, TypeError) as error:
                raise ValueError(
                    f"{self.path} must have one row of a comparison per line; got another text "
                    f"in line {number}"
                ) from error
            self.known[row.key] = row

    def add(self, row: RunScore) -> None:
        """Keep a row, on disk too."""
        self.known[row.key] = row
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row.record()) + "\n")

    def finished(self, keys: Iterable[str]) -> set[str]:
        """Return those keys whose runs are done; what failed is tried again."""
        return {key for key in keys if key in self.known and self.known[key].done}


def key_of(**parts: Any) -> str:
    """Return sixteen characters that stand for plain data and the version of the library."""
    text = json.dumps({"version": __version__, **parts}, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def world_digest(world: DriftingWorld) -> str:
    """Return sixteen characters that stand for all arrays of a world."""
    found = hashlib.sha256()
    for array in _arrays_in((world.thresholds, world.initial, world.arrays)):
        found.update(str(array.shape).encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def _arrays_in(value: Any) -> Iterable[Any]:
    """All arrays inside nested tuples and lists."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _arrays_in(item)
