"""Simulate a learner in a world, measure it exactly, return a `Run`.

Learning and truth are kept apart: `experiments.playing` plays chunks of episodes and hands over the
policies of the measured ones; their exact values are computed afterwards, in threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray, IntArray
from safedrift.adapters.gymnasium_worlds import GymnasiumWorld
from safedrift.experiments.callbacks import Callback, check_callbacks, seen_rows
from safedrift.experiments.grid_error import GridError
from safedrift.experiments.journals import Rows, joined
from safedrift.experiments.noticed import noticed_events
from safedrift.experiments.playing import Chunk, World, play_chunks
from safedrift.experiments.row_files import world_digest
from safedrift.experiments.run_folder import RunFolder
from safedrift.experiments.streams import seeds
from safedrift.learners import Learner
from safedrift.models import DriftingWorld, LinearKernelCMDP
from safedrift.oracles import Optima, evaluate_episodes, optima, variation
from safedrift.results import LearnerRecord, Manifest, Outcome, Run, SizesRecord, Truth
from safedrift.results import unknown_truth as _unknown_truth
from safedrift.results.measured import measured_episodes
from safedrift.results.run_folders import from_folder, identity

__all__ = [
    "Progress",
    "check_feasible",
    "check_sizes",
    "measure_truth",
    "measured_rows",
    "simulate",
]

Progress = Callable[[str, int, int], None]
"""Called with (stage, episodes done, episodes in all)."""


def simulate(
    world: World,
    learner: Learner,
    seed: int = 0,
    *,
    noisy: bool = False,
    measure_every: int = 1,
    measure_log: int | None = None,
    truth: Truth | None = None,
    progress: Progress | None = None,
    out: RunFolder | str | Path | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Play a fresh copy of `learner` through all episodes of `world`; `learner` stays as it is.

    Parameters
    ----------
    world
        A world with a model, or an environment from `from_gymnasium`. Where that has none, the run
        holds what was observed.
    learner
        `PROPDPPO`, or anything that keeps the protocol `safedrift.Learner`.
    seed
        Same seed, same numbers.
    noisy
        Observe Bernoulli rewards and utilities with the model's means instead of the means.
    measure_every
        Exact values and optima of every n-th episode only; each stands for the n - 1 after it.
    measure_log
        Exact values and optima of log-spaced episodes only, each a q-th further than the one
        before (`results.measured`): 100 makes about 1,300 records of ten million episodes.
    truth
        What `measure_truth` found for these episodes, or `run.truth` of an earlier run in the same
        world: optima are then not computed again.
    progress
        Called as progress(stage, done, total) with stages "optimum" and "learning".
    out
        A new folder that the run is written to while it plays (docs/experiments.md), or one that
        is open (`experiments.run_folder.RunFolder`), whose `finish` is then up to you.
    resume
        Continue the run in `out`, if there is one, with the same numbers as if never interrupted.
    callbacks
        Called while the run plays (`safedrift.Callback`).

    Raises
    ------
    ValueError
        If world and learner disagree in size, or a measured episode is infeasible.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("maze", episodes=50)
    >>> run = sd.simulate(world, sd.PROPDPPO.for_problem(world, sd.Slater(0.45)), seed=1)
    >>> bool(run.dynamic_regret[-1] > 0)
    True
    """
    _check.kind("world", world, get_args(World))
    check_learner_type(learner)
    _check.kind("noisy", noisy, bool)
    check_sizes(world, learner)
    seed = _check.integer("seed", seed, lower=0)
    episodes = measured_episodes(world.M, measure_every, measure_log)
    if isinstance(world, GymnasiumWorld) and noisy:
        _check.fail("noisy", "False: an environment is as noisy as it is", noisy)
    settings = _manifest(world, learner, seed, noisy, measure_every, measure_log)
    watching = check_callbacks(callbacks)
    played = learner.fresh(seeds(seed)["learner"])
    if out is None or isinstance(out, RunFolder):
        return _simulate(world, played, settings, episodes, truth, progress, out, watching)
    with RunFolder(out, resume=resume) as folder:
        if folder.finished:
            return _finished_run(folder, settings, world)
        run = _simulate(world, played, settings, episodes, truth, progress, folder, watching)
        folder.finish(run)
    return run


