"""Published experiments again: exact optima, and our runs of the same algorithms.

    python studies/published.py [NAME ...] [--runs N] [--workers 2]   # runs what is missing
    python studies/published.py --exact                               # optima only, a minute
    python studies/published.py --tables                              # tables only, seconds

Results: docs/published.json (optima, and one row per run), and the tables between the markers of
docs/published.md. All numbers are in the units of the papers. Runs that are stored are not repeated
unless `--again` is given. Learners that do not exist in `sd.learners.LEARNERS` are skipped, and the
tables say so.
"""

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import safedrift as sd
from safedrift.experiments.entrants import entrants
from safedrift.experiments.simulation import measure_truth
from safedrift.models import evenly_spaced
from safedrift.oracles import free_values
from safedrift.planning import plan
from safedrift.problems import PROBLEMS, make

DOCS = Path(__file__).parents[1] / "docs"
MEASURED = 2_000  # episodes measured per run, about
HORIZONS = tuple(range(15, 31))
SHOWN_GRID = ((2.64, 4.9), (2.91, 5.57), (2.95, 6.57))  # reward and cost that the paper shows


class Experiment(NamedTuple):
    """An experiment of a paper and how we run it.

    Attributes
    ----------
    learners : our specification -> what the paper shows for it, in words
    episodes, runs : ours; None for those of the paper
    new_worlds : whether each run has a world of its own
    safe_limit : threshold of ours whose optimum is DOPE's safe policy; None: the safest policy
    """

    problem: str
    learners: dict
    options: dict | None = None
    episodes: int | None = None
    runs: int | None = 3
    new_worlds: bool = False
    safe_limit: float | None = None


NONE = ""
# The authors' notebook has rewards of up to 100; for rewards of up to 1 its bonus is 0.002, also
# for utilities, and eta 100 times the default.
NOTEBOOK = "bonus=0.002,utility_bonus=1"
EXPERIMENTS = {
    "drifting_grid": Experiment(
        "drifting_grid",
        {
            "ns-triple-q": "2.64 / 4.9",
            f"ns-triple-q:{NOTEBOOK},eta=2231": NONE,
            f"ns-triple-q:{NOTEBOOK},eta=2231,frame=50000": NONE,
            "triple-q": "2.91 / 5.57",
            f"triple-q:{NOTEBOOK},eta=2231": NONE,
            "restart-q-ucb": "2.95 / 6.57",
            "restart-q-ucb:bonus=0.002": NONE,
            "uniform": NONE,
        },
        runs=None,
    ),
    "triple_q_grid": Experiment(
        "triple_q_grid",
        {
            "triple-q": "860 / 5",
            f"triple-q:{NOTEBOOK},eta=2152": NONE,
            "ns-triple-q": NONE,
            "propd-ppo": NONE,
            "uniform": NONE,
        },
    ),
    "media": Experiment(
        "media",
        {
            "dope:forgetting=never,replan_every=500": NONE,
            "opt-cmdp:forgetting=never": NONE,
            "propd-ppo": NONE,
            "uniform": NONE,
        },
        safe_limit=9.0,
    ),
    "dope_inventory": Experiment(
        "dope_inventory",
        {
            "dope:forgetting=never,replan_every=500": NONE,
            "opt-cmdp:forgetting=never": NONE,
            "propd-ppo": NONE,
            "uniform": NONE,
        },
        episodes=100_000,
        safe_limit=6.3,
    ),
    "dope_inventory, next stock": Experiment(
        "dope_inventory",
        {"opt-cmdp:forgetting=never": NONE, "uniform": NONE},
        {"revenue": "next_stock"},
        episodes=100_000,
    ),
    "factored": Experiment(
        "factored",
        {
            "dope:forgetting=never,replan_every=500": NONE,
            "opt-cmdp:forgetting=never": NONE,
            "propd-ppo": NONE,
            "uniform": NONE,
        },
        safe_limit=5.4,
    ),
    "job_scheduler": Experiment(
        "job_scheduler",
        {"triple-q": NONE, "bisection:forgetting=never": NONE, "propd-ppo": NONE, "uniform": NONE},
    ),
    "kitamura_random": Experiment(
        "kitamura_random",
        {
            "dope:forgetting=never": "1.2e3 / 0",
            "bisection:forgetting=never": "0.4e3 / 1.1e3 (Ghosh)",
            "propd-ppo": NONE,
            "uniform": "1.2e4 / 5.4e3",
        },
        runs=None,
        new_worlds=True,
    ),
    "kitamura_streaming": Experiment(
        "kitamura_streaming",
        {
            "dope:forgetting=never": "2.1e3 / 0",
            "bisection:forgetting=never": "0.3e3 / 2.7e3 (Ghosh)",
            "propd-ppo": NONE,
            "uniform": "3.9e3 / 4.4e3",
        },
        runs=None,
        new_worlds=True,
    ),
    "complementary": Experiment(
        "complementary",
        {
            "opt-primal-dual:forgetting=never": "gap in [-0.75, 0.55]",
            "regularised-primal-dual:forgetting=never,eta=0.1,tau=0.1,margin=0": (
                "gap -0.1, violation 0.1"
            ),
            "regularised-primal-dual:forgetting=never": NONE,
            "propd-ppo": NONE,
            "uniform": NONE,
        },
    ),
    "combination_lock": Experiment(
        "combination_lock",
        {"restart-q-ucb": NONE, "ns-triple-q": NONE, "propd-ppo": NONE, "uniform": NONE},
    ),
}


