"""What a run of a sweep costs beyond playing it: ten thousand tiny runs.

    python benchmarks/sweeps.py [--runs 10000] [--workers 1 2]

Runs are played by plain calls of `simulate`, with learner and score, then as a sweep. Times are CPU
times of all processes, and those of a sweep are differences between a large and a small one, so
that neither other work on the machine nor the start of the processes counts.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import safedrift as sd
from safedrift.experiments.engines import LocalEngine
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


def cpu():
    """CPU seconds of this process and of those that it has waited for."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(x.ru_utime + x.ru_stime for x in map(resource.getrusage, kinds))


def sweep_seconds(runs, workers):
    """CPU seconds and wall seconds of a sweep."""
    plan = plan_of(study_from(STUDY | {"seeds": runs}))
    with tempfile.TemporaryDirectory() as folder:
        before, start = cpu(), time.perf_counter()
        run_sweep(plan, Path(folder) / "a", engine=LocalEngine(workers))
        return cpu() - before, time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()
    alone = plain_seconds(plan_of(study_from(STUDY)), 1000)
    print(f"a run alone: {1e3 * alone:.2f} ms of CPU")
    for workers in given.workers:
        few, _ = sweep_seconds(given.runs // 10, workers)
        many, wall = sweep_seconds(given.runs, workers)
        each = (many - few) / (given.runs - given.runs // 10)
        print(
            f"{given.runs:,} runs with {workers} workers: {wall:.1f} s; {1e3 * each:.2f} ms of CPU "
            f"per run, {1e3 * (each - alone):+.2f} ms more than alone",
            flush=True,
        )


if __name__ == "__main__":
    main()
