"""One line on stderr while a user waits for the compiler, who else would think that nothing moves.

It is printed once per process, after two seconds of compiling one entry point, and never by worker
processes or where the variable SAFEDRIFT_QUIET is set, as the command does: it has progress bars.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from threading import Timer

from numba.core import event

__all__ = ["announce_compiling"]

PATIENCE = 2.0  # seconds
TEXT = "safedrift: compiling, first time only"
_KERNELS = __name__.rpartition(".")[0]


class _Notice(event.Listener):
    """Starts a timer with the outermost compilation, and stops it with that."""

    def __init__(self) -> None:
        self.depth = 0
        self.timer: Timer | None = None
        self.said = False

    def on_start(self, event: event.Event) -> None:
        self.depth += 1
        ours = event.data["dispatcher"].py_func.__module__.startswith(_KERNELS)
        if self.depth == 1 and ours and not self.said and not _quiet():
            self.timer = Timer(PATIENCE, self.say)
            self.timer.daemon = True
            self.timer.start()

    def on_end(self, event: event.Event) -> None:
        self.depth -= 1
        if self.depth == 0 and self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def say(self) -> None:
        self.said = True
        print(TEXT, file=sys.stderr, flush=True)


def _quiet() -> bool:
    return bool(os.environ.get("SAFEDRIFT_QUIET")) or multiprocessing.parent_process() is not None


def announce_compiling() -> None:
    """Listen to the compiler from now on."""
    event.register("numba:compile", _Notice())
