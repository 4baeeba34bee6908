"""Table 1 of the paper for the settings with counts, measured with many seeds.

    python studies/rates_many.py --device gpu [--largest 100_000_000] [--seconds 560] [--out docs]
    python studies/rates_many.py --largest 100_000 --seeds 4        # a small version on the CPU
    python studies/rates_many.py --from-csv                         # tables and picture, seconds

The worlds, schedules and constants are those of the group "schedule" of rates.py; every M is a run
of its own. All four settings of a world are played in one call. A run by itself is slow on a GPU:
there the worlds and several M are played beside each other, the longest runs first. Results:
rates_many.csv (one row per setting, M and world: means and deviations over the seeds), written
whenever a world is finished; rates_many.png; and the tables between the two markers of rates.md,
of the M whose worlds are all there. Stored rows of what is not played again are kept.

With 100 seeds on one NVIDIA H200, M = 10⁶ took 10 s, and 3 · 10⁶ to 10⁸ together 508 s. The host
prepares the worlds: those of 10⁸ were ready after 71 to 122 s, and one takes up to 14 GB of memory
while it is made, so only four of M ≥ 3 · 10⁷ are prepared at a time. `--seconds` stops what is
playing by then; worlds that are finished stay.
"""

import argparse
import csv
import os
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from math import gcd, isqrt
from pathlib import Path
from threading import BoundedSemaphore

import matplotlib.pyplot as plt
import numpy as np
import rates

import safedrift as sd

SETTINGS = tuple(setting for setting in rates.SETTINGS if setting.kind == "table")
GRID = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000,
        10_000_000, 30_000_000, 100_000_000)  # fmt: skip
FIGURES = {"DR": "dynamic_regret", "CV": "violation", "DR+": "positive_regret",
           "CV+": "positive_violation"}  # fmt: skip
BESIDE = 24  # worlds that are played beside each other on a GPU
LONG = 30_000_000  # episodes of a world that takes gigabytes while it is made, up to 14 at 10⁸
PREPARING = BoundedSemaphore(4)  # of these, at a time
SINGLE = Path(__file__).parents[1] / "docs" / "rates.csv"  # one run per world, has mu*
MARK = "<!-- table of studies/rates_many.py: {} -->"


def label(setting):
    return f"{setting.theorem} {setting.rho}".strip()


