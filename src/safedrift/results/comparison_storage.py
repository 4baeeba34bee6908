"""Comparisons on disk: rows as Parquet with the manifest as metadata; everything as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from safedrift import _check
from safedrift._files import strict_json, write_text, write_whole
from safedrift.results.comparison import Comparison, ComparisonManifest, comparison_method
from safedrift.results.scores import CURVES, FIGURES, RunScore

__all__ = ["from_parquet", "to_json", "to_parquet"]

_WANTED = "a comparison written by Comparison.to_parquet"
_TEXT = ("key", "world", "learner", "status", "error")
_NUMBERS = (*FIGURES, "uniform_loss", "seconds_per_episode")


@comparison_method("to_parquet")
def to_parquet(comparison: Comparison, path: str | Path, *, curves: bool = True) -> Path:
    """Write one row per run to a Parquet file, whole or not at all; `curves=False` saves space."""
    import pyarrow as pa  # takes a while to import
    import pyarrow.parquet as pq

    path = Path(path)
    if path.is_dir() or not path.parent.is_dir():
        _check.fail("path", "a file in an existing folder", path)
    rows = comparison.rows
    columns: dict[str, Any] = {
        name: pa.array([getattr(row, name) for row in rows], pa.string()).dictionary_encode()
        for name in _TEXT
    }
    columns["seed"] = pa.array([row.seed for row in rows], pa.int64())
    for name in _NUMBERS:
        columns[name] = pa.array([getattr(row, name) for row in rows], pa.float64())
    settings = [json.dumps(row.settings) for row in rows]
    columns["settings"] = pa.array(settings, pa.string()).dictionary_encode()
    if curves:
        at = [row.curve_episodes for row in rows]
        columns["curve_episodes"] = pa.array(at, pa.list_(pa.int64()))
        for name in CURVES:
            values = [(row.curves or {}).get(name, ()) for row in rows]
            columns[f"curve.{name}"] = pa.array(values, pa.list_(pa.float32()))
    text = comparison.manifest.model_dump_json()
    table = pa.table(columns).replace_schema_metadata({"safedrift-comparison": text})
    return write_whole(path, lambda file: pq.write_table(table, file, compression="zstd"))


def from_parquet(path: str | Path) -> Comparison:
    """Read what `to_parquet` wrote."""
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    text = (table.schema.metadata or {}).get(b"safedrift-comparison")
    if text is None:
        _check.fail(str(path), _WANTED, "another Parquet file")
    try:
        manifest = ComparisonManifest.model_validate_json(text)
        return Comparison(manifest, tuple(_row(plain) for plain in table.to_pylist()))
    except (ValidationError, KeyError, TypeError, json.JSONDecodeError) as error:
        reason = " ".join(str(error).split())[:120]
        _check.fail(str(path), _WANTED, f"one that cannot be read ({reason})")


Comparison.from_parquet = staticmethod(from_parquet)


def _row(plain: dict[str, Any]) -> RunScore:
    plain["settings"] = json.loads(plain["settings"])
    curves = {name: plain.pop(f"curve.{name}", None) for name in CURVES}
    plain["curves"] = curves if all(curves.values()) else None
    return RunScore.from_record(plain)


@comparison_method("to_json")
def to_json(comparison: Comparison, path: str | Path | None = None) -> str:
    """Return the verdict, the ranking, the table and the rows as JSON; also write it to `path`."""
    ranking = []
    for entry in comparison.ranking():
        better = entry.best_is_better
        plain = entry._asdict() | {"score": entry.score._asdict()}
        ranking.append(plain | {"best_is_better": better and better._asdict()})
    table = [
        {name: x._asdict() if hasattr(x, "_asdict") else x for name, x in row.items()}
        for row in comparison.table()
    ]
    rows = [row.record() for row in comparison.rows]
    for row in rows:
        del row["curves"], row["curve_episodes"]
    everything = {
        "manifest": comparison.manifest.model_dump(),
        "complete": comparison.complete,
        "verdict": comparison.verdict(),
        "notes": comparison.notes(),
        "ranking": ranking,
        "table": table,
        "definitions": FIGURES,
        "seconds_per_episode": comparison.timings(),
        "rows": rows,
    }
    text = json.dumps(strict_json(everything), indent=1, allow_nan=False) + "\n"
    if path is not None:
        write_text(path, text)
    return text
