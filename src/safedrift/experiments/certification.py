"""Check the paper's lemmas on a run: the same seed again, with an audit looking on.

A run stores what happened in each episode, not the H*S*A estimates behind it. Because the same seed
gives the same numbers, these are computed again, a chunk at a time, and audited while the next
chunk is played.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.adapters.gymnasium_worlds import GymnasiumWorld
from safedrift.experiments.simulation import Chunk, Progress, check_sizes, play_chunks, seeds
from safedrift.kernels.audit.memory import Transcript
from safedrift.knowledge import Sizes, Slater
from safedrift.learners import PROPDPPO, Parameters
from safedrift.models import DriftingWorld
from safedrift.oracles import local_budgets
from safedrift.problems import PROBLEMS, make
from safedrift.results.run import Run
from safedrift.theory.audit import Audit
from safedrift.theory.certificate_rules import certificates
from safedrift.theory.certificates import Certificates

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
        Called with each `Chunk` that was played, the exact values (B, 1+K) of its policies and
        V_r* (B,); for checks of one's own.
    """
    _has_model(world)
    _check.kind("agent", agent, PROPDPPO)
    _check.kind("noisy", noisy, bool)
    seed = _check.integer("seed", seed, lower=0)
    audit = Audit(world, agent, p=p, noisy=noisy)
    check_sizes(world, agent)
    report = progress or (lambda stage, done, total: None)
    learner = agent.fresh(seeds(seed)["learner"])
    waiting: deque[tuple[Future[None], int]] = deque()

    def settle() -> None:
        work, done = waiting.popleft()
        work.result()
        report("certifying", done, world.M)

    def audited(part: Chunk) -> None:
        values, best = audit.feed(transcript(part))
        if witness is not None:
            witness(part, values, best)

    # One audit after the other, beside the play of the next chunk.
    with ThreadPoolExecutor(1) as pool:
        for part in play_chunks(world, learner, seed, noisy, np.arange(world.M), logged=True):
            waiting.append((pool.submit(audited, part), part.first + len(part.record.mu)))
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
    if "environment" in run.info:
        _check.fail(
            "the run",
            "of a world with a model, which can be played again",
            f"one of the Gymnasium environment {run.info['environment']}",
        )
    world = _world_of(run) if world is None else world
    _has_model(world)
    agent = _agent_of(run, world)
    if not np.array_equal(run.thresholds, world.thresholds[run.episodes]):
        _check.fail("world", "the one of this run", "other thresholds")
    K = world.K

    def compare(part: Chunk, values: FloatArray, best: FloatArray) -> None:
        """What is played now is what the run has on record."""
        B = len(part.record.mu)
        start, stop = np.searchsorted(run.episodes, (part.first, part.first + B))
        at = run.episodes[start:stop] - part.first
        record = part.record
        for name, found in (
            ("mu", record.mu), ("estimated_reward", record.v_start[:, 0]),
            ("estimated_utility", record.v_start[:, 1 : 1 + K]), ("observed", record.returns),
            ("reward", values[:, 0]), ("utility", values[:, 1:]), ("optimal_reward", best),
        ):  # fmt: skip
            kept, now = getattr(run, name)[start:stop], found[at]
            off = ~np.isclose(now, kept, rtol=1e-9, atol=1e-9)
            if off.any():
                i = int(np.argwhere(off)[0][0])
                _check.fail(
                    "world",
                    "the one of this run, which can then be played again",
                    f"{name} = {now[i]} instead of {kept[i]} in episode {run.episodes[start + i]} "
                    f"(the run was made with safedrift {run.info.get('version', '?')})",
                )

    found = certify(
        world, agent, run.info["seed"], noisy=run.info["noisy"], p=p, progress=progress,
        witness=compare,
    )  # fmt: skip
    return replace(found, info=found.info | {"run": run.digest})


def _has_model(world: object) -> None:
    """Refuse what the lemmas cannot be checked on."""
    if isinstance(world, GymnasiumWorld):
        _check.fail("world", "one with a model to certify a run in it", f"{world!r}")
    _check.kind("world", world, get_args(DriftingWorld))


def _world_of(run: Run) -> DriftingWorld:
    """The world of a run: the one it was played in, or made again from its recipe."""
    if run.world is not None:
        return run.world
    name, recipe = run.info["problem"], run.info.get("recipe")
    if name not in PROBLEMS or not recipe:
        _check.fail(
            "world", "given to certify a stored run in a world of your own (run.certify(world), "
            "or --world FILE)", "None",
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