def stride(M, agents):
    """A prime near M / MEASURED that divides no period of any learner."""
    periods = [n for x in agents for n in (x.parameters.improvement.L, x.parameters.evaluation.W)]
    n = max(1, -(-M // rates.MEASURED))
    while n > 1 and (
        any(n % k == 0 for k in range(2, isqrt(n) + 1)) or any(gcd(n, p) > 1 for p in periods)
    ):
        n += 1
    return n


def world_of(M, seed):
    """The world of rates.py and its total budgets, which do not depend on M."""
    short, budgets = rates.world_of.__wrapped__("table", 1_000, seed)
    now = short.transition_path.scenario[:, 0].tolist()
    required = np.stack([short.thresholds[now.index(i)] for i in range(rates.SCENARIOS)])
    segments = rates.SWITCHES + 1  # as sd.drift.abrupt has them, without weights of 10⁸ episodes
    lengths = np.diff([i * M // segments for i in range(segments + 1)])
    path = np.repeat(np.arange(segments) % rates.SCENARIOS, lengths).astype(np.int32)
    return sd.DriftingCMDP(short.scenarios, path, thresholds=required[path]), budgets


def learners(world, budgets):
    """One for each setting, with the constants of the group "schedule"."""
    local = sd.local_budgets(world, "l1")
    return {label(setting): learner(setting, world, budgets, local) for setting in SETTINGS}


def learner(setting, world, budgets, local):
    """A learner that keeps what follows from its budgets, not the budgets of every episode."""
    slater = setting.knowledge == "Slater"
    made = sd.PROPDPPO.for_problem(
        world, sd.Slater(rates.GAMMA) if slater else local, mode="repaired", budgets=budgets,
        rho=rates.RHO.get(setting.rho, 1 / 2), **rates.schedule(setting, world.M),
    )  # fmt: skip
    kept = made.knowledge if slater else sd.LocalBudgets()
    return sd.PROPDPPO(made.sizes, made.initial, made.parameters, kept)


def prepared(M, seed):
    """A world, its learners, how often it is measured, and its optima."""
    with PREPARING if M >= LONG else nullcontext():
        world, budgets = world_of(M, seed)
        agents = learners(world, budgets)
        every = stride(M, agents.values())
        return world, agents, every, sd.measure_truth(world, np.arange(0, M, every))


class TimeIsUpError(Exception):
    """The time that was given is over."""


def play(M, seed, seeds, device, deadline):
    """Rows of all settings in one world, over all seeds."""

    def check(*_):
        if time.monotonic() > deadline:
            raise TimeIsUpError

    check()
    world, agents, every, truth = prepared(M, seed)
    with stream(device):
        found = sd.simulate_many(
            world, agents, seeds, device=device, measure_every=every, truth=truth, progress=check
        )
    rows = []
    for i, setting in enumerate(SETTINGS):
        row = {"theorem": setting.theorem, "rho": setting.rho, "M": M, "world": seed,
               "seeds": seeds, "measure_every": every, "device": found.manifest.device}  # fmt: skip
        for name, array in FIGURES.items():
            last = getattr(found, array)[i, :, -1].reshape(seeds)
            row |= {name: last.mean(), f"{name} sd": last.std(ddof=1) if seeds > 1 else 0.0}
            row |= {f"{name} zeros": int((last == 0.0).sum())} if name == "CV" else {}
        rows.append(row)
    return rows


def stream(device):
    """A stream of its own on a GPU, so that worlds are played beside each other."""
    if device == "cpu":
        return nullcontext()
    import cupy

    return cupy.cuda.Stream(non_blocking=True)


def study(grid, seeds, device, deadline):
    """Yield the rows of a world whenever one is finished, the longest first."""
    started = time.monotonic()
    with ThreadPoolExecutor(BESIDE if device == "gpu" else 1) as pool:
        playing = {
            pool.submit(play, M, seed, seeds, device, deadline): (M, seed)
            for M in sorted(grid, reverse=True)
            for seed in rates.WORLDS
        }
        for future in as_completed(playing):
            M, seed = playing[future]
            seconds = time.monotonic() - started
            try:
                yield future.result()
            except TimeIsUpError:
                print(f"M = {M:,}, world {seed}: not finished after {seconds:.0f} s", flush=True)
            else:
                print(f"M = {M:,}, world {seed}: finished after {seconds:.0f} s", flush=True)


def ordered(rows):
    """Each row once, the latest, in the order of the table."""
    names = [(setting.theorem, setting.rho) for setting in SETTINGS]
    latest = {
        (row["M"], row["world"], names.index((row["theorem"], row["rho"]))): row for row in rows
    }
    return [latest[key] for key in sorted(latest)]


def complete(rows):
    """Rows of the M of which there are all worlds."""
    worlds = {}
    for row in rows:
        worlds.setdefault(row["M"], set()).add(row["world"])
    return [row for row in rows if worlds[row["M"]] == set(rates.WORLDS)]


def values_of(rows, setting, name):
    """(M's, means over seeds (worlds, M's))."""
    own = [row for row in rows if (row["theorem"], row["rho"]) == (setting.theorem, setting.rho)]
    Ms = np.array(sorted({row["M"] for row in own}))
    cell = {(row["world"], row["M"]): row[name] for row in own}
    return Ms, np.array([[cell[world, M] for M in Ms] for world in rates.WORLDS])


def table(rows):
    lines = []
    for setting in SETTINGS:
        for name, paper in (("DR", setting.DR), ("CV", setting.CV)):
            Ms, values = values_of(rows, setting, name)
            _, positive = values_of(rows, setting, name + "+")
            share = 100 * values[:, -1].mean() / (rates.H * Ms[-1])
            lines.append([
                str(setting.theorem), setting.rho or "-", name, rates.exponent(paper),
                str(rates.fitted(Ms, values)), str(rates.fitted(Ms, values, last=3)),
                str(rates.fitted(Ms, values, last=2)), str(rates.fitted(Ms, positive)),
                f"{share:.3f}%",
            ])  # fmt: skip
    header = ["Thm", "rho", "", "Paper", "All M", "Last three M", "Last two M",
              "Positive part, all M", "Of H M"]  # fmt: skip
    return rates.table(header, lines)


def multipliers():
    """The mean of mu* over the episodes, by world; it hardly depends on M."""
    with SINGLE.open(newline="") as file:
        found = {world: [] for world in rates.WORLDS}
        for row in csv.DictReader(file):
            if row["group"] == "schedule" and row["kind"] == "table":
                found[int(row["seed"])].append(float(row["mean mu*"]))
    return np.array([[np.mean(found[world])] for world in rates.WORLDS])


def quantities(rows, setting):
    """(M's, {name: means over seeds (worlds, M's)}), with DR + mu* CV."""
    found = {}
    for name in FIGURES:
        Ms, found[name] = values_of(rows, setting, name)
    return Ms, found | {"DR + mu* CV": found["DR"] + multipliers() * found["CV"]}


def shares(rows):
    """Means over worlds and seeds in percent of H M."""
    lines = []
    for setting in SETTINGS:
        Ms, found = quantities(rows, setting)
        for name, values in found.items():
            part = 100 * values.mean(axis=0) / (rates.H * Ms)
            lines.append([str(setting.theorem), setting.rho or "-", name,
                          *(f"{x:.3f}" if abs(x) < 1 else f"{x:.2f}" for x in part)])  # fmt: skip
    return rates.table(["Thm", "rho", "% of H M", *map(power, Ms)], lines)


def power(M):
    """M as 10⁶ or 3 · 10⁶."""
    digits, leading = len(str(M)) - 1, str(M)[0]
    ten = "10" + str(digits).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return ten if leading == "1" else f"{leading} · {ten}"


def tables(rows):
    return f"{table(rows)}\n\n{shares(rows)}"


def write_tables(rows, path):
    text = path.read_text(encoding="utf-8")
    start, stop = MARK.format("start"), MARK.format("end")
    before, _, rest = text.partition(start)
    _, _, after = rest.partition(stop)
    path.write_text(f"{before}{start}\n\n{tables(rows)}\n\n{stop}{after}", encoding="utf-8")


# ---------------------------------------------------------------- picture

LOOKS = {  # colour, marker, filled
    "DR": ("#0072B2", "o", True), "DR+": ("#0072B2", "o", False),
    "DR + mu* CV": ("#009E73", "D", True),
    "CV": ("#CC79A7", "o", True), "CV+": ("#CC79A7", "o", False),
}  # fmt: skip
PANELS = (("DR", "DR+", "DR + mu* CV"), ("CV", "CV+"))


def draw(rows, path):
    """Shares of H M against M; a slope of DR(M) is one less here."""
    figure, panels = plt.subplots(2, len(SETTINGS), figsize=(16, 9.6), sharex=True, sharey=True)
    for j, setting in enumerate(SETTINGS):
        Ms, found = quantities(rows, setting)
        for axes, names, paper in zip(panels[:, j], PANELS, (setting.DR, setting.CV), strict=True):
            for shift, name in zip((1, 1.09, 0.92), names, strict=False):
                points(axes, Ms, found[name], name, shift)
            top = 1.6 * np.max(found[names[0]].mean(axis=0) / Ms**paper)
            guide = 100 * top * Ms ** (paper - 1) / rates.H
            axes.plot(Ms, guide, "--", color="0.25", lw=1.3,
                      label=f"theorem, {rates.exponent(paper)}")  # fmt: skip
            axes.set(xscale="log", yscale="log", ylim=(0.01, 300))
            axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}%")
            axes.tick_params(labelsize=11, labelleft=True, labelbottom=True)
            axes.spines[["top", "right"]].set_visible(False)
            axes.legend(frameon=False, fontsize=11, loc="upper right", handlelength=1.2,
                        title="slope over all M", title_fontsize=11, alignment="left",
                        borderaxespad=0.2)  # fmt: skip
        panels[0, j].set_title(setting.name, fontsize=13)
        panels[1, j].set_xlabel("episodes M", fontsize=13)
    for axes, name in zip(panels[:, 0], ("DR(M)", "CV(M)"), strict=True):
        axes.set_ylabel(f"{name}, share of H M", fontsize=14)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def points(axes, Ms, values, name, shift):
    """Means over the worlds with 95% intervals, where they are positive."""
    colour, marker, filled = LOOKS[name]
    mean, drawn = rates.resampled(100 * values / (rates.H * Ms))
    low, high = np.maximum(np.percentile(drawn, (2.5, 97.5), axis=0), 1e-9)
    good = mean > 0
    fit = rates.fitted(Ms, values).value
    label = f"{name}: " + (f"{fit:.2f}" if np.isfinite(fit) else "none")
    axes.errorbar((Ms * shift)[good], mean[good], np.stack((mean - low, high - mean))[:, good],
                  fmt=marker, ls="-", lw=1, color=colour, mfc=colour if filled else "white", ms=5,
                  capsize=2, label=label)  # fmt: skip


def read(path):
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    words, whole = {"rho", "device"}, {"theorem", "M", "world", "seeds", "measure_every"}
    return [
        {k: v if k in words else int(v) if k in whole else float(v) for k, v in row.items()}
        for row in rows
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--largest", type=int, default=1_000_000)
    parser.add_argument("--smallest", type=int, default=GRID[0])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="then stop")
    parser.add_argument("--out", type=Path, default=Path("docs"))
    parser.add_argument("--from-csv", action="store_true", help="run nothing, read stored rows")
    chosen = parser.parse_args()
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # as many streams side by side
    path = chosen.out / "rates_many.csv"
    rows = read(path) if path.exists() else []
    if not chosen.from_csv:
        chosen.out.mkdir(parents=True, exist_ok=True)
        grid = [M for M in GRID if chosen.smallest <= M <= chosen.largest]
        deadline = time.monotonic() + chosen.seconds
        for part in study(grid, chosen.seeds, chosen.device, deadline):
            rows = ordered([*rows, *part])
            rates.write_csv(rows, path)
    if complete(rows):
        print(tables(complete(rows)))
        draw(complete(rows), chosen.out / "rates_many.png")
        if (chosen.out / "rates.md").exists():
            write_tables(complete(rows), chosen.out / "rates.md")


if __name__ == "__main__":
    main()