def sizes_of(key):
    """Episodes and runs of an experiment of ours."""
    experiment, published = EXPERIMENTS[key], PROBLEMS[EXPERIMENTS[key].problem].PUBLISHED
    return (
        published.episodes if experiment.episodes is None else experiment.episodes,
        published.runs if experiment.runs is None else experiment.runs,
    )


# ---------------------------------------------------------------- exact numbers


def exact(key, seed=0):
    """Optimum, price and uniform policy of the first and the last episode, in published units."""
    experiment = EXPERIMENTS[key]
    scales = PROBLEMS[experiment.problem].PUBLISHED
    world = make(experiment.problem, 2_000, seed, **(experiment.options or {}))
    found = sd.describe(world)
    rows = []
    for m in (0,) if world.distinct[0].size == 1 else (0, world.M - 1):
        today, best = world.at(m), sd.solve(world.at(m))
        uniform = sd.evaluate(today, np.full((world.H, world.S, world.A), 1 / world.A))
        free = free_values(world, np.array([m]))[0]
        reward, constraint = scales.reward.published, scales.constraint.published
        rows.append(
            {
                "episode": m,
                "limit": constraint(today.thresholds[0], world.H),
                "optimum": reward(best.value, world.H),
                "at cost": constraint(best.utilities[0], world.H),
                "free": reward(free, world.H),
                "mu": float(best.multipliers[0]),
                "gamma": float(best.gamma),
                "uniform": reward(uniform[0], world.H),
                "uniform cost": constraint(uniform[1], world.H),
                "relative price": (free - best.value) / max(free - uniform[0], 1e-12),
            }
        )
    return {"rows": rows, "warnings": list(found.warnings)}


def horizons():
    """The largest reward of the drifting grid at the costs shown, by H and reading."""
    scales, found = PROBLEMS["drifting_grid"].PUBLISHED, []
    readings = {"first": ("fixed", False), "rises": ("rises", True), "falls": ("falls", True)}
    for H in HORIZONS:
        row = {"H": H}
        for name, (moves, at_end) in readings.items():
            best = {}
            for limit in (*(cost for _, cost in SHOWN_GRID), 5.0, float(H)):
                world = make(
                    "drifting_grid", 2, horizon=H, limit=limit, moves=moves, rewards="fixed",
                    costs="fixed",
                )  # fmt: skip
                today = world.scenarios[-1 if at_end else 0]
                best[f"{limit:g}"] = scales.reward.published(sd.solve(today).value, H)
            row[name] = best | {"free": best.pop(f"{H:g}")}
            shown = ((reward, row[name][f"{cost:g}"]) for reward, cost in SHOWN_GRID)
            row[name]["possible"] = all(reward <= most for reward, most in shown)
        found.append(row)
    return found


def families(seeds=100):
    """How often the constraint of a random family binds, and how the uniform policy does there."""
    found = {}
    for name in ("kitamura_random", "kitamura_streaming", "complementary"):
        rows = []
        for seed in range(seeds):
            today = make(name, 1, seed).at(0)
            H, S, A = today.shape[:3]
            best, uniform = sd.solve(today), sd.evaluate(today, np.full((H, S, A), 1 / A))
            short = max(today.thresholds[0] - uniform[1], 0)
            rows.append((best.multipliers[0] > 1e-9, best.value - uniform[0], short))
        binds, regret, violation = np.array(rows, float).T
        found[name] = {
            "seeds": seeds,
            "binds": binds.mean(),
            "uniform regret": regret.mean(),
            "uniform violation": violation.mean(),
            "uniform safe": (violation <= 0).mean(),
        }
    return found


