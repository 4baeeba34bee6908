"""The same random search for every learner, on worlds that no comparison reports.

Each learner has N settings: its defaults, and N - 1 drawn at random from the ranges in `TUNABLE`
beside it. Each is played on the calibration family, and the smallest mean strict score wins. The
family is made of random worlds with seeds from 10^6 on; named and published worlds are never used.

    TUNABLE = {
        "bonus": (0.001, 1.0, "log"),      # a number, its logarithm uniform
        "margin": (0.0, 0.5, "linear"),    # a number, uniform
        "window": (50, 5000, "log"),       # two integers: an integer
        "forgetting": ("never", "sliding"),  # one of these
    }
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from safedrift import _check
from safedrift.experiments.entrants import Entrant, tunable
from safedrift.experiments.row_files import RowFile, key_of, world_digest
from safedrift.experiments.simulation import measure_truth
from safedrift.experiments.workers import Arena, Player, Task, rows_of
from safedrift.problems import make

__all__ = ["EPISODES", "WORLDS", "calibration_worlds", "draw_setting", "settings_of", "tuned"]

EPISODES = 5000
MEASURE_EVERY = 5
SEED = 10**6  # of the first world; runs have the seeds after it
WORLDS: dict[str, dict[str, Any]] = {
    "calibration abrupt": {"drift": "abrupt"},
    "calibration linear": {"drift": "linear", "states": 8, "horizon": 4},
    "calibration periodic": {"drift": "periodic", "actions": 4, "gamma": 0.3},
    "calibration random walk": {"drift": "random_walk", "states": 4, "horizon": 6},
}
"""Options of `random`, one world each."""

SCALES = ("log", "linear")


def calibration_worlds() -> dict[str, Arena]:
    """Return the worlds of the search and what is true of them."""
    found = {}
    for number, (label, options) in enumerate(WORLDS.items()):
        world = make("random", EPISODES, SEED + number, **options)
        found[label] = Arena(world, measure_truth(world, np.arange(0, EPISODES, MEASURE_EVERY)))
    return found


def tuned(
    field: Sequence[Entrant],
    budget: int,
    *,
    noisy: bool,
    rows: RowFile,
    workers: int,
    player: Player = rows_of,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[Entrant]:
    """Return the same learners, those with something to tune with the best of `budget` settings."""
    budget = _check.integer("tune", budget)
    trials = {entrant.label: settings_of(entrant, budget) for entrant in field if tunable(entrant)}
    if not trials:
        return list(field)
    arenas = calibration_worlds()
    digests = {label: world_digest(arena.world) for label, arena in arenas.items()}
    tasks: dict[tuple[str, int], list[Task]] = {}
    for entrant in field:
        for number, setting in enumerate(trials.get(entrant.label, ())):
            tried = entrant.with_tuned(setting)
            tasks[entrant.label, number] = [
                _task(tried, label, digests[label], noisy) for label in arenas
            ]
    plan = [task for group in tasks.values() for task in group]
    finished = rows.finished(task.key for task in plan)
    missing = [task for task in plan if task.key not in finished]
    done = len(plan) - len(missing)
    for row in player(missing, arenas, workers):
        rows.add(row)
        done += 1
        if progress:
            progress("tuning", done * EPISODES, len(plan) * EPISODES)
    found = []
    for entrant in field:
        settings = trials.get(entrant.label)
        if settings is None:
            found.append(entrant)
            continue
        means = [_mean_score(tasks[entrant.label, n], rows) for n in range(len(settings))]
        found.append(entrant.with_tuned(settings[int(np.argmin(means))]))
    return found


def _task(entrant: Entrant, world: str, digest: str, noisy: bool) -> Task:
    key = key_of(
        calibration=digest, label=entrant.label, learner=entrant.identity, seed=SEED, noisy=noisy
    )
    return Task(key, world, entrant, SEED, noisy, MEASURE_EVERY, 0)


def _mean_score(tasks: Sequence[Task], rows: RowFile) -> float:
    """Mean strict score of a setting over the family; infinite where a run failed."""
    scores = [rows.known[task.key].strict_score for task in tasks]
    return float(np.nan_to_num(np.cumsum(scores)[-1] / len(scores), nan=np.inf))


def settings_of(entrant: Entrant, budget: int) -> list[dict[str, Any]]:
    """Return the settings that are tried: the defaults ({}) and `budget` - 1 random ones.

    They depend on the learner's label only, so a larger budget tries the same ones first.
    """
    ranges = tunable(entrant)
    rng = np.random.default_rng([SEED, zlib.crc32(entrant.label.encode())])
    return [{}, *(draw_setting(entrant.label, ranges, rng) for _ in range(budget - 1))]


def draw_setting(label: str, ranges: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Return one value for every option.

    Examples
    --------
    >>> import numpy as np
    >>> from safedrift.experiments.calibration import draw_setting
    >>> drawn = draw_setting("mine", {"rate": (0.01, 1.0, "log"), "kind": ("a", "b")},
    ...                      np.random.default_rng(0))
    >>> 0.01 <= drawn["rate"] <= 1, drawn["kind"] in "ab"
    (True, True)
    """
    return {name: _draw(f"TUNABLE[{name!r}] of {label}", x, rng) for name, x in ranges.items()}


def _draw(name: str, choice: Any, rng: np.random.Generator) -> Any:
    if not isinstance(choice, tuple | list) or not choice:
        _check.fail(name, "(low, high, 'log' or 'linear') or a tuple of choices", repr(choice))
    if len(choice) != 3 or choice[2] not in SCALES:
        return choice[int(rng.integers(len(choice)))]
    low, high, scale = choice
    if not low <= high or (scale == "log" and low <= 0):
        _check.fail(name, "a range low <= high, above 0 for 'log'", repr(choice))
    u = rng.random()
    value = low + u * (high - low) if scale == "linear" else float(low * (high / low) ** u)
    if isinstance(low, int) and isinstance(high, int):
        return round(value)
    return float(f"{value:.6g}")  # short enough to read and to type again
