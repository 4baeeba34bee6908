"""Caution, false alarms and delays of the adaptive planner: tables of docs/adaptive.md.

    python studies/adaptive_details.py [--parts caution alarms delays] [--workers 2]

Prints one table per part. Worlds are random ones of the family "evaluation", or drawn in the same
way from seeds of their own.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from itertools import product

import numpy as np

import safedrift as sd
from safedrift.experiments.evaluation import evaluation_worlds
from safedrift.experiments.playing import play_chunks

LEARNER = "adaptive-planner"
SIGNALS = {"exact": False, "Bernoulli": True}
CAUTIONS = (0.0, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
WORLDS = ("abrupt 4", "linear 5", "periodic 4")
SEEDS = 9
FIRST_SEED = 3 * 10**6  # of worlds for alarms and delays
EPISODES, SWITCHES = 20_000, 4


# ---------------------------------------------------------------- violation against regret


def caution_of(job):
    """Positive parts of violation and regret per episode of one run."""
    label, signals, caution, seed = job
    world = sd.problems.make("random", **evaluation_worlds("long")[label])
    learner = sd.learners.make(LEARNER, world, caution=caution)
    found = sd.simulate(world, learner, seed=seed, noisy=SIGNALS[signals], measure_every=19)
    summary = found.summary()
    violation, regret = (
        np.sum(summary[f"positive_{name}_per_episode"]) for name in ("violation", "regret")
    )
    return job, violation, regret


def print_caution(pool):
    jobs = list(product(WORLDS, SIGNALS, CAUTIONS, range(SEEDS)))
    cells = {}
    for (label, signals, caution, _), *numbers in pool.map(caution_of, jobs):
        cells.setdefault((label, signals, caution), []).append(numbers)
    print("| violation, regret | " + " | ".join(str(c) for c in CAUTIONS) + " |")
    print("|---" * (1 + len(CAUTIONS)) + "|")
    for label, signals in product(WORLDS, SIGNALS):
        means = [np.mean(cells[label, signals, c], axis=0) for c in CAUTIONS]
        line = (f"{violation:.4f}, {regret:.4f}" for violation, regret in means)
        print(f"| {label}, {signals} | " + " | ".join(line) + " |")


# ---------------------------------------------------------------- alarms


def sizes_of(number):
    rng = np.random.default_rng([FIRST_SEED + number, 1])
    return {
        "states": int(rng.integers(4, 16)),
        "actions": int(rng.integers(2, 5)),
        "horizon": int(rng.integers(3, 9)),
    }


def learner_after(world, noisy):
    """The algorithm after all episodes of a world."""
    learner = sd.learners.make(LEARNER, world).fresh(0)
    for _ in play_chunks(world, learner, 0, noisy, np.array([0])):
        pass
    return learner.algorithm


def false_alarms_of(job):
    """Events in a world that does not change, and corrections of all filters, used or not."""
    number, signals = job
    size = {"episodes": EPISODES, "seed": FIRST_SEED + number, "drift": "stationary"}
    world = sd.problems.make("random", **size, **sizes_of(number))
    learner = learner_after(world, SIGNALS[signals])
    return job, len(learner.events()), int(learner.memory.clock.alarms.sum())


def print_alarms(pool, worlds=16):
    counts = {signals: [0, 0] for signals in SIGNALS}
    for (_, signals), *found in pool.map(false_alarms_of, list(product(range(worlds), SIGNALS))):
        counts[signals] = [a + b for a, b in zip(counts[signals], found, strict=True)]
    allowed = 1e-5 * EPISODES * worlds
    print(
        f"{worlds} worlds, {EPISODES} episodes each ({allowed:.1f} false alarms allowed); events, "
        f"corrections of all filters: {counts}"
    )


def delays_of(job):
    """Episodes from every switch to the first event after it, at most 500, by kind of quantity."""
    number, signals = job
    sizes = sizes_of(number) | {"switches": SWITCHES, "drift": "abrupt"}
    world = sd.problems.make("random", EPISODES, FIRST_SEED + number, **sizes)
    events = learner_after(world, SIGNALS[signals]).events()
    path = world.arrays.reward_path
    moved = (np.diff(path.weight, axis=0) != 0) | (np.diff(path.scenario, axis=0) != 0)
    found = []
    for switch in np.flatnonzero(moved.any(axis=1)) + 1:
        for kind in ("transitions", "signals"):
            after = [
                event.episode - switch
                for event in events
                if (event.quantity == "transition") == (kind == "transitions")
                and switch <= event.episode < switch + 500
            ]
            found.append((kind, min(after, default=np.nan)))
    return signals, found


def print_delays(pool, worlds=12):
    delays = {}
    for signals, found in pool.map(delays_of, list(product(range(worlds), SIGNALS))):
        for kind, delay in found:
            delays.setdefault((kind, signals), []).append(delay)
    print("| | switches | without an event | median delay | 90 percent |")
    print("|---|---|---|---|---|")
    for (kind, signals), values in sorted(delays.items()):
        known = np.array(values)[~np.isnan(values)]
        middle, late = np.quantile(known, [0.5, 0.9]) if known.size else (np.nan, np.nan)
        missed = len(values) - known.size
        print(f"| {kind}, {signals} | {len(values)} | {missed} | {middle:.0f} | {late:.0f} |")


PARTS = {"caution": print_caution, "alarms": print_alarms, "delays": print_delays}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    with ProcessPoolExecutor(arguments.workers) as pool:
        for part in arguments.parts:
            print(f"\n{part}\n")
            PARTS[part](pool)


if __name__ == "__main__":
    main()