# ---------------------------------------------------------------- runs


def build_learner(spec, world, experiment):
    entrant = entrants([spec])[0]
    if entrant.source == "dope" and experiment.safe_limit is not None:
        # As in the paper: the safe policy is the optimum for a stricter limit.
        today, b = world.at(0), np.array([experiment.safe_limit])
        safe = plan(today.transitions, today.rewards, today.utilities, b, today.initial)
        known = {"safe_policy": safe.policy, "safe_utility": safe.utilities}
        return sd.learners.make("dope", world, **known, **entrant.options)
    gap = float(sd.optima(world, evenly_spaced(world.M, 20)).gamma.min())
    return entrant.build(world, gap, False)


def exists(spec):
    return spec.partition(":")[0] in sd.learners.LEARNERS


@lru_cache(maxsize=1)
def world_and_truth(key, seed):
    experiment, (M, _) = EXPERIMENTS[key], sizes_of(key)
    world = make(experiment.problem, M, seed, **(experiment.options or {}))
    every = max(1, M // MEASURED)
    return world, every, measure_truth(world, np.arange(0, M, every))


def play(job):
    """One run: a row of numbers, or the reason why there is none."""
    key, name, run = job
    row = {"experiment": key, "learner": name, "run": run}
    experiment = EXPERIMENTS[key]
    scales = PROBLEMS[experiment.problem].PUBLISHED
    try:
        world, every, truth = world_and_truth(key, run if experiment.new_worlds else 0)
        learner = build_learner(name, world, experiment)
        begun = time.perf_counter()
        found = sd.simulate(world, learner, run, measure_every=every, truth=truth)
        row["seconds"] = round(time.perf_counter() - begun, 1)
    except Exception as error:  # a row with its error, and the other runs go on
        return row | {"error": f"{type(error).__name__}: {error}"}
    late = found.episodes >= 0.9 * world.M
    reward, utility = found.outcome.reward[late].mean(), found.outcome.utility[late, 0].mean()
    gap = np.abs(found.regret) @ found.weights
    return row | {
        "episodes": world.M,
        "reward": scales.reward.published(float(reward), world.H),
        "constraint": scales.constraint.published(float(utility), world.H),
        "regret": float(found.dynamic_regret[-1]),
        "absolute regret": float(gap),
        "violation": float(found.positive_violation[-1, 0]),
        "late gap": [float(x(found.regret[late])) for x in (np.min, np.mean, np.max)],
        "late shortfall": float(found.shortfall[late, 0].mean()),
    }


def run_all(names, store, path, runs, workers, again):
    done = set() if again else {(r["experiment"], r["learner"], r["run"]) for r in store["runs"]}
    jobs = []
    for key in names:
        count = sizes_of(key)[1] if runs is None else runs
        for run in range(count):
            for name in EXPERIMENTS[key].learners:
                if exists(name) and (key, name, run) not in done:
                    jobs.append((key, name, run))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        Progress(*columns, TimeElapsedColumn()) as progress,
        ProcessPoolExecutor(workers, get_context("spawn")) as pool,
    ):
        task = progress.add_task("runs", total=len(jobs))
        for future in as_completed([pool.submit(play, job) for job in jobs]):
            row = future.result()
            same = (row["experiment"], row["learner"], row["run"])
            store["runs"] = [
                r for r in store["runs"] if (r["experiment"], r["learner"], r["run"]) != same
            ] + [row]
            save(store, path)
            progress.advance(task)


# ---------------------------------------------------------------- tables


def short(value):
    return f"{0.0 if abs(value) < 1e-9 else value:.4g}"


def spread(values):
    """Mean, and standard error where there are several."""
    values = np.asarray(values, float)
    if values.size == 1:
        return short(values[0])
    return f"{short(values.mean())} ± {short(values.std(ddof=1) / np.sqrt(values.size))}"


def table(heads, rows):
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def exact_table(found):
    heads = ["episode", "limit", "best safe reward", "cost or utility there", "without constraint",
             "price", "relative price", "μ\\*", "uniform policy"]  # fmt: skip
    rows, names = [], {1: ("all",), 2: ("first", "last")}
    for row in found["rows"]:
        price = f"{short(abs(row['free'] - row['optimum']))}"
        keys = ("limit", "optimum", "at cost", "free")
        rows.append(
            [
                names[len(found["rows"])][row["episode"] > 0],
                *(short(row[key]) for key in keys),
                price,
                f"{max(row['relative price'], 0):.1%}",
                short(row["mu"]),
                f"{short(row['uniform'])} / {short(row['uniform cost'])}",
            ]
        )
    told = [f"`sd.describe` warns: {sentence}" for sentence in found["warnings"]]
    return "\n\n".join([table(heads, rows), *told])


