"""Check the paper's lemmas on a run by playing it again with the same seed.

A run stores what happened in each episode, not the H*S*A estimates behind it. Because the same seed
gives the same numbers, these are computed again, a chunk at a time, and audited while the next
chunk is played. Every column of a stored run is compared with what is computed again.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray, IntArray
from safedrift.adapters.gymnasium_worlds import GymnasiumWorld
from safedrift.experiments.simulation import Chunk, Progress, check_sizes, play_chunks, seeds
from safedrift.kernels.audit.memory import Transcript
from safedrift.knowledge import Sizes, Slater
from safedrift.learners import PROPDPPO, Parameters
from safedrift.models import DriftingWorld, TabularCMDP
from safedrift.oracles import evaluate_episodes, local_budgets, optima, solve, variation
from safedrift.problems import PROBLEMS, make
from safedrift.results.run import Run
from safedrift.theory.audit import Audit
from safedrift.theory.certificate_rules import evaluate_certificates
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
        Called with each `Chunk` that was played and the exact values (B, 1+K) of its policies; for
        checks of one's own.
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
        values = audit.add_episodes(transcript(part))
        if witness is not None:
            witness(part, values)

    # One audit at a time, while the next chunk is played.
    with ThreadPoolExecutor(1) as pool:
        for part in play_chunks(world, learner, seed, noisy, np.arange(world.M), logged=True):
            waiting.append((pool.submit(audited, part), part.first + len(part.record.mu)))
            if len(waiting) > 1:
                settle()
        while waiting:
            settle()
    return evaluate_certificates(audit)


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
    if not np.array_equal(run.episodes, np.arange(0, world.M, run.info["measure_every"])):
        _check.fail("the run's episodes", "every n-th, n = measure_every", "others")
    if not np.array_equal(run.thresholds, world.thresholds[run.episodes]):
        _check.fail("world", "the one of this run", "other thresholds")
    _compare(run, world, slice(None), _truth_columns(world, run.episodes))

    def compare(part: Chunk, values: FloatArray) -> None:
        """What is played now is what the run has on record."""
        start, stop = np.searchsorted(run.episodes, (part.first, part.first + len(values)))
        at = run.episodes[start:stop] - part.first
        again = {name: column[at] for name, column in _played_columns(part, values, agent).items()}
        _compare(run, world, slice(start, stop), again)

    found = certify(
        world, agent, run.info["seed"], noisy=run.info["noisy"], p=p, progress=progress,
        witness=compare,
    )  # fmt: skip
    return replace(found, info=found.info | {"run": run.digest})


# ---------------------------------------------------------------- stored columns


def _truth_columns(world: DriftingWorld, episodes: IntArray) -> dict[str, np.ndarray]:
    """The columns of a run that depend on the world alone, computed again."""
    found, drift = optima(world, episodes), variation(world)
    _, version = world.distinct
    _, first, place = np.unique(version[episodes], return_index=True, return_inverse=True)
    uniform = np.full((1, world.H, world.S, world.A), 1 / world.A)
    baseline = evaluate_episodes(world, episodes[first], uniform)[place]
    per_episode = {
        "drift_P": drift.P.sum(axis=1), "drift_r": drift.r.sum(axis=1),
        "drift_g": drift.g.sum(axis=(1, 2)), "drift_b": drift.b.sum(axis=1),
    }  # fmt: skip
    since_last = {
        name: np.diff(np.cumsum(change)[episodes], prepend=0.0)
        for name, change in per_episode.items()
    }
    return {
        "thresholds": world.thresholds[episodes],
        "optimal_reward": found.value, "gamma": found.gamma, "optimal_mu": found.multipliers,
        **since_last, "drift_star": found.policy_change,
        "baseline_reward": baseline[:, 0], "baseline_utility": baseline[:, 1:],
    }  # fmt: skip


def _played_columns(part: Chunk, values: FloatArray, agent: PROPDPPO) -> dict[str, np.ndarray]:
    """The columns of a run that the learner makes, for the episodes just played."""
    K, record = agent.sizes.K, part.record
    m = part.first + np.arange(len(values))
    return {
        "mu": record.mu, "observed": record.returns, "at_cap": record.at_cap,
        "reward": values[:, 0], "utility": values[:, 1:],
        "estimated_reward": record.v_start[:, 0],
        "estimated_utility": record.v_start[:, 1 : 1 + K],
        "policy_restart": m % agent.settings.L == 0, "window_restart": m % agent.settings.W == 0,
    }  # fmt: skip


def _stored(run: Run, name: str) -> np.ndarray:
    """A column of a run by its name."""
    return np.asarray(getattr(run, name))


def _compare(run: Run, world: DriftingWorld, part: slice, again: dict[str, np.ndarray]) -> None:
    """Refuse a run of which a column, in the listed part, is not what was computed again."""
    for name, now in again.items():
        kept = _stored(run, name)[part]
        if kept.shape != now.shape:
            _check.fail(f"the run's {name}", f"of shape {now.shape}", kept.shape)
        off = ~np.isclose(now, kept, rtol=1e-9, atol=1e-9)
        for i in sorted({int(where[0]) for where in np.argwhere(off)}):
            m = int(run.episodes[part][i])
            if name == "optimal_mu" and _is_optimal(world.at(m), kept[i]):
                continue
            _check.fail(
                "world",
                "the one of this run, which can then be played again",
                f"{name} = {now[i]} instead of {kept[i]} in episode {m} "
                f"(the run was made with safedrift {run.info.get('version', '?')})",
            )


def _is_optimal(cmdp: TabularCMDP, mu: FloatArray) -> bool:
    """Whether μ ≥ 0 minimises the dual of a CMDP: where several do, any of them may be stored.

    The dual value is max_π V_r + μ·(V_g - b), by dynamic programming; no dual value is smaller than
    the optimum V_r*.
    """
    if not (np.isfinite(mu).all() and (mu >= 0).all()):
        return False
    H, S, A, _ = cmdp.shape
    offsets, states, p = cmdp.successors
    priced = cmdp.rewards + (mu[:, None, None, None] * cmdp.utilities).sum(axis=0)
    V = np.zeros(S)
    for h in range(H - 1, -1, -1):
        rows = offsets[h * S * A : (h + 1) * S * A + 1]
        entries = slice(rows[0], rows[-1])
        ahead = np.add.reduceat(p[entries] * V[states[entries]], rows[:-1] - rows[0])
        V = (priced[h] + ahead.reshape(S, A)).max(axis=1)
    dual = float((cmdp.initial * V).sum() - (mu * cmdp.thresholds).sum())
    return bool(dual <= solve(cmdp).value + 1e-9 * H * (1 + mu.sum()))


# ---------------------------------------------------------------- world and learner


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
    knowledge = Slater(known["gamma"]) if "gamma" in known else local_budgets(world)
    return PROPDPPO(
        sizes, world.initial, Parameters.from_record(run.info["parameters"], sizes), knowledge,
        features=getattr(world, "features", None), box=getattr(world, "box", None),
    )  # fmt: skip


def transcript(part: Chunk) -> Transcript:
    """Return what an audit reads of a chunk that was logged."""
    log, record = part.log, part.record
    return Transcript(
        part.policies, log.q, record.v_start, record.mu, log.states, log.actions, log.values
    )
