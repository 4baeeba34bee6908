"""A slow twin of the adaptive planner: dictionaries of pairs, every loss a logarithm of its own.

Shares nothing with the compiled code: no cells, edges, scaled counts or products of probabilities.
`Filters` learns from episodes, `Promises` from returns; `model_of` writes the model to plan on as
dense arrays, `optimum` solves it as a linear program, `evaluation` gives values of a policy in it.

As long as every pair (s, a) was seen at one step only, an expert that pools everything predicts
what the one that pools nothing does: weights are equal, and rounding says which is the heaviest.
So `learn` and `model_of` are told how such ties were broken, and check that they were ties.
"""

from types import SimpleNamespace as Record

import numpy as np
from scipy.optimize import linprog

SHARE, SPREAD, MOST, BURST = 1e-4, 0.1, 30.0, 50
TRUST, SLOPE, MOVE_SLOPE, BREAK = 0.02, 0.05, 20.0, 0.1  # of common factors
LEAST_V, UNSURE, MOST_TRUST = 1e-5, 1e-3, 0.9
SPEEDS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
OVERDUE = 5  # rounds
TILTS = -1, 1, -2, 2


def faster(rates, k, j):
    """Whether filter j > k believes in more drift than k, at any distance."""
    return rates[j][0] >= rates[k][0] and rates[j][1] >= rates[k][1]


def limit_of(rates, quantities, false_alarm_rate):
    """What C must pass, so that all comparisons together pass it rarely."""
    pairs = [faster(rates, k, j) for k in range(len(rates)) for j in range(k + 1, len(rates))]
    return np.log(2 * quantities * sum(pairs) / false_alarm_rate)


