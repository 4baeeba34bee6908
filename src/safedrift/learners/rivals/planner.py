"""Planning on the estimated model: count, estimate, solve the constrained problem, play, repeat.

    every `replan_every` episodes (and 1, 2, 4, ... episodes after a restart, where that is sooner,
    and at once after an alarm, where the forgetting is `Adaptive`):
        P̂, r̂, ĝ ← shares and means of the window's data, changed by a rule of the learner's own
        π ← the constrained optimum of (P̂, r̂, ĝ, b), exact to rounding (`safedrift.planning`)

Rules differ in what they make of counts: nothing (certainty equivalence), a bonus that shrinks
with them (optimism), a draw from the posterior. Whatever was not seen in the window pays reward
and utility 1 in every step. Where no policy is safe in the estimated model, the safest is played.
The first episode after a restart is uniform.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.records import ChunkInput, ChunkOutput, Schedule, make_episode_buffer
from safedrift.kernels.tabular import estimated, propd_ppo
from safedrift.kernels.tabular.estimated import Counted
from safedrift.kernels.tabular.memory import (
    COUNT_BONUS,
    OPTIMISTIC,
    Hyperparameters,
    Memory,
    with_room,
    with_views,
)
from safedrift.kernels.types import TableArrays, WeightPath
from safedrift.learners.checked import Setup, own_generator
from safedrift.learners.forgetting import (
    Forgetting,
    alarmed,
    record,
    shown_alarms,
    window_memory,
)
from safedrift.learners.generators import generator_state, restore_generator
from safedrift.learners.policies import TabularPolicy
from safedrift.learners.propd_ppo.engines import flatten, unflatten
from safedrift.planning.episodes import (
    OPTIMAL,
    make_answers,
    make_ends,
    solve_chunk,
)

__all__ = ["Estimate", "Planner", "Rule"]


class Estimate(NamedTuple):
    """What the planner plans on, N states per step, the last one for what was not seen."""

    model: Counted
    probabilities: FloatArray  # (entries,)
    signals: FloatArray  # (1+K, H, N, A) rewards, then utilities


Rule = Callable[[Estimate, np.random.Generator], Estimate]
"""Changes shares and means before they are planned on."""


class Planner:
    """An algorithm that plans on its estimated model.

    Parameters
    ----------
    name, settings
        For results; forgetting and `replan_every` are added to the settings.
    rule
        Makes an optimistic model, or a random one, of the empirical one.
    """

    plays_in = TableArrays

    def __init__(
        self,
        setup: Setup,
        name: str,
        rule: Rule,
        forgetting: Forgetting,
        replan_every: int,
        settings: dict[str, Any],
        seed: int | np.random.SeedSequence = 0,
    ) -> None:
        self.setup, self.name, self.rule, self.forgetting = setup, name, rule, forgetting
        self.replan_every = _check.integer("replan_every", replan_every)
        self._settings = settings
        self._generator = own_generator(seed, 0)
        _, H, _, _, K = setup.sizes
        self.memory: Memory = window_memory(forgetting, setup.sizes, 1 + K, setup.initial)
        self._hyper = _no_bonus(H, K)
        self._planned = _Planned(np.zeros(K), np.zeros(1 + K), True)
        self._last = (False, False, False)  # policy restart, window restart, replanned

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.memory = with_views(self.memory)

    @property
    def episode(self) -> int:
        """Episodes finished so far."""
        return int(self.memory.clock.episode[0])

    def fresh(self, seed: int | np.random.SeedSequence) -> Planner:
        """Return the same algorithm with nothing learnt yet."""
        return Planner(
            self.setup.renewed(),
            self.name,
            self.rule,
            self.forgetting,
            self.replan_every,
            self._settings,
            seed,
        )

    # ------------------------------------------------------------ one episode

    def begin(self, thresholds: FloatArray) -> TabularPolicy:
        """Forget, replan if it is time to, and return the policy."""
        self.memory = with_room(self.memory, 1)
        self._begin(self.forgetting.schedule(self.episode, 1), 0, thresholds)
        table = self.memory.policy
        _, H, S, A, _ = self.setup.sizes
        return TabularPolicy((H, S, A), table.slots, table.state, table.pi)

    def _begin(self, schedule: Schedule, e: int, thresholds: FloatArray) -> None:
        opens, restarts = schedule.opens_window[e], schedule.restarts[e]
        estimated.begin(
            opens, schedule.drops[e], schedule.discount[e], restarts, self._hyper, self.memory
        )
        due = _due(int(self.memory.clock.policy_age[0]), self.replan_every) or alarmed(self.memory)
        if due:
            self._replan(thresholds)
        self._last = (bool(restarts), bool(opens) or alarmed(self.memory), due)

    def act(self, h: int, s: int, u: float) -> int:
        """Draw an action with the uniform u."""
        return int(propd_ppo.draw(h, s, u, self.memory))

    def end(self, thresholds: FloatArray, states: Any, actions: Any, signals: FloatArray) -> None:
        """Count a finished episode."""
        if not self.setup.initial_known:
            self.memory.values.initial[:] = self.setup.initial
        estimated.end(states, actions, signals, self._hyper, self.memory)

    # ------------------------------------------------------------ a chunk of episodes

    def play(self, arrays: Any, inputs: ChunkInput, out: ChunkOutput) -> dict[str, NDArray[Any]]:
        """Play B episodes: compiled from one plan to the next."""
        _, H, _, _, K = self.setup.sizes
        B = len(inputs.action_uniforms)
        self.memory = with_room(self.memory, B)
        schedule = self.forgetting.schedule(self.episode, B)
        trace = _empty_trace(B, K)
        alarms = np.zeros((B, 2 + K), bool)
        opens = schedule.opens_window.copy()
        opens[0] |= alarmed(self.memory)
        buffer = make_episode_buffer(H, K)
        first = written = 0
        while first < B:
            self._begin(schedule, first, arrays.thresholds[self.episode])
            age = int(self.memory.clock.policy_age[0])
            end = min(B, first + _episodes_to_next_plan(age, self.replan_every))
            stops = np.flatnonzero(schedule.restarts[first + 1 : end])
            end = first + 1 + int(stops[0]) if stops.size else end
            part = slice(first, end)
            played = estimated.play(
                arrays,
                self._hyper,
                self.memory,
                _part(schedule, part),
                True,
                ChunkInput(
                    inputs.noisy,
                    inputs.action_uniforms[part],
                    inputs.world_uniforms[part],
                    inputs.measured[part],
                ),
                buffer,
                ChunkOutput(out.policies[written:], out.returns[part]),
                alarms[part],
            )
            part = slice(first, first + played)
            for name, value in self._plan_trace().items():
                trace[name][part] = value
            trace["replanned"][first] = self._last[2]
            written += int(inputs.measured[part].sum())
            first += played
        trace["policy_restart"][:] = schedule.restarts
        opens[1:] |= alarms[:-1].any(axis=1)
        trace["window_restart"][:] = opens
        self._last = (
            bool(schedule.restarts[-1]),
            bool(opens[-1]),
            bool(trace["replanned"][-1]),
        )
        return trace | shown_alarms(self.memory, alarms)

    # ------------------------------------------------------------ planning

    def _replan(self, thresholds: FloatArray) -> None:
        """Take over the constrained optimum of the estimated model."""
        estimate = self.rule(empirical(self.memory), self._generator)
        K, policies = thresholds.size, np.empty((1, *estimate.signals.shape[1:]))
        tables = _tables(estimate, thresholds)
        answers, changes = make_answers(1, K), np.empty((1, policies.shape[1]))
        start = self._planned.mu if np.isfinite(self._planned.mu).all() else np.zeros(K)
        only = np.zeros(1, np.int64)
        solve_chunk(tables, only, answers, changes, policies, make_ends(tables), start)
        estimated.set_policy(self.memory, policies[0])
        found = np.concatenate((answers.value[:1], answers.utilities[0]))
        feasible = bool(answers.status[0] == OPTIMAL)
        self._planned = _Planned(answers.multipliers[0].copy(), found, feasible)

    # ------------------------------------------------------------ what it shows and stores

    def _plan_trace(self) -> dict[str, Any]:
        plan = self._planned
        return {
            "mu": np.where(np.isfinite(plan.mu), plan.mu, np.nan),
            "estimated_reward": plan.values[0],
            "estimated_utility": plan.values[1:],
            "feasible": plan.feasible,
        }

    def trace(self) -> dict[str, Any]:
        """Return multipliers and values of the last plan, and whether it was feasible.

        Multipliers of an infeasible plan are NaN.
        """
        restart, opened, replanned = self._last
        flags = {"policy_restart": restart, "window_restart": opened, "replanned": replanned}
        return self._plan_trace() | flags | shown_alarms(self.memory)

    def settings(self) -> dict[str, Any]:
        """Return everything that was chosen, as plain data."""
        return self._settings | {
            "forgetting": record(self.forgetting),
            "replan_every": self.replan_every,
        }

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything learnt so far as arrays."""
        own = {
            "planner.generator": generator_state(self._generator),
            "planner.mu": self._planned.mu.copy(),
            "planner.values": self._planned.values.copy(),
            "planner.feasible": np.array(self._planned.feasible),
            "planner.last": np.array(self._last),
        }
        return own | flatten(self.memory)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        self.memory = with_views(unflatten(self.memory, state))
        restore_generator(self._generator, state["planner.generator"])
        self._planned = _Planned(
            np.array(state["planner.mu"]),
            np.array(state["planner.values"]),
            bool(state["planner.feasible"]),
        )
        restart, opened, replanned = (bool(flag) for flag in state["planner.last"])
        self._last = (restart, opened, replanned)


