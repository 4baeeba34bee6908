"""Ways to forget against each other, and what single filters are worth: tables of docs/adaptive.md.

    python studies/forgetting.py play [--worlds "abrupt 1" ...]     rows to OUT/forgetting
    python studies/forgetting.py ablate                             rows to OUT/forgetting
    NUMBA_CACHE_DIR=$(mktemp -d) python studies/forgetting.py ablate --compiled "no aims"
    python studies/forgetting.py tables                             prints all tables

`play` lets two learners with counts, an optimistic planner and PROPD-PPO told nothing, forget in
every way there is, in worlds of the family "evaluation" of `safedrift.experiments.evaluation`. What
is stored already is not played again. `ablate` leaves out parts of `adaptive-planner` one at a
time, in worlds of the family "calibration"; with `--compiled` one of those for which the kernels
are compiled anew (`COMPILED`). Both store one row per run. Worlds last 20,000 episodes; drift
is as much as in the 50,000 of docs/adaptive-scores.md, but for random walks, whose steps are the
same.
"""

import argparse
import json
import os
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import safedrift as sd
from safedrift.experiments import evaluation
from safedrift.experiments.row_files import NAME
from safedrift.kernels.tabular import bonuses, filtered_model, planner, plans
from safedrift.kernels.tabular.evidence import heaviest
from safedrift.kernels.types import jit_inline, jit_part
from safedrift.learners import adaptive_planner

EPISODES = 20_000
WORLDS = ("abrupt 4", "linear 2", "periodic 3", "random_walk 3", "alternating 2", "stationary 2")
SIGNALS = {"exact": False, "bernoulli": True}
LENGTHS = (200, 1000, 5000)
PLANNER, PRIMAL_DUAL = "opt-cmdp", "propd-ppo:knowledge=none"
LEFT_OUT = ("sliding, 200", "sliding, 1000", "sliding, 5000", "discounted, 5000")  # of the latter


def with_forgetting(learner, forgetting):
    return learner + ("," if ":" in learner else ":") + f"forgetting={forgetting}"


def learners():
    """Specifications by the row of the table that they belong to: (who forgets, how)."""
    timed = {
        f"{kind}, {W}": f"{kind},window={W}"
        for kind, lengths in {
            "periodic": (1000,),
            "sliding": LENGTHS,
            "discounted": LENGTHS,
        }.items()
        for W in lengths
    }
    ways = {"never": "never", **timed, "homogeneity": "homogeneity", "adaptive": "adaptive"}
    found = {(PLANNER, how): with_forgetting(PLANNER, option) for how, option in ways.items()}
    tuned = "block=3000,shortest=1000"
    found[PLANNER, "bandit, tuned"] = f"restart-bandit:learner=opt-cmdp,{tuned}"
    found |= {
        (PRIMAL_DUAL, how): with_forgetting(PRIMAL_DUAL, option)
        for how, option in ways.items()
        if how not in LEFT_OUT
    }
    found[PRIMAL_DUAL, "bandit"] = "restart-bandit:learner=propd-ppo"
    found[PRIMAL_DUAL, "bandit, tuned"] = f"restart-bandit:learner=propd-ppo,{tuned}"
    found["adaptive-planner", "its own"] = "adaptive-planner"
    return found


def worlds_of(family, labels):
    with mock.patch.dict(evaluation.EPISODES, long=EPISODES):
        options = evaluation.evaluation_worlds("long", family)
    return {label: sd.problems.make("random", **options[label]) for label in labels}


# ---------------------------------------------------------------- ways to forget


