"""Same seed, same bits on every CPU: hashes of worlds and runs under other CPUs' code paths.

Run as a script, this file prints a hash per named world:

    python tests/test_same_bits.py maze blend

Each hash covers the arrays of the world in a few episodes and everything in the run of a learner
there. The tests run the script as a processor with other instructions would: BLAS takes its
kernels for another core, NumPy its loops without AVX-512 or AVX2, the C library its functions
without FMA, Numba compiles for a processor without extensions. `same_bits.json` holds the hashes
themselves, so that other machines compare with it; `python tests/test_same_bits.py --record`
writes it anew where a change of the numbers is meant.
"""

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np

RECORDED = Path(__file__).with_name("same_bits.json")

EPISODES = {"thermostat": 12, "departures": 12, "taxi": 8}  # the others are faster: 40
OPTIONS = {"thermostat": {"nodes": 16}}


# ---------------------------------------------------------------- hashes


def arrays_in(value: object, name: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """All arrays and numbers in nested records and mappings, with their names, in order."""
    if isinstance(value, Mapping):
        for key in sorted(value):
            yield from arrays_in(value[key], f"{name}.{key}")
    elif is_dataclass(value):
        for field in fields(value):
            yield from arrays_in(getattr(value, field.name), f"{name}.{field.name}")
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from arrays_in(value._asdict(), name)
    elif isinstance(value, np.ndarray | float | int):
        yield name, np.asarray(value)


def digest(*values: object) -> str:
    """A hash of every bit of every number in `values`."""
    found = hashlib.sha256()
    for value in values:
        for name, array in arrays_in(value):
            found.update(f"{name} {array.dtype.str} {array.shape}".encode())
            found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def hashes(name: str) -> list[str]:
    """Hashes of a named world, and of a short run in it."""
    import safedrift as sd

    world = sd.problems.make(name, EPISODES.get(name, 40), **OPTIONS.get(name, {}))
    agent = sd.PROPDPPO.for_problem(world, knowledge=sd.Slater(0.2), L=20, W=10)
    run = sd.simulate(world, agent, seed=7)
    moments = [world.at(m) for m in (0, world.M // 3, world.M - 1)]
    parts = [(x.successors, x.rewards, x.utilities, x.thresholds, x.initial) for x in moments]
    return [digest(*(array for part in parts for array in part)), digest(run)]


if __name__ == "__main__":
    import safedrift as sd

    chosen = sys.argv[1:] or list(sd.problems.PROBLEMS)
    if chosen == ["--record"]:
        found = {name: hashes(name) for name in sd.problems.PROBLEMS}
        RECORDED.write_text(json.dumps(found, indent=1) + "\n")
    else:
        print(json.dumps({name: hashes(name) for name in chosen}))
