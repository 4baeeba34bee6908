"""Exact values and constrained optima of a chunk of episodes.

Chunks run side by side in threads (`oracles.chunks`). Their length is fixed, and only inside a
chunk does one episode start from the answer of the one before it: results do not depend on how many
threads there are.
"""

from __future__ import annotations

import numpy as np

from safedrift.kernels.types import jit_alloc

OPTIMAL, INFEASIBLE = 0.0, 1.0
MAX_ITERATIONS = 200


# ---------------------------------------------------------------- the world of one episode


@jit_alloc
def mixed_transitions(world, m, buffer):
    """Transition probabilities of episode m, one per successor entry (in `buffer` if mixed)."""
    index, weight = world.transition_path.index[m], world.transition_path.weight[m]
    if index.size == 1:
        return world.probabilities[index[0]]
    for e in range(buffer.size):
        buffer[e] = 0.0
    for j in range(index.size):
        if weight[j] > 0.0:
            row = world.probabilities[index[j]]
            for e in range(buffer.size):
                buffer[e] += weight[j] * row[e]
    return buffer


@jit_alloc
def mixed_signal(bank, path, m, c, out):
    """Signal number c of bank (N, signals, H, S, A) in episode m, written to out (H, S, A)."""
    H, S, A = out.shape
    for h in range(H):
        for s in range(S):
            for a in range(A):
                x = 0.0
                for j in range(path.index.shape[1]):
                    x += path.weight[m, j] * bank[path.index[m, j], c, h, s, a]
                out[h, s, a] = x


@jit_alloc
def start_value(world, V):
    """Value at the initial distribution."""
    total = 0.0
    for i in range(world.initial.size):
        total += world.initial[i] * V[world.initial_states[i]]
    return total


@jit_alloc
def expectation(offsets, states, p, row, V):
    """Σ_x' P(x'|row) V(x')."""
    total = 0.0
    for e in range(offsets[row], offsets[row + 1]):
        total += p[e] * V[states[e]]
    return total


# ---------------------------------------------------------------- policy evaluation


@jit_alloc
def policy_value(world, p, signal, policy, V, W):
    """V(π) of one signal (H, S, A) at the initial distribution; V, W (S,) are scratch."""
    H, S, A = signal.shape
    V[:] = 0.0
    for h in range(H - 1, -1, -1):
        for s in range(S):
            x = 0.0
            for a in range(A):
                if policy[h, s, a] > 0.0:
                    ahead = 0.0
                    if h + 1 < H:
                        ahead = expectation(world.offsets, world.states, p, (h * S + s) * A + a, V)
                    x += policy[h, s, a] * (signal[h, s, a] + ahead)
            W[s] = x
        V, W = W, V
    return start_value(world, V)


@jit_alloc
def evaluate_policies(world, rewards, episodes, policies, out):
    """out[i] = (V_r, V_g,1, ..., V_g,K) of policies[i] in episode episodes[i].

    Parameters
    ----------
    rewards : (N, 1, H, S, A) the world's rewards with a signal axis
    episodes : (n,)
    policies : (n, H, S, A), or (1, H, S, A) for one policy in all episodes
    out : (n, 1+K)
    """
    K = world.utilities.shape[1]
    _, H, S, A = policies.shape
    buffer = np.empty(world.states.size if world.transition_path.index.shape[1] > 1 else 0)
    signal = np.empty((H, S, A))
    V, W = np.empty(S), np.empty(S)
    for i in range(episodes.size):
        m = episodes[i]
        p = mixed_transitions(world, m, buffer)
        mixed_signal(rewards, world.reward_path, m, 0, signal)
        policy = policies[min(i, policies.shape[0] - 1)]
        out[i, 0] = policy_value(world, p, signal, policy, V, W)
        for k in range(K):
            mixed_signal(world.utilities, world.utility_path, m, k, signal)
            out[i, 1 + k] = policy_value(world, p, signal, policy, V, W)


# ---------------------------------------------------------------- best policies


