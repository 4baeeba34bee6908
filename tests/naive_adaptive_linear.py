"""Slow twin of the planner on filtered coefficients: dense arrays, NumPy's linear algebra.

Written from the formulas, one observation at a time. It shares no code with the kernels and takes
from the learner only its numbers, its basis of what is unknown of transitions (checked against a
pseudo-inverse), and the policy that the planner found.
"""

import numpy as np


def first_guess(psi):
    """theta_0, and a projection onto the directions that change no row sum."""
    sums = psi.sum(axis=3).reshape(-1, psi.shape[-1])
    theta = np.linalg.pinv(sums) @ np.ones(len(sums))
    return theta, np.eye(sums.shape[1]) - np.linalg.pinv(sums) @ sums


def fit_of_half(phi):
    """theta whose signals are closest to 1/2, with a tiny ridge, and the unit."""
    rows = phi.reshape(-1, phi.shape[-1])
    if ((rows == 0) | (rows == 1)).all() and (rows.sum(axis=1) == 1).all():  # unit vectors
        return np.full(rows.shape[1], 0.5), 1.0
    average = (rows**2).sum(axis=1).mean()
    gram = rows.T @ rows + 1e-6 * average * len(rows) * np.eye(rows.shape[1])
    return np.linalg.solve(gram, 0.5 * rows.sum(axis=0)), 1 / average


def grown(cov, step, most):
    """cov + step * I, rows and columns shrunk in turn so that no variance exceeds `most`."""
    cov = cov + step * np.eye(len(cov))
    factor = np.sqrt(np.minimum(1.0, most / np.diag(cov)))
    return factor[:, None] * cov * factor


def first_largest(values):
    """Place of the largest value, the first among those that differ by rounding only."""
    found = None
    for place, value in np.ndenumerate(values):
        if found is None or value > (1 + 1e-9) * values[found]:
            found = place
    return found


class Filter:
    """Mean and covariance."""

    def __init__(self, mean, cov):
        self.mean, self.cov = mean.copy(), cov.copy()


class Experts:
    """Weights, errors and alarm statistics of (k, pool)."""

    def __init__(self, k):
        self.weight = np.full((k, 2), 0.5 / k)
        self.v = np.full((k, 2), 0.1)
        self.seen = 0
        self.C = np.zeros((k, k))
        self.loss = np.zeros((k, 2))

    def settle(self):
        loss = np.minimum(self.loss - self.loss.min(), 30.0)
        pool = first_largest(self.weight)[1]
        for k in range(len(loss)):
            for j in range(k + 1, len(loss)):
                self.C[k, j] = max(0.0, self.C[k, j] + loss[k, pool] - loss[j, pool])
        weight = self.weight * np.exp(-loss)
        self.weight = (1 - 1e-4) * weight / weight.sum() + 1e-4 / weight.size
        self.loss = np.zeros_like(loss)

    def chosen(self):
        """(k, pool, share) of up to three experts."""
        left, order = self.weight.copy(), []
        for _ in range(3):
            kl = first_largest(left)
            order += [kl] if self.weight[kl] >= 0.05 * self.weight.max() else []
            left[kl] = 0.0
        total = sum(self.weight[kl] for kl in order)
        return [(*kl, self.weight[kl] / total) for kl in order]


