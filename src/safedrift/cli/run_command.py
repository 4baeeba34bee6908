"""`safedrift run`: let a learner play a world and measure it."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from safedrift._files import strict_json, write_text
from safedrift.cli.run_summary import print_summary
from safedrift.cli.shared import (
    OPTIMA_LABEL,
    UsageError,
    build_world,
    err,
    friendly_errors,
    learning_entry,
    parse_pairs,
    progress_bars,
    sigterm_as_interrupt,
)

if TYPE_CHECKING:
    from safedrift.adapters.gymnasium_worlds import GymnasiumWorld
    from safedrift.experiments.run_folder import RunFolder
    from safedrift.learners import Learner
    from safedrift.models import DriftingWorld
    from safedrift.results import Run, Truth


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
    measure_log: Annotated[
        int | None,
        typer.Option(
            metavar="Q",
            help="Exact values of log-spaced episodes only, each a Q-th further than the one "
            "before (for many episodes).",
        ),
    ] = None,
    learner: Annotated[
        str,
        typer.Option(
            help="Who learns: propd-ppo, or another one ('safedrift learners' lists them) with "
            "its options, as in opt-cmdp:window=300."
        ),
    ] = "propd-ppo",
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
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue the run in --out, if there is one that was stopped."
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace results already in --out.")
    ] = False,
    checkpoint_every: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="Time between checkpoints; 0 makes one after every chunk."
        ),
    ] = 30.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON and nothing else.")
    ] = False,
) -> None:
    """Let PROPD-PPO, or another learner, play a drifting constrained world and measure it exactly.

    Each episode the world may have changed. The learner sees its own trajectories only; beside it,
    the best safe policy of *every* episode is computed, so the dynamic regret DR and the long-run
    violation CV shown are exact, not estimated (unless --measure-every skips episodes).

    Leaves a folder: **report.html** to look at, **records.parquet** with every number of every
    measured episode, **summary.json**, and **manifest.json** with all settings and the SHA-256 of
    every file. A run that was stopped, however it was, goes on with --resume and gives the same
    numbers. `safedrift verify` checks the folder, `safedrift certify` the paper's lemmas on it.

    **Examples**

    - safedrift run maze
    - safedrift run maze --knowledge local-budgets --set eta=0.1 --out runs/first
    - safedrift run random -n 50000 -o states=8 -o drift=linear -o gamma=0.3
    - safedrift run random -n 100000 --mode printed (and read what it says)
    - safedrift run my_world.yaml
    - safedrift run energy --learner opt-cmdp --out runs/energy --resume
    """
    asked = Request(
        problem=problem,
        episodes=episodes,
        seed=seed,
        world_seed=world_seed,
        learner=learner,
        knowledge=knowledge.value,
        gamma=gamma,
        mode=mode.value,
        rho=rho,
        noisy=noisy,
        measure_every=measure_every,
        measure_log=measure_log,
        options={},
        overrides={},
    )
    with friendly_errors(), sigterm_as_interrupt():
        asked = asked._replace(
            options=parse_pairs("option", option), overrides=parse_pairs("set", set_)
        )
        _check_request(asked, out, resume, force)
        folder = _open(asked, out, resume, force, checkpoint_every)
        try:
            summary = _recorded(asked, folder)
        except KeyboardInterrupt:
            raise UsageError(_how_to_go_on(folder)) from None
        if as_json:
            sys.stdout.write(json.dumps({**summary, "out": str(folder.path)}) + "\n")
        else:
            print_summary(summary, folder.path)


class Request(NamedTuple):
    """What the command was asked for; a run that continues must be asked for the same."""

    problem: str
    episodes: int | None
    seed: int
    world_seed: int
    learner: str
    knowledge: str
    gamma: float | None
    mode: str
    rho: float
    noisy: bool
    measure_every: int
    measure_log: int | None
    options: dict[str, Any]
    overrides: dict[str, Any]


# ---------------------------------------------------------------- one run


def _recorded(asked: Request, folder: RunFolder) -> dict[str, Any]:
    """Play and write everything to the folder; returns the summary."""
    from safedrift.results import Run

    with folder:
        if folder.finished:
            folder.tell(f"{folder.path} is finished; nothing was played")
            before: dict[str, Any] = strict_json(Run.from_folder(folder.path).summary())
            return before
        result = _run(asked, folder)
        result.report(folder.work / "report.html")
        summary: dict[str, Any] = strict_json(result.summary())
        write_text(folder.work / "summary.json", json.dumps(summary, indent=2) + "\n")
        folder.finish(result)
    return summary


def _check_request(asked: Request, out: Path | None, resume: bool, force: bool) -> None:
    """Refuse what can be seen to be wrong before anything is built."""
    from safedrift import _check
    from safedrift.experiments.entrants import entrants
    from safedrift.learners.propd_ppo.tabular_theorems import check_rho
    from safedrift.learners.propd_ppo.tuning import OVERRIDES, TOLD_NOTHING

    if resume and out is None:
        raise UsageError("--out must be given with --resume: the folder of the run to continue")
    if resume and force:
        raise UsageError("--resume and --force must not be given together")
    told_nothing = asked.knowledge == KnowledgeKind.none
    for name in asked.overrides:
        _check.choice("override", name, TOLD_NOTHING if told_nothing else OVERRIDES)
    check_rho(asked.rho)
    _check.integer("--seed", asked.seed, lower=0)
    if asked.gamma is not None:
        _check.positive("--gamma", asked.gamma)
    if told_nothing:
        if asked.gamma is not None:
            _check.fail("--gamma", "left out with --knowledge none", asked.gamma)
        _check.choice("--mode with --knowledge none", asked.mode, (Mode.practical.value,))
    (entrant,) = entrants([asked.learner])
    if entrant.source != "propd-ppo" or entrant.chosen:
        wanted = f"left out with --learner {asked.learner}, which has options of its own"
        for flag, value, default in (
            ("--knowledge", asked.knowledge, KnowledgeKind.slater),
            ("--mode", asked.mode, Mode.practical),
            ("--gamma", asked.gamma, None),
            ("--set", asked.overrides, {}),
        ):
            if value != default:
                _check.fail(flag, wanted, value)


def _run(asked: Request, folder: RunFolder) -> Run:
    """Play the run that was asked for."""
    import safedrift as sd
    from safedrift import _check
    from safedrift.experiments.grid_error import finer
    from safedrift.experiments.row_files import world_digest
    from safedrift.experiments.run_folder import TRUTH, truth_key
    from safedrift.experiments.truth_files import stored_truth
    from safedrift.results.measured import measured_episodes

    world = build_world(asked.problem, asked.episodes, asked.world_seed, asked.options)
    if isinstance(world, sd.GymnasiumWorld):
        return _run_environment(world, asked, folder)
    _check.integer("measure_every", asked.measure_every, upper=world.M)
    measured = measured_episodes(world.M, asked.measure_every, asked.measure_log)
    if isinstance(world, sd.LinearKernelCMDP) and world.box is not None:
        finer(world)  # before anything takes long
    with progress_bars(learning_entry(world)) as progress:
        advance = progress.stages(OPTIMA_LABEL, measured.size)
        truth = stored_truth(
            folder.work / TRUTH,
            truth_key(world_digest(world), asked.measure_every, asked.measure_log),
            lambda: sd.measure_truth(world, measured, progress=advance),
            folder.tell,
        )
        return sd.simulate(
            world,
            _learner(asked, world, truth),
            asked.seed,
            noisy=asked.noisy,
            measure_every=asked.measure_every,
            measure_log=asked.measure_log,
            truth=truth,
            progress=progress.stages("learning", world.M),
            out=folder,
        )


def _learner(asked: Request, world: DriftingWorld, truth: Truth) -> Learner:
    """The learner that was asked for, told what it has to be told."""
    import safedrift as sd
    from safedrift.experiments.entrants import entrants

    gap = float(truth.gamma.min())
    if asked.learner != "propd-ppo":
        (entrant,) = entrants([asked.learner])
        return entrant.build(world, gap, asked.noisy)
    assumption: sd.Slater | sd.LocalBudgets | None = None
    if asked.knowledge == KnowledgeKind.slater:
        if asked.gamma is None and gap <= 0:
            raise UsageError("this world has no Slater gap; use --knowledge none or local-budgets")
        assumption = sd.Slater(gap if asked.gamma is None else asked.gamma)
    elif asked.knowledge == KnowledgeKind.local_budgets:
        assumption = sd.local_budgets(world, "l2" if asked.mode == Mode.printed else "l1")
    drift = None
    if asked.mode != Mode.practical:
        drift = sd.budgets(world, truth.drift_star if truth.episodes.size == world.M else None)
    return sd.PROPDPPO.for_problem(
        world,
        assumption,
        mode=asked.mode,
        budgets=drift,
        rho=asked.rho,
        noisy=asked.noisy,
        **asked.overrides,
    )


def _run_environment(world: GymnasiumWorld, asked: Request, folder: RunFolder) -> Run:
    """Learn in a `GymnasiumWorld`: nothing is known of it but what the user tells."""
    import safedrift as sd

    agent = _learner_of_environment(world, asked)
    with progress_bars("environment") as progress:
        return sd.simulate(
            world,
            agent,
            asked.seed,
            measure_every=asked.measure_every,
            measure_log=asked.measure_log,
            progress=progress.stages("learning", world.M),
            out=folder,
        )


def _learner_of_environment(world: GymnasiumWorld, asked: Request) -> Learner:
    """The learner that was asked for, told what the user tells."""
    import safedrift as sd
    from safedrift import _check
    from safedrift.experiments.entrants import entrants

    where = "in a Gymnasium environment, which tells neither its drift nor its gap"
    if asked.learner != "propd-ppo":
        (entrant,) = entrants([asked.learner])
        if entrant.oracle:
            _check.fail("--learner", f"one that needs no truth {where}", asked.learner)
        return entrant.build_untold(world, asked.noisy)
    if asked.knowledge == KnowledgeKind.local_budgets:
        _check.fail("--knowledge", f"slater or none {where}", asked.knowledge)
    if asked.mode != "practical":
        _check.fail("--mode", f"practical {where}", asked.mode)
    if asked.gamma is None and asked.knowledge == KnowledgeKind.slater:
        raise TypeError(
            f"--gamma must be given {where}, or --knowledge none, "
            "or a learner that is told nothing (--learner adaptive-planner); got None"
        )
    told = None if asked.gamma is None else sd.Slater(asked.gamma)
    return sd.PROPDPPO.for_problem(world, told, rho=asked.rho, noisy=asked.noisy, **asked.overrides)


# ---------------------------------------------------------------- the folder


def _open(
    asked: Request, out: Path | None, resume: bool, force: bool, checkpoint_every: float
) -> RunFolder:
    from safedrift.experiments.run_folder import RunFolder

    def tell(sentence: str) -> None:
        err.print(f"safedrift: {sentence}", markup=False, highlight=False, soft_wrap=True)

    return RunFolder(
        _new_folder(asked) if out is None else out,
        resume=resume,
        force=force,
        request=asked._asdict(),
        checkpoint_seconds=checkpoint_every,
        tell=tell,
    )


def _new_folder(asked: Request) -> Path:
    """A folder of runs/ that is not there yet."""
    who = asked.learner.partition(":")[0]
    if who == "propd-ppo":
        who = f"{asked.mode}-{asked.knowledge}"
    name = f"{datetime.now():%Y%m%d-%H%M%S}-{_short_name(asked.problem)}-{who}-seed{asked.seed}"
    folder, number = Path("runs") / name, 1
    while folder.exists():  # runs started in the same second
        number += 1
        folder = Path("runs") / f"{name}.{number}"
    return folder


def _short_name(problem: str) -> str:
    """The name of a world, or of a file without its folder and ending."""
    from safedrift.worldfiles.loading import is_file

    return Path(problem.partition(":")[0]).stem if is_file(problem) else problem


def _how_to_go_on(folder: RunFolder) -> str:
    """What to tell whoever stopped a run."""
    if not (folder.path / "manifest.json").is_file() and folder.work == folder.path:
        return "stopped; nothing was written"
    return f"stopped; the same command with --out {folder.path} --resume goes on"
