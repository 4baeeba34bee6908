"""The planner on filtered coefficients against its rivals: the tables of docs/linear.md.

    python studies/adaptive_linear.py [--seeds N] [--out FOLDER] [--calibration]

Random mixtures of 3 to 5 scenarios, two of every kind of drift, M = 3000, seeds from 2*10^6 + 7000
(with --calibration: from 10^6 + 2000, the ones that constants were chosen on), and `blend`. Prints
the mean strict score of every learner in every world and which differences are significant.
"""

import argparse
from pathlib import Path

import numpy as np

import safedrift as sd

LEARNERS = (
    "adaptive-linear-planner", "softmax-lsvi", "discounted-lsvi", "propd-ppo",
    "certainty-equivalence",
)  # fmt: skip
DRIFTS = ("abrupt", "linear", "periodic", "random_walk", "alternating", "bursts", "stationary")
PACES = {"abrupt": ("switches", 4), "random_walk": ("step", 0.01)}  # as they are ...
SHARES = {"periodic": ("period", 0.25), "alternating": ("every", 0.1)}  # ... or as shares of M
FIRST = {"evaluation": 2 * 10**6 + 7000, "calibration": 10**6 + 2000}


def options_of(number, first, M):
    """What `problems.make("random", ...)` is given for a world of the family."""
    drift, seed = DRIFTS[number % len(DRIFTS)], first + number
    rng = np.random.default_rng([seed, 1])
    states, horizon = int(np.floor(4 * (31 / 4) ** rng.random())), int(rng.integers(3, 11))
    few = int(rng.integers(2, 5))
    found = {
        "episodes": M, "seed": seed, "drift": drift, "states": states, "horizon": horizon,
        "actions": int(rng.integers(2, 6)),
        "gamma": round(float(rng.uniform(0.04, 0.12)) * horizon, 3),
        "successors": few if rng.random() < 0.5 else None,
        "scenarios": 2 + int(np.random.default_rng([seed, 2]).integers(1, 4)),
        "per_step": number % 3 != 2,
    }  # fmt: skip
    if drift in PACES:
        found |= dict([PACES[drift]])
    if drift in SHARES:
        name, share = SHARES[drift]
        found[name] = round(share * M)
    return found


def family(first, M=3000, worlds=14):
    """Linear-kernel worlds by label."""
    found = {}
    for number in range(worlds):
        options = options_of(number, first, M)
        table = sd.problems.make("random", **options)
        found[f"{options['drift']} {number}"] = table.as_linear_kernel()
    return found


def show(found):
    """Print mean strict scores; a * says that the first learner is not significantly better."""
    print(f"{'world':<16}" + "".join(f"{name:>26}" for name in found.learners))
    middle = {name: [] for name in found.learners}
    for world in found.worlds:
        line = f"{world:<16}"
        standing = {row["learner"]: row["status"] for row in found.table() if row["world"] == world}
        for name in found.learners:
            mean = np.mean([row.strict_score for row in found.cell(world, name)])
            middle[name].append(mean)
            mark = "*" if standing[name] == "not different" else " "
            line += f"{mean:>25.4f}{mark}"
        print(line)
    print(
        f"{'median':<16}" + "".join(f"{np.median(middle[n]):>25.4f} " for n in middle), flush=True
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--out", type=Path, default=Path("build/adaptive_linear"))
    parser.add_argument("--calibration", action="store_true")
    arguments = parser.parse_args()
    kind = "calibration" if arguments.calibration else "evaluation"
    worlds = {"random": (family(FIRST[kind]), 3)}
    if not arguments.calibration:
        for M in (5_000, 20_000):
            worlds[f"blend-{M}"] = ({f"blend {M}": sd.problems.make("blend", M)}, M // 1000)
    for label, (places, every) in worlds.items():
        for noisy in (False, True):
            print(f"\n{label}, {'Bernoulli' if noisy else 'exact'} signals")
            folder = arguments.out / f"{kind}-{label}-{'bernoulli' if noisy else 'exact'}"
            found = sd.compare(
                places, LEARNERS, arguments.seeds, noisy=noisy, measure_every=every, out=folder
            )
            show(found)


if __name__ == "__main__":
    main()
