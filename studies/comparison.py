"""All named learners in all tabular worlds: the tables of docs/comparison.md.

    python studies/comparison.py [--out docs] [--seeds 10] [--episodes 20000]

Plays what is not stored yet, stores one row per run in OUT/comparison/exact.parquet and
bernoulli.parquet, and writes OUT/comparison.md from these two files. Stop it with Ctrl-C and start
it again to continue. `--page-only` plays nothing.
"""

import argparse
import json
from pathlib import Path

import numpy as np

import safedrift as sd
from safedrift.experiments.row_files import NAME

KINDS = {"exact": False, "bernoulli": True}
TITLES = {"exact": "Exact signals", "bernoulli": "Bernoulli signals"}
VARIANTS = (
    "certainty-equivalence:forgetting=never",
    "opt-cmdp:forgetting=never",
    "opt-cmdp:forgetting=sliding",
    "opt-cmdp:forgetting=periodic",
    "posterior-sampling:forgetting=never",
)
# DOPE plans by linear programs: rarely, and only where they are small.
DOPE = "dope:replan_every=1000,largest=4000"
NEED_FEATURES = ("softmax-lsvi", "discounted-lsvi", "adaptive-linear-planner")
FROZEN = "optimum-of-first-episode"  # "optimum" itself scores 0 everywhere
DRIFT_MATTERS = 0.1
CALIBRATION = "random"  # where defaults were chosen; not reported
PER_TABLE = 6  # worlds side by side

GUIDE = """Written by `python studies/comparison.py` from the rows in `docs/comparison`, one per run
(`sd.Comparison.from_parquet` reads them).

**How to read it.** The strict score is Σ [V_r* − V_r]₊ + Σ [b − V_g]₊ over all episodes, divided by
the uniform policy's: 0 is the best safe policy of every single episode, 1 is no better than acting
at random. The values of measured episodes are exact; scores vary because states,
actions and observed signals are drawn. All learners meet the same draws and are compared in pairs.

Scores in the rankings are interquartile means over worlds and seeds with 95% stratified bootstrap
intervals. p-values are of tests against the best, paired by world and seed, after Holm's correction
for all pairs of learners. "Not different" means that luck in these worlds explains the difference.
"Told" is what a learner knows beyond sizes, the first state and its own trajectories. Oracles see
the truth and are not ranked.

Where the world does not drift, or its drift does not matter, forgetting can only cost. So there
are two rankings: of all worlds, and of those in which drift matters, that is, in which
`optimum-of-first-episode` (the best safe policy of episode 0, played for ever) scores at least 0.1.
This limit was set after the scores had been seen.
"""


def all_learners():
    """Every learner by name, planners that never forget, and what planning once is worth."""
    known = [name for name in sd.learners.LEARNERS if name not in NEED_FEATURES]
    return [*(DOPE if name == "dope" else name for name in known), *VARIANTS, FROZEN]


def all_worlds():
    """Every named world with finitely many states, no features, and no part in calibration."""
    return [
        name
        for name in sd.problems.PROBLEMS
        if name != CALIBRATION and isinstance(sd.problems.make(name, 2), sd.DriftingCMDP)
    ]


# ---------------------------------------------------------------- playing


def play(arguments, kind):
    """Play what is missing and store all rows."""
    stored = arguments.out / "comparison" / f"{kind}.parquet"
    work = arguments.work / kind
    if stored.is_file() and not (work / NAME).is_file():
        work.mkdir(parents=True, exist_ok=True)
        rows = sd.Comparison.from_parquet(stored).rows
        kept = (row for row in rows if row.learner not in arguments.again)
        (work / NAME).write_text("".join(json.dumps(row.record()) + "\n" for row in kept))
    shown = {}

    def progress(stage, done, total):
        percent = 100 * done // total
        if shown.get(stage) != percent:
            shown[stage] = percent
            print(f"{kind}: {stage} {percent}%", flush=True)

    found = sd.compare(
        arguments.worlds or all_worlds(),
        arguments.learners or all_learners(),
        arguments.seeds,
        episodes=arguments.episodes,
        noisy=KINDS[kind],
        measure_every=arguments.measure_every,
        skip=True,
        out=work,
        points=0,
        progress=progress,
    )
    stored.parent.mkdir(parents=True, exist_ok=True)
    found.to_parquet(stored, curves=False)


# ---------------------------------------------------------------- writing


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def number(value, digits=3):
    return "–" if np.isnan(value) else f"{round(value, digits) + 0.0:.{digits}f}"


def interval(score):
    if np.isnan(score.low) or score.low == score.high:
        return number(score.value)
    return f"{number(score.value)} [{number(score.low)}, {number(score.high)}]"


