"""What a run of a sweep costs beyond playing it: ten thousand tiny runs.

    python benchmarks/sweeps.py [--runs 10000] [--workers 1 2]

The runs are played once by plain calls of `simulate` in one process, with learner and score, then
as a sweep. The difference, per run and process, is what handing out, keeping and writing rows cost.
"""

import argparse
import tempfile
import time
from pathlib import Path

import safedrift as sd
from safedrift.experiments.engines import LocalEngine
from safedrift.experiments.studies import plan_of, study_from
from safedrift.experiments.sweeps import run_sweep
from safedrift.results.scores import score


def plain_seconds(plan, runs):
    """Seconds per run of simulate alone, in this process."""
    world = plan.places[0].build()
    truth = sd.measure_truth(world)
    names = {"key": "", "world": "", "learner": "", "seed": 0}

    def play(seed):
        learner = plan.entrants[0].build(world, 0.1, False)
        score(sd.simulate(world, learner, seed, truth=truth), names, seconds=0.0, points=0)

    play(0)
    start = time.perf_counter()
    for seed in range(runs):
        play(seed)
    return (time.perf_counter() - start) / runs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()
    study = {"episodes": 20, "seeds": given.runs, "problems": ["stationary"],
             "learners": ["uniform"]}  # fmt: skip
    plan = plan_of(study_from(study))
    alone = plain_seconds(plan, min(given.runs, 1000))
    print(f"a run alone: {1e3 * alone:.2f} ms")
    for workers in given.workers:
        marks = {}

        def progress(stage, done, total, failed, marks=marks):
            if stage == "runs":
                marks.setdefault(done, time.perf_counter())

        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            run_sweep(plan, Path(folder) / "a", engine=LocalEngine(workers), progress=progress)
            total = time.perf_counter() - start
        first, last = min(marks), max(marks)
        per_run = workers * (marks[last] - marks[first + 1]) / (last - first - 1)
        print(
            f"{given.runs:,} runs with {workers} workers: {total:.1f} s in all; "
            f"{1e3 * per_run:.2f} ms of a process per run, {1e3 * (per_run - alone):+.2f} ms more "
            "than alone"
        )


if __name__ == "__main__":
    main()
