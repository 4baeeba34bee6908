"""Slow twins of the model-free learners, step by step as the papers write them.

A twin acts and learns inside the episode: `begin(thresholds)`, then `act(x)` and
`observe(reward, utilities)` for each step. Nothing is imported from the library.
"""

import math

import numpy as np


def argmax(values):
    """The first of the largest."""
    best = 0
    for i, value in enumerate(values):
        if value > values[best]:
            best = i
    return best


class TripleQ:
    """Triple-Q (Wei, Liu, Ying 2022) or, with resets, NS-Triple-Q (Wei et al. 2023).

    `bonus(t)` and `utility_bonus(t)` are what is added after the t-th visit of a pair.
    """

    def __init__(
        self, H, S, A, K, *, frame, chi, eta, epsilon, bonus, utility_bonus, lift=0.0, resets=False
    ):
        self.H, self.S, self.A, self.K = H, S, A, K
        self.frame, self.chi, self.eta, self.epsilon = frame, chi, eta, epsilon
        self.bonus, self.utility_bonus, self.lift, self.resets = bonus, utility_bonus, lift, resets
        self.Z = [0.0] * K
        self.episodes = 0
        self.reset()
        self.new_sums()

    def reset(self):
        shape = (self.H + 1, self.S, self.A)
        self.Q = np.full(shape, float(self.H))
        self.C = np.full((self.K, *shape), float(self.H))
        self.Q[self.H] = self.C[:, self.H] = 0.0
        self.N = np.zeros(shape, int)

    def new_sums(self):
        self.b_sum = [0.0] * self.K
        self.C_sum = [0.0] * self.K

    def begin(self, thresholds):
        self.h, self.before = 0, None
        self.b = thresholds
        return np.array(
            [[np.eye(self.A)[self.greedy(h, x)] for x in range(self.S)] for h in range(self.H)]
        )

    def greedy(self, h, x):
        pseudo = [
            self.Q[h, x, a] + sum(self.Z[k] / self.eta * self.C[k, h, x, a] for k in range(self.K))
            for a in range(self.A)
        ]
        return argmax(pseudo)

    def act(self, x):
        h, a = self.h, self.greedy(self.h, x)
        self.N[h, x, a] += 1
        if h == 0:
            for k in range(self.K):
                self.b_sum[k] += self.b[k]
                self.C_sum[k] += self.C[k, 0, x, a]
        else:
            self.update(self.Q[h, x, a], self.C[:, h, x, a])
        self.before = [h, x, a]
        return a

    def observe(self, reward, utilities):
        self.before += [reward, list(utilities)]
        self.h += 1
        if self.h == self.H:
            self.update(0.0, np.zeros(self.K))
            self.episodes += 1
            if self.episodes % self.frame == 0:
                self.end_of_frame()

    def update(self, V, W):
        """The pair of the step before, once the value of the next one is known."""
        h, x, a, r, g = self.before
        t = self.N[h, x, a]
        alpha = (self.chi + 1) / (self.chi + t)
        self.Q[h, x, a] = (1 - alpha) * self.Q[h, x, a] + alpha * (r + V + self.bonus(t))
        for k in range(self.K):
            target = g[k] + W[k] + self.utility_bonus(t)
            self.C[k, h, x, a] = (1 - alpha) * self.C[k, h, x, a] + alpha * target

    def end_of_frame(self):
        for k in range(self.K):
            b = self.b_sum[k] / self.frame
            self.Z[k] = max(self.Z[k] + b + self.epsilon - self.C_sum[k] / self.frame, 0.0)
        self.new_sums()
        if self.resets:
            self.reset()
            return
        self.N[:] = 0
        for h, x, a in np.ndindex(self.H, self.S, self.A):
            self.Q[h, x, a] += self.lift
            if self.Q[h, x, a] >= self.H or max(self.C[:, h, x, a]) >= self.H:
                self.Q[h, x, a] = self.H
                self.C[:, h, x, a] = self.H

    def multipliers(self):
        return np.array(self.Z) / self.eta


