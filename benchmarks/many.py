"""Many runs in one call: how much faster two cores are than one.

    python benchmarks/many.py [--cores 2] [--rounds 5] [--seeds 16]
    python benchmarks/many.py --share

Both numbers of workers take turns, and the median of the ratios over the rounds counts. Run it
where nothing else does: "cores given" are CPU seconds over seconds, and should be near the number
of cores. "Compiled" is the share of CPU time in compiled code, which runs beside other threads;
the rest does not, and limits what any number of cores can do. With `--share` nothing else is
measured, from CPU times alone, and printed with that limit, 1 / (1 - share + share / cores).
"""

import argparse
import os
import statistics
import time

import safedrift as sd
from safedrift.kernels import exact
from safedrift.learners.propd_ppo.engines import TableEngine


def timed(work):
    """Seconds and CPU seconds."""
    start, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - cpu


def compiled_share(work):
    """Share of the CPU time of this thread that is spent in compiled code."""
    inside = [0.0]

    def counted(kernel):
        def call(*arguments):
            start = time.thread_time()
            kernel(*arguments)
            inside[0] += time.thread_time() - start

        return call

    play, evaluate = TableEngine.play, exact.evaluate_policies
    TableEngine.play = staticmethod(counted(play))
    exact.evaluate_policies = counted(evaluate)
    start = time.thread_time()
    work()
    total = time.thread_time() - start
    TableEngine.play, exact.evaluate_policies = staticmethod(play), evaluate
    return inside[0] / total


def worlds(episodes):
    """Worlds (S, A, H) with linear drift, each with PROPD-PPO."""
    for S, A, H in ((5, 3, 5), (20, 5, 10), (100, 5, 10)):
        options = {"states": S, "actions": A, "horizon": H, "drift": "linear"}
        world = sd.problems.make("random", episodes=episodes, seed=0, **options)
        yield (S, A, H), world, sd.PROPDPPO.for_problem(world, sd.Slater(0.2))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--episodes", type=int, default=20_000)
    parser.add_argument("--share", action="store_true", help="only how much is compiled")
    chosen = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for sizes, world, learner in worlds(chosen.episodes):
        truth = sd.measure_truth(world)

        def play(workers, world=world, learner=learner, truth=truth):
            sd.simulate_many(world, learner, chosen.seeds, truth=truth, workers=workers)

        play(1)  # compile
        if chosen.share:
            share = statistics.median(compiled_share(lambda: play(1)) for _ in range(3))
            limit = 1 / (1 - share + share / chosen.cores)
            print(f"S, A, H = {sizes}: compiled {share:.1%}, at most {limit:.2f} times one core")
            continue
        ratios, given, rates = [], [], []
        for _ in range(chosen.rounds):
            one, _ = timed(lambda: play(1))
            many, cpu = timed(lambda: play(chosen.cores))
            ratios.append(one / many)
            given.append(cpu / many)
            rates.append(chosen.seeds * chosen.episodes / many)
        print(
            f"S, A, H = {sizes}: {chosen.cores} cores are {statistics.median(ratios):.2f} times "
            f"one ({min(ratios):.2f} to {max(ratios):.2f}), {statistics.median(given):.2f} cores "
            f"given, {statistics.median(rates):,.0f} episodes a second, "
            f"compiled {compiled_share(lambda: play(1)):.1%}"
        )


if __name__ == "__main__":
    main()
