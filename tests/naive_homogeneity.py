"""A slow twin of the window with a homogeneity test: lists of visits, every sum taken anew."""

import numpy as np


def kl(p, q):
    """Divergence of two Bernoulli variables."""
    terms = [(p, q), (1 - p, 1 - q)]
    return sum(x * np.log(x / y) for x, y in terms if x > 0)


def excess(old, new, limit):
    """By how much the likelihood ratio of a cut passes what Ville's inequality asks for."""
    n0, n1 = len(old), len(new)
    p = (sum(old) + sum(new)) / (n0 + n1)
    ratio = sum(len(part) * kl(np.mean(part), p) for part in (old, new)) if 0 < p < 1 else 0.0
    return ratio - limit - np.log(4 * n0) / 2 - np.log(4 * n1) / 2


def with_visit(buckets, visit, sizes):
    """Buckets, the oldest first, with one visit more: of three of a size the older two are one.

    Of the largest of `sizes` sizes there may be two; a third makes the oldest bucket longer.
    """
    buckets = [*buckets, [visit]]
    for size in (2**j for j in range(sizes - 1)):
        same = [i for i, bucket in enumerate(buckets) if len(bucket) == size]
        if len(same) == 3:
            i = same[0]
            buckets[i : i + 2] = [buckets[i] + buckets[i + 1]]
    large = [bucket for bucket in buckets if len(bucket) >= 2 ** (sizes - 1)]
    if len(large) == 3:
        buckets[:2] = [buckets[0] + buckets[1]]
    return buckets


class HomogeneityWindow:
    """Counts that hold what was seen since the last change that the test found.

    `visits[h, s, a]` is what the counts are made of, `buckets` what has been seen since the last
    alarm: visits are (episode, signals, successor or None).
    """

    def __init__(self, sizes, rate, levels=16):
        _, self.H, self.S, self.A, self.K = sizes
        self.levels = levels
        streams = self.H * (1 + self.K) + (self.H - 1) * self.S
        self.limit = np.log(streams / rate)
        self.visits, self.buckets, self.m = {}, {}, 0

    def add(self, states, actions, rewards, utilities):
        """Take in an episode and test the pairs that it visited."""
        signals = np.vstack((rewards, utilities))
        self.alarm = np.zeros(2 + self.K, bool)
        best, since = 0.0, None
        for h in range(self.H):
            key = h, states[h], actions[h]
            visit = self.m, signals[:, h], states[h + 1] if h + 1 < self.H else None
            self.visits.setdefault(key, []).append(visit)
            self.buckets[key] = with_visit(self.buckets.get(key, []), visit, self.levels)
            for quantity, stream in self.streams(key):
                for cut in range(1, len(self.buckets[key])):
                    start = sum(len(bucket) for bucket in self.buckets[key][:cut])
                    found = excess(stream[:start], stream[start:], self.limit)
                    self.alarm[quantity] |= found > 0
                    if found > best:
                        best, since = found, self.buckets[key][cut][0][0]
        if since is not None:
            self.visits = {
                key: [visit for bucket in buckets if bucket[0][0] >= since for visit in bucket]
                for key, buckets in self.buckets.items()
            }
            self.buckets = {}
        self.m += 1

    def streams(self, key):
        """Quantity and values of everything that was seen of a pair since the last alarm."""
        seen = [visit for bucket in self.buckets[key] for visit in bucket]
        for i in range(1 + self.K):
            yield 1 + i, [signals[i] for _, signals, _ in seen]
        for successor in sorted({ahead for _, _, ahead in seen if ahead is not None}):
            yield 0, [float(ahead == successor) for _, _, ahead in seen]

    @property
    def counts(self):
        """Transitions (H, S, A, S), visits (H, S, A) and sums of signals (1+K, H, S, A)."""
        shape = self.H, self.S, self.A
        n3, n, sums = np.zeros((*shape, self.S)), np.zeros(shape), np.zeros((1 + self.K, *shape))
        for key, visits in self.visits.items():
            for _, signals, ahead in visits:
                n[key] += 1
                sums[(slice(None), *key)] += signals
                if ahead is not None:
                    n3[(*key, ahead)] += 1
        return n3, n, sums
