"""Check the paper's lemmas on a run: the same seed again, with an audit looking on.

A run stores what happened in each episode, not the H*S*A estimates behind it. Because the same seed
gives the same numbers, these are computed again, a chunk at a time, and audited while the next
chunk is played.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, get_args

import numpy as np

from safedrift import _check
from safedrift.algorithms import PROPDPPO
from safedrift.experiments.simulate import Chunk, Progress, check_sizes, play_chunks, seeds
from safedrift.kernels.audit import Transcript
from safedrift.models import DriftingWorld
from safedrift.theory.audit import Audit
from safedrift.theory.certificates import Certificates, certificates

__all__ = ["certify"]


def certify(
    world: DriftingWorld,
    agent: PROPDPPO,
    seed: int = 0,
    *,
    noisy: bool = False,
    p: float = 0.05,
    progress: Progress | None = None,
    witness: Any = None,
) -> Certificates:
    """Play a fresh copy of `agent` as `simulate` does and check every lemma of the paper on it.

    Parameters
    ----------
    p
        Failure probability that the lemmas "with probability 1 - p" are stated for.
    progress
        Called as progress("certifying", done, total).
    witness
        Called with each `Chunk` that was played; for checks of one's own.
    """
    _check.kind("world", world, get_args(DriftingWorld))
    _check.kind("agent", agent, PROPDPPO)
    _check.kind("noisy", noisy, bool)
    seed = _check.integer("seed", seed, lower=0)
    audit = Audit(world, agent, p=p)
    check_sizes(world, agent)
    report = progress or (lambda stage, done, total: None)
    learner = agent.fresh(seeds(seed)["learner"])
    waiting: deque[tuple[Future[None], int]] = deque()

    def settle() -> None:
        work, done = waiting.popleft()
        work.result()
        report("certifying", done, world.M)

    # One audit after the other, beside the play of the next chunk.
    with ThreadPoolExecutor(1) as pool:
        for part in play_chunks(world, learner, seed, noisy, np.arange(world.M), logged=True):
            if witness is not None:
                witness(part)
            waiting.append(
                (pool.submit(audit.feed, transcript(part)), part.first + len(part.record.mu))
            )
            if len(waiting) > 1:
                settle()
        while waiting:
            settle()
    return certificates(audit)


def transcript(part: Chunk) -> Transcript:
    """What an audit asks of a chunk that was logged."""
    log, record = part.log, part.record
    return Transcript(
        part.policies, log.q, record.v_start, record.mu, log.states, log.actions, log.values
    )
