"""Worlds from files: YAML, arrays in an .npz, or a function in a .py.

An .npz holds N scenarios and a path through them (axes as everywhere, K constraints, M episodes):

    transitions  (N, H, S, A, S)    initial     (S,)
    rewards      (N, H, S, A)       weights     (M, N) convex weights, or (M,) scenario numbers
    utilities    (N, K, H, S, A)    thresholds  (M, K)

The keys of a .yaml are described in `worldfiles/yaml_worlds.py`. `my_world.py:make` calls the
function `make`, which must return a DriftingCMDP, a LinearKernelCMDP or the result of
`from_gymnasium`; if it has an argument `episodes`, it gets the number of episodes.

Only the .py file that you name runs code, as if you had started it. An .npz is read
without pickle and a .yaml by the safe loader: neither can run code. A stored run keeps the name of
its file but never loads it; to certify such a run, pass the world.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import numpy as np

from safedrift import _check
from safedrift.adapters.gymnasium_worlds import GymnasiumWorld
from safedrift.adapters.transitions import called
from safedrift.models import DriftingCMDP, DriftingWorld, LinearKernelCMDP, TabularCMDP
from safedrift.worldfiles import yaml_worlds

__all__ = ["ARRAYS", "is_file", "load"]

YAML = (".yaml", ".yml")
ARRAYS = {
    "transitions": (5,),
    "rewards": (4,),
    "utilities": (5,),
    "initial": (1,),
    "weights": (1, 2),
    "thresholds": (2,),
}


def is_file(source: str) -> bool:
    """Whether a problem is a file and not a name.

    Examples
    --------
    >>> from safedrift.worldfiles import is_file
    >>> is_file("my_world.yaml"), is_file("maze")
    (True, False)
    """
    return source.lower().endswith((".npz", ".py", *YAML)) or ".py:" in source


def load(source: str, episodes: int | None = None) -> DriftingWorld | GymnasiumWorld:
    """Return the world in `my_world.yaml` or `my_world.npz`, or what `my_world.py:make` returns.

    Parameters
    ----------
    episodes
        M, if the file does not fix it; None uses the number in the file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from safedrift.worldfiles import load
    >>> text = '''
    ... horizon: 3
    ... states: [idle, busy]
    ... actions: [wait, work]
    ... start: idle
    ... episodes: 10
    ... scenarios:
    ...   only:
    ...     transitions: {idle: {wait: idle, work: busy}, busy: idle}
    ...     rewards: {idle: 0, busy: 1}
    ...     utilities: {idle: 1, busy: 0}
    ... thresholds: 2
    ... '''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "my_world.yaml"
    ...     _ = file.write_text(text)
    ...     print(load(str(file)))
    DriftingCMDP(M=10, H=3, S=2, A=2, K=1, scenarios=1)
    """
    path = Path(source)
    world: DriftingWorld | GymnasiumWorld
    if source.lower().endswith(YAML):
        world = yaml_worlds.load(path, episodes)
    elif source.lower().endswith(".npz"):
        world = _from_arrays(path, episodes)
    else:
        path = Path(source.rpartition(":")[0])
        world = _called(source, episodes)
    if not isinstance(world, GymnasiumWorld):
        world.name = path.name
    return world


def _from_arrays(path: Path, episodes: int | None) -> DriftingCMDP:
    if not path.is_file():
        _check.fail("problem", "the name of a world or an existing file", path)
    if not zipfile.is_zipfile(path):
        _check.fail(str(path), "an .npz file, as numpy.savez writes it", "another kind of file")
    try:
        with np.load(path, allow_pickle=False) as data:
            arrays = {name: data[name] for name in data.files}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        words = "objects" if "pickle" in str(error) else str(error)
        raise ValueError(f"{path} must be an .npz file of plain arrays; got {words}") from None
    missing, unknown = set(ARRAYS) - set(arrays), set(arrays) - set(ARRAYS)
    if missing or unknown:
        told = [f"without {', '.join(sorted(missing))}"] if missing else []
        told += [f"with unknown {', '.join(sorted(unknown))}"] if unknown else []
        _check.fail(str(path), f"an .npz with {', '.join(ARRAYS)}", " and ".join(told))
    for name, allowed in ARRAYS.items():
        if arrays[name].ndim not in allowed:
            axes = " or ".join(map(str, allowed))
            _check.fail(f"{name} in {path}", f"an array of {axes} axes", arrays[name].shape)
        if arrays[name].dtype.kind not in "biuf" or not arrays[name].size:
            got = f"{arrays[name].dtype} of shape {arrays[name].shape}"
            _check.fail(f"{name} in {path}", "an array of numbers", got)
    N, M = len(arrays["transitions"]), len(arrays["weights"])
    if episodes not in (None, M):
        _check.fail("episodes", f"left out, or the {M} of the weights in {path}", episodes)
    for name, length in (("rewards", N), ("utilities", N), ("thresholds", M)):
        if len(arrays[name]) != length:
            _check.fail(f"{name} in {path}", f"of length {length}", arrays[name].shape)
    scenarios = []
    for n in range(N):
        P, r, g = (arrays[name][n] for name in ("transitions", "rewards", "utilities"))
        try:
            scenarios.append(TabularCMDP(P, r, g, arrays["thresholds"][0], arrays["initial"]))
        except (ValueError, TypeError) as error:
            raise type(error)(f"scenario {n} of {path}: {error}") from None
    try:
        return DriftingCMDP(scenarios, arrays["weights"], thresholds=arrays["thresholds"])
    except (ValueError, TypeError) as error:
        raise type(error)(f"{path}: {error}") from None


def _called(source: str, episodes: int | None) -> DriftingWorld | GymnasiumWorld:
    text, colon, name = source.rpartition(":")
    path = Path(text)
    if not colon:
        _check.fail("problem", "FILE.py:FUNCTION, with the function that returns a world", source)
    if not path.is_file():
        _check.fail("problem", "the name of a world or an existing file", path)
    spec = importlib.util.spec_from_file_location(f"safedrift_file_{path.stem}", path)
    if spec is None or spec.loader is None:
        _check.fail("problem", "a Python file", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with redirect_stdout(sys.stderr), _beside(path):  # keeps stdout for results
        called(source, spec.loader.exec_module, module)
        make = getattr(module, name, None)
        if not callable(make):
            _check.fail("problem", f"FILE.py:FUNCTION with a function of {path}", source)
        takes = "episodes" in inspect.signature(make).parameters
        given = {"episodes": episodes} if takes and episodes is not None else {}
        world = called(source, make, **given)
    if not isinstance(world, DriftingCMDP | LinearKernelCMDP | GymnasiumWorld):
        what = "a DriftingCMDP, a LinearKernelCMDP or a GymnasiumWorld"
        _check.fail(f"what {source} returns", what, type(world).__name__)
    return world


@contextmanager
def _beside(path: Path) -> Iterator[None]:
    """Let a file import modules from its folder."""
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
