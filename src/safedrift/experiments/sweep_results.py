"""The table of a sweep: one row per run, with the SHA-256 of the file in its metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from safedrift._files import write_whole
from safedrift._version import __version__
from safedrift.experiments.studies import Plan
from safedrift.results.scores import FIGURES
from safedrift.results.storage import write_sealed

__all__ = ["write_results"]


def write_results(path: Path, plan: Plan, found: Mapping[int, dict[str, Any]]) -> Path:
    """Write all runs as a table, in the order of the plan.

    Times are not in it, since they differ from machine to machine.
    """
    rows = [found[i] for i in range(plan.runs)]
    places = [plan.places[plan.run(i)[0]] for i in range(plan.runs)]
    who = [plan.entrants[plan.run(i)[1]] for i in range(plan.runs)]
    columns: dict[str, Any] = {"run": pa.array(range(plan.runs), pa.int64())}
    columns["problem"] = _words([place.problem for place in places])
    columns["world_seed"] = pa.array([place.seed for place in places], pa.int64())
    columns |= _option_columns("problem", [place.options for place in places])
    columns["learner"] = _words([str(x.source) for x in who])
    columns |= _option_columns("learner", [dict(x.chosen) for x in who])
    columns["world"] = _words([row["world"] for row in rows])
    columns["entrant"] = _words([row["learner"] for row in rows])
    columns["seed"] = pa.array([row["seed"] for row in rows], pa.int64())
    for name in ("status", "error"):
        columns[name] = _words([row[name] for row in rows])
    for name in (*FIGURES, "uniform_loss"):
        columns[name] = pa.array([row[name] for row in rows], pa.float64())
    columns["settings"] = _words([row["settings"] for row in rows])
    about = {"version": __version__, "study": plan.record()}
    table = pa.table(columns).replace_schema_metadata({"safedrift-sweep": json.dumps(about)})
    return write_whole(path, lambda file: write_sealed(file, table))


def _words(values: list[str]) -> Any:
    return pa.array(values, pa.string())


def _option_columns(prefix: str, chosen: list[dict[str, Any]]) -> dict[str, Any]:
    """One column for each option: numbers where all are, words otherwise."""
    found = {}
    for name in dict.fromkeys(name for options in chosen for name in options):
        values = [options.get(name) for options in chosen]
        known = [value for value in values if value is not None]
        if all(isinstance(x, int) and not isinstance(x, bool) for x in known):
            column = pa.array(values, pa.int64())
        elif all(isinstance(x, int | float) and not isinstance(x, bool) for x in known):
            column = pa.array([None if x is None else float(x) for x in values], pa.float64())
        else:
            column = _words([x if x is None else _word(x) for x in values])  # type: ignore[misc]
        found[f"{prefix}.{name}"] = column
    return found


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
