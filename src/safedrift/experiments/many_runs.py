"""Many runs of one world in one call: learners or settings times seeds, on all cores or on a GPU.

A run is that of `simulate` with the same world, learner and seed, to the last bit. It is played a
chunk of episodes at a time, and each chunk is measured and added to running sums at once:

    sums[n] = Σ_{m≤n} weight_m (regret_m, [regret_m]_+, shortfall_m, [shortfall_m]_+)

so memory does not grow with the number of episodes, beyond the world and its optima, which all runs
share. Compiled learners run in threads, which release the GIL; others in processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Event
from typing import Any, NamedTuple, get_args

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray, IntArray
from safedrift.experiments.engines import Engine, LocalEngine, ThreadEngine
from safedrift.experiments.entrants import entrants
from safedrift.experiments.playing import play_chunks, played_arrays
from safedrift.experiments.simulation import check_learner_type, check_sizes, measure_truth
from safedrift.experiments.streams import listed_seeds
from safedrift.experiments.streams import seeds as children
from safedrift.experiments.workers import portable
from safedrift.learners import FastPath, Learner
from safedrift.models import DriftingWorld
from safedrift.oracles import evaluate_episodes
from safedrift.results import LearnerRecord, SizesRecord, Truth
from safedrift.results.many_runs import ManyRuns, ManyRunsManifest, recorded_rows
from safedrift.results.measured import measured_episodes

__all__ = ["simulate_many"]

Progress = Callable[[str, int, int], None]
"""Called with (stage, episodes done, episodes in all)."""


class Job(NamedTuple):
    """What all runs share; run i is learner i // R with seed i % R."""

    world: DriftingWorld
    learners: list[Learner]
    seeds: list[int]
    noisy: bool
    truth: Truth
    weights: FloatArray  # (n,) episodes that each measured one stands for
    recorded: IntArray  # which of the n measured episodes are recorded
    stop: Event | None  # set when nobody waits for the answer any more


