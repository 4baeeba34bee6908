"""Rows of a run that is still playing, in one file that only grows.

Each block holds the rows of some episodes: eight bytes with the length of a header, the header
(JSON: name, type and shape of each column), the columns one after the other, and the SHA-256 of
all that. A checkpoint notes how long the file was and the SHA-256 of what was in it; so an earlier
checkpoint can be continued too, and what a killed process wrote after the last one is cut off.
Whoever watches the run reads block by block while the file grows.
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
from safedrift._files import open_plain_file

__all__ = ["Journal", "JournalReader", "Mark", "Rows", "joined"]

Rows = dict[str, NDArray[Any]]
"""Columns of consecutive measured episodes by name; first axes of one length."""

_WANTED = "the rows that safedrift wrote before a checkpoint"
_BLOCK = 2**20
_LONGEST_HEADER = 2**20
_DIGEST = hashlib.sha256().digest_size
_UNREADABLE = (ValueError, TypeError, KeyError, OverflowError, RecursionError)


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

    def add(self, rows: Mapping[str, NDArray[Any]], *, wait: bool = True) -> Mark:
        """Append rows; `wait` until they, and all before them, are on disk."""
        columns = {name: np.ascontiguousarray(values) for name, values in rows.items()}
        header = json.dumps([[name, x.dtype.str, list(x.shape)] for name, x in columns.items()])
        block = len(header).to_bytes(8, "little") + header.encode()
        block += b"".join(values.tobytes() for values in columns.values())
        block += hashlib.sha256(block).digest()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        try:
            with open(os.open(self.path, flags, 0o644), "ab") as file:
                file.write(block)
                file.flush()
                if wait:
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
            rows, end = _blocks(bytes(data))
            if end < len(data):
                raise ValueError("a block is longer than the file")
        except _UNREADABLE as error:
            _check.fail(str(self.path), _WANTED, f"one that cannot be read ({error})")
        if size > mark.bytes:
            os.truncate(self.path, mark.bytes)
        self._hash, self._bytes = found, mark.bytes
        return rows


class JournalReader:
    """The rows of a journal that another process may be writing; nothing is changed.

    Parameters
    ----------
    path
        Of the file, which need not be there yet.
    most
        Bytes that are read at most; a longer file is refused.

    Attributes
    ----------
    rows : all rows so far as one; empty before the first
    """

    def __init__(self, path: Path, most: int) -> None:
        self.path, self.most = path, most
        self._start_again()

    def _start_again(self) -> None:
        self.rows: Rows = {}
        self._file: tuple[int, int] | None = None
        self._read = 0

    def update(self) -> bool:
        """Read what was added since the last call; return whether there was anything new."""
        if self.path.is_symlink():
            _check.fail(str(self.path), _WANTED, "a link")
        if not self.path.is_file():
            return False
        before, old = self._read, self._file
        data = self._tail()
        try:
            self._take(data)
        except _UNREADABLE as error:
            if not before:
                _check.fail(str(self.path), _WANTED, f"one that is damaged ({error})")
            self._start_again()  # a run that goes on has cut the file and written other blocks
            self.update()
        return (self._read, self._file) != (before, old)

    def _tail(self) -> bytes:
        """The bytes that were not read yet; all of them if it is another file."""
        with open_plain_file(self.path) as file:
            found = os.fstat(file.fileno())
            if found.st_size > self.most:
                wanted = f"at most {self.most / 2**20:,.0f} MiB to be watched"
                _check.fail(str(self.path), wanted, f"{found.st_size / 2**20:,.0f} MiB")
            name = (found.st_dev, found.st_ino)
            if name != self._file or found.st_size < self._read:
                self._start_again()
            self._file = name
            file.seek(self._read)
            return file.read(self.most)

    def _take(self, data: bytes) -> None:
        """Add the blocks that are whole."""
        parts, end = _blocks(data)
        if parts:
            self.rows = joined([self.rows, *parts] if self.rows else parts)
        self._read += end


def _blocks(data: bytes) -> tuple[list[Rows], int]:
    """The rows of all whole blocks, and where the last of them ends."""
    found, end = list[Rows](), 0
    while (block := _block(data, end)) is not None:
        rows, end = block
        found.append(rows)
    return found, end


def _block(data: bytes, start: int) -> tuple[Rows, int] | None:
    """The rows of the block at `start`, and where it ends; None if it is not there as a whole."""
    length = int.from_bytes(data[start : start + 8], "little")
    if length > _LONGEST_HEADER:
        raise ValueError("a header is too long")
    at = start + 8 + length
    if at > len(data):
        return None
    header = json.loads(data[start + 8 : at])
    columns = []
    for name, text, shape in header:
        dtype = np.dtype(str(text))
        if dtype.kind not in "biuf" or min(shape, default=0) < 0:
            raise ValueError(f"{name} must be numbers")
        columns.append((str(name), dtype, shape, at))
        at += math.prod(shape) * dtype.itemsize
    if at + _DIGEST > len(data):
        return None
    if hashlib.sha256(memoryview(data)[start:at]).digest() != data[at : at + _DIGEST]:
        raise ValueError("the SHA-256 of a block differs")
    rows = {
        name: np.frombuffer(data, dtype, math.prod(shape), place).reshape(shape)
        for name, dtype, shape, place in columns
    }
    return rows, at + _DIGEST


def joined(parts: list[Rows]) -> Rows:
    """Return consecutive rows as one."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
