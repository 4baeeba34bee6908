"""`safedrift compare`: several learners in several worlds, with honest statistics."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand

from safedrift._files import write_text
from safedrift.cli.shared import OPTIMA_LABEL, UsageError, err, friendly_errors

if TYPE_CHECKING:
    from safedrift.results import Comparison
    from safedrift.results.statistics import Interval

STAGES = {"optimum": OPTIMA_LABEL, "tuning": "tuning on other worlds", "playing": "playing"}


class SeveralLearners(TyperCommand):
    """A command whose `--learners` takes several values: `--learners a b c`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the name of the option before each of its values."""
        return super().parse_args(ctx, spread("--learners", args))


def spread(name: str, args: list[str]) -> list[str]:
    """Return the arguments with `name a b` written as `name a name b`.

    Examples
    --------
    >>> from safedrift.cli.compare_command import spread
    >>> spread("-x", ["maze", "-x", "a", "b", "--seeds", "3"])
    ['maze', '-x', 'a', '-x', 'b', '--seeds', '3']
    """
    found: list[str] = []
    inside = False
    for position, arg in enumerate(args):
        if arg.startswith("-"):
            inside = arg == name
            found.append(arg)
            continue
        if inside and args[position - 1] != name:
            found.append(name)
        found.append(arg)
    return found


def compare(
    worlds: Annotated[
        list[str],
        typer.Argument(
            help="Names of worlds ('safedrift problems' lists them), names with options "
            "(random:states=8,drift=linear), or files of your own."
        ),
    ],
    learners: Annotated[
        list[str],
        typer.Option(
            help="Names of learners, names with options (propd-ppo:eta=0.1), or "
            "my_file.py:MyLearner, which takes the world. Give several after one --learners."
        ),
    ],
    seeds: Annotated[int, typer.Option(help="How many; the same for every learner.")] = 10,
    episodes: Annotated[
        int | None, typer.Option("--episodes", "-n", help="M of named worlds; 20000 by default.")
    ] = None,
    noisy: Annotated[
        bool, typer.Option("--noisy", help="Observe Bernoulli rewards and utilities.")
    ] = False,
    measure_every: Annotated[
        int, typer.Option(help="Exact values of every n-th episode only (faster, estimates).")
    ] = 1,
    tune: Annotated[
        int,
        typer.Option(
            help="First give every learner so many settings to try, on worlds kept apart.",
        ),
    ] = 0,
    skip: Annotated[
        bool,
        typer.Option("--skip", help="Leave out what a learner cannot play, and say so."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results; the same folder again continues."),
    ] = None,
    as_json: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Also write everything as JSON; - prints it."),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; by default one per core.")] = None,
    device: Annotated[
        str,
        typer.Option(help="gpu: PROPD-PPO with counts, tuning included, plays on a card."),
    ] = "cpu",
) -> None:
    """Compare learners: same worlds, same luck, exact regret and violation.

    Every learner plays every world with every seed. The **strict score** adds up the regret and the
    violation of every single episode, where they are positive, and divides by the uniform policy's:
    0 is the best safe policy of each episode, 1 is no better than uniform. Intervals are bootstrap
    intervals over seeds, and a difference that may be luck is called not different.

    Leaves **report.html**, **comparison.parquet**, **comparison.json** and **rows.jsonl**, in which
    rows appear as runs finish. Stop with Ctrl-C, and start again with the same --out to continue.

    **Examples**

    - safedrift compare maze energy --learners propd-ppo uniform --seeds 20
    - safedrift compare maze --learners my_file.py:MyLearner uniform optimum -n 2000 --noisy
    - safedrift compare random:drift=linear --learners propd-ppo uniform --tune 20 --out runs/tuned
    """
    with friendly_errors():
        _compare(
            worlds, learners, seeds, episodes, noisy, measure_every, tune, skip, out, as_json,
            workers, device,
        )  # fmt: skip


def _compare(
    worlds: list[str],
    learners: list[str],
    seeds: int,
    episodes: int | None,
    noisy: bool,
    measure_every: int,
    tune: int,
    skip: bool,
    out: Path | None,
    as_json: str | None,
    workers: int | None,
    device: str,
) -> None:
    from safedrift import _check
    from safedrift.experiments import ComparisonStopped
    from safedrift.experiments import compare as run_all

    _check.integer("--seeds", seeds)
    if as_json not in (None, "-"):
        path = Path(str(as_json))
        if path.is_dir() or not path.parent.is_dir():
            raise UsageError(f"--json must be a file in an existing folder, or -; got {as_json}")
    folder = out or Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-compare"
    new = not folder.exists()
    try:
        with stage_bars() as progress:
            found = run_all(
                worlds,
                learners,
                seeds,
                episodes=episodes,
                noisy=noisy,
                measure_every=measure_every,
                tune=tune,
                skip=skip,
                out=folder,
                workers=workers,
                device=device,
                progress=progress,
            )
    except ComparisonStopped as stopped:
        if stopped.comparison.rows:
            _leave(stopped.comparison, folder, as_json)
        sentence = f"safedrift: {stopped}; the same command with --out {folder} continues"
        err.print(sentence, markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(130) from None
    except KeyboardInterrupt:
        raise UsageError(f"stopped; the same command with --out {folder} continues") from None
    except BaseException:
        if new and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        raise
    _leave(found, folder, as_json)


def _leave(found: Comparison, folder: Path, as_json: str | None) -> None:
    """Write the results and print the table."""
    found.to_parquet(folder / "comparison.parquet")
    text = found.to_json(folder / "comparison.json")
    found.report(folder / "report.html")
    if as_json == "-":
        sys.stdout.write(text)
        return
    if as_json is not None:
        write_text(Path(as_json), text)
    print_comparison(found)
    _say(Console(), f"\nLook at {folder / 'report.html'}")


# ---------------------------------------------------------------- progress


class RateColumn(ProgressColumn):
    """Episodes per second."""

    def render(self, task: Task) -> Text:
        """Return the rate, once there is one."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} episodes/s", style="dim")


