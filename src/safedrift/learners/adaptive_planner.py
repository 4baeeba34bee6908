"""A planner that is told nothing: no budgets, no Slater gap, no step sizes, no last episode.

    after every episode, for transitions, reward and each utility:
        filters that differ in how fast they believe the world moves predict what was seen;
        the better a filter predicted, the more it weighs; one that is found wrong is corrected;
        factors that all pairs have in common show how pairs move that were not visited
    as often as it pays:
        play the constrained optimum of the model that the heaviest filters have of the world,
        with small bonuses for what is uncertain, for thresholds corrected by what returns show;
    the bonuses shrink where exploring costs too much of what is at stake

`kernels.tabular.filters` has the filters and alarms, `kernels.tabular.factors` what pairs have in
common, `kernels.tabular.filtered_model` the model, `kernels.tabular.bonuses` its bonuses,
`kernels.tabular.exploration` what these may cost, `kernels.tabular.reserve` the thresholds,
`kernels.tabular.plans` the plans, `kernels.tabular.planner` the loop;
docs/adaptive.md explains them, where every constant comes from, and what each part is worth.
Constants were chosen on the calibration family of `safedrift.experiments.evaluation`, but for two
bonuses in which named worlds had a part. No theorem covers the whole.
"""

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
from safedrift.kernels.tabular import events, planner, plans
from safedrift.kernels.tabular.bonuses import Bonuses
from safedrift.kernels.tabular.exploration import make_exploration
from safedrift.kernels.tabular.factors import make_factors, with_room_of
from safedrift.kernels.tabular.filtered_model import CHOSEN, Knowledge, Model, Plan
from safedrift.kernels.tabular.filters import (
    Grid,
    make_cells,
    make_experts,
    make_several_experts,
    with_room,
)
from safedrift.kernels.tabular.plans import Clock, Memory, Settings, Work
from safedrift.kernels.tabular.reserve import make_returns
from safedrift.kernels.types import TableArrays, WeightPath
from safedrift.learners.checked import CheckedLearner, Setup, tabular_setup
from safedrift.learners.events import Event, events_of
from safedrift.learners.policies import DensePolicy
from safedrift.learners.propd_ppo.engines import flatten, unflatten
from safedrift.learners.protocol import Problem
from safedrift.planning.episodes import make_answers, make_ends

__all__ = ["MOVE_RATES", "POOLING", "SIGNAL_RATES", "AdaptivePlanner", "build"]

MOVE_RATES = (
    (0.0, 1), (1e-6, 1), (1e-4, 1), (1e-2, 1),
    (1e-11, 2), (1e-9, 2), (1e-7, 2),
)  # fmt: skip
"""Filters of transitions: κ and the power of time with which trust in data fades."""

SIGNAL_RATES = (
    (0.0, 1), (1e-5, 1), (1e-4, 1), (1e-3, 1), (1e-2, 1), (1.0, 1),
    (1e-9, 2), (1e-7, 2), (1e-5, 2), (1e-3, 2),
)  # fmt: skip
"""The same for reward and utilities."""

POOLING = (0.0, 10.0, np.inf)
"""How many observations of other steps may count for a pair (s, a) at most."""

MOST_RESERVE = 0.6
"""Share of the slack that plans keep at caution 1; with all of it, no plan is found to be safe."""

UTILITY_DOUBT = 0.2
"""By how much caution 1 lowers the bonus of utilities, in standard deviations."""

EVENTS = 256
"""Events that are kept."""


