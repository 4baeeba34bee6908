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
from safedrift._check import FloatArray
from safedrift.adapters.gymnasium_worlds import GymnasiumWorld
from safedrift.experiments.playing import Chunk, play_chunks
from safedrift.experiments.simulation import (
    Progress,
    check_learner_type,
    check_sizes,
    measure_truth,
)
from safedrift.experiments.streams import seeds
from safedrift.kernels.audit.memory import Transcript
from safedrift.kernels.records import Log, make_log
from safedrift.knowledge import Knowledge, LocalBudgets, Sizes, Slater
from safedrift.learners import PROPDPPO, Learner, Parameters
from safedrift.learners.forgetting import forgetting_from
from safedrift.models import DriftingWorld, TabularCMDP
from safedrift.oracles import local_budgets, solve
from safedrift.problems import PROBLEMS, make
from safedrift.results.measured import measured_episodes
from safedrift.results.run import Run
from safedrift.theory.audit import Audit
from safedrift.theory.certificate_rules import evaluate_certificates
from safedrift.theory.certificates import Certificates
from safedrift.theory.statements import FOR_ANY_LEARNER

__all__ = ["certify", "certify_run", "compare_columns", "learner_of", "world_of"]


def certify(
    world: DriftingWorld,
    learner: Learner,
    seed: int = 0,
    *,
    noisy: bool = False,
    p: float = 0.05,
    progress: Progress | None = None,
    witness: Any = None,
) -> Certificates:
    """Play a fresh copy of `learner` as `simulate` does and check every lemma of the paper on it.

    Of a learner that is not PROPD-PPO, check the statements that hold for any learner
    (`theory.FOR_ANY_LEARNER`): it acts by its policies, and states and signals are the world's.

    Parameters
    ----------
    p
        Failure probability that the lemmas "with probability 1 - p" are stated for.
    progress
        Called as progress("certifying", done, total).
    witness
        Called with each `Chunk` that was played and the exact values (B, 1+K) of its policies; for
        checks of one's own.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> learner = sd.PROPDPPO.for_problem(world, sd.Slater(gamma=0.2))
    >>> found = sd.certify(world, learner, seed=0)
    >>> found.identities_hold, found["dual-step"].result
    (True, 'holds')
    """
    _has_model(world)
    check_learner_type(learner)
    _check.kind("noisy", noisy, bool)
    seed = _check.integer("seed", seed, lower=0)
    stands_for = learner if isinstance(learner, PROPDPPO) else _without_estimates(world)
    audit = Audit(world, stands_for, p=p, noisy=noisy)
    check_sizes(world, learner)
    report = progress or (lambda stage, done, total: None)
    learner = learner.fresh(seeds(seed)["learner"])
    C = stands_for.memory.values.v_start.size

    def room(B: int) -> Log:
        return make_log(B, C, world.H, world.S, world.A, world.K)

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
        for part in play_chunks(world, learner, seed, noisy, np.arange(world.M), make_log=room):
            waiting.append((pool.submit(audited, part), part.first + part.size))
            if len(waiting) > 1:
                settle()
        while waiting:
            settle()
    found = evaluate_certificates(audit)
    if isinstance(learner, PROPDPPO):
        return found
    items = tuple(item for item in found.items if item.id in FOR_ANY_LEARNER)
    info = {"problem": world.name, "learner": learner.name, "setting": "any learner"}
    return Certificates(items, {**found.info, "knowledge": "none", "mode": "no", **info})


def _without_estimates(world: DriftingWorld) -> PROPDPPO:
    """A learner to audit in the place of one without estimates; none of its lines is checked."""
    return PROPDPPO.for_problem(world, Slater(1.0), alpha=0.0, eta=0.0)


def certify_run(
    run: Run,
    world: DriftingWorld | None = None,
    learner: Learner | None = None,
    *,
    p: float = 0.05,
    progress: Progress | None = None,
) -> Certificates:
    """Check the paper's lemmas on a run, by playing it again with the same seed.

    Parameters
    ----------
    world
        Needed only for a run that was played in a world of your own.
    learner
        Needed only for a run of a learner of your own that was read from a file.
    p
        Failure probability of the lemmas that hold "with probability 1 - p".
    progress
        Called as progress("certifying", episodes done, episodes in all).
    """
    if run.manifest.environment is not None:
        _check.fail(
            "the run",
            "of a world with a model, which can be played again",
            f"one of the Gymnasium environment {run.manifest.environment}",
        )
    world = world_of(run) if world is None else world
    _has_model(world)
    learner = learner_of(run, world) if learner is None else learner
    stored = run.manifest
    measured = measured_episodes(world.M, stored.measure_every, stored.measure_log)
    if not np.array_equal(run.episodes, measured):
        _check.fail("the run's episodes", "those that its settings say were measured", "others")
    if not np.array_equal(run.truth.thresholds, world.thresholds[run.episodes]):
        _check.fail("world", "the one of this run", "other thresholds")
    compare_columns(run, world, slice(None), vars(measure_truth(world, run.episodes)))

    def compare(part: Chunk, values: FloatArray) -> None:
        """What is played now is what the run has on record."""
        start, stop = np.searchsorted(run.episodes, (part.first, part.first + len(values)))
        at = run.episodes[start:stop] - part.first
        again = {name: column[at] for name, column in _played_columns(part, values).items()}
        compare_columns(run, world, slice(start, stop), again)

    found = certify(
        world,
        learner,
        run.manifest.seed,
        noisy=run.manifest.noisy,
        p=p,
        progress=progress,
        witness=compare,
    )
    return replace(found, info=found.info | {"run": run.digest})


