"""Many runs of PROPD-PPO with counts on a card: what they are given, and in which portions.

Runs are played in batches that fit into memory, each batch a chunk of episodes at a time: `play`
writes the policy of every measured episode, `evaluate_policies` their exact values (teams find
these while they play), and `accumulate_sums` adds them up. What is kept of a run is its state and
its sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift._check import FloatArray, IntArray
from safedrift.gpu.card import Machine
from safedrift.gpu.program import (
    THREADS,
    WORD,
    Layout,
    Shape,
    definitions,
    layout_for,
    source,
    task_fields,
)
from safedrift.kernels.tabular.memory import BERNSTEIN_BONUS, Hyperparameters
from safedrift.kernels.types import TableArrays
from safedrift.learners.forgetting import Never, Periodic
from safedrift.learners.propd_ppo import PROPDPPO
from safedrift.learners.propd_ppo.engines import TableEngine

__all__ = ["Batch", "Measured", "generator_words", "obstacle", "play_batches"]

MOST_VALUES = 4096  # (1+K) S: a thread keeps the values of two steps to itself
MOST_COUNTS = 2**30  # H S² A: counts of transitions are dense
MOST_CONSTRAINTS = 3
MOST_EPISODES = 2**16  # of a chunk
MOST_MEASURED = 512  # of a chunk's episodes
MOST_MEASURED_BY_TEAMS = 2048  # which write no policies
MIXING_BLOCKS = 512
MEASURING = 64  # threads of a block that evaluates policies (measuring.cu)
ENDLESS = 2**62


class Measured(NamedTuple):
    """Which episodes are measured, what is true of them, and which sums are recorded."""

    episodes: IntArray  # (n,)
    optimal_reward: FloatArray  # (n,)
    weights: FloatArray  # (n,)
    recorded: IntArray  # (r,) some of 0, ..., n - 1


class Batch(NamedTuple):
    """Runs that were played together."""

    runs: IntArray  # (R,) their numbers
    sums: FloatArray  # (R, recorded, 2+2K)
    logs: list[dict[str, NDArray[Any]]]  # of each chunk, where they were asked for


def obstacle(learner: Any) -> str | None:
    """Return why a learner cannot be played on a card, or None."""
    if not isinstance(learner, PROPDPPO) or not isinstance(learner.engine, TableEngine):
        return "PROPD-PPO with counts that is told a Slater gap or local budgets"
    if not isinstance(learner.forgetting, Periodic | Never):
        return "with periodic forgetting, or none"
    if learner.initial is None:
        return "told the initial distribution"
    if learner.sizes.K > MOST_CONSTRAINTS:
        return f"with at most {MOST_CONSTRAINTS} constraints"
    _, H, S, A, K = learner.sizes
    if (1 + K) * S > MOST_VALUES or H * S * S * A > MOST_COUNTS:
        return f"in a world with (1+K) S <= {MOST_VALUES} and H S² A <= {MOST_COUNTS}"
    return None


def generator_words(stream: np.random.SeedSequence) -> list[int]:
    """Return state and increment of the PCG64 of a stream, low words first."""
    found: Any = np.random.PCG64(stream).state["state"]
    state, increment = int(found["state"]), int(found["inc"])
    return [state & WORD, state >> 64, increment & WORD, increment >> 64]


# ---------------------------------------------------------------- batches of runs


def play_batches(
    machine: Machine,
    arrays: TableArrays,
    learners: Sequence[PROPDPPO],
    generators: NDArray[np.uint64],
    noisy: bool,
    measured: Measured,
    *,
    progress: Callable[[int], None] = lambda episodes: None,
    log: bool = False,
    layout: Layout | None = None,
) -> Iterator[Batch]:
    """Play all learners with all seeds; run number i is learner i // R with seed i % R.

    Parameters
    ----------
    generators : (R, 2, 4) words of the streams of actions and of the world
    progress : called with episodes just played
    log : keep trajectories, multipliers and estimates of every episode
    layout : by default what suits the size
    """
    R = len(generators)
    groups: dict[Shape, list[int]] = {}
    for i, shape in enumerate(_shapes(arrays, learners, noisy)):
        groups.setdefault(shape, []).append(i)
    for shape, members in groups.items():
        chosen = layout_for(shape, machine.shared) if layout is None else layout
        program = machine.compile(source(chosen.team > 0), definitions(shape, chosen))
        world = _world(arrays, learners[members[0]])
        settings = _settings([learners[i] for i in members])
        everyone = np.stack(np.divmod(np.arange(len(members) * R), R), axis=1)  # learner, seed
        for part in _portions(everyone, shape, chosen, machine.room()):
            own = {
                "setting": part[:, 0].astype(np.int32),
                "generators": generators[part[:, 1]],
            }
            task = _Task(machine, world | settings | own)
            sums, logs = _play(machine, program, task, shape, chosen, measured, progress, log)
            numbers = np.array(members)[part[:, 0]] * R + part[:, 1]
            yield Batch(numbers, sums, logs)


def _shapes(arrays: TableArrays, learners: Sequence[PROPDPPO], noisy: bool) -> Iterator[Shape]:
    """Shapes of all learners: as few as possible, since those of one shape are played together."""
    _, H, S, A = arrays.rewards.shape
    K, M = arrays.utilities.shape[1], len(arrays.thresholds)
    longest = max(min(_periods(learner)[0], M) for learner in learners)
    lv = any(bool(np.any(learner.hyperparameters.LV)) for learner in learners)
    for learner in learners:
        yield Shape(
            H, S, A, K, int(learner.memory.values.v_start.size),
            arrays.transition_path.scenario.shape[1],
            arrays.reward_path.scenario.shape[1],
            arrays.utility_path.scenario.shape[1],
            noisy, learner.hyperparameters.bonus == BERNSTEIN_BONUS, lv,
            arrays.states.size == H * S * A * S,
            2 ** longest.bit_length() - 1,  # as few programs as possible
        )  # fmt: skip


def _periods(learner: PROPDPPO) -> tuple[int, int]:
    forgetting = learner.forgetting
    if isinstance(forgetting, Periodic):
        return forgetting.W, forgetting.L
    return ENDLESS, ENDLESS


def _portions(everyone: IntArray, shape: Shape, layout: Layout, room: int) -> Iterator[IntArray]:
    """Cut the runs into batches whose states, and policies of some episodes, fit into memory."""
    policy = 8 * shape.H * shape.S * shape.A
    size = max(1, room // (2 * (layout.memory_bytes(shape, 1) + 16 * policy)))
    for first in range(0, len(everyone), size):
        yield everyone[first : first + size]


def _world(arrays: TableArrays, learner: PROPDPPO) -> dict[str, Any]:
    paths = {"P": arrays.transition_path, "r": arrays.reward_path, "g": arrays.utility_path}
    names = ("offsets", "states", "probabilities", "cumulative", "rewards", "utilities",
             "initial_states", "thresholds")  # fmt: skip
    return {
        **{name: getattr(arrays, name) for name in names},
        **{f"scenario_{name}": path.scenario for name, path in paths.items()},
        **{f"weight_{name}": path.weight for name, path in paths.items()},
        "initial_cumulative": np.cumsum(arrays.initial),
        "initial_of_state": np.asarray(learner.initial),
        "entries": arrays.states.size,
        "starts": arrays.initial.size,
        "M": len(arrays.thresholds),
    }


def _settings(learners: Sequence[PROPDPPO]) -> dict[str, Any]:
    """Hyperparameters of all learners, in the order of the enumerations in the source."""
    hypers: list[Hyperparameters] = [learner.hyperparameters for learner in learners]
    first_lv = np.cumsum([0, *(hyper.LV.size for hyper in hypers)])
    numbers = [(x.alpha, x.eta, x.xi, x.chi, x.lam, x.shift, x.c) for x in hypers]
    flags = [
        (int(x.lagged), x.dual_signal, *_periods(learner), len(x.LV), first)
        for learner, x, first in zip(learners, hypers, first_lv[:-1], strict=True)
    ]
    return {
        "numbers": np.array(numbers),
        "flags": np.array(flags, np.int64),
        "root": np.array([x.root for x in hypers]),
        "tail": np.array([x.tail for x in hypers]),
        "LV": np.concatenate([x.LV.ravel() for x in hypers]),
    }


# ---------------------------------------------------------------- chunks of episodes


class _Task:
    """`struct Task` on the machine: arrays by name, of which it keeps hold, and numbers."""

    def __init__(self, machine: Machine, values: dict[str, Any]) -> None:
        self.machine = machine
        self.words = dict.fromkeys(task_fields(), 0)
        self.held: dict[str, Any] = {}
        self.set(values)

    def set(self, values: dict[str, Any]) -> None:
        """Set arrays, which are copied there (once if given by several names), and integers."""
        copies: dict[int, Any] = {}
        for name, value in values.items():
            if isinstance(value, int | np.integer):
                self.words[name] = int(value)
            else:
                if id(value) not in copies:
                    copies[id(value)] = self.machine.put(value)
                self.hold(name, copies[id(value)])

    def hold(self, name: str, array: Any) -> None:
        """Set an array that is there already."""
        if name not in self.words:
            raise KeyError(name)
        self.held[name] = array
        self.words[name] = self.machine.address(array)

    def there(self) -> NDArray[np.uint64]:
        """The words of the struct itself, which a kernel is given by value."""
        return np.array(list(self.words.values()), np.uint64)


def _play(
    machine: Machine,
    program: Any,
    task: _Task,
    shape: Shape,
    layout: Layout,
    measured: Measured,
    progress: Callable[[int], None],
    log: bool,
) -> tuple[FloatArray, list[dict[str, NDArray[Any]]]]:
    """Play all episodes with the runs of a task; returns sums, and logs of chunks."""
    R, M = int(task.held["setting"].size), task.words["M"]
    B = _make_room(machine, task, shape, layout, R, measured)
    shared = layout.shared_bytes(shape)
    groups, threads = (-(-R // layout.runs), 1), layout.threads
    machine.launch(program, "begin", task.there(), groups, threads, 0)
    logs: list[dict[str, NDArray[Any]]] = []
    started: list[tuple[Any, int]] = []  # marks behind chunks, and their episodes
    for first in range(0, M, B):
        size = min(B, M - first)
        task.set(_rows(measured, first, size) | {"first": first, "episodes": size})
        if log:
            _make_room_for_log(machine, task, shape, R, size)
        there = task.there()
        machine.launch(program, "mix_worlds", there, (MIXING_BLOCKS, 1), THREADS, 0)
        machine.launch(program, "play", there, groups, threads, shared)
        _measure(machine, program, task, layout, there)
        if log:
            logs.append(_log(machine, task, R, size))
        started.append((machine.mark(), R * size))
        if len(started) > 1:  # one is played while the next one is prepared
            _finish(machine, *started.pop(0), progress)
    _finish(machine, *started.pop(), progress)
    found = machine.get(task.held["found"])
    return found.reshape(R, measured.recorded.size, 2 + 2 * shape.K), logs


def _finish(machine: Machine, mark: Any, played: int, progress: Callable[[int], None]) -> None:
    """Wait for a chunk and report it."""
    machine.wait(mark)
    progress(played)


def _make_room(
    machine: Machine, task: _Task, shape: Shape, layout: Layout, R: int, measured: Measured
) -> int:
    """Make room for R runs and for a chunk of episodes; returns how many it has."""
    pairs, K = shape.H * shape.S * shape.A, shape.K
    most = MOST_MEASURED_BY_TEAMS if layout.team else MOST_MEASURED
    recorded, room = measured.recorded.size, machine.room() // 16
    task.words |= {"runs": R, "recorded": recorded}
    row = {
        "policies": 0 if layout.team else pairs * R,
        "values": (1 + K) * R,
        "mixed_P": layout.world_doubles(shape, task.words["entries"]),
    }
    B = min(MOST_EPISODES, task.words["M"])
    while B > 1 and (
        _most_measured(measured.episodes, B) > most
        or _most_measured(measured.episodes, B) * sum(row.values()) + B * (1 + K) * pairs > room
    ):
        B //= 2
    rows = _most_measured(measured.episodes, B)
    sizes = {"memory": layout.memory_bytes(shape, R) // 8, "sums": R * (2 + 2 * K),
             "found": R * recorded * (2 + 2 * K), "mixed_signals": B * (1 + K) * pairs,
             **{name: rows * size for name, size in row.items()}}  # fmt: skip
    for name, size in sizes.items():
        task.hold(name, machine.zeros(max(1, size), np.float64))
    return B


def _most_measured(episodes: IntArray, B: int) -> int:
    """Measured episodes of a chunk of B at most; chunks begin at multiples of B."""
    return int(np.bincount(episodes // B).max())


def _measure(machine: Machine, program: Any, task: _Task, layout: Layout, there: Any) -> None:
    """Exact values of the policies just written, added to the sums."""
    rows, runs = task.words["rows"], task.words["runs"]
    if rows == 0:
        return
    if not layout.team:
        grid = (-(-runs // MEASURING), rows)
        machine.launch(program, "evaluate_policies", there, grid, MEASURING, 0)
    machine.launch(program, "accumulate_sums", there, (-(-runs // THREADS), 1), THREADS, 0)


def _rows(measured: Measured, first: int, B: int) -> dict[str, Any]:
    """The measured ones of B episodes."""
    start, stop = np.searchsorted(measured.episodes, (first, first + B))
    listed = measured.episodes[start:stop]
    row = np.full(B, -1, np.int32)
    row[listed - first] = np.arange(listed.size)
    low, high = np.searchsorted(measured.recorded, (start, stop))
    record = np.full(max(1, listed.size), -1, np.int32)
    record[measured.recorded[low:high] - start] = np.arange(low, high)
    return {
        "row": row,
        "measured": _some(listed),
        "rows": int(listed.size),
        "optimal": _some(measured.optimal_reward[start:stop]),
        "weights": _some(measured.weights[start:stop]),
        "record": record,
    }


def _some(array: NDArray[Any]) -> NDArray[Any]:
    """The array, or one number where it is empty."""
    return array if array.size else np.zeros(1, array.dtype)


_LOGS = {"log_states": ("H", np.int32), "log_actions": ("H", np.int32),
         "log_mu": ("K", np.float64), "log_v": ("C", np.float64)}  # fmt: skip


def _make_room_for_log(machine: Machine, task: _Task, shape: Shape, R: int, B: int) -> None:
    for name, (width, dtype) in _LOGS.items():
        task.hold(name, machine.zeros(R * B * getattr(shape, width), dtype))


def _log(machine: Machine, task: _Task, R: int, B: int) -> dict[str, NDArray[Any]]:
    """What was logged of B episodes, arrays (R, B, ...)."""
    return {
        name.removeprefix("log_"): machine.get(task.held[name]).reshape(R, B, -1) for name in _LOGS
    }
