"""Table 1 of the paper, measured: how DR(M) and CV(M) grow with M under Theorems 1 to 4.

    python studies/rates.py [--out docs] [--workers 2]     # 20 min with --workers 1
    python studies/rates.py [--out docs] --from-csv        # picture and tables only, seconds

Every M is a run of its own, tuned for that M, in a world whose total drift does not depend on M:
three random scenarios and five abrupt switches between them, stretched over M episodes. Eight
worlds, one run each. Three groups of runs: "printed" takes the theorem's constants as they are;
"schedule" takes the theorem's exponents of M and constants calibrated at one M; "practical" is the
library's default. Results: rates.csv (one row per run), rates.png, and the tables between the two
markers of rates.md.
"""

import argparse
import csv
import time
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from math import gcd, isqrt
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import safedrift as sd

STATES, ACTIONS, H, SCENARIOS, SWITCHES, GAMMA = 4, 3, 4, 3, 5, 0.4
# The first eight seeds whose scenarios all have a multiplier of at least 0.2 at their optimum.
WORLDS = (0, 2, 4, 6, 8, 10, 11, 12)
GRID = {"table": (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000),
        "linear": (3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)}  # fmt: skip
PRINTED = {"table": (10_000, 100_000, 1_000_000), "linear": (3_000, 30_000, 300_000)}
PRACTICAL = {"table": 1_000_000, "linear": 300_000}  # the largest M
PRINTED_WORLDS = WORLDS[:3]
MEASURED = 20_000  # episodes measured per run, about
RESAMPLES = 4_000
GROUPS = ("printed", "schedule", "practical")


class Setting(NamedTuple):
    """A row of Table 1: its theorem, its schedule's exponents of M, its exponents of DR and CV."""

    theorem: int
    kind: str
    knowledge: str
    rho: str
    alpha: float
    L: float
    eta: float
    xi: float
    W: float
    DR: float
    CV: float

    @property
    def name(self):
        return f"Theorem {self.theorem}" + (f", rho = {self.rho}" if self.rho else "")


def theorem3(name, rho):
    return Setting(3, "table", "local budgets", name, alpha=-rho, L=(1 + rho) / 2, eta=-1 / 2,
                   xi=-rho, W=2 / 3, DR=(1 + rho) / 2, CV=(2 - rho) / 2)  # fmt: skip


RHO = {"1/3": 1 / 3, "5/12": 5 / 12, "1/2": 1 / 2}
SETTINGS = (
    Setting(1, "linear", "local budgets", "", alpha=-1 / 2, L=3 / 4, eta=-1 / 2, xi=-1 / 2,
            W=1 / 2, DR=3 / 4, CV=3 / 4),
    Setting(2, "linear", "Slater", "", alpha=-1 / 3, L=2 / 3, eta=-1 / 2, xi=0.0, W=1 / 2,
            DR=3 / 4, CV=3 / 4),
    *(theorem3(name, rho) for name, rho in RHO.items()),
    Setting(4, "table", "Slater", "", alpha=-1 / 3, L=2 / 3, eta=-1 / 2, xi=0.0, W=2 / 3,
            DR=2 / 3, CV=2 / 3),
)  # fmt: skip

# Found by a search over random settings in three other worlds, at M = M0 (docs/rates.md).
CALIBRATED = {
    1: {"M0": 10_000, "alpha": 0.77, "L": 160, "eta": 0.041, "xi": 0.0001, "W": 87, "lam": 0.039,
        "bonus_scale": 0.0096},
    2: {"M0": 10_000, "alpha": 0.77, "L": 330, "eta": 0.19, "W": 95, "lam": 0.015,
        "bonus_scale": 0.010},
    3: {"M0": 30_000, "alpha": 0.075, "L": 510, "eta": 0.18, "xi": 0.16, "W": 390, "lam": 0.0011,
        "bonus_scale": 0.0045},
    4: {"M0": 30_000, "alpha": 0.15, "L": 390, "eta": 0.0072, "W": 600, "lam": 0.010,
        "bonus_scale": 0.0065},
}  # fmt: skip


# ---------------------------------------------------------------- runs


