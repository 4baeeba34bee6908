"""Same seed, same bits on every CPU: hashes of worlds, parameters and runs.

Run as a script, this file prints the hashes of named worlds:

    python tests/test_same_bits.py maze blend

The tests run the script as other processors would: BLAS with the kernels of another core, NumPy
without AVX-512 or AVX2, the C library without fused multiply-add, Numba for a processor without any
extension. All must print the same.

`same_bits.json` holds what they print, so that every machine compares itself with the others. A
change that is meant to change numbers, even the last digit of one, comes with
`python tests/test_same_bits.py --record`. What is promised: the same bits on every x86-64 Linux.
Elsewhere a C library may round powers and square roots of sums in its own way.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import safedrift as sd

RECORDED = Path(__file__).with_name("same_bits.json")
EPISODES = {"thermostat": 12, "departures": 12, "taxi": 8}  # the others are faster: 40
OPTIONS = {"thermostat": {"nodes": 16}}


# ---------------------------------------------------------------- hashes


def arrays_in(value: object, name: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """All arrays and numbers in nested records, mappings and lists, with their names, in order."""
    if isinstance(value, Mapping):
        for key in sorted(value):
            yield from arrays_in(value[key], f"{name}.{key}")
    elif is_dataclass(value):
        yield from arrays_in({x.name: getattr(value, x.name) for x in fields(value)}, name)
    elif hasattr(value, "_asdict"):
        yield from arrays_in(value._asdict(), name)
    elif isinstance(value, list | tuple):
        yield from arrays_in(dict(enumerate(value)), name)
    elif isinstance(value, np.ndarray | np.generic | float | int):
        yield name, np.asarray(value)


def digest(value: object) -> str:
    """A hash of every bit of every number in `value`."""
    found = hashlib.sha256()
    for name, array in arrays_in(value):
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def hashes(name: str) -> dict[str, str]:
    """Hashes of a named world, of a learner's parameters there, and of a short run."""
    world = sd.problems.make(name, EPISODES.get(name, 40), **OPTIONS.get(name, {}))
    moments = [world.at(m) for m in (0, world.M // 3, world.M - 1)]
    slater, moved = sd.Slater(0.2), sd.Budgets(1.0, 0.3, 0.7, 2.0, 0.1)
    parameters = [
        sd.PROPDPPO.for_problem(world, slater, mode=mode, budgets=moved).parameters
        for mode in ("printed", "repaired", "practical")
    ]
    run = sd.simulate(world, sd.PROPDPPO.for_problem(world, slater, L=20, W=10), seed=7)
    numbers = {x.name: getattr(run, x.name) for x in fields(run)}
    for later in ("world", "learner"):  # what a run refers to, not what it found
        numbers.pop(later, None)
    tables = [(x.successors, x.rewards, x.utilities, x.thresholds, x.initial) for x in moments]
    return {
        "world": digest(tables),
        "parameters": digest(parameters),
        "run": digest(numbers),
    }


# ---------------------------------------------------------------- other processors


def numpy_without(*parts: str) -> dict[str, str]:
    """NumPy without the instructions that have one of `parts` in their names, of those found."""
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    dropped = [name for name in found if any(part in name for part in parts)]
    return {"NPY_DISABLE_CPU_FEATURES": " ".join(dropped)}


PROCESSORS = {
    "as it is": {},
    **{core: {"OPENBLAS_CORETYPE": core} for core in ("Nehalem", "Haswell", "Zen", "SkylakeX")},
    "NumPy without AVX-512": numpy_without("AVX512", "V4"),
    "NumPy without AVX": numpy_without(""),
    "C library without FMA": {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA,-FMA4"},
    "Numba without AVX": {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
}


@cache
def printed(processor: str) -> dict[str, dict[str, str]]:
    """What the script prints on a processor."""
    environment = os.environ | PROCESSORS[processor]
    command = [sys.executable, __file__, *sd.problems.PROBLEMS]
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


QUICK = ("Haswell", "C library without FMA")  # the others take long together


@pytest.mark.parametrize(
    "processor",
    [
        x if x in QUICK else pytest.param(x, marks=pytest.mark.slow)
        for x in PROCESSORS
        if x != "as it is"
    ],
)
def test_every_processor_gives_the_same_bits(processor):
    assert printed(processor) == printed("as it is")


def test_this_machine_gives_the_bits_of_the_others():
    assert printed("as it is") == json.loads(RECORDED.read_text())


def test_every_bit_counts():
    table = {"a": np.array([1.0, 2.0]), "b": [3, (0.5, np.float64(0.25))]}
    same = {"b": [3, (0.5, np.float64(0.25))], "a": np.array([1.0, 2.0])}
    assert digest(table) == digest(same)
    last = {"a": np.array([1.0, np.nextafter(2.0, 3.0)]), "b": table["b"]}
    deep = {"a": table["a"], "b": [3, (0.5, np.float64(0.250000001))]}
    assert len({digest(x) for x in (table, last, deep, sd.Budgets(1, 2, 3, 4, 5))}) == 4


if __name__ == "__main__":
    if sys.argv[1:] == ["--record"]:
        found = {name: hashes(name) for name in sd.problems.PROBLEMS}
        RECORDED.write_text(json.dumps(found, indent=1) + "\n")
    else:
        print(json.dumps({name: hashes(name) for name in sys.argv[1:]}))
