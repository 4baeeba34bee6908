"""Runs on disk: one Parquet file with every array as columns and the manifest as metadata."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from safedrift import _check
from safedrift.results.manifest import read_manifest
from safedrift.results.run import Run, run_method
from safedrift.results.truth import Outcome, Truth

__all__ = ["from_parquet", "to_parquet"]

_WANTED = "a run written by Run.to_parquet"


@run_method("to_parquet")
def to_parquet(run: Run, path: str | Path) -> None:
    """Write the arrays and the manifest of a run to one Parquet file, whole or not at all."""
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
    partial = path.with_name(f"{path.name}.partial")
    pq.write_table(table, partial)
    partial.replace(path)


def from_parquet(path: str | Path) -> Run:
    """Read what `to_parquet` wrote."""
    table = pq.read_table(path)
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
