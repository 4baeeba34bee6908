"""A slow, obvious twin of the filters and of the window that they decide. It shares no code.

Arrays are dense, axes [signal, filter, step, state, action, next state]; episodes count from 0.
"""

import numpy as np

SHARE, SPREAD, MOST, FLOOR, LEAST, REFRESH = 1e-4, 0.1, 30.0, 1e-6, 1e-7, 64
TILTS = -1, 1, -2, 2


class Scores:
    """Weights and alarm statistics of the filters of one quantity."""

    def __init__(self, kappa, limit):
        self.kappa, self.limit = np.array(kappa), limit
        n = len(kappa)
        self.weight, self.v, self.seen = np.full(n, 1 / n), np.full(n, 0.1), 0
        self.C, self.since = np.zeros((n, n)), np.zeros((n, n), int)
        self.excess, self.observations = np.zeros((n, n)), np.zeros((n, n))
        self.best, self.tails = 0, np.exp([0.5, 0.5, 2, 2])
        self.followed, self.alarm, self.changed = 0, False, False

    def see_error(self, z):
        """Average e^(λz) in, for a standardised error of the heaviest filter."""
        rate = max(1 / (self.seen + 20), 1e-4)
        tails = np.exp(np.clip(z, -8, 8) * np.array(TILTS))
        self.tails = (1 - rate) * self.tails + rate * tails

    def settle(self, loss, square, observations, m, normal=False):
        """Take the losses (filters,) and squared errors of episode m."""
        excess = np.max(np.log(self.tails) / (0.5 * np.array(TILTS) ** 2)) if normal else 1
        behind, n = loss - loss.min(), len(loss)
        loss = np.minimum(behind / max(excess, 1), MOST)
        for k in range(n):
            for j in range(k + 1, n):
                C = self.C[k, j] + loss[k] - loss[j]
                if C > 0:
                    self.C[k, j] = C
                    self.excess[k, j] += square[k] - square[j]
                    self.observations[k, j] += observations
                else:
                    self.reset(k, j, m)
        weight = self.weight * np.exp(-np.minimum(behind, MOST))
        self.weight = (1 - SHARE) * weight / weight.sum() + SHARE / n
        self.best = int(self.weight.argmax())

    def reset(self, k, j, m):
        self.C[k, j] = self.excess[k, j] = self.observations[k, j] = 0
        self.since[k, j] = m + 1

    def answer(self, correct, m):
        """Correct alarmed filters by correct(k, j, since, mean excess squared error)."""
        before, self.alarm = self.followed, False
        for k in range(len(self.kappa)):
            ahead = [(-self.C[k, j], j) for j in range(k + 1, len(self.kappa))
                     if self.C[k, j] > self.limit]  # fmt: skip
            if ahead:
                j = min(ahead)[1]
                size = self.excess[k, j] / max(self.observations[k, j], 1)
                correct(k, j, self.since[k, j], max(size, 0.0))
                self.weight[k] = max(self.weight[k], self.weight[j])
                for i in range(k + 1, len(self.kappa)):
                    self.reset(k, i, m)
                self.alarm |= k == before
        self.followed = int(self.weight.argmax())
        self.changed = self.alarm or self.followed != before


