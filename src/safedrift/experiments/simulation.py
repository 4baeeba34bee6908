"""Simulate a learner in a world, measure it exactly, return a `Run`.

Learning and truth are kept apart: `experiments.playing` plays chunks of episodes and hands over the
policies of the measured ones; their exact values are computed afterwards, in threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from safedrift import _check
from safedrift._check import FloatArray, IntArray
from safedrift.adapters.gymnasium_worlds import GymnasiumWorld
from safedrift.experiments.grid_error import GridError
from safedrift.experiments.playing import World, play_chunks
from safedrift.experiments.streams import seeds
from safedrift.learners import Learner
from safedrift.models import DriftingWorld, LinearKernelCMDP
from safedrift.oracles import Optima, evaluate_episodes, optima, variation
from safedrift.results import Event, LearnerRecord, Manifest, Outcome, Run, SizesRecord, Truth
from safedrift.results import unknown_truth as _unknown_truth

__all__ = ["Progress", "check_feasible", "check_sizes", "measure_truth", "simulate"]

Progress = Callable[[str, int, int], None]
"""Called with (stage, episodes done, episodes in all)."""


def simulate(
    world: World,
    learner: Learner,
    seed: int = 0,
    *,
    noisy: bool = False,
    measure_every: int = 1,
    truth: Truth | None = None,
    progress: Progress | None = None,
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
    truth
        What `measure_truth` found for these episodes, or `run.truth` of an earlier run in the same
        world: optima are then not computed again.
    progress
        Called as progress(stage, done, total) with stages "optimum" and "learning".

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
    measure_every = _check.integer("measure_every", measure_every, upper=world.M)
    seed = _check.integer("seed", seed, lower=0)
    model: DriftingWorld | None = None
    if not isinstance(world, GymnasiumWorld):
        model = world
    elif noisy:
        _check.fail("noisy", "False: an environment is as noisy as it is", noisy)
    else:
        model = world.model
    episodes = np.arange(0, world.M, measure_every)
    grid = None
    if isinstance(world, LinearKernelCMDP) and world.box is not None:
        grid = GridError(world, episodes)
    if model is None:
        _check_unmeasured(truth, measure_every)
        truth = _unknown_truth(episodes, np.array(world.thresholds))
    elif truth is None:
        truth = measure_truth(model, episodes, progress=progress)
    else:
        _check_truth(truth, world, episodes)
    played = learner.fresh(seeds(seed)["learner"])
    outcome, trace, policy = _learn(world, model, played, seed, noisy, episodes, progress, grid)
    error = None if grid is None else grid.error(truth.optimal_reward, outcome)
    manifest = _manifest(world, played, trace, seed, noisy, measure_every, error)
    return Run(truth, outcome, trace, manifest, policy, played)


def _learn(
    world: World,
    model: DriftingWorld | None,
    learner: Learner,
    seed: int,
    noisy: bool,
    episodes: IntArray,
    progress: Progress | None,
    grid: GridError | None,
) -> tuple[Outcome, dict[str, NDArray[Any]], FloatArray]:
    """Play all episodes; returns outcome and trace of the listed ones, and the last policy."""
    K = learner.sizes.K
    last = np.array([world.M - 1])
    values = np.empty((world.M, 1 + K))
    returns: list[FloatArray] = []
    traces: list[Any] = []
    policy = np.empty(0)
    watch = None if grid is None else grid.watch
    # The last episode's policy is kept too: it is what a run hands over.
    kept = np.union1d(episodes, last)
    for part in play_chunks(world, learner, seed, noisy, kept, watch=watch):
        if len(part.policies):
            policy = part.policies[-1]
            if model is not None:
                values[part.measured] = evaluate_episodes(model, part.measured, part.policies)
        returns.append(part.returns)
        traces.append(part.trace)
        if progress:
            progress("learning", part.first + part.size, world.M)
    observed = np.concatenate(returns)[episodes]
    trace = {name: np.concatenate([part[name] for part in traces])[episodes] for name in traces[0]}
    measured = observed if model is None else values[episodes]
    return Outcome(measured[:, 0], measured[:, 1:], observed), trace, policy.copy()


def measure_truth(
    world: DriftingWorld, episodes: IntArray | None = None, *, progress: Progress | None = None
) -> Truth:
    """Return optima, drift and the uniform policy's values of the listed episodes (all by default).

    Raises
    ------
    ValueError
        If one of the episodes is infeasible: there is then no optimum to compare with.
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
    trace: dict[str, NDArray[Any]],
    seed: int,
    noisy: bool,
    measure_every: int,
    discretisation: dict[str, Any] | None,
) -> Manifest:
    notes = getattr(learner, "notes", None)
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
        learner=LearnerRecord(
            name=learner.name,
            settings=learner.settings(),
            notes=[] if notes is None else list(notes(trace)),
            events=_events(learner, names),
        ),
        sizes=SizesRecord(**sizes),
        seed=seed,
        noisy=noisy,
        measure_every=measure_every,
        discretisation=discretisation,
    )


def _events(learner: Learner, names: Sequence[str]) -> list[Event]:
    """Changes that the learner noticed, with the names of the constraints where they have any."""
    noticed = getattr(learner, "events", None)
    found: list[Event] = [] if noticed is None else noticed()
    if not names and learner.sizes.K > 1:
        return found
    called = {f"utility {k}": name for k, name in enumerate(names or ("utility",))}
    return [replace(x, quantity=called.get(x.quantity, x.quantity)) for x in found]


# ---------------------------------------------------------------- checks


def check_learner_type(learner: object) -> None:
    """Refuse what does not have the methods of a learner, naming the first that is missing."""
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


def _check_unmeasured(truth: Truth | None, measure_every: int) -> None:
    """Refuse what has no meaning in a world without a model."""
    if truth is not None:
        _check.fail("truth", "None in a world without a model", "Truth")
    if measure_every > 1:
        _check.fail("measure_every", "1 in a world without a model", measure_every)


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
