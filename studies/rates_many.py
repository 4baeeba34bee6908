"""Table 1 of the paper for the settings with counts, measured with many seeds.

    python studies/rates_many.py --device gpu [--largest 10_000_000] [--seeds 100] [--out docs]
    python studies/rates_many.py --largest 100_000 --seeds 4        # a small version on the CPU
    python studies/rates_many.py --from-csv                         # the table only, seconds

The worlds, schedules and constants are those of the group "schedule" of rates.py; every M is a run
of its own. All four settings of a world are played in one call, and on a GPU the worlds beside each
other. Results: rates_many.csv (one row per setting, M and world: means and deviations over the
seeds), and the table between the two markers of rates.md.
"""

import argparse
import csv
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from math import gcd, isqrt
from pathlib import Path

import numpy as np
import rates

import safedrift as sd

SETTINGS = tuple(setting for setting in rates.SETTINGS if setting.kind == "table")
GRID = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000,
        10_000_000, 30_000_000, 100_000_000)  # fmt: skip
FIGURES = {"DR": "dynamic_regret", "CV": "violation", "DR+": "positive_regret",
           "CV+": "positive_violation"}  # fmt: skip
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
    path = sd.models.drift.abrupt(M, rates.SCENARIOS, rates.SWITCHES).argmax(axis=1)
    now = short.transition_path.scenario[:, 0].tolist()
    required = np.stack([short.thresholds[now.index(i)] for i in range(rates.SCENARIOS)])
    return sd.DriftingCMDP(short.scenarios, path, thresholds=required[path]), budgets


def learners(world, budgets):
    """One for each setting, with the constants of the group "schedule"."""
    local = sd.local_budgets(world, "l1")
    return {
        label(setting): sd.PROPDPPO.for_problem(
            world, sd.Slater(rates.GAMMA) if setting.knowledge == "Slater" else local,
            mode="repaired", budgets=budgets, rho=rates.RHO.get(setting.rho, 1 / 2),
            **rates.schedule(setting, world.M),
        )
        for setting in SETTINGS
    }  # fmt: skip


def play(M, seed, seeds, device):
    """Rows of all settings in one world, over all seeds."""
    world, budgets = world_of(M, seed)
    agents = learners(world, budgets)
    every = stride(M, agents.values())
    with stream(device):
        found = sd.simulate_many(world, agents, seeds, device=device, measure_every=every)
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


def study(grid, seeds, device):
    rows = []
    with ThreadPoolExecutor(len(rates.WORLDS) if device == "gpu" else 1) as pool:
        for M in grid:
            started = time.perf_counter()
            for part in pool.map(lambda seed, M=M: play(M, seed, seeds, device), rates.WORLDS):
                rows += part
            seconds = time.perf_counter() - started
            print(
                f"M = {M:,}: {len(rates.WORLDS) * len(SETTINGS) * seeds:,} runs, {seconds:.0f} s",
                flush=True,
            )
            yield rows


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


def write_table(rows, path):
    text = path.read_text(encoding="utf-8")
    start, stop = MARK.format("start"), MARK.format("end")
    before, _, rest = text.partition(start)
    _, _, after = rest.partition(stop)
    path.write_text(f"{before}{start}\n\n{table(rows)}\n\n{stop}{after}", encoding="utf-8")


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
    parser.add_argument("--smallest", type=int, default=GRID[0], help="keep stored rows below")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("docs"))
    parser.add_argument("--from-csv", action="store_true", help="make the table of stored rows")
    chosen = parser.parse_args()
    path = chosen.out / "rates_many.csv"
    if not chosen.from_csv:
        grid = [M for M in GRID if chosen.largest >= M]
        for rows in study(grid, chosen.seeds, chosen.device):
            rates.write_csv(rows, path)  # as far as it has come
    if (chosen.out / "rates.md").exists():
        write_table(read(path), chosen.out / "rates.md")


if __name__ == "__main__":
    main()