class AdaptiveWindow:
    """Counts n3 (H, S, A, S), n (H, S, A) and sums (1+K, H, S, A) as the best filters have them."""

    def __init__(self, sizes, move_rates, signal_rates, limits):
        _, H, S, A, K = self.sizes = sizes
        pairs = (H, S, A)
        self.moves = Scores(move_rates, limits[0])
        self.signals = [Scores(signal_rates, limits[1]) for _ in range(1 + K)]
        self.alpha = np.full(len(move_rates), 0.5 / S)  # concentration of successors
        self.n = np.zeros((len(move_rates), *pairs))
        self.n3 = np.zeros((len(move_rates), *pairs, S))
        self.signal_n = np.zeros((1 + K, len(signal_rates), *pairs))
        self.mean = np.zeros((1 + K, len(signal_rates), *pairs))
        self.last = np.full(pairs, -1)
        self.binary = np.ones(1 + K, bool)
        self.m = 0
        self.counts = np.zeros((*pairs, S)), np.zeros(pairs), np.zeros((1 + K, *pairs))

    def add(self, states, actions, rewards, utilities):
        _, H, S, A, K = self.sizes
        signals = np.vstack([rewards, utilities])
        move_loss, move_square = np.zeros((2, len(self.moves.kappa)))
        loss, square = np.zeros((2, 1 + K, len(self.signals[0].kappa)))
        for h in range(H):
            pair = h, states[h], actions[h]
            passed = self.m - self.last[pair] if self.last[pair] >= 0 else 0
            for i in range(1 + K):
                if self.binary[i] and signals[i, h] not in (0, 1):
                    self.binary[i] = False
                    loss[i] = 0
                found = self.see_signal(i, pair, signals[i, h], passed)
                loss[i] += found[0]
                square[i] += found[1]
            shrunk = 1 / (1 + self.moves.kappa * self.n[:, *pair] * passed)
            self.n[:, *pair] *= shrunk
            self.n3[:, *pair] *= shrunk[:, None]
            if h + 1 < H:
                y = states[h + 1]
                self.moves.seen += 1
                rate, alpha = 0.5 / np.sqrt(1 + 0.02 * self.moves.seen), self.alpha
                q = (self.n3[:, *pair, y] + alpha) / (self.n[:, *pair] + S * alpha)
                slope = 1 / (self.n3[:, *pair, y] + alpha) - S / (self.n[:, *pair] + S * alpha)
                self.alpha = np.clip(alpha * (1 + rate * alpha * slope), 0.05 / S, 2.0)
                move_loss -= np.log(q)
                move_square += (1 - q) ** 2
                self.n3[:, *pair, y] += 1
            self.n[:, *pair] += 1
            self.last[pair] = self.m
        if H > 1:
            self.moves.settle(move_loss, move_square, H - 1, self.m)
        for i in range(1 + K):
            self.signals[i].settle(loss[i], square[i], H, self.m, not self.binary[i])
        self.moves.answer(self.correct_moves, self.m)
        for i in range(1 + K):
            self.signals[i].answer(lambda *alarm, i=i: self.correct_signal(i, *alarm), self.m)
        self.write(states, actions)
        self.m += 1

    def see_signal(self, i, pair, x, passed):
        """Losses and squared errors (filters,) at an observation, which is then averaged in."""
        scores = self.signals[i]
        scores.seen += 1
        rate = max(1 / (scores.seen + 1), 1e-3)
        n, mean = self.signal_n[i, :, *pair], self.mean[i, :, *pair]
        n = n / (1 + scores.kappa * n * passed)
        guess = np.array([n[k] * mean[k] / n[k] if n[k] > 0 else 0.5 for k in range(len(n))])
        error, v = (x - guess) ** 2, scores.v
        variance = v + SPREAD
        for k in range(len(n)):
            if n[k] > 0:
                variance[k] = max(min(v[k] * (1 + 1 / n[k]), variance[k]), LEAST)
        if self.binary[i]:
            q = (n * guess + 0.5) / (n + 1)
            loss = -np.log(q if x == 1 else 1 - q)
        else:
            loss = 0.5 * error / variance + 0.5 * np.log(variance)
            scores.see_error((x - guess[scores.best]) / np.sqrt(variance[scores.best]))
        scores.v = np.maximum(v + (error * v / variance - v) * rate, FLOOR)
        self.signal_n[i, :, *pair] = n + 1
        self.mean[i, :, *pair] = mean + (x - mean) / (n + 1)
        return loss, error

    def correct_moves(self, k, j, since, size):
        for pair in np.argwhere(self.last >= 0):
            at_k, at_j = (k, *pair), (j, *pair)
            if self.last[tuple(pair)] >= since:
                self.n[at_k], self.n3[at_k] = self.n[at_j], self.n3[at_j]
            else:
                n = self.n[at_k]
                factor = min(n / (1 + np.sqrt(2 * size * n)) ** 2, self.n[at_j]) / n
                self.n[at_k] *= factor
                self.n3[at_k] *= factor

    def correct_signal(self, i, k, j, since, size):
        J = size / self.signals[i].v[j]
        for pair in np.argwhere(self.last >= 0):
            at_k, at_j = (i, k, *pair), (i, j, *pair)
            if self.last[tuple(pair)] >= since:
                self.signal_n[at_k], self.mean[at_k] = self.signal_n[at_j], self.mean[at_j]
            else:
                self.signal_n[at_k] /= (1 + np.sqrt(J * self.signal_n[at_k])) ** 2

    def write(self, states, actions):
        n3, n, sums = self.counts
        pairs = [(h, states[h], actions[h]) for h in range(len(states))]
        if any(s.changed for s in (self.moves, *self.signals)) or self.m % REFRESH == 0:
            pairs = [tuple(pair) for pair in np.argwhere(self.last >= 0)]
        k = self.moves.followed
        for pair in pairs:
            passed = self.m - self.last[pair]
            counted = self.n[(k, *pair)]
            n[pair] = counted / (1 + self.moves.kappa[k] * counted * passed)
            if self.forgotten(pair, passed):
                n[pair] = 0
            n3[pair] = self.n3[(k, *pair)] * n[pair] / counted
            for i, scores in enumerate(self.signals):
                sums[(i, *pair)] = n[pair] * self.mean[(i, scores.followed, *pair)]

    def forgotten(self, pair, passed):
        """v/n > the variance between pairs, for some signal, unless just visited."""
        for i, scores in enumerate(self.signals):
            k = scores.followed
            n = self.signal_n[(i, k, *pair)]
            if passed > 0 and scores.v[k] * (1 / n + scores.kappa[k] * passed) > SPREAD:
                return True
        return False
