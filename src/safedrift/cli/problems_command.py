"""`safedrift problems`: the named worlds, or one of your own, in words, numbers and a picture."""

from __future__ import annotations

import json
import math
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from safedrift.cli.shared import (
    OPTIMA_LABEL,
    UsageError,
    build_world,
    friendly_errors,
    learning_entry,
    parse_pairs,
    progress_bars,
)

if TYPE_CHECKING:
    from safedrift._check import FloatArray
    from safedrift.models import DriftingWorld
    from safedrift.oracles import Description

BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH = 60  # letters of a sparkline
MOST_TABLES = 2000  # distinct episodes whose tables `check` reads again


def problems(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="A world to look at, or a file of your own (world.yaml, .npz, .py:make); "
            "'check' validates the one that follows.",
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Argument(metavar="FILE", help="What to check: a file, or a name.")
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option("--episodes", "-n", help="M; by default 20000, or what a file says."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="NAME=VALUE", help="Option of the world."),
    ] = None,
    world_seed: Annotated[int, typer.Option(help="Of the world, where it is random.")] = 0,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw the world here.")
    ] = None,
    learner: Annotated[
        bool, typer.Option("--learner", help="With --picture: let PROPD-PPO learn, draw it too.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the description as JSON and nothing else.")
    ] = False,
) -> None:
    """List the named worlds, or look at one: its description, its options, what is optimal there.

    The numbers are exact: V_r* is the value of the best safe policy of an episode, mu* what a unit
    of threshold costs, gamma the slack of the safest policy.

    **Examples**

    - safedrift problems
    - safedrift problems energy
    - safedrift problems queue -n 3000 -o capacity=20 --picture queue.png --learner
    - safedrift problems my_world.yaml --json
    - safedrift problems check my_world.yaml
    """
    from safedrift import GymnasiumWorld

    with friendly_errors():
        if name is None:
            if picture is not None or as_json:
                raise UsageError("NAME must be given with --picture and --json; got none")
            _print_list()
            return
        check = name == "check"
        if source is not None and not check:
            raise UsageError(f"FILE must follow 'check' only; got {name} {source}")
        if check and source is None:
            raise UsageError("check must be followed by a file or the name of a world; got nothing")
        if picture is not None and picture.suffix.lower() != ".png":
            raise UsageError(f"--picture must be a file whose name ends in .png; got {picture}")
        if picture is not None and not picture.parent.is_dir():
            raise UsageError(f"--picture must lie in a folder that exists; got {picture}")
        if learner and picture is None:
            raise UsageError("--learner must come with --picture; got no picture to draw it in")
        target = name if source is None else source
        chosen = parse_pairs("option", option)
        if not check and not as_json:
            _print_documentation(target)  # before anything takes long or fails
        with Console(stderr=True).status("building the world"):
            world = build_world(target, episodes, world_seed, chosen)
        if isinstance(world, GymnasiumWorld):
            raise UsageError(
                f"{target} is an environment without a model: nothing is known of it to show"
            )
        tables = _check_tables(world) if check else None
        found = _describe(world, feasible=check)
        if picture is not None:
            _draw(world, found, picture, learner)
        if as_json:
            sys.stdout.write(json.dumps(found.record(), allow_nan=False) + "\n")
            return
        _print_description(found, tables, picture)


def _print_list() -> None:
    from safedrift import problems as named

    table = Table("problem", "what it is", box=None, header_style="bold")
    for key in named.PROBLEMS:
        table.add_row(key, named.documentation(key).splitlines()[0])
    Console().print(table)
    Console().print("\n`safedrift problems NAME` describes one.", markup=False)


# ---------------------------------------------------------------- numbers


def _check_tables(world: DriftingWorld) -> str:
    """Read the distinct episodes again, one by one: sums, ranges, thresholds; say how many.

    A TabularCMDP that can be built is valid, and one that cannot says why.
    """
    from safedrift.models import evenly_spaced

    first, _ = world.distinct
    read = first[evenly_spaced(first.size, MOST_TABLES)]
    with progress_bars("optima") as progress:
        advance = progress.counter("reading each episode", read.size, compiles=False)
        for m in read:
            try:
                world.at(int(m))
            except (ValueError, TypeError) as error:
                raise type(error)(f"episode {m}: {error}") from None
            advance(1)
    part = "all" if read.size == first.size else f"{read.size:,} of the"
    return f"{part} {first.size:,} distinct episodes were read again, and every one was solved"


