"""Play a learner in a world, measure it exactly, return a `Run`.

Learning and truth are kept apart. The compiled loop plays chunks of episodes and hands over the
policies of the measured ones; their exact values are computed afterwards, in threads. Randomness is
one SeedSequence with named children: actions come from "learner", states and noise from "world".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, get_args

import numpy as np

from safedrift import _check
from safedrift.adapters.gymnasium_worlds import GymnasiumWorld
from safedrift.experiments.box import Refinement, box_uniforms, play_on_box
from safedrift.experiments.sampled import measured_run, observed_run, play_in_environment
from safedrift.kernels import simulation
from safedrift.kernels.types import Features
from safedrift.learners import PROPDPPO
from safedrift.learners.propd_ppo.engines import BoxEngine, TableEngine
from safedrift.models import DriftingWorld, LinearKernelCMDP
from safedrift.oracles import Optima, evaluate_episodes, optima, variation
from safedrift.results.run import Run, make_run

__all__ = ["Progress", "seeds", "simulate"]

World = DriftingWorld | GymnasiumWorld

Progress = Callable[[str, int, int], None]
"""Called with (stage, episodes done, episodes in all)."""

_POLICY_BYTES = 32 * 2**20  # of policies kept between learning and measuring
_CHUNK = 1024  # episodes between two reports of progress;
_CHUNK_IN_PYTHON = 32  # fewer where an episode takes milliseconds


def seeds(seed: int) -> dict[str, np.random.SeedSequence]:
    """Return the named children of a run's seed."""
    names = ("world", "learner")
    return dict(zip(names, np.random.SeedSequence(seed).spawn(len(names)), strict=True))


def simulate(
    world: World,
    agent: PROPDPPO,
    seed: int = 0,
    *,
    noisy: bool = False,
    measure_every: int = 1,
    truth: Optima | None = None,
    progress: Progress | None = None,
) -> Run:
    """Play a fresh copy of `agent` through all episodes of `world`; `agent` itself stays as it is.

    Parameters
    ----------
    world
        A world with a model, or an environment from `from_gymnasium`. Where that has none, the run
        holds what was observed.
    seed
        Same seed, same numbers.
    noisy
        Observe Bernoulli rewards and utilities with the model's means instead of the means.
    measure_every
        Exact values and optima of every n-th episode only; each stands for the n - 1 after it.
    truth
        Optima of the measured episodes, if known from an earlier run in the same world.
    progress
        Called as progress(stage, done, total) with stages "optimum" and "learning".

    Raises
    ------
    ValueError
        If world and agent disagree in size, or a measured episode is infeasible.
    """
    _check.kind("world", world, get_args(World))
    _check.kind("agent", agent, PROPDPPO)
    _check.kind("noisy", noisy, bool)
    check_sizes(world, agent)
    measure_every = _check.integer("measure_every", measure_every, upper=world.M)
    seed = _check.integer("seed", seed, lower=0)
    report = progress or (lambda stage, done, total: None)
    learner = agent.fresh(seeds(seed)["learner"])
    known: DriftingWorld
    if not isinstance(world, GymnasiumWorld):
        known = world
    elif noisy:
        _check.fail("noisy", "False: an environment is as noisy as it is", noisy)
    elif world.truth is not None:
        known = world.truth
    else:
        _nothing_to_measure(truth, measure_every)
        nothing = np.zeros(0, np.int64)
        record, _ = _learn(world, learner, seed, noisy, nothing, report, None)
        return observed_run(world, learner, record, seed)
    episodes = np.arange(0, world.M, measure_every)
    refinement = None
    if isinstance(world, LinearKernelCMDP) and world.box is not None:
        refinement = Refinement(world, episodes)
    if truth is None:
        truth = _optima(known, episodes, report)
    elif not (
        np.array_equal(_check.kind("truth", truth, Optima).episodes, episodes)
        and np.array_equal(truth.thresholds, world.thresholds[episodes])
    ):
        _check.fail("truth", "the optima of this world's measured episodes", "others")
    check_feasible(known, truth)
    record, values = _learn(world, learner, seed, noisy, episodes, report, refinement)
    if isinstance(world, GymnasiumWorld):
        return measured_run(world, known, learner, truth, values, record, seed, measure_every)
    return make_run(
        world, learner, truth, values, record, variation(world),
        seed=seed, noisy=noisy, measure_every=measure_every,
        discretisation=None if refinement is None else refinement.error(truth, values),
    )  # fmt: skip


def _nothing_to_measure(truth: Optima | None, measure_every: int) -> None:
    """Refuse what has no meaning in a world without a model."""
    if truth is not None:
        _check.fail("truth", "None in a world without a model", "Optima")
    if measure_every > 1:
        _check.fail("measure_every", "1 in a world without a model", measure_every)


def _learn(
    world: World,
    learner: PROPDPPO,
    seed: int,
    noisy: bool,
    episodes: np.ndarray,
    report: Progress,
    refinement: Refinement | None,
) -> tuple[simulation.Record, np.ndarray]:
    """Play all episodes; returns what was recorded and the exact values (n, 1+K)."""
    values = np.empty((episodes.size, 1 + learner.sizes.K))
    records = []
    written = 0
    known = world.truth if isinstance(world, GymnasiumWorld) else world
    for part in play_chunks(world, learner, seed, noisy, episodes, refinement):
        n = len(part.policies)
        if known is not None and n:
            found = evaluate_episodes(known, part.measured, part.policies)
            values[written : written + n] = found
        records.append(part.record)
        written += n
        report("learning", part.first + len(part.record.mu), world.M)
    whole = simulation.Record(*(np.concatenate(parts) for parts in zip(*records, strict=True)))
    return whole, values


