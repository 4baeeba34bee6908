"""Why features: Algorithm 2 against Algorithm 3 on the same blend of three simulators.

    python studies/features_against_tables.py [--out docs]

The truth is a fixed blend of N = 3 random scenarios. Algorithm 2 knows the scenarios and learns
three numbers per step and channel; Algorithm 3 learns the table of S*A*5 transition probabilities.
Both use their own practical constants and never restart (W = L = M). The curves are DR(n) divided
by the uniform policy's, the mean over the seeds; an algorithm has reached a level when the mean
curve falls below it for good.
"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from rich.progress import track

import safedrift as sd

M, A, H, N, EVERY, GAMMA = 60_000, 4, 6, 3, 5, 0.4
SIZES, SEEDS, LEVEL = (25, 50, 100, 200), range(3), 0.3
NAMES = {"table": "Algorithm 3 (counts)", "linear": "Algorithm 2 (features)"}
COLOURS = {"table": "#D55E00", "linear": "#0072B2"}


def worlds(S, seed):
    """The same world as a table and as a linear kernel."""
    table = sd.problems.make(
        "random", episodes=M, seed=seed, states=S, actions=A, horizon=H, scenarios=N, successors=5,
        gamma=GAMMA, weights=np.broadcast_to([0.5, 0.2, 0.3], (M, N)),
    )  # fmt: skip
    return {"table": table, "linear": table.as_linear_kernel()}


def curve(world, truth, seed):
    """DR(n) over the uniform policy's, at every measured n."""
    agent = sd.PROPDPPO.for_problem(world, sd.Slater(GAMMA), W=M, L=M)
    run = sd.simulate(world, agent, seed, measure_every=EVERY, truth=truth)
    return run.dynamic_regret / run.cumulative_baseline_regret, run.violation[-1, 0] / M


def reached(mean, level):
    """Episodes after which the curve stays below the level, or None."""
    above = np.flatnonzero(mean > level)
    place = above[-1] + 1 if above.size else 0
    return None if place >= mean.size else int((place + 1) * EVERY)


def study():
    found = []
    jobs = [(S, seed) for S in SIZES for seed in SEEDS]
    curves = {(S, kind): [] for S in SIZES for kind in NAMES}
    violations = {(S, kind): [] for S in SIZES for kind in NAMES}
    for S, seed in track(jobs, "learning"):
        both = worlds(S, seed)
        truth = sd.measure_truth(both["table"], np.arange(0, M, EVERY))
        for kind, world in both.items():
            values, violation = curve(world, truth, seed)
            curves[S, kind].append(values)
            violations[S, kind].append(violation)
    for S in SIZES:
        row = {"S": S, "SA": S * A, "N": N}
        for kind in NAMES:
            mean = np.mean(curves[S, kind], axis=0)
            row[kind] = reached(mean, LEVEL)
            row[f"{kind}_at_the_end"] = float(mean[-1])
            row[f"{kind}_violation"] = float(np.mean(violations[S, kind]))
        if row["table"] and row["linear"]:
            row["factor"] = row["table"] / row["linear"]
        found.append(row)
    return found, curves


def draw(found, curves, path):
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2))
    n = np.arange(0, M, EVERY) + EVERY
    for S, style in zip(SIZES, (":", "-.", "--", "-"), strict=True):
        for kind, name in NAMES.items():
            mean = np.mean(curves[S, kind], axis=0)
            left.plot(n, mean, style, color=COLOURS[kind],
                      label=name if SIZES[-1] == S else None)  # fmt: skip
            if kind == "table":
                at = np.flatnonzero(mean < 0.6)[0]
                left.annotate(f"S = {S}", (n[at], 0.6), fontsize=8, rotation=-60, ha="left")
    left.axhline(LEVEL, color="0.7", lw=0.8)
    left.set(xscale="log", xlabel="episodes n", ylabel="DR(n) / DR of the uniform policy",
             ylim=(0, 1.2), title=f"one blend of {N} simulators, A = {A}, H = {H}")  # fmt: skip
    left.legend(frameon=False, fontsize=9, loc="upper right")
    for kind, name in NAMES.items():
        known = [(row["SA"], row[kind]) for row in found if row[kind]]
        right.plot(*zip(*known, strict=True), "o-", color=COLOURS[kind], label=name)
    for row in found:
        if "factor" in row:
            right.annotate(f"x{row['factor']:.0f}", (row["SA"], row["table"]), fontsize=9,
                           xytext=(0, 6), textcoords="offset points", ha="center")  # fmt: skip
    right.set(xscale="log", yscale="log", xlabel="pairs S*A", ylabel="episodes",
              title=f"episodes until DR(n) stays below {LEVEL} of uniform's")  # fmt: skip
    right.set_xticks([S * A for S in SIZES], [S * A for S in SIZES])
    right.minorticks_off()
    right.margins(y=0.15)
    right.legend(frameon=False, fontsize=9)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=140)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs"))
    out = parser.parse_args().out
    found, curves = study()
    for row in found:
        print(json.dumps(row))
    draw(found, curves, out / "features_against_tables.png")


if __name__ == "__main__":
    main()
