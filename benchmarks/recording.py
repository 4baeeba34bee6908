"""What it costs to write a run to a folder, and what ten million episodes need.

    python benchmarks/recording.py [--episodes 60000] [--long 10000000]

The same run with and without a folder, in turns, at S = 20, A = 5, H = 10; the truth is given, so
that learning and recording are compared with learning alone: medians of wall and of CPU times, of
which only the latter mean something where others use the machine. Then, with --long, one run of
many episodes with log-spaced records at S = 5, A = 3, H = 5, and its peak memory.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

import safedrift as sd
from safedrift.experiments.run_folder import RunFolder
from safedrift.results.measured import measured_episodes


def setting(episodes, S=20, A=5, H=10):
    world = sd.problems.make(
        "random", episodes=episodes, states=S, actions=A, horizon=H, drift="abrupt"
    )
    return world, sd.PROPDPPO.for_problem(world, sd.Slater(0.5))


def clocks():
    """Wall and CPU time."""
    return np.array([time.perf_counter(), time.process_time()])


def cost(episodes, rounds, every, seconds):
    world, agent = setting(episodes)
    truth = sd.measure_truth(world, measured_episodes(episodes, every))
    options = {"truth": truth, "measure_every": every}
    sd.simulate(world, agent, **options)
    plain, recorded = [], []
    with tempfile.TemporaryDirectory() as name:
        for i in range(rounds):
            start = clocks()
            sd.simulate(world, agent, **options)
            plain.append(clocks() - start)
            start = clocks()
            with RunFolder(Path(name) / str(i), checkpoint_seconds=seconds) as folder:
                folder.finish(sd.simulate(world, agent, out=folder, **options))
            recorded.append(clocks() - start)
    print(f"{episodes:,} episodes, every {every} measured, checkpoints every {seconds:g} s:")
    pairs = zip(np.median(plain, axis=0), np.median(recorded, axis=0), strict=True)
    for kind, (alone, with_folder) in zip(("wall", "CPU"), pairs, strict=True):
        print(
            f"  {kind}: {alone:.2f} s alone, {with_folder:.2f} s into a folder, "
            f"{100 * (with_folder / alone - 1):+.1f} percent",
            flush=True,
        )


def long_run(episodes):
    world, agent = setting(episodes, S=5, A=3, H=5)
    built = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with tempfile.TemporaryDirectory() as name:
        start = time.perf_counter()
        run = sd.simulate(world, agent, measure_log=100, out=Path(name) / "run")
        size = sum(path.stat().st_size for path in (Path(name) / "run").iterdir())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{episodes:,} episodes, {run.episodes.size:,} log-spaced records: "
        f"{time.perf_counter() - start:.0f} s, peak memory {peak:,.0f} MiB "
        f"(the world alone: {built:,.0f} MiB), folder {size / 2**20:.1f} MiB"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--long", type=int, help="episodes of the long run, e.g. 10000000")
    given = parser.parse_args()
    if given.long:
        long_run(given.long)
        return
    for every, seconds in ((1, 30), (10, 30), (10, 1)):
        cost(given.episodes, given.rounds, every, seconds)


if __name__ == "__main__":
    main()
