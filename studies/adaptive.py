"""The default learner against the others in random worlds: the tables of docs/adaptive-scores.md.

    python studies/adaptive.py [--kinds long short fast] [--learners adaptive-planner opt-cmdp ...]

Plays what is not stored yet in the worlds of `safedrift.experiments.evaluation`, stores one row per
run in OUT/adaptive/KIND-exact.parquet and KIND-bernoulli.parquet, and writes OUT/adaptive-scores.md
from these files. Stop it with Ctrl-C and start it again to continue. `--page-only` plays nothing.

The first learner is compared with each of the others. `--family calibration` plays the worlds that
constants may be chosen on; give it an `--out` of its own.
"""

import argparse
import json
from pathlib import Path

import numpy as np

import safedrift as sd
from safedrift.experiments.evaluation import EPISODES, FAMILIES, KINDS, drift_of, make_worlds
from safedrift.experiments.row_files import NAME
from safedrift.results.statistics import holm, paired_t_test

LEARNER = "adaptive-planner"  # the one that the page is about
OURS = ("propd-ppo:knowledge=none",)  # not a rival, but worth a line
RIVALS = (
    "propd-ppo",
    "certainty-equivalence",
    "opt-cmdp",
    "bisection",
    "opt-cmdp:forgetting=sliding",
    "posterior-sampling",
    "opdop",
    "opt-primal-dual",
    "regularised-primal-dual",
    "pid-lagrangian",
    "triple-q",
    "ns-triple-q",
    "double-restart-triple-q",
)
SIGNALS = {"exact": False, "bernoulli": True}
TITLES = {
    "long": f"{EPISODES['long']:,} episodes",
    "short": f"{EPISODES['short']:,} episodes",
    "fast": f"A period of 500 episodes, {EPISODES['fast']:,} episodes",
}
MEASURE_EVERY = {"long": 19, "short": 7, "fast": 19}
LEVEL = 0.05

GUIDE = """Written by `python studies/adaptive.py` from the rows in `docs/adaptive`, one per run
(`sd.Comparison.from_parquet` reads them).

**How to read it.** The strict score is Σ [V_r* − V_r]₊ + Σ [b − V_g]₊ over all episodes, divided by
the uniform policy's: 0 is the best safe policy of every single episode, 1 is no better than acting
at random. A world's score is the mean over its seeds. Tables show the median, the mean and the
worst over worlds.

The worlds are random, of the family "{family}" of `safedrift.experiments.evaluation`; constants are
chosen on "calibration" and scores are reported on "evaluation". No learner is tuned. "Better" and
"worse" count the drifting worlds in which a paired t-test over seeds finds a difference at 5
percent, after Holm's correction for all rivals in this world.
"""


# ---------------------------------------------------------------- playing


def play(arguments, kind, signals):
    """Play what is missing and store all rows."""
    stored = path_of(arguments, kind, signals)
    work = arguments.work / arguments.family / stored.stem
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
            print(f"{stored.stem}: {stage} {percent}%", flush=True)

    worlds = make_worlds(kind, arguments.family)
    if arguments.worlds:
        worlds = {label: worlds[label] for label in arguments.worlds}
    found = sd.compare(
        worlds,
        arguments.learners,
        arguments.seeds,
        noisy=SIGNALS[signals],
        measure_every=MEASURE_EVERY[kind],
        skip=True,
        out=work,
        workers=arguments.workers,
        points=0,
        progress=progress,
    )
    stored.parent.mkdir(parents=True, exist_ok=True)
    found.to_parquet(stored, curves=False)


def path_of(arguments, kind, signals):
    return arguments.out / "adaptive" / f"{kind}-{signals}.parquet"


# ---------------------------------------------------------------- counting


def scores(found, learner):
    """Mean strict score over seeds of every world (W,); NaN where runs are missing."""
    return found.figures("strict_score", learner).mean(axis=1)


def verdicts(found):
    """By drifting world: how the first learner compares to each rival that played all seeds.

    "better", "worse" or "": paired t-tests over seeds, Holm's correction for all rivals in a world.
    """
    learner, *rivals = (x for x in found.learners if x not in found.oracles)
    own = found.figures("strict_score", learner)
    others = {rival: found.figures("strict_score", rival) for rival in rivals}
    answer = {}
    for at, world in enumerate(found.worlds):
        if drift_of(world) == "stationary":
            continue
        adjusted = holm([tested(own[at], others[rival][at]) for rival in rivals])
        answer[world] = {}
        for rival, p in zip(rivals, adjusted, strict=True):
            if not np.isnan(p):
                wins = own[at].mean() < others[rival][at].mean()
                answer[world][rival] = ("better" if wins else "worse") if p < LEVEL else ""
    return answer


def against(answer, rival):
    """In how many worlds the first learner is better and worse than a rival, of those tested."""
    known = [by_rival[rival] for by_rival in answer.values() if rival in by_rival]
    return [f"{known.count(word)} of {len(known)}" for word in ("better", "worse")]


def tested(x, y):
    """p-value of equal means; NaN where a learner did not play all seeds."""
    return np.nan if np.isnan(x).any() or np.isnan(y).any() else paired_t_test(x, y)