@contextmanager
def stage_bars() -> Iterator[Callable[[str, int, int], None]]:
    """One bar per stage, on stderr."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description:<34}"),
        BarColumn(),
        RateColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def advance(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(STAGES[stage], total=total)
            bars.update(tasks[stage], completed=done)

        yield advance


# ---------------------------------------------------------------- printing


def print_comparison(found: Comparison) -> None:
    """Print one table per world, the ranking, notes and the verdict."""
    console = Console()
    m = found.manifest
    signals = "Bernoulli signals" if m.noisy else "exact signals"
    _say(
        console,
        f"{len(m.learners)} learners, {len(m.worlds)} worlds, {len(m.seeds)} seeds, {signals}; "
        "figures per episode, 95% intervals over seeds\n"
        "strict score: [DR]+ + [CV]+ over the uniform policy's; 0 is the best safe policy of each "
        "episode, 1 is uniform\n",
    )
    for world in m.worlds:
        _say(console, f"{world.label} (M = {world.sizes['M']:,})", style="bold")
        console.print(_world_table(found, world.label, console))
        console.print()
    if len(m.worlds) > 1:
        _print_ranking(console, found)
    for note in found.notes():
        _say(console, f"Note. {note}", style="yellow")
    _say(console, f"\n{found.verdict()}", style="bold")


_HEADS = {
    "last_tenth_score": "last tenth",
    "regret": "DR/M",
    "violation": "CV/M",
    "positive_regret": "[DR]+/M",
    "positive_violation": "[CV]+/M",
    "time": "µs/episode",
}
_LEFT_OUT_FIRST = (("positive_regret", "positive_violation"), ("time",), ("last_tenth_score",))


def _world_table(found: Comparison, world: str, console: Console) -> Table:
    """The table of one world, with as many columns as the terminal has room for."""
    heads = dict(_HEADS)
    wide = console.options.update(max_width=1000)
    for names in ((), *_LEFT_OUT_FIRST):
        for name in names:
            del heads[name]
        table = _table_with(found, world, heads)
        if console.measure(table, options=wide).maximum <= console.width:
            break
    return table


def _table_with(found: Comparison, world: str, heads: dict[str, str]) -> Table:
    table = Table("learner", box=None, header_style="dim", pad_edge=False)
    for name in ("strict score", *heads.values()):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    times = found.timings()
    for row in found.table():
        if row["world"] != world:
            continue
        seconds = times[row["learner"]][world]
        cells = {name: figure(row[name]) for name in heads if name != "time"}
        if "time" in heads:
            cells["time"] = "" if seconds != seconds else f"{1e6 * seconds:,.1f}"
        status = Text(row["status"], style="bold" if row["status"] == "best" else "dim")
        table.add_row(row["learner"], interval(row["strict_score"]), *cells.values(), status)
    return table


def _print_ranking(console: Console, found: Comparison) -> None:
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("", justify="right")
    table.add_column("learner", overflow="fold")
    for name in ("strict score", "P(best wins)", "p, adjusted"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for entry in found.ranking():
        table.add_row(
            "" if entry.place is None else str(entry.place),
            entry.learner,
            interval(entry.score),
            "" if entry.best_is_better is None else f"{entry.best_is_better.value:.2f}",
            _p_value(entry.p_value),
            entry.status,
        )
    worlds = len(found.ranked_worlds)
    _say(console, f"all {worlds} worlds, interquartile mean", style="bold")
    console.print(table)
    console.print()


def _p_value(p: float) -> str:
    if p != p:
        return ""
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def interval(score: Interval) -> str:
    """Return "0.123 [0.1, 0.15]", without brackets where there is no interval."""
    if score.value != score.value:
        return "-"
    if score.low != score.low or score.low == score.high:
        return figure(score)
    return f"{figure(score)} [{score.low:.3f}, {score.high:.3f}]"


def figure(score: Interval) -> str:
    """Return the estimate with three decimals; rounding errors are zero."""
    return (
        "-" if score.value != score.value else f"{score.value + 0.0:.3f}".replace("-0.000", "0.000")
    )


def _say(console: Console, text: str, style: str | None = None) -> None:
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