def _simulate(
    world: World,
    learner: Learner,
    settings: Manifest,
    episodes: IntArray,
    truth: Truth | None,
    progress: Progress | None,
    folder: RunFolder | None,
    callbacks: Sequence[Callback],
) -> Run:
    """Play the learner as it is; everything has been checked."""
    model = world.model if isinstance(world, GymnasiumWorld) else world
    grid = None
    if isinstance(world, LinearKernelCMDP) and world.box is not None:
        grid = GridError(world, episodes)
    if model is None:
        _check_unmeasured(truth, settings)
        truth = _unknown_truth(episodes, np.array(world.thresholds))
    elif truth is None:
        truth = measure_truth(model, episodes, progress=progress)
    else:
        _check_truth(truth, world, episodes)
    rows, policy = _learn(world, model, learner, settings, truth, progress, grid, folder, callbacks)
    outcome = Outcome(*(rows.pop(name) for name in ("reward", "utility", "observed")))
    trace = {name.removeprefix("trace."): values for name, values in rows.items()}
    notes = getattr(learner, "notes", None)
    told = [] if notes is None else list(notes(trace))
    error = None if grid is None else grid.error(truth.optimal_reward, outcome)
    noticed = noticed_events(learner, settings.constraints or ())
    record = settings.learner.model_copy(update={"notes": told, "events": noticed})
    manifest = settings.model_copy(update={"learner": record, "discretisation": error})
    run = Run(truth, outcome, trace, manifest, policy, learner)
    for callback in callbacks:
        callback.on_end(run)
    return run


def _learn(
    world: World,
    model: DriftingWorld | None,
    learner: Learner,
    settings: Manifest,
    truth: Truth,
    progress: Progress | None,
    grid: GridError | None,
    folder: RunFolder | None,
    callbacks: Sequence[Callback],
) -> tuple[Rows, FloatArray]:
    """Play all episodes, or those that are left; returns the measured ones and the last policy."""
    episodes = truth.episodes
    done, recorded = 0, list[Rows]()
    if folder is not None:
        digest = None if isinstance(world, GymnasiumWorld) else world_digest(world)
        resumable = not isinstance(world, GymnasiumWorld)
        done, recorded, extra = folder.begin(
            settings, digest, learner, episodes, resumable=resumable
        )
        folder.keep_truth(truth)
        if grid is not None:
            grid.restore(extra)
    for callback in callbacks:
        callback.on_start(settings, done)
    policy = np.empty(0)
    watch, watched = (None, None) if grid is None else (grid.watch, grid.episodes)
    # The last episode's policy is kept too: it is what a run hands over.
    kept = np.union1d(episodes, [world.M - 1])
    for part in play_chunks(
        world,
        learner,
        settings.seed,
        settings.noisy,
        kept,
        watch=watch,
        watched=watched,
        first=done,
    ):
        if len(part.policies):
            policy = part.policies[-1]
        rows = measured_rows(model, part, episodes)
        recorded.append(rows)
        done = part.first + part.size
        if folder is not None and done < world.M:
            folder.add(done, rows, learner, dict if grid is None else grid.state)
        if callbacks and rows["reward"].size:
            start = np.searchsorted(episodes, part.first)
            seen = seen_rows(truth, episodes[start : start + rows["reward"].size], rows)
            for callback in callbacks:
                callback.on_rows(seen)
        if progress:
            progress("learning", done, world.M)
    return joined(recorded), policy.copy()


def measured_rows(model: DriftingWorld | None, part: Chunk, episodes: IntArray) -> Rows:
    """Return what is recorded of the listed episodes in a chunk that was played."""
    start, stop = np.searchsorted(episodes, (part.first, part.first + part.size))
    at = episodes[start:stop] - part.first
    observed = part.returns[at]
    values = observed
    if model is not None:
        values = np.empty((at.size, observed.shape[1]))
        if at.size:
            values[:] = evaluate_episodes(model, episodes[start:stop], part.policies[: at.size])
    found = {"reward": values[:, 0], "utility": values[:, 1:], "observed": observed}
    return found | {f"trace.{name}": column[at] for name, column in part.trace.items()}


def _finished_run(folder: RunFolder, settings: Manifest, world: World) -> Run:
    """The run in a folder, if it is the one that was asked for."""
    digest = None if isinstance(world, GymnasiumWorld) else world_digest(world)
    if folder.manifest.id != identity(settings, digest):
        folder.refuse_other(settings, digest)
    return from_folder(folder.path)


def measure_truth(
    world: DriftingWorld, episodes: IntArray | None = None, *, progress: Progress | None = None
) -> Truth:
    """Return optima, drift and the uniform policy's values of the listed episodes (all by default).

    Raises
    ------
    ValueError
        If one of the episodes is infeasible: there is then no optimum to compare with.

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> truth = sd.measure_truth(world, np.array([0, 25]))
    >>> truth.optimal_reward.round(3).tolist()
    [6.387, 6.387]
    """
    _check.kind("world", world, get_args(DriftingWorld))
    episodes = np.arange(world.M) if episodes is None else np.asarray(episodes)
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress:
            progress("optimum", done, episodes.size)

    best = optima(world, episodes, advance)
    check_feasible(best)
    drift = variation(world)
    _, version = world.distinct
    _, first, place = np.unique(version[episodes], return_index=True, return_inverse=True)
    uniform = np.full((1, world.H, world.S, world.A), 1 / world.A)
    baseline = evaluate_episodes(world, episodes[first], uniform)[place]
    return Truth(
        episodes=episodes,
        thresholds=world.thresholds[episodes],
        optimal_reward=best.value,
        optimal_mu=best.multipliers,
        gamma=best.gamma,
        drift_P=_since_last(drift.P.sum(axis=1), episodes),
        drift_r=_since_last(drift.r.sum(axis=1), episodes),
        drift_g=_since_last(drift.g.sum(axis=(1, 2)), episodes),
        drift_b=_since_last(drift.b.sum(axis=1), episodes),
        drift_star=best.policy_change,
        baseline_reward=baseline[:, 0],
        baseline_utility=baseline[:, 1:],
    )