@jit_alloc
def best_policy(world, p, r, g, weight_r, weight_g, actions, V):
    """Maximise weight_r V_r + weight_g V_g; ties go to the larger weightless rest.

    Parameters
    ----------
    actions : (H, S) written
    V : (4, S) scratch

    Returns
    -------
    V_r and V_g of the maximiser at the initial distribution.
    """
    H, S, A = r.shape
    offsets, states = world.offsets, world.states
    now, ahead = 0, 2
    for h in range(H - 1, -1, -1):
        now, ahead = ahead, now
        for s in range(S):
            best, best_r, best_g, best_a = -1.0, 0.0, 0.0, 0
            for a in range(A):
                q_r, q_g = r[h, s, a], g[h, s, a]
                if h + 1 < H:
                    row = (h * S + s) * A + a
                    for e in range(offsets[row], offsets[row + 1]):
                        q_r += p[e] * V[ahead, states[e]]
                        q_g += p[e] * V[ahead + 1, states[e]]
                score = weight_r * q_r + weight_g * q_g
                if score > best or (score == best and q_r + q_g > best_r + best_g):
                    best, best_r, best_g, best_a = score, q_r, q_g, a
            actions[h, s] = best_a
            V[now, s] = best_r
            V[now + 1, s] = best_g
    return start_value(world, V[now]), start_value(world, V[now + 1])


@jit_alloc
def line_of(world, p, r, g, actions, V):
    """V_r and V_g of a deterministic policy (H, S) at the initial distribution."""
    H, S, A = r.shape
    now, ahead = 0, 2
    for h in range(H - 1, -1, -1):
        now, ahead = ahead, now
        for s in range(S):
            a = actions[h, s]
            q_r, q_g = r[h, s, a], g[h, s, a]
            if h + 1 < H:
                row = (h * S + s) * A + a
                for e in range(world.offsets[row], world.offsets[row + 1]):
                    x = world.states[e]
                    q_r += p[e] * V[ahead, x]
                    q_g += p[e] * V[ahead + 1, x]
            V[now, s] = q_r
            V[now + 1, s] = q_g
    return start_value(world, V[now]), start_value(world, V[now + 1])


@jit_alloc
def safest_utilities(world, episodes, out):
    """out[i] (K,) = utilities of the policy that maximises their sum in episodes[i]."""
    _, K, H, S, A = world.utilities.shape
    buffer = np.empty(world.states.size if world.transition_path.index.shape[1] > 1 else 0)
    signal, total = np.empty((H, S, A)), np.empty((H, S, A))
    actions = np.empty((H, S), np.int32)
    V = np.empty((4, S))
    for i in range(episodes.size):
        m = episodes[i]
        p = mixed_transitions(world, m, buffer)
        total[:] = 0.0
        for k in range(K):
            mixed_signal(world.utilities, world.utility_path, m, k, signal)
            total += signal
        best_policy(world, p, total, total, 1.0, 0.0, actions, V)
        for k in range(K):
            mixed_signal(world.utilities, world.utility_path, m, k, signal)
            out[i, k] = line_of(world, p, signal, signal, actions, V)[0]


@jit_alloc
def occupancy(world, p, A, actions, out):
    """State occupancy (H, S) of a deterministic policy."""
    H, S = actions.shape
    out[:] = 0.0
    for i in range(world.initial.size):
        out[0, world.initial_states[i]] = world.initial[i]
    for h in range(H - 1):
        for s in range(S):
            if out[h, s] > 0.0:
                row = (h * S + s) * A + actions[h, s]
                for e in range(world.offsets[row], world.offsets[row + 1]):
                    out[h + 1, world.states[e]] += out[h, s] * p[e]


# ---------------------------------------------------------------- the constrained optimum, K = 1


@jit_alloc
def intersect_lines(world, p, r, g, b, left, right, new, V, warm):
    """Minimise the dual D(μ) = max_π V_r + μ (V_g - b) by intersecting lines.

    A deterministic policy is a line in μ. `left` is too unsafe (V_g < b), `right` is safe. They meet
    at some μ; the best policy there is either no better than both, then μ is optimal and so is a
    mixture of the two, or it is a new line and replaces one of them. There are finitely many.

    Parameters
    ----------
    left, right, new : (H, S) policies; on return `left` and `right` are the pair to be mixed
    warm : bool, `left` and `right` hold the pair of a similar world

    Returns
    -------
    status, μ, share of `right`, value, utility, dual value, Slater gap, iterations
    """
    H = r.shape[0]
    safe = b - 1e-12 * H
    r_right, most = best_policy(world, p, r, g, 0.0, 1.0, new, V)
    gamma = most - b
    if most < safe:
        right[:] = new
        left[:] = new
        return INFEASIBLE, np.inf, 1.0, r_right, most, np.nan, gamma, 0.0
    cold = True
    r_left, g_left, g_right = 0.0, 0.0, most
    if warm:
        r_left, g_left = line_of(world, p, r, g, left, V)
        r_warm, g_warm = line_of(world, p, r, g, right, V)
        if g_left < safe and g_warm >= safe:
            r_right, g_right = r_warm, g_warm
            cold = False
    if cold:
        right[:] = new
        r_left, g_left = best_policy(world, p, r, g, 1.0, 0.0, left, V)
        if g_left >= safe:
            right[:] = left
            return OPTIMAL, 0.0, 1.0, r_left, g_left, r_left, gamma, 0.0
    mu, dual = 0.0, np.inf
    iteration = 0
    while iteration < MAX_ITERATIONS:
        iteration += 1
        mu = max((r_left - r_right) / (g_right - g_left), 0.0)
        r_new, g_new = best_policy(world, p, r, g, 1.0, mu, new, V)
        dual = r_new + mu * (g_new - b)
        if mu == 0.0 and g_new >= safe:  # the constraint does not bind
            right[:] = new
            left[:] = new
            return OPTIMAL, 0.0, 1.0, r_new, g_new, dual, gamma, float(iteration)
        meet = r_left + mu * (g_left - b)
        if dual <= meet + 1e-14 * H * (1.0 + mu):
            break
        if g_new >= safe:
            right[:] = new
            r_right, g_right = r_new, g_new
        else:
            left[:] = new
            r_left, g_left = r_new, g_new
    share = min(max((b - g_left) / (g_right - g_left), 0.0), 1.0)
    value = (1.0 - share) * r_left + share * r_right
    utility = (1.0 - share) * g_left + share * g_right
    return OPTIMAL, mu, share, value, utility, dual, gamma, float(iteration)


