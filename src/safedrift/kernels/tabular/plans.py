"""Plans on filters, compiled: when to make one, and the constrained optimum of the model.

After every plan the time to the next one changes by √(wanted gain / gain), between 1/2 and 3/2,
where the gain is what the policy before would have lost in the new model. After an alarm of a
filter that planning uses it is one episode. A trial, that is, the first visit to a pair ever or in
a while, asks for a plan before the next episode, too: what it shows is used at once, and what
failed is not repeated until the next plan. Every plan takes one from a credit that begins at
`CREDIT` and grows by `PER_SUCCESSOR` H/(successors in the model) in each episode: in the long run
planning takes about as long as learning. Without credit a plan is made after `most_wait` episodes.

With one constraint a plan starts from the pair of policies that the plan before was a mixture of.

Plans aim above or below the thresholds by what returns say of the plans before (`reserve`), and
above that by a share of the slack where the learner is cautious. Where no policy gets there, the
thresholds themselves are planned for.

Bonuses of the reward shrink where exploration has cost more than it may (`exploration`).

Where no policy is safe in the model, the bonuses of utilities grow from plan to plan until one is:
the world is taken to be feasible, so something unknown must be safer than it looks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift.kernels import exact
from safedrift.kernels.planning import columns
from safedrift.kernels.tabular import events
from safedrift.kernels.tabular.bonuses import Bonuses
from safedrift.kernels.tabular.exploration import Exploration, cost_of
from safedrift.kernels.tabular.filtered_model import (
    Knowledge,
    Model,
    Plan,
    choose,
    write_model,
)
from safedrift.kernels.tabular.filters import Grid
from safedrift.kernels.tabular.model_states import find_states
from safedrift.kernels.tabular.reserve import Returns, aim_above, lowered
from safedrift.kernels.types import FloatArray, IndexArray, TableArrays, jit, jit_inline, jit_part

MOST_MU = 10.0  # multiplier that bonuses and the next plan start from, at most
STEP, FIRST, MOST = 1.5, 0.05, 3.0  # by which c_g grows while no policy looks safe
CREDIT, PER_SUCCESSOR, MOST_PLANS = 500.0, 60.0, 0.5  # see above; plans per episode at most


class Clock(NamedTuple):
    """When to plan."""

    next_plan: NDArray[np.int64]  # (1,) episode before which to plan, if there is credit
    last_plan: NDArray[np.int64]  # (1,) episode before which the last plan was made
    wait: FloatArray  # (1,) episodes from plan to plan
    credit: FloatArray  # (1,) plans that may be made
    alarms: NDArray[np.int64]  # (2+K, k) alarms so far per quantity and filter


class Memory(NamedTuple):
    """Everything the learner knows."""

    know: Knowledge
    plan: Plan
    clock: Clock
    events: events.Events
    returns: Returns
    exploration: Exploration


class Settings(NamedTuple):
    """Numbers the learner is built with."""

    moves: Grid
    signals: Grid
    limits: FloatArray  # (2,) of C for transitions and signals
    bonuses: Bonuses
    exploration: float  # share of what is at stake that exploration may cost in the long run
    most_wait: float  # episodes between two plans at most
    gain: float  # value per episode that a plan should bring
    reserve: float  # share of the slack that plans keep besides


class Work(NamedTuple):
    """Where plans are made."""

    model: Model
    tables: TableArrays  # the same, as a world of one episode
    rewards: FloatArray  # its rewards with a signal axis
    support: IndexArray  # (I,) first states
    above: FloatArray  # (K,) what plans aim at, above the thresholds
    episodes: NDArray[np.int64]  # (1,) 0
    answers: columns.Answers
    changes: FloatArray  # (1, H)
    policies: FloatArray  # (1, H, N, A)
    ends: exact.Ends


# ---------------------------------------------------------------- when


@jit_inline
def is_due(clock, m, settings):
    """Whether to plan before episode m."""
    waited = float(m - clock.last_plan[0]) >= settings.most_wait
    return m >= clock.next_plan[0] and (clock.credit[0] >= 1.0 or waited)


@jit_inline
def wait_on(clock, m, H, successors, wrong, tried, settings):
    """Count episode m.

    `wrong` if a filter that planning uses was found to be, `tried` if a visit was a trial.
    """
    plans = min(PER_SUCCESSOR * H / max(successors, 1), MOST_PLANS)
    clock.credit[0] = min(clock.credit[0] + max(plans, 1.0 / settings.most_wait), CREDIT)
    if wrong or tried:
        clock.next_plan[0] = m + 1
    if wrong:
        clock.wait[0] = 1.0


# ---------------------------------------------------------------- the optimum


@jit
def plan(memory, settings, work, one, several, thresholds):
    """Take over the constrained optimum of the model; False where there is too little room.

    `one` is scratch of `exact` where there is one constraint, `several` that of `columns` where
    there are more; the other is None.
    """
    model, tables, plan = work.model, work.tables, memory.plan
    pools = choose(memory.know, model.chosen)
    find_states(memory.know, plan, work.support, pools)
    if plan.known[4] > model.p.size or plan.known[5] > model.means.shape[2]:
        return False
    share = memory.exploration.share[0]
    write_model(
        memory.know, plan, settings.moves, settings.signals, settings.bonuses, share, pools, model
    )
    for i in range(tables.initial_states.size):
        tables.initial_states[i] = plan.local[0, work.support[i]]
    feasible = solve_above(memory, settings, work, one, several, thresholds)
    usual, grown = settings.bonuses.utility, plan.optimism[0] - settings.bonuses.utility
    if feasible:
        grown = grown / STEP if grown > FIRST else 0.0
    else:
        grown = min(max(grown * STEP, FIRST), MOST)
    plan.optimism[0] = usual + grown
    gain = take_policy(plan, model, work)
    memory.exploration.cost[0] = cost_of(memory.know, plan, model, work.support, tables.initial)
    plan.found[0] = 1.0 if feasible else 0.0
    clock = memory.clock
    factor = np.sqrt(settings.gain / max(gain, 1e-12))
    clock.wait[0] *= min(max(factor, 0.5), 1.5)
    clock.wait[0] = min(max(clock.wait[0], 1.0), settings.most_wait)
    m = memory.know.episode[0]
    clock.next_plan[0], clock.last_plan[0] = m + np.int64(clock.wait[0]), m
    clock.credit[0] = max(clock.credit[0] - 1.0, 0.0)
    return True


@jit_part
def solve_above(memory, settings, work, one, several, thresholds):
    """Write the optimal policy for corrected thresholds, or as they are where none gets there.

    With several constraints a part of all corrections is tried between. Returns whether there is
    any policy. The plan's slack becomes that of the thresholds themselves, or less than that with
    several constraints.
    """
    plan, above = memory.plan, work.above
    before = plan.slack[0]
    kept = settings.reserve * max(before, 0.0)
    for k in range(above.size):
        above[k] = kept + aim_above(memory.returns, k, plan.mu[k], before - kept)
    feasible = solve_for(thresholds, work, one, several, plan)
    raised = extremes(above)[1] > 0.0
    if not feasible and raised and above.size > 1:
        share = lowered(before, plan.slack[0] - extremes(above)[0])
        for k in range(above.size):
            above[k] *= share
        feasible = solve_for(thresholds, work, one, several, plan)
    if not feasible and raised:
        for k in range(above.size):
            above[k] = 0.0
        feasible = solve_for(thresholds, work, one, several, plan)
    return feasible


@jit_part
def solve_for(thresholds, work, one, several, plan):
    """`solve` for what `work` asks for above the thresholds; writes their slack, or less."""
    for k in range(thresholds.size):
        work.tables.thresholds[0, k] = thresholds[k] + work.above[k]
    feasible, slack = solve(work.tables, work, one, several, plan)
    plan.slack[0] = slack + extremes(work.above)[0]
    return feasible


@jit_inline
def extremes(x):
    """The least and the largest of some numbers."""
    least, largest = np.inf, -np.inf
    for value in x:
        least, largest = min(least, value), max(largest, value)
    return least, largest


@jit_part
def solve(tables, work, one, several, plan):
    """Write the optimal policy and its multipliers; where no policy is safe, 10 for all.

    Returns whether some policy is safe, and the Slater gap.
    """
    mu, feasible, slack = plan.mu, False, 0.0
    if one is not None:
        feasible, slack = mix_two(tables, work, one, plan)
    if several is not None:
        columns.solve_episodes(
            tables,
            work.rewards,
            work.episodes,
            mu,
            work.answers,
            work.changes,
            work.policies,
            work.ends,
            several,
        )
        feasible, slack = work.answers.status[0] == exact.OPTIMAL, work.answers.gamma[0]
        for k in range(mu.size):
            mu[k] = min(work.answers.multipliers[0, k], MOST_MU) if feasible else MOST_MU
    return feasible, slack


@jit_part
def mix_two(tables, work, one, plan):
    """`solve` for one constraint: a mixture of two deterministic policies, which `plan` keeps."""
    H, N, A = work.policies.shape[1:]
    p, r, g = tables.probabilities[0], tables.rewards[0], tables.utilities[0, 0]
    left, right = one.left, one.right
    for h in range(H):
        for i in range(N):
            s = plan.reach[h, i] if i < plan.count[h] else np.int32(0)
            left[h, i], right[h, i] = plan.pair[0, h, s], plan.pair[1, h, s]
    near, b = plan.mu[0], tables.thresholds[0, 0]
    found = exact.intersect_lines(tables, p, r, g, b, near, near > 0.0, one)
    exact.occupancy(tables, p, A, left, one.reach_left)
    exact.occupancy(tables, p, A, right, one.reach_right)
    exact.mix_policies(
        left, right, one.reach_left, one.reach_right, found[2], work.policies[0], one.reach[0]
    )
    for h in range(H):
        for i in range(plan.count[h]):
            s = plan.reach[h, i]
            plan.pair[0, h, s], plan.pair[1, h, s] = left[h, i], right[h, i]
    feasible = found[0] == exact.OPTIMAL
    plan.mu[0] = min(found[1], MOST_MU) if feasible else MOST_MU
    return feasible, found[6]


@jit_part
def take_policy(plan, model, work):
    """Take over the policy (H, N, A) that was found, and write its values in the model.

    Returns the gain: what the policy before loses against it, bonuses included,

        Σ_h E_before[ Σ_a (π(a|x) - π_before(a|x)) Q^π(x, a) ],

    with Q of r̃ + Σ μ g̃.
    """
    policy = work.policies[0]
    C, H, N, A = model.means.shape
    K = C - 1
    now, ahead = 0, 1
    for h in range(H - 1, -1, -1):
        now, ahead = ahead, now
        for i in range(plan.count[h]):
            s = plan.reach[h, i]
            for c in range(C):
                plan.values[c, h, s] = 0.0
            value, lost = 0.0, 0.0
            for a in range(A):
                share, before = policy[h, i, a], plan.policy[h, s, a]
                plan.policy[h, s, a] = share
                if share == 0.0 and before == 0.0:
                    continue
                q, later = model.signals[0, h, i, a], 0.0
                plan.values[0, h, s] += share * model.means[0, h, i, a]
                for k in range(K):
                    q += plan.mu[k] * model.signals[1 + k, h, i, a]
                    plan.values[0, h, s] += share * plan.mu[k] * model.means[1 + k, h, i, a]
                    plan.values[1 + k, h, s] += share * model.means[1 + k, h, i, a]
                if h + 1 < H:
                    row = (h * N + i) * A + a
                    start, stop = model.offsets[row], model.offsets[row + 1]
                    for e in range(np.uint64(start), np.uint64(stop)):
                        p, i_next = model.p[e], model.states[e]
                        q += p * model.worth[ahead, 0, i_next]
                        later += p * model.worth[ahead, 1, i_next]
                        if share > 0.0:
                            s_next = plan.reach[h + 1, i_next]
                            for c in range(C):
                                plan.values[c, h, s] += share * p * plan.values[c, h + 1, s_next]
                value += share * q
                lost += (share - before) * q + before * later
            model.worth[now, 0, i] = value
            model.worth[now, 1, i] = lost
    gain = 0.0
    for c in range(C):
        plan.found[1 + c] = 0.0
    for j in range(work.support.size):
        share, s = work.tables.initial[j], work.support[j]
        gain += share * model.worth[now, 1, plan.local[0, s]]
        for c in range(C):
            plan.found[1 + c] += share * plan.values[c, 0, s]
    for k in range(K):
        plan.found[1] -= plan.mu[k] * plan.found[2 + k]
    return gain
