"""What is true of a world, in a file: solved once, read by every run in that world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from safedrift import _check
from safedrift._version import __version__
from safedrift.learners.array_files import read_arrays, write_arrays
from safedrift.results import Truth

__all__ = ["read_truth", "stored_truth", "write_truth"]

_WANTED = "the optima of this world, as safedrift wrote them"


def stored_truth(
    path: Path, world: str, compute: Callable[[], Truth], tell: Callable[[str], Any]
) -> Truth:
    """Return the truth in a file, or compute it and write the file.

    Parameters
    ----------
    world
        Hash of the world and of which episodes were measured.
    tell
        Called with a sentence if the file is damaged; it is then made again.
    """
    if path.exists():
        try:
            return read_truth(path, world)
        except (ValueError, OSError) as error:
            tell(f"{error}; it is computed again")
    found = compute()
    write_truth(path, world, found)
    return found


def write_truth(path: Path, world: str, truth: Truth) -> None:
    """Write the truth about a world with this hash."""
    header = {"safedrift": __version__, "world": world}
    write_arrays(path, header, {name: np.asarray(x) for name, x in vars(truth).items()})


def read_truth(path: Path, world: str) -> Truth:
    """Read what `write_truth` wrote about the world with this hash."""
    if path.is_symlink():
        _check.fail(str(path), _WANTED, "a link")
    header, arrays = read_arrays(path, _WANTED)
    if header.get("safedrift") != __version__ or header.get("world") != world:
        _check.fail(str(path), _WANTED, "those of another world or version")
    missing = {item.name for item in fields(Truth)} ^ set(arrays)
    if missing:
        _check.fail(str(path), _WANTED, f"a file that differs in {', '.join(sorted(missing))}")
    return Truth(**arrays)