@jit_alloc
def mix_policies(left, right, reach_left, reach_right, share, policy, reach):
    """Markov policy whose occupancy is (1-share) left + share right; `right` where none arrives."""
    H, S = left.shape
    policy[:] = 0.0
    for h in range(H):
        for s in range(S):
            x = (1.0 - share) * reach_left[h, s]
            y = share * reach_right[h, s]
            reach[h, s] = x + y
            if x + y > 0.0:
                policy[h, s, left[h, s]] += x / (x + y)
                policy[h, s, right[h, s]] += y / (x + y)
            else:
                policy[h, s, right[h, s]] = 1.0


@jit_alloc
def policy_change(policy, before, reach, reach_before, out):
    """out[h] = max over states reached by either policy of ‖π_h(·|x) - π'_h(·|x)‖₁."""
    H, S, A = policy.shape
    for h in range(H):
        out[h] = 0.0
        for s in range(S):
            if reach[h, s] > 0.0 or reach_before[h, s] > 0.0:
                x = 0.0
                for a in range(A):
                    x += abs(policy[h, s, a] - before[h, s, a])
                out[h] = max(out[h], x)


@jit_alloc
def solve_episodes(world, rewards, episodes, first, numbers, changes, policies):
    """Constrained optimum of each listed episode of a world with one constraint.

    Parameters
    ----------
    rewards : (N, 1, H, S, A) the world's rewards with a signal axis
    episodes : (first + n,) `first` (0 or 1) episodes go before, so that their change is known
    numbers : (n, 8) written: status, μ*, share, value, utility, dual value, Slater gap, iterations
    changes : (n, H) written: change of the optimal policy since the episode listed before
    policies : (n, H, S, A) written, or (0, H, S, A)
    """
    _, _, H, S, A = rewards.shape
    buffer = np.empty(world.states.size if world.transition_path.index.shape[1] > 1 else 0)
    r, g = np.empty((H, S, A)), np.empty((H, S, A))
    left, right, new = np.empty((3, H, S), np.int32)
    V = np.empty((4, S))
    reach_left, reach_right = np.empty((H, S)), np.empty((H, S))
    reach, reach_before = np.empty((H, S)), np.empty((H, S))
    policy, before = np.empty((H, S, A)), np.empty((H, S, A))
    warm = False
    for j in range(episodes.size):
        i = j - first
        m = episodes[j]
        p = mixed_transitions(world, m, buffer)
        mixed_signal(rewards, world.reward_path, m, 0, r)
        mixed_signal(world.utilities, world.utility_path, m, 0, g)
        b = world.thresholds[m, 0]
        found = intersect_lines(world, p, r, g, b, left, right, new, V, warm)
        warm = found[0] == OPTIMAL and found[1] > 0.0
        policy, before, reach, reach_before = before, policy, reach_before, reach
        occupancy(world, p, A, left, reach_left)
        occupancy(world, p, A, right, reach_right)
        mix_policies(left, right, reach_left, reach_right, found[2], policy, reach)
        if i >= 0:
            numbers[i] = np.array(found)
            changes[i] = 0.0
            if j > 0:
                policy_change(policy, before, reach, reach_before, changes[i])
            if policies.shape[0] > 0:
                policies[i] = policy
