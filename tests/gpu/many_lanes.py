"""Play with several lanes, each a thread: run under the thread sanitizer by test_program.py.

python many_lanes.py FOLDER LANES TEAM WARP RESULT.npz
"""

import sys
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
from comparing import agents, measured, small_world, words  # noqa: E402
from host import Host  # noqa: E402

from safedrift.gpu.program import NOTHING, Layout  # noqa: E402
from safedrift.gpu.runs import play_batches  # noqa: E402


def play(folder, lanes, team, options=()):
    """Sums and multipliers of some learners with two seeds."""
    world = small_world("mixed", K=2, episodes=25)
    learners = [agents(world)[i] for i in (0, 3, 4, 9)]
    batches = play_batches(
        Host(folder, options=options), world.arrays, learners, words([0, 1]), True,
        measured(world), log=True, layout=Layout(lanes, 1, NOTHING, team),
    )  # fmt: skip
    found = {}
    for batch in batches:
        for j, number in enumerate(batch.runs):
            found[f"sums{number}"] = batch.sums[j]
            found[f"mu{number}"] = np.concatenate([log["mu"][j] for log in batch.logs])
    return found


if __name__ == "__main__":
    folder, lanes, team, warp, result = sys.argv[1:]
    options = ("-fsanitize=thread", "-g", f"-DWARP={warp}")
    np.savez(result, **play(folder, int(lanes), int(team), options))
