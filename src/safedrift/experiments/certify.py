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
from safedrift.algorithms import PROPDPPO, Parameters, Sizes, Slater
from safedrift.experiments.run import Run
from safedrift.experiments.simulate import Chunk, Progress, check_sizes, play_chunks, seeds
from safedrift.kernels.audit_memory import Transcript
from safedrift.models import DriftingWorld
from safedrift.oracles import local_budgets
from safedrift.problems import PROBLEMS, make
from safedrift.theory.audit import Audit
from safedrift.theory.certificates import Certificates
from safedrift.theory.checks import certificates

__all__ = ["certify", "certify_run"]


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


def certify_run(
    run: Run,
    world: DriftingWorld | None = None,
    *,
    p: float = 0.05,
    progress: Progress | None = None,
) -> Certificates:
    """Certify a run, fresh or read from a file; see `Run.certify`."""
    world = _world_of(run) if world is None else world
    _check.kind("world", world, get_args(DriftingWorld))
    agent = _agent_of(run, world)
    place = {int(m): i for i, m in enumerate(run.episodes)}

    def compare(part: Chunk) -> None:
        for e, mu in enumerate(part.record.mu):
            i = place.get(part.first + e)
            if i is not None and not np.allclose(mu, run.mu[i], rtol=1e-9, atol=1e-12):
                _check.fail(
                    "world",
                    "the one of this run, which can then be played again",
                    f"mu = {mu.tolist()} instead of {run.mu[i].tolist()} in episode "
                    f"{part.first + e} (the run was made with safedrift {run.info['version']})",
                )

    return certify(
        world, agent, run.info["seed"], noisy=run.info["noisy"], p=p, progress=progress,
        witness=compare,
    )  # fmt: skip


def _world_of(run: Run) -> DriftingWorld:
    """The world of a run: the one it was played in, or made again from its recipe."""
    if run.world is not None:
        return run.world
    name, recipe = run.info["problem"], run.info.get("recipe")
    if name not in PROBLEMS or not recipe:
        _check.fail(
            "world", "given to certify a stored run in a world of your own: run.certify(world)",
            "None",
        )  # fmt: skip
    return make(name, **recipe)


def _agent_of(run: Run, world: DriftingWorld) -> PROPDPPO:
    """The learner of a run, from what was recorded of it."""
    sizes = Sizes(**run.info["sizes"])
    if sizes != Sizes(world.M, world.H, world.S, world.A, world.K):
        _check.fail("world", f"of the run's sizes, {sizes}", f"{world!r}")
    known = run.info["knowledge"]
    told = Slater(known["gamma"]) if "gamma" in known else local_budgets(world)
    return PROPDPPO(
        sizes, world.initial, Parameters.from_record(run.info["parameters"], sizes), told,
        features=getattr(world, "features", None), box=getattr(world, "box", None),
    )  # fmt: skip


def transcript(part: Chunk) -> Transcript:
    """What an audit asks of a chunk that was logged."""
    log, record = part.log, part.record
    return Transcript(
        part.policies, log.q, record.v_start, record.mu, log.states, log.actions, log.values
    )
