"""Rows of a comparison from a GPU: learners that a card can play are played there, all at once.

Runs of one world with the same options form a batch: all settings and seeds together. Figures are
those of a run on the CPU to 1e-10 (`gpu.runs`); the other learners play on the cores as always.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from safedrift._check import FloatArray
from safedrift.experiments.entrants import Entrant
from safedrift.experiments.gpu_runs import play_on_gpu
from safedrift.experiments.workers import Arena, Task, rows_of
from safedrift.gpu.card import Card, Machine
from safedrift.gpu.runs import Measured, obstacle
from safedrift.learners import Learner
from safedrift.models import DriftingCMDP
from safedrift.results.scores import RunScore, score_of_sums, wanted_sums

__all__ = ["rows_with_gpu"]


def rows_with_gpu(
    tasks: Sequence[Task],
    arenas: Mapping[str, Arena],
    workers: int,
    machine: Machine | None = None,
) -> Iterator[RunScore]:
    """Yield the row of every task, in any order; what a card cannot play plays on the cores."""
    batches: dict[Any, list[tuple[Task, Learner]]] = {}
    elsewhere = []
    for task in tasks:
        learner = _playable(task, arenas[task.arena])
        if learner is None:
            elsewhere.append(task)
        else:
            options = (task.arena, task.noisy, task.measure_every, task.points)
            batches.setdefault(options, []).append((task, learner))
    if batches:
        card = Card() if machine is None else machine
        for batch in batches.values():
            yield from _rows_of_batch(batch, arenas[batch[0][0].arena], card)
    yield from rows_of(elsewhere, arenas, workers)


def _playable(task: Task, arena: Arena) -> Learner | None:
    """The learner of a task, if a card can play it; what fails when it is built fails later."""
    if not isinstance(arena.world, DriftingCMDP) or task.measure_log is not None:
        return None
    try:
        learner = task.entrant.build(arena.world, float(arena.truth.gamma.min()), task.noisy)
    except Exception:
        return None
    return learner if obstacle(learner) is None else None


def _rows_of_batch(
    batch: Sequence[tuple[Task, Learner]], arena: Arena, machine: Machine
) -> Iterator[RunScore]:
    """Play runs of one world, all entrants that have the same seeds together."""
    runs: dict[tuple[str, str], tuple[Entrant, Learner, dict[int, Task]]] = {}
    for task, learner in batch:
        key = (task.entrant.label, repr(task.entrant.options))
        runs.setdefault(key, (task.entrant, learner, {}))[2][task.seed] = task
    together: dict[tuple[int, ...], list[tuple[Learner, dict[int, Task]]]] = {}
    for _, learner, by_seed in runs.values():
        together.setdefault(tuple(sorted(by_seed)), []).append((learner, by_seed))
    for seeds, field in together.items():
        first = next(iter(field[0][1].values()))
        sums, seconds = _sums(first, [learner for learner, _ in field], seeds, arena, machine)
        for i, (learner, by_seed) in enumerate(field):
            for j, seed in enumerate(seeds):
                task = by_seed[seed]
                names = {"key": task.key, "world": task.arena,
                         "learner": task.entrant.label, "seed": seed}  # fmt: skip
                yield score_of_sums(
                    arena.truth, arena.world.M, sums[i * len(seeds) + j], names,
                    seconds=seconds, points=task.points, settings=learner.settings(),
                )  # fmt: skip


def _sums(
    task: Task, learners: list[Learner], seeds: Sequence[int], arena: Arena, machine: Machine
) -> tuple[FloatArray, float]:
    """Sums (L*R, recorded, 2 + 2K) of all runs, and seconds per episode."""
    truth, M = arena.truth, arena.world.M
    weights = np.diff(truth.episodes, append=M).astype(np.float64)
    recorded = wanted_sums(truth.episodes.size, task.points)
    measured = Measured(truth.episodes, truth.optimal_reward, weights, recorded)
    start = perf_counter()
    world: Any = arena.world  # `_playable` has looked at it
    sums = play_on_gpu(machine, world, learners, seeds, task.noisy, measured)
    return sums, (perf_counter() - start) / (len(sums) * M)