class Quantity:
    """Filters and experts of transitions, of the reward or of a utility.

    Covariances are kept in coordinates basis.T @ theta.
    """

    def __init__(self, H, rates, mean, basis, unit, prior, limit):
        self.H, self.rates, self.basis, self.unit, self.prior = H, rates, basis, unit, prior
        self.limit = limit
        start = np.zeros(basis.shape[1]) if mean is None else mean
        cov = prior * np.eye(basis.shape[1])
        self.filters = [[Filter(start, cov) for _ in range(H + 1)] for _ in rates]
        self.experts = Experts(len(rates))
        self.binary = True
        self.alarms = np.zeros(len(rates), int)

    def age(self):
        for rate, filters in zip(self.rates, self.filters, strict=True):
            for one in filters:
                if rate > 0:
                    one.cov = grown(one.cov, rate * self.unit, self.prior)

    def answer(self, doubt, relative):
        """Alarms: whether one of them matters."""
        e, changed = self.experts, False
        for k in range(len(self.rates)):
            if not (e.C[k] > self.limit + 1e-9).any():
                continue
            (j,) = first_largest(e.C[k])
            self.alarms[k] += 1
            changed |= e.weight[k].max() >= 0.05 * e.weight.max()
            v = e.v[j, first_largest(e.weight)[1]] if relative else 1.0
            for wrong, right in zip(self.filters[k], self.filters[j], strict=True):
                jump = ((right.mean - wrong.mean) ** 2).sum()
                n = len(right.mean)
                wrong.mean = right.mean.copy()
                extra = doubt / v * jump / n if n else 0.0
                wrong.cov = grown(right.cov, extra, self.prior)
            e.weight[k] = np.maximum(e.weight[k], e.weight[j])
            e.v[k] = e.v[j]
            e.C[k] = 0.0
            changed |= first_largest(e.weight)[0] == k
        return bool(changed)

    def average(self, h, relative):
        """Mean and covariance of the heaviest experts at step h."""
        chosen = self.experts.chosen()
        parts = [self.filters[k][self.H if pool else h] for k, pool, _ in chosen]
        mean = sum(w * part.mean for (_, _, w), part in zip(chosen, parts, strict=True))
        cov = 0.0
        for (k, pool, w), part in zip(chosen, parts, strict=True):
            v = self.experts.v[k, pool] if relative else 1.0
            cov = cov + w * (v * part.cov + np.outer(part.mean - mean, part.mean - mean))
        return mean, cov


