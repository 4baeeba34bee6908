"""The command `safedrift`: run a learner in a named world, look at it, read about the worlds."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
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
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from safedrift.cli_certify import certify
from safedrift.cli_environment import run_environment
from safedrift.cli_problems import problems
from safedrift.cli_theory import theory

if TYPE_CHECKING:
    from safedrift.models import DriftingWorld
    from safedrift.problems.gymnasium_worlds import GymnasiumWorld

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Safe reinforcement learning in a world that drifts.",
)
_err = Console(stderr=True)


class Mode(StrEnum):
    """Where the learner's constants come from."""

    printed = "printed"
    repaired = "repaired"
    practical = "practical"


class Known(StrEnum):
    """What the learner is told about the constraint."""

    slater = "slater"
    local_budgets = "local-budgets"


class Told(Exception):
    """One sentence for the user; the command ends with exit code 2."""


@app.callback()
def _main() -> None:
    pass


@app.command()
def run(
    problem: Annotated[
        str,
        typer.Argument(
            help="Name of a world ('safedrift problems' lists them), or a file of your own: "
            "world.yaml, world.npz, or world.py:make."
        ),
    ],
    episodes: Annotated[
        int | None,
        typer.Option(
            "--episodes",
            "-n",
            help="M, how many episodes; by default 20000, or what a file of your own says.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the run: actions, states, noise.")] = 0,
    world_seed: Annotated[int, typer.Option(help="Of the world, where it is random.")] = 0,
    knowledge: Annotated[
        Known, typer.Option(help="Assumption 3 (a Slater gap) or 2 (local budgets).")
    ] = Known.slater,
    gamma: Annotated[
        float | None,
        typer.Option(help="Slater gap told to the learner; by default the world's own smallest."),
    ] = None,
    mode: Annotated[
        Mode,
        typer.Option(help="Constants: as the paper prints them, repaired, or measured to work."),
    ] = Mode.practical,
    rho: Annotated[float, typer.Option(help="Theorem 3's trade-off, in [1/3, 1/2].")] = 0.5,
    noisy: Annotated[
        bool, typer.Option("--noisy", help="Observe Bernoulli rewards and utilities.")
    ] = False,
    measure_every: Annotated[
        int, typer.Option(help="Exact values of every n-th episode only (for large worlds).")
    ] = 1,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            metavar="NAME=VALUE",
            help="Option of the world, see 'safedrift problems NAME'. Repeatable.",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Change a constant of the learner: alpha, L, eta, xi, chi, lagged, feed, "
            "W, lam, bonus_scale. Recorded. Repeatable.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="New folder for the results; runs/... by default.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace results already in --out.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON and nothing else.")
    ] = False,
) -> None:
    """Let PROPD-PPO learn in a drifting constrained world and measure it exactly.

    Each episode the world may have changed. The learner sees its own trajectories only; beside it,
    the best safe policy of *every* episode is computed, so the dynamic regret DR and the long-run
    violation CV shown are exact, not estimated (unless --measure-every skips episodes).

    Leaves three files: **report.html** to look at, **run.parquet** with every number of every
    episode, **summary.json**. `safedrift certify` then checks the paper's lemmas on it.

    **Examples**

    - safedrift run maze
    - safedrift run maze --knowledge local-budgets --set eta=0.1 --out runs/first
    - safedrift run random -n 50000 -o states=8 -o drift=linear -o gamma=0.3
    - safedrift run random -n 100000 --mode printed (and read what it says)
    - safedrift run my_world.yaml
    """
    from safedrift.problems.files import is_file

    own = Path(problem.partition(":")[0]).stem if is_file(problem) else problem
    name = f"{own}-{mode.value}-{knowledge.value}-seed{seed}"
    with sentences(), _folder(out, force, name) as folder:
        result = _run(
            problem, episodes, seed, world_seed, knowledge, gamma, mode, rho, noisy, measure_every,
            pairs("option", option), pairs("set", set_),
        )  # fmt: skip
        (folder / "certificates.json").unlink(missing_ok=True)  # of the run that was here before
        result.to_parquet(folder / "run.parquet")
        result.report(folder / "report.html")
        summary = _plain(result.summary())
        write_text(folder / "summary.json", json.dumps(summary, indent=2) + "\n")
        if as_json:
            sys.stdout.write(json.dumps({**summary, "out": str(folder)}) + "\n")
        else:
            _show(summary, folder)


