"""Whether what was drawn is what should have been: tests by betting.

Every draw y of a run (first state, action, successor, noisy signal) comes from a distribution p
that is known before it: π_m(·|x), P^m(·|x,a), the Bernoulli distribution of the model's mean. A bet
on another distribution q, chosen before the draw as well, multiplies its stake by

    ½ + ½ q(y)/p(y),        E[q(y)/p(y)] = Σ_{y: p(y) > 0} q(y) ≤ 1.

So the wealth of each bettor, and any average of them, is a nonnegative supermartingale that starts
at 1, whatever the learner does and however the world drifts. By Ville's inequality it ever reaches
1/δ with probability at most δ. Against draws from q it grows exponentially.

Each bettor is a column. It keeps one wealth over all steps (row 0) and one for each step h (row
1 + h); half of the money is staked on row 0, half on the others, in equal parts. Wealths are kept
as logarithms. The last step has no successor: its row is that of the first states.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from safedrift.kernels.audit.memory import OBSERVATIONS, POSSIBLE, note
from safedrift.kernels.types import FloatArray, jit_inline, jit_part, jit_shared

# Columns of actions and successors: all outcomes alike, likely ones too rare, or too frequent.
UNIFORM, FLATTER, SHARPER = 0, 1, 2
# Of actions only: the policy of the episode before; then for each action, too frequent, too rare.
STALE_POLICY, EACH_ACTION = 3, 4
# Of successors only: the mean over actions, the first episode's world, the step before; then the
# successors of action a + 1, a + 2, ... (modulo A).
ANY_ACTION, FIRST_WORLD, STEP_BEFORE, OTHER_ACTION = 3, 4, 5, 6
# Of signals: the value seen at this step in the episode before, the mean at the pair visited there,
# the mean of this pair in the episode before, in the first one, averaged over actions, at the step
# before; too often 1, too often 0.
COPIED, LAST_PAIR, LAST_WORLD, FIRST_SIGNAL, AVERAGE_SIGNAL, EARLIER_SIGNAL, HIGH, LOW = range(8)
SIGNAL_BETS = 8
LARGEST = 1e300  # ratio that is paid: wealths stay finite


class Bets(NamedTuple):
    """Logarithms of all wealths, and what bettors remember of earlier episodes."""

    actions: FloatArray  # (1, 1+H, 4+2A)
    successors: FloatArray  # (1, 1+H, 6+A-1)
    signals: FloatArray  # (1+K, 1+H, 8); (0, 1+H, 8) where observations are not noisy
    first_p: FloatArray  # (entries,) transitions of the first episode
    first_signal: FloatArray  # (1+K, H, S, A)
    last_signal: FloatArray  # (1+K, H, S, A) of the episode before; these three empty if not noisy
    last_means: FloatArray  # (1+K, H) at the pairs visited in the episode before,
    last_values: FloatArray  # (1+K, H) and what was observed there


def make_bets(H: int, S: int, A: int, K: int, entries: int, noisy: bool) -> Bets:
    """Return the bettors of a run before its first episode."""
    zeros, C = np.zeros, 1 + K if noisy else 0
    tables = (C, H, S, A)
    return Bets(
        zeros((1, 1 + H, EACH_ACTION + 2 * A)),
        zeros((1, 1 + H, OTHER_ACTION + A - 1)),
        zeros((C, 1 + H, SIGNAL_BETS)),
        zeros(entries),
        zeros(tables),
        zeros(tables),
        zeros((C, H)),
        zeros((C, H)),
    )


# ---------------------------------------------------------------- one episode


@jit_shared
def check_draws(world, p, i, m, fresh, script, ledger, work, bets, out):
    """All draws of episode i: possible at all, and bet on."""
    _, H, S, A = script.policies.shape
    if m == 0:
        for e in range(p.size):
            bets.first_p[e] = p[e]
    check_first(world, script.states[i, 0], i, H, A, bets, out)
    for h in range(H):
        s, a = script.states[i, h], script.actions[i, h]
        row = (h * S + s) * A + a
        pi = script.policies[i, h, s]
        if not pi[a] > 0.0:
            note(i, POSSIBLE, 1.0, row, out)
        else:
            bet_on_action(h, a, pi, ledger.policy[h, s], m > 0, bets.actions[0])
        if h + 1 < H:
            bet_on_successor(world, p, i, h, s, a, script.states[i, h + 1], bets, out)
    for h in range(H):
        s, a = script.states[i, h], script.actions[i, h]
        for c in range(work.signal.shape[0]):
            check_signal(i, m, c, h, s, a, script.values[i, c, h], work.signal, bets, out)
    remember_signals(i, m, fresh, script, work.signal, bets)
    out.evidence[i, 0] = evidence(bets.actions)
    out.evidence[i, 1] = evidence(bets.successors)
    out.evidence[i, 2] = evidence(bets.signals)


@jit_part
def evidence(wealth):
    """Logarithm of all the money there is, of 1 at the start."""
    C, rows, columns = wealth.shape
    top = 0.0
    for c in range(C):
        for j in range(rows):
            for k in range(columns):
                top = max(top, wealth[c, j, k])
    total, parts = 0.0, 0.0
    for c in range(C):
        for k in range(columns):
            total += np.exp(wealth[c, 0, k] - top)
        for j in range(1, rows):
            for k in range(columns):
                if wealth[c, j, k] - top > -40.0:
                    parts += np.exp(wealth[c, j, k] - top)
    if C == 0 or top == np.inf:
        return top
    return top + np.log(0.5 * (total + parts / (rows - 1)) / (C * columns))


@jit_inline
def bet(wealth, h, column, ratio):
    """One bet at step h, with ratio = q(y)/p(y)."""
    if ratio != 1.0:
        gain = np.log(0.5 + 0.5 * min(ratio, LARGEST))
        wealth[0, column] += gain
        wealth[1 + h, column] += gain


@jit_inline
def bet_on_shape(p, y, outcomes, h, wealth):
    """Bets that need p only: q uniform, q ∝ √p, q ∝ p²; p = p(y) at the outcome y."""
    roots, squares = 0.0, 0.0
    for j in range(p.size):
        if p[j] > 0.0:
            roots += np.sqrt(p[j])
            squares += p[j] * p[j]
    bet(wealth, h, UNIFORM, 1.0 / (outcomes * y))
    bet(wealth, h, FLATTER, 1.0 / (np.sqrt(y) * roots))
    bet(wealth, h, SHARPER, y / squares)


# ---------------------------------------------------------------- actions


@jit_part
def bet_on_action(h, a, pi, before, known, wealth):
    """Bets on an action that has positive probability."""
    A = pi.size
    bet_on_shape(pi, pi[a], A, h, wealth)
    if known:
        bet(wealth, h, STALE_POLICY, before[a] / pi[a])
    for j in range(A):
        off = (1.0 if j == a else 0.0) - pi[j]
        bet(wealth, h, EACH_ACTION + 2 * j, 1.0 + off)
        bet(wealth, h, EACH_ACTION + 2 * j + 1, 1.0 - off)


# ---------------------------------------------------------------- states


@jit_part
def check_first(world, s, i, H, A, bets, out):
    """The first state."""
    chance = 0.0
    for j in range(world.initial.size):
        if world.initial_states[j] == s:
            chance += world.initial[j]
    if not chance > 0.0:
        note(i, POSSIBLE, 1.0, s * A, out)
    else:
        outcomes = world.initial.size
        bet_on_shape(world.initial, chance, outcomes, H - 1, bets.successors[0])


@jit_inline
def chance_of(world, p, row, state):
    """Probability of a successor of row (h*S + x)*A + a."""
    chance = 0.0
    for e in range(world.offsets[row], world.offsets[row + 1]):
        if world.states[e] == state:
            chance += p[e]
    return chance


@jit_part
def bet_on_successor(world, p, i, h, s, a, after, bets, out):
    """The successor of (h, s, a)."""
    _, _, S, A = world.rewards.shape
    first = (h * S + s) * A
    row = first + a
    wealth = bets.successors[0]
    chance = chance_of(world, p, row, after)
    if not chance > 0.0:
        note(i, POSSIBLE, 1.0, row, out)
        return
    own = p[world.offsets[row] : world.offsets[row + 1]]
    outcomes = 0
    for e in range(own.size):
        outcomes += own[e] > 0.0
    bet_on_shape(own, chance, outcomes, h, wealth)
    bet(wealth, h, FIRST_WORLD, chance_of(world, bets.first_p, row, after) / chance)
    if h > 0:
        bet(wealth, h, STEP_BEFORE, chance_of(world, p, row - S * A, after) / chance)
    total = chance
    for j in range(1, A):
        other = chance_of(world, p, first + (a + j) % A, after)
        total += other
        bet(wealth, h, OTHER_ACTION + j - 1, other / chance)
    bet(wealth, h, ANY_ACTION, total / (A * chance))


# ---------------------------------------------------------------- rewards and utilities


@jit_part
def check_signal(i, m, c, h, s, a, value, signal, bets, out):
    """What was observed at (h, s, a): the mean, or where noisy 0 or 1 with that mean."""
    _, _, S, A = signal.shape
    mean = signal[c, h, s, a]
    place = (h * S + s) * A + a
    if bets.signals.shape[0] == 0:
        off = abs(value - mean)
        if not off <= out.worst[i, OBSERVATIONS]:
            note(i, OBSERVATIONS, off, place, out)
        return
    one = value == 1.0
    chance = mean if one else 1.0 - mean
    if not ((one or value == 0.0) and chance > 0.0):
        note(i, OBSERVATIONS, 1.0, place, out)
        return
    wealth = bets.signals[c]
    if m > 0:
        bet(wealth, h, COPIED, 1.0 / chance if bets.last_values[c, h] == value else 0.0)
        bet_on_mean(wealth, h, LAST_PAIR, bets.last_means[c, h], one, chance)
        bet_on_mean(wealth, h, LAST_WORLD, bets.last_signal[c, h, s, a], one, chance)
        bet_on_mean(wealth, h, FIRST_SIGNAL, bets.first_signal[c, h, s, a], one, chance)
    if h > 0:
        bet_on_mean(wealth, h, EARLIER_SIGNAL, signal[c, h - 1, s, a], one, chance)
    total = 0.0
    for j in range(A):
        total += signal[c, h, s, j]
    bet_on_mean(wealth, h, AVERAGE_SIGNAL, total / A, one, chance)
    off = value - mean
    bet(wealth, h, HIGH, 1.0 + off)
    bet(wealth, h, LOW, 1.0 - off)


@jit_inline
def bet_on_mean(wealth, h, column, mean, one, chance):
    """A bet that the signal is 1 with another probability."""
    bet(wealth, h, column, (mean if one else 1.0 - mean) / chance)


@jit_part
def remember_signals(i, m, fresh, script, signal, bets):
    """What later bets on noisy signals are made of."""
    for c in range(bets.signals.shape[0]):
        _, H, S, A = signal.shape
        for h in range(H):
            bets.last_values[c, h] = script.values[i, c, h]
            bets.last_means[c, h] = signal[c, h, script.states[i, h], script.actions[i, h]]
            if fresh:
                for s in range(S):
                    for a in range(A):
                        bets.last_signal[c, h, s, a] = signal[c, h, s, a]
                        if m == 0:
                            bets.first_signal[c, h, s, a] = signal[c, h, s, a]
