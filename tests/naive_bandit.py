"""EXP3.P as printed by Auer et al. 2002, section 6, and payoffs of blocks: plain arithmetic."""

import math


def exp3p(arms, rounds, uniforms, play, delta=0.05):
    """Yield (arm, probabilities) of each round; `play(arm)` returns a payoff in [0, 1]."""
    alpha = 2 * math.sqrt(math.log(arms * rounds / delta))
    gamma = min(3 / 5, 2 * math.sqrt(3 / 5 * arms * math.log(arms) / rounds))
    w = [math.exp(alpha * gamma / 3 * math.sqrt(rounds / arms))] * arms
    for u in uniforms:
        p = [(1 - gamma) * weight / sum(w) + gamma / arms for weight in w]
        arm = next(j for j in range(arms) if u < sum(p[: j + 1]))
        yield arm, p
        payoff = play(arm)
        for j in range(arms):
            estimate = payoff / p[j] if j == arm else 0.0
            bound = alpha / (p[j] * math.sqrt(arms * rounds))
            w[j] *= math.exp(gamma / (3 * arms) * (estimate + bound))


def payoff(H, episodes, penalty):
    """Payoff of a block of (return, utilities, thresholds)."""
    N, K = len(episodes), len(episodes[0][1])
    R = sum(reward for reward, _, _ in episodes)
    missing = sum(
        max(0.0, sum(b[k] for _, _, b in episodes) - sum(g[k] for _, g, _ in episodes))
        for k in range(K)
    )
    return (R - penalty * missing + penalty * K * H * N) / (H * N * (1 + penalty * K))
