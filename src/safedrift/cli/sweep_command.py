"""`safedrift sweep`: all runs of a study, over all cores, as often interrupted as it likes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from safedrift.cli.shared import UsageError, err, friendly_errors, sigterm_as_interrupt

if TYPE_CHECKING:
    from safedrift.experiments.engines import Engine
    from safedrift.experiments.estimates import Estimate
    from safedrift.experiments.studies import Plan
    from safedrift.experiments.sweeps import Sweep, SweepProgress

_MOST_SHOWN = 12


class EngineKind(StrEnum):
    """Where runs are played."""

    local = "local"
    ray = "ray"


def sweep(
    study: Annotated[Path, typer.Argument(help="A YAML file; docs/experiments.md describes it.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; sweeps/NAME by default.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Number of processes; by default one per core.")
    ] = None,
    engine: Annotated[
        EngineKind, typer.Option(help="Processes on this machine, or on Ray (extra 'ray').")
    ] = EngineKind.local,
    address: Annotated[
        str | None,
        typer.Option(help="With --engine ray: of a cluster; without it, Ray is started here."),
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Play runs again that failed before.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and what it will take; play nothing.")
    ] = False,
    nodes: Annotated[
        int, typer.Option(help="With --dry-run: machines like this one that share the work.")
    ] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the outcome as JSON and nothing else.")
    ] = False,
) -> None:
    """Play all runs of a study: problems x learners x seeds, each with options or several of them.

    The optima of a world are solved once for all runs in it. A failed run is recorded with its
    error and does not stop the others. Whenever the sweep is stopped, however it is, the same
    command goes on; a changed study is refused. Leaves **results.parquet**, one row per run, the
    same bytes whatever number of workers.

    **Examples**

    - safedrift sweep study.yaml --dry-run
    - safedrift sweep study.yaml --out sweeps/first
    """
    from safedrift import _check
    from safedrift.experiments.engines import LocalEngine
    from safedrift.experiments.estimates import estimate
    from safedrift.experiments.ray_engine import RayEngine
    from safedrift.experiments.studies import plan_of, read_study
    from safedrift.experiments.sweeps import run_sweep

    with friendly_errors(), sigterm_as_interrupt():
        processes = _check.integer("--workers", os.cpu_count() or 1 if workers is None else workers)
        _check.integer("--nodes", nodes)
        if address is not None and engine is EngineKind.local:
            raise UsageError("--address must be left out without --engine ray")
        plan = plan_of(read_study(study))
        if dry_run:
            _print_estimate(plan, estimate(plan, processes * nodes), processes, nodes, as_json)
            return
        folder = out or Path("sweeps") / study.stem
        where: Engine = LocalEngine(processes)
        if engine is EngineKind.ray:
            where = RayEngine(address, processes)
        with _progress() as progress:
            try:
                found = run_sweep(
                    plan,
                    folder,
                    engine=where,
                    retry_failed=retry_failed,
                    progress=progress,
                    tell=_tell,
                )
            except KeyboardInterrupt:
                raise UsageError(f"stopped; the same command goes on in {folder}") from None
        if as_json:
            plain = {"out": str(folder), **found._asdict(), "results": str(found.results)}
            sys.stdout.write(json.dumps(plain) + "\n")
        else:
            _print_results(found)


def _tell(sentence: str) -> None:
    err.print(f"safedrift: {sentence}", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _progress() -> Iterator[SweepProgress]:
    """Bars on stderr: optima, then runs with their rate, the time left and failures."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description:<8}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[failed]}", style="red"),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as shown:
        tasks: dict[str, Any] = {}

        def report(stage: str, done: int, total: int, failed: int) -> None:
            if stage not in tasks:
                tasks[stage] = shown.add_task(stage, total=total, rate="", failed="")
            task = tasks[stage]
            speed = shown.tasks[task].speed
            rate = f"{speed:.1f}/s" if speed else ""
            told = f"{failed} failed" if failed else ""
            shown.update(task, completed=done, rate=rate, failed=told)

        yield report


# ---------------------------------------------------------------- printing


def _print_estimate(plan: Plan, found: Estimate, processes: int, nodes: int, as_json: bool) -> None:
    if as_json:
        plain = found._asdict() | {"processes": processes, "nodes": nodes}
        sys.stdout.write(json.dumps(plain) + "\n")
        return
    console = Console(soft_wrap=True, highlight=False, markup=False)
    for what, labels in (
        ("worlds", [place.label for place in plan.places]),
        ("learners", [entrant.label for entrant in plan.entrants]),
    ):
        more = f" and {len(labels) - _MOST_SHOWN:,} more" if len(labels) > _MOST_SHOWN else ""
        console.print(f"{len(labels):,} {what}: {', '.join(labels[:_MOST_SHOWN])}{more}")
    console.print(f"{len(plan.seeds):,} seeds")
    console.print(f"{found.runs:,} runs\n")
    where = f"{processes} processes" + (f" on each of {nodes} machines" if nodes > 1 else "")
    console.print(
        f"about {_duration(found.seconds)} with {where} "
        f"({_duration(found.solving)} of one core for optima, {_duration(found.playing)} for runs)"
    )
    console.print(f"about {found.bytes / 2**20:,.1f} MiB on disk")
    for failure in found.failures[:5]:
        console.print(Text(f"will fail: {failure}", style="red"))


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.1f} seconds"


def _print_results(found: Sweep) -> None:
    """Mean strict score of every learner, and what failed."""
    import pyarrow.parquet as pq

    table = pq.read_table(found.results, columns=["entrant", "strict_score", "status", "error"])
    console = Console()
    rows: dict[str, list[float]] = {}
    errors: dict[str, int] = {}
    for row in table.to_pylist():
        rows.setdefault(row["entrant"], [])
        if row["status"] == "done" and row["strict_score"] is not None:
            rows[row["entrant"]].append(row["strict_score"])
        elif row["status"] != "done":
            errors[row["error"]] = errors.get(row["error"], 0) + 1
    shown = Table("learner", "mean strict score", "runs", box=None, header_style="dim",
                  pad_edge=False)  # fmt: skip
    for name, scores in sorted(rows.items(), key=lambda x: sum(x[1]) / len(x[1]) if x[1] else 9e9):
        mean = f"{sum(scores) / len(scores):.4f}" if scores else ""
        shown.add_row(Text(name), mean, f"{len(scores):,}")
    console.print(shown)
    for error, count in list(errors.items())[:5]:
        console.print(Text(f"{count} failed: {error}", style="red"), soft_wrap=True)
    text = f"\n{found.runs:,} runs, {found.failed:,} failed; look at {found.results}"
    console.print(text, markup=False, highlight=False, soft_wrap=True)
