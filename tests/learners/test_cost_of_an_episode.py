"""An episode touches what its window has seen, not all states: counted in pages of memory.

What a learner has one number per step and state of, is laid in memory of its own, of which the
operating system says how much was ever touched. Nothing looks at a clock.
"""

import mmap
from pathlib import Path

import numpy as np
import pytest

import safedrift as sd

MAPS = Path("/proc/self/smaps")
S, H, A, EPISODES = 400_000, 5, 3, 30


def touched_pages(address):
    """How many pages of the mapping that starts at an address were ever read or written."""
    lines = iter(MAPS.read_text().splitlines())
    start = next(line for line in lines if line.startswith(f"{address:x}-"))
    resident = next(line for line in lines if line.startswith("Rss:"))
    low, high = (int(x, 16) for x in start.split()[0].split("-"))
    pages = int(resident.split()[1]) * 1024 // mmap.PAGESIZE
    return pages, (high - low) // mmap.PAGESIZE


def played(agent, episodes):
    rng = np.random.default_rng(0)
    for _ in range(episodes):
        agent.begin_episode([0.5])
        states = rng.integers(0, S, H)
        actions = [agent.act(h, int(s)) for h, s in enumerate(states)]
        agent.end_episode(sd.Trajectory(states, actions, rng.random(H), rng.random((1, H))))


@pytest.mark.skipif(not MAPS.exists(), reason="Linux says what was touched")
def test_an_episode_does_not_look_at_all_states():
    agent = sd.PROPDPPO.for_problem(
        sd.ProblemSpec(H=H, S=S, A=A, M=EPISODES), sd.Slater(0.5), mode="repaired",
        budgets=sd.Budgets(9, 3, 3, 9), W=10, L=15,
    )  # fmt: skip
    own = mmap.mmap(-1, H * S * 4)
    slots = np.frombuffer(own, np.int32).reshape(H, S)
    memory = agent.memory
    agent.engine.memory = memory._replace(policy=memory.policy._replace(slot_of=slots))
    played(agent, EPISODES)
    assert agent.memory.policy.slot_of is slots
    pages, room = touched_pages(slots.ctypes.data)
    assert 0 < pages <= EPISODES * H  # a page for every visited state
    assert room > 10 * EPISODES * H