class Twin:
    """The learner, but for the solution of the constrained problem, which it is told.

    Parameters
    ----------
    psi : (H, S, A, S, d1), support : (H, S, A, S) entries of the successor lists
    phi : (H, S, A, d2)
    basis : (d1, f) orthonormal directions that change no row sum; z = basis.T @ (theta - theta_0)
    settings : numbers of the learner, as a dict
    """

    def __init__(self, psi, support, phi, K, basis, settings):
        self.psi, self.support, self.phi, self.settings = psi, support, phi, settings
        self.H = len(psi)
        self.theta0, project = first_guess(psi)
        assert np.allclose(basis @ basis.T, project, atol=1e-9)
        guess, unit = fit_of_half(phi)
        q = (self.theta0**2).sum() / self.theta0.size
        names = ("move_rates", "signal_rates", "limits", "signal_prior")
        move_rates, signal_rates, limits, signal_prior = (settings[name] for name in names)
        self.moves = Quantity(self.H, move_rates, None, basis, q, q, limits[0])
        identity = np.eye(phi.shape[-1])
        self.signals = [
            Quantity(self.H, signal_rates, guess, identity, unit, signal_prior * unit, limits[1])
            for _ in range(1 + K)
        ]
        self.episode, self.next_plan, self.last_alarm = 0, 1, 0
        self.changed = np.zeros(2 + K, bool)

    # ------------------------------------------------------------ learning

    def row(self, h, s, a, z):
        """Probabilities that a filter predicts with, without the share of the uniform one."""
        p = self.psi[h, s, a] @ (self.theta0 + self.moves.basis @ z)
        p = np.where(self.support[h, s, a], np.maximum(p, 0.0), 0.0)
        return p / p.sum()

    def learn(self, states, actions, signals):
        for quantity in (self.moves, *self.signals):
            quantity.age()
        info, score = 0.0, 0.0
        for h, (s, a) in enumerate(zip(states, actions, strict=True)):
            for c, quantity in enumerate(self.signals):
                self.see_signal(quantity, h, self.phi[h, s, a], signals[c][h])
            if h + 1 < self.H:
                found = self.see_successor(h, s, a, states[h + 1])
                info, score = info + found[0], score + found[1]
        if self.H > 1:
            for filters in self.moves.filters:
                self.absorb(filters[self.H], info, score)
            self.moves.experts.settle()
            self.changed[0] = self.moves.answer(self.settings["doubt"], False)
        for c, quantity in enumerate(self.signals):
            quantity.experts.settle()
            self.changed[1 + c] = quantity.answer(self.settings["doubt"], True)
        self.episode += 1
        if self.changed.any():
            self.last_alarm = self.next_plan = self.episode

    def see_signal(self, quantity, h, phi, y):
        e = quantity.experts
        if quantity.binary and y not in (0.0, 1.0):
            quantity.binary = False
            e.loss[:] = 0.0
        e.seen += 1
        for k, filters in enumerate(quantity.filters):
            for pool, one in enumerate((filters[h], filters[self.H])):
                linear, u = phi @ one.mean, phi @ one.cov @ phi
                mean = np.clip(linear, 0, 1)
                variance = np.clip(e.v[k, pool] * (1 + u), 1e-6, e.v[k, pool] + 0.1)
                if quantity.binary:
                    q = (mean + u / 2) / (1 + u)
                    e.loss[k, pool] -= np.log(max(q if y == 1 else 1 - q, 1e-6))
                else:
                    e.loss[k, pool] += 0.5 * (y - mean) ** 2 / variance + 0.5 * np.log(variance)
                rate = max(1 / (e.seen + 1), 1e-3)
                e.v[k, pool] += ((y - mean) ** 2 * e.v[k, pool] / variance - e.v[k, pool]) * rate
                e.v[k, pool] = max(e.v[k, pool], 1e-5)
                gain = one.cov @ phi / (1 + u)
                one.mean = one.mean + gain * (y - linear)
                one.cov = one.cov - np.outer(gain, one.cov @ phi)

    def see_successor(self, h, s, a, state):
        e, inside = self.moves.experts, self.support[h, s, a]
        for k, filters in enumerate(self.moves.filters):
            for pool, one in enumerate((filters[h], filters[self.H])):
                q = (1 - 1e-3) * self.row(h, s, a, one.mean)[state] + 1e-3 / inside.sum()
                e.loss[k, pool] -= np.log(q)
        psi = self.psi[h, s, a][inside]
        base, x = psi @ self.theta0, psi @ self.moves.basis
        weight = 1 / np.maximum(base, 1e-3 / inside.sum())
        hit = (np.flatnonzero(inside) == state).astype(float)
        info, score = x.T @ (weight[:, None] * x), x.T @ (weight * (hit - base))
        for filters in self.moves.filters:
            self.absorb(filters[h], info, score)
        return info, score

    @staticmethod
    def absorb(one, info, score):
        if one.mean.size:
            one.cov = np.linalg.inv(np.linalg.inv(one.cov) + info)
            one.mean = one.mean + one.cov @ (score - info @ one.mean)

    # ------------------------------------------------------------ planning

    def due(self, thresholds, planned):
        moved = self.episode > 0 and np.abs(thresholds - planned).max() > self.settings["moved"]
        return bool(self.episode >= self.next_plan or moved)

    def plan_made(self):
        wait = np.clip((self.episode - self.last_alarm) / self.settings["pace"], 1, None)
        self.next_plan = self.episode + int(min(wait, self.settings["every"]))

    def model(self, mu, values, attempt):
        """P (H, S, A, S), means and signals with bonuses (1+K, H, S, A).

        `mu` and `values` (1+K, H, S) are those of the plan before; `attempt` counts from 0.
        """
        H, S, A, _, _ = self.psi.shape
        C = len(self.signals)
        P, means, bonused = np.zeros((H, S, A, S)), np.zeros((C, H, S, A)), np.zeros((C, H, S, A))
        for h in range(H):
            z, cov = self.moves.average(h, False)
            found = [quantity.average(h, True) for quantity in self.signals]
            for s in range(S):
                for a in range(A):
                    phi = self.phi[h, s, a]
                    u = np.array([min(phi @ part[1] @ phi, 0.1) for part in found])
                    for c in range(C):
                        means[c, h, s, a] = np.clip(phi @ found[c][0], 0, 1)
                    ahead = np.zeros((C, z.size))
                    if h + 1 < H:
                        P[h, s, a] = self.row(h, s, a, z)
                        x = np.where(self.support[h, s, a][:, None], self.psi[h, s, a], 0.0)
                        ahead = values[:, h + 1] @ x @ self.moves.basis
                    whole = ahead[0] + mu @ ahead[1:]
                    r = u[0] + (mu**2) @ u[1:] + whole @ cov @ whole
                    c_r = self.settings["reward_bonus"]
                    c_g = self.settings["utility_bonus"] * 5**attempt
                    bonused[0, h, s, a] = means[0, h, s, a] + c_r * np.sqrt(r)
                    for c in range(1, C):
                        g = means[c, h, s, a] + c_g * np.sqrt(u[c] + ahead[c] @ cov @ ahead[c])
                        bonused[c, h, s, a] = min(g, 1.0)
        return P, means, bonused