@app.command()
def report(
    source: Annotated[Path, typer.Argument(help="A run's folder or its run.parquet.")],
    out: Annotated[Path | None, typer.Option(help="Where to write the page.")] = None,
) -> None:
    """Make the HTML page of a stored run again."""
    from safedrift.experiments import Run

    with sentences():
        path = run_file(source)
        found = Run.from_parquet(path)
        known = _certificates(path.with_name("certificates.json"))
        if known is not None and known.info.get("run") != found.digest:
            _err.print("certificates.json is of another run and left out; certify this one again")
            known = None
        page = found.report(out or path.with_name("report.html"), known)
        Console().print(str(page), markup=False, highlight=False, soft_wrap=True)


def run_file(source: Path) -> Path:
    """The run.parquet of a run's folder, or the file itself."""
    path = source / "run.parquet" if source.is_dir() else source
    if not path.is_file():
        raise Told(f"source must be a run's folder or its run.parquet; got {source}")
    return path


def _certificates(path: Path) -> Any:
    """What `safedrift certify` left beside a run, if anything."""
    from safedrift.theory import Certificates

    if not path.is_file():
        return None
    try:
        found = Certificates.from_record(json.loads(path.read_text(encoding="utf-8")))
        str(found)  # whether all that is shown is there
        return found
    except (ValueError, TypeError, KeyError, AttributeError):
        raise Told(f"{path} must be what 'safedrift certify' wrote; got another file") from None


app.command()(certify)
app.command()(problems)
app.command()(theory)


# ---------------------------------------------------------------- one run


def _run(
    problem: str,
    episodes: int | None,
    seed: int,
    world_seed: int,
    knowledge: Known,
    gamma: float | None,
    mode: Mode,
    rho: float,
    noisy: bool,
    measure_every: int,
    options: dict[str, Any],
    overrides: dict[str, Any],
) -> Any:
    import numpy as np

    import safedrift as sd
    from safedrift import _check
    from safedrift.algorithms.parameters import OVERRIDES
    from safedrift.experiments.box import finer
    from safedrift.experiments.simulate import check_feasible

    for name in overrides:
        _check.choice("override", name, OVERRIDES)
    world = build(problem, episodes, world_seed, options)
    if isinstance(world, sd.GymnasiumWorld):
        return run_environment(world, gamma, knowledge, mode, seed, measure_every, noisy, overrides)
    _check.integer("measure_every", measure_every, upper=world.M)
    if gamma is not None:
        _check.positive("gamma", gamma)
    entry = "simulation.play"
    if isinstance(world, sd.LinearKernelCMDP):
        entry = "simulation.play_linear"
        if world.box is not None:
            entry = "linear.end_on_box"
            finer(world)  # before anything takes long
    with bars(entry) as shown:
        measured = np.arange(0, world.M, measure_every)
        truth = sd.optima(world, measured, shown.truth(measured.size))
        check_feasible(world, truth)
        told: sd.Slater | sd.LocalBudgets
        if knowledge is Known.slater:
            gap = float(truth.gamma.min())
            if gamma is None and gap <= 0:
                raise Told("this world has no Slater gap; use --knowledge local-budgets")
            told = sd.Slater(gap if gamma is None else gamma)
        else:
            told = sd.local_budgets(world, "l2" if mode is Mode.printed else "l1")
        known = None
        if mode is not Mode.practical:
            known = sd.budgets(world, truth if measure_every == 1 else None)
        agent = sd.PROPDPPO.for_problem(
            world, told, mode=mode.value, budgets=known, rho=rho, noisy=noisy, **overrides
        )
        result = sd.simulate(
            world, agent, seed, noisy=noisy, measure_every=measure_every, truth=truth,
            progress=shown.stage("learning", world.M),
        )  # fmt: skip
    return result


def build(
    problem: str, episodes: int | None, seed: int, options: dict[str, Any]
) -> DriftingWorld | GymnasiumWorld:
    """Build a named world, or load one from a file of the user's own."""
    from safedrift import _check
    from safedrift.problems import make
    from safedrift.problems.files import is_file, load

    if not is_file(problem):
        return make(problem, 20_000 if episodes is None else episodes, seed, **options)
    if options:
        _check.fail("--option", "left out with a file of your own", ", ".join(options))
    return load(problem, episodes)


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
    with Progress(*columns, console=_err, transient=True, disable=not _err.is_terminal) as progress:
        yield _Bars(progress, entry)


# ---------------------------------------------------------------- small things


