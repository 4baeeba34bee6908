"""A planner for linear kernels that is told the features and nothing else.

It keeps Kalman filters of several drift rates of the unknown coefficients, for each step and for
all steps together, weighs them by how well they predicted what was seen next, lets a CUSUM between
slow and fast filters say "this changed", and plays the exact constrained optimum of the model that
the heaviest filters have, with a small bonus for what is not known yet. It needs no variation
budget, no Slater gap, no step size and no number of episodes, and its memory does not grow.

The same idea as `adaptive-planner`, on coefficients instead of counts: `kernels.linear.filters`,
`kernels.linear.experts` and `kernels.linear.adaptive` have the formulas,
`learners.linear_coordinates` what is known in advance. Where the features are wrong, the estimates
converge to wrong values and nothing notices.

Constants were chosen on random mixtures of scenarios with seeds from 10^6 on; docs/linear.md has
the measurements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels import exact
from safedrift.kernels.elementary import log
from safedrift.kernels.linear import adaptive as kernel
from safedrift.kernels.linear.adaptive_memory import Clock, Memory, Plan, Settings, Trace, Work
from safedrift.kernels.linear.experts import CHOSEN, FLOOR, SPREAD, Experts, make_experts
from safedrift.kernels.linear.filters import Filters
from safedrift.kernels.linear.plans import prepare
from safedrift.kernels.planning import columns
from safedrift.kernels.records import ChunkInput, ChunkOutput, make_episode_buffer
from safedrift.kernels.types import Features, LinearArrays, TableArrays, WeightPath
from safedrift.knowledge import Sizes
from safedrift.learners.checked import CheckedLearner, Setup
from safedrift.learners.linear_coordinates import Coordinates, coordinates
from safedrift.learners.propd_ppo.engines import flatten, unflatten
from safedrift.learners.protocol import Problem
from safedrift.learners.rivals.linear import linear_setup
from safedrift.planning.episodes import make_answers, make_ends

__all__ = ["AdaptiveLinearPlanner", "build"]

MOVE_RATES = (0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
SIGNAL_RATES = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e4)
# Variance of a signal before anything is known, in units of its noise: SPREAD or more however
# small the noise is.
SIGNAL_PRIOR = SPREAD / FLOOR
PACE = 10.0  # episodes since the last alarm over episodes between two plans
MOVED = 0.01  # change of a threshold that calls for a plan
DOUBT = 1.0  # of a corrected filter, in squared distances from where it was
MOST_NUMBERS = 2**27  # that the covariances may have in all: 1 GiB


class AdaptiveLinearPlanner:
    """An algorithm: filters of coefficients, alarms, exact plans.

    Parameters
    ----------
    features
        Known to the learner.
    options
        What `build` was given, as plain data.
    """

    name = "adaptive-linear-planner"
    plays_in = LinearArrays

    def __init__(self, setup: Setup, features: Features, options: dict[str, Any]) -> None:
        self.setup, self.features, self.options = setup, features, options
        _, H, S, A, K = setup.sizes
        known = coordinates(features, H, S, A)
        self.numbers = _numbers(known, options)
        self.memory = _make_memory(setup.sizes, known, self.numbers)
        self._work = _make_work(setup, known)
        self._one = exact.make_scratch(0, H, S, A) if K == 1 else None
        self._several = columns.make_scratch(0, H, S, A, K) if K > 1 else None

    @property
    def episode(self) -> int:
        """Episodes finished so far."""
        return int(self.memory.clock.episode[0])

    def fresh(self, seed: int | np.random.SeedSequence) -> AdaptiveLinearPlanner:
        """Return the same algorithm with nothing learnt yet."""
        return AdaptiveLinearPlanner(self.setup.renewed(), self.features, self.options)

    def begin(self, thresholds: FloatArray) -> FloatArray:
        """Plan if it is time to, and return the policy."""
        if not self.setup.initial_known:
            self._work.initial[:] = self.setup.initial
            self._work.tables.initial[:] = self.setup.initial
        prepare(self.memory, self.numbers, self._work, self._one, self._several, thresholds)
        return self.memory.plan.policy.copy()

    def act(self, h: int, s: int, u: float) -> int:
        """Return the action that u draws."""
        return int(kernel.draw(self.memory.plan, h, s, u))

    def end(self, thresholds: FloatArray, states: Any, actions: Any, signals: FloatArray) -> None:
        """Charge the experts for their predictions, learn, and answer alarms."""
        kernel.learn(states, actions, signals, self.numbers, self.memory, self._work)

    def play(self, arrays: Any, inputs: ChunkInput, out: ChunkOutput) -> dict[str, NDArray[Any]]:
        """Play B episodes."""
        _, H, _, _, K = self.setup.sizes
        trace = _make_trace(len(inputs.action_uniforms), K)
        kernel.play(
            arrays,
            self.numbers,
            self.memory,
            self._work,
            self._one,
            self._several,
            inputs,
            make_episode_buffer(H, K),
            out,
            trace,
        )
        return trace._asdict()

    def trace(self) -> dict[str, Any]:
        """Return multipliers and values of the plan, whether it is new, and what has changed."""
        plan, clock = self.memory.plan, self.memory.clock
        return {
            "mu": plan.mu.copy(),
            "estimated_reward": float(plan.start[0]),
            "estimated_utility": plan.start[1:].copy(),
            "feasible": bool(plan.feasible[0]),
            "replanned": bool(clock.replanned[0]),
            "changed": clock.changed.copy(),
        }

    def settings(self) -> dict[str, Any]:
        """Return every option, and what had to be known."""
        return self.options | {"told": ["features"], "constants": "practical"}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything learnt so far."""
        return flatten(self.memory)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        self.memory = unflatten(self.memory, state)


