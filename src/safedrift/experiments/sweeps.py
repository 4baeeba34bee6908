"""Sweeps: all runs of a study, in a folder that can be left and come back to.

    study.json         what the study is; another one is refused
    truths/*.npz       optima of each world, solved once and read by every run in it
    rows.jsonl         one line for every finished run
    results.parquet    all runs, in the order of the plan, when the sweep is done

A row depends on its world, learner and seed alone. So results.parquet is the same, byte for byte,
whatever number of workers and however often the sweep was stopped.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from safedrift import _check
from safedrift._files import (
    is_partial,
    plain_file,
    remove_partial_files,
    write_text,
)
from safedrift._version import __version__
from safedrift.experiments.differences import differences
from safedrift.experiments.engines import Engine, LocalEngine, Session
from safedrift.experiments.row_logs import RowLog
from safedrift.experiments.simulation import measure_truth
from safedrift.experiments.studies import Plan
from safedrift.experiments.sweep_results import write_results
from safedrift.experiments.truth_files import read_truth, write_truth
from safedrift.experiments.workers import Arena, Task, play, sentence
from safedrift.results.folder_locks import LOCK, FolderLock
from safedrift.results.measured import measured_episodes
from safedrift.results.scores import RunScore

__all__ = ["Sweep", "SweepProgress", "read_study_record", "run_sweep"]

STUDY, ROWS, RESULTS, TRUTHS = "study.json", "rows.jsonl", "results.parquet", "truths"

SweepProgress = Callable[[str, int, int, int], None]
"""Called with (stage, done, in all, failed); stages are "optima" and "runs"."""


class Sweep(NamedTuple):
    """What came of a sweep."""

    results: Path
    runs: int
    failed: int
    played: int  # this time


def run_sweep(
    plan: Plan,
    out: str | Path,
    *,
    engine: Engine | None = None,
    retry_failed: bool = False,
    progress: SweepProgress | None = None,
    tell: Callable[[str], Any] = warnings.warn,
) -> Sweep:
    """Play all runs of a plan that are not done yet, and write the results.

    Parameters
    ----------
    plan
        From `studies.plan_of`.
    out
        A new folder, or one of the same study, which then goes on.
    engine
        Where runs are played; by default in this process.
    retry_failed
        Play failed runs again.
    progress
        Called after every run.
    tell
        Called with a sentence when something was damaged.

    Examples
    --------
    >>> import tempfile
    >>> from safedrift.experiments.studies import plan_of, study_from
    >>> from safedrift.experiments.sweeps import run_sweep
    >>> study = {"episodes": 30, "seeds": 2, "problems": ["stationary"], "learners": ["uniform"]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = run_sweep(plan_of(study_from(study)), folder + "/sweep")
    >>> found.runs, found.failed, found.played
    (2, 0, 2)
    """
    engine = LocalEngine(1) if engine is None else engine
    folder = _opened(Path(out))
    lock = FolderLock(folder)
    try:
        _check_study(folder, plan)
        remove_partial_files(folder)
        log = RowLog(folder / ROWS, tell)
        try:
            context = _context(plan, folder)
            with engine.session(context) as session:
                played, failed = _go_on(context, session, log, retry_failed, progress)
            return Sweep(write_results(folder / RESULTS, plan, log.rows), plan.runs, failed, played)
        finally:
            log.close()
    finally:
        lock.release()


def _go_on(
    context: Context,
    session: Session,
    log: RowLog,
    retry_failed: bool,
    progress: SweepProgress | None,
) -> tuple[int, int]:
    """Play what is missing; returns how many runs were played, and how many of all failed."""
    plan = context.plan
    log.rows = {i: row for i, row in log.rows.items() if _fits(plan, i, row)}
    kept = {i for i, row in log.rows.items() if row["status"] == "done" or not retry_failed}
    missing = [i for i in range(plan.runs) if i not in kept]
    failed = sum(log.rows[i]["status"] != "done" for i in kept)
    done = len(kept)
    report = progress or (lambda stage, done, total, failed: None)
    unsolved = _solve(context, session, missing, report)
    playable = [i for i in missing if plan.run(i)[0] not in unsolved]
    if missing:
        report("runs", done, plan.runs, failed)
    for i in missing:
        reason = unsolved.get(plan.run(i)[0])
        if reason is not None:
            log.add([_failed(plan, i, reason)])
            done, failed = done + 1, failed + 1
    for i, found in session.results(play_run, playable):
        row = _failed(plan, i, "the process that played it died") if found is None else found
        log.add([row])
        done += 1
        failed += row["status"] != "done"
        report("runs", done, plan.runs, failed)
    return len(missing), failed


def _solve(
    context: Context, session: Session, missing: list[int], report: SweepProgress
) -> dict[int, str]:
    """Solve the worlds that missing runs need; returns why not, for those that cannot be."""
    plan = context.plan
    needed = sorted({plan.run(i)[0] for i in missing})
    wanted = [place for place in needed if not _has_truth(context, place)]
    failures: dict[int, str] = {}
    for done, (place, error) in enumerate(session.results(solve_world, wanted), start=1):
        if error or error is None:
            failures[place] = error or "the process that solved its world died"
        report("optima", done, len(wanted), len(failures))
    return failures


# ---------------------------------------------------------------- in the workers


class Context(NamedTuple):
    """What every process of a sweep is told; `keys` name the files of the worlds' truths."""

    plan: Plan
    folder: Path
    keys: tuple[str, ...]

    def truth_file(self, place: int) -> Path:
        """Return the path of the truth about a world."""
        return self.folder / TRUTHS / f"{self.keys[place]}.npz"


def _context(plan: Plan, folder: Path) -> Context:
    study = plan.study
    keys = []
    for place in plan.places:
        plain = [place.identity, study.measure_every, study.measure_log]
        text = json.dumps(plain, sort_keys=True)
        keys.append(hashlib.sha256(text.encode()).hexdigest()[:16])
    return Context(plan, folder.resolve(), tuple(keys))


def _has_truth(context: Context, place: int) -> bool:
    """Whether the truth of a world is there and whole."""
    try:
        read_truth(context.truth_file(place), context.keys[place])
    except (ValueError, OSError):
        return False
    return True


def solve_world(context: Context, place: int) -> str:
    """Solve a world and write its truth; returns an error or nothing."""
    study = context.plan.study
    try:
        world = context.plan.places[place].build()
        episodes = measured_episodes(world.M, study.measure_every, study.measure_log)
        truth = measure_truth(world, episodes)
    except Exception as error:
        return sentence(error)
    write_truth(context.truth_file(place), context.keys[place], truth)
    return ""


_ARENAS: dict[Path, Arena] = {}  # of this process: the worlds it played in last
_MOST_ARENAS = 2


def _arena(context: Context, place: int) -> Arena:
    """World and truth, kept from one run to the next."""
    file = context.truth_file(place)
    if file not in _ARENAS:
        truth = read_truth(file, context.keys[place])
        while len(_ARENAS) >= _MOST_ARENAS:
            del _ARENAS[next(iter(_ARENAS))]
        _ARENAS[file] = Arena(context.plan.places[place].build(), truth)
    return _ARENAS[file]


def play_run(context: Context, i: int) -> dict[str, Any]:
    """Play run number i of a plan and return its row; an error becomes a row too."""
    plan, study = context.plan, context.plan.study
    place, entrant, seed = plan.run(i)
    try:
        arena = _arena(context, place)
    except Exception as error:
        return _failed(plan, i, sentence(error))
    label, who = plan.places[place].label, plan.entrants[entrant]
    task = Task("", label, who, seed, study.noisy, study.measure_every, 0, study.measure_log)
    return _row(i, play(task, arena))


# ---------------------------------------------------------------- rows


def _row(i: int, score: RunScore) -> dict[str, Any]:
    """What is kept of run number i: plain data."""
    plain = score.record()
    for name in ("key", "curves", "curve_episodes"):
        del plain[name]
    return {"run": i, **plain, "settings": json.dumps(plain["settings"])}


def _failed(plan: Plan, i: int, error: str) -> dict[str, Any]:
    place, entrant, seed = plan.run(i)
    names = ("", plan.places[place].label, plan.entrants[entrant].label, seed)
    return _row(i, RunScore(*names, status="failed", error=error))


def _fits(plan: Plan, i: int, row: dict[str, Any]) -> bool:
    """Whether a row that was read is one of this plan."""
    if not 0 <= i < plan.runs:
        return False
    place, entrant, seed = plan.run(i)
    wanted = (plan.places[place].label, plan.entrants[entrant].label, seed)
    try:
        found = RunScore.from_record(row | {"key": "", "settings": None})
        return (found.world, found.learner, found.seed) == wanted and set(_row(i, found)) == set(
            row
        )
    except (TypeError, ValueError):
        return False


# ---------------------------------------------------------------- the folder


def _opened(folder: Path) -> Path:
    """Make the folder, or see that it is one of a sweep."""
    if folder.exists() and not folder.is_dir():
        _check.fail("out", "a folder", f"the file {folder}")
    others = [x for x in folder.iterdir() if x.name != LOCK] if folder.is_dir() else []
    if not plain_file(folder / STUDY) and not all(map(is_partial, others)):
        _check.fail("out", "a new or empty folder, or one of the same study", folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or error
        raise ValueError(f"out must be a folder that can be made; got {folder} ({why})") from error
    return folder


def _check_study(folder: Path, plan: Plan) -> None:
    """Refuse a folder of another study or version; note which study it is of."""
    path, truths = folder / STUDY, folder / TRUTHS
    plain = {"version": __version__, **plan.record()}
    if not plain_file(path):
        write_text(path, _signed(plain))
    different = list(differences(read_study_record(path), plain))
    if different:
        shown = "; ".join(f"{name} is {_short(new)} instead of {_short(before)}"
                          for name, before, new in different[:8])  # fmt: skip
        more = f"; and {len(different) - 8} more" if len(different) > 8 else ""
        wanted = f"the one of {folder} (a changed study needs another folder)"
        _check.fail("study", wanted, f"one that differs: {shown}{more}")
    if truths.is_symlink():
        _check.fail(str(truths), "a folder", "a link")
    truths.mkdir(exist_ok=True)


def _signed(plain: dict[str, Any]) -> str:
    """JSON with the SHA-256 of its own text as the last line."""
    text = json.dumps(plain, indent=1) + "\n"
    return f"{text}{hashlib.sha256(text.encode()).hexdigest()}\n"


def read_study_record(path: Path) -> Any:
    """Return what study.json says (the plan's `record` and the version), if it is whole."""
    try:
        text = path.read_text(encoding="utf-8")
        body, digest = text[:-65], text[-65:].strip()
        if hashlib.sha256(body.encode()).hexdigest() != digest or not text.endswith("\n"):
            raise ValueError
        return json.loads(body)
    except (ValueError, RecursionError):
        _check.fail(str(path), "as safedrift wrote it", "one that was changed or damaged")


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