class StagedQLearning:
    """Q-learning with upper confidence bounds in stages (Algorithm 1 of Mao et al. 2021, black
    parts), in one epoch: nothing is ever forgotten."""

    def __init__(self, H, S, A, *, bonus, longest):
        self.H, self.S, self.A, self.bonus = H, S, A, bonus
        lengths = [H]
        while sum(lengths) < longest:
            lengths.append(math.floor((1 + 1 / H) * lengths[-1] + 1e-9))
        self.ends = set(np.cumsum(lengths).tolist())  # L
        self.reset()

    def reset(self):
        H, S, A = self.H, self.S, self.A
        self.Q = np.zeros((H, S, A))
        self.V = np.zeros((H + 1, S))
        for h in range(H):
            self.Q[h], self.V[h] = H - h, H - h
        self.N, self.N_check = np.zeros((H, S, A), int), np.zeros((H, S, A), int)
        self.r_check, self.v_check = np.zeros((H, S, A)), np.zeros((H, S, A))

    def begin(self, thresholds):
        self.h, self.before = 0, None
        return np.array([[np.eye(self.A)[argmax(q)] for q in self.Q[h]] for h in range(self.H)])

    def act(self, x):
        if self.before is not None:
            self.update(self.V[self.h, x])
        a = argmax(self.Q[self.h, x])
        self.before = [self.h, x, a]
        return a

    def observe(self, reward, utilities):
        self.before.append(reward)
        self.h += 1
        if self.h == self.H:
            self.update(0.0)

    def update(self, V):
        h, x, a, r = self.before
        self.r_check[h, x, a] += r
        self.v_check[h, x, a] += V
        self.N[h, x, a] += 1
        self.N_check[h, x, a] += 1
        if self.N[h, x, a] in self.ends:
            n = self.N_check[h, x, a]
            found = self.r_check[h, x, a] / n + self.v_check[h, x, a] / n + self.bonus(n)
            self.Q[h, x, a] = min(self.Q[h, x, a], found)
            self.V[h, x] = max(self.Q[h, x])
            self.N_check[h, x, a] = 0
            self.r_check[h, x, a] = self.v_check[h, x, a] = 0.0

    def multipliers(self):
        return np.zeros(0)


class Restarted:
    """A twin that is built anew every `period` episodes."""

    def __init__(self, build, period):
        self.build, self.period, self.episodes = build, period, 0

    def begin(self, thresholds):
        if self.episodes % self.period == 0:
            self.inner = self.build()
        self.episodes += 1
        return self.inner.begin(thresholds)

    def act(self, x):
        return self.inner.act(x)

    def observe(self, reward, utilities):
        self.inner.observe(reward, utilities)

    def multipliers(self):
        return self.inner.multipliers()


class DoubleRestart:
    """EXP3 (Auer et al. 2002) over twins, one of which is built anew for every epoch.

    `draw()` gives the uniform that decides on the arm of the next epoch.
    """

    def __init__(self, builds, *, epoch, gamma, penalty, H, draw):
        self.builds, self.epoch, self.gamma, self.penalty = builds, epoch, gamma, penalty
        self.H, self.draw = H, draw
        self.w = [1.0] * len(builds)
        self.episodes, self.arms = 0, []
        self.new_epoch()

    def probabilities(self):
        n = len(self.w)
        return [(1 - self.gamma) * w / sum(self.w) + self.gamma / n for w in self.w]

    def new_epoch(self):
        u, below, arm = self.draw(), 0.0, -1
        while u >= below and arm + 1 < len(self.w):
            arm += 1
            below += self.probabilities()[arm]
        self.arms.append(arm)
        self.inner = self.builds[arm]()
        self.reward, self.surplus = 0.0, 0.0

    def begin(self, thresholds):
        self.h = 0
        self.surplus = self.surplus - np.array(thresholds)
        return self.inner.begin(thresholds)

    def act(self, x):
        return self.inner.act(x)

    def observe(self, reward, utilities):
        self.inner.observe(reward, utilities)
        self.reward += reward
        self.surplus = self.surplus + np.array(utilities)
        self.h += 1
        if self.h == self.H:
            self.episodes += 1
            if self.episodes % self.epoch == 0:
                self.end_of_epoch()
                self.new_epoch()

    def end_of_epoch(self):
        W, H, K, rho = self.epoch, self.H, len(self.surplus), self.penalty
        good = self.reward / W + rho * sum(H - max(-x / W, 0.0) for x in self.surplus)
        x = good / (H * (1 + rho * K))
        arm, n = self.arms[-1], len(self.w)
        self.w[arm] *= math.exp(self.gamma * x / self.probabilities()[arm] / n)

    def multipliers(self):
        return self.inner.multipliers()
