"""A window that ends where the data stop looking alike: a test of every visited pair, every visit.

A stream is what one pair shows of one quantity, a number in [0, 1] per visit: its reward, a
utility, or whether the successor was x'. Cut into an old part of n₀ visits with mean p₀ and a new
one of n₁ with p₁, p the mean of both, a stream looks inhomogeneous where

    n₀ kl(p₀, p) + n₁ kl(p₁, p) > c + ½ log 4n₀ + ½ log 4n₁,    kl(p, q) = p log p/q
                                                                  + (1-p) log (1-p)/(1-q)

The left side is the generalised likelihood ratio of Bernoulli streams with and without a change.
Let the stream have mean q given its past. For each p' the ratio Π (p'/q)^x ((1-p')/(1-q))^(1-x) is
a supermartingale, also for x between 0 and 1, and so is its mixture over p' ~ Beta(1/2, 1/2). The
mixture is at least exp(n kl(p, q))/√(4n) after n visits (Krichevsky and Trofimov 1981). So the
product of one mixture for the old part and one for the new is above e^c wherever the test fires,
and Ville's inequality bounds the probability by e^-c for each cut. An episode makes one cut in each
stream of the H pairs that it visits, H (1+K) + (H-1) S at most: with

    c = log((H (1+K) + (H-1) S) / rate)

a world that stands still raises an alarm within n episodes with probability n·rate at most.
(Besson, Kaufmann, Maillard and Seznec 2022 test bandits in this way.)

Memory. Visits of a pair lie in buckets of 1, 1, 2, 2, 4, 4, ... visits, newest first, one or two of
each size (Datar et al. 2002; ADWIN of Bifet and Gavaldà 2007): cuts are between buckets. The last
bucket takes what is older than all others.

An alarm. Of all cuts that fire, the one with the largest excess says since when the world is a new
one. All pairs keep the buckets that began then or later; the learner's window holds these and what
comes after. The buckets themselves are emptied: the next test begins with fresh data, as Ville's
inequality wants it.
"""

from __future__ import annotations

import numpy as np

from safedrift.kernels.elementary import log_of
from safedrift.kernels.tabular import window as data
from safedrift.kernels.types import jit_inline, jit_part, jit_shared


@jit_shared
def compare(states, actions, signals, test, hyper, memory):
    """Test the pairs of an episode that is in the window, and drop what looks outdated.

    Parameters
    ----------
    states, actions : (H,)
    signals : (1+K, H)
    test : HomogeneityTest, or None: the window forgets in another way
    """
    if test is None:
        return
    for q in range(test.alarm.size):
        test.alarm[q] = False
    most, since = 0.0, np.int64(-1)
    ahead = np.int64(-1)
    for h in range(states.size - 1, -1, -1):
        i = data.find(h, states[h], memory.policy)
        a = actions[h]
        add_visit(h, a, i, ahead, signals, test, memory)
        excess, first = check_pair(h, a, i, test, memory.window)
        if excess > most:
            most, since = excess, first
        ahead = i
    if since >= 0:
        drop_before(since, hyper, test, memory)


# ---------------------------------------------------------------- buckets


@jit_part
def add_visit(h, a, i, ahead, signals, test, memory):
    """Put a visit into a bucket of its own; where two have its size already, they are merged."""
    visits = test.visits[h, a, i]
    level = 0
    while level < visits.size // 2 - 1 and visits[2 * level + 1] > 0.0:
        level += 1
    place = 2 * level + (visits[2 * level] > 0.0)
    overflows = visits[2 * level + 1] > 0.0
    make_place(visits, level, place, overflows, False)
    make_place(test.first[h, a, i], level, place, overflows, True)
    free = place if level == 0 else 0
    visits[free] = 1.0
    test.first[h, a, i, free] = memory.clock.episode[0]
    for j in range(signals.shape[0]):
        make_place(test.sums[j, h, a, i], level, place, overflows, False)
        test.sums[j, h, a, i, free] = signals[j, h]
    window = memory.window
    if h + 1 < window.active.size:
        e = np.int64(window.last[h, a, i])
        while e >= 0:
            make_place(test.times[h, e], level, place, overflows, False)
            test.times[h, e, free] = 1.0 if window.edge_next[h, e] == ahead else 0.0
            e = np.int64(window.edge_before[h, e])


