"""Planning on filters, compiled: play, learn, notice changes, and plan as often as it pays.

After every plan the time to the next one changes by √(wanted gain / gain), between 1/2 and 3/2,
where the gain is what the policy before would have lost in the new model. An alarm of a filter that
planning uses asks for a plan at once. Every plan takes one from a credit that begins at `CREDIT`
and grows by `PER_SUCCESSOR` H/(successors in the model) in each episode: in the long run planning
takes about as long as learning. Without credit a plan is made after `most_wait` episodes.

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
from safedrift.kernels.stepping import first_state, next_state, observe
from safedrift.kernels.tabular import events, factors
from safedrift.kernels.tabular.evidence import (
    alarmed,
    clear_alarm,
    correct_signals,
    correct_transitions,
    forget_losses,
    jump,
    settle,
    strength_of,
)
from safedrift.kernels.tabular.exploration import Exploration, cost_of, spend
from safedrift.kernels.tabular.filtered_model import (
    Bonuses,
    Knowledge,
    Model,
    Plan,
    choose,
    matters,
    write_model,
)
from safedrift.kernels.tabular.filters import (
    Grid,
    age_signals,
    age_transitions,
    cell_of,
    experts_of,
    see_signal,
    see_successor,
)
from safedrift.kernels.tabular.model_states import find_states
from safedrift.kernels.tabular.reserve import Returns, aim_above, see_returns
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
    episodes: NDArray[np.int64]  # (1,) 0
    answers: columns.Answers
    changes: FloatArray  # (1, H)
    policies: FloatArray  # (1, H, N, A)
    ends: exact.Ends


class Trace(NamedTuple):
    """What the learner shows of B episodes."""

    mu: FloatArray  # (B, K)
    estimated_reward: FloatArray  # (B,) of the plan in use, without bonuses
    estimated_utility: FloatArray  # (B, K)
    feasible: NDArray[np.bool_]  # (B,) some policy looked safe
    replanned: NDArray[np.bool_]  # (B,) before this episode
    alarm: NDArray[np.bool_]  # (B,) after it: a filter that planning uses was wrong


# ---------------------------------------------------------------- playing


@jit
def play(arrays, settings, memory, work, one, several, inputs, first, buffer, out, written, trace):
    """Play episodes of a chunk from number `first` on.

    Returns how many episodes of the chunk are finished: fewer than B where `work` has too little
    room for the next plan.
    """
    B, H = inputs.action_uniforms.shape
    states, actions, signals = buffer.states, buffer.actions, buffer.signals
    C = signals.shape[0]
    for e in range(first, B):
        m = memory.know.episode[0]
        due = is_due(memory.clock, m, settings)
        if due and not plan(memory, settings, work, one, several, arrays.thresholds[m]):
            return e
        trace.replanned[e] = due
        show(memory.plan, e, trace)
        if inputs.measured[e]:
            copy_table(memory.plan.policy, out.policies[written])
            written += 1
        u = inputs.world_uniforms[e]
        s = first_state(arrays, u[0])
        for h in range(H):
            states[h] = s
            actions[h] = act(memory.plan, h, s, inputs.action_uniforms[e, h])
            observe(arrays, m, h, s, actions[h], inputs.noisy, u, H + h * C, signals)
            for c in range(C):
                out.returns[e, c] += signals[c, h]
            if h + 1 < H:
                s = next_state(arrays, m, h, s, actions[h], u[h + 1])
        trace.alarm[e] = learn(states, actions, signals, settings, memory)
    return B


@jit_inline
def is_due(clock, m, settings):
    """Whether to plan before episode m."""
    waited = float(m - clock.last_plan[0]) >= settings.most_wait
    return m >= clock.next_plan[0] and (clock.credit[0] >= 1.0 or waited)


@jit_part
def copy_table(source, target):
    """Copy a policy (H, S, A)."""
    H, S, A = source.shape
    for h in range(H):
        for s in range(S):
            for a in range(A):
                target[h, s, a] = source[h, s, a]


@jit_part
def show(plan, e, trace):
    """Write what there is to show of the plan in episode number e of a chunk."""
    trace.feasible[e] = plan.found[0] > 0.0
    trace.estimated_reward[e] = plan.found[1]
    for k in range(plan.mu.size):
        trace.mu[e, k] = plan.mu[k]
        trace.estimated_utility[e, k] = plan.found[2 + k]


@jit_inline
def act(plan, h, s, u):
    """Draw an action with the uniform u."""
    below, last = 0.0, 0
    for a in range(plan.policy.shape[2]):
        if plan.policy[h, s, a] > 0.0:
            below += plan.policy[h, s, a]
            last = a
            if u < below:
                break
    return np.int64(last)


# ---------------------------------------------------------------- learning


@jit_part
def learn(states, actions, signals, settings, memory):
    """Learn from a finished episode; whether a filter that planning uses was found wrong."""
    know, plan, clock = memory.know, memory.plan, memory.clock
    H, C = states.size, signals.shape[0]
    S, A = plan.policy.shape[1], plan.policy.shape[2]
    m = know.episode[0]
    factors.predict(know.factors)
    for h in range(H):
        pair = states[h] * A + actions[h]
        c, p = cell_of(know.own, h * S * A + pair, m), cell_of(know.pooled, pair, m)
        age_signals(know.own, c, m, settings.signals)
        age_signals(know.pooled, p, m, settings.signals)
        know.seen[0] += 1.0
        rate = max(1.0 / know.seen[0], 1e-4)
        for i in range(C):
            x = signals[i, h]
            if know.binary[i] and x != 0.0 and x != 1.0:
                know.binary[i] = False
                forget_losses(experts_of(know.signals, i))
                know.factors.charged[1 + i, 0], know.factors.charged[1 + i, 1] = 0.0, 1.0
            experts, key = experts_of(know.signals, i), h * S * A + pair
            factors.hear_signal(know.factors, c, key, i, x, know.binary[i], know.mean[i])
            see_signal(know.own, know.pooled, c, p, i, x, know.binary[i], experts, settings.signals)
            know.mean[i] += (x - know.mean[i]) * rate
        if h + 1 < H:
            age_transitions(know.own, c, m, settings.moves)
            age_transitions(know.pooled, p, m, settings.moves)
            factors.hear_successor(know.factors, know.own, c, h * S * A + pair, states[h + 1], S)
            see_successor(know.own, know.pooled, c, p, states[h + 1], S, know.moves, settings.moves)
    learn_factors(states, actions, signals, know, A)
    wrong = False
    if H > 1:
        factors.weigh(know.factors, know.moves, 0, -1.0)
        settle(know.moves, settings.moves, -1.0, H - 1.0, m)
        wrong |= answer_alarms_of_moves(memory, settings.limits[0], m)
    for i in range(C):
        experts = experts_of(know.signals, i)
        sign = -1.0 if know.binary[i] else 0.5
        factors.weigh(know.factors, experts, 1 + i, sign)
        settle(experts, settings.signals, sign, float(H), m)
        wrong |= answer_alarms_of_signals(memory, settings.limits[1], i, m)
    know.episode[0] = m + 1
    spend(memory.exploration, settings.exploration, m + 1.0, know.own.used[0] / H)
    if plan.local[0, states[0]] >= 0:
        see_returns(memory.returns, plan.values[1:, 0, states[0]], signals)
    plans = min(PER_SUCCESSOR * H / max(plan.known[4], 1), MOST_PLANS)
    clock.credit[0] = min(clock.credit[0] + max(plans, 1.0 / settings.most_wait), CREDIT)
    if wrong:
        clock.next_plan[0] = m + 1
    return wrong


@jit_inline
def learn_factors(states, actions, signals, know, A):
    """Let factors and their loadings learn from the episode that they predicted."""
    factors.locate(know.factors)
    H, S = states.size, know.own.index.size // (states.size * A)
    for h in range(H):
        c = know.own.index[(h * S + states[h]) * A + actions[h]]
        factors.load(know.factors, c, h, signals)
        if h + 1 < H:
            factors.load_successor(know.factors, know.own, c, states[h + 1])


@jit_part
def answer_alarms_of_moves(memory, limit, m):
    """Correct filters of transitions that were found wrong; whether planning uses one of them."""
    know, experts, used = memory.know, memory.know.moves, False
    for part in range(experts.C.shape[0]):
        cells = know.own if part == 0 else know.pooled
        for k in range(experts.weight.shape[0]):
            j = alarmed(experts, part, k, limit)
            if j < 0:
                continue
            since, J = experts.since[part, k, j], jump(experts, part, k, j, 2.0, 1.0)
            clear_alarm(experts, part, k, j, m)
            if matters(experts, part, k):
                used = True
                events.note_move(memory.events, know.own, cells, memory.plan, k, j, since, m)
            correct_transitions(cells, k, j, since, J)
            memory.clock.alarms[0, k] += 1
    return used


@jit_part
def answer_alarms_of_signals(memory, limit, i, m):
    """Correct filters of signal i that were found wrong; whether planning uses one of them."""
    know, experts, used = memory.know, experts_of(memory.know.signals, i), False
    for part in range(experts.C.shape[0]):
        cells = know.own if part == 0 else know.pooled
        for k in range(experts.weight.shape[0]):
            j = alarmed(experts, part, k, limit)
            if j < 0:
                continue
            v = experts.v[j, strength_of(experts, part)]
            since, J = experts.since[part, k, j], jump(experts, part, k, j, 1.0, v)
            clear_alarm(experts, part, k, j, m)
            if matters(experts, part, k):
                used = True
                events.note_signal(memory.events, know.own, cells, memory.plan, i, k, j, since, m)
            correct_signals(cells, i, k, j, since, J)
            memory.clock.alarms[1 + i, k] += 1
    return used


# ---------------------------------------------------------------- planning


@jit_part
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
    """Write the optimal policy for thresholds with reserves, or without where none gets there.

    Returns whether there is any. The plan's slack becomes that of the thresholds themselves, or
    less than that with several constraints.
    """
    plan, aims = memory.plan, work.tables.thresholds
    kept, lowest, highest = settings.reserve * max(plan.slack[0], 0.0), np.inf, 0.0
    for k in range(thresholds.size):
        above = kept + aim_above(memory.returns, k, plan.mu[k], plan.slack[0] - kept)
        aims[0, k] = thresholds[k] + above
        lowest, highest = min(lowest, above), max(highest, above)
    feasible, slack = solve(work.tables, work, one, several, plan)
    plan.slack[0] = slack + lowest
    if not feasible and highest > 0.0:
        for k in range(thresholds.size):
            aims[0, k] = thresholds[k]
        feasible, plan.slack[0] = solve(work.tables, work, one, several, plan)
    return feasible


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
    found = exact.intersect_lines(
        tables, p, r, g, tables.thresholds[0, 0], plan.mu[0], True, True, one
    )
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
                    for e in range(model.offsets[row], model.offsets[row + 1]):
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


# ---------------------------------------------------------------- entry points for Python


@jit
def begin(memory, settings, work, one, several, thresholds):
    """Entry point of `plan`."""
    return plan(memory, settings, work, one, several, thresholds)


@jit
def due(memory, settings):
    """Entry point of `is_due`."""
    return is_due(memory.clock, memory.know.episode[0], settings)


@jit
def draw(plan, h, s, u):
    """Entry point of `act`."""
    return act(plan, h, s, u)


@jit
def end(states, actions, signals, settings, memory):
    """Entry point of `learn`."""
    return learn(states, actions, signals, settings, memory)