@contextmanager
def sentences() -> Iterator[None]:
    """Turn errors that are the user's to mend into one sentence and exit code 2."""
    try:
        yield
    except (Told, ValueError, TypeError, OSError, OverflowError, RuntimeError) as error:
        if os.environ.get("SAFEDRIFT_TRACEBACK"):
            raise
        _err.print(f"safedrift: {error}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(2) from None
    except MemoryError as error:
        _err.print(f"safedrift: not enough memory: {error}", markup=False, soft_wrap=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        _err.print("safedrift: stopped; nothing was written")
        raise typer.Exit(130) from None


@contextmanager
def _folder(out: Path | None, force: bool, name: str) -> Iterator[Path]:
    """Make the folder for the results before computing; take it away if it stays empty."""
    folder = out or Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{name}"
    if folder.exists() and not folder.is_dir():
        raise Told(f"--out must be a folder; got the file {folder}")
    if out is not None and folder.is_dir() and any(folder.iterdir()) and not force:
        raise Told(f"--out must be a new or empty folder; got {out} (--force replaces its results)")
    number = 1
    while out is None and folder.exists():  # runs started in the same second
        number += 1
        folder = folder.with_name(f"{folder.name.partition('.')[0]}.{number}")
    made = [f for f in (folder, *folder.parents) if not f.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=out is not None)
    except OSError as error:
        raise Told(f"--out must be a folder that can be made; got {folder} ({error})") from None
    try:
        yield folder
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and any(folder.iterdir()):
            raise Told(f"stopped; the results in {folder} may be incomplete") from None
        for path in made:
            with suppress(OSError):
                path.rmdir()
        raise


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


def _plain(value: Any) -> Any:
    """Make strict JSON: no NaN, no infinity."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def write_text(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _show(summary: dict[str, Any], folder: Path) -> None:
    console = Console()

    def say(text: str, style: str | None = None) -> None:
        console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    sizes = ", ".join(f"{name} = {value}" for name, value in summary["sizes"].items())
    say(f"{summary['agent']} in {summary['problem']}, {summary['mode']} constants; {sizes}\n")
    table = Table("", "per episode", "", box=None, header_style="dim", pad_edge=False)
    table.columns[1].justify = "right"
    for name, value, meaning in _figures(summary):
        table.add_row(name, f"{value:.4f}", Text(meaning, style="dim"))
    console.print(table)
    for note in summary["notes"]:
        say(f"\nNote. {note}", style="yellow")
    say(f"\nLook at {folder / 'report.html'}")


def _figures(summary: dict[str, Any]) -> Iterator[tuple[str, float, str]]:
    """Rows of the summary table: name, figure per episode, definition."""
    if not summary["truth"]:
        yield from _observed(summary)
        return
    yield "regret", summary["dynamic_regret_per_episode"], "DR(M)/M, DR = Σ (V_r* - V_r)"
    yield "  last tenth", summary["last_tenth_regret_per_episode"], "over the last M/10 episodes"
    yield "  uniform policy", summary["uniform_regret_per_episode"], "for comparison"
    yield "  positive part", summary["positive_regret_per_episode"], "Σ [V_r* - V_r]_+ / M"
    several = len(summary["violation"]) > 1
    for k, violation in enumerate(summary["violation_per_episode"]):
        late = summary["last_tenth_shortfall_per_episode"][k]
        positive = summary["positive_violation_per_episode"][k]
        yield (
            f"violation {k}" if several else "violation",
            violation,
            "CV(M)/M, CV = [Σ (b - V_g)]_+",
        )
        yield "  last tenth", late, "mean of b - V_g; negative is safe"
        yield "  positive part", positive, "Σ [b - V_g]_+ / M"
    cost = summary["discretisation"]
    if cost is not None:
        coarse, fine = cost["nodes"]
        yield (
            "grid error",
            cost["regret"],
            f"largest change of V_r* - V_r, {coarse} to {fine} nodes",
        )
        yield "", cost["utility"], "likewise of V_g"


def _observed(summary: dict[str, Any]) -> Iterator[tuple[str, float, str]]:
    """The rows of a world without a model."""
    yield "observed reward", summary["reward_per_episode"], "scaled to [0, 1] per step"
    yield "  last tenth", summary["last_tenth_reward_per_episode"], "over the last M/10 episodes"
    several = len(summary["violation"]) > 1
    for k, violation in enumerate(summary["violation_per_episode"]):
        name = f"observed violation {k}" if several else "observed violation"
        yield name, violation, "CV(M)/M, CV = [Σ (b - observed utility)]_+"
        late = summary["last_tenth_shortfall_per_episode"][k]
        yield "  last tenth", late, "mean of b - observed utility; negative is safe"


def main() -> None:
    """Entry point of the command."""
    app()


if __name__ == "__main__":
    main()