def _describe(world: DriftingWorld, *, feasible: bool) -> Description:
    """Describe a world; with `feasible`, first find out whether all its episodes are."""
    from safedrift import describe, optima
    from safedrift.experiments.simulation import check_feasible
    from safedrift.models import evenly_spaced

    episodes = evenly_spaced(world.M)
    with progress_bars("optima") as progress:
        if feasible:
            first, _ = world.distinct
            truth = optima(world, first, progress.counter("feasible in each episode", first.size))
            check_feasible(truth)
        return describe(world, episodes, progress.counter(OPTIMA_LABEL, episodes.size))


def _draw(world: DriftingWorld, found: Description, path: Path, learner: bool) -> None:
    """Draw a world; with `learner`, PROPD-PPO with default constants plays it first."""
    from safedrift import PROPDPPO, Slater
    from safedrift.experiments.snapshots import (
        learned_policies,
        representative_episodes,
        representative_snapshots,
    )
    from safedrift.oracles import smallest_gap
    from safedrift.reports.world_pictures import draw_world

    if not found.feasible.all():
        wrong = found.episodes[~found.feasible]
        raise UsageError(
            f"--picture must be of a world that can be safe; episode {wrong[0]} cannot"
        )
    policies = None
    if learner:
        gap = smallest_gap(world)
        if not gap > 0:
            raise UsageError(
                "--learner must be left out in a world without a Slater gap; got gamma = 0"
            )
        agent = PROPDPPO.for_problem(world, Slater(gap))
        episodes = representative_episodes(world)
        with progress_bars(learning_entry(world)) as progress:
            advance = progress.stages("learning", world.M)
            policies = learned_policies(world, agent, episodes, window=100, progress=advance)
    with Console(stderr=True).status("drawing"):
        draw_world(found, representative_snapshots(world, policies), path)


# ---------------------------------------------------------------- printing


def _print_documentation(name: str) -> None:
    """Print a problem's documentation, reflowed to the width of the terminal, and its options."""
    from safedrift import problems as named

    if name not in named.PROBLEMS:
        return
    console = Console()
    for paragraph in named.documentation(name).split("\n\n"):
        for head, body in re.findall(r"^(\S.*)\n?((?:[ ]+.*\n?)*)", paragraph, re.MULTILINE):
            console.print(head, markup=False, highlight=False, style="bold" if body else None)
            if body:
                text = Text(" ".join(body.split()))
                console.print(Padding(text, (0, 0, 0, 4)), highlight=False)
        console.print()
    console.print("Options (-o NAME=VALUE)", style="bold")
    for key, default in named.options(name).items():
        console.print(f"    {key}={default}", markup=False, highlight=False)
    console.print()


def _print_description(found: Description, tables: str | None, picture: Path | None) -> None:
    console = Console()

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    if tables is not None:
        say(f"Valid and feasible: {tables}.\n")
    say(str(found) + "\n")
    for name, values in found.rows():
        if name.startswith(("V_r*", "mu*", "threshold", "gamma")):
            say(f"{name:<12}{sparkline(values)}")
    say(f"{'':<12}episodes 0 to {found.sizes.known_M() - 1:,}")
    if picture is not None:
        say(f"\nLook at {picture}")


def sparkline(values: FloatArray, width: int = WIDTH) -> str:
    """Return values (n,) as blocks from their lowest to their highest, and these two numbers.

    Each block is the mean of a stretch; one that is no number is a space.
    """
    import numpy as np

    blocks = min(width, values.size)
    edges = np.arange(blocks + 1) * values.size // blocks
    means = np.array([values[i:j].mean() for i, j in pairwise(edges)])
    finite = means[np.isfinite(means)]
    if not finite.size:
        return "no number in any episode"
    low, high = finite.min(), finite.max()
    drawn = "".join(_block(x, low, high) for x in means)
    flat = high - low <= 1e-9 * max(1.0, abs(high))
    return f"{drawn} {low:.4g}" if flat else f"{drawn} {low:.4g} to {high:.4g}"


def _block(x: float, low: float, high: float) -> str:
    if not math.isfinite(x):
        return " "
    if high - low <= 1e-9 * max(1.0, abs(high)):
        return BLOCKS[len(BLOCKS) // 2]
    return BLOCKS[min(int((x - low) / (high - low) * len(BLOCKS)), len(BLOCKS) - 1)]
