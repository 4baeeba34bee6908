"""What the commands share: sentences for errors, progress bars, worlds, files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from safedrift.adapters.gymnasium_worlds import GymnasiumWorld
    from safedrift.models import DriftingWorld

err = Console(stderr=True)

# ---------------------------------------------------------------- errors


class Told(Exception):
    """One sentence for the user; the command ends with exit code 2."""


@contextmanager
def sentences() -> Iterator[None]:
    """Turn errors that are the user's to mend into one sentence and exit code 2."""
    try:
        yield
    except (Told, ValueError, TypeError, OSError, OverflowError, RuntimeError) as error:
        if os.environ.get("SAFEDRIFT_TRACEBACK"):
            raise
        err.print(f"safedrift: {error}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(2) from None
    except MemoryError as error:
        err.print(f"safedrift: not enough memory: {error}", markup=False, soft_wrap=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        err.print("safedrift: stopped; nothing was written")
        raise typer.Exit(130) from None


# ---------------------------------------------------------------- progress


class _Bars:
    """Progress bars on stderr; a bar says so while it waits for the compiler."""

    def __init__(self, progress: Progress, entry: str) -> None:
        self.progress = progress
        self.entry = entry

    def truth(self, total: int) -> Callable[[int], None]:
        return self.count("best safe policy of each episode", total)

    def count(self, label: str, total: int, *, compiles: bool = True) -> Callable[[int], None]:
        task = self._task(label, total) if compiles else self.progress.add_task(label, total=total)
        return lambda count: self.progress.update(task, advance=count, description=label)

    def stage(self, label: str, total: int) -> Callable[[str, int, int], None]:
        task = self._task(label, total)
        return lambda stage, done, _: self.progress.update(task, completed=done, description=stage)

    def _task(self, label: str, total: int) -> TaskID:
        from safedrift.kernels import compiled

        return self.progress.add_task(
            label if compiled(self.entry) else "compiling, first time only", total=total
        )


@contextmanager
def bars(entry: str) -> Iterator[_Bars]:
    """Show progress on stderr while compiled work is done, the first of it by `entry`."""
    columns = (
        SpinnerColumn(), TextColumn("{task.description:<34}"), BarColumn(), TaskProgressColumn(),
        MofNCompleteColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        yield _Bars(progress, entry)


# ---------------------------------------------------------------- worlds, options, files


def build(
    problem: str, episodes: int | None, seed: int, options: dict[str, Any]
) -> DriftingWorld | GymnasiumWorld:
    """Build a named world, or load one from a file of the user's own."""
    from safedrift import _check
    from safedrift.problems import make
    from safedrift.worldfiles.loading import is_file, load

    if not is_file(problem):
        return make(problem, 20_000 if episodes is None else episodes, seed, **options)
    if options:
        _check.fail("--option", "left out with a file of your own", ", ".join(options))
    return load(problem, episodes)


def pairs(name: str, given: list[str] | None) -> dict[str, Any]:
    """Parse NAME=VALUE; values are integers, numbers, true, false or words."""
    words: dict[str, Any] = {"true": True, "false": False}
    parsed: dict[str, Any] = {}
    for item in given or []:
        key, sign, text = item.partition("=")
        if not sign or not key:
            raise Told(f"--{name} must be NAME=VALUE; got {item!r}")
        value: Any = words.get(text.lower(), text)
        for kind in (float, int):
            try:
                value = kind(text)
            except ValueError:
                continue
        parsed[key] = value
    return parsed


def run_file(source: Path) -> Path:
    """The run.parquet of a run's folder, or the file itself."""
    path = source / "run.parquet" if source.is_dir() else source
    if not path.is_file():
        raise Told(f"source must be a run's folder or its run.parquet; got {source}")
    return path


def write_text(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