# ---------------------------------------------------------------- stored columns


def _played_columns(part: Chunk, values: FloatArray) -> dict[str, np.ndarray]:
    """The columns of a run that the learner makes, for the episodes just played."""
    found = {"reward": values[:, 0], "utility": values[:, 1:], "observed": part.returns}
    return found | {f"trace.{name}": column for name, column in part.trace.items()}


def compare_columns(
    run: Run,
    world: DriftingWorld,
    part: slice,
    again: dict[str, np.ndarray],
    *,
    exact: bool = False,
) -> None:
    """Refuse a run of which a column, in the listed part, is not what was computed again.

    Numbers may differ by rounding, unless they must be `exact`.
    """
    stored = run.columns()
    for name, now in again.items():
        if name not in stored:
            _check.fail("the run", f"one with the column {name}", "one without it")
        kept = stored[name][part]
        if kept.shape != now.shape:
            _check.fail(f"the run's {name}", f"of shape {now.shape}", kept.shape)
        off = now != kept if exact else ~np.isclose(now, kept, rtol=1e-9, atol=1e-9)
        for i in sorted({int(where[0]) for where in np.argwhere(off)}):
            m = int(run.episodes[part][i])
            if name == "optimal_mu" and _is_optimal(world.at(m), kept[i]):
                continue
            _check.fail(
                "world",
                "the one of this run, which can then be played again",
                f"{name} = {now[i]} instead of {kept[i]} in episode {m} "
                f"(the run was made with safedrift {run.manifest.version})",
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


def world_of(run: Run) -> DriftingWorld:
    """Return the world of a run: the one it was played in, or made again from its recipe."""
    name, recipe = run.manifest.problem, run.manifest.options
    if name is None or name not in PROBLEMS or not recipe:
        _check.fail(
            "world",
            "given to certify a stored run in a world of your own (run.certify(world), "
            "or --world FILE)",
            "None",
        )
    return make(name, **recipe)


def learner_of(run: Run, world: DriftingWorld) -> Learner:
    """Return the learner of a run: the one it has, or PROPD-PPO from what was recorded of it."""
    sizes = Sizes(**run.manifest.sizes.model_dump())
    if sizes != Sizes(world.M, world.H, world.S, world.A, world.K):
        _check.fail("world", f"of the run's sizes, {sizes}", f"{world!r}")
    settings = run.manifest.learner.settings
    if run.manifest.learner.name != PROPDPPO.name:
        if run.learner is None:
            name = run.manifest.learner.name
            wanted = f"given to certify a stored run of {name}, as in run.certify(learner=...)"
            _check.fail("learner", wanted, "None")
        own: Learner = run.learner
        return own
    try:
        known = settings["knowledge"]
        knowledge: Knowledge | None = None
        if known["name"] == LocalBudgets.name:
            knowledge = local_budgets(world)
        elif known["name"] != "none":
            knowledge = Slater(known["gamma"])
        parameters = Parameters.from_record(settings["parameters"], sizes)
        forgetting = forgetting_from(settings["forgetting"])
    except (KeyError, TypeError, AttributeError) as error:
        wanted = "one with the settings of PROPD-PPO"
        _check.fail("the run", wanted, f"damaged ones ({type(error).__name__}: {error})")
    return PROPDPPO(
        sizes,
        world.initial,
        parameters,
        knowledge,
        features=getattr(world, "features", None),
        box=getattr(world, "box", None),
        forgetting=forgetting,
    )


def transcript(part: Chunk) -> Transcript:
    """Return what an audit reads of a chunk that was logged."""
    log, trace = part.log, part.trace
    if log is None:
        raise TypeError("part must have a log; got none")
    shape = (part.size, log.signals.shape[1] - 1)
    mu = np.asarray(trace.get("mu", 0.0))
    if mu.shape != shape:
        mu = np.zeros(shape)  # of a learner without multipliers
    return Transcript(part.policies, log.q, log.v_start, mu, log.states, log.actions, log.signals)