@jit_inline
def make_place(x, level, place, overflows, keeps_older):
    """Empty the first bucket: full sizes below `level` move up one size, two buckets into one."""
    if overflows:  # the oldest bucket of all takes the one after it
        last = x.size - 1
        x[last - 1] = x[last - 1] if keeps_older else x[last - 1] + x[last]
    for j in range(level, 0, -1):
        older, newer = x[2 * j - 2], x[2 * j - 1]
        x[place if j == level else 2 * j] = older if keeps_older else older + newer
        x[2 * j - 2] = 0
        x[2 * j - 1] = 0


# ---------------------------------------------------------------- the test


@jit_part
def check_pair(h, a, i, test, window):
    """Largest excess of a cut of the pair's streams, and the first episode of its new part.

    Raises the alarms of the streams that fire; excess 0 where none does.
    """
    visits = test.visits[h, a, i]
    n = 0.0
    for b in range(visits.size):
        n += visits[b]
    most, at = 0.0, -1
    for j in range(test.sums.shape[0]):
        excess, b = largest_excess(test.sums[j, h, a, i], visits, n, test.settings.limit)
        test.alarm[1 + j] |= excess > 0.0
        if excess > most:
            most, at = excess, b
    e = np.int64(window.last[h, a, i]) if h + 1 < window.active.size else np.int64(-1)
    while e >= 0:
        excess, b = largest_excess(test.times[h, e], visits, n, test.settings.limit)
        test.alarm[0] |= excess > 0.0
        if excess > most:
            most, at = excess, b
        e = np.int64(window.edge_before[h, e])
    return most, test.first[h, a, i, at] if at >= 0 else np.int64(-1)


@jit_part
def largest_excess(x, visits, n, limit):
    """Best cut of a stream with sums x (buckets,): its excess, and the new part's last bucket."""
    s = 0.0
    for b in range(x.size):
        s += x[b]
    most, at = 0.0, -1
    n1 = s1 = 0.0
    for k in range(x.size):
        b = k ^ 1  # of two buckets of a size, the second is the newer one
        n1 += visits[b]
        s1 += x[b]
        n0, s0 = n - n1, s - s1
        if visits[b] == 0.0 or n0 <= 0.0:
            continue
        d = s1 * n0 - s0 * n1
        if d * d * n > limit * n0 * n1 * s * (n - s):  # χ², which is at least the ratio
            ratio = entropy(s, n) - entropy(s0, n0) - entropy(s1, n1)
            excess = ratio - limit - 0.5 * log_of(16.0 * n0 * n1)
            if excess > most:
                most, at = excess, b
    return most, at


@jit_inline
def entropy(s, n):
    """-s log(s/n) - (n-s) log((n-s)/n): n times the entropy of a share."""
    found = 0.0
    if s > 0.0:
        found -= s * log_of(s / n)
    if n - s > 0.0:
        found -= (n - s) * log_of((n - s) / n)
    return found


# ---------------------------------------------------------------- an alarm


@jit_part
def drop_before(since, hyper, test, memory):
    """Leave in the window what lies in buckets that began at episode `since` or later."""
    window = memory.window
    H, A, _ = window.visits.shape
    for h in range(H):
        for a in range(A):
            for i in range(window.active[h]):
                keep_pair(h, a, i, since, hyper, test, window)


@jit_part
def keep_pair(h, a, i, since, hyper, test, window):
    """Write the pair's buckets since then to the window, and empty all of them."""
    visits, first = test.visits[h, a, i], test.first[h, a, i]
    data.set_count(h, a, i, taken(visits, first, since), hyper, window)
    for j in range(test.sums.shape[0]):
        window.signal_sums[j, h, a, i] = taken(test.sums[j, h, a, i], first, since)
    e = np.int64(window.last[h, a, i])
    while e >= 0:
        window.edge_times[h, e] = taken(test.times[h, e], first, since)
        e = np.int64(window.edge_before[h, e])
    for b in range(first.size):
        first[b] = 0


@jit_inline
def taken(x, first, since):
    """Sum of the buckets that began at episode `since` or later; all are emptied."""
    total = 0.0
    for b in range(x.size):
        if first[b] >= since:
            total += x[b]
        x[b] = 0.0
    return total
