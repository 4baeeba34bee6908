"""PROPD-PPO with counts beside UCBVI of rlberry, in the same worlds, in turns in one run.

    python benchmarks/ucbvi.py [--rounds 5]

UCBVI knows no constraint and forgets nothing; it is the closest algorithm in a library of others:
optimistic planning on counts, which differ between steps. rlberry is installed from PyPI into
build/rlberry and runs in a process of its own. CPU time per episode, learner and world; rlberry's
includes the environment, which is a few lines of NumPy, and its log of visited states. The median
over the rounds counts.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from bench import W, player

import safedrift as sd
from builders import small_world

PLACE = Path(__file__).parents[1] / "build" / "rlberry"
PACKAGES = ("rlberry==0.7.3", "rlberry-scool==0.7.3")

OTHER = """
import logging, sys, time
import gymnasium, numpy as np
from rlberry.spaces import Discrete
from rlberry_scool.agents.ucbvi import UCBVIAgent

logging.disable(logging.WARNING)
file, episodes = sys.argv[1], int(sys.argv[2])
data = np.load(file)
P, R, start = data["P"].cumsum(axis=-1), data["R"], data["start"].cumsum()
H, S, A = R.shape

class World(gymnasium.Env):
    observation_space, action_space = Discrete(S), Discrete(A)
    reward_range = (0.0, 1.0)
    def reset(self, seed=None, options=None):
        self.h, self.s = 0, int(min(np.searchsorted(start, draw.random()), S - 1))
        return self.s, {}
    def step(self, a):
        reward = R[self.h, self.s, a]
        self.s = int(min(np.searchsorted(P[self.h, self.s, a], draw.random()), S - 1))
        self.h += 1
        return self.s, reward, False, False, {}

def play(n):
    began = time.process_time()
    agent.fit(n)
    return (time.process_time() - began) / n

draw = np.random.default_rng(0)
agent = UCBVIAgent(World(), horizon=H, stage_dependent=True, seeder=0)
play(3)  # compile
print(play(episodes))
"""


def installed():
    """The Python of an environment with rlberry; the error of pip where that cannot be had."""
    python = PLACE / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", PLACE], check=True)
    done = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", *PACKAGES],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"rlberry cannot be installed:\n{done.stderr}")
    return python


def ours(S, A, H):
    """Play 20 windows of W episodes: CPU seconds per episode."""
    world = small_world(M=W, S=S, A=A, H=H)
    agent = sd.PROPDPPO.for_problem(
        world, sd.Slater(0.5), mode="repaired", budgets=sd.Budgets(9, 3, 3, 9), W=W, L=W
    )
    play = player(world, agent, W)
    play()

    def timed():
        began = time.process_time()
        for _ in range(20):
            play()
        return (time.process_time() - began) / (20 * W)

    return world, timed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    python = installed()
    for S, A, H in ((5, 3, 5), (20, 5, 10), (100, 5, 10)):
        world, timed = ours(S, A, H)
        cmdp = world.at(0)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "world.npz"
            tables = {"P": cmdp.dense_transitions(), "R": cmdp.rewards, "start": cmdp.initial}
            np.savez(file, **tables)
            rows = []
            for _ in range(chosen.rounds):
                fast = timed()
                command = [python, "-c", OTHER, file, str(W)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                rows.append((fast, float(done.stdout.split()[-1])))
        fast, slow = (statistics.median(column) for column in zip(*rows, strict=True))
        ratio = statistics.median(other / own for own, other in rows)
        print(
            f"S, A, H = {S}, {A}, {H}: safedrift {fast * 1e6:.2f} us, UCBVI {slow * 1e6:.0f} us "
            f"an episode, {ratio:.0f} times"
        )


if __name__ == "__main__":
    main()
