"""Rows of a sweep while it goes on: one line each, with a checksum, in a file that only grows.

A line that a killed process left half written is cut off. One that is damaged is passed over: its
run is played again.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import monotonic
from typing import IO, Any

__all__ = ["RowLog", "read_lines"]

_SYNC = 1.0  # seconds between two times that rows are forced to the disk
_DIGITS = 16


class RowLog:
    """The rows in a file by number of their run.

    Parameters
    ----------
    path
        Of the file, which may exist.
    tell
        Called with a sentence for every damaged line.
    """

    def __init__(self, path: Path, tell: Callable[[str], Any]) -> None:
        self.path = path
        self.rows: dict[int, dict[str, Any]] = {}
        self._file: IO[bytes] | None = None
        self._synced = monotonic()
        if path.is_symlink():
            path.unlink()
        if path.is_file():
            self._read(tell)

    def _read(self, tell: Callable[[str], Any]) -> None:
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            os.truncate(self.path, len(whole))
        for number, row in enumerate(read_lines(whole), start=1):
            if row is None:
                tell(f"line {number} of {self.path} is damaged; its run is played again")
            else:
                self.rows[row["run"]] = row

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Keep rows, on disk too."""
        lines = []
        for row in rows:
            self.rows[int(row["run"])] = _compact(row)
            text = json.dumps(row).encode()
            lines.append(_digest(text) + b" " + text + b"\n")
        try:
            if self._file is None:
                self._file = open(self.path, "ab")  # noqa: SIM115 (closed by `close`)
            self._file.write(b"".join(lines))
            self._file.flush()
            if monotonic() - self._synced > _SYNC:
                os.fsync(self._file.fileno())
                self._synced = monotonic()
        except OSError as error:
            raise OSError(f"{self.path} cannot be written: {error.strerror or error}") from error

    def close(self) -> None:
        """Force everything to the disk."""
        if self._file is not None:
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None


def read_lines(whole: bytes) -> Iterator[dict[str, Any] | None]:
    """Yield the row of every line, with the number of its run as "run"; None for a damaged one."""
    for line in whole.splitlines():
        digest, _, text = line.partition(b" ")
        try:
            if digest != _digest(text):
                raise ValueError
            row = json.loads(text)
            yield _compact(row | {"run": int(row["run"])})
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            yield None


def _compact(row: dict[str, Any]) -> dict[str, Any]:
    """The same row; words that occur in many rows are kept once."""
    return {
        sys.intern(key): sys.intern(value) if type(value) is str else value
        for key, value in row.items()
    }


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest()[:_DIGITS].encode()