def p_value(p):
    if np.isnan(p):
        return ""
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def ranking(found):
    told = {entry.label: entry.told for entry in found.manifest.learners}
    rows = []
    for entry in found.ranking():
        better = entry.best_is_better
        rows.append([
            "" if entry.place is None else str(entry.place),
            f"`{entry.learner}`",
            interval(entry.score),
            "" if better is None else number(better.value, 2),
            p_value(entry.p_value),
            entry.status,
            ", ".join(told[entry.learner]),
        ])  # fmt: skip
    head = ["", "learner", "strict score", "P(best wins)", "p, adjusted", "", "told"]
    return table(head, rows)


def matrix(found, worlds):
    """Strict scores: the best of a world is bold, a star marks those not different from it."""
    cells = {(row["world"], row["learner"]): row for row in found.table()}
    rows = []
    for label in found.learners:
        line = [f"`{label}`"]
        for world in worlds:
            row = cells[world, label]
            text = number(row["strict_score"].value)
            marks = {"best": f"**{text}**", "not different": f"{text}\\*", "refused": "refused"}
            line.append(marks.get(row["status"], text))
        rows.append(line)
    return table(["learner", *worlds], rows)


def times(found):
    """Microseconds per episode of each learner: smallest, median and largest over worlds."""
    rows = []
    for label, by_world in found.timings().items():
        known = 1e6 * np.array([x for x in by_world.values() if not np.isnan(x)])
        if known.size:
            figures = (known.min(), np.median(known), known.max())
            rows.append([f"`{label}`", *(number(x, 1) for x in figures)])
    return table(["learner", "fastest world", "median", "slowest world"], rows)


def sizes(found):
    m = found.manifest
    episodes = sorted({world.sizes["M"] for world in m.worlds})
    span = " to ".join(f"{n:,}" for n in dict.fromkeys((episodes[0], episodes[-1])))
    every = f", one episode in {m.measure_every} measured" if m.measure_every > 1 else ""
    return (
        f"{len(m.learners)} learners, {len(m.worlds)} worlds, {len(m.seeds)} seeds, "
        f"{span} episodes{every}.\n"
    )


def where_drift_matters(found):
    """The same comparison without worlds in which never learning after episode 0 costs little."""
    cells = {row["world"]: row["strict_score"].value for row in found.table()
             if row["learner"] == FROZEN}  # fmt: skip
    kept = [entry for entry in found.manifest.worlds if cells[entry.label] >= DRIFT_MATTERS]
    labels = {entry.label for entry in kept}
    rows = tuple(row for row in found.rows if row.world in labels)
    return sd.Comparison(found.manifest.model_copy(update={"worlds": kept}), rows)


def section(found, kind):
    part = where_drift_matters(found)
    parts = [
        f"## {TITLES[kind]}\n",
        sizes(found),
        f"{found.verdict()}\n",
        ranking(found),
        f"### Where drift matters: {', '.join(f'`{world}`' for world in part.worlds)}\n",
        f"{part.verdict()}\n",
        ranking(part),
    ]
    parts += [f"- {note}" for note in found.notes()]
    parts.append("\nStrict score by world; bold is the best learner of the world, * is not")
    parts.append("significantly different from it (paired t-test, Holm over all pairs).\n")
    for start in range(0, len(found.worlds), PER_TABLE):
        parts.append(matrix(found, found.worlds[start : start + PER_TABLE]))
    return "\n".join(parts)


def page(comparisons):
    first = next(iter(comparisons.values()))
    features = " and ".join(f"`{name}`" for name in NEED_FEATURES)
    left_out = (
        f"Left out: {features}, which need features, and the world `{CALIBRATION}`, on which "
        "default options were chosen. DOPE plays where its linear programs are small.\n"
    )
    intro = f"# Comparison\n\n{GUIDE}\n{left_out}"
    slow = (
        "## Time\n\nMicroseconds per episode of playing and learning, on one core; this table "
        "differs from run to run.\n"
    )
    sections = [section(found, kind) for kind, found in comparisons.items()]
    return "\n".join([intro, *sections, slow, times(first)])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs"))
    parser.add_argument("--work", type=Path, default=Path("build/comparison"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--episodes", type=int, default=20_000)
    parser.add_argument("--measure-every", type=int, default=19)
    parser.add_argument("--worlds", nargs="+")
    parser.add_argument("--learners", nargs="+")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument(
        "--again", nargs="+", default=(), help="learners whose stored rows are out of date"
    )
    parser.add_argument("--page-only", action="store_true")
    arguments = parser.parse_args()
    if not arguments.page_only:
        for kind in arguments.kinds:
            play(arguments, kind)
    folder = arguments.out / "comparison"
    found = {kind: sd.Comparison.from_parquet(folder / f"{kind}.parquet") for kind in KINDS}
    path = arguments.out / "comparison.md"
    path.write_text(page(found), encoding="utf-8")
    size = sum(file.stat().st_size for file in folder.glob("*.parquet"))
    print(f"{path}; {size / 1e6:.2f} MB of rows in {folder}")


if __name__ == "__main__":
    main()
