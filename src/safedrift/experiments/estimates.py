"""What a study will take: time and disk, from a few of its worlds and learners, played briefly."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

import numpy as np

from safedrift._check import IntArray
from safedrift.experiments.playing import play_chunks
from safedrift.experiments.simulation import measured_rows
from safedrift.experiments.streams import seeds
from safedrift.experiments.studies import Plan
from safedrift.models import DriftingWorld
from safedrift.oracles import optima
from safedrift.results.measured import measured_episodes

__all__ = ["Estimate", "estimate"]

WORLDS, LEARNERS = 4, 6  # of which some are tried
_BLOCKS, _BLOCK = 4, 16  # measured episodes that are solved: blocks of consecutive ones
_LONGEST = 0.5  # seconds that one learner is played
STARTUP = 4.0  # seconds until processes are there
OVERHEAD = 0.003  # seconds for handing out a run and keeping its row
_ROW = 1200  # bytes of a row, in both files
_FACTS, _PER_CONSTRAINT = 11, 3  # columns of a world's truth

T = TypeVar("T")


class Estimate(NamedTuple):
    """What a study will take with so many processes.

    Attributes
    ----------
    runs, worlds, learners : how many
    solving : seconds of one core for the optima
    playing : seconds of one core for the runs
    seconds : with all processes
    bytes : on disk
    failures : what went wrong when it was tried
    """

    runs: int
    worlds: int
    learners: int
    solving: float
    playing: float
    seconds: float
    bytes: int
    failures: tuple[str, ...]


def estimate(plan: Plan, processes: int) -> Estimate:
    """Estimate a plan by playing a few of its runs for half a second each.

    Parameters
    ----------
    processes
        Number of processes of all machines together.
    """
    solving, playing, size = [], [], []
    failures: list[str] = []
    for place in _spread(plan.places, WORLDS):
        try:
            began = perf_counter()
            world = place.build()
            built = perf_counter() - began
            study = plan.study
            episodes = measured_episodes(world.M, study.measure_every, study.measure_log)
            solving.append(built + _seconds_of_optima(world, episodes))
            size.append(8 * episodes.size * (_FACTS + _PER_CONSTRAINT * world.K))
        except (ValueError, TypeError) as error:
            failures.append(f"{place.label}: {error}")
            continue
        for entrant in _spread(plan.entrants, LEARNERS):
            try:
                learner = entrant.build(world, 0.1, study.noisy)  # the gap is not known yet
                playing.append(_seconds_of_run(world, learner, study.noisy, episodes))
            except (ValueError, TypeError) as error:
                failures.append(f"{entrant.label} in {place.label}: {error}")
    solve = len(plan.places) * float(np.mean(solving or [0.0]))
    play = plan.runs * (OVERHEAD + float(np.mean(playing or [0.0])))
    spread = solve / min(processes, len(plan.places)) + play / min(processes, plan.runs)
    spread += STARTUP if processes > 1 else 0.0
    disk = int(len(plan.places) * np.mean(size or [0])) + _ROW * plan.runs
    return Estimate(
        plan.runs, len(plan.places), len(plan.entrants), solve, play, spread, disk, tuple(failures)
    )


def _spread(items: Sequence[T], count: int) -> list[T]:
    """At most `count` of the items, the first and the last among them."""
    at = np.unique(np.linspace(0, len(items) - 1, min(count, len(items))).round().astype(int))
    return [items[i] for i in at]


def _seconds_of_optima(world: DriftingWorld, episodes: IntArray) -> float:
    """Seconds to solve the listed episodes, from blocks of them."""
    starts = np.unique(np.linspace(0, max(0, episodes.size - _BLOCK), _BLOCKS).astype(int))
    optima(world, episodes[:1])  # compiles
    spent, solved = 0.0, 0
    for start in starts:
        block = episodes[start : start + _BLOCK]
        began = perf_counter()
        optima(world, block)
        spent += perf_counter() - began
        solved += block.size
    return float(spent * episodes.size / solved)


def _seconds_of_run(world: DriftingWorld, learner: Any, noisy: bool, at: IntArray) -> float:
    """Seconds to play all episodes and to measure the listed ones."""
    _play_for(0.0, world, learner, noisy, at)  # compiles
    spent, done = _play_for(_LONGEST, world, learner, noisy, at)
    return float(spent * world.M / done)


def _play_for(
    limit: float, world: DriftingWorld, learner: Any, noisy: bool, at: IntArray
) -> tuple[float, int]:
    """Play whole chunks until the time is up; returns the seconds taken and the episodes done."""
    played, start = learner.fresh(seeds(0)["learner"]), perf_counter()
    for part in play_chunks(world, played, 0, noisy, at):
        measured_rows(world, part, at)
        spent, done = perf_counter() - start, part.first + part.size
        if spent > limit:
            break
    return spent, done
