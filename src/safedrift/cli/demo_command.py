"""`safedrift demo`: learners in the drifting maze on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from safedrift.cli.compare_command import stage_bars
from safedrift.cli.shared import UsageError, friendly_errors


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page.")] = Path("demo"),
    episodes: Annotated[int, typer.Option("--episodes", "-n", help="M of the maze.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Of the runs that are drawn.")] = 0,
    seeds: Annotated[int, typer.Option(help="Of the comparison.")] = 5,
    workers: Annotated[int | None, typer.Option(help="Processes; by default one per core.")] = None,
) -> None:
    """Play the drifting maze with three learners beside the optimum, and make a page of it.

    Leaves **report.html**: a verdict, maps of where everybody goes with a slider over the episodes,
    reward against the optimum, hazard steps against the threshold, and a comparison over seeds.
    """
    from safedrift import _check
    from safedrift.experiments.demo import play_demo
    from safedrift.reports.demo_page import report

    with friendly_errors():
        _check.integer("--episodes", episodes, lower=4)
        _check.integer("--seed", seed, lower=0)
        _check.integer("--seeds", seeds)
        if workers is not None:
            _check.integer("--workers", workers)
        _make_folder(out)  # fails now, not when everything has been played
        with stage_bars() as progress:
            found = play_demo(episodes, seed, seeds=seeds, workers=workers, progress=progress)
        page = report(*found, out / "report.html")
        console = Console()
        for run in found.runs[:-1]:
            console.print(f"{run.verdict()}\n", markup=False, highlight=False, soft_wrap=True)
        console.print(f"Look at {page}", markup=False, highlight=False, soft_wrap=True)


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"--out must be a folder that can be made; got {out} ({why})") from error