class Job(NamedTuple):
    group: str
    setting: Setting
    M: int
    world: int


def jobs():
    """All runs, the longest first."""
    found = []
    for setting in SETTINGS:
        grid = GRID[setting.kind]
        found += [Job("schedule", setting, M, world) for M in grid for world in WORLDS]
        found += [
            Job("printed", setting, M, world)
            for M in PRINTED[setting.kind]
            for world in PRINTED_WORLDS
        ]
        if setting.rho in ("", "1/2"):  # the default constants do not depend on rho
            found += [
                Job("practical", setting, M, world)
                for M in grid
                if PRACTICAL[setting.kind] >= M
                for world in WORLDS
            ]
    return sorted(found, key=lambda job: (-work(job), job.world, job.setting.theorem))


def work(job):
    """Roughly what a run costs: an episode of least squares is five of counts."""
    return job.M * (5 if job.setting.kind == "linear" else 1)


@lru_cache(maxsize=1)
def world_of(kind, M, seed):
    """A world and its total budgets; the switches are at the same shares of M for all M."""
    path = sd.models.drift.abrupt(M, SCENARIOS, SWITCHES)
    world = sd.problems.make(
        "random", episodes=M, seed=seed, states=STATES, actions=ACTIONS, horizon=H,
        scenarios=SCENARIOS, gamma=GAMMA, weights=path,
    )  # fmt: skip
    if kind == "linear":
        world = world.as_linear_kernel()
    return world, sd.budgets(world)


def schedule(setting, M):
    """The calibrated constants at M0, moved to M with the theorem's exponents."""
    found = dict(CALIBRATED[setting.theorem])
    ratio = M / found.pop("M0")
    for name in ("alpha", "L", "eta", "xi", "W"):
        if name in found:
            found[name] *= ratio ** getattr(setting, name)
    return found | {name: max(1, min(M, round(found[name]))) for name in ("L", "W")}


def learner(job, world, budgets):
    """The learner of a job, and the overrides it was given."""
    setting, overrides = job.setting, {}
    mode = job.group
    if job.group == "schedule":
        mode, overrides = "repaired", schedule(setting, job.M)
    known = sd.Slater(GAMMA)
    if setting.knowledge != "Slater":
        known = sd.local_budgets(world, "l2" if mode == "printed" else "l1")
    rho = RHO.get(setting.rho, 1 / 2)
    agent = sd.PROPDPPO.for_problem(world, known, mode=mode, budgets=budgets, rho=rho, **overrides)
    return agent, overrides


def stride(M, L, W):
    """A prime near M / MEASURED that divides neither period: measuring must not keep step."""
    n = max(1, -(-M // MEASURED))
    while n > 1 and (any(n % k == 0 for k in range(2, isqrt(n) + 1)) or gcd(n, L * W) > 1):
        n += 1
    return n


def play(job, every=None):
    """One run, as a row of rates.csv."""
    started = time.perf_counter()
    setting, M = job.setting, job.M
    world, budgets = world_of(setting.kind, M, job.world)
    agent, overrides = learner(job, world, budgets)
    step, dual, part = (getattr(agent.parameters, n) for n in ("improvement", "dual", "evaluation"))
    every = every or stride(M, step.L, part.W)
    truth = sd.measure_truth(world, np.arange(0, M, every))
    run = sd.simulate(world, agent, seed=job.world, measure_every=every, truth=truth)
    weights = np.diff(run.episodes, append=M)
    return {
        "group": job.group, "theorem": setting.theorem, "kind": setting.kind,
        "knowledge": setting.knowledge, "rho": setting.rho, "mode": agent.parameters.mode,
        "M": M, "seed": job.world, "H": H,
        "DR": run.dynamic_regret[-1], "CV": run.violation[-1, 0],
        "DR+": run.positive_regret[-1], "CV+": run.positive_violation[-1, 0],
        "shortfall": weights @ run.shortfall[:, 0],
        "uniform DR": run.cumulative_baseline_regret[-1],
        "mean mu": run.trace["mu"].mean(), "largest mu": run.trace["mu"].max(),
        "mean mu*": run.truth.optimal_mu.mean(), "smallest mu*": run.truth.optimal_mu.min(),
        "at cap": run.trace["at_cap"].mean(),
        "alpha": step.alpha, "L": step.L, "eta": dual.eta, "xi": dual.xi, "chi": dual.chi,
        "dual_signal": dual.dual_signal, "W": part.W, "lam": part.lam,
        "bonus_scale": overrides.get("bonus_scale", 1.0), "overrides": " ".join(overrides),
        "B_Delta": budgets.delta, "B_star": budgets.star,
        "measure_every": every, "seconds": time.perf_counter() - started,
    }  # fmt: skip


def study(workers):
    """Rows of all runs, in the order of the table."""
    todo = jobs()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f}%"),
               TimeElapsedColumn())  # fmt: skip
    with Progress(*columns) as bar:
        task = bar.add_task("learning", total=sum(map(work, todo)))
        rows = []
        for job, row in zip(todo, _played(todo, workers), strict=True):
            rows.append(row)
            bar.advance(task, work(job))
    order = {(setting.theorem, setting.rho): i for i, setting in enumerate(SETTINGS)}
    return sorted(
        rows,
        key=lambda row: (
            GROUPS.index(row["group"]), order[row["theorem"], row["rho"]], row["M"], row["seed"],
        ),
    )  # fmt: skip


