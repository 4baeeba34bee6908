"""Run compiled work on fixed chunks of episodes in threads, with progress after each chunk."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed

Progress = Callable[[int], None]


def in_chunks(
    work: Callable[[slice], None],
    n: int,
    size: int,
    *,
    progress: Progress | None = None,
    workers: int | None = None,
) -> None:
    """Call `work` on slices of `size` items that cover range(n); `progress` gets each size.

    The kernels release the GIL. `SAFEDRIFT_THREADS` limits the threads, by default one per core;
    processes that run side by side set it to 1. Chunk boundaries never depend on the number of
    threads.
    """
    slices = [slice(i, min(i + size, n)) for i in range(0, n, size)]
    if not slices:
        return
    work(slices[0])  # alone, so that only one thread compiles
    if progress:
        progress(slices[0].stop)
    threads = int(os.environ.get("SAFEDRIFT_THREADS", "0")) or os.cpu_count()
    if workers == 1:
        for part in slices[1:]:
            work(part)
            if progress:
                progress(part.stop - part.start)
        return
    with ThreadPoolExecutor(workers or threads) as pool:
        futures = {pool.submit(work, part): part for part in slices[1:]}
        try:
            for future in as_completed(futures):
                future.result()
                if progress:
                    progress(futures[future].stop - futures[future].start)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
