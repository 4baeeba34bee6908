"""Policies in files that other programs read: NumPy arrays, or a table of text.

    .npy, .npz    the probabilities (H, S, A); in .npz under the name "policy"
    .csv          step,state,action,probability, one line for every probability > 0

In a .csv every state is listed at every step, also those the learner never visited: what it would
do there is part of its policy. The first line, a comment, has the sizes. Numbers are written so
that reading them gives the same bits. Steps, states and actions count from 0.
"""

from __future__ import annotations

import csv
import io
import os
import re
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike

from safedrift import _check
from safedrift._check import FloatArray
from safedrift._files import write_whole
from safedrift.learners.array_files import read_array, write_array
from safedrift.learners.protocol import PolicyLike

__all__ = ["export_policy", "load_policy"]

_ENDINGS = (".npy", ".npz", ".csv")
_COLUMNS = ["step", "state", "action", "probability"]
_SIZES = re.compile(r"# policy: H=(\d{1,12}) S=(\d{1,12}) A=(\d{1,12});")
_MOST_PER_BYTE = 1000  # numbers that a .csv may declare for each byte it has


def export_policy(policy: PolicyLike | ArrayLike, file: str | os.PathLike[str]) -> Path:
    """Write a policy to a .npy, .npz or .csv file.

    Parameters
    ----------
    policy : (H, S, A)
        What `begin_episode` returned, `run.policy`, or any array of action probabilities.

    Examples
    --------
    >>> import tempfile
    >>> import safedrift as sd
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = sd.export_policy([[[0.25, 0.75], [1.0, 0.0]]], folder + "/policy.csv")
    ...     print(file.read_text())
    # policy: H=1 S=2 A=2; actions that are not listed have probability 0
    step,state,action,probability
    0,0,0,0.25
    0,0,1,0.75
    0,1,0,1.0
    <BLANKLINE>
    """
    table = _check.floats("policy", np.asarray(policy), ("H", "S", "A"))
    _check.distribution("policy", table)
    ending = _ending(file)

    def write(target: IO[bytes]) -> None:
        if ending == ".npy":
            write_array(target, "policy", table)
        elif ending == ".npz":
            np.savez(target, policy=table)
        else:
            _write_csv(target, table)

    return write_whole(file, write)


def load_policy(file: str | os.PathLike[str]) -> FloatArray:
    """Read a policy (H, S, A) from a file that `export_policy` wrote, the same bits.

    Examples
    --------
    >>> import tempfile
    >>> import safedrift as sd
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = sd.export_policy([[[0.1, 0.9]]], folder + "/policy.csv")
    ...     sd.load_policy(file)
    array([[[0.1, 0.9]]])
    """
    ending = _ending(file)
    size = Path(file).stat().st_size
    try:
        with open(file, "rb") as source:
            table: Any
            if ending == ".npy":
                table = read_array(source, "the array", size)
            elif ending == ".npz":
                table = _read_npz(source)
            else:
                table = _read_csv(io.TextIOWrapper(source, "utf-8", newline=""), size)
        checked = np.array(_check.floats("policy", table, ("H", "S", "A")))
        _check.distribution("policy", checked)
    except (ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{file} must be a policy that export_policy wrote; got {error}"
        ) from error
    return checked


def _ending(file: str | os.PathLike[str]) -> str:
    found = Path(file).suffix.lower()
    if found not in _ENDINGS:
        _check.fail("the ending of file", f"one of {', '.join(_ENDINGS)}", repr(found))
    return found


def _read_npz(source: IO[bytes]) -> Any:
    with zipfile.ZipFile(source) as archive:
        member = archive.getinfo("policy.npy")
        if member.compress_type != zipfile.ZIP_STORED:
            raise ValueError("a compressed array")
        with archive.open(member) as inside:
            return read_array(inside, "policy", member.file_size)


def _write_csv(target: IO[bytes], table: FloatArray) -> None:
    H, S, A = table.shape
    comment = f"# policy: H={H} S={S} A={A}; actions that are not listed have probability 0\n"
    target.write(f"{comment}{','.join(_COLUMNS)}\n".encode())
    for h in range(H):
        states, actions = np.nonzero(table[h])
        rows = zip(
            states.tolist(), actions.tolist(), table[h, states, actions].tolist(), strict=True
        )
        target.write("".join(f"{h},{s},{a},{p!r}\n" for s, a, p in rows).encode())


def _read_csv(source: io.TextIOWrapper, size: int) -> FloatArray:
    sizes = _SIZES.match(source.readline())
    if sizes is None:
        raise ValueError("a first line without '# policy: H=... S=... A=...;'")
    H, S, A = shape = tuple(int(n) for n in sizes.groups())
    if not 0 < H * S * A <= _MOST_PER_BYTE * size:
        raise ValueError(f"sizes {shape} that {size} bytes do not hold")
    rows = csv.reader(source)
    if next(rows, None) != _COLUMNS:
        raise ValueError(f"a second line other than {','.join(_COLUMNS)}")
    table = np.zeros((H, S, A))
    for number, row in enumerate(rows, start=3):
        try:
            h, s, a = (int(part) for part in row[:3])
            value = float(row[3])
            inside = len(row) == 4 and 0 <= h < H and 0 <= s < S and 0 <= a < A
        except (ValueError, IndexError):
            inside = False
        if not inside:
            raise ValueError(f"{','.join(row)!r} in line {number}")
        if table[h, s, a]:
            raise ValueError(f"step {h}, state {s}, action {a} a second time in line {number}")
        table[h, s, a] = value
    return table
