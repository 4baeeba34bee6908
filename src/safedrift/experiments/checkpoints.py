"""Checkpoints: a run that was stopped at any moment continues bit for bit.

A checkpoint is the number of episodes done, everything the learner has learnt (`learner.state()`)
and what was recorded so far. The random numbers need no place in it: an episode draws a fixed
number of them, so the streams are set forward to where they were (`playing.play_chunks`).

Files are arrays with a checksum, written whole or not at all; the last two are kept. One that is
damaged is passed over in favour of the one before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift import _check
from safedrift._check import IntArray
from safedrift._version import __version__
from safedrift.experiments.journals import Journal, Mark, Rows
from safedrift.learners.array_files import read_arrays, write_arrays

__all__ = [
    "Checkpoint",
    "checkpoint_files",
    "episodes_in_name",
    "newest",
    "read_checkpoint",
    "size_of",
    "write_checkpoint",
]

FORMAT = 1
KEPT = 2

_NAME = re.compile(r"checkpoint-(\d{12})\.npz")
_WANTED = "a checkpoint of this run, as safedrift wrote it"


class Checkpoint(NamedTuple):
    """A run after `done` episodes."""

    done: int
    id: str  # of the run
    mark: Mark  # rows recorded so far
    seconds: float  # spent so far
    learner: dict[str, NDArray[Any]]  # what `state` returned
    extra: dict[str, NDArray[Any]]  # what else was recorded, such as policies on a finer grid


def checkpoint_files(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, the newest first."""
    return sorted((p for p in folder.iterdir() if _NAME.fullmatch(p.name)), reverse=True)


def episodes_in_name(path: Path) -> int:
    """Return the number of episodes done that the name of a checkpoint tells."""
    found = _NAME.fullmatch(path.name)
    return 0 if found is None else int(found[1])


def write_checkpoint(folder: Path, found: Checkpoint) -> Path:
    """Write a checkpoint, then remove all but the last two, and later ones that were damaged."""
    header = {
        "format": FORMAT,
        "safedrift": __version__,
        "id": found.id,
        "done": found.done,
        "rows": found.mark._asdict(),
        "seconds": found.seconds,
    }
    arrays = _prefixed("learner", found.learner) | _prefixed("extra", found.extra)
    path = write_arrays(folder / f"checkpoint-{found.done:012d}.npz", header, arrays)
    files = checkpoint_files(folder)
    place = files.index(path)
    for other in files[:place] + files[place + KEPT :]:
        other.unlink(missing_ok=True)
    return path


def read_checkpoint(path: Path, id: str) -> Checkpoint:
    """Read a checkpoint of the run with this id; one sentence says why it cannot be used."""
    if path.is_symlink():
        _check.fail(str(path), _WANTED, "a link")
    header, arrays = read_arrays(path, _WANTED)
    if header.get("format") != FORMAT or header.get("safedrift") != __version__:
        _check.fail(str(path), _WANTED, f"one of safedrift {header.get('safedrift')}")
    if header.get("id") != id:
        _check.fail(str(path), _WANTED, "one of another run")
    try:
        done, rows, seconds = int(header["done"]), header["rows"], float(header["seconds"])
        mark = Mark(int(rows["bytes"]), str(rows["sha256"]))
    except (KeyError, TypeError, ValueError) as error:
        _check.fail(str(path), _WANTED, f"one that cannot be read ({error!r})")
    if path.name != f"checkpoint-{done:012d}.npz":
        _check.fail(str(path), _WANTED, f"one after {done} episodes")
    return Checkpoint(
        done, id, mark, seconds, _under("learner", arrays), _under("extra", arrays)
    )  # fmt: skip


def newest(
    folder: Path,
    id: str,
    journal: Journal,
    M: int,
    episodes: IntArray,
    tell: Callable[[str], None],
) -> tuple[Checkpoint, list[Rows]] | None:
    """Return the newest checkpoint that is whole, with its rows; None if there is none.

    Parameters
    ----------
    M, episodes
        How many episodes there are, and the numbers (n,) of those that are recorded.
    tell
        Called with a sentence for every checkpoint that is damaged.
    """
    for path in checkpoint_files(folder):
        try:
            found = read_checkpoint(path, id)
            rows = journal.restore(found.mark)
            recorded = sum(len(next(iter(part.values()), ())) for part in rows)
            wanted = int(np.searchsorted(episodes, found.done))
            if not 0 < found.done < M or recorded != wanted:
                _check.fail(str(path), f"a checkpoint with {wanted} rows", f"{recorded}")
            return found, rows
        except (ValueError, OSError) as error:
            tell(f"{error}; going on from before it")
    return None


def _prefixed(group: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {f"{group}:{name}": values for name, values in arrays.items()}


def _under(group: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    start = f"{group}:"
    return {name.removeprefix(start): x for name, x in arrays.items() if name.startswith(start)}


def size_of(arrays: Mapping[str, NDArray[Any]]) -> int:
    """Return the bytes of arrays."""
    return sum(values.nbytes for values in arrays.values())
