"""Rows of a run that is still playing, in one file that only grows.

Each block holds the rows since the last checkpoint: eight bytes with the length of a header, the
header (JSON: name, type and shape of each column), then the columns one after the other. A
checkpoint notes how long the file was and the SHA-256 of what was in it; so an earlier checkpoint
can be continued too, and what a killed process wrote after the last one is cut off.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift import _check

__all__ = ["Journal", "Mark", "Rows", "joined"]

Rows = dict[str, NDArray[Any]]
"""Columns of consecutive measured episodes by name; first axes of one length."""

_WANTED = "the rows that safedrift wrote before a checkpoint"
_BLOCK = 2**20
_LONGEST_HEADER = 2**20


class Mark(NamedTuple):
    """A length of the file and the SHA-256 of its bytes up to there."""

    bytes: int
    sha256: str


class Journal:
    """The file; `mark` is what it held when rows were last added."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hash = hashlib.sha256()
        self._bytes = 0

    @property
    def mark(self) -> Mark:
        """Where the file ends."""
        return Mark(self._bytes, self._hash.hexdigest())

    def start(self) -> None:
        """Begin with no rows."""
        self.path.unlink(missing_ok=True)
        self._hash, self._bytes = hashlib.sha256(), 0

    def add(self, rows: Mapping[str, NDArray[Any]]) -> Mark:
        """Append rows and wait until they are on disk."""
        columns = {name: np.ascontiguousarray(values) for name, values in rows.items()}
        header = json.dumps([[name, x.dtype.str, list(x.shape)] for name, x in columns.items()])
        block = len(header).to_bytes(8, "little") + header.encode()
        block += b"".join(values.tobytes() for values in columns.values())
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        try:
            with open(os.open(self.path, flags, 0o644), "ab") as file:
                file.write(block)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OSError(f"{self.path} cannot be written: {error.strerror or error}") from error
        self._hash.update(block)
        self._bytes += len(block)
        return self.mark

    def restore(self, mark: Mark) -> list[Rows]:
        """Return the rows up to a mark and cut off what follows; refuse them if they changed."""
        found = hashlib.sha256()
        size = self.path.stat().st_size if self.path.is_file() else 0
        if self.path.is_symlink() or size < mark.bytes:
            _check.fail(str(self.path), _WANTED, f"one of {size} bytes instead of {mark.bytes}")
        data = bytearray()
        if mark.bytes:
            with open(self.path, "rb") as file:
                while len(data) < mark.bytes and (
                    block := file.read(min(_BLOCK, mark.bytes - len(data)))
                ):
                    data += block
        found.update(data)
        if found.hexdigest() != mark.sha256:
            _check.fail(str(self.path), _WANTED, "one that is damaged: its SHA-256 differs")
        try:
            rows = _blocks(bytes(data))
        except (ValueError, TypeError, KeyError) as error:
            _check.fail(str(self.path), _WANTED, f"one that cannot be read ({error})")
        if size > mark.bytes:
            os.truncate(self.path, mark.bytes)
        self._hash, self._bytes = found, mark.bytes
        return rows


def _blocks(data: bytes) -> list[Rows]:
    found, at = [], 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 8], "little")
        if length > _LONGEST_HEADER:
            raise ValueError("a header is too long")
        header = json.loads(data[at + 8 : at + 8 + length])
        at += 8 + length
        rows: Rows = {}
        for name, text, shape in header:
            dtype = np.dtype(str(text))
            if dtype.kind not in "biuf":
                raise ValueError(f"{name} must be numbers")
            size = math.prod(shape) * dtype.itemsize
            if min(shape, default=0) < 0 or at + size > len(data):
                raise ValueError(f"{name} is longer than the file")
            rows[str(name)] = np.frombuffer(data, dtype, math.prod(shape), at).reshape(shape)
            at += size
        found.append(rows)
    return found


def joined(parts: list[Rows]) -> Rows:
    """Return consecutive rows as one."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
