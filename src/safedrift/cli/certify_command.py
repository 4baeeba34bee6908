"""`safedrift certify`: the paper's lemmas, checked on a stored run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from safedrift._files import write_text
from safedrift.cli.shared import (
    OwnWorld,
    friendly_errors,
    load_world_file,
    progress_bars,
    read_run,
)

if TYPE_CHECKING:
    from safedrift.learners import Learner
    from safedrift.models import DriftingWorld
    from safedrift.results import Run
    from safedrift.theory import Certificates

_STYLES = {
    "holds": "green",
    "fails": "bold red",
    "fails as printed, holds as repaired": "yellow",
    "holds as printed, fails as repaired": "red",
    "does not apply": "dim",
    "not claimed in this mode": "dim",
}


def certify(
    source: Annotated[Path, typer.Argument(help="A run's folder or a file of Run.to_parquet.")],
    world: OwnWorld = None,
    p: Annotated[
        float, typer.Option(help="Failure probability of the lemmas that hold with 1 - p.")
    ] = 0.05,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what each statement is, in words and symbols.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all certificates as JSON and nothing else.")
    ] = False,
) -> None:
    """Check every lemma of the paper on a run.

    The run is played again with its seed, and an auditor that shares no code with the learner looks
    at every estimate of every episode. Identities must hold to rounding: if one fails, the learner
    is not the paper's, and the exit code is 1. Inequalities show their slack.

    Leaves **certificates.json** beside the run and a section in its **report.html**.

    **Examples**

    - safedrift certify runs/first
    - safedrift certify runs/first --explain
    - safedrift certify runs/mine --world my_world.yaml
    """
    from safedrift.results.run_folders import add_file

    with friendly_errors():
        run, folder = read_run(source)
        world_of_run = None if world is None else load_world_file(world, run.manifest.sizes.M)
        learner = _learner_of_folder(source, run, world_of_run) if source.is_dir() else None
        linear = '"beta"' in json.dumps(run.manifest.learner.settings)  # has least squares
        with progress_bars("linear audit" if linear else "tabular audit") as progress:
            advance = progress.stages("certifying", run.manifest.sizes.M)
            found = run.certify(world_of_run, learner, p=p, progress=advance)
        record = json.dumps(found.record(), indent=1, allow_nan=False)
        add_file(write_text(folder / "certificates.json", record + "\n"))
        page = run.report(folder / "report.html", found)
        add_file(page)
        if as_json:
            sys.stdout.write(record + "\n")
        else:
            _print_certificates(found, page, explain)
    if not (found.identities_hold and found.statistics_hold):
        raise typer.Exit(1)


def _learner_of_folder(folder: Path, run: Run, world: DriftingWorld | None) -> Learner | None:
    """The learner that the run was asked to play, if it has a name and is not PROPD-PPO."""
    from safedrift.experiments.certification import world_of
    from safedrift.experiments.verification import named_learner
    from safedrift.results.run_folders import read_folder_manifest

    if run.manifest.environment is not None or run.manifest.learner.name == "propd-ppo":
        return None
    world = world_of(run) if world is None else world
    return named_learner(read_folder_manifest(folder), run, world)


def _print_certificates(found: Certificates, page: Path, explain: bool) -> None:
    console = Console()
    info = found.info
    setting = f"{info['problem']}, {info['setting']}, {info['knowledge']}, {info['mode']} constants"
    if info["setting"] == "any learner":
        setting = f"{info['problem']}, {info['learner']}, statements that hold for any learner"
    console.print(f"{setting}, p = {info['p']:g}\n", markup=False, highlight=False)
    if explain:
        _print_explanations(found, console)
    else:
        table = Table(
            "statement",
            "result",
            "slack (printed | repaired)",
            "where",
            box=None,
            header_style="dim",
            pad_edge=False,
        )
        table.columns[0].no_wrap = True
        for id, _, _, result, slack, where in found.rows():
            table.add_row(id, Text(result, style=_STYLES[result]), slack, where)
        console.print(table)
        _print_reasons(found, console)
    console.print(f"\n{found.summary}", markup=False, highlight=False)
    if not found.identities_hold:
        console.print("\nAn identity fails: this learner is not the paper's.", style="bold red")
    if not found.statistics_hold:
        console.print(
            "\nA statistic fails: this run did not draw what it reports.", style="bold red"
        )
    console.print(f"\nLook at {page}", markup=False, highlight=False, soft_wrap=True)


def _print_reasons(found: Certificates, console: Console) -> None:
    """Why statements do not hold: those with the same result and reason in one line."""
    groups: dict[tuple[str, str], list[str]] = {}
    for c in found:
        if c.result != "holds":
            failed = c.claimed and c.printed is not None
            erratum = f"errata {c.erratum}" if c.erratum and failed else ""
            why = "; ".join(filter(None, (c.note, erratum))) or "--explain says what it states"
            groups.setdefault((c.result, why), []).append(c.id)
    for (result, why), ids in groups.items():
        line = Text.assemble((result, _STYLES[result]), f": {', '.join(ids)}. Why: {why}.")
        console.print(Padding(line, (1, 0, 0, 0)), highlight=False)


def _print_explanations(found: Certificates, console: Console) -> None:
    """Each statement in words and symbols, with its result."""
    for c, (id, label, kind, result, slack, where) in zip(found, found.rows(), strict=True):
        console.print(Text.assemble((id, "bold"), "  ", (result, _STYLES[result])))
        lines = [f"{label} ({kind}): {c.words}", c.maths]
        if c.printed is not None:
            what = "largest residual" if kind == "identity" else "smallest slack"
            both = ", printed | repaired" if c.repaired is not None else ""
            lines.append(f"{what}{both}: {slack}" + (f" at {where}" if where else ""))
        if c.erratum and c.result != "holds":
            lines.append(f"errata {c.erratum}")
        lines += [c.note] if c.note else []
        for line in lines:
            console.print(Padding(Text(line), (0, 0, 0, 2)), highlight=False)
        console.print()