class AdaptivePlanner:
    """An algorithm that plans on filters (`learners.checked.Algorithm`).

    Parameters
    ----------
    options
        As those of `build`.
    """

    name = "adaptive-planner"
    plays_in = TableArrays

    def __init__(self, setup: Setup, options: dict[str, Any]) -> None:
        self.setup, self.options = setup, options
        self.numbers = _settings(setup, options)
        _, H, S, A, K = setup.sizes
        self.memory = _make_memory(H, S, A, K, self.numbers)
        self._last = (False, False)  # replanned before, alarm after the last episode
        self._make_room(1, 1)

    @property
    def episode(self) -> int:
        """Episodes finished so far."""
        return int(self.memory.know.episode[0])

    def fresh(self, seed: int | np.random.SeedSequence) -> AdaptivePlanner:
        """Return the same algorithm with nothing learnt yet."""
        return AdaptivePlanner(self.setup.renewed(), self.options)

    # ------------------------------------------------------------ one episode

    def begin(self, thresholds: FloatArray) -> DensePolicy:
        """Plan if it is time to, and return the policy."""
        self._reserve(1)
        due = bool(planner.due(self.memory, self.numbers))
        if due and not self.setup.initial_known:
            self._make_room(*self._width_and_entries())  # first states may be new
        while due and not plans.plan(
            self.memory, self.numbers, self._work, self._one, self._several, thresholds
        ):
            self._make_room(*self._width_and_entries())
        self._last = (due, False)
        return DensePolicy(self.memory.plan.policy)

    def act(self, h: int, s: int, u: float) -> int:
        """Draw an action with the uniform u."""
        return int(planner.draw(self.memory.plan, h, s, u))

    def end(self, thresholds: FloatArray, states: Any, actions: Any, signals: FloatArray) -> None:
        """Learn from a finished episode."""
        alarm = planner.learn(states, actions, signals, self.numbers, self.memory)
        self._last = (self._last[0], bool(alarm))

    # ------------------------------------------------------------ a chunk of episodes

    def play(self, arrays: Any, inputs: ChunkInput, out: ChunkOutput) -> dict[str, NDArray[Any]]:
        """Play B episodes in compiled code; stops only where plans need more room."""
        _, H, _, _, K = self.setup.sizes
        B = len(inputs.action_uniforms)
        buffer, trace = make_episode_buffer(H, K), _empty_trace(B, K)
        self._reserve(B)
        first = 0
        while True:
            first = planner.play(
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
                break
            self._make_room(*self._width_and_entries())
        self._last = (bool(trace.replanned[-1]), bool(trace.alarm[-1]))
        return trace._asdict()

    # ------------------------------------------------------------ room

    def _reserve(self, episodes: int) -> None:
        """Make room for what so many episodes may show."""
        more, know = episodes * self.setup.sizes.H, self.memory.know
        own, pooled = with_room(know.own, more), with_room(know.pooled, more)
        if own is not know.own or pooled is not know.pooled:
            factors = with_room_of(know.factors, own)
            know = know._replace(own=own, pooled=pooled, factors=factors)
            self.memory = self.memory._replace(know=know)

    def _width_and_entries(self) -> tuple[int, int]:
        """States per step and successors that the next plan needs."""
        known = self.memory.plan.known
        return max(int(known[5]), 1), max(int(known[4]), 1)

    def _make_room(self, N: int, entries: int) -> None:
        """Let plans have N states per step and so many successors, and half as many more."""
        _, H, S, A, K = self.setup.sizes
        support = np.flatnonzero(self.setup.initial).astype(np.int32)
        model = _make_model(H, S, A, K, N, entries + entries // 2)
        path = WeightPath(np.zeros((1, 1), np.int32), np.ones((1, 1)))
        tables = TableArrays(
            offsets=model.offsets,
            states=model.states,
            probabilities=model.p[None],
            cumulative=np.empty((1, 0)),
            rewards=model.signals[:1],
            utilities=model.signals[1:][None],
            initial_states=np.zeros(support.size, np.int32),
            initial=self.setup.initial[support],
            transition_path=path,
            reward_path=path,
            utility_path=path,
            thresholds=np.empty((1, K)),
        )
        self._work = Work(
            model,
            tables,
            tables.rewards[:, None],
            support,
            np.zeros(K),
            np.zeros(1, np.int64),
            make_answers(1, K),
            np.empty((1, H)),
            np.empty((1, H, N, A)),
            make_ends(tables),
        )
        self._one = exact.make_scratch(0, H, N, A) if K == 1 else None
        self._several = columns.make_scratch(0, H, N, A, K) if K > 1 else None
        if not self.setup.initial_known:
            self.memory.plan.known[0] = -1  # states are to be found again

    # ------------------------------------------------------------ what it shows and stores

    def trace(self) -> dict[str, Any]:
        """Return multipliers and estimates of the plan in use, and whether anything was wrong."""
        plan = self.memory.plan
        return {
            "mu": plan.mu.copy(),
            "estimated_reward": float(plan.found[1]),
            "estimated_utility": plan.found[2:].copy(),
            "feasible": bool(plan.found[0]),
            "replanned": self._last[0],
            "alarm": self._last[1],
        }

    def events(self) -> list[Event]:
        """Return the last changes that were noticed, the oldest first."""
        found = self.memory.events
        return events_of(found.table, int(found.count[0]))

    def settings(self) -> dict[str, Any]:
        """Return everything that was chosen, as plain data."""
        return dict(self.options) | {"told": [], "constants": "practical"}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything learnt so far as arrays."""
        return {"planner.last": np.array(self._last)} | flatten(self.memory)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        self.memory = unflatten(self.memory, state)
        replanned, alarm = (bool(flag) for flag in state["planner.last"])
        self._last = (replanned, alarm)
        self._make_room(*self._width_and_entries())


# ---------------------------------------------------------------- arrays


def _settings(setup: Setup, options: dict[str, Any]) -> Settings:
    """Numbers of the kernels; limits of alarms from the rate of false ones."""
    _, H, _, _, K = setup.sizes
    caution = options["caution"]
    omega = np.array(POOLING)
    moves, signals = (
        Grid(np.array([k for k, _ in rates]), np.array([float(p) for _, p in rates]), omega)
        for rates in (MOVE_RATES, SIGNAL_RATES)
    )
    parts = min(len(omega), 2)  # of own cells, and of pooled ones
    compared = (parts * _comparisons(moves), parts * (1 + K) * _comparisons(signals))
    return Settings(
        moves,
        signals,
        # Ville: each comparison passes c in one of n episodes with probability at most n e^-c.
        np.log([2 * pairs / options["false_alarm_rate"] for pairs in compared]),
        Bonuses(
            reward=options["reward_bonus"],
            utility=options["utility_bonus"] - UTILITY_DOUBT * caution,
            range=options["range_bonus"],
            unknown_utility=1.0 - caution,
        ),
        options["exploration"],
        float(options["replan_every"]),
        options["gain_per_plan"] * H,
        MOST_RESERVE * caution * caution,
    )


def _comparisons(grid: Grid) -> int:
    """Pairs of filters of which one is faster at any distance."""
    k = len(grid.kappa)
    return sum(
        bool(grid.kappa[j] >= grid.kappa[i] and grid.power[j] >= grid.power[i])
        for i in range(k)
        for j in range(i + 1, k)
    )


def _make_memory(H: int, S: int, A: int, K: int, numbers: Settings) -> Memory:
    C, kP, kS, ll = 1 + K, len(numbers.moves.kappa), len(numbers.signals.kappa), len(POOLING)
    own = make_cells(H * S * A, C, kP, kS)
    know = Knowledge(
        own=own,
        pooled=make_cells(S * A, C, kP, kS),
        moves=make_experts(kP, ll, 0.5 / S),
        signals=make_several_experts(C, kS, ll, 0.1),
        factors=make_factors(own, S, C),
        binary=np.ones(C, bool),
        mean=np.zeros(C),
        seen=np.zeros(1),
        episode=np.zeros(1, np.int64),
    )
    plan = Plan(
        local=np.full((H, S), -1, np.int32),
        count=np.zeros(H, np.int64),
        reach=np.zeros((H, S), np.int32),
        policy=np.full((H, S, A), 1 / A),
        values=np.zeros((C, H, S)),
        pair=np.zeros((2, H, S), np.int32),
        mu=np.zeros(K),
        optimism=np.array([numbers.bonuses.utility]),
        found=np.zeros(2 + K),
        slack=np.zeros(1),
        known=np.full(6, -1, np.int64),
    )
    clock = Clock(
        next_plan=np.ones(1, np.int64),
        last_plan=np.zeros(1, np.int64),
        wait=np.ones(1),
        credit=np.full(1, plans.CREDIT),
        alarms=np.zeros((1 + C, max(kP, kS)), np.int64),
    )
    noticed = events.make_events(EVENTS, 1 + C)
    return Memory(know, plan, clock, noticed, make_returns(H, K), make_exploration())


def _make_model(H: int, S: int, A: int, K: int, N: int, entries: int) -> Model:
    return Model(
        written_for=np.full(4, -1, np.int64),
        offsets=np.zeros(H * N * A + 1, np.int64),
        states=np.zeros(entries, np.uint32),
        edge=np.zeros(entries, np.int32),
        pooled_edge=np.zeros(entries, np.int32),
        p=np.zeros(entries),
        signals=np.zeros((1 + K, H, N, A)),
        means=np.zeros((1 + K, H, N, A)),
        place=np.full(S, -1, np.int32),
        row=np.zeros((N, A + 1, 2 * (1 + K) + 1)),
        visits=np.zeros((N, A)),
        factor=np.zeros((2, CHOSEN)),
        worth=np.zeros((2, 5, N)),
        chosen=np.zeros((2 + K, CHOSEN, 3)),
    )


def _empty_trace(B: int, K: int) -> planner.Trace:
    return planner.Trace(
        mu=np.empty((B, K)),
        estimated_reward=np.empty(B),
        estimated_utility=np.empty((B, K)),
        feasible=np.empty(B, bool),
        replanned=np.empty(B, bool),
        alarm=np.empty(B, bool),
    )


# ---------------------------------------------------------------- the learner


def build(
    world: Problem,
    *,
    caution: float = 0.0,
    false_alarm_rate: float = 1e-5,
    replan_every: int = 25,
    gain_per_plan: float = 0.002,
    reward_bonus: float = 0.3,
    utility_bonus: float = 0.05,
    range_bonus: float = 0.15,
    exploration: float = 0.01,
    seed: int | np.random.SeedSequence = 0,
) -> CheckedLearner:
    """Return the planner.

    Parameters
    ----------
    caution
        In [0, 1]: less violation for more regret. 0.6 caution² of the slack that the model shows is
        kept in reserve, and what is uncertain is taken to be less safe.
    false_alarm_rate
        False alarms per episode at most, in a world that does not change.
    replan_every
        Episodes between two plans at most.
    gain_per_plan
        Value per step that a plan should bring; plans are made more often where they bring more.
    reward_bonus, utility_bonus, range_bonus
        c_r, c_g and c_h of `kernels.tabular.bonuses`: bonuses that grow with the logarithm
        of the time in which a pair was not visited.
    exploration
        Share of what is at stake that exploration may cost in the long run, besides a hundred
        episodes and two visits to every known pair; where it costs more, bonuses of the reward
        shrink (`kernels.tabular.exploration`).

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=300)
    >>> run = sd.simulate(world, sd.learners.make("adaptive-planner", world), seed=0)
    >>> bool(run.trace["alarm"].any())
    False
    """
    setup = tabular_setup(world)
    options = {
        "caution": _check.within("caution", caution, 0.0, 1.0),
        "false_alarm_rate": _check.positive("false_alarm_rate", false_alarm_rate, upper=1.0),
        "replan_every": _check.integer("replan_every", replan_every),
        "gain_per_plan": _check.positive("gain_per_plan", gain_per_plan),
        "reward_bonus": _check.within("reward_bonus", reward_bonus, 0.0),
        "utility_bonus": _check.within("utility_bonus", utility_bonus, 0.0),
        "range_bonus": _check.within("range_bonus", range_bonus, 0.0),
        "exploration": _check.within("exploration", exploration, 0.0),
    }
    return CheckedLearner(AdaptivePlanner(setup, options), seed)