class Filters:
    """What the filters know.

    Parameters
    ----------
    rates : for transitions and for signals, a list of (κ, power)
    pooling : strengths ω
    """

    def __init__(self, H, S, A, K, rates, pooling, false_alarm_rate):
        self.H, self.S, self.A, self.C = H, S, A, 1 + K
        self.rates, self.omega = rates, np.array(pooling)
        self.limits = [  # twice as many comparisons: of own pairs, and of pooled ones
            limit_of(rates[0], 2, false_alarm_rate),
            limit_of(rates[1], 2 * (1 + K), false_alarm_rate),
        ]
        self.own, self.pooled = {}, {}  # (h, s, a) and (s, a) -> what is known of it
        self.experts = [self._new_experts(0, 0.5 / S)]
        self.experts += [self._new_experts(1, 0.1) for _ in range(1 + K)]
        self.binary, self.mean, self.seen = [True] * (1 + K), np.zeros(1 + K), 0
        self.m = 0
        self.events, self.open = [], {}
        self.alarms = np.zeros((2 + K, max(map(len, rates))), int)
        self.switched = 0  # signals found continuous in mid-episode
        self.common = Common(S, A, K, SPEEDS)
        self.tried = False  # a pair was visited for the first time ever, or in a while
        self.rounded = []  # (i, k): filters whose n came from a J that is but rounding

    def _new_experts(self, kind, v):
        k = len(self.rates[kind])
        both = (k, len(self.omega))
        evidence = [
            Record(
                C=np.zeros((k, k)), since=np.zeros((k, k), int),
                excess=np.zeros((k, k)), observations=np.zeros((k, k)),
            )
            for _ in range(2)  # of own pairs, and of pooled ones
        ]  # fmt: skip
        return Record(
            weight=np.full(both, 1 / np.prod(both)), v=np.full(both, v), seen=0,
            tails=np.exp([[0.5, 0.5, 2, 2]] * 2), evidence=evidence,
            loss=np.zeros(both), square=np.zeros(both),
        )  # fmt: skip

    def _pair(self, pairs, key):
        if key not in pairs:
            kP, kS = map(len, self.rates)
            pairs[key] = Record(
                last=self.m, last_move=self.m, times=0, visits=0, n=np.zeros(kP), count={},
                weight=np.zeros((self.C, kS)), mean=np.zeros((self.C, kS)),
            )  # fmt: skip
        return pairs[key]

    def aged(self, n, kind, passed):
        """Effective observations n (..., k) after so many episodes."""
        kappa, power = np.array(self.rates[kind], float).T
        with np.errstate(divide="ignore"):
            return np.where(n > 0, 1 / (1 / n + kappa * float(passed) ** power), 0.0)

    def shares(self, n, N):
        """Observations of the pair and of the pooled pair in predictions: both (k, l)."""
        n, N = n[:, None], N[:, None]
        return np.where(np.isinf(self.omega), 0.0, n), np.minimum(self.omega, N)

    # ------------------------------------------------------------ an episode

    def learn(self, states, actions, signals, best, heaviest):
        """Learn from states and actions (H,), signals (1+K, H); whether planning is concerned.

        `best` has the heaviest filters, of own pairs and of pooled ones, signal by signal;
        `heaviest` the number of the heaviest expert (k, l), quantity by quantity.
        """
        self.best = best
        for filters, experts in zip(best, self.experts[1:], strict=True):
            for k, pool in zip(filters, (0, -1), strict=True):
                assert experts.weight[k, pool] >= (1 - 1e-9) * experts.weight[:, pool].max()
        self.rounded, visited, self.tried = [], [], False
        self.common.walk()
        for h in range(self.H):
            s, a = int(states[h]), int(actions[h])
            self.tried |= overdue(self, (h, s, a))
            own, pooled = self._pair(self.own, (h, s, a)), self._pair(self.pooled, (s, a))
            for pair in (own, pooled):
                pair.times += 1
                pair.weight = self.aged(pair.weight, 1, self.m - pair.last)
                pair.last = self.m
            self.seen += 1
            visited.append((h, s, a))
            for i in range(self.C):
                self._see_signal(own, pooled, i, float(signals[i][h]), (h, s, a))
            if h + 1 < self.H:
                for pair in (own, pooled):
                    old, pair.n = pair.n, self.aged(pair.n, 0, self.m - pair.last_move)
                    for count in pair.count.values():
                        count *= np.where(old > 0, pair.n / np.where(old > 0, old, 1), 1)
                    pair.last_move = self.m
                self.common.hear_successor((h, s, a), int(states[h + 1]))
                self._see_successor(own, pooled, int(states[h + 1]))
        self.common.learn(visited, states, np.asarray(signals))
        concerned = False
        for quantity, experts in enumerate(self.experts):
            if quantity > 0 or self.H > 1:
                first = heaviest[quantity]
                assert experts.weight.flat[first] >= (1 - 1e-9) * experts.weight.max()
                self.common.weigh(quantity, experts.loss.flat[first])
                normal = quantity > 0 and not self.binary[quantity - 1]
                self._settle(experts, self.rates[quantity > 0], self.H - (quantity == 0), normal)
                concerned |= self._answer_alarms(quantity)
        self.m += 1
        return concerned

    def _see_signal(self, own, pooled, i, x, place):
        experts = self.experts[1 + i]
        if self.binary[i] and x not in (0.0, 1.0):
            self.binary[i] = False
            self.switched += 1
            experts.loss[:] = 0
            self.common.loss[1 + i] = 0
        self.common.hear_signal(place, i, x, self.binary[i], self.mean[i])
        experts.seen += 1
        a, b = self.shares(own.weight[i], pooled.weight[i])
        total = a + b
        known = np.where(total > 0, total, 1.0)
        guess = (a * own.mean[i][:, None] + b * pooled.mean[i][:, None]) / known
        guess = np.where(total > 0, guess, 0.5)
        error, v = (x - guess) ** 2, experts.v
        variance = np.where(total > 0, np.minimum(v * (1 + 1 / known), v + SPREAD), v + SPREAD)
        variance = np.maximum(variance, 1e-7)
        if self.binary[i]:
            one = (total * guess + 0.5) / (total + 1)
            experts.loss -= np.log(one if x == 1 else 1 - one)
        else:
            experts.loss += 0.5 * error / variance + 0.5 * np.log(variance)
            for part, pool in enumerate((0, -1)):
                at = self.best[i][part], pool
                z = np.clip((x - guess[at]) / np.sqrt(variance[at]), -8, 8)
                rate = max(1 / (experts.seen + 20), 1e-4)
                tails = np.exp(z * np.array(TILTS))
                experts.tails[part] = (1 - rate) * experts.tails[part] + rate * tails
        experts.square += error
        rate = max(1 / (experts.seen + 1), 1e-3)
        experts.v = np.maximum(v + rate * (error * v / variance - v), 1e-6)
        for pair in (own, pooled):
            pair.weight[i] += 1
            pair.mean[i] += (x - pair.mean[i]) / pair.weight[i]
        self.mean[i] += (x - self.mean[i]) * max(1 / self.seen, 1e-4)

    def _see_successor(self, own, pooled, state):
        experts, S = self.experts[0], self.S
        experts.seen += 1
        none = np.zeros(len(own.n))
        mine, others = (pair.count.get(state, none) for pair in (own, pooled))
        a, b = self.shares(own.n, pooled.n)
        share = np.where(pooled.n > 0, others / np.where(pooled.n > 0, pooled.n, 1), 0)
        top = np.where(np.isinf(self.omega), 0, mine[:, None]) + b * share[:, None] + experts.v
        bottom = a + b + S * experts.v
        experts.loss -= np.log(top / bottom)
        experts.square += (1 - top / bottom) ** 2
        # a step along the gradient of log(top/bottom) in log α, for α itself
        slope = experts.v * (1 / top - S / bottom)
        step = 0.5 / np.sqrt(1 + 0.02 * experts.seen)
        experts.v = np.clip(experts.v * (1 + step * slope), 0.05 / S, 2.0)
        for pair in (own, pooled):
            pair.visits += 1
            pair.n = pair.n + 1
            pair.count[state] = pair.count.get(state, none) + 1

    # ------------------------------------------------------------ after an episode

    def _settle(self, experts, rates, observations, normal):
        for part, pool in enumerate((0, -1)):
            sums, loss = experts.evidence[part], experts.loss[:, pool]
            excess = np.max(np.log(experts.tails[part]) / (0.5 * np.array(TILTS) ** 2))
            loss = np.minimum((loss - loss.min()) / (max(excess, 1) if normal else 1), MOST)
            for k in range(len(rates)):
                for j in range(k + 1, len(rates)):
                    if not faster(rates, k, j):
                        continue
                    sums.C[k, j] = max(0.0, sums.C[k, j] + loss[k] - loss[j])
                    if sums.C[k, j] > 0:
                        sums.excess[k, j] += experts.square[k, pool] - experts.square[j, pool]
                        sums.observations[k, j] += observations
                    else:
                        sums.excess[k, j] = sums.observations[k, j] = 0
                        sums.since[k, j] = self.m + 1
        loss = np.minimum(experts.loss - experts.loss.min(), MOST)
        weight = experts.weight * np.exp(-loss)
        experts.weight = (1 - SHARE) * weight / weight.sum() + SHARE / weight.size
        experts.loss, experts.square = np.zeros_like(loss), np.zeros_like(loss)

    def _answer_alarms(self, quantity):
        """Own evidence corrects own pairs, pooled evidence pooled ones."""
        experts, concerned = self.experts[quantity], False
        strengths = slice(0, -1), slice(-1, None)
        stores = self.own, self.pooled
        for pooled, (sums, mine, pairs) in enumerate(
            zip(experts.evidence, strengths, stores, strict=True)
        ):
            for k in range(len(sums.C)):
                j = int(np.argmax(sums.C[k]))
                if sums.C[k, j] <= self.limits[quantity > 0]:
                    continue
                since = sums.since[k, j]
                J = max(sums.excess[k, j] / max(sums.observations[k, j], 1), 0.0)
                J *= 2.0 if quantity == 0 else 1 / experts.v[j, -1 if pooled else 0]
                if quantity > 0 and J < 1e-9:
                    self.rounded.append((quantity - 1, k))
                weight = experts.weight
                weight[k, mine] = np.maximum(weight[k, mine], weight[j, mine])
                sums.C[k, k + 1 :] = 0
                sums.excess[k, k + 1 :] = sums.observations[k, k + 1 :] = 0
                sums.since[k, k + 1 :] = self.m + 1
                if weight[k, mine].max() >= 0.05 * weight.max():
                    concerned = True
                    self._note(quantity, k, j, since, pooled)
                for pair in pairs.values():
                    if quantity == 0:
                        correct_moves(pair, k, j, since, J)
                    else:
                        correct_signal(pair, quantity - 1, k, j, since, J)
                self.alarms[quantity, k] += 1
        return concerned

    def _note(self, quantity, k, j, since, pooled):
        """Every pair and its estimates; a comparison takes any of the largest differences."""
        event = self.open.get(quantity)
        if event is None or self.m - event.last > BURST:
            event = Record(episode=self.m, quantity=quantity, alarms=0, candidates=[])
            self.events.append(event)
            self.open[quantity] = event
        event.last = self.m
        event.alarms += 1
        for (h, s, a), own in self.own.items():
            pair = self.pooled[s, a] if pooled else own
            if quantity == 0 and own.last_move >= since and pair.n[k] > 0 and pair.n[j] > 0:
                for state, count in pair.count.items():
                    before, after = count[k] / pair.n[k], count[j] / pair.n[j]
                    event.candidates.append((h, s, a, state, before, after))
            if quantity > 0 and own.last >= since and pair.weight[quantity - 1, j] > 0:
                before, after = pair.mean[quantity - 1, k], pair.mean[quantity - 1, j]
                event.candidates.append((h, s, a, -1, before, after))