def _since_last(per_episode: FloatArray, at: IntArray) -> FloatArray:
    """Sum per-episode changes from one listed episode (exclusive) to the next (inclusive)."""
    return np.diff(np.cumsum(per_episode)[at], prepend=0.0)


def _manifest(
    world: World,
    learner: Learner,
    seed: int,
    noisy: bool,
    measure_every: int,
    measure_log: int | None,
) -> Manifest:
    """What is known of a run before it begins."""
    known: dict[str, Any] = {"problem": world.name}
    if isinstance(world, GymnasiumWorld):
        noisy = bool(getattr(world.env.unwrapped, "noisy", False))
        known |= {"environment": world.name, "reward_range": [float(x) for x in world.reward_range]}
        if world.model is not None:
            known |= {"problem": world.model.name, "options": world.model.recipe}
    else:
        known |= {"options": world.recipe}
    scale = getattr(world, "scale", None)
    names = scale.names if scale is not None else getattr(world, "constraint_names", ())
    known |= {"constraints": list(names) or None, "scale": scale and scale.record()}
    sizes = {name: int(getattr(world, name)) for name in ("M", "H", "S", "A", "K")}
    return Manifest(
        **known,
        learner=LearnerRecord(name=learner.name, settings=learner.settings()),
        sizes=SizesRecord(**sizes),
        seed=seed,
        noisy=noisy,
        measure_every=measure_every,
        measure_log=measure_log,
    )


# ---------------------------------------------------------------- checks


def check_learner_type(learner: object) -> None:
    """Refuse what does not have the methods of a learner, naming the first that is missing."""
    if isinstance(learner, str):
        wanted = "a learner, as safedrift.learners.make(name, world) returns it"
        raise TypeError(f"learner must be {wanted}; got {learner!r}")
    needed = (
        "name",
        "sizes",
        "begin_episode",
        "act",
        "end_episode",
        "trace",
        "settings",
        "state",
        "restore",
        "fresh",
    )
    for name in needed:
        if not hasattr(learner, name):
            raise TypeError(
                f"learner must have {name} (see safedrift.Learner); got {type(learner).__name__}"
            )


def check_sizes(world: World, learner: Learner) -> None:
    """Refuse a learner that was made for another world."""
    for name in ("M", "H", "S", "A", "K"):
        wanted, got = getattr(world, name), getattr(learner.sizes, name)
        if wanted != got and not (name == "M" and got is None):
            _check.fail(f"the learner's {name}", f"the world's, {wanted}", got)
    check_problem = getattr(learner, "check_problem", None)
    if check_problem is not None:
        check_problem(world)


def _check_unmeasured(truth: Truth | None, settings: Manifest) -> None:
    """Refuse what has no meaning in a world without a model."""
    if truth is not None:
        _check.fail("truth", "None in a world without a model", "Truth")
    if settings.measure_every > 1:
        _check.fail("measure_every", "1 in a world without a model", settings.measure_every)
    if settings.measure_log is not None:
        _check.fail("measure_log", "None in a world without a model", settings.measure_log)


def _check_truth(truth: Truth, world: World, episodes: IntArray) -> None:
    """Refuse the truth about another world, or about other episodes."""
    _check.kind("truth", truth, Truth)
    if not (
        truth.known
        and np.array_equal(truth.episodes, episodes)
        and np.array_equal(truth.thresholds, world.thresholds[episodes])
    ):
        _check.fail("truth", "that of this world's measured episodes", "another")


def check_feasible(best: Optima) -> None:
    """Refuse infeasible episodes: they have no optimum to compare with."""
    if not best.feasible.all():
        wrong = np.flatnonzero(~best.feasible)
        i = wrong[0]
        raise ValueError(
            f"every episode must be feasible (some policy with utility >= threshold); got "
            f"{wrong.size} infeasible of {best.episodes.size} measured, the first at episode "
            f"{best.episodes[i]}: best reachable utility {best.utilities[i].round(6).tolist()}, "
            f"threshold {best.thresholds[i].round(6).tolist()}"
        )
