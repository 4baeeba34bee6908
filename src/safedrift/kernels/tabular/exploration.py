"""What exploration may cost.

A plan with bonuses earns less, in its own model, than the best policy without them. Its cost is a
share of what is at stake, by the last multipliers and without bonuses:

    x = (best - plan)/(best - uniform) of V_r + Σ μ V_g, at most 1,

where a pair of which nothing is known earns what the average observation did. In small worlds x
adds up to some episodes; where there are more pairs than ever pay to be known, exploration would
never end. So over n episodes it may cost

    `FREE` + `ROUNDS` known pairs/H + `rate` n,

that is, some episodes, as many as it takes to visit every known pair twice, and a share. When
three quarters of that are spent, bonuses of the reward shrink in proportion to what is left, to
`LEAST` at least, so that no wrong belief is kept for ever.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from safedrift.kernels.types import FloatArray, jit_inline, jit_part

FREE, ROUNDS = 100.0, 2.0  # episodes, and visits to every known pair
EASE = 0.25  # share of what may be spent within which bonuses shrink
LEAST = 0.2  # of the bonuses
BEST, OWN, UNIFORM = 2, 3, 4  # rows of `Model.worth`


class Exploration(NamedTuple):
    """What exploration costs, in episodes' worth of what is at stake."""

    share: FloatArray  # (1,) by which bonuses of the reward are multiplied
    cost: FloatArray  # (1,) x of the plan in use
    spent: FloatArray  # (1,) Σ x


def make_exploration() -> Exploration:
    """Nothing was spent yet."""
    return Exploration(np.ones(1), np.zeros(1), np.zeros(1))


@jit_part
def spend(exploration, rate, episodes, rounds):
    """Count an episode, and write the share of the bonuses that is left.

    `rounds` is how many episodes it takes to visit every known pair once.
    """
    exploration.spent[0] += exploration.cost[0]
    allowed = FREE + ROUNDS * rounds + rate * episodes
    left = (allowed - exploration.spent[0]) / (EASE * allowed)
    exploration.share[0] = min(max(left, LEAST), 1.0)


@jit_part
def cost_of(know, plan, model, support, initial):
    """x of the plan, whose policy was just written."""
    H, N = model.means.shape[1:3]
    average = know.mean[0]
    for k in range(plan.mu.size):
        average += plan.mu[k] * know.mean[1 + k]
    ahead, now = 0, 1
    for h in range(H - 1, -1, -1):
        for i in range(plan.count[h]):
            write_worth(know, plan, model, h, i, average * (H - h), ahead, now)
        ahead, now = now, ahead
    cost, stake = 0.0, 0.0
    for j in range(support.size):
        i = plan.local[0, support[j]]
        best = model.worth[ahead, BEST, i]
        cost += initial[j] * (best - model.worth[ahead, OWN, i])
        stake += initial[j] * (best - model.worth[ahead, UNIFORM, i])
    return min(max(cost, 0.0) / max(stake, 1e-9), 1.0)


@jit_inline
def write_worth(know, plan, model, h, i, unknown, ahead, now):
    """Write the values of the best, the plan's and the uniform action in state number i of step h.

    `unknown` is the value of an action of which nothing is known.
    """
    C, H, N, A = model.means.shape
    S, s = plan.local.shape[1], np.int64(plan.reach[h, i])
    best, own, uniform = -np.inf, 0.0, 0.0
    for a in range(A):
        share = plan.policy[h, s, a]
        if know.own.index[(h * S + s) * A + a] < 0 and know.pooled.index[s * A + a] < 0:
            own += share * unknown
            uniform += unknown / A
            continue
        q = model.means[0, h, i, a]
        for k in range(C - 1):
            q += plan.mu[k] * model.means[1 + k, h, i, a]
        most, mine, any_action = q, q, q
        if h + 1 < H:
            row = (h * N + i) * A + a
            start, stop = model.offsets[row], model.offsets[row + 1]
            for e in range(np.uint64(start), np.uint64(stop)):
                p, following = model.p[e], model.states[e]
                most += p * model.worth[ahead, BEST, following]
                mine += p * model.worth[ahead, OWN, following]
                any_action += p * model.worth[ahead, UNIFORM, following]
        best = max(best, most)
        own += share * mine
        uniform += any_action / A
    model.worth[now, BEST, i] = best if best > -np.inf else unknown
    model.worth[now, OWN, i] = own
    model.worth[now, UNIFORM, i] = uniform
