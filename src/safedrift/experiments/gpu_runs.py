"""Runs of `simulate_many` on a GPU: the streams of the CPU, the sums of the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.experiments.streams import seeds as children_of
from safedrift.gpu.card import Card, Machine
from safedrift.gpu.runs import Measured, generator_words, obstacle, play_batches
from safedrift.models import DriftingCMDP

__all__ = ["play_on_gpu", "sums_on_gpu"]


def sums_on_gpu(
    job: Any, progress: Any = None, machine: Machine | None = None
) -> tuple[FloatArray, str]:
    """Return running sums (L*R, recorded, 2 + 2K) of all runs of a `Job`, and the card's name."""
    if not isinstance(job.world, DriftingCMDP):
        _check.fail("world", "a DriftingCMDP on a GPU", type(job.world).__name__)
    for learner in job.learners:
        reason = obstacle(learner)
        if reason is not None:
            _check.fail("learners", f"{reason} on a GPU", learner)
    card = Card() if machine is None else machine
    measured = Measured(job.truth.episodes, job.truth.optimal_reward, job.weights, job.recorded)
    total, done = len(job.learners) * len(job.seeds) * job.world.M, 0

    def advance(episodes: int) -> None:
        nonlocal done
        done += episodes
        if progress:
            progress("playing", done, total)

    sums = play_on_gpu(card, job.world, job.learners, job.seeds, job.noisy, measured, advance)
    return sums, card.name


def play_on_gpu(
    machine: Machine,
    world: DriftingCMDP,
    learners: Sequence[Any],
    seeds: Sequence[int],
    noisy: bool,
    measured: Measured,
    progress: Callable[[int], None] = lambda episodes: None,
) -> FloatArray:
    """Return running sums (L*R, recorded, 2 + 2K) of all learners with all seeds."""
    sums = np.empty((len(learners) * len(seeds), measured.recorded.size, 2 + 2 * world.K))
    words = [
        [generator_words(children["learner"]), generator_words(children["world"])]
        for children in map(children_of, seeds)
    ]
    generators = np.array(words, np.uint64)
    for batch in play_batches(
        machine, world.arrays, learners, generators, noisy, measured, progress=progress
    ):
        sums[batch.runs] = batch.sums
    return sums
