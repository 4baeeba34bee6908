"""`safedrift ls`, `show` and `verify`: runs on disk."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from safedrift.cli.shared import OwnWorld, UsageError, friendly_errors, load_world_file

if TYPE_CHECKING:
    from safedrift.experiments.run_listing import RunEntry

_STYLES = {"done": "green", "running": "bold", "interrupted": "yellow", "failed": "red"}


def ls(
    folder: Annotated[Path, typer.Argument(help="A folder of runs, or one run.")] = Path("runs"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the list as JSON and nothing else.")
    ] = False,
) -> None:
    """List the runs in a folder: state, id, problem, learner, episodes, seed.

    The same id means the same settings. A run that says it is running, but has no process any more,
    is shown as interrupted; `safedrift run ... --resume` continues it.
    """
    from safedrift.experiments.run_listing import run_entry
    from safedrift.results.run_folders import run_folders

    with friendly_errors():
        if not folder.is_dir():
            raise UsageError(f"folder must be a folder of runs; got {folder}")
        rows = [_row(run_entry(path)) for path in run_folders(folder)]
        if as_json:
            sys.stdout.write(json.dumps(rows, indent=1) + "\n")
            return
        console = Console()
        if not rows:
            console.print(f"no runs in {folder}", markup=False, highlight=False)
            return
        table = Table("run", "state", "id", "problem", "learner", "episodes", "seed", box=None,
                      header_style="dim", pad_edge=False)  # fmt: skip
        for row in rows:
            state = Text(row["state"], style=_STYLES.get(row["state"], "red"))
            cells = [row[name] for name in ("id", "problem", "learner", "episodes", "seed")]
            table.add_row(Text(row["run"]), state, *(Text(_cell(x)) for x in cells))
        console.print(table)


def _cell(value: Any) -> str:
    return "" if value is None else str(value)


def _row(entry: RunEntry) -> dict[str, Any]:
    """What is listed of a run, as plain data."""
    plain = {"run": str(entry.path), "state": entry.state, "episodes": entry.episodes}
    names = ("id", "problem", "learner", "seed", "error")
    return plain | {name: getattr(entry, name) for name in names}


def show(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the manifest as JSON and nothing else.")
    ] = False,
) -> None:
    """Show everything that is known of a run: state, settings, versions, timings, files."""
    from safedrift.experiments.run_listing import entry_from
    from safedrift.results.folder_locks import heartbeat_age
    from safedrift.results.run_folders import read_folder_manifest, state_of

    with friendly_errors():
        manifest = read_folder_manifest(run)
        plain = json.loads(manifest.model_dump_json())
        plain["state"] = state_of(run, manifest)
        if as_json:
            sys.stdout.write(json.dumps(plain, indent=1) + "\n")
            return
        age = heartbeat_age(run)
        if plain["state"] == "running" and age is not None:
            plain["heartbeat"] = f"{age:.0f} s ago"
        plain["episodes"] = entry_from(run, manifest, plain["state"]).episodes
        del plain["checksum"]
        rows = _flat("", plain)
        width = max(len(name) for name, _ in rows)
        for name, value in rows:
            sys.stdout.write(f"{name:<{width}}  {value}\n")


def _flat(name: str, value: Any) -> list[tuple[str, str]]:
    """Nested plain data as rows: name.of.entry, value; what is empty is left out."""
    if isinstance(value, dict):
        return [row for key, item in value.items()
                for row in _flat(f"{name}.{key}" if name else key, item)]  # fmt: skip
    if value is None or value in ("", []):
        return []
    text = json.dumps(value) if not isinstance(value, str) or not value.isprintable() else value
    return [(name, text if len(text) <= 200 else f"{text[:197]}...")]


def verify(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    world: OwnWorld = None,
    episodes: Annotated[
        int, typer.Option(help="How many are played again from the start and each checkpoint.")
    ] = 200,
) -> None:
    """Check that a run is what it says: hashes of all files, schema, and a sample played again.

    Exit code 1 if something is wrong.
    """
    from safedrift.experiments.verification import verify as verify_folder

    with friendly_errors():
        from safedrift.results.run_folders import read_folder_manifest

        manifest = read_folder_manifest(run)
        made = None
        if world is not None and manifest.run is not None:
            made = load_world_file(world, manifest.run.sizes.M)
        found = verify_folder(run, made, episodes=episodes)
        console = Console(soft_wrap=True, highlight=False, markup=False)
        for sentence in found.checked:
            console.print(Text.assemble(("good     ", "green"), sentence))
        for sentence in found.skipped:
            console.print(Text.assemble(("skipped  ", "yellow"), sentence))
        for sentence in found.problems:
            console.print(Text.assemble(("WRONG    ", "bold red"), sentence))
    if not found.good:
        raise typer.Exit(1)