def play(arguments):
    """Play what is missing and store all rows."""
    for signals in arguments.signals:
        stored = arguments.out / "forgetting" / f"{signals}.parquet"
        work = arguments.work / signals
        if stored.is_file() and not (work / NAME).is_file():
            work.mkdir(parents=True, exist_ok=True)
            rows = sd.Comparison.from_parquet(stored).rows
            (work / NAME).write_text("".join(json.dumps(row.record()) + "\n" for row in rows))
        found = sd.compare(
            worlds_of("evaluation", arguments.worlds),
            list(learners().values()),
            arguments.seeds,
            noisy=SIGNALS[signals],
            measure_every=arguments.measure_every,
            skip=True,
            out=work,
            workers=arguments.workers,
            points=0,
            progress=lambda stage, done, total: print(stage, done, total, flush=True),
        )
        stored.parent.mkdir(parents=True, exist_ok=True)
        found.to_parquet(stored, curves=False)


def forgetting_table(found):
    """Strict score of every way to forget, mean over seeds, exact / Bernoulli: all worlds, each."""
    worlds = found["exact"].worlds
    rows = []
    for (who, how), label in learners().items():
        scores = [found[x].figures("strict_score", label).mean(axis=1) for x in SIGNALS]
        both = np.column_stack(([x.mean() for x in scores], scores))
        cells = [" / ".join(map(number, pair)) for pair in both.T]
        rows.append([f"`{who}`", how, *cells])
    return table(["learner", "forgets", "mean", *worlds], rows)


# ---------------------------------------------------------------- parts of the adaptive planner


def variants():
    """Constants of `adaptive_planner` to be replaced, and options, by the name of a variant."""
    found = {"nothing changed": ({}, {})}
    grids = {"transitions": "MOVE_RATES", "signals": "SIGNAL_RATES"}
    for quantity, name in grids.items():
        rates = getattr(adaptive_planner, name)
        for rate in rates:
            rest = tuple(other for other in rates if other != rate)
            found[f"{quantity} without κ = {rate[0]:g}, p = {rate[1]}"] = ({name: rest}, {})
    straight = {
        name: tuple(rate for rate in getattr(adaptive_planner, name) if rate[1] == 1)
        for name in grids.values()
    }
    found["no p = 2"] = (straight, {})
    for omega in adaptive_planner.POOLING:
        rest = tuple(other for other in adaptive_planner.POOLING if other != omega)
        found[f"no pooling of {omega:g}"] = ({"POOLING": rest}, {})
    found["no pooling at all"] = ({"POOLING": (0.0,)}, {})
    found["no alarms (rate 1e-300)"] = ({}, {"false_alarm_rate": 1e-300})
    found["no bonus for variance on the reward"] = ({}, {"reward_bonus": 0.0})
    found["no bonus for few visits"] = ({}, {"range_bonus": 0.0})
    found["no bonus on utilities"] = ({}, {"utility_bonus": 0.0})
    found["no limit on exploration"] = ({}, {"exploration": 1e9})
    return found


@jit_part
def choose_heaviest(experts, chosen):
    """In place of `filtered_model.choose_of`."""
    best, strengths = heaviest(experts.weight), experts.weight.shape[1]
    for n in range(chosen.shape[0]):
        chosen[n, 2] = 0.0
    chosen[0, 0], chosen[0, 1], chosen[0, 2] = best // strengths, best % strengths, 1.0
    return best % strengths > 0


@jit_inline
def no_rounds(know, c, q, H, omega):
    """In place of `bonuses.rounds_between`."""
    return 0.0


@jit_inline
def rounds_since(know, c, q, H, omega):
    """`bonuses.rounds_between` as it would be if only the last visit counted."""
    last, known = 0, know.own.used[0]
    if c >= 0 and omega < np.inf:
        last = know.own.last[c]
    elif q >= 0 and omega > 0.0:
        last, known = know.pooled.last[q], know.pooled.used[0]
    return float(know.episode[0] - last) * H / max(known, 1)


@jit_inline
def no_trial(cells, pair, m, H):
    """In place of `bonuses.is_trial`."""
    return False


@jit_inline
def no_aim(returns, k, mu, slack):
    """In place of `plans.aim_above`."""
    return 0.0


