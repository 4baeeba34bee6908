"""The guard against stale entries in Numba's cache, wherever Numba keeps it."""

import os
import shutil
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
from numba.core.caching import NullCache

import conftest
import safedrift.kernels as kernels

if conftest.flock is not None:
    from fcntl import LOCK_NB

GUARD = Path(kernels.__file__)
CALLEE = "import numba\n@numba.njit(cache=True)\ndef number():\n    return {number}\n"
CALLER = """
import numba
from {package}.inner.callee import number
@numba.njit(cache=True)
def twice():
    return 2 * number()
"""


def package_in(folder, name, guarded=True):
    """A package whose compiled functions call each other across files and folders."""
    root = folder / name
    for place in (root, root / "inner"):
        place.mkdir(parents=True)
        (place / "__init__.py").touch()
        (place / "caller.py").write_text(CALLER.format(package=name))
    (root / "inner" / "callee.py").write_text(CALLEE.format(number=1))
    if guarded:
        shutil.copy(GUARD, root / "__init__.py")
    return root


def in_new_process(folder, code, **environment):
    clean = {key: value for key, value in os.environ.items() if not key.startswith("NUMBA")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=clean | environment, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def run(folder, name, environment):
    """What both callers return, and how many of them came from the cache."""
    code = (
        f"from {name}.caller import twice as a; from {name}.inner.caller import twice as b\n"
        "print(a(), b(), sum(sum(f.stats.cache_hits.values()) for f in (a, b)))"
    )
    return [int(word) for word in in_new_process(folder, code, **environment)]


def cache_in_environment(tmp_path, *packages):
    return {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}


def cache_beside_the_sources(tmp_path, *packages):
    return {}


def cache_of_the_user(tmp_path, *packages):
    """Where `__pycache__` cannot be written, as in an installation that is read-only."""
    for package in packages:
        for place in (package, package / "inner"):
            (place / "__pycache__").write_text("in the way, even for an administrator")
    return {"XDG_CACHE_HOME": str(tmp_path / "home"), "HOME": str(tmp_path / "home")}


@pytest.mark.parametrize(
    "place",
    [
        cache_beside_the_sources,
        pytest.param(cache_in_environment, marks=pytest.mark.slow),
        pytest.param(cache_of_the_user, marks=pytest.mark.slow),
    ],
)
def test_changed_callee_is_not_run_in_its_old_form(tmp_path, place):
    ours, theirs = package_in(tmp_path, "ours"), package_in(tmp_path, "theirs", guarded=False)
    environment = place(tmp_path, ours, theirs)
    for package, name in ((ours, "ours"), (theirs, "theirs")):
        assert run(tmp_path, name, environment) == [2, 2, 0]
        assert run(tmp_path, name, environment) == [2, 2, 2]
        (package / "inner" / "callee.py").write_text(CALLEE.format(number=21))
    assert run(tmp_path, "theirs", environment) == [2, 2, 2]  # what Numba does on its own
    assert run(tmp_path, "ours", environment) == [42, 42, 0]
    assert run(tmp_path, "ours", environment) == [42, 42, 2]
    assert run(tmp_path, "theirs", environment) == [2, 2, 2]  # and its cache was left alone


@pytest.mark.parametrize("place", [cache_in_environment, cache_of_the_user])
def test_compiled_looks_where_the_cache_is(tmp_path, place):
    environment = place(tmp_path, package_in(tmp_path, "ours"))
    look = (
        "from ours import compiled\n"
        "print(*(int(compiled(e)) for e in ('caller.twice', 'inner.caller.twice', 'caller.once')))"
    )
    assert in_new_process(tmp_path, look, **environment) == ["0", "0", "0"]
    run(tmp_path, "ours", environment)
    assert in_new_process(tmp_path, look, **environment) == ["1", "1", "0"]


def test_nothing_happens_where_nothing_is_cached(tmp_path):
    package_in(tmp_path, "ours")
    code = "from ours import compiled; print(compiled('caller.twice'))"
    assert in_new_process(tmp_path, code, NUMBA_DISABLE_JIT="1") == ["False"]


def test_entries_that_the_command_names_are_compiled_functions():
    from safedrift.cli import shared

    assert len(shared.ENTRIES) >= 5
    for entry in shared.ENTRIES.values():
        module, _, function = entry.rpartition(".")
        found = getattr(import_module(f"safedrift.kernels.{module}"), function)
        assert found.stats.cache_path, entry


# ---------------------------------------------------------------- the first use

WAITING = """
import numba
from safedrift.kernels import notice, types
notice.PATIENCE = {patience}
@numba.njit
def twice(x):
    return 2 * x
twice.py_func.__module__ = "safedrift.kernels.example"
print(twice(1), twice(1.0))
"""


def told_by(patience, **environment):
    """What a process says on stderr that compiles for two types."""
    clean = {key: value for key, value in os.environ.items() if key != "SAFEDRIFT_QUIET"}
    code = WAITING.format(patience=patience)
    done = subprocess.run(
        [sys.executable, "-c", code], env=clean | environment, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout == "2 2.0\n"
    return done.stderr


def test_long_compilations_are_announced_once():
    assert told_by(patience=0.0) == "safedrift: compiling, first time only\n"
    assert told_by(patience=1000.0) == ""
    assert told_by(patience=0.0, SAFEDRIFT_QUIET="1") == ""


@pytest.mark.slow
def test_two_processes_may_compile_the_same_at_once(tmp_path):
    code = """
import safedrift as sd
world = sd.problems.make("stationary", episodes=20)
run = sd.simulate(world, sd.PROPDPPO.for_problem(world, sd.Slater(0.2)))
from safedrift.kernels.tabular.propd_ppo import play
print(run.dynamic_regret[-1].hex(), sum(play.stats.cache_hits.values()))
"""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "SAFEDRIFT_QUIET": "1"}
    start = partial(subprocess.Popen, [sys.executable, "-c", code], env=environment, text=True)
    both = [start(stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    first, second = (process.communicate() for process in both)
    third = start(stdout=subprocess.PIPE, stderr=subprocess.PIPE).communicate()
    value = first[0].split()[0]
    assert second[0].split()[0] == value
    assert third == (f"{value} 1\n", "")
    assert first[1] == second[1] == ""


# ---------------------------------------------------------------- workers of the tests


class Kernel:
    """As much of a dispatcher as the lock looks at."""

    def __init__(self, name, cache):
        self._cache = cache
        self.py_func = type(name, (), {"__module__": "kernels"})


@pytest.mark.skipif(conftest.flock is None, reason="no file locks on this system")
def test_workers_compile_a_kernel_one_at_a_time(tmp_path):
    kept, called, part = (
        Kernel("kept", "on disk"),
        Kernel("called", "on disk"),
        Kernel("part", None),
    )
    part._cache = NullCache()
    held = []  # while each is compiled

    def compile_kernel(kernel, signature):
        held.append((kernel, {path.name for path in tmp_path.iterdir() if is_held(path)}))
        return locked(called, signature) if kernel is kept else signature

    def is_held(path):
        with open(path, "w") as other:  # as another worker would
            try:
                conftest.flock(other, conftest.LOCK_EX | LOCK_NB)
            except BlockingIOError:
                return True
        return False

    locked = conftest.one_at_a_time(compile_kernel, tmp_path)
    assert locked(part, "f8") == locked(kept, "f8") == locked(called, "f8") == "f8"
    own, inner = "kernels.kept", "kernels.called"
    assert held == [(part, set()), (kept, {own}), (called, {own, inner}), (called, {inner})]
    assert not any(map(is_held, tmp_path.iterdir()))
