"""Runs over all cores: a task in, a row out; what fails becomes a row too.

Processes are spawned, not forked, and each has one thread. What cannot be sent to them (a function
of the script itself, a lambda) runs in this process. A process that dies (no memory left) takes the
run with it that it was at, and nothing else.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from threading import Thread
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safedrift.experiments.entrants import Entrant
from safedrift.experiments.simulation import simulate
from safedrift.kernels.records import ChunkInput, ChunkOutput
from safedrift.learners import Learner, PolicyLike, Trajectory
from safedrift.models import DriftingWorld
from safedrift.results import Truth
from safedrift.results.scores import RunScore, score

__all__ = [
    "Arena",
    "Player",
    "Task",
    "environment_of_workers",
    "play",
    "portable",
    "prepare_worker",
    "rows_of",
    "sentence",
    "stopwatch",
]

THREADS = ("SAFEDRIFT_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS",
           "NUMBA_NUM_THREADS")  # fmt: skip


class Arena(NamedTuple):
    """A world and what is true of it."""

    world: DriftingWorld
    truth: Truth


class Task(NamedTuple):
    """One run: `arena` is the label of a world."""

    key: str
    arena: str
    entrant: Entrant
    seed: int
    noisy: bool
    measure_every: int
    points: int
    measure_log: int | None = None


Player = Callable[[Sequence[Task], Mapping[str, Arena], int], Iterator[RunScore]]
"""Plays tasks with so many workers and yields their rows, in any order."""


def play(task: Task, arena: Arena) -> RunScore:
    """Return the row of one run; an error becomes a row too."""
    names: dict[str, Any] = {
        "key": task.key,
        "world": task.arena,
        "learner": task.entrant.label,
        "seed": task.seed,
    }
    try:
        gamma = float(arena.truth.gamma.min())
        learner = stopwatch(task.entrant.build(arena.world, gamma, task.noisy))
        run = simulate(
            arena.world,
            learner,
            task.seed,
            noisy=task.noisy,
            measure_every=task.measure_every,
            measure_log=task.measure_log,
            truth=arena.truth,
        )
        seconds = learner.spent.per_episode(arena.world.M)
        return score(run, names, seconds=seconds, points=task.points)
    except Exception as error:
        return RunScore(**names, status="failed", error=sentence(error))


def sentence(error: BaseException) -> str:
    """Return an error on one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


# ---------------------------------------------------------------- time


