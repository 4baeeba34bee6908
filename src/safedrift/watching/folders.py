"""Which folders are shown: run folders and sweeps in a folder, some levels deep.

Links are not followed, so nothing outside the folder is found. A folder is asked for by its id, a
hash of its place: an id that is not in the list leads nowhere.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from safedrift._files import plain_file
from safedrift.experiments.sweeps import STUDY
from safedrift.results.run_folders import MANIFEST, REPLACEMENT

__all__ = ["MOST_FOLDERS", "Found", "find_folders", "sentence", "stamp_of", "written_at"]

MOST_FOLDERS = 2000  # that are shown
_MOST_VISITED = 20_000
_LEVELS = 3


class Found(NamedTuple):
    """A run or a sweep.

    Attributes
    ----------
    id : sixteen hexadecimal digits
    name : place in the folder that is watched, as it is shown
    lock : folder whose lock tells whether it is running
    """

    id: str
    name: str
    path: Path
    lock: Path
    kind: Literal["run", "sweep"]


def find_folders(root: Path) -> list[Found]:
    """Return the run folders and sweeps in a folder, or the folder itself if it is one.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from safedrift.watching.folders import find_folders
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     find_folders(pathlib.Path(folder))
    []
    """
    found: list[Found] = []
    for place in _visited(root, _LEVELS, [_MOST_VISITED]):
        found += _in(place, root)
        if len(found) >= MOST_FOLDERS:
            break
    return found[:MOST_FOLDERS]


def _visited(folder: Path, levels: int, left: list[int]) -> Iterator[Path]:
    """Yield a folder and, unless it is a run or a sweep, those in it by name; no links."""
    left[0] -= 1
    yield folder
    if levels == 0 or plain_file(folder / MANIFEST) or plain_file(folder / STUDY):
        return
    try:
        with os.scandir(folder) as items:
            names = sorted(x.name for x in items if x.is_dir(follow_symlinks=False))
    except OSError:  # gone, or not ours to read
        return
    for name in names:
        if left[0] > 0 and not name.startswith(".") and name != REPLACEMENT:
            yield from _visited(folder / name, levels - 1, left)


def _in(folder: Path, root: Path) -> Iterator[Found]:
    """Yield what a folder is: a run, a run that is to replace it, a sweep, or nothing."""
    if plain_file(folder / MANIFEST):
        yield _found(folder, root, folder, "run")
    elif plain_file(folder / STUDY):
        yield _found(folder, root, folder, "sweep")
    inside = folder / REPLACEMENT
    if not inside.is_symlink() and plain_file(inside / MANIFEST):
        yield _found(inside, root, folder, "run")


def _found(path: Path, root: Path, lock: Path, kind: Literal["run", "sweep"]) -> Found:
    place = path.relative_to(root)
    id = hashlib.sha256(os.fsencode(place)).hexdigest()[:16]
    return Found(id, root.name if path == root else place.as_posix(), path, lock, kind)


def stamp_of(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when a file is written; None if there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def written_at(path: Path) -> str:
    """Return when a file was last written, as manifests tell times."""
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")


def sentence(error: Exception) -> str:
    """Return an error on one line; the kind only of one that is not meant to be read."""
    text = " ".join(str(error).split())
    if text and isinstance(error, ValueError | TypeError | OSError):
        return text
    return f"it cannot be shown ({type(error).__name__}{f': {text}' if text else ''})"
