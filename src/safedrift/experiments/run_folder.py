"""A run that is written to a folder while it plays (`results.run_folders` says what is in it).

    with RunFolder("runs/first", resume=True) as folder:
        run = simulate(world, learner, out=folder)
        folder.finish(run)

The folder is locked, shown to be writable and to have room before anything is computed. It is never
overwritten: a run that replaces another one (`force`) is written to a folder inside and takes its
place when it is done. Whatever happens in between, the old run or the new one is there as a whole.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, NoReturn

from numpy.typing import NDArray

from safedrift import _check
from safedrift._check import IntArray
from safedrift._files import is_partial, plain_file, remove_partial_files
from safedrift._version import __version__
from safedrift.experiments.checkpoints import (
    Checkpoint,
    checkpoint_files,
    newest,
    size_of,
    write_checkpoint,
)
from safedrift.experiments.differences import differences
from safedrift.experiments.journals import Journal, Rows, joined
from safedrift.experiments.noticed import noticed_events
from safedrift.experiments.provenance import git_commit, now, package_versions
from safedrift.experiments.row_files import key_of
from safedrift.experiments.streams import seeds
from safedrift.experiments.truth_files import write_truth
from safedrift.learners import Learner
from safedrift.results.folder_locks import LOCK, FolderLock
from safedrift.results.manifest import Manifest
from safedrift.results.run import Run
from safedrift.results.run_folders import (
    MANIFEST,
    RECORDS,
    REPLACEMENT,
    FolderManifest,
    entry_of,
    identity,
    read_folder_manifest,
    write_folder_manifest,
)
from safedrift.results.storage import to_parquet
from safedrift.results.truth import Truth

__all__ = ["RunFolder", "truth_key"]

JOURNAL = "records.journal"
TRUTH = "truth.npz"
SECONDS = 30.0  # between checkpoints
ROW_SECONDS = 1.0  # between two times that rows are written for whoever watches the run
_SHARE = 20  # checkpoints take at most one part in so many of the time
_FOUND_IN_RUNS = (RECORDS, JOURNAL, TRUTH, "report.html", "summary.json", "certificates.json")
_ELSE = "another experiment needs another folder"


class RunFolder:
    """A folder that a run is being written to; a context manager.

    Parameters
    ----------
    path
        A new or empty folder; with `resume` also that of a run that was stopped, with `force` any.
    resume
        Continue the run in the folder, if there is one.
    force
        Replace the run in the folder when this one is done.
    request
        Plain data: what was asked for. A run that continues must be asked for the same.
    checkpoint_seconds
        Time between checkpoints, or more where one takes long; 0 makes one after every chunk.
    tell
        Called with a sentence when something was damaged; by default a warning.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        resume: bool = False,
        force: bool = False,
        request: Mapping[str, Any] | None = None,
        checkpoint_seconds: float = SECONDS,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.path = Path(path)
        self.resume = _check.kind("resume", resume, bool)
        self.force = _check.kind("force", force, bool)
        if resume and force:
            _check.fail("force", "False where a run is resumed", "True")
        self.request = json.loads(json.dumps(dict(request or {})))
        self.every = _check.real("checkpoint_seconds", checkpoint_seconds)
        if not 0 <= self.every < float("inf"):
            _check.fail("checkpoint_seconds", "a finite number >= 0", checkpoint_seconds)
        self.tell: Callable[[str], Any] = warnings.warn if tell is None else tell
        self.finished = False
        self._made: list[Path] = []

    # ------------------------------------------------------------ open and close

    def __enter__(self) -> RunFolder:
        self._make()
        try:
            self._lock = FolderLock(self.path)
        except BaseException:
            self._take_away()
            raise
        try:
            self._prepare()
        except BaseException:
            self._lock.release()
            self._take_away()
            raise
        return self

    def _make(self) -> None:
        """Make the folder, if it is not there."""
        if self.path.exists() and not self.path.is_dir():
            _check.fail("out", "a folder", f"the file {self.path}")
        self._made = [f for f in (self.path, *self.path.parents) if not f.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = error.strerror or error
            raise ValueError(
                f"out must be a folder that can be made; got {self.path} ({why})"
            ) from error

    def _take_away(self) -> None:
        """Remove the folders that were made, as far as they are empty."""
        for path in self._made:
            with suppress(OSError):
                path.rmdir()

    def _prepare(self) -> None:
        """Choose where to write; continue, start, or refuse."""
        self.work = self.path
        inside = self.path / REPLACEMENT
        if inside.is_symlink():
            _check.fail(str(inside), "a folder", "a link")
        if _holds_finished_run(inside):
            self._take_place()
        held = any(item.name != LOCK and not is_partial(item) for item in self.path.iterdir())
        if held and self.resume:
            if plain_file(inside / MANIFEST):
                self.work = inside
            self._continue()
            return
        if held and not self.force:
            self._refuse()
        if held:
            shutil.rmtree(inside, ignore_errors=True)
            inside.mkdir()
            self.work = inside
        remove_partial_files(self.work)
        self._start()

    def _refuse(self) -> None:
        hint = "--force replaces its results"
        with suppress(ValueError):
            if read_folder_manifest(self.path).state != "done":
                hint = "--resume continues the run in it, --force replaces it"
        _check.fail("out", "a new or empty folder", f"{self.path} ({hint})")

    def _start(self) -> None:
        self.manifest = FolderManifest(
            state="running",
            request=self.request,
            versions=package_versions(),
            platform=platform.platform(),
            git=git_commit(),
            host=socket.gethostname(),
            pid=os.getpid(),
            started=now(),
        )
        write_folder_manifest(self.work, self.manifest)  # shows that it can be written

    def _continue(self) -> None:
        remove_partial_files(self.work)
        found = read_folder_manifest(self.work)
        place = self.work / MANIFEST
        different = next(differences(found.request, self.request), None)
        if different and self.request:
            name, old, new = different
            _check.fail(name, f"{old}, as in {place} ({_ELSE})", new)
        if found.state != "done" and found.version != __version__:
            wanted = f"the folder of a run begun with safedrift {__version__} to be resumed"
            _check.fail(str(self.path), wanted, f"version {found.version}")
        self.manifest = found
        if found.state == "done":
            self.finished = True
            return
        mine = {"state": "running", "error": None, "host": socket.gethostname(), "pid": os.getpid()}
        self._update(sessions=found.sessions + 1, **mine)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if not self.finished:
                self._leave(error)
        finally:
            self._lock.release()
            self._take_away()

    def _leave(self, error: BaseException | None) -> None:
        """Say in the manifest how it ended; a run that never began leaves nothing."""
        if self.manifest.id is None:
            for name in (MANIFEST, TRUTH):
                (self.work / name).unlink(missing_ok=True)
            if self.work != self.path:
                with suppress(OSError):
                    self.work.rmdir()
            return
        failed = error is not None and not isinstance(error, KeyboardInterrupt)
        why = None
        if failed:
            why = f"{type(error).__name__}: {' '.join(str(error).split())}"[:1000]
        with suppress(OSError):  # a full disk leaves it "running", without a process
            self._update(state="failed" if failed else "interrupted", error=why)

    def _update(self, **changes: Any) -> None:
        self.manifest = self.manifest.model_copy(update=changes)
        write_folder_manifest(self.work, self.manifest)

    # ------------------------------------------------------------ while it plays

    def begin(
        self,
        run: Manifest,
        world: str | None,
        learner: Learner,
        episodes: IntArray,
        *,
        resumable: bool,
    ) -> tuple[int, list[Rows], dict[str, NDArray[Any]]]:
        """Enter the settings of the run; set the learner to where it was.

        Parameters
        ----------
        world
            Hash of its arrays; None for an environment.
        episodes
            Numbers (n,) of those that are recorded.
        resumable
            Whether the world can be entered at any episode.

        Returns
        -------
        done : episodes finished before
        rows : what was recorded of them
        extra : what else was
        """
        id = identity(run, world)
        if self.manifest.id is not None and self.manifest.id != id:
            self.refuse_other(run, world)
        self.resumable = resumable
        self._journal = Journal(self.work / JOURNAL)
        self._new: list[Rows] = []
        self._started = self._last = self._written = monotonic()
        self._cost = 0.0
        self._before = self.manifest.seconds
        self._check_space(learner, episodes.size)
        found = None
        if self.manifest.id is not None:
            if not resumable:
                self.tell("an environment cannot be continued; the run starts again")
            else:
                found = newest(self.work, id, self._journal, run.sizes.M, episodes, self.tell)
                if found is None and checkpoint_files(self.work):
                    self.tell("no checkpoint is whole; the run starts from the beginning")
        children = {name: list(child.spawn_key) for name, child in seeds(run.seed).items()}
        tree = {"entropy": run.seed, "children": children}
        self._update(id=id, run=run, world=world, seeds=tree)
        if found is None:
            self._journal.start()
            return 0, [], {}
        point, recorded = found
        try:
            learner.restore(point.learner)
        except Exception as error:
            where = f"checkpoint after {point.done} episodes in {self.work}"
            raise ValueError(f"the {where} must be one of this learner; got {error}") from error
        self._before = point.seconds
        return point.done, recorded, point.extra

    def refuse_other(self, run: Manifest, world: str | None) -> NoReturn:
        """Name the first setting in which a run differs from the one in the folder."""
        place = self.work / MANIFEST
        old = self.manifest.run
        if old is not None:
            different = next(differences(_settings(old), _settings(run)), None)
            if different:
                name, before, given = different
                _check.fail(name, f"{before}, as in {place} ({_ELSE})", given)
        _check.fail("world", f"the one of {place}", f"one with other arrays ({world})")

    def _check_space(self, learner: Learner, rows: int) -> None:
        """Refuse to start what will not fit on the disk."""
        state = size_of(learner.state()) if self.resumable else 0
        K = learner.sizes.K
        needed = 2**20 + 4 * state + 2 * rows * 8 * (24 + 6 * K)
        free = shutil.disk_usage(self.work).free
        if free < needed:
            wanted = f"on a disk with {needed / 2**20:.0f} MiB free"
            _check.fail(str(self.path), wanted, f"{free / 2**20:.0f} MiB")

    def keep_truth(self, truth: Truth) -> None:
        """Write what is true of the world beside the rows, for whoever watches the run."""
        run, path = self.manifest.run, self.work / TRUTH
        if run is not None and not path.exists():
            key = truth_key(self.manifest.world, run.measure_every, run.measure_log)
            write_truth(path, key, truth)

    def add(
        self, done: int, rows: Rows, learner: Learner, extra: Callable[[], dict[str, NDArray[Any]]]
    ) -> None:
        """Keep the rows of a chunk; make a checkpoint if it is time."""
        self._new.append(rows)
        start = monotonic()
        wait = max(self.every, _SHARE * self._cost) if self.every else 0.0
        due = self.resumable and start - self._last >= wait
        if not due and start - self._written < ROW_SECONDS:
            return
        mark = self._journal.add(joined(self._new), wait=due)
        self._new = []
        self._tell_events(learner)
        self._written = monotonic()
        if due:
            id = self.manifest.id or ""
            point = Checkpoint(done, id, mark, self._seconds(), learner.state(), extra())
            write_checkpoint(self.work, point)
            self._last = monotonic()
            self._cost = self._last - start

    def _tell_events(self, learner: Learner) -> None:
        """Enter changes that the learner has noticed into the manifest, if there are new ones."""
        run = self.manifest.run
        if run is not None:
            events = noticed_events(learner, run.constraints or ())
            if events != run.learner.events:
                record = run.learner.model_copy(update={"events": events})
                self._update(run=run.model_copy(update={"learner": record}))

    def _seconds(self) -> float:
        return round(self._before + monotonic() - self._started, 3)

    # ------------------------------------------------------------ done

    def finish(self, run: Run) -> None:
        """Write the records, and the manifest that makes the run done."""
        to_parquet(run, self.work / RECORDS)
        files = [RECORDS, *(path.name for path in checkpoint_files(self.work))]
        files += [name for name in _FOUND_IN_RUNS[3:] if plain_file(self.work / name)]
        self._update(
            state="done",
            run=run.manifest,
            finished=now(),
            seconds=self._seconds(),
            files={name: entry_of(self.work / name) for name in files},
        )
        self.finished = True
        if self.work != self.path:
            self._take_place()
        self._clean()

    def _clean(self) -> None:
        """Remove what only an unfinished run needs."""
        for name in (JOURNAL, TRUTH):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / REPLACEMENT, ignore_errors=True)
        remove_partial_files(self.path)

    def _take_place(self) -> None:
        """Let the finished run inside take the place of the one that was here."""
        inside = self.path / REPLACEMENT
        kept = [MANIFEST, *read_folder_manifest(inside).files]
        old = [self.path / name for name in (MANIFEST, *_FOUND_IN_RUNS)]
        # Without a manifest there is no run here: from now on it is the one inside.
        for path in (*old, *checkpoint_files(self.path)):
            if path.name == MANIFEST or path.name not in kept:
                path.unlink(missing_ok=True)
        for name in reversed(kept):  # the manifest last
            if plain_file(inside / name):
                (inside / name).replace(self.path / name)


def truth_key(world: str | None, measure_every: int, measure_log: int | None) -> str:
    """Return what tells a run's truth from others: the hash of its world, which episodes."""
    return key_of(world=world, episodes=[measure_every, measure_log])


def _holds_finished_run(folder: Path) -> bool:
    """Whether there is a run that is done, by its manifest."""
    try:
        return plain_file(folder / MANIFEST) and read_folder_manifest(folder).state == "done"
    except ValueError:
        return False


def _settings(run: Manifest) -> dict[str, Any]:
    """What has to be the same in a run that continues."""
    plain = json.loads(run.model_dump_json())
    for name in ("format", "version", "discretisation"):
        del plain[name]
    del plain["learner"]["notes"], plain["learner"]["events"]
    return dict(plain)