# ---------------------------------------------------------------- writing


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def number(value):
    return "–" if np.isnan(value) else f"{value:.3f}"


def overview(found):
    """One line per learner: median, mean and worst score over worlds; against the first learner."""
    learner = found.learners[0]
    answer = verdicts(found)
    told = {entry.label: entry.told for entry in found.manifest.learners}
    rows = []
    for label in found.learners:
        values = scores(found, label)
        known = values[~np.isnan(values)]
        figures = (np.median(known), known.mean(), known.max()) if known.size else 3 * (np.nan,)
        rival = label != learner and label not in found.oracles
        counts = against(answer, label) if rival else ["", ""]
        missing = "" if known.size == values.size else f"{values.size - known.size} worlds missing"
        rows.append([
            f"`{label}`", *map(number, figures), *counts, ", ".join(told[label]), missing,
        ])  # fmt: skip
    return table(
        ["learner", "median", "mean", "worst", f"`{learner}` better", "worse", "told", ""], rows
    )


def by_drift(found):
    """Median and worst score over the worlds of each kind of drift."""
    drifts = np.array([drift_of(world) for world in found.worlds])
    kinds = list(dict.fromkeys(drifts))
    rows = []
    for label in found.learners:
        values = scores(found, label)
        cells = [
            f"{number(np.median(part))}, {number(part.max())}"
            for part in (values[drifts == kind] for kind in kinds)
        ]
        rows.append([f"`{label}`", *cells])
    return table(["median, worst", *kinds], rows)


def by_world(found):
    """Score of the first learner in every world, and of the best other one."""
    learner, *rivals = (x for x in found.learners if x not in found.oracles)
    own = found.figures("strict_score", learner)
    others = {label: scores(found, label) for label in rivals}
    rows = []
    for at, entry in enumerate(found.manifest.worlds):
        size = entry.sizes
        line = [entry.label, f"{size['S']}, {size['A']}, {size['H']}"]
        line += [number(own[at].mean()), number(own[at].min()), number(own[at].max())]
        known = {label: x[at] for label, x in others.items() if not np.isnan(x[at])}
        best = min(known, key=known.get, default=None)
        rows.append([*line, "" if best is None else f"{number(known[best])} `{best}`"])
    return table(
        ["world", "S, A, H", f"`{learner}`", "best seed", "worst seed", "best other learner"], rows
    )


def sentence(found):
    """In how many drifting worlds the first learner is better than every single rival."""
    tests = [
        [word for rival, word in by_rival.items() if rival not in OURS]
        for by_rival in verdicts(found).values()
    ]
    tests = [words for words in tests if words]
    if not tests:
        return "No rival was played here.\n"
    won = sum(set(words) == {"better"} for words in tests)
    rivals = "the rival" if len(tests[0]) == 1 else f"each of {len(tests[0])} rivals"
    return (
        f"`{found.learners[0]}` is significantly better than {rivals} in {won} of {len(tests)} "
        "drifting worlds.\n"
    )


def section(found, signals):
    m = found.manifest
    sizes = f"{len(m.worlds)} worlds, {len(m.seeds)} seeds, one episode in {m.measure_every}"
    title = {"exact": "Exact signals", "bernoulli": "Bernoulli signals"}[signals]
    parts = [f"### {title}\n", f"{sizes} measured.\n", overview(found), sentence(found)]
    if len({drift_of(world) for world in found.worlds}) > 1:
        parts.append(by_drift(found))
    return "\n".join([*parts, by_world(found)])


def page(stored, family="evaluation"):
    """The whole page, from {(kind, signals): comparison}."""
    parts = [f"# Scores in random worlds\n\n{GUIDE.format(family=family)}"]
    for kind in KINDS:
        present = [signals for signals in SIGNALS if (kind, signals) in stored]
        if present:
            parts.append(f"## {TITLES[kind]}\n")
            parts += [section(stored[kind, signals], signals) for signals in present]
    return "\n".join(parts)


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs"))
    parser.add_argument("--work", type=Path, default=Path("build/adaptive"))
    parser.add_argument("--family", choices=FAMILIES, default="evaluation")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--signals", nargs="+", choices=SIGNALS, default=list(SIGNALS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--worlds", nargs="+", help="labels; all by default")
    parser.add_argument("--learners", nargs="+", default=[LEARNER, *OURS, *RIVALS])
    parser.add_argument("--workers", type=int)
    parser.add_argument(
        "--again", nargs="+", default=(), help="learners whose stored rows are out of date"
    )
    parser.add_argument("--page-only", action="store_true")
    arguments = parser.parse_args(given)
    cases = [(kind, signals) for kind in arguments.kinds for signals in arguments.signals]
    if not arguments.page_only:
        for kind, signals in cases:
            play(arguments, kind, signals)
    every = [(kind, signals) for kind in KINDS for signals in SIGNALS]
    files = {case: path_of(arguments, *case) for case in every}
    found = {x: sd.Comparison.from_parquet(file) for x, file in files.items() if file.is_file()}
    path = arguments.out / "adaptive-scores.md"
    path.write_text(page(found, arguments.family), encoding="utf-8")
    print(f"{path}: {len(found)} of {len(every)} comparisons")


if __name__ == "__main__":
    main()
