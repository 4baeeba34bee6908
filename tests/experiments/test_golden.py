"""Golden traces: runs recorded before the learner became a protocol, equal bit for bit.

golden.json has a hash of every column of every run below. Hashes under "recorded" were computed by
the code before the redesign, those under "changed" afterwards, with the reason: sums that went
through BLAS and optima that came from HiGHS differ in their last digits.
`python tests/experiments/test_golden.py` computes all hashes again and says which ones differ.
"""

import hashlib
import itertools
import json
from functools import cache
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import safedrift as sd

FILE = Path(__file__).parent / "golden.json"
SIGNALS = ("optimistic", "plain", "observed")


@cache
def world_of(name):
    make = sd.problems.make
    if name in ("scen", "onehot"):
        base = make("random", episodes=200, seed=1, drift="linear")
        return base.as_linear_kernel(rewards="one-hot" if name == "onehot" else "scenarios")
    return {
        "random1": lambda: make("random", episodes=400, seed=1, drift="linear"),
        "random2": lambda: make("random", episodes=300, seed=2, states=7, actions=4, constraints=2),
        "maze": lambda: make("maze", episodes=500, seed=0),
        "blend": lambda: make("blend", episodes=150),
        "thermostat": lambda: make("thermostat", episodes=30, nodes=16),
    }[name]()


def each_mode(kind, name):
    world = world_of(name)
    budgets = sd.budgets(world)
    for knowledge, mode in itertools.product(
        ("slater", "local"), ("printed", "repaired", "practical")
    ):
        known = sd.Slater(0.1) if knowledge == "slater" else sd.local_budgets(world)
        agent = sd.PROPDPPO.for_problem(world, known, mode=mode, budgets=budgets)
        yield f"{kind}/{name}/{knowledge}-{mode}", sd.simulate(world, agent, seed=3)


def each_signal(kind, name, L, W, measure_every=1):
    world = world_of(name)
    for noisy, signal in itertools.product((False, True), SIGNALS):
        agent = sd.PROPDPPO.for_problem(
            world, sd.Slater(0.2), noisy=noisy, dual_signal=signal, L=L, W=W
        )
        run = sd.simulate(world, agent, seed=5, noisy=noisy, measure_every=measure_every)
        yield f"{kind}/{name}/noisy{noisy}-{signal}", run


def box():
    world = world_of("thermostat")
    for noisy in (False, True):
        agent = sd.PROPDPPO.for_problem(world, sd.Slater(0.5), noisy=noisy, L=12, W=9)
        yield f"box/thermostat/noisy{noisy}", sd.simulate(world, agent, seed=5, noisy=noisy)


def dry(step):
    return 0.0 if step.terminated and step.reward == 0 else 1.0


def environments():
    lake = sd.from_gymnasium("FrozenLake-v1", 15, dry, threshold=14.5, episodes=150)
    for mode, budgets in (("practical", None), ("repaired", sd.Budgets(1.0, 1.0, 1.0, 1.0))):
        agent = sd.PROPDPPO.for_problem(lake, sd.Slater(0.4), mode=mode, budgets=budgets)
        yield f"environment/lake/{mode}", sd.simulate(lake, agent, seed=2)
    for noisy in (False, True):
        maze = sd.from_gymnasium(gymnasium.make("safedrift/maze-v0", episodes=150, noisy=noisy))
        agent = sd.PROPDPPO.for_problem(maze, sd.Slater(0.4))
        yield f"environment/maze/noisy{noisy}", sd.simulate(maze, agent, seed=2)


CASES = {
    "tabular modes": lambda: each_mode("tabular", "random1"),
    "tabular signals": lambda: each_signal("tabular", "maze", 70, 45, 3),
    "environments": environments,
    "box": box,
}
SLOW = {
    "tabular modes, maze": lambda: each_mode("tabular", "maze"),
    "tabular modes, K = 2": lambda: each_mode("tabular", "random2"),
    "tabular signals, K = 1": lambda: each_signal("tabular", "random1", 70, 45, 3),
    "tabular signals, K = 2": lambda: each_signal("tabular", "random2", 70, 45, 3),
    "box modes": lambda: each_mode("box", "thermostat"),
    **{
        f"linear {what}, {name}": call
        for name in ("blend", "scen", "onehot")
        for what, call in (
            ("modes", lambda name=name: each_mode("linear", name)),
            ("signals", lambda name=name: each_signal("linear", name, 40, 25)),
        )
    },
}


def hashes(runs):
    found = {}
    for key, run in runs:
        for name, values in run.columns().items():
            array = np.ascontiguousarray(values)
            text = hashlib.sha256(f"{array.dtype}{array.shape}".encode() + array.tobytes())
            found[f"{key}|{name.removeprefix('trace.')}"] = text.hexdigest()[:16]
    return found


@cache
def golden():
    stored = json.loads(FILE.read_text())
    return stored["recorded"] | stored["changed"]["hashes"]


@pytest.mark.parametrize(
    "case", [*CASES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_runs_are_those_recorded_before_the_redesign(case):
    found = hashes((CASES | SLOW)[case]())
    different = [key for key in found if found[key] != golden()[key]]
    assert not different


def test_what_was_recorded_covers_every_mode_kind_of_world_and_dual_signal():
    recorded = json.loads(FILE.read_text())["recorded"]
    for part in ("tabular/", "linear/", "box/", "environment/", "local-printed", "observed|mu"):
        assert any(part in key for key in recorded), part


if __name__ == "__main__":
    now = {}
    for case in (CASES | SLOW).values():
        now |= hashes(case())
    for key in sorted(now):
        if now[key] != golden().get(key):
            print("differs:", key)
