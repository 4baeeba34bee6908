"""The tasks of a sweep on Ray: one machine, or a cluster that is already there.

Same interface as `engines.LocalEngine`. The context goes into Ray's object store once. Ray repeats
tasks whose worker or machine was lost; a task that loses its worker every time is given up. The
driver keeps no state of its own: killed and started again, a sweep goes on from its folder. That
folder has to be on a drive that all machines share. Needs the extra `ray`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from safedrift.experiments.engines import AHEAD, Session, Work, batch_size, carry_out
from safedrift.experiments.workers import THREADS

__all__ = ["RayEngine"]

RETRIES = 3


class RayEngine:
    """Processes that Ray manages.

    Parameters
    ----------
    address
        Of a cluster, as `ray.init` takes it; None starts Ray on this machine and ends it again.
    workers
        Without an address: how many processes.
    """

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        self.address, self.workers = address, workers

    @contextmanager
    def session(self, context: Any) -> Iterator[Session]:
        """Connect to Ray, or start it; processes know the context."""
        ray = _ray()
        mine = not ray.is_initialized()
        if mine:
            given: dict[str, Any] = {"num_cpus": self.workers, "include_dashboard": False}
            given = given if self.address is None else {"address": self.address}
            try:
                ray.init(
                    **given,
                    runtime_env={"env_vars": dict.fromkeys(THREADS, "1")},
                    log_to_driver=False,
                    logging_level="ERROR",
                )
            except (ConnectionError, OSError, RuntimeError, ValueError) as error:
                text = " ".join(str(error).split())[:200]
                raise ValueError(
                    f"--address must be that of a Ray cluster; got {self.address} ({text})"
                ) from error
        try:
            yield _OnRay(ray, context)
        finally:
            if mine:
                ray.shutdown()


class _OnRay:
    """A session on Ray."""

    def __init__(self, ray: Any, context: Any) -> None:
        self.ray = ray
        self.context = ray.put(context)
        self.task = ray.remote(num_cpus=1, max_retries=RETRIES)(carry_out)

    def results(self, work: Work, numbers: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Yield every number with its result, as they are done."""
        waiting, alone = deque(numbers), deque[int]()  # alone: from a batch that was lost
        size, pending = 1, dict[Any, list[int]]()
        while waiting or alone or pending:
            slots = AHEAD * max(1, int(self.ray.cluster_resources().get("CPU", 1)))
            while (waiting or alone) and len(pending) < slots:
                if alone:
                    batch = [alone.popleft()]
                else:
                    batch = [waiting.popleft() for _ in range(min(size, len(waiting)))]
                pending[self.task.remote(work, self.context, batch)] = batch
            for done in self.ray.wait(list(pending), num_returns=1)[0]:
                batch = pending.pop(done)
                try:
                    seconds, found = self.ray.get(done)
                except self.ray.exceptions.RayError as error:
                    if isinstance(error, self.ray.exceptions.RayTaskError):
                        raise
                    if len(batch) == 1:  # lost its worker every time
                        yield batch[0], None
                    else:
                        alone.extend(batch)
                    continue
                yield from zip(batch, found, strict=True)
                size = batch_size(len(batch), seconds)


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise ImportError(
            "--engine ray must have the extra 'ray' installed (pip install 'safedrift[ray]'); "
            "got no module ray"
        ) from None
    return ray
