"""What the commands share: friendly errors, progress bars, worlds, files."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

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
    from safedrift.results import Run

err = Console(stderr=True)

OwnWorld = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Of a run in a file of your own: world.yaml, world.npz, or world.py:make.",
    ),
]

# ---------------------------------------------------------------- errors


class UsageError(Exception):
    """Something the user can correct, in one sentence; the command ends with exit code 2."""


@contextmanager
def friendly_errors() -> Iterator[None]:
    """Turn every error into one sentence on stderr, never a traceback.

    Exit code 2 is for what the user can correct, 1 for a fault of safedrift's own. The variable
    SAFEDRIFT_TRACEBACK shows the traceback of either.
    """
    try:
        yield
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise  # handled by typer
    except KeyboardInterrupt:
        _end("stopped; nothing was written", 130)
    except Exception as error:
        if os.environ.get("SAFEDRIFT_TRACEBACK"):
            raise
        text = " ".join(str(error).split())
        if isinstance(error, MemoryError):
            _end(f"not enough memory: {text}", 2)
        if isinstance(error, USER_ERRORS):
            _end(text or type(error).__name__, 2)
        _end(
            f"internal error, please report it: {type(error).__name__}: {text} "
            "(SAFEDRIFT_TRACEBACK=1 shows where)",
            1,
        )


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Let whoever ends jobs politely end this one as Ctrl-C does."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


USER_ERRORS = (
    UsageError,
    ValueError,
    TypeError,
    OSError,
    OverflowError,
    RuntimeError,
    ImportError,
)


def _end(sentence: str, code: int) -> NoReturn:
    err.print(f"safedrift: {sentence}", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(code) from None


# ---------------------------------------------------------------- progress

# The compiled function that a user waits for, the first time: module of safedrift.kernels, name.
ENTRIES = {
    "optima": "exact.solve_episodes",
    "tabular": "tabular.propd_ppo.play",
    "linear": "linear.propd_ppo.play",
    "box": "linear.box.end_on_box",
    "environment": "tabular.propd_ppo.end",
    "tabular audit": "audit.lemmas.audit_tables",
    "linear audit": "audit.lemmas.audit_linear",
}

OPTIMA_LABEL = "best safe policy of each episode"


def learning_entry(world: DriftingWorld) -> str:
    """Which of `ENTRIES` plays the episodes of a world."""
    from safedrift import LinearKernelCMDP

    if not isinstance(world, LinearKernelCMDP):
        return "tabular"
    return "linear" if world.box is None else "box"


class ProgressBars:
    """Progress bars on stderr; a bar says so while it waits for the compiler."""

    def __init__(self, progress: Progress, entry: str) -> None:
        self.progress = progress
        self.entry = entry

    def counter(self, label: str, total: int, *, compiles: bool = True) -> Callable[[int], None]:
        """Return a function that adds to a bar."""
        task = self._task(label, total, compiles)
        return lambda count: self.progress.update(task, advance=count, description=label)

    def stages(self, label: str, total: int) -> Callable[[str, int, int], None]:
        """Return a function of (stage, done, total), as `simulate` calls it."""
        task = self._task(label, total, True)
        return lambda stage, done, _: self.progress.update(task, completed=done, description=stage)

    def _task(self, label: str, total: int, compiles: bool) -> TaskID:
        from safedrift.kernels import compiled

        waits = compiles and not compiled(ENTRIES[self.entry])
        return self.progress.add_task("compiling, first time only" if waits else label, total=total)


@contextmanager
def progress_bars(entry: str) -> Iterator[ProgressBars]:
    """Show progress on stderr while compiled work is done, the first of it by one of `ENTRIES`."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description:<34}"),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        yield ProgressBars(progress, entry)


# ---------------------------------------------------------------- worlds, options, files


def build_world(
    problem: str, episodes: int | None, seed: int, options: dict[str, Any]
) -> DriftingWorld | GymnasiumWorld:
    """Build a named world, or load one from a file of the user's own."""
    from safedrift import _check
    from safedrift.problems import make
    from safedrift.problems import options as options_of
    from safedrift.worldfiles.loading import is_file, load

    _check.integer("--world-seed", seed, lower=0)
    if episodes is not None:
        _check.integer("--episodes", episodes)
    if is_file(problem):
        if options:
            _check.fail("--option", "left out with a file of your own", ", ".join(options))
        return load(problem, episodes)
    for name, instead in (("episodes", "--episodes"), ("seed", "--world-seed")):
        if name in options:
            raise UsageError(f"{name} must be given with {instead}; got --option {name}")
    known = options_of(problem)
    for name in options:
        _check.choice(f"option of {problem}", name, tuple(known))
    return make(problem, 20_000 if episodes is None else episodes, seed, **options)


def parse_pairs(name: str, given: list[str] | None) -> dict[str, Any]:
    """Parse NAME=VALUE; values are integers, numbers, true, false or words."""
    words: dict[str, Any] = {"true": True, "false": False}
    parsed: dict[str, Any] = {}
    for item in given or []:
        key, sign, text = item.partition("=")
        if not sign or not key:
            raise UsageError(f"--{name} must be NAME=VALUE; got {item!r}")
        if key in parsed:
            raise UsageError(f"--{name} {key} must be given once; got {item!r} as well")
        value: Any = words.get(text.lower(), text)
        for kind in (float, int):
            try:
                value = kind(text)
            except ValueError:
                continue
        parsed[key] = value
    return parsed


def read_run(source: Path) -> tuple[Run, Path]:
    """Return the run in a folder or in a Parquet file, and the folder that its page goes to."""
    from safedrift.results import Run

    if source.is_dir():
        return Run.from_folder(source), source
    if not source.is_file():
        raise UsageError(f"source must be a run's folder or a file of Run.to_parquet; got {source}")
    return Run.from_parquet(source), source.parent


def load_world_file(source: str, episodes: int) -> DriftingWorld:
    """Return the world of a file, with as many episodes as a run has."""
    from safedrift.adapters.gymnasium_worlds import GymnasiumWorld
    from safedrift.worldfiles.loading import is_file, load

    if not is_file(source):
        raise UsageError(f"--world must be a file (.yaml, .npz or .py:make); got {source}")
    found = load(source, episodes)
    if isinstance(found, GymnasiumWorld):
        raise UsageError(
            f"--world must have a model to be played again; got the environment {found.name}"
        )
    return found