# ---------------------------------------------------------------- arrays


def _numbers(known: Coordinates, options: Mapping[str, Any]) -> Settings:
    """The numbers that the kernels are given."""
    pairs = [len(rates) * (len(rates) - 1) / 2 for rates in (MOVE_RATES, SIGNAL_RATES)]
    return Settings(
        move_rates=np.array(MOVE_RATES),
        signal_rates=np.array(SIGNAL_RATES),
        unit=np.array([known.move_unit, known.signal_unit]),
        prior=np.array([known.move_unit, SIGNAL_PRIOR * known.signal_unit]),
        limits=log(np.array(pairs) / options["false_alarms"]),
        doubt=DOUBT,
        every=float(options["replan_every"]),
        pace=PACE,
        reward_bonus=options["reward_bonus"],
        utility_bonus=options["utility_bonus"],
        moved=MOVED,
    )


def _make_memory(sizes: Sizes, known: Coordinates, numbers: Settings) -> Memory:
    _, H, S, A, K = sizes
    kP, kS = numbers.move_rates.size, numbers.signal_rates.size
    f, d2 = known.basis.x.shape[1], known.signal_mean.size
    width = 1 if known.basis.one_hot else d2
    needed = (H + 1) * (kP * f * f + (1 + K) * kS * d2 * width)
    if needed > MOST_NUMBERS:
        _check.fail("the features", f"few enough for {MOST_NUMBERS:,} covariances", f"{needed:,}")
    signals = _make_filters(kS, H, known.signal_mean, numbers.prior[1], width)
    return Memory(
        _make_filters(kP, H, np.zeros(f), numbers.prior[0], f),
        Filters(*(np.stack([x] * (1 + K)) for x in signals)),
        make_experts(kP),
        Experts(*(np.stack([x] * (1 + K)) for x in make_experts(kS))),
        Clock(
            episode=np.zeros(1, np.int64),
            next_plan=np.ones(1, np.int64),  # the first episode is uniform
            last_alarm=np.zeros(1, np.int64),
            alarms=np.zeros((2 + K, max(kP, kS)), np.int64),
            changed=np.zeros(2 + K, bool),
            replanned=np.zeros(1, bool),
            binary=np.ones(1 + K, bool),
        ),
        Plan(
            policy=np.full((H, S, A), 1 / A),
            values=np.zeros((1 + K, H, S)),
            start=np.zeros(1 + K),
            mu=np.zeros(K),
            thresholds=np.zeros(K),
            feasible=np.ones(1, bool),
        ),
    )


