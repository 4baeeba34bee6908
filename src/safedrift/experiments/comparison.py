"""Compare learners in several worlds with common random numbers.

Every learner plays every world with every seed. The seed of a run fixes the uniforms that draw
states, actions and noise, so two learners with the same seed meet the same luck and their scores
are compared in pairs. The truth of a world (optima, Slater gaps, the uniform policy's values) is
solved once and shared by all runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from safedrift import _check
from safedrift.adapters.gymnasium_worlds import GymnasiumWorld
from safedrift.experiments.calibration import tuned
from safedrift.experiments.entrants import Entrant, entrants, parse_options
from safedrift.experiments.row_files import RowFile, key_of, world_digest
from safedrift.experiments.simulation import measure_truth
from safedrift.experiments.streams import listed_seeds
from safedrift.experiments.workers import Arena, Player, Task, rows_of
from safedrift.gpu.available import require_gpu
from safedrift.models import DriftingWorld
from safedrift.problems import make
from safedrift.results import Truth
from safedrift.results.comparison import Comparison, ComparisonManifest, LearnerEntry, WorldEntry
from safedrift.results.scores import RunScore
from safedrift.worldfiles.loading import is_file, load

__all__ = ["ComparisonStopped", "Progress", "compare", "named_worlds"]

EPISODES = 20_000

Progress = Callable[[str, int, int], None]
"""Called with (stage, episodes done, episodes in all)."""

Worlds = Sequence[Any] | Mapping[str, Any]
Learners = Iterable[Any] | Mapping[str, Any]


class ComparisonStopped(KeyboardInterrupt):
    """Ctrl-C while runs were playing; `comparison` has the rows that were finished.

    Examples
    --------
    >>> from safedrift.experiments import ComparisonStopped
    >>> issubclass(ComparisonStopped, KeyboardInterrupt)
    True
    """

    def __init__(self, comparison: Comparison) -> None:
        done, planned = len(comparison.rows), comparison.planned
        super().__init__(f"stopped after {done:,} of {planned:,} runs")
        self.comparison = comparison


def compare(
    worlds: Worlds,
    learners: Learners,
    seeds: int | Sequence[int] = 10,
    *,
    episodes: int | None = None,
    noisy: bool = False,
    measure_every: int = 1,
    tune: int = 0,
    skip: bool = False,
    out: str | Path | None = None,
    workers: int | None = None,
    device: str = "cpu",
    points: int = 200,
    progress: Progress | None = None,
) -> Comparison:
    """Let every learner play every world with every seed, and compare them.

    Parameters
    ----------
    worlds
        Names ("maze"), names with options ("random:states=8,drift=linear"), files (see
        docs/your-own-world.md), worlds, or a dict of labels and any of these.
    learners
        Specifications as in `experiments.entrants`, callables that take the world, or a dict of
        labels and any of these.
    seeds
        A number n stands for seeds 0, ..., n - 1.
    episodes
        M of named worlds; 20,000 by default.
    noisy
        Observe Bernoulli rewards and utilities.
    measure_every
        Exact values of every n-th episode only: faster, and estimates.
    tune
        Give every learner a random search over so many settings first, on worlds kept apart
        (`experiments.calibration`).
    skip
        Give a learner that cannot play a world a row that says so, instead of raising an error.
    out
        Folder for the rows, written as runs finish. The same folder again continues.
    workers
        Number of processes; by default one per core. 1 plays everything in this process.
    device
        "gpu": PROPD-PPO with counts is played on a card, all settings and seeds of a world at once
        (docs/many-runs.md), other learners on the cores.
    points
        Points of the curves that are kept of each run.
    progress
        Called as progress(stage, done, total) with stages "optimum", "tuning" and "playing".

    Raises
    ------
    ComparisonStopped
        A KeyboardInterrupt with the comparison of what was finished.

    Examples
    --------
    >>> import safedrift as sd
    >>> found = sd.compare(["stationary"], ["uniform", "optimum-of-first-episode"], seeds=2,
    ...                    episodes=50, workers=1)
    >>> found.verdict()
    'uniform has the smallest strict score, 1 (95% interval 1 to 1), the interquartile mean over 2 \
seeds in stationary; there is no other learner to compare it with.'
    """
    wanted = listed_seeds(seeds)
    field = entrants(learners)
    _check.choice("device", device, ("cpu", "gpu"))
    _check.kind("noisy", noisy, bool)
    _check.kind("skip", skip, bool)
    tune = _check.integer("tune", tune, lower=0)
    points = _check.integer("points", points, lower=0, upper=100_000)
    processes = _check.integer("workers", os.cpu_count() or 1 if workers is None else workers)
    places = named_worlds(worlds, episodes)
    for world in places.values():
        _check.integer("measure_every", measure_every, upper=world.M)
    player = _player(device)
    refusals = _refusals(places, field, noisy, skip)
    rows = RowFile(out)
    if tune:
        field = tuned(
            field, tune, noisy=noisy, rows=rows, workers=processes, player=player,
            progress=progress,
        )  # fmt: skip
    tasks = [
        Task(
            _key(label, digest, entrant, seed, noisy, measure_every, points),
            label, entrant, seed, noisy, measure_every, points,
        )
        for digest, label in [(world_digest(world), label) for label, world in places.items()]
        for entrant in field
        for seed in wanted
    ]  # fmt: skip
    tasks.sort(key=lambda task: wanted.index(task.seed))  # what is stopped has whole seeds
    for task in tasks:
        if (task.arena, task.entrant.label) in refusals:
            rows.known[task.key] = _refused(task, refusals[task.arena, task.entrant.label])
    missing = [
        task
        for task in tasks
        if task.key not in rows.finished([task.key])
        and (task.arena, task.entrant.label) not in refusals
    ]
    truths = _truths({t.arena: places[t.arena] for t in missing}, measure_every, progress)
    arenas = {label: Arena(places[label], truth) for label, truth in truths.items()}
    total = sum(places[task.arena].M for task in tasks)
    done = total - sum(places[task.arena].M for task in missing)
    stopped = False
    if progress and missing:
        progress("playing", done, total)
    try:
        for row in player(missing, arenas, processes):
            rows.add(row)
            done += places[row.world].M
            if progress:
                progress("playing", done, total)
    except KeyboardInterrupt:
        stopped = True
    found = _comparison(places, field, wanted, tasks, rows, noisy, measure_every, tune)
    if stopped:
        raise ComparisonStopped(found)
    return found


def _player(device: str) -> Player:
    """Who plays the tasks; fails with one sentence where there is no GPU."""
    if device == "cpu":
        return rows_of
    from safedrift.experiments.gpu_rows import rows_with_gpu  # CuPy takes a while to import

    require_gpu()
    return rows_with_gpu


def _comparison(
    places: Mapping[str, DriftingWorld],
    field: Sequence[Entrant],
    seeds: Sequence[int],
    tasks: Sequence[Task],
    rows: RowFile,
    noisy: bool,
    measure_every: int,
    tune: int,
) -> Comparison:
    """The rows of the plan, in the order of the plan: worlds, learners, seeds."""
    order = {
        (label, entrant.label, seed): len(seeds) * (len(field) * i + j) + n
        for i, label in enumerate(places)
        for j, entrant in enumerate(field)
        for n, seed in enumerate(seeds)
    }
    kept = [rows.known[task.key] for task in tasks if task.key in rows.known]
    kept.sort(key=lambda row: order[row.world, row.learner, row.seed])
    manifest = ComparisonManifest(
        worlds=[_world_entry(label, world) for label, world in places.items()],
        learners=[_learner_entry(entrant, kept) for entrant in field],
        seeds=list(seeds),
        noisy=noisy,
        measure_every=measure_every,
        tune=tune,
    )
    return Comparison(manifest, tuple(kept))


def _world_entry(label: str, world: DriftingWorld) -> WorldEntry:
    sizes = {name: int(getattr(world, name)) for name in ("M", "H", "S", "A", "K")}
    return WorldEntry(label=label, sizes=sizes)


def _learner_entry(entrant: Entrant, rows: Sequence[RunScore]) -> LearnerEntry:
    told: list[str] = []
    for row in rows:
        if row.learner == entrant.label and row.settings:
            told += [x for x in row.settings.get("told", ()) if x not in told]
    return LearnerEntry(
        label=entrant.label,
        oracle=entrant.oracle,
        options=dict(entrant.chosen),
        tuned=None if entrant.tuned is None else dict(entrant.tuned),
        told=told,
    )


# ---------------------------------------------------------------- what is asked for


def named_worlds(worlds: Worlds, episodes: int | None = None) -> dict[str, DriftingWorld]:
    """Return the worlds of a comparison by label."""
    if isinstance(worlds, str) or not isinstance(worlds, Iterable):
        raise TypeError(f"worlds must be a list of worlds; got {worlds!r}")
    pairs: list[tuple[str | None, Any]]
    if isinstance(worlds, Mapping):
        pairs = [(label, source) for label, source in worlds.items()]
    else:
        pairs = [(None, source) for source in worlds]
    if not pairs:
        _check.fail("worlds", "at least one", "none")
    found: dict[str, DriftingWorld] = {}
    for label, source in pairs:
        world = _world(source, episodes)
        name = label or (source if isinstance(source, str) else world.name or "a world")
        if name in found:
            _check.fail("worlds", "different from each other", f"{name!r} twice")
        found[name] = world
    return found


def _world(source: Any, episodes: int | None) -> DriftingWorld:
    if isinstance(source, str) and not is_file(source):
        name, _, text = source.partition(":")
        return make(name, EPISODES if episodes is None else episodes, **parse_options(source, text))
    world = load(source, episodes) if isinstance(source, str) else source
    if isinstance(world, GymnasiumWorld):
        _check.fail("world", "one with a model, so that it has an optimum", "an environment")
    _check.kind("world", world, get_args(DriftingWorld))
    checked: DriftingWorld = world
    return checked


def _refusals(
    places: Mapping[str, DriftingWorld], field: Sequence[Entrant], noisy: bool, skip: bool
) -> dict[tuple[str, str], str]:
    """Why a learner cannot play a world, for every such pair; without `skip`, an error."""
    found = {}
    for label, world in places.items():
        for entrant in field:
            try:
                entrant.build(world, 0.1, noisy)  # the gap is not known yet
            except Exception as error:
                reason = " ".join(str(error).split())
                if not isinstance(error, ValueError | TypeError):
                    reason = f"{type(error).__name__}: {reason}"
                if not skip:
                    raise ValueError(f"{entrant.label} cannot play {label}: {reason}") from None
                found[label, entrant.label] = reason
    return found


def _refused(task: Task, reason: str) -> RunScore:
    names = (task.key, task.arena, task.entrant.label, task.seed)
    return RunScore(*names, status="refused", error=reason)


def _key(
    label: str,
    digest: str,
    entrant: Entrant,
    seed: int,
    noisy: bool,
    measure_every: int,
    points: int,
) -> str:
    return key_of(
        labels=[label, entrant.label],
        world=digest,
        learner=entrant.identity,
        seed=seed,
        noisy=noisy,
        measure_every=measure_every,
        points=points,
    )


def _truths(
    places: Mapping[str, DriftingWorld], measure_every: int, progress: Progress | None
) -> dict[str, Truth]:
    """What is true of each world."""
    episodes = {label: np.arange(0, world.M, measure_every) for label, world in places.items()}
    total = sum(at.size for at in episodes.values())
    before = 0
    found = {}

    def advance(stage: str, done: int, _: int) -> None:
        if progress:
            progress(stage, before + done, total)

    for label, world in places.items():
        try:
            found[label] = measure_truth(world, episodes[label], progress=advance)
        except ValueError as error:
            raise ValueError(f"{label}: {error}") from None
        before += episodes[label].size
    return found
