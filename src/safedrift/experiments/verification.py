"""Verify a run folder: its files are as they were written, and playing gives what they say.

Hashes find damage; replaying finds a wrong record, whoever wrote it. The first episodes are played
again from the start, and some more from each checkpoint; what comes out must be the recorded rows,
bit for bit. Optima of the same episodes are solved again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from safedrift import _check
from safedrift._check import IntArray
from safedrift._version import __version__
from safedrift.experiments.certification import compare_columns, learner_of, world_of
from safedrift.experiments.checkpoints import checkpoint_files, read_checkpoint
from safedrift.experiments.entrants import entrants
from safedrift.experiments.playing import play_chunks
from safedrift.experiments.row_files import world_digest
from safedrift.experiments.simulation import measured_rows
from safedrift.experiments.streams import seeds
from safedrift.learners import LEARNERS, PROPDPPO, Learner
from safedrift.models import DriftingWorld
from safedrift.oracles import evaluate_episodes, optima
from safedrift.results import Run
from safedrift.results.run_folders import (
    FolderManifest,
    check_files,
    from_folder,
    identity,
    read_folder_manifest,
    state_of,
)

__all__ = ["Verification", "verify"]

EPISODES = 200  # played again from each place


@dataclass(frozen=True)
class Verification:
    """What was checked of a run folder, and what is wrong with it.

    Attributes
    ----------
    manifest : what the folder says of itself
    checked : one sentence for each check that was passed
    problems : one sentence for each that was not
    skipped : why some check could not be made
    """

    manifest: FolderManifest
    checked: tuple[str, ...]
    problems: tuple[str, ...]
    skipped: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def verify(
    folder: str | Path,
    world: DriftingWorld | None = None,
    learner: Learner | None = None,
    *,
    episodes: int = EPISODES,
) -> Verification:
    """Check the files of a finished run and play some of its episodes again.

    Parameters
    ----------
    folder
        Of a run that is done.
    world
        Needed to play a run in a world of your own again.
    learner
        Needed to play a run again whose learner was not made by the command, unless it is
        PROPD-PPO.
    episodes
        How many are played again from the start and from each checkpoint; 0: none.

    Raises
    ------
    ValueError
        If the manifest itself is damaged or the run is not done.

    Examples
    --------
    >>> import tempfile
    >>> import safedrift as sd
    >>> from safedrift.experiments.verification import verify
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> agent = sd.PROPDPPO.for_problem(world, sd.Slater(0.2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = sd.simulate(world, agent, out=folder + "/run")
    ...     found = verify(folder + "/run")
    >>> found.good, found.checked[-1]
    (True, '50 episodes from the start, played again: the same bits')
    """
    path = Path(folder)
    episodes = _check.integer("episodes", episodes, lower=0)
    manifest = read_folder_manifest(path)
    state = state_of(path, manifest)
    if state != "done":
        _check.fail(str(path), "the folder of a finished run", f"one that is {state}")
    problems = check_files(path, manifest)
    checked = [] if problems else [f"{len(manifest.files)} files: SHA-256 as in the manifest"]
    if problems:
        return Verification(manifest, (), tuple(problems), ())
    run = from_folder(path)
    checked.append(f"{run.episodes.size:,} records: schema, sizes, settings")
    if manifest.id != identity(run.manifest, manifest.world):
        problems.append(f"{path} must have the id that its settings give; got {manifest.id}")
    skipped: tuple[str, ...] = ()
    try:
        if episodes == 0:
            _check.fail("episodes", ">= 1 for that", 0)
        world, agent = _players(manifest, run, world, learner)
    except (ValueError, TypeError) as error:
        skipped = (f"nothing was played again: {error}",)
    else:
        _replay(path, manifest, run, world, agent, episodes, checked.append, problems.append)
    return Verification(manifest, tuple(checked), tuple(problems), skipped)


def _players(
    manifest: FolderManifest, run: Run, world: DriftingWorld | None, learner: Learner | None
) -> tuple[DriftingWorld, Learner]:
    """World and learner of a run; a sentence says why they cannot be made."""
    stored = run.manifest
    if stored.version != __version__:
        _check.fail("the run", f"one of safedrift {__version__}", f"version {stored.version}")
    if stored.environment is not None:
        _check.fail("the run", "of a world with a model", "one of an environment")
    made = world_of(run) if world is None else world
    return made, learner or named_learner(manifest, run, made) or learner_of(run, made)


def named_learner(manifest: FolderManifest, run: Run, world: DriftingWorld) -> Learner | None:
    """Return the learner that the command was asked for by name; None where it was PROPD-PPO.

    Named learners only: nothing that a folder says may run the code of a file.
    """
    source = manifest.request.get("learner")
    named = isinstance(source, str) and source.partition(":")[0] in LEARNERS
    if not named or source == PROPDPPO.name:
        return None
    (entrant,) = entrants([source])
    return entrant.build(world, float(run.truth.gamma.min()), run.manifest.noisy)


def _replay(
    path: Path,
    manifest: FolderManifest,
    run: Run,
    world: DriftingWorld,
    agent: Learner,
    count: int,
    passed: Callable[[str], None],
    failed: Callable[[str], None],
) -> None:
    """Play some episodes again and compare them with the records."""
    if world_digest(world) != manifest.world:
        failed(f"{path} must be a run of this world; got one of a world with other arrays")
        return
    agent = agent.fresh(seeds(run.manifest.seed)["learner"])
    places: list[tuple[str, int]] = [("the start", 0)]
    begin = {"the start": agent.state()}
    for file in checkpoint_files(path):
        try:
            point = read_checkpoint(file, manifest.id or "")
        except ValueError as error:
            failed(str(error))
            continue
        places.append((file.name, point.done))
        begin[file.name] = point.learner
    for name, done in places:
        stop = min(done + count, world.M)
        try:
            agent.restore(begin[name])
            played = _play(world, agent, run, done, stop)
            start, end = np.searchsorted(run.episodes, (done, stop))
            if start < end:
                facts = _truth(world, run.episodes[start:end])
                compare_columns(run, world, slice(start, end), facts)
                compare_columns(run, world, slice(start, end), played, exact=True)
        except (ValueError, TypeError, KeyError) as error:
            failed(f"{path}, from {name}: {error}")
            continue
        passed(f"{stop - done:,} episodes from {name}, played again: the same bits")


def _play(
    world: DriftingWorld, agent: Learner, run: Run, first: int, stop: int
) -> dict[str, np.ndarray]:
    """Rows of the measured episodes in [first, stop)."""
    listed = run.episodes[(run.episodes >= first) & (run.episodes < stop)]
    parts = []
    stored = run.manifest
    for part in play_chunks(world, agent, stored.seed, stored.noisy, listed, first=first):
        parts.append(measured_rows(world, part, listed))
        if part.first + part.size >= stop:
            break
    return {name: np.concatenate([rows[name] for rows in parts]) for name in parts[0]}


def _truth(world: DriftingWorld, episodes: IntArray) -> dict[str, np.ndarray]:
    """Facts about episodes that do not depend on the ones before them."""
    best = optima(world, episodes)
    uniform = np.full((1, world.H, world.S, world.A), 1 / world.A)
    baseline = evaluate_episodes(world, episodes, uniform)
    return {
        "episodes": episodes,
        "thresholds": world.thresholds[episodes],
        "optimal_reward": best.value,
        "optimal_mu": best.multipliers,
        "gamma": best.gamma,
        "baseline_reward": baseline[:, 0],
        "baseline_utility": baseline[:, 1:],
    }
