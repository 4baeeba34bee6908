"""A learner that is told nothing: filters of several speeds, alarms, and exact planning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels import exact
from safedrift.kernels.planning import columns
from safedrift.kernels.records import ChunkInput, ChunkOutput, make_episode_buffer
from safedrift.kernels.tabular import adaptive as kernel
from safedrift.kernels.tabular.adaptive import Clock, Memory, Model, Plan, Settings
from safedrift.kernels.tabular.filters import Cells, Experts, Grid
from safedrift.kernels.types import TableArrays, WeightPath
from safedrift.learners.checked import CheckedLearner, Setup, tabular_setup
from safedrift.learners.policies import TabularPolicy
from safedrift.learners.protocol import Problem
from safedrift.planning.episodes import make_answers, make_ends

__all__ = ["build"]

# Drift rates κ and powers, slow to fast where they can be compared.
MOVE_RATES = ((0.0, 1.0), (1e-6, 1.0), (1e-4, 1.0), (1e-2, 1.0), (1e-11, 2.0), (1e-9, 2.0), (1e-7, 2.0))
SIGNAL_RATES = (
    (0.0, 1.0),
    (1e-5, 1.0),
    (1e-4, 1.0),
    (1e-3, 1.0),
    (1e-2, 1.0),
    (1.0, 1.0),
    (1e-9, 2.0),
    (1e-7, 2.0),
    (1e-5, 2.0),
    (1e-3, 2.0),
)
POOLING = (0.0, 10.0, np.inf)


class AdaptivePlanner:
    plays_in = TableArrays

    def __init__(self, setup: Setup, options: dict[str, Any]) -> None:
        self.setup, self.name, self.options = setup, "adaptive-planner", options
        _, H, S, A, K = setup.sizes
        o = options
        moves = Grid(*np.array(o["move_rates"]).T.copy(), np.array(o["pooling"]))
        signals = Grid(*np.array(o["signal_rates"]).T.copy(), np.array(o["pooling"]))
        pairs = [len(g.kappa) * (len(g.kappa) - 1) / 2 for g in (moves, signals)]
        self.numbers = Settings(
            moves,
            signals,
            np.array([np.log(p / o["false_alarms"]) for p in pairs]),
            float(o["replan_every"]),
            o["reward_bonus"],
            o["utility_bonus"],
            o["visit_bonus"],
            o["growth"],
            o["pays"],
            np.array([0.1, 15.0]),
        )
        self.memory = _make_memory(H, S, A, K, self.numbers)
        self._work = None
        self._make_room(1, 1)

    @property
    def episode(self) -> int:
        return int(self.memory.clock.episode[0])

    def fresh(self, seed: Any) -> AdaptivePlanner:
        return AdaptivePlanner(self.setup.renewed(), self.options)

    def begin(self, thresholds: FloatArray) -> Any:
        self._room(1)
        self._plan_if_due(thresholds)
        out = np.empty((self.setup.sizes.H, self.setup.sizes.S, self.setup.sizes.A))
        kernel.write_policy(self.memory.plan, out)
        return out

    def _plan_if_due(self, thresholds: FloatArray) -> None:
        due = self.episode >= self.memory.clock.next_plan[0]
        if due:
            while not kernel.begin(
                self.memory, self.numbers, self._work, self._one, self._several, thresholds
            ):
                self._make_room(*self.memory.plan.known[[5, 4]])
        self._replanned = due

    def act(self, h: int, s: int, u: float) -> int:
        return int(kernel.draw(self.memory.plan, h, s, u))

    def end(self, thresholds: FloatArray, states: Any, actions: Any, signals: FloatArray) -> None:
        kernel.end(states, actions, signals, self.numbers, self.memory)

    def play(self, arrays: Any, inputs: ChunkInput, out: ChunkOutput) -> dict[str, NDArray[Any]]:
        _, H, _, _, K = self.setup.sizes
        B = len(inputs.action_uniforms)
        buffer = make_episode_buffer(H, K)
        trace = kernel.Trace(np.empty((B, K)), np.zeros(B, bool))
        self._room(B)
        first = 0
        while True:
            first = kernel.play(
                arrays,
                self.numbers,
                self.memory,
                self._work,
                self._one,
                self._several,
                inputs,
                first,
                buffer,
                out,
                int(inputs.measured[:first].sum()),
                trace,
            )
            if first == B:
                return trace._asdict()
            self._make_room(*self.memory.plan.known[[5, 4]])

    def _room(self, episodes: int) -> None:
        more = episodes * self.setup.sizes.H
        self.memory = self.memory._replace(
            own=_with_room(self.memory.own, more), pooled=_with_room(self.memory.pooled, more)
        )

    def _make_room(self, N: int, entries: int) -> None:
        """Let plans have N states per step and as many successors in all."""
        _, H, S, A, K = self.setup.sizes
        initial = self.setup.initial
        entries = entries + entries // 2
        path = WeightPath(np.zeros((1, 1), np.int32), np.ones((1, 1)))
        support = np.flatnonzero(initial)
        model = Model(
            np.zeros(H * N * A + 1, np.int64),
            np.zeros(entries, np.uint32),
            np.zeros(entries),
            np.zeros((1 + K, H, N, A)),
            np.zeros((1 + K, H, N, A)),
            np.full(S, -1, np.int32),
            np.zeros((A, 2 * (1 + K) + 1)),
            np.zeros((2, kernel.CHOSEN)),
            np.zeros((2, 2, N)),
            np.zeros(A),
            np.zeros(1 + K),
            np.zeros((2 + K, kernel.CHOSEN, 3)),
        )
        tables = TableArrays(
            offsets=model.offsets,
            states=model.states,
            probabilities=model.p[None],
            cumulative=np.empty((1, 0)),
            rewards=model.signals[:1],
            utilities=model.signals[1:][None],
            initial_states=np.zeros(support.size, np.int32),
            initial=initial[support],
            transition_path=path,
            reward_path=path,
            utility_path=path,
            thresholds=np.empty((1, K)),
        )
        self._work = kernel.Work(
            model,
            tables,
            tables.rewards[:, None],
            initial,
            support.astype(np.int32),
            np.zeros(1, np.int64),
            np.zeros((1, 8)),
            make_answers(1, K),
            np.empty((1, H)),
            np.empty((1, H, N, A)),
            make_ends(tables),
        )
        self._one = exact.make_scratch(0, H, N, A) if K == 1 else None
        self._several = columns.make_scratch(0, H, N, A, K) if K > 1 else None

    def trace(self) -> dict[str, Any]:
        return {"mu": self.memory.plan.mu.copy(), "replanned": self._replanned}

    def settings(self) -> dict[str, Any]:
        return dict(self.options) | {"told": [], "constants": "practical"}

    def state(self) -> dict[str, NDArray[Any]]:
        return {}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        pass


def _make_memory(H: int, S: int, A: int, K: int, numbers: Settings) -> Memory:
    C = 1 + K
    kP, kS, ll = len(numbers.moves.kappa), len(numbers.signals.kappa), len(numbers.moves.omega)
    return Memory(
        _cells(H * S * A, C, kP, kS),
        _cells(S * A, C, kP, kS),
        _experts(kP, ll, 0.5 / S),
        tuple(_experts(kS, ll) for _ in range(C)),
        np.ones(C, bool),
        np.zeros(C),
        np.zeros(1),
        Clock(
            np.zeros(1, np.int64),
            np.ones(1, np.int64),
            np.zeros(1, np.int64),
            np.ones(1),
            np.ones(1),
            np.zeros((1 + C, max(kP, kS)), np.int64),
        ),
        Plan(
            np.full((H, S), -1, np.int32),
            np.zeros(H, np.int64),
            np.zeros((H, S), np.int32),
            np.full((H, S, A), 1 / A),
            np.zeros((C, H, S)),
            np.zeros((C, H, S)),
            np.zeros(K),
            np.ones(1),
            np.full(6, -1, np.int64),
        ),
    )


def _cells(pairs: int, C: int, kP: int, kS: int) -> Cells:
    cap = 64
    return Cells(
        np.full(pairs, -1, np.int32),
        np.zeros(2, np.int64),
        np.zeros(cap, np.int64),
        np.zeros(cap, np.int64),
        np.zeros(cap, np.int64),
        np.zeros((cap, kP)),
        np.ones((cap, kP)),
        np.full(cap, -1, np.int32),
        np.zeros((cap, C, kS, 2)),
        np.full(cap, -1, np.int32),
        np.zeros(cap, np.int32),
        np.zeros((cap, kP)),
    )


def _with_room(cells: Cells, more: int) -> Cells:
    used, edges = int(cells.used[0]), int(cells.used[1])
    changed = {}
    if used + more > len(cells.key) and len(cells.key) < cells.index.size:
        size = min(max(2 * len(cells.key), used + more), cells.index.size)
        for name in ("key", "last", "last_move", "n", "scale", "head", "signal"):
            changed[name] = _longer(getattr(cells, name), size)
    if edges + more > len(cells.edge_next):
        size = max(2 * len(cells.edge_next), edges + more)
        for name in ("edge_next", "edge_state", "edge_count"):
            changed[name] = _longer(getattr(cells, name), size)
    return cells._replace(**changed) if changed else cells


def _longer(array: NDArray[Any], size: int) -> NDArray[Any]:
    longer = np.zeros((size, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer


def _experts(kk: int, ll: int, v: float = 0.1) -> Experts:
    return Experts(
        np.full((kk, ll), 1 / (kk * ll)),
        np.full((kk, ll), v),
        np.zeros(1),
        np.zeros((kk, kk)),
        np.zeros((kk, kk), np.int64),
        np.zeros((kk, kk, 2)),
        np.zeros((kk, ll)),
        np.ones((kk, ll)),
        np.zeros((kk, ll)),
    )


def build(
    world: Problem,
    *,
    replan_every: int = 25,
    false_alarms: float = 1e-5,
    reward_bonus: float = 0.5,
    utility_bonus: float = 0.15,
    visit_bonus: float = 0.02,
    growth: float = 0.1,
    pays: float = 0.001,
    move_rates=MOVE_RATES,
    signal_rates=SIGNAL_RATES,
    pooling=POOLING,
    seed: int | np.random.SeedSequence = 0,
) -> CheckedLearner:
    options = {
        "replan_every": replan_every,
        "false_alarms": false_alarms,
        "reward_bonus": reward_bonus,
        "utility_bonus": utility_bonus,
        "visit_bonus": visit_bonus,
        "growth": growth,
        "pays": pays,
        "move_rates": list(move_rates),
        "signal_rates": list(signal_rates),
        "pooling": list(pooling),
    }
    return CheckedLearner(AdaptivePlanner(tabular_setup(world), options), seed)