COMPILED = {  # what is replaced in kernels, by the name of a variant
    "heaviest expert only": (filtered_model, {"choose_of": choose_heaviest}),
    "no common factors": (filtered_model, {"MOST_TRUST": 0.0}),
    "bonuses that do not grow": (bonuses, {"rounds_between": no_rounds}),
    "bonuses that grow with the time since the last visit only": (
        bonuses,
        {"rounds_between": rounds_since},
    ),
    "no plans after trials": (planner, {"is_trial": no_trial}),
    "no aims": (plans, {"aim_above": no_aim}),
}


def ablate(arguments):
    """Play every variant and store one row per run."""
    worlds = worlds_of("calibration", arguments.worlds)
    path = arguments.out / "forgetting" / "ablation.parquet"
    rows = pq.read_table(path).to_pylist() if path.is_file() else []
    chosen = variants()
    if arguments.compiled is not None:  # keep others' cache clean
        if "NUMBA_CACHE_DIR" not in os.environ:
            raise SystemExit("NUMBA_CACHE_DIR must be a folder of its own with --compiled")
        module, replaced = COMPILED[arguments.compiled]
        vars(module).update(replaced)
        chosen = {arguments.compiled: ({}, {})}
    done = {(row["variant"], row["world"], row["signals"], row["seed"]) for row in rows}
    for label, world in worlds.items():
        episodes = np.arange(0, world.M, arguments.measure_every)
        truth = sd.measure_truth(world, episodes)
        measured = {"measure_every": arguments.measure_every, "truth": truth}
        uniform = losses(sd.simulate(world, sd.learners.make("uniform", world), **measured))
        for variant, (constants, options) in chosen.items():
            with mock.patch.dict(vars(adaptive_planner), constants):
                for signals, seed in (
                    (signals, seed) for signals in arguments.signals for seed in arguments.seeds
                ):
                    if (variant, label, signals, seed) in done:
                        continue
                    learner = sd.learners.make("adaptive-planner", world, **options)
                    run = sd.simulate(world, learner, seed=seed, noisy=SIGNALS[signals], **measured)
                    score = losses(run) / uniform
                    rows.append({"variant": variant, "world": label, "signals": signals,
                                 "seed": seed, "strict_score": score})  # fmt: skip
                    print(variant, label, signals, seed, number(score), flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), path)


def losses(run):
    """Regret and violation of all episodes, positive parts."""
    found = run.summary()
    return found["positive_regret_per_episode"] + sum(found["positive_violation_per_episode"])


def ablation_table(rows):
    """Mean score over worlds and seeds of every variant."""
    lines = []
    for variant in dict.fromkeys(row["variant"] for row in rows):
        means = [
            np.mean([
                row["strict_score"]
                for row in rows
                if row["variant"] == variant and row["signals"] == signals
            ])
            for signals in SIGNALS
        ]  # fmt: skip
        lines.append([variant, *map(number, means)])
    return table(["adaptive-planner", "exact", "Bernoulli"], lines)


# ---------------------------------------------------------------- writing


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def number(value):
    return "–" if np.isnan(value) else f"{value:.3f}".removeprefix("0")


def tables(arguments):
    """Print the tables of what is stored."""
    folder = arguments.out / "forgetting"
    found = {x: sd.Comparison.from_parquet(folder / f"{x}.parquet") for x in SIGNALS}
    print(forgetting_table(found))
    print(ablation_table(pq.read_table(folder / "ablation.parquet").to_pylist()))


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("play", "ablate", "tables"))
    parser.add_argument("--out", type=Path, default=Path("docs"))
    parser.add_argument("--work", type=Path, default=Path("build/forgetting"))
    parser.add_argument("--signals", nargs="+", choices=SIGNALS, default=list(SIGNALS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS))
    parser.add_argument("--compiled", choices=COMPILED)
    parser.add_argument("--measure-every", type=int, default=41)
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args(given)
    {"play": play, "ablate": ablate, "tables": tables}[arguments.what](arguments)


if __name__ == "__main__":
    main()