def simulate_many(
    world: DriftingWorld,
    learners: Any,
    seeds: int | Sequence[int] = 10,
    *,
    device: str = "cpu",
    noisy: bool = False,
    measure_every: int = 1,
    record_log: int = 50,
    truth: Truth | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> ManyRuns:
    """Play every learner with every seed in one world; return exact regret and violation.

    Parameters
    ----------
    world
        A world with a model.
    learners
        A learner, a specification as in `compare` ("propd-ppo:alpha=0.1"), a callable that takes
        the world, a list of these, or a dict of labels and these.
    seeds
        A number n stands for seeds 0, ..., n - 1.
    device
        "cpu", or "gpu" for PROPD-PPO with counts (docs/many-runs.md); `devices` says what there is.
    noisy
        Observe Bernoulli rewards and utilities with the model's means instead of the means.
    measure_every
        Exact values and optima of every n-th episode only; each stands for the n - 1 after it.
    record_log
        Sums are recorded at log-spaced episodes, each a q-th further than the one before.
    truth
        What `measure_truth` found for the measured episodes: optima are then not computed again.
    workers
        Number of threads or processes; by default one per core.
    progress
        Called as progress(stage, done, total) with stages "optimum" and "playing".

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("maze", episodes=100)
    >>> settings = {f"alpha={x}": f"propd-ppo:gamma=0.45,alpha={x}" for x in (0.1, 1.0)}
    >>> found = sd.simulate_many(world, settings, seeds=3)
    >>> found.dynamic_regret.shape == (2, 3, found.episodes.size)
    True
    """
    _check.kind("world", world, get_args(DriftingWorld))
    _check.choice("device", device, ("cpu", "gpu"))
    _check.kind("noisy", noisy, bool)
    wanted = listed_seeds(seeds)
    threads = _threads(workers)
    episodes = measured_episodes(world.M, measure_every)
    recorded = recorded_rows(episodes, _check.integer("record_log", record_log, upper=10**6))
    given = _labelled(learners)
    if truth is None:
        truth = measure_truth(world, episodes, progress=progress)
    elif not np.array_equal(truth.episodes, episodes):
        _check.fail("truth", "that of this world's measured episodes", "another")
    field = {label: _built(x, world, truth, noisy) for label, x in given.items()}
    weights = np.diff(episodes, append=world.M).astype(np.float64)
    job = Job(world, list(field.values()), wanted, noisy, truth, weights, recorded, None)
    if device == "gpu":
        from safedrift.experiments.gpu_runs import sums_on_gpu  # CuPy takes a while to import

        sums, name = sums_on_gpu(job, progress)
        device = f"gpu: {name}"
    else:
        sums = _sums(job, threads, progress)
    manifest = ManyRunsManifest(
        problem=world.name,
        sizes=SizesRecord(**{name: int(getattr(world, name)) for name in SizesRecord.model_fields}),
        learners={
            label: LearnerRecord(name=learner.name, settings=learner.settings())
            for label, learner in field.items()
        },
        device=device,
        noisy=noisy,
        measure_every=measure_every,
    )
    return _collected(manifest, np.array(wanted), episodes[recorded], sums)


def _threads(workers: int | None) -> int:
    if workers is not None:
        return _check.integer("workers", workers)
    return int(os.environ.get("SAFEDRIFT_THREADS", "0")) or os.cpu_count() or 1


def _collected(
    manifest: ManyRunsManifest, seeds: IntArray, episodes: IntArray, sums: FloatArray
) -> ManyRuns:
    """Cut the columns of sums (L*R, n, 2 + 2K) apart."""
    K = manifest.sizes.K
    each = sums.reshape(len(manifest.learners), seeds.size, episodes.size, 2 + 2 * K)
    return ManyRuns(
        manifest,
        seeds,
        episodes,
        dynamic_regret=each[..., 0].copy(),
        positive_regret=each[..., 1].copy(),
        violation=np.maximum(each[..., 2 : 2 + K], 0),
        positive_violation=each[..., 2 + K :].copy(),
    )


# ---------------------------------------------------------------- who plays


def _is_learner(value: Any) -> bool:
    return hasattr(value, "begin_episode") and not isinstance(value, type)


def _labelled(learners: Any) -> dict[str, Any]:
    """Learners and specifications by label."""
    listed: list[tuple[str | None, Any]]
    if isinstance(learners, Mapping):
        listed = [(str(label), x) for label, x in learners.items()]
    elif isinstance(learners, Iterable) and not isinstance(learners, str):
        listed = [(None, x) for x in learners]
    else:
        listed = [(None, learners)]
    if not listed:
        _check.fail("learners", "at least one", "none")
    found: dict[str, Any] = {}
    for label, x in listed:
        entry = x if _is_learner(x) else entrants([x])[0]
        name = label or (x.name if _is_learner(x) else entry.label)
        if name in found:
            _check.fail("labels of learners", "different: give a dict", f"{name!r} twice")
        found[name] = entry
    return found


def _built(given: Any, world: DriftingWorld, truth: Truth, noisy: bool) -> Learner:
    """A learner for the world; what a specification leaves open is told as in a comparison."""
    if not _is_learner(given):
        made: Learner = given.build(world, float(truth.gamma.min()), noisy)
        return made
    check_learner_type(given)
    check_sizes(world, given)
    learner: Learner = given
    return learner


# ---------------------------------------------------------------- runs on all cores


def _sums(job: Job, workers: int, progress: Progress | None) -> FloatArray:
    """Running sums (L*R, recorded, 2 + 2K) of all runs."""
    R = len(job.seeds)
    sums = np.empty((len(job.learners) * R, job.recorded.size, 2 + 2 * job.world.K))
    arrays = played_arrays(job.world)  # made before threads ask for them
    kinds: dict[type[Any], list[int]] = {ThreadEngine: [], LocalEngine: []}
    for i, learner in enumerate(job.learners):
        compiled = isinstance(learner, FastPath) and learner.plays(arrays)
        kinds[ThreadEngine if compiled else LocalEngine] += range(i * R, (i + 1) * R)
    away = workers > 1 and len(kinds[LocalEngine]) > 1 and portable(job)
    done = 0
    for kind, runs in kinds.items():
        if not runs:
            continue
        engine: Engine = kind(workers if kind is ThreadEngine or away else 1)
        stop = Event()
        own = job._replace(stop=stop) if kind is ThreadEngine else job
        try:
            with engine.session(own) as session:
                for i, found in session.results(play_run, runs):
                    if found is None:
                        raise RuntimeError("a process that played a run died")
                    sums[i] = found
                    done += 1
                    if progress:
                        progress("playing", done * job.world.M, len(sums) * job.world.M)
        except BaseException:
            stop.set()
            raise
    return sums


def play_run(job: Job, i: int) -> FloatArray:
    """Return the recorded sums (recorded, 2 + 2K) of run i."""
    learner, seed = job.learners[i // len(job.seeds)], job.seeds[i % len(job.seeds)]
    played, episodes = learner.fresh(children(seed)["learner"]), job.truth.episodes
    found = np.empty((job.recorded.size, 2 + 2 * job.world.K))
    total, done = np.zeros(found.shape[1]), 0
    for part in play_chunks(job.world, played, seed, job.noisy, episodes):
        if job.stop is not None and job.stop.is_set():
            break
        n = part.measured.size
        if n:
            values = evaluate_episodes(job.world, part.measured, part.policies, threads=1)
            sums = running_sums(job, slice(done, done + n), values, total)
            first, last = np.searchsorted(job.recorded, (done, done + n))
            found[first:last] = sums[job.recorded[first:last] - done]
            total, done = sums[-1], done + n
    return found


def running_sums(job: Job, rows: slice, values: FloatArray, before: FloatArray) -> FloatArray:
    """Sums (n, 2 + 2K) up to each of n measured episodes, which begin at `before` (2 + 2K,).

    Parameters
    ----------
    rows : which of the measured episodes
    values : (n, 1+K) exact values of their policies
    """
    regret = job.truth.optimal_reward[rows, None] - values[:, :1]
    shortfall = job.truth.thresholds[rows] - values[:, 1:]
    parts = (regret, np.maximum(regret, 0), shortfall, np.maximum(shortfall, 0))
    terms = np.concatenate(parts, axis=1) * job.weights[rows, None]
    return np.cumsum(np.vstack((before, terms)), axis=0)[1:]
