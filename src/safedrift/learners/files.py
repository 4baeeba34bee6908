"""A learner in a file: stopped here, continued elsewhere with the same numbers.

    save(learner, file)     state() as arrays, with a header: name, sizes, settings, episode
    load(learner, file)     into a learner that was built with the same settings
    header(file)            what was saved, to build such a learner

A file holds arrays, never code; `array_files` says how it is written and checked.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from safedrift import _check
from safedrift._version import __version__
from safedrift.knowledge import Sizes
from safedrift.learners.array_files import read_arrays, write_arrays
from safedrift.learners.protocol import Learner

__all__ = ["header", "load", "save"]

L = TypeVar("L", bound=Learner)

FORMAT = 1
_WANTED = "a whole file that save wrote of a learner"
_MISSING = object()


def save(learner: Learner, file: str | os.PathLike[str]) -> Path:
    """Write everything a learner has learnt to a file, between two episodes.

    The file is complete or not there: a process that is killed while saving leaves what was there
    before.

    Parameters
    ----------
    learner
        Any learner of the protocol `safedrift.Learner`.
    file
        Where to; an existing file is replaced.

    Examples
    --------
    >>> import tempfile
    >>> import safedrift as sd
    >>> plant = sd.ProblemSpec(H=2, S=3, A=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = sd.save_learner(sd.learners.make("uniform", plant), folder + "/uniform.npz")
    ...     sd.load_learner(sd.learners.make("uniform", plant), file)
    uniform(Sizes(M=None, H=2, S=3, A=2, K=1), episode=0)
    """
    return write_arrays(file, _header(learner), learner.state())


def load(learner: L, file: str | os.PathLike[str]) -> L:
    """Continue from a file that `save` wrote; returns the learner.

    Parameters
    ----------
    learner
        Built as the one that was saved; what it has learnt so far is replaced. It stays as it is if
        the file is damaged or was saved with other sizes or settings.

    Examples
    --------
    >>> import tempfile
    >>> import safedrift as sd
    >>> spec = sd.ProblemSpec(H=2, S=3, A=2, K=1)
    >>> learner = sd.learners.make("uniform", spec)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = sd.save_learner(learner, f"{folder}/learner.npz")
    ...     again = sd.load_learner(sd.learners.make("uniform", spec), f"{folder}/learner.npz")
    >>> again.episode
    0
    """
    saved, arrays = read_arrays(file, _WANTED)
    _check_format(saved, file)
    own = _header(learner)
    for part in ("learner", "sizes", "settings", "told"):
        _check_same(part, saved.get(part), own[part], file)
    before = learner.state()
    try:
        learner.restore(arrays)
    except Exception as error:
        learner.restore(before)
        version = saved.get("safedrift")
        found = f"one of safedrift {version}, which this version, {__version__}, cannot continue"
        raise ValueError(f"{file} must be {_WANTED}; got {found} ({error})") from error
    return learner


def header(file: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a file says of the learner in it: name, sizes, settings, episode, version.

    Examples
    --------
    >>> import tempfile
    >>> import safedrift as sd
    >>> from safedrift.learners.files import header
    >>> learner = sd.learners.make("uniform", sd.ProblemSpec(H=2, S=3, A=2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = header(sd.save_learner(learner, f"{folder}/uniform.npz"))
    >>> found["learner"], found["sizes"]["S"], found["episode"]
    ('uniform', 3, 0)
    """
    found, _ = read_arrays(file, _WANTED)
    _check_format(found, file)
    return found


def _header(learner: Learner) -> dict[str, Any]:
    episode = getattr(learner, "episode", None)
    plain = {
        "format": FORMAT,
        "safedrift": __version__,
        "learner": learner.name,
        "sizes": Sizes(*learner.sizes)._asdict(),
        "settings": learner.settings(),
        "told": _told(learner),
        "episode": None if episode is None else int(episode),
    }
    found: dict[str, Any] = json.loads(json.dumps(plain))  # as it will be read
    return found


def _told(learner: Learner) -> dict[str, str]:
    """Digests of what a learner of ours was told of its problem: first state, features."""
    algorithm = getattr(learner, "algorithm", learner)
    setup = getattr(algorithm, "setup", algorithm)
    known = getattr(setup, "initial_known", True)
    return {
        "initial distribution": _fingerprint(getattr(setup, "initial", None) if known else None),
        "features": _fingerprint(getattr(algorithm, "features", None)),
    }


def _fingerprint(value: Any) -> str:
    """Short digest of an array or of a record of arrays; "none" for anything else."""
    parts = value if isinstance(value, tuple) else (value,)
    arrays = [np.asarray(part, order="C") for part in parts]
    if any(array.dtype.hasobject for array in arrays):
        return "none"
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()[:16]


def _check_format(saved: dict[str, Any], file: str | os.PathLike[str]) -> None:
    if saved.get("format") != FORMAT:
        found = f"format {saved.get('format')!r}, written by safedrift {saved.get('safedrift')}"
        _check.fail(str(file), f"a learner in format {FORMAT}", found)


def _check_same(name: str, saved: Any, own: Any, file: str | os.PathLike[str]) -> None:
    """Refuse the first setting that differs, by its name."""
    if isinstance(saved, dict) and isinstance(own, dict):
        both = saved.keys() & own.keys()
        for key in [*sorted(both), *sorted((saved.keys() | own.keys()) - both)]:
            path = key if name in ("settings", "sizes", "told") else f"{name}.{key}"
            _check_same(path, saved.get(key, _MISSING), own.get(key, _MISSING), file)
    elif isinstance(saved, list) and isinstance(own, list) and len(saved) == len(own):
        for i, (one, other) in enumerate(zip(saved, own, strict=True)):
            _check_same(f"{name}[{i}]", one, other, file)
    elif json.dumps(_shown(saved)) != json.dumps(_shown(own)):
        wanted = f"{_short(saved)}, as in {file}"
        _check.fail(f"{name} of the learner", wanted, _short(own))


def _shown(value: Any) -> Any:
    return "absent" if value is _MISSING else value


def _short(value: Any) -> str:
    text = repr(_shown(value))
    return text if len(text) <= 80 else f"{text[:77]}..."