def correct_moves(pair, k, j, since, J):
    """Filter k of transitions was wrong, filter j right."""
    if pair.last_move >= since:
        pair.n[k] = pair.n[j]
        for count in pair.count.values():
            count[k] = count[j]
    elif pair.n[k] > 0:
        wanted = min(pair.n[k] / (1 + np.sqrt(J * pair.n[k])) ** 2, pair.n[j])
        for count in pair.count.values():
            count[k] *= wanted / pair.n[k]
        pair.n[k] = wanted


def correct_signal(pair, i, k, j, since, J):
    """Filter k of signal i was wrong, filter j right."""
    if pair.last >= since:
        pair.weight[i, k], pair.mean[i, k] = pair.weight[i, j], pair.mean[i, j]
    else:
        pair.weight[i, k] /= (1 + np.sqrt(J * pair.weight[i, k])) ** 2


# ---------------------------------------------------------------- common factors


class Common:
    """Two factors that all pairs have in common, with matrices, and loadings of each pair.

    Parameters
    ----------
    speeds : variance of a factor per episode
    """

    def __init__(self, S, A, K, speeds):
        self.S, self.A, self.speeds = S, A, speeds
        self.at = [(np.zeros(2), np.eye(2)) for _ in speeds]
        self.weight = np.full(len(speeds), 1 / len(speeds))
        self.pairs = {}
        self.v, self.alpha, self.seen = np.full(1 + K, SPREAD), 0.5 / S, 0
        self.trust = np.full(2 + K, TRUST)

    def moments(self):
        """Mean and variance of the factors, speeds included."""
        z = sum(w * mean for w, (mean, _) in zip(self.weight, self.at, strict=True))
        spread = sum(
            w * (variance + np.outer(mean - z, mean - z))
            for w, (mean, variance) in zip(self.weight, self.at, strict=True)
        )
        return z, spread

    def number(self, pair):
        h, s, a = pair
        return (h * self.S + s) * self.A + a

    def walk(self):
        """Go into the next episode."""
        self.at = [
            (mean, (1 - speed) * variance + speed * np.eye(2))
            for speed, (mean, variance) in zip(self.speeds, self.at, strict=True)
        ]
        self.information, self.pull = np.zeros((2, 2)), np.zeros(2)
        self.loss = np.zeros(len(self.trust))

    def of(self, pair):
        """What is known of a pair: nothing at first."""
        return self.pairs.get(
            pair,
            Record(N=0, gram=np.zeros((3, 3)), signal=np.zeros((len(self.v), 3)), after={}),
        )

    def signal(self, pair, i, mean):
        """Loadings of a signal, its guess, its noise and 1/n."""
        known, v = self.of(pair), max(self.v[i], LEAST_V)
        ridge = v * np.diag([1 / SPREAD, 1 / SLOPE, 1 / SLOPE])
        inverse = np.linalg.inv(known.gram + ridge)
        prior = np.append(mean, slopes(self.number(pair) * 3 + i))
        beta = inverse @ (known.signal[i] + ridge @ prior)
        f = np.append(1.0, self.moments()[0])
        return beta, np.clip(beta @ f, 0, 1), v, f @ inverse @ f

    def successor(self, pair, state):
        """Loadings of a successor, its share, and n."""
        known = self.of(pair)
        inverse = np.linalg.inv(known.gram + np.diag([0.01, MOVE_SLOPE, MOVE_SLOPE]))
        f = np.append(1.0, self.moments()[0])
        n = 1 / (f @ inverse @ f)
        if state not in known.after:
            return np.zeros(3), 0.0, n
        total = known.after[state]
        prior = slopes(self.number(pair) * 5 + state * 3 + 1)
        lean = np.append(0.0, MOVE_SLOPE * prior * total[0] / known.gram[0, 0])
        beta = inverse @ (total + lean)
        return beta, float(beta @ f), n

    def hear_signal(self, pair, i, x, binary, mean):
        beta, guess, v, few = self.signal(pair, i, mean)
        _, spread = self.moments()
        variance = v * (1 + few) + beta[1:] @ spread @ beta[1:]
        if binary:
            one = (guess + 0.5 * few) / (1 + few)
            self.loss[1 + i] -= np.log(one if x == 1 else 1 - one)
        else:
            self.loss[1 + i] += 0.5 * (x - guess) ** 2 / variance + 0.5 * np.log(variance)
        rate = max(1 / (self.seen + 1), 1e-3)
        self.v[i] += rate * ((x - guess) ** 2 * v / variance - self.v[i])
        self.v[i] = max(self.v[i], 1e-6)
        if self.of(pair).N > 0:
            self._tell(beta[1:], x - beta[0], v * (1 + few))

    def hear_successor(self, pair, state):
        z, known = self.moments()[0], self.of(pair)
        beta, p, n = self.successor(pair, state) if known.N > 0 else (np.zeros(3), 0.0, 0.0)
        p = np.clip(p, 0, 1)
        top, bottom = n * p + self.alpha, n + self.S * self.alpha
        self.loss[0] -= np.log(top / bottom)
        if state in known.after:
            score = n * beta[1:] / top
            self._tell(score, 1 + score @ z, 1.0)
        step = 0.5 / np.sqrt(1 + 0.02 * self.seen) * self.alpha * (1 / top - self.S / bottom)
        self.alpha = np.clip(self.alpha * (1 + step), 0.05 / self.S, 2.0)

    def _tell(self, slope, x, variance):
        self.information = self.information + np.outer(slope, slope) / variance
        self.pull = self.pull + slope * x / variance

    def learn(self, pairs, states, signals):
        """Take in the episode that was heard: where factors are, then loadings."""
        evidence, after = [], []
        for mean, variance in self.at:
            before = np.linalg.inv(variance)
            new = np.linalg.inv(before + self.information)
            z = new @ (before @ mean + self.pull)
            quadratic = z @ (before + self.information) @ z - mean @ before @ mean
            evidence.append(
                0.5 * quadratic + 0.5 * np.log(np.linalg.det(new) / np.linalg.det(variance))
            )
            after.append((z, new))
        self.at = after
        evidence = np.array(evidence)
        likely = self.weight * np.exp(np.maximum(evidence - evidence.max(), -MOST))
        self.weight = (1 - SHARE) * likely / likely.sum() + SHARE / len(likely)
        z, spread = self.moments()
        f = np.append(1.0, z)
        second = np.outer(f, f)
        second[1:, 1:] += spread + UNSURE * np.eye(2)
        for h, pair in enumerate(pairs):
            known = self.pairs.setdefault(pair, self.of(pair))
            self.seen += 1
            known.N += 1
            keep = 1 - 1 / (known.N + 1)
            known.gram = keep * known.gram + second
            known.signal = keep * known.signal + np.outer(signals[:, h], f)
            if h + 1 < len(pairs):
                state = int(states[h + 1])
                known.after.setdefault(state, np.zeros(3))
                for other in known.after:
                    known.after[other] = keep * known.after[other] + f * (other == state)

    def weigh(self, quantity, other):
        """Trust in factors, after another prediction paid `other`."""
        lead = np.clip(other - self.loss[quantity], -MOST, MOST)
        one, two = self.trust[quantity] * np.exp(lead), 1 - self.trust[quantity]
        self.trust[quantity] = (1 - SHARE) * one / (one + two) + SHARE / 2