class Spent:
    """Seconds a learner has spent; of several chunks the first, which compiles, is left out."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.chunks: list[tuple[float, int]] = []

    def per_episode(self, M: int) -> float:
        """Return seconds per episode."""
        counted = self.chunks[1:] if len(self.chunks) > 1 else self.chunks
        if not counted:
            return self.seconds / M
        return sum(seconds for seconds, _ in counted) / sum(size for _, size in counted)


class _Stopwatch:
    """A learner that notes how long its own calls take."""

    def __init__(self, learner: Learner, spent: Spent) -> None:
        self.learner, self.spent = learner, spent
        self.name, self.sizes = learner.name, learner.sizes

    def __getattr__(self, name: str) -> Any:
        return getattr(self.learner, name)

    def fresh(self, seed: int | np.random.SeedSequence = 0) -> _Stopwatch:
        return _Stopwatch(self.learner.fresh(seed), self.spent)

    def begin_episode(self, thresholds: ArrayLike) -> PolicyLike | NDArray[Any]:
        with self._running():
            return self.learner.begin_episode(thresholds)

    def act(self, h: int, state: Any, u: float | None = None) -> int:
        with self._running():
            return self.learner.act(h, state, u)

    def end_episode(self, trajectory: Trajectory) -> None:
        with self._running():
            self.learner.end_episode(trajectory)

    def plays(self, arrays: Any) -> bool:
        offers: Any = getattr(self.learner, "plays", None)
        return offers is not None and hasattr(self.learner, "play_chunk") and bool(offers(arrays))

    def play_chunk(
        self, arrays: Any, inputs: ChunkInput, out: ChunkOutput
    ) -> Mapping[str, NDArray[Any]]:
        start = perf_counter()
        fast: Any = self.learner
        trace: Mapping[str, NDArray[Any]] = fast.play_chunk(arrays, inputs, out)
        self.spent.chunks.append((perf_counter() - start, len(inputs.action_uniforms)))
        return trace

    @contextmanager
    def _running(self) -> Iterator[None]:
        start = perf_counter()
        yield
        self.spent.seconds += perf_counter() - start


def stopwatch(learner: Learner) -> Any:
    """Return the same learner, whose `spent` says how long its calls took."""
    return _Stopwatch(learner, Spent())


# ---------------------------------------------------------------- processes


def rows_of(tasks: Sequence[Task], arenas: Mapping[str, Arena], workers: int) -> Iterator[RunScore]:
    """Yield the row of every task as it finishes, in any order."""
    if workers == 1 or len(tasks) < 2:
        yield from (play(task, arenas[task.arena]) for task in tasks)
        return
    home = {name for name, arena in arenas.items() if not portable(arena)}
    known = {e.label: portable(e) for e in {t.entrant.label: t.entrant for t in tasks}.values()}
    here: list[Task] = []
    away: list[Task] = []
    for task in tasks:
        sendable = task.arena not in home and known[task.entrant.label]
        (away if sendable else here).append(task)
    sent = {name: arenas[name] for name in {task.arena for task in away}}
    while away:
        finished = set()
        try:
            for row in _in_pool(away, sent, min(workers, len(away))):
                finished.add(row.key)
                yield row
        except BrokenProcessPool:
            away = [task for task in away if task.key not in finished]
            if workers == 1:  # in order, so it was the first
                yield _died(away.pop(0))
            workers = 1
        else:
            break
    yield from (play(task, arenas[task.arena]) for task in here)


def _died(task: Task) -> RunScore:
    names = (task.key, task.arena, task.entrant.label, task.seed)
    return RunScore(*names, status="failed", error="the process that played it died")


def _in_pool(
    tasks: Sequence[Task], arenas: Mapping[str, Arena], workers: int
) -> Iterator[RunScore]:
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_enter,
        initargs=(arenas,),
    )
    try:
        with environment_of_workers():
            futures: list[Future[RunScore]] = [pool.submit(_play_there, task) for task in tasks]
        for future in as_completed(futures):
            yield future.result()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()
        raise
    pool.shutdown()


_ARENAS: dict[str, Arena] = {}  # of a worker


def _enter(arenas: Mapping[str, Arena]) -> None:
    """Start of a worker: take the worlds."""
    prepare_worker()
    _ARENAS.update(arenas)


def prepare_worker() -> None:
    """Leave Ctrl-C to the parent, and do not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait for the parent to die, however it dies, and follow it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _play_there(task: Task) -> RunScore:
    return play(task, _ARENAS[task.arena])


def portable(value: object) -> bool:
    """Whether a spawned process, which does not know this script, can be sent the value.

    Whatever pickling raises means that it cannot; the run then takes place in this process.
    """
    try:
        return b"__main__" not in pickle.dumps(value)
    except Exception:
        return False


@contextmanager
def environment_of_workers() -> Iterator[None]:
    """One thread each; and the user's script is not run again in every process."""
    main = sys.modules["__main__"]
    hidden = {name: getattr(main, name, None) for name in ("__spec__", "__file__")}
    old = {name: os.environ.get(name) for name in THREADS}
    try:
        os.environ.update(dict.fromkeys(THREADS, "1"))
        main.__spec__ = None
        if hidden["__file__"] is not None:
            del main.__file__
        yield
    finally:
        main.__spec__ = hidden["__spec__"]
        if hidden["__file__"] is not None:
            main.__file__ = hidden["__file__"]
        for name, value in old.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
