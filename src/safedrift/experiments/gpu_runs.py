"""Runs of `simulate_many` on a GPU: the streams of the CPU, the sums of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.experiments.streams import seeds
from safedrift.gpu.card import Card, Machine
from safedrift.gpu.runs import Measured, generator_words, obstacle, play_batches
from safedrift.models import DriftingCMDP

__all__ = ["sums_on_gpu"]


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
    world = job.world
    runs = len(job.learners) * len(job.seeds)
    sums = np.empty((runs, job.recorded.size, 2 + 2 * world.K))
    measured = Measured(job.truth.episodes, job.truth.optimal_reward, job.weights, job.recorded)
    done = 0

    def advance(episodes: int) -> None:
        nonlocal done
        done += episodes
        if progress:
            progress("playing", done, runs * world.M)

    words = [
        [generator_words(children["learner"]), generator_words(children["world"])]
        for children in map(seeds, job.seeds)
    ]
    generators = np.array(words, np.uint64)
    for batch in play_batches(
        card, world.arrays, job.learners, generators, job.noisy, measured, progress=advance
    ):
        sums[batch.runs] = batch.sums
    return sums, card.name
