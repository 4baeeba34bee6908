"""A card, through CuPy: arrays to it and from it, and the program compiled for it."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from safedrift.gpu.available import require_gpu

__all__ = ["Card", "Machine"]


class Machine(Protocol):
    """Where the program runs: a card, or in tests the host."""

    name: str
    shared: int  # bytes of shared memory that a block can have

    def room(self) -> int:
        """Bytes of memory that may be used."""

    def compile(self, source: str, definitions: Mapping[str, str]) -> Any:
        """Compile the program."""

    def put(self, array: NDArray[Any]) -> Any:
        """Return a copy of an array there."""

    def zeros(self, size: int, dtype: Any) -> Any:
        """Return room for so many numbers."""

    def get(self, array: Any) -> NDArray[Any]:
        """Return a copy of an array here."""

    def address(self, array: Any) -> int:
        """Return where an array lies there."""

    def launch(
        self, program: Any, name: str, task: Any, grid: tuple[int, int], threads: int, shared: int
    ) -> None:
        """Start an entry point with the words of a task."""

    def mark(self) -> Any:
        """Return a mark behind all that was started."""

    def wait(self, mark: Any) -> None:
        """Wait until all before a mark is done."""


class Card:
    """The card that CuPy uses."""

    _programs: ClassVar[dict[tuple[tuple[str, str], ...], Any]] = {}  # of all threads
    _compiling = Lock()

    def __init__(self) -> None:
        self.cupy: Any = require_gpu()
        device = self.cupy.cuda.Device()
        properties = self.cupy.cuda.runtime.getDeviceProperties(device.id)
        self.name = properties["name"].decode()
        self.shared = int(properties["sharedMemPerBlockOptin"])

    def room(self) -> int:
        """Half of what is free, or held by CuPy for later."""
        kept = int(self.cupy.get_default_memory_pool().free_bytes())
        return (int(self.cupy.cuda.runtime.memGetInfo()[0]) + kept) // 2

    def compile(self, source: str, definitions: Mapping[str, str]) -> Any:
        """Compile with NVRTC, once, without fused multiply-add: same seed, same numbers."""
        key = tuple(sorted(definitions.items()))
        with self._compiling:
            if key not in self._programs:
                options = ["-std=c++14", "--fmad=false"]
                options += [f"-D{name}={value}" for name, value in definitions.items()]
                module = self.cupy.RawModule(code=source, options=tuple(options))
                module.compile()
                self._programs[key] = module
            return self._programs[key]

    def put(self, array: NDArray[Any]) -> Any:
        """Return a copy of an array on the card."""
        return self.cupy.asarray(np.ascontiguousarray(array))

    def zeros(self, size: int, dtype: Any) -> Any:
        """Return room for so many numbers on the card."""
        return self.cupy.zeros(size, dtype)

    def get(self, array: Any) -> NDArray[Any]:
        """Return a copy of an array here; waits for what was started."""
        found: NDArray[Any] = self.cupy.asnumpy(array)
        return found

    def address(self, array: Any) -> int:
        """Return where an array lies on the card."""
        return int(array.data.ptr)

    def launch(
        self, program: Any, name: str, task: Any, grid: tuple[int, int], threads: int, shared: int
    ) -> None:
        """Start an entry point with a task, by value."""
        words = task.view([("words", np.uint64, task.shape)])[0]
        kernel = program.get_function(name)
        if shared > 48 * 1024:
            kernel.max_dynamic_shared_size_bytes = shared
        if shared + kernel.shared_size_bytes > 0:  # as many blocks as fit, not a larger cache
            kernel.preferred_shared_memory_carveout = 100
        kernel(grid, (threads,), (words,), shared_mem=shared)

    def mark(self) -> Any:
        """Return a mark behind all that was started by this thread."""
        event = self.cupy.cuda.Event(block=True, disable_timing=True)
        event.record()
        return event

    def wait(self, mark: Any) -> None:
        """Wait until all before a mark is done."""
        mark.synchronize()