class Chunk(NamedTuple):
    """Consecutive episodes just played."""

    first: int
    measured: np.ndarray  # numbers of the episodes whose policies are kept
    policies: np.ndarray  # (n, H, S, A)
    record: simulation.Record
    log: simulation.Log


def play_chunks(
    world: World,
    learner: PROPDPPO,
    seed: int,
    noisy: bool,
    episodes: np.ndarray,
    refinement: Refinement | None = None,
    *,
    logged: bool = False,
) -> Iterator[Chunk]:
    """Play all episodes, keeping the policies of the listed ones; `logged` keeps estimates too."""
    M, H, S, A, K = learner.sizes
    C = learner.memory.v_start.size
    children = seeds(seed)
    world_stream = np.random.default_rng(children["world"])
    action_stream = np.random.default_rng(children["learner"])
    measured = np.zeros(M, bool)
    measured[episodes] = True
    per_chunk = max(1, _POLICY_BYTES // (8 * H * S * A * (1 + C if logged else 1)))
    play = _player(world, learner, seed, refinement)
    trajectory = simulation.make_trajectory(H, K)
    draws = world_uniforms(world)
    arrays = None if isinstance(world, GymnasiumWorld) else world.arrays
    chunk = _CHUNK if refinement is None and arrays is not None else _CHUNK_IN_PYTHON
    done = 0
    while done < M:
        # A chunk ends after `chunk` episodes or when its policies fill their share of memory.
        ahead = np.flatnonzero(measured[done : done + chunk])
        B = min(chunk, M - done) if ahead.size <= per_chunk else int(ahead[per_chunk])
        ahead = ahead[ahead < B]
        policies = np.empty((ahead.size, H, S, A))
        learner.reserve(B)
        record = simulation.make_record(B, K, C)
        log = simulation.make_log(B if logged else 0, C, H, S, A, K)
        play(
            arrays, learner.settings, learner.memory, noisy,
            action_stream.random((B, H)),
            world_stream.random((B, draws)),
            measured[done : done + B], policies, trajectory, log, record,
        )  # fmt: skip
        yield Chunk(done, done + ahead, policies, record, log)
        done += B


def _player(
    world: World, learner: PROPDPPO, seed: int, refinement: Refinement | None
) -> Callable[..., None]:
    """The loop that fits the learner: compiled, or in Python around a box or an environment."""
    if isinstance(world, GymnasiumWorld):
        first = int(seeds(seed)["world"].generate_state(1)[0])
        return partial(play_in_environment, world, learner.engine, first)
    if refinement is not None and isinstance(learner.engine, BoxEngine):
        return partial(play_on_box, refinement.coarse, learner.engine, refinement)
    if isinstance(learner.engine, TableEngine):
        return simulation.play
    return simulation.play_linear


def world_uniforms(world: World) -> int:
    """How many numbers an episode takes from the world's stream."""
    if isinstance(world, GymnasiumWorld):
        return 0  # an environment has a stream of its own
    box = getattr(world, "box", None)
    if box is not None:
        return box_uniforms(world.H, world.K, box.low.size)
    return simulation.world_uniforms_per_episode(world.H, world.K)


def _optima(world: DriftingWorld, episodes: np.ndarray, report: Progress) -> Optima:
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        report("optimum", done, episodes.size)

    return optima(world, episodes, advance)


def check_sizes(world: World, agent: PROPDPPO) -> None:
    """Refuse an agent that was made for another world."""
    for name in ("M", "H", "S", "A", "K"):
        wanted, got = getattr(world, name), getattr(agent.sizes, name)
        if wanted != got:
            _check.fail(f"the agent's {name}", f"the world's, {wanted}", got)
    if not np.array_equal(world.initial, agent.initial):
        _check.fail("the agent's initial distribution", "the world's", "another")
    on_box = getattr(world, "box", None) is not None
    if not _same(getattr(world, "features", None), agent.features) or on_box != (
        agent.box is not None
    ):
        _check.fail(
            "the agent",
            "made for this world's features: PROPDPPO.for_problem(world, ...)",
            "others",
        )


def _same(one: Features | None, other: Features | None) -> bool:
    """Whether two sets of features, or none, are equal."""
    if one is None or other is None or one is other:
        return one is other
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in one._fields)


def check_feasible(world: DriftingWorld, truth: Optima) -> None:
    """Refuse infeasible episodes: they have no optimum to compare with."""
    if not truth.feasible.all():
        wrong = np.flatnonzero(~truth.feasible)
        i = wrong[0]
        m = truth.episodes[i]
        raise ValueError(
            f"every episode must be feasible (some policy with utility >= threshold); got "
            f"{wrong.size} infeasible of {truth.episodes.size} measured, the first at episode {m}: "
            f"best reachable utility {truth.utilities[i].round(6).tolist()}, "
            f"threshold {world.thresholds[m].round(6).tolist()}"
        )
