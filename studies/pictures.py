"""A picture of every named world, with PROPD-PPO beside the best safe policies.

    python studies/pictures.py [--out docs/problems] [NAME ...]     # two minutes

Each NAME.png shows what drifts, what safety costs, and what a domain expert would check in a few
representative episodes. Solid lines and upper maps are the best safe policy of that episode. Dashed
lines and lower maps are the mean of the learner's last 100 episodes up to it. The learner has
default constants and knows the world's Slater gap.
"""

import argparse
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import safedrift as sd
from safedrift.experiments.snapshots import (
    learned_policies,
    representative_episodes,
    representative_snapshots,
)
from safedrift.oracles import smallest_gap
from safedrift.problems import PROBLEMS, make
from safedrift.reports.world_pictures import draw_world

EPISODES = 20_000
FEWER = {"thermostat": 2_000}  # where an episode takes milliseconds
WINDOW = 100


def draw(name, path, advance):
    world = make(name, FEWER.get(name, EPISODES))
    found = sd.describe(world)
    agent = sd.PROPDPPO.for_problem(world, sd.Slater(smallest_gap(world)))
    episodes = representative_episodes(world)
    learned = learned_policies(world, agent, episodes, window=WINDOW, progress=advance)
    return draw_world(found, representative_snapshots(world, learned), path)


def main():
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all by default")
    parser.add_argument("--out", type=Path, default=Path("docs/problems"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    columns = (TextColumn("{task.description:<16}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress:
        for name in given.names or PROBLEMS:
            task = progress.add_task(name, total=FEWER.get(name, EPISODES))

            def advance(_, done, total, task=task):
                progress.update(task, completed=done)

            path = draw(name, given.out / f"{name}.png", advance)
            progress.print(f"{path}: {path.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main()
