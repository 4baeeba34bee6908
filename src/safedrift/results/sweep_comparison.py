"""The results of a sweep as a comparison: the same ranking, tests and page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from safedrift import _check
from safedrift.results.comparison import Comparison, ComparisonManifest, LearnerEntry, WorldEntry
from safedrift.results.scores import RunScore

__all__ = ["from_sweep"]

ORACLES = ("optimum", "optimum-of-first-episode")  # told the truth (experiments.reference_points)


def from_sweep(path: str | Path) -> Comparison:
    """Read the results.parquet of `safedrift sweep` as a comparison, without curves."""
    table = pq.read_table(path)
    text = (table.schema.metadata or {}).get(b"safedrift-sweep")
    if text is None:
        _check.fail(str(path), "results.parquet of a sweep", "another Parquet file")
    about = json.loads(text)
    plan, rows = about["study"], table.to_pylist()
    study = plan["study"]
    manifest = ComparisonManifest(
        version=about["version"],
        worlds=[_world(entry) for entry in plan["worlds"]],
        learners=[_learner(entry, rows) for entry in plan["learners"]],
        seeds=sorted({row["seed"] for row in rows}),
        noisy=study["noisy"],
        measure_every=study["measure_every"],
    )
    return Comparison(manifest, tuple(map(_score, rows)))


def _world(entry: dict[str, Any]) -> WorldEntry:
    M = entry["episodes"]  # None: as many as a file says
    return WorldEntry(label=entry["label"], sizes={} if M is None else {"M": M})


def _learner(entry: dict[str, Any], rows: list[dict[str, Any]]) -> LearnerEntry:
    """A learner, with what its first finished run was told."""
    mine = (row for row in rows if row["entrant"] == entry["label"] and row["status"] == "done")
    settings = next((json.loads(row["settings"]) for row in mine), None) or {}
    return LearnerEntry(
        label=entry["label"],
        oracle=entry["source"] in ORACLES,
        options=entry["options"],
        told=list(settings.get("told", ())),
    )


def _score(row: dict[str, Any]) -> RunScore:
    plain = row | {"key": "", "learner": row["entrant"], "settings": json.loads(row["settings"])}
    return RunScore.from_record(plain)
