"""`safedrift run`: let a learner play a world and measure it."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
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
    write_text,
)


class Mode(StrEnum):
    """Where the learner's constants come from."""

    printed = "printed"
    repaired = "repaired"
    practical = "practical"


class KnowledgeKind(StrEnum):
    """What the learner is told about the constraint."""

    slater = "slater"
    local_budgets = "local-budgets"
    none = "none"


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
        KnowledgeKind,
        typer.Option(
            help="Assumption 3 (a Slater gap), 2 (local budgets), or none: the learner is told "
            "nothing and is not the paper's."
        ),
    ] = KnowledgeKind.slater,
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
            help="Change a constant of the learner: alpha, L, eta, xi, chi, lagged, dual_signal, "
            "W, lam, bonus_scale; with --knowledge none alpha, tau, eta, proportional, chi, "
            "rounds, dual_signal, lam, bonus_scale. Recorded. Repeatable.",
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
    name = f"{_short_name(problem)}-{mode.value}-{knowledge.value}-seed{seed}"
    with friendly_errors(), _results_folder(out, force, name) as folder:
        result = _run(
            problem,
            episodes,
            seed,
            world_seed,
            knowledge,
            gamma,
            mode,
            rho,
            noisy,
            measure_every,
            parse_pairs("option", option),
            parse_pairs("set", set_),
        )
        (folder / "certificates.json").unlink(missing_ok=True)  # of the run that was here before
        result.to_parquet(folder / "run.parquet")
        result.report(folder / "report.html")
        summary = _strict(result.summary())
        write_text(folder / "summary.json", json.dumps(summary, indent=2) + "\n")
        if as_json:
            sys.stdout.write(json.dumps({**summary, "out": str(folder)}) + "\n")
        else:
            _print_summary(summary, folder)


# ---------------------------------------------------------------- one run


