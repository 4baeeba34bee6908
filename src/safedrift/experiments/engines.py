"""Where tasks are carried out: in this process, in threads, or in processes on all cores.

    with engine.session(context) as session:
        for number, result in session.results(work, numbers): ...

`work(context, number)` is a function of a module. The context is sent to every process once, the
numbers in batches that take a fraction of a second each. A process that dies takes with it the task
it was at: the result is then `None`. All other tasks are carried out.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    as_completed,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter
from typing import Any, Protocol

from safedrift.experiments.workers import environment_of_workers, prepare_worker

__all__ = ["Engine", "LocalEngine", "Session", "ThreadEngine", "Work"]

Work = Callable[[Any, int], Any]

BATCH = 0.2  # seconds
LARGEST_BATCH = 100
AHEAD = 2  # batches that wait for each process


class Session(Protocol):
    """Processes that know a context."""

    def results(self, work: Work, numbers: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Yield every number with its result, in any order; None where its process died."""


class Engine(Protocol):
    """Where the processes are."""

    def session(self, context: Any) -> AbstractContextManager[Session]:
        """Start processes that know a context; they end with the session."""


class LocalEngine:
    """Processes on this machine; with one worker, this process.

    Examples
    --------
    >>> from safedrift.experiments.engines import LocalEngine
    >>> with LocalEngine(1).session(10) as session:
    ...     list(session.results(lambda context, i: context + i, range(3)))
    [(0, 10), (1, 11), (2, 12)]
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers

    @contextmanager
    def session(self, context: Any) -> Iterator[Session]:
        """Start processes that know a context; they end with the session."""
        if self.workers == 1:
            yield _Here(context)
            return
        there = _Processes(self.workers, context)
        try:
            yield there
        except BaseException:
            there.end(now=True)
            raise
        there.end()


class ThreadEngine:
    """Threads of this process, for work that is compiled: the context is shared, not copied.

    Examples
    --------
    >>> from safedrift.experiments.engines import ThreadEngine
    >>> with ThreadEngine(2).session(10) as session:
    ...     sorted(session.results(lambda context, i: context + i, range(3)))
    [(0, 10), (1, 11), (2, 12)]
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers

    @contextmanager
    def session(self, context: Any) -> Iterator[Session]:
        """Yield what knows a context; threads are there while it gives results."""
        yield _Here(context) if self.workers == 1 else _Threads(self.workers, context)


class _Threads:
    """Threads of this process."""

    def __init__(self, workers: int, context: Any) -> None:
        self.workers, self.context = workers, context

    def results(self, work: Work, numbers: Sequence[int]) -> Iterator[tuple[int, Any]]:
        pool = ThreadPoolExecutor(self.workers)
        try:
            futures = {pool.submit(work, self.context, number): number for number in numbers}
            for future in as_completed(futures):
                yield futures.pop(future), future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # the context may tell them to stop
            raise
        pool.shutdown()


class _Here:
    """No other process than this one."""

    def __init__(self, context: Any) -> None:
        self.context = context

    def results(self, work: Work, numbers: Sequence[int]) -> Iterator[tuple[int, Any]]:
        for number in numbers:
            yield number, work(self.context, number)


class _Processes:
    """Spawned processes with one thread each, none of which outlives this one."""

    def __init__(self, workers: int, context: Any) -> None:
        self.workers, self.context = workers, context
        self._before = set(multiprocessing.active_children())
        self._pool: ProcessPoolExecutor | None = None

    def results(self, work: Work, numbers: Sequence[int]) -> Iterator[tuple[int, Any]]:
        waiting = deque(numbers)
        while waiting:
            lost: list[int] = []  # what was handed out when a process died
            yield from self._until_one_dies(work, waiting, lost)
            for number in lost:  # one of these was its end
                try:
                    _, found = self._submit(work, [number]).result()
                    yield number, found[0]
                except BrokenProcessPool:
                    self.end()
                    yield number, None

    def _until_one_dies(
        self, work: Work, waiting: deque[int], lost: list[int]
    ) -> Iterator[tuple[int, Any]]:
        """Carry out what waits, in batches; what was in the hands of a dead pool goes to `lost`."""
        size, pending = 1, dict[Future[Any], list[int]]()
        while waiting or pending:
            while waiting and len(pending) < AHEAD * self.workers:
                batch = [waiting.popleft() for _ in range(min(size, len(waiting)))]
                try:
                    pending[self._submit(work, batch)] = batch
                except BrokenProcessPool:
                    waiting.extendleft(reversed(batch))
                    if not pending:
                        self.end()
                    break
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                batch = pending.pop(future)
                try:
                    seconds, found = future.result()
                except BrokenProcessPool:
                    lost += [x for others in (batch, *pending.values()) for x in others]
                    self.end()
                    return
                yield from zip(batch, found, strict=True)
                size = batch_size(len(batch), seconds)

    def _submit(self, work: Work, batch: list[int]) -> Future[Any]:
        """Hand over a batch; processes are started here."""
        with environment_of_workers():
            if self._pool is None:
                self._pool = ProcessPoolExecutor(
                    self.workers,
                    mp_context=multiprocessing.get_context("spawn"),
                    initializer=_enter,
                    initargs=(self.context,),
                )
            return self._pool.submit(_carry_out, work, batch)

    def end(self, *, now: bool = False) -> None:
        """End the processes; a later task starts new ones."""
        if self._pool is None:
            return
        self._pool.shutdown(wait=not now, cancel_futures=now)
        self._pool = None
        if now:
            for process in set(multiprocessing.active_children()) - self._before:
                process.terminate()


def batch_size(tasks: int, seconds: float) -> int:
    """Return how many tasks make a good batch if so many took so long."""
    return max(1, min(LARGEST_BATCH, int(BATCH * tasks / (seconds + 1e-9))))


_CONTEXT: list[Any] = []  # of a worker


def _enter(context: Any) -> None:
    prepare_worker()
    _CONTEXT[:] = [context]


def _carry_out(work: Work, numbers: Iterable[int]) -> tuple[float, list[Any]]:
    """Results of a batch, and the seconds they took."""
    return carry_out(work, _CONTEXT[0], numbers)


def carry_out(work: Work, context: Any, numbers: Iterable[int]) -> tuple[float, list[Any]]:
    """Return the results of a batch, and the seconds they took."""
    start = perf_counter()
    found = [work(context, number) for number in numbers]
    return perf_counter() - start, found