def runs_table(key, rows):
    heads = ["learner", "paper shows", "reward", "cost or utility", "Σ regret", "Σ \\|gap\\|",
             "Σ [violation]₊", "late gap, lowest to highest", "runs", "seconds"]  # fmt: skip
    lines, missing = [], []
    episodes = sizes_of(key)[0]
    for name, shown in EXPERIMENTS[key].learners.items():
        mine = [row for row in rows if row["experiment"] == key and row["learner"] == name]
        good = [row for row in mine if "error" not in row]
        if not good:
            why = mine[0]["error"] if mine else "not run"
            missing.append(f"`{name}` ({why})")
            continue
        low, _, high = zip(*(row["late gap"] for row in good), strict=True)
        keys = ("reward", "constraint", "regret", "absolute regret", "violation")
        lines.append(
            [
                f"`{name}`",
                shown or "–",
                *(spread([row[k] for row in good]) for k in keys),
                f"{short(min(low))} to {short(max(high))}",
                str(len(good)),
                short(np.mean([row["seconds"] for row in good])),
            ]
        )
    parts = []
    if lines:
        parts = [f"Our runs, {episodes:,} episodes; means ± standard errors:", table(heads, lines)]
    if missing:
        parts.append(f"No numbers yet: {', '.join(missing)}.")
    return "\n\n".join(parts)


def horizons_table(found):
    heads = ["H", "first episode (p = 0.05)", "last, p rises to 0.15", "last, p falls to 0"]
    rows = []
    for row in found:
        cells = [str(row["H"])]
        for name in ("first", "rises", "falls"):
            best = row[name]
            shown = " / ".join(f"{best[f'{cost:g}']:.2f}" for _, cost in SHOWN_GRID)
            cells.append(f"{shown}, {best['free']:.2f}" + (" **possible**" * best["possible"]))
        rows.append(cells)
    return table(heads, rows)


def families_table(found):
    heads = ["world", "seeds", "constraint binds", "uniform policy: regret", "violation", "safe"]
    rows = [
        [f"`{name}`", str(x["seeds"]), f"{x['binds']:.0%}", short(x["uniform regret"]),
         short(x["uniform violation"]), f"{x['uniform safe']:.0%}"]
        for name, x in found.items()
    ]  # fmt: skip
    return table(heads, rows)


def blocks(store):
    """What stands between the markers of each name."""
    found = {"horizons": horizons_table(store["horizons"])}
    found["families"] = families_table(store["families"])
    for key in EXPERIMENTS:
        found[f"exact {key}"] = exact_table(store["exact"][key])
        found[f"runs {key}"] = runs_table(key, store["runs"])
    return found


def with_tables(text, store):
    """Return the page with all tables; each stands between `<!-- NAME -->` and `<!-- end -->`."""
    for name, block in blocks(store).items():
        before, rest = text.split(f"<!-- {name} -->")
        after = rest.split("<!-- end -->", 1)[1]
        text = f"{before}<!-- {name} -->\n\n{block}\n\n<!-- end -->{after}"
    return text


def save(store, path):
    store["runs"].sort(key=lambda row: (row["experiment"], row["learner"], row["run"]))
    path.write_text(json.dumps(store, indent=1) + "\n")


def main():
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all by default")
    parser.add_argument("--out", type=Path, default=DOCS)
    parser.add_argument("--runs", type=int, help="per learner; by default at most three")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--exact", action="store_true", help="optima only")
    parser.add_argument("--tables", action="store_true", help="compute nothing")
    parser.add_argument("--again", action="store_true", help="repeat stored runs")
    given = parser.parse_args()
    wrong = set(given.names) - set(EXPERIMENTS)
    if wrong:
        parser.error(f"NAME must be one of {', '.join(EXPERIMENTS)}; got {', '.join(wrong)}")
    path, page = given.out / "published.json", given.out / "published.md"
    store = json.loads(path.read_text()) if path.exists() else {"runs": []}
    if given.exact or not {"exact", "horizons", "families"} <= set(store):
        store["exact"] = {key: exact(key) for key in EXPERIMENTS}
        store["horizons"], store["families"] = horizons(), families()
        save(store, path)
    if not given.exact and not given.tables:
        names = given.names or list(EXPERIMENTS)
        run_all(names, store, path, given.runs, given.workers, given.again)
    page.write_text(with_tables(page.read_text(), store))


if __name__ == "__main__":
    main()