def _run(
    problem: str,
    episodes: int | None,
    seed: int,
    world_seed: int,
    knowledge: KnowledgeKind,
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
    from safedrift.experiments.grid_error import finer
    from safedrift.learners.propd_ppo.tabular_theorems import check_rho
    from safedrift.learners.propd_ppo.tuning import OVERRIDES, TOLD_NOTHING

    allowed = TOLD_NOTHING if knowledge is KnowledgeKind.none else OVERRIDES
    for name in overrides:
        _check.choice("override", name, allowed)
    check_rho(rho)
    _check.integer("--seed", seed, lower=0)
    if gamma is not None:
        _check.positive("--gamma", gamma)
    if knowledge is KnowledgeKind.none:
        if gamma is not None:
            _check.fail("--gamma", "left out with --knowledge none", gamma)
        _check.choice("--mode with --knowledge none", mode.value, (Mode.practical.value,))
    world = build_world(problem, episodes, world_seed, options)
    if isinstance(world, sd.GymnasiumWorld):
        return _run_environment(
            world, gamma, knowledge, mode, rho, seed, measure_every, noisy, overrides
        )
    _check.integer("measure_every", measure_every, upper=world.M)
    if isinstance(world, sd.LinearKernelCMDP) and world.box is not None:
        finer(world)  # before anything takes long
    with progress_bars(learning_entry(world)) as progress:
        measured = np.arange(0, world.M, measure_every)
        advance = progress.stages(OPTIMA_LABEL, measured.size)
        truth = sd.measure_truth(world, measured, progress=advance)
        assumption: sd.Slater | sd.LocalBudgets | None = None
        if knowledge is KnowledgeKind.slater:
            gap = float(truth.gamma.min())
            if gamma is None and gap <= 0:
                raise UsageError(
                    "this world has no Slater gap; use --knowledge none or local-budgets"
                )
            assumption = sd.Slater(gap if gamma is None else gamma)
        elif knowledge is KnowledgeKind.local_budgets:
            assumption = sd.local_budgets(world, "l2" if mode is Mode.printed else "l1")
        drift = None
        if mode is not Mode.practical:
            drift = sd.budgets(world, truth.drift_star if measure_every == 1 else None)
        agent = sd.PROPDPPO.for_problem(
            world, assumption, mode=mode.value, budgets=drift, rho=rho, noisy=noisy, **overrides
        )
        result = sd.simulate(
            world,
            agent,
            seed,
            noisy=noisy,
            measure_every=measure_every,
            truth=truth,
            progress=progress.stages("learning", world.M),
        )
    return result


def _run_environment(
    world: Any,
    gamma: float | None,
    knowledge: str,
    mode: str,
    rho: float,
    seed: int,
    measure_every: int,
    noisy: bool,
    overrides: dict[str, Any],
) -> Any:
    """Learn in a `GymnasiumWorld`: nothing is known of it but what the user tells."""
    import safedrift as sd
    from safedrift import _check

    where = "in a Gymnasium environment, which tells neither its drift nor its gap"
    if knowledge == "local-budgets":
        _check.fail("--knowledge", f"slater or none {where}", knowledge)
    if mode != "practical":
        _check.fail("--mode", f"practical {where}", mode)
    if gamma is None and knowledge == "slater":
        raise TypeError(f"--gamma must be given {where}, or --knowledge none; got None")
    assumption = None if gamma is None else sd.Slater(gamma)
    agent = sd.PROPDPPO.for_problem(world, assumption, rho=rho, noisy=noisy, **overrides)
    with progress_bars("environment") as progress:
        return sd.simulate(
            world,
            agent,
            seed,
            measure_every=measure_every,
            progress=progress.stages("learning", world.M),
        )


# ---------------------------------------------------------------- the folder


def _short_name(problem: str) -> str:
    """The name of a world, or of a file without its folder and ending."""
    from safedrift.worldfiles.loading import is_file

    return Path(problem.partition(":")[0]).stem if is_file(problem) else problem


@contextmanager
def _results_folder(out: Path | None, force: bool, name: str) -> Iterator[Path]:
    """Make the folder for the results before computing; take it away if it stays empty."""
    folder = out or Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{name}"
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--out must be a folder; got the file {folder}")
    if out is not None and folder.is_dir() and any(folder.iterdir()) and not force:
        raise UsageError(
            f"--out must be a new or empty folder; got {out} (--force replaces its results)"
        )
    number = 1
    while out is None and folder.exists():  # runs started in the same second
        number += 1
        folder = folder.with_name(f"{folder.name.partition('.')[0]}.{number}")
    made = [f for f in (folder, *folder.parents) if not f.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=out is not None)
    except OSError as error:
        raise UsageError(
            f"--out must be a folder that can be made; got {folder} ({error})"
        ) from None
    try:
        yield folder
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and any(folder.iterdir()):
            raise UsageError(f"stopped; the results in {folder} may be incomplete") from None
        for path in made:
            with suppress(OSError):
                path.rmdir()
        raise


def _strict(value: Any) -> Any:
    """Make strict JSON: no NaN, no infinity."""
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_strict(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


# ---------------------------------------------------------------- printing


def _print_summary(summary: dict[str, Any], folder: Path) -> None:
    console = Console()

    def say(text: str, style: str | None = None) -> None:
        console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    sizes = ", ".join(f"{name} = {value}" for name, value in summary["sizes"].items())
    say(f"{summary['learner']} in {summary['problem']}, {_constants(summary)}{sizes}\n")
    table = Table("", "per episode", "", box=None, header_style="dim", pad_edge=False)
    table.columns[1].justify = "right"
    for name, value, meaning in _summary_rows(summary):
        table.add_row(name, f"{value:.4f}", Text(meaning, style="dim"))
    console.print(table)
    for note in summary["notes"]:
        say(f"\nNote. {note}", style="yellow")
    say(f"\nLook at {folder / 'report.html'}")


def _constants(summary: dict[str, Any]) -> str:
    """Which constants the learner used, where it says so."""
    mode = summary["settings"].get("parameters", {}).get("mode")
    return "" if mode is None else f"{mode} constants; "


def _summary_rows(summary: dict[str, Any]) -> Iterator[tuple[str, float, str]]:
    """Rows of the summary table: name, figure per episode, definition."""
    if not summary["truth_known"]:
        yield from _observed_rows(summary)
        return
    yield "regret", summary["dynamic_regret_per_episode"], "DR(M)/M, DR = Σ (V_r* - V_r)"
    yield "  last tenth", summary["last_tenth_regret_per_episode"], "over the last M/10 episodes"
    yield "  uniform policy", summary["uniform_regret_per_episode"], "for comparison"
    yield "  positive part", summary["positive_regret_per_episode"], "Σ [V_r* - V_r]_+ / M"
    for k, violation in enumerate(summary["violation_per_episode"]):
        late = summary["last_tenth_shortfall_per_episode"][k]
        positive = summary["positive_violation_per_episode"][k]
        yield (
            _named("violation", summary, k),
            violation,
            "CV(M)/M, CV = [Σ (b - V_g)]_+",
        )
        yield "  last tenth", late, "mean of b - V_g; negative is safe"
        yield "  positive part", positive, "Σ [b - V_g]_+ / M"
        yield from _levels(summary, k)
    cost = summary["discretisation"]
    if cost is not None:
        coarse, fine = cost["nodes"]
        yield (
            "grid error",
            cost["regret"],
            f"largest change of V_r* - V_r, {coarse} to {fine} nodes",
        )
        yield "", cost["utility"], "likewise of V_g"


def _observed_rows(summary: dict[str, Any]) -> Iterator[tuple[str, float, str]]:
    """The rows of a world without a model."""
    unit = "scaled to [0, 1] per step"
    if summary["scale"] is not None:
        unit = summary["scale"]["reward_unit"] or "in its own units"
    yield "observed reward", summary["reward_per_episode"], unit
    yield "  last tenth", summary["last_tenth_reward_per_episode"], "over the last M/10 episodes"
    for k, violation in enumerate(summary["violation_per_episode"]):
        name = _named("observed violation", summary, k)
        yield name, violation, "CV(M)/M, CV = [Σ (b - observed utility)]_+"
        late = summary["last_tenth_shortfall_per_episode"][k]
        yield "  last tenth", late, "mean of b - observed utility; negative is safe"
        yield from _levels(summary, k)


def _levels(summary: dict[str, Any], k: int) -> Iterator[tuple[str, float, str]]:
    """The level of a constraint that has a name, and what is required of it."""
    if summary["constraints"] is None:
        return
    limit = {} if summary["scale"] is None else summary["scale"]["constraints"][k]
    side = "at most" if limit.get("at_most") else "at least"
    required = f"{side} {summary['threshold_per_episode'][k]:.4g} {limit.get('unit', '')}".strip()
    late = summary["last_tenth_utility_per_episode"][k]
    yield f"  {summary['constraints'][k]}", late, f"over the last M/10 episodes; {required}"


def _named(figure: str, summary: dict[str, Any], k: int) -> str:
    """A figure of constraint k: with its name, or its number where there are several."""
    if summary["constraints"] is not None:
        return f"{figure}, {summary['constraints'][k]}"
    return f"{figure} {k + 1}" if len(summary["violation"]) > 1 else figure