def _make_filters(kk: int, H: int, mean: FloatArray, prior: float, width: int) -> Filters:
    """Filters that know the prior only."""
    d = mean.size
    cov = np.zeros((kk, H + 1, d, width))
    cov += prior * (np.eye(d) if width == d else np.ones((d, 1)))
    return Filters(np.broadcast_to(mean, (kk, H + 1, d)).copy(), cov)


def _make_work(setup: Setup, known: Coordinates) -> Work:
    _, H, S, A, K = setup.sizes
    basis, d2 = known.basis, known.signal_mean.size
    f = basis.x.shape[1]
    bonused = np.zeros((1 + K, H, S, A))
    tables = _model_tables(setup, known, bonused)
    return Work(
        basis=basis,
        phi=np.zeros(d2),
        moved=np.zeros(d2),
        info=np.zeros((2, f, f)),
        score=np.zeros((2, f)),
        rest=np.zeros(f),
        chosen=np.zeros((CHOSEN, 3)),
        move=np.zeros((H, f)),
        move_cov=np.zeros((H, f, f)),
        signal=np.zeros((1 + K, H, d2)),
        signal_cov=np.zeros((1 + K, H, d2, 1 if basis.one_hot else d2)),
        ahead=np.zeros((1 + K, f)),
        spreads=np.zeros(1 + K),
        means=np.zeros((1 + K, H, S, A)),
        bonused=bonused,
        initial=setup.initial.copy(),
        tables=tables,
        rewards=tables.rewards[:, None],
        episodes=np.zeros(1, np.int64),
        mu=np.zeros(K),
        numbers=np.zeros((1, 8)),
        answers=make_answers(1, K),
        changes=np.zeros((1, H)),
        policies=np.zeros((1, H, S, A)),
        ends=make_ends(tables),
    )


def _model_tables(setup: Setup, known: Coordinates, bonused: FloatArray) -> TableArrays:
    """The model as a world of one episode; pairs of the last step have no successors."""
    _, H, S, A, K = setup.sizes
    pairs, basis = S * A, known.basis
    counts = np.diff(basis.offsets)
    states = basis.states
    if counts.size == pairs:
        counts, states = np.tile(counts, H), np.tile(states, H)
    counts = counts.copy()
    counts[(H - 1) * pairs :] = 0
    offsets = np.append(0, np.cumsum(counts))
    support = np.flatnonzero(setup.initial) if setup.initial_known else np.arange(S)
    path = WeightPath(np.zeros((1, 1), np.int32), np.ones((1, 1)))
    return TableArrays(
        offsets=offsets,
        states=states[: offsets[-1]].copy(),
        probabilities=np.zeros((1, offsets[-1])),
        cumulative=np.empty((1, 0)),
        rewards=bonused[:1],
        utilities=bonused[1:][None],
        initial_states=support.astype(np.int32),
        initial=setup.initial[support],
        transition_path=path,
        reward_path=path,
        utility_path=path,
        thresholds=np.zeros((1, K)),
    )


def _make_trace(B: int, K: int) -> Trace:
    return Trace(
        mu=np.zeros((B, K)),
        estimated_reward=np.zeros(B),
        estimated_utility=np.zeros((B, K)),
        feasible=np.zeros(B, bool),
        replanned=np.zeros(B, bool),
        changed=np.zeros((B, 2 + K), bool),
    )


def build(
    world: Problem,
    *,
    replan_every: int = 10,
    false_alarms: float = 1e-5,
    reward_bonus: float = 0.5,
    utility_bonus: float = 0.05,
    seed: int | np.random.SeedSequence = 0,
) -> CheckedLearner:
    """Return the planner for a world with features and finitely many states.

    Parameters
    ----------
    replan_every
        Most episodes between two plans; fewer soon after something has changed.
    false_alarms
        Bound, per episode and quantity, on the probability of an alarm about a filter that is
        right.
    reward_bonus, utility_bonus
        Standard deviations of what is not known that are added to reward and utility.
    """
    setup, features = linear_setup(world)
    options = {
        "replan_every": _check.integer("replan_every", replan_every),
        "false_alarms": _check.positive("false_alarms", false_alarms, upper=1.0),
        "reward_bonus": _check.positive("reward_bonus", reward_bonus),
        "utility_bonus": _check.positive("utility_bonus", utility_bonus),
    }
    return CheckedLearner(AdaptiveLinearPlanner(setup, features, options), seed)