def _played(todo, workers):
    if workers == 1:
        yield from map(play, todo)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(play, todo)


def write_csv(rows, path):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.8g}" if isinstance(v, float) else v for k, v in row.items()})


def read_csv(path):
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    words = {"group", "kind", "knowledge", "rho", "mode", "dual_signal", "overrides"}
    return [{k: v if k in words else float(v) for k, v in row.items()} for row in rows]


# ---------------------------------------------------------------- analysis


def values_of(rows, group, setting, quantity):
    """(M's, values (worlds, M's)) of one quantity; None where there are no such runs."""
    cell = {
        (row["seed"], row["M"]): row[quantity]
        for row in rows
        if (row["group"], row["theorem"], row["rho"]) == (group, setting.theorem, setting.rho)
    }
    if not cell:
        return None
    seeds, Ms = (np.array(sorted({key[i] for key in cell})) for i in (0, 1))
    return Ms, np.array([[cell[seed, M] for M in Ms] for seed in seeds])


def resampled(values):
    """Means over worlds, and means over worlds drawn with replacement (RESAMPLES, M's)."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, len(values), (RESAMPLES, len(values)))
    return values.mean(axis=0), values[drawn].mean(axis=1)


def slope(Ms, means):
    """Least-squares slope of log means (..., M's) on log M; NaN where a mean is not positive."""
    x = np.log(Ms) - np.log(Ms).mean()
    with np.errstate(invalid="ignore", divide="ignore"):
        y = np.log(means)
    y = np.where(np.isfinite(y), y, np.nan)
    return y @ x / (x @ x)


class Slope(NamedTuple):
    value: float
    low: float
    high: float

    def __str__(self):
        if not np.isfinite(self.value):
            return "none"
        if not np.isfinite(self.low):
            return f"{self.value:.2f} [-, -]"
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def fitted(Ms, values, last=None):
    """Slope with its 95% interval over the last so many M's; all by default.

    There is no slope where the mean is not positive, and no interval where more than a fortieth of
    the resampled means have no slope.
    """
    part = slice(-last if last else None, None)
    mean, drawn = resampled(values[:, part])
    slopes = slope(Ms[part], drawn)
    known = slopes[np.isfinite(slopes)]
    low = high = np.nan
    if known.size >= RESAMPLES * 39 / 40:
        low, high = np.percentile(known, (2.5, 97.5))
    return Slope(float(slope(Ms[part], mean)), float(low), float(high))


def table(header, lines):
    widths = [max(len(line[i]) for line in (header, *lines)) for i in range(len(header))]

    def show(line):
        cells = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        return f"| {' | '.join(cells)} |"

    return "\n".join((show(header), show(["-" * width for width in widths]), *map(show, lines)))


FRACTIONS = {2 / 3: "2/3", 3 / 4: "3/4", 5 / 6: "5/6", 17 / 24: "17/24", 19 / 24: "19/24"}


def exponent(value):
    return next(text for number, text in FRACTIONS.items() if abs(number - value) < 1e-12)


def half(rows, quantity):
    """One half of Table 1, for DR or CV."""
    lines = []
    for setting in SETTINGS:
        Ms, values = values_of(rows, "schedule", setting, quantity)
        _, positive = values_of(rows, "schedule", setting, f"{quantity}+")
        printed = fitted(*values_of(rows, "printed", setting, quantity))
        share = values[:, -1].mean() / (H * Ms[-1])
        lines.append(
            [str(setting.theorem), setting.rho or "-", exponent(getattr(setting, quantity)),
             f"{printed.value:.3f}", str(fitted(Ms, values)), str(fitted(Ms, values, 2)),
             str(fitted(Ms, positive)), f"{share:.2%}"]
        )  # fmt: skip
    return table([text.format(quantity) for text in HEADER], lines)


HEADER = ("Thm", "rho", "Paper", "Printed", "All M", "Last two M", "{}+, all M", "Of H M")


def beside(rows):
    """What the printed constants lose, how often CV is 0, and how large the multiplier gets."""
    lines = []
    for setting in SETTINGS:
        line = [str(setting.theorem), setting.rho or "-"]
        for quantity in ("DR", "CV"):
            Ms, values = values_of(rows, "printed", setting, quantity)
            line.append(f"{values[:, -1].mean() / (H * Ms[-1]):.1%}")
        _, values = values_of(rows, "schedule", setting, "CV")
        line.append(f"{(values == 0).sum()} of {values.size}")
        for quantity in ("mean mu", "largest mu"):
            Ms, mu = values_of(rows, "schedule", setting, quantity)
            line.append(f"{mu[:, 0].mean():.1f} to {mu[:, -1].mean():.1f}")
        lines.append([*line, str(fitted(Ms, mu))])
    header = ("Thm", "rho", "DR, printed", "CV, printed", "CV = 0", "Mean mu", "Largest mu",
              "Its slope")  # fmt: skip
    return table(header, lines)


def practical(rows):
    lines = []
    for setting in SETTINGS:
        if values_of(rows, "practical", setting, "DR") is None:
            continue
        line = [str(setting.theorem), exponent(setting.DR), exponent(setting.CV)]
        for quantity in ("DR", "CV", "CV+"):
            line.append(str(fitted(*values_of(rows, "practical", setting, quantity))))
        Ms, values = values_of(rows, "practical", setting, "DR")
        line.append(f"{values[:, -1].mean() / (H * Ms[-1]):.2%}")
        lines.append(line)
    header = ("Thm", "DR, paper", "CV, paper", "DR", "CV", "CV+", "DR of H M")
    return table(header, lines)


def tables(rows):
    parts = [f"**DR(M)**\n\n{half(rows, 'DR')}"]
    parts.append(f"**CV(M)**\n\n{half(rows, 'CV')}")
    parts.append(f"**Beside the slopes**\n\n{beside(rows)}")
    parts.append(f"**Default constants (mode practical)**\n\n{practical(rows)}")
    return "\n\n".join(parts)


START, STOP = (
    "<!-- tables of studies/rates.py: start -->",
    "<!-- tables of studies/rates.py: end -->",
)


def write_tables(rows, path):
    """Replace what stands between the markers; the rest of the page stays."""
    text = path.read_text() if path.exists() else f"# Rates, measured\n\n{START}\n{STOP}\n"
    before, rest = text.split(START)
    after = rest.split(STOP)[1]
    path.write_text(f"{before}{START}\n\n{tables(rows)}\n\n{STOP}{after}")


# ---------------------------------------------------------------- picture

COLOURS = {"": "#0072B2", "1/3": "#0072B2", "5/12": "#009E73", "1/2": "#CC79A7"}
TITLES = {1: "linear kernel, local budgets", 2: "linear kernel, Slater",
          3: "tabular, local budgets", 4: "tabular, Slater"}  # fmt: skip


def draw(rows, path):
    figure, panels = plt.subplots(2, 4, figsize=(16, 9.6), sharey=True)
    for i, quantity in enumerate(("DR", "CV")):
        for theorem, axes in zip(TITLES, panels[i], strict=True):
            chosen = [setting for setting in SETTINGS if setting.theorem == theorem]
            Ms = np.array(GRID[chosen[0].kind], float)
            axes.plot(Ms, H * Ms, color="0.75", lw=5, solid_capstyle="butt", zorder=0)
            for shift, setting in zip(
                (0.93, 1, 1.075) if chosen[1:] else (1,), chosen, strict=True
            ):
                panel(axes, rows, setting, quantity, shift)
            axes.set(xscale="log", yscale="log", ylim=(8, 6e8))
            axes.tick_params(labelsize=11, labelleft=True)
            axes.legend(frameon=False, fontsize=12, loc="upper left", handlelength=1.2,
                        title="slope (theorem)", title_fontsize=12, alignment="left",
                        borderaxespad=0.2)  # fmt: skip
            axes.spines[["top", "right"]].set_visible(False)
            if i == 0:
                axes.set_title(f"Theorem {theorem}: {TITLES[theorem]}", fontsize=13)
            else:
                axes.set_xlabel("episodes M", fontsize=13)
        panels[i, 0].set_ylabel(f"{quantity}(M)", fontsize=14)
    figure.legend(handles=_explained(), loc="lower center", ncol=6, frameon=False, fontsize=12)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(path, dpi=110)


def _explained():
    """Entries of the legend below the panels."""
    looks = {
        "one world": {"marker": ".", "ls": "", "alpha": 0.35, "ms": 8},
        "mean, 95% interval": {"marker": "o", "ls": ""},
        "fit": {"lw": 1.5},
        "slope of the theorem, any height": {"ls": "--", "lw": 1.3},
        "printed constants": {"marker": "x", "ls": "", "color": "#D55E00", "ms": 8, "mew": 2},
        "H M": {"color": "0.75", "lw": 5},
    }
    return [plt.Line2D([], [], label=k, **{"color": "0.25", **v}) for k, v in looks.items()]


def panel(axes, rows, setting, quantity, shift):
    """Worlds as faint points, mean with interval, fitted line, the theorem's exponent dashed."""
    Ms, values = values_of(rows, "printed", setting, quantity)
    axes.plot(Ms, values.mean(axis=0), "x", color="#D55E00", ms=8, mew=2)
    Ms, values = values_of(rows, "schedule", setting, quantity)
    colour = COLOURS[setting.rho]
    for line in values:
        axes.plot((Ms * shift)[line > 0], line[line > 0], ".", color=colour, alpha=0.3, ms=7, mew=0)
    mean, drawn = resampled(values)
    low, high = np.maximum(np.percentile(drawn, (2.5, 97.5), axis=0), 1.0)
    good = mean > 0
    spread = np.stack((mean - low, high - mean))[:, good]
    axes.errorbar((Ms * shift)[good], mean[good], spread, fmt="o", color=colour, ms=5, capsize=3)
    guide, fit = getattr(setting, quantity), fitted(Ms, values).value
    label = f"rho = {setting.rho}: " * bool(setting.rho)
    label += f"{fit:.2f}" if np.isfinite(fit) else "none"
    line = np.full(Ms.size, np.nan)
    if np.isfinite(fit):
        line = np.exp(np.log(mean).mean()) * (Ms / np.exp(np.log(Ms).mean())) ** fit
    axes.plot(Ms, line, "-", color=colour, lw=1.5, label=f"{label} ({exponent(guide)})")
    top = 1.7 * np.nanmax(mean / Ms**guide)
    axes.plot(Ms, top * Ms**guide, "--", color=colour, lw=1.3)


def main():
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--out", type=Path, default=Path("docs"))
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--from-csv", action="store_true", help="run nothing, read rates.csv")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if not given.from_csv:
        write_csv(study(given.workers), given.out / "rates.csv")
    rows = read_csv(given.out / "rates.csv")
    write_tables(rows, given.out / "rates.md")
    draw(rows, given.out / "rates.png")
    print(tables(rows))


if __name__ == "__main__":
    main()