class _Planned(NamedTuple):
    """The last plan."""

    mu: FloatArray  # (K,)
    values: FloatArray  # (1+K,) its reward and utilities in the model it was made for
    feasible: bool


# ---------------------------------------------------------------- when


def _due(age: int, every: int) -> bool:
    """Whether to plan before the episode that is number `age` since the policy's restart."""
    return age > 0 and (age % every == 0 or (age < every and age & (age - 1) == 0))


def _episodes_to_next_plan(age: int, every: int) -> int:
    """How many episodes to play, that of number `age` included, before the next plan."""
    coming = (age // every + 1) * every
    if age < every:
        coming = min(coming, 1 << age.bit_length() if age else 1)
    return coming - age


def _part(schedule: Schedule, part: slice) -> Schedule:
    """Some episodes of a schedule."""
    return Schedule(
        schedule.opens_window[part],
        schedule.drops[part],
        schedule.discount[part],
        schedule.restarts[part],
    )


# ---------------------------------------------------------------- the estimated model


def empirical(memory: Memory) -> Estimate:
    """Return shares and means of the window's data; what was not seen pays 1 in every step."""
    C, H, A, _ = memory.window.signal_sums.shape
    N, entries = estimated.width_and_entries(memory)
    model = Counted(
        offsets=np.empty(H * N * A + 1, np.int64),
        states=np.empty(entries, np.uint32),
        times=np.empty(entries),
        visits=np.empty((H, N, A)),
        sums=np.empty((C, H, N, A)),
        initial=np.empty(N),
    )
    used = estimated.write_model(memory, np.empty(H * N * A, np.int64), model)
    model = model._replace(states=model.states[:used], times=model.times[:used])
    shares = np.empty(used)
    estimated.normalise(model.offsets, model.times, shares)
    seen = model.visits > 0
    means = np.where(seen, model.sums / np.where(seen, model.visits, 1.0), 1.0)
    return Estimate(model, shares, means)


def _tables(estimate: Estimate, thresholds: FloatArray) -> TableArrays:
    """The estimated model as the planner's kernels want it: a world of one episode."""
    model = estimate.model
    path = WeightPath(np.zeros((1, 1), np.int32), np.ones((1, 1)))
    support = np.flatnonzero(model.initial)
    return TableArrays(
        offsets=model.offsets,
        states=model.states,
        probabilities=estimate.probabilities[None],
        cumulative=np.empty((1, 0)),
        rewards=np.ascontiguousarray(estimate.signals[:1]),
        utilities=np.ascontiguousarray(estimate.signals[1:])[None],
        initial_states=support.astype(np.int32),
        initial=model.initial[support],
        transition_path=path,
        reward_path=path,
        utility_path=path,
        thresholds=np.array(thresholds)[None],
    )


def _no_bonus(H: int, K: int) -> Hyperparameters:
    """What counting alone needs of the hyperparameters: nothing."""
    return Hyperparameters(
        alpha=0.0,
        eta=0.0,
        xi=0.0,
        chi=0.0,
        lagged=False,
        dual_signal=OPTIMISTIC,
        lam=1.0,
        bonus=COUNT_BONUS,
        root=np.zeros(H),
        shift=1.0,
        tail=np.zeros(H),
        c=0.0,
        LV=np.zeros((1, K, H)),
    )


def _empty_trace(B: int, K: int) -> dict[str, NDArray[Any]]:
    return {
        "mu": np.empty((B, K)),
        "estimated_reward": np.empty(B),
        "estimated_utility": np.empty((B, K)),
        "feasible": np.empty(B, bool),
        "policy_restart": np.empty(B, bool),
        "window_restart": np.empty(B, bool),
        "replanned": np.zeros(B, bool),
    }