def slopes(number):
    """Slopes before anything is known, other ones for every signal and successor."""
    number = number * 0x9E3779B1 // 256
    return BREAK * (np.array([number % 16, number // 16 % 16]) / 8 - 1)


# ---------------------------------------------------------------- returns against promises


class Promises:
    """How far utilities of plans are from the returns that came, constraint by constraint.

    Parameters
    ----------
    kappa : variance per episode of each walk, in units of the noise; None: never off
    """

    def __init__(self, H, K, kappa):
        self.kappa, self.seen = kappa, 0
        self.off = [[(0.0, 1.0)] * len(kappa) for _ in range(K)]  # mean and variance
        self.weight = np.full((K, len(kappa)), 1 / len(kappa))
        self.noise = np.full(K, float(H))

    def see(self, promised, returns):
        """Learn from an episode: what was promised (K,) and what came (K,)."""
        self.seen += 1
        for k, x in enumerate(np.subtract(returns, promised)):
            v, losses = self.noise[k], []
            for f, kappa in enumerate(self.kappa):
                mean, variance = self.off[k][f]
                if kappa is None:
                    mean, variance = 0.0, 0.0
                else:
                    variance += kappa * v
                losses.append(-np.log(density(x, mean, variance + v)))
                self.off[k][f] = posterior(x, v, mean, variance)
            likely = np.exp(-np.minimum(np.array(losses) - min(losses), MOST)) * self.weight[k]
            self.weight[k] = (1 - SHARE) * likely / likely.sum() + SHARE / len(likely)
            rate = max(1 / (self.seen + 1), 0.002)
            self.noise[k] = max((1 - rate) * v + rate * (x - self.moments(k)[0]) ** 2, 1e-4)

    def moments(self, k):
        """Mean and variance of a mixture: its variance is within and between filters."""
        means, variances = np.array(self.off[k]).T
        mean = self.weight[k] @ means
        return mean, self.weight[k] @ (variances + (means - mean) ** 2)

    def aim(self, k, mu, slack):
        """The quantile of what is needed above the threshold.

        At most half of the slack is asked for; with several constraints this limits the reserve
        only, and not what the mean is off by.
        """
        off, variance = self.moments(k)
        unsafe = np.clip(mu, 1 / (1 + np.exp(3.6)), 1 / (1 + np.exp(-3.6)))
        scale = np.sqrt(3 * variance) / np.pi  # of a logistic distribution
        reserve, most = scale * np.log((1 - unsafe) / unsafe), 0.5 * max(slack, 0.0)
        if len(self.off) == 1:
            return min(max(reserve - off, min(-off, 0.0)), most)
        return max(min(reserve, most) - off, min(-off, 0.0))


def density(x, mean, variance):
    """That of a normal variable, but for the constant."""
    return np.exp(-((x - mean) ** 2) / (2 * variance)) / np.sqrt(variance)


def posterior(x, v, mean, variance):
    """Mean and variance after x was seen with noise v, by adding precisions."""
    if variance == 0:
        return mean, 0.0
    precision = 1 / variance + 1 / v
    return (mean / variance + x / v) / precision, 1 / precision


# ---------------------------------------------------------------- the model


def check_chosen(chosen, experts):
    """At most three experts (k, l, share), each with 1/20 of the heaviest one's weight or more."""
    weight = np.sort(experts.weight.ravel())[::-1][:3]
    weight = weight[weight >= 0.05 * weight[0]]
    assert len({(k, pool) for k, pool, _ in chosen}) == len(chosen) == len(weight)
    np.testing.assert_allclose(
        [experts.weight[k, pool] for k, pool, _ in chosen], weight, rtol=1e-9
    )
    np.testing.assert_allclose([share for *_, share in chosen], weight / weight.sum(), rtol=1e-9)


def model_of(filters, chosen, support, values, mu, optimism, bonuses, boldness):
    """The model of the coming episode.

    Parameters
    ----------
    chosen : (k, l, share) of the experts that are averaged, quantity by quantity
    values : (1+K, H, S) V_r + Σ μ V_g, then V_g, of the last plan
    bonuses : reward, utility, range, unknown_utility
    boldness : by which bonuses of the reward are multiplied

    Returns
    -------
    P (H, S, A, S), signals with bonuses and means without (1+K, H, S, A), reach: states per step
    """
    H, S, A, C = filters.H, filters.S, filters.A, filters.C
    for one, experts in zip(chosen, filters.experts, strict=True):
        check_chosen(one, experts)
    pools = any(pool > 0 for _, pool, _ in chosen[0])
    P = np.zeros((H, S, A, S))
    signals, means = np.zeros((C, H, S, A)), np.zeros((C, H, S, A))
    reach = [set(int(s) for s in support)] + [set() for _ in range(H - 1)]
    for h in range(H):
        for s in reach[h]:
            n = np.ones(A)
            variance = np.zeros((C, A))
            if h + 1 < H:
                for a in range(A):
                    after = set(seen_after(filters.own.get((h, s, a))))
                    if pools:
                        after |= set(seen_after(filters.pooled.get((s, a))))
                    reach[h + 1] |= after or {s}
                    P[h, s, a], n[a] = successors(filters, chosen[0], h, s, a)
                variance = value_variances(P[h, s], n, values[:, h + 1])
            for a in range(A):
                write_pair(filters, chosen, bonuses, boldness, mu, optimism, (h, s, a), n[a],
                           variance[:, a], signals, means)  # fmt: skip
    return Record(P=P, signals=signals, means=means, reach=reach)


def seen_after(pair):
    """Successors of a pair that were seen."""
    return () if pair is None else pair.count


def successors(filters, chosen, h, s, a):
    """Distribution (S,) and effective observations (0: nothing known, the state stays)."""
    own, pooled = filters.own.get((h, s, a)), filters.pooled.get((s, a))
    row, inverse, known = np.zeros(filters.S), 0.0, False
    for k, pool, weight in chosen:
        n, N = (
            0.0 if pair is None else filters.aged(pair.n, 0, filters.m - pair.last_move)[k]
            for pair in (own, pooled)
        )
        omega = filters.omega[pool]
        a_own, b = (0.0, N) if np.isinf(omega) else (n, min(omega, N))
        inverse += weight / max(a_own + b, 0.01)
        known |= a_own + b > 0
        for part, pair in ((a_own, own), (b, pooled)):
            if part > 0:
                for state, count in pair.count.items():
                    row[state] += weight * part / (a_own + b) * count[k] / pair.n[k]
    if not known:
        return np.eye(filters.S)[s], 0.0
    return blended_row(filters, row / row.sum(), inverse, (h, s, a))


def blended_row(filters, row, inverse, pair):
    """The same with common factors, where they are trusted: distribution, observations."""
    common = filters.common
    if common.of(pair).N == 0 or common.trust[0] <= 0.05:
        return row, 1 / inverse
    found = [common.successor(pair, state) for state in range(filters.S)]
    guess = np.array([max(p, 0.0) for _, p, _ in found])
    share = 0.0
    few = 1 / found[0][2]
    if guess.sum() > 0:
        share = share_of_factors(common.trust[0], few, inverse)
        row = (1 - share) * row + share * guess / guess.sum()
    return row, 1 / ((1 - share) * inverse + share * few)


def share_of_factors(trust, own, others):
    """Precisions, times odds of at most `MOST_TRUST`."""
    trust = min(trust, MOST_TRUST)
    return trust / own / (trust / own + (1 - trust) / others)


def value_variances(P, n, values):
    """Variances (1+K, A) of values (1+K, S) under P (A, S), mixed with the average known row."""
    if not (n > 0).any():
        return np.zeros((len(values), len(n)))
    average = P[n > 0].mean(axis=0)
    smooth = np.array([(n[a] * P[a] + 0.5 * average) / (n[a] + 0.5) for a in range(len(n))])
    first, second = values @ smooth.T, values**2 @ smooth.T
    return np.maximum(second - first**2, 0)


def write_pair(filters, chosen, bonuses, boldness, mu, optimism, pair, n, variance, signals,
               means):  # fmt: skip
    """Write means and means with bonuses of one pair."""
    h, s, a = pair
    u = np.zeros(filters.C)
    for i in range(filters.C):
        means[i, h, s, a], u[i] = estimate(filters, chosen[1 + i], i, pair)
    if (h, s, a) not in filters.own and (s, a) not in filters.pooled:
        means[:, h, s, a] = [1.0] + [bonuses.unknown_utility] * (filters.C - 1)
    few = max(n, 0.25)
    move, reward = (filters.omega[chosen[quantity][0][1]] for quantity in (0, 1))
    growth = 1 + np.log(1 + rounds_between(filters, reward, pair))
    spread = u[0] + (np.asarray(mu) ** 2 * u[1:]).sum() + variance[0] / few
    bonus = bonuses.reward * np.sqrt(spread * growth)
    hope = optimism * np.sqrt((u[1:] + variance[1:] / few) * growth)
    visits = visits_of(filters, move, pair)
    growth = 1 + np.log(1 + rounds_between(filters, move, pair))
    bonus += bonuses.range * growth * (filters.H - h - 1) / max(visits, 1) ** 2
    signals[0, h, s, a] = means[0, h, s, a] + boldness * bonus
    signals[1:, h, s, a] = np.clip(means[1:, h, s, a] + hope, 0, 1)


def visits_of(filters, omega, pair):
    """Visits of a pair with a successor that count for an expert of this pooling strength."""
    own, pooled = (
        0 if found is None else found.visits
        for found in (filters.own.get(pair), filters.pooled.get(pair[1:]))
    )
    return pooled if np.isinf(omega) else own + min(omega, pooled)


def rounds_between(filters, omega, pair):
    """Rounds since the last visit, or from visit to visit: what is more, or all there were so far.

    Visits are those that an expert of this pooling strength knows of. A round has as many episodes
    as it takes to visit every known pair once. Pooled visits without a successor are not counted.
    """
    kinds = {0: ["own"], np.inf: ["pooled"]}.get(omega, ["own", "pooled"])
    places = {"own": pair, "pooled": pair[1:]}
    for kind in kinds:
        known = getattr(filters, kind)
        if places[kind] in known:
            found = known[places[kind]]
            visits = max(found.visits if kind == "pooled" else found.times, 1)
            episodes = max(filters.m - found.last, filters.m / visits)
            return episodes * filters.H / len(known)
    return filters.m * filters.H / max(len(filters.own), 1)


def overdue(filters, pair):
    """Whether a pair was never visited, or for `OVERDUE` rounds not."""
    if pair not in filters.own:
        return True
    return (filters.m - filters.own[pair].last) * filters.H >= OVERDUE * len(filters.own)


def estimate(filters, chosen, i, pair):
    """Mean of signal i in a pair, and the variance of that mean."""
    own, pooled = filters.own.get(pair), filters.pooled.get(pair[1:])
    guesses, variances, weights = [], [], []
    for k, pool, weight in chosen:
        (n, x), (N, y) = (
            (0.0, 0.0)
            if one is None
            else (filters.aged(one.weight, 1, filters.m - one.last)[i, k], one.mean[i, k])
            for one in (own, pooled)
        )
        omega = filters.omega[pool]
        a, b = (0.0, N) if np.isinf(omega) else (n, min(omega, N))
        v = filters.experts[1 + i].v[k, pool]
        if filters.binary[i]:
            p = (a * x + b * y + 0.5) / (a + b + 1)
            v = p * (1 - p)
        prior = v / SPREAD
        guesses.append((a * x + b * y + prior * filters.mean[i]) / (a + b + prior))
        variances.append(min(v / (a + b + prior), SPREAD))
        weights.append(weight)
    guesses, variances, weights = map(np.array, (guesses, variances, weights))
    mean = weights @ guesses
    between = weights @ (guesses - mean) ** 2
    return blended(filters, i, pair, mean, min(weights @ variances + between, SPREAD))


def blended(filters, i, pair, mean, variance):
    """Mean and variance of signal i with common factors, where they are trusted."""
    common = filters.common
    if pair not in filters.own or common.trust[1 + i] <= 0.05:
        return mean, variance
    beta, guess, v, few = common.signal(pair, i, filters.mean[i])
    own = min(v * few + beta[1:] @ common.moments()[1] @ beta[1:], SPREAD)
    share = share_of_factors(common.trust[1 + i], own, variance)
    both = (1 - share) * mean + share * guess
    within = (1 - share) * variance + share * own
    between = (1 - share) * (mean - both) ** 2 + share * (guess - both) ** 2
    return both, min(within + between, SPREAD)


# ---------------------------------------------------------------- plans


def evaluation(P, signals, policy, reach):
    """Values (C, H, S) of a policy (H, S, A), 0 where a state cannot be reached."""
    C, H, S, _ = signals.shape
    V = np.zeros((C, H + 1, S))
    for h in reversed(range(H)):
        for s in reach[h]:
            V[:, h, s] = (signals[:, h, s] + V[:, h + 1] @ P[h, s].T) @ policy[h, s]
    return V[:, :H]


def best_value(P, reward, initial):
    """The largest expected return of a reward (H, S, A)."""
    V = np.zeros(P.shape[-1])
    for h in reversed(range(len(P))):
        V = (reward[h] + P[h] @ V).max(axis=-1)
    return float(initial @ V)


def cost_of_exploration(filters, model, policy, mu, initial):
    """What a policy loses against the best one without bonuses, over what the uniform one loses.

    A pair of which nothing is known earns what the average observation did, and ends the episode
    for that: it earns the same in every step that is left.
    """
    H, S, A = policy.shape
    weights = np.array([1.0, *mu])
    reward, average = np.tensordot(weights, model.means, 1), weights @ filters.mean
    best, own, uniform = np.zeros(S), np.zeros(S), np.zeros(S)
    for h in reversed(range(H)):
        known = np.array([
            [(h, s, a) in filters.own or (s, a) in filters.pooled for a in range(A)]
            for s in range(S)
        ])  # fmt: skip
        Q = [
            np.where(known, reward[h] + model.P[h] @ V, (H - h) * average)
            for V in (best, own, uniform)
        ]
        greedy = np.where(known, Q[0], -np.inf).max(axis=1)
        best = np.where(known.any(axis=1), greedy, (H - h) * average)
        own, uniform = (policy[h] * Q[1]).sum(axis=1), Q[2].mean(axis=1)
    stake = initial @ (best - uniform)
    return min(max(initial @ (best - own), 0.0) / max(stake, 1e-9), 1.0)


def boldness_of(spent, episodes, rate, known, H):
    """The share of the bonuses that is left when episodes have cost so much."""
    allowed = 100 + 2 * known / H + rate * episodes
    return float(np.clip(4 * (1 - spent / allowed), 0.2, 1.0))


def gain_of(P, reward, policy, before, initial):
    """What `before` loses against `policy`, which may be better in a part of the states only."""
    H, S, _ = reward.shape
    V, lost = np.zeros(S), np.zeros(S)
    for h in reversed(range(H)):
        Q = reward[h] + P[h] @ V
        lost = ((policy[h] - before[h]) * Q + before[h] * (P[h] @ lost)).sum(axis=-1)
        V = (policy[h] * Q).sum(axis=-1)
    return float(initial @ lost)


def optimum(P, signals, thresholds, initial):
    """The largest reward of a policy that reaches the thresholds, None where there is none."""
    if largest_slack(P, signals, thresholds, initial) < 0:
        return None
    C, size = len(signals), signals[0].size
    flat = signals.reshape(C, size)
    balance, right = flow(P, initial)
    found = linprog(
        -flat[0], A_ub=-flat[1:], b_ub=-np.asarray(thresholds) + 1e-9, A_eq=balance, b_eq=right
    )
    assert found.status == 0, found.message
    return -found.fun


def largest_slack(P, signals, thresholds, initial):
    """The largest x such that some policy has utilities of thresholds + x."""
    balance, right = flow(P, initial)
    flat = signals[1:].reshape(len(signals) - 1, -1)
    x = np.zeros(flat.shape[1] + 1)
    x[-1] = -1.0
    found = linprog(
        x, A_ub=np.c_[-flat, np.ones(len(flat))], b_ub=-np.asarray(thresholds),
        A_eq=np.c_[balance, np.zeros(len(right))], b_eq=right,
        bounds=[(0, None)] * flat.shape[1] + [(None, None)],
    )  # fmt: skip
    assert found.status == 0, found.message
    return -found.fun


def flow(P, initial):
    """What occupancies q(h, s, a) of a policy obey: matrix and right side."""
    H, S, A, _ = P.shape
    balance, right = np.zeros((H, S, H, S, A)), np.zeros((H, S))
    right[0] = initial
    for h in range(H):
        for s in range(S):
            balance[h, s, h, s] = 1.0
            if h:
                balance[h, s, h - 1] -= P[h - 1, :, :, s]
    return balance.reshape(H * S, -1), right.ravel()
