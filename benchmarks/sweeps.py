"""What a run of a sweep costs beyond playing it: ten thousand tiny runs.

    python benchmarks/sweeps.py [--runs 10000] [--workers 1 2] [--engine local ray]

Runs are played by plain calls of `simulate`, with learner and score, then as a sweep, with local
processes and with Ray where it is installed. Times are CPU times of all processes (Ray's own
servers too), and those of a sweep are differences between a large and a small one, so that neither
other work on the machine nor the start of the processes counts. Reads /proc: Linux only.
"""

import argparse
import importlib.util
import os
import tempfile
import time
from pathlib import Path

import safedrift as sd
from safedrift.experiments.engines import LocalEngine
from safedrift.experiments.ray_engine import RayEngine
from safedrift.experiments.studies import plan_of, study_from
from safedrift.experiments.sweeps import run_sweep
from safedrift.results.scores import score

STUDY = {"episodes": 20, "seeds": 1, "problems": ["stationary"], "learners": ["uniform"]}


def plain_seconds(plan, runs):
    """Seconds per run of simulate alone, in this process."""
    world = plan.places[0].build()
    truth = sd.measure_truth(world)
    names = {"key": "", "world": "", "learner": "", "seed": 0}

    def play(seed):
        learner = plan.entrants[0].build(world, 0.1, False)
        score(sd.simulate(world, learner, seed, truth=truth), names, seconds=0.0, points=0)

    play(0)
    start = time.process_time()
    for seed in range(runs):
        play(seed)
    return (time.process_time() - start) / runs


def processor_seconds_of_descendants():
    """CPU seconds of all living processes that this one started, directly or not."""
    parents, ticks = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()  # a name may hold anything
        except (FileNotFoundError, ProcessLookupError):
            continue
        number = int(stat.parent.name)
        parents[number] = int(fields[1])
        ticks[number] = sum(map(int, fields[11:15]))  # with children that it has waited for
    mine, found = {os.getpid()}, set()
    while mine:
        mine = {number for number, parent in parents.items() if parent in mine}
        found |= mine
    return sum(ticks[number] for number in found) / os.sysconf("SC_CLK_TCK")


def sweep_seconds(runs, engine):
    """CPU seconds and wall seconds of a sweep."""
    plan = plan_of(study_from(STUDY | {"seeds": runs}))
    theirs = 0.0

    def progress(stage, done, total, failed):
        nonlocal theirs
        assert not failed
        if stage == "runs" and done == total:  # processes are about to end
            theirs = processor_seconds_of_descendants()

    with tempfile.TemporaryDirectory() as folder:
        before, start = time.process_time(), time.perf_counter()
        run_sweep(plan, Path(folder) / "a", engine=engine, progress=progress)
        return time.process_time() - before + theirs, time.perf_counter() - start


def report(runs, name, engine, alone):
    """Print what each run of a sweep costs."""
    few, wall_of_few = sweep_seconds(runs // 10, engine)
    many, wall = sweep_seconds(runs, engine)
    more = runs - runs // 10
    each = 1e3 * (many - few) / more
    print(
        f"{runs:,} runs with {name}: {wall:.1f} s; {each:.2f} ms of CPU per run, "
        f"{each - 1e3 * alone:+.2f} ms more than alone; {1e3 * (wall - wall_of_few) / more:.2f} ms "
        "of wall time per run",
        flush=True,
    )


def main():
    engines = {"local": LocalEngine, "ray": lambda workers: RayEngine(workers=workers)}
    there = [x for x in engines if x == "local" or importlib.util.find_spec(x)]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--engine", choices=engines, nargs="+", default=there)
    given = parser.parse_args()
    alone = plain_seconds(plan_of(study_from(STUDY)), 1000)
    print(f"a run alone: {1e3 * alone:.2f} ms of CPU", flush=True)
    for engine in given.engine:
        for workers in given.workers:
            name = f"{workers} {engine} worker{'s' if workers > 1 else ''}"
            report(given.runs, name, engines[engine](workers), alone)


if __name__ == "__main__":
    main()
