"""Runs on disk: one Parquet file with every array as columns and the manifest as metadata.

The metadata also hold the SHA-256 of all bytes of the file, computed with zeros in its own place:
a byte that changes anywhere is found when the file is read.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import fields
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from safedrift import _check
from safedrift._files import write_whole
from safedrift.results.manifest import read_manifest
from safedrift.results.run import Run, run_method
from safedrift.results.truth import Outcome, Truth

if TYPE_CHECKING:  # takes a while to import
    import pyarrow as pa

__all__ = ["from_parquet", "to_parquet"]

_WANTED = "a run written by Run.to_parquet"
_SEAL = b"safedrift-sha256:"  # then 64 hexadecimal digits
_BLANK = b"0" * 64
_BLOCK = 2**20


@run_method("to_parquet")
def to_parquet(run: Run, path: str | Path) -> None:
    """Write the arrays and the manifest of a run to one Parquet file, whole or not at all.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> run = sd.simulate(world, sd.learners.make("uniform", world), seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run.to_parquet(f"{folder}/run.parquet")
    ...     Path(f"{folder}/run.parquet").is_file()
    True
    """
    import pyarrow as pa

    path = Path(path)
    if path.is_dir() or not path.parent.is_dir():
        _check.fail("path", "a file in an existing folder", path)
    columns = {}
    for name, values in run.columns().items():
        if values.ndim == 1:
            columns[name] = pa.array(values)
        else:
            columns |= {f"{name}.{k}": pa.array(values[:, k]) for k in range(values.shape[1])}
    table = pa.table(columns).replace_schema_metadata({"safedrift": run.manifest.model_dump_json()})
    write_whole(path, lambda file: write_sealed(file, table))


def from_parquet(path: str | Path) -> Run:
    """Read what `to_parquet` wrote; refuse it if a byte has changed since.

    Examples
    --------
    >>> import tempfile
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> run = sd.simulate(world, sd.learners.make("uniform", world), seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run.to_parquet(f"{folder}/run.parquet")
    ...     again = sd.Run.from_parquet(f"{folder}/run.parquet")
    >>> again.digest == run.digest
    True
    """
    table = read_sealed(path)
    text = (table.schema.metadata or {}).get(b"safedrift")
    if text is None:
        _check.fail(str(path), _WANTED, "another Parquet file")
    manifest = read_manifest(str(path), text)
    if table.num_rows == 0:
        _check.fail(str(path), _WANTED, "one without episodes")
    arrays = _arrays(path, table)
    known = {item.name for record in (Truth, Outcome) for item in fields(record)}
    missing = sorted(known - set(arrays))
    if missing:
        _check.fail(str(path), _WANTED, f"one without numbers for {', '.join(missing)}")
    _check_shapes(path, arrays, manifest.sizes.K)
    truth = Truth(**{item.name: arrays.pop(item.name) for item in fields(Truth)})
    outcome = Outcome(**{item.name: arrays.pop(item.name) for item in fields(Outcome)})
    trace = {name.removeprefix("trace."): values for name, values in arrays.items()}
    return Run(truth, outcome, trace, manifest)


Run.from_parquet = staticmethod(from_parquet)


def _arrays(path: str | Path, table: pa.Table) -> dict[str, NDArray[Any]]:
    """Columns by name; name.0, name.1, ... are put side by side."""
    groups: dict[str, list[NDArray[Any]]] = {}
    wide = set()
    for column in table.column_names:
        values = table[column].to_numpy()
        if values.dtype.kind not in "bif":
            _check.fail(str(path), _WANTED, f"one without numbers for {column}")
        name, _, number = column.rpartition(".")
        if number.isdigit():
            wide.add(name)
        groups.setdefault(name if number.isdigit() else column, []).append(values)
    return {
        name: np.stack(values, axis=1) if name in wide else values[0]
        for name, values in groups.items()
    }


_PER_CONSTRAINT = {"thresholds": 0, "optimal_mu": 0, "baseline_utility": 0, "utility": 0,
                   "observed": 1}  # fmt: skip


def _check_shapes(path: str | Path, arrays: dict[str, NDArray[Any]], K: int) -> None:
    """Refuse columns that are not as many as the run has constraints."""
    for name, values in arrays.items():
        if name.startswith("trace."):
            continue
        more = _PER_CONSTRAINT.get(name)
        wanted = () if more is None else (K + more,)
        if values.shape[1:] != wanted:
            _check.fail(str(path), _WANTED, f"one with shape {values.shape} for {name}")


# ---------------------------------------------------------------- the checksum of the file


def write_sealed(file: IO[bytes], table: pa.Table) -> None:
    """Write a table with the SHA-256 of the file in its metadata."""
    import pyarrow.parquet as pq

    seal = {b"safedrift-checksum": _SEAL + _BLANK}
    pq.write_table(table.replace_schema_metadata((table.schema.metadata or {}) | seal), file)
    place = _place_of_digest(file)
    digest = _digest_without(file, place)
    file.seek(place)
    file.write(digest)


def read_sealed(path: str | Path) -> pa.Table:
    """Read a table that `write_sealed` wrote; refuse one whose bytes have changed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open(path, "rb") as file:
        place = _place_of_digest(file)
        if place < 0:
            _check.fail(str(path), _WANTED, "another file, or a damaged one: it has no checksum")
        digest = _digest_without(file, place)
        file.seek(place)
        if file.read(len(digest)) != digest:
            _check.fail(str(path), _WANTED, "one that is damaged: its checksum differs")
        try:
            return pq.read_table(file)
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            reason = " ".join(str(error).split())[:120]
            _check.fail(str(path), _WANTED, f"one that cannot be read ({reason})")


def _place_of_digest(file: IO[bytes]) -> int:
    """Where the digits of the checksum start: after the last `_SEAL` of the file; -1 without."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    end = file.read(8)
    length = int.from_bytes(end[:4], "little")  # of the footer, which has the metadata
    if end[4:] != b"PAR1" or length > size - 8:
        return -1
    start = size - 8 - length
    file.seek(start)
    found = file.read(length).rfind(_SEAL)
    place = start + found + len(_SEAL)
    return -1 if found < 0 or place + len(_BLANK) > size else place


def _digest_without(file: IO[bytes], place: int) -> bytes:
    """SHA-256 of the file with zeros in place of the digits, in hexadecimal digits."""
    found = hashlib.sha256()
    file.seek(0)
    left = place
    while left > 0 and (block := file.read(min(left, _BLOCK))):
        found.update(block)
        left -= len(block)
    found.update(_BLANK)
    file.seek(place + len(_BLANK))
    while block := file.read(_BLOCK):
        found.update(block)
    return found.hexdigest().encode()
