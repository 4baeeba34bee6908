"""Exact values and constrained optima of a chunk of episodes.

One constraint is solved here; several by column generation (`planning.columns`).

Chunks run side by side in threads (`oracles.chunks`). Their length is fixed, and only inside a
chunk does one episode start from the answer of the one before it: results do not depend on how many
threads there are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from safedrift.kernels.types import FloatArray, IndexArray, jit, jit_part, jit_source_inline

OPTIMAL, INFEASIBLE = 0.0, 1.0
MAX_ITERATIONS = 200


class Scratch(NamedTuple):
    """Working arrays of one chunk."""

    p: FloatArray  # (entries,) or (0,) where no transitions are mixed
    r: FloatArray  # (H, S, A)
    g: FloatArray  # (H, S, A)
    V: FloatArray  # (4, S)
    left: IndexArray  # (H, S) deterministic policies
    right: IndexArray
    new: IndexArray
    reach_left: FloatArray  # (H, S)
    reach_right: FloatArray
    reach: FloatArray  # (2, H, S) of this episode and the one before, in turn
    policy: FloatArray  # (2, H, S, A)


class Ends(NamedTuple):
    """Optimal policy and reach of a chunk's first and last episode."""

    policy: FloatArray  # (2, H, S, A)
    reach: FloatArray  # (2, H, S)


def make_scratch(entries: int, H: int, S: int, A: int) -> Scratch:
    """Return working arrays for worlds of these sizes."""
    return Scratch(
        np.empty(entries),
        np.empty((H, S, A)),
        np.empty((H, S, A)),
        np.empty((4, S)),
        np.empty((H, S), np.int32),
        np.empty((H, S), np.int32),
        np.empty((H, S), np.int32),
        np.empty((H, S)),
        np.empty((H, S)),
        np.empty((2, H, S)),
        np.empty((2, H, S, A)),
    )


# ---------------------------------------------------------------- the world of one episode


@jit_source_inline
def transitions_of(world, m, scratch):
    """Transition probabilities of episode m, one per successor entry; mixed where they must be."""
    scenario, weight = world.transition_path.scenario, world.transition_path.weight
    p = world.probabilities[scenario[m, 0]]
    if scenario.shape[1] > 1:
        p = scratch.p
        for e in range(p.size):
            p[e] = 0.0
        for j in range(scenario.shape[1]):
            if weight[m, j] > 0.0:
                for e in range(p.size):
                    p[e] += weight[m, j] * world.probabilities[scenario[m, j], e]
    return p


@jit_part
def mix_signal(bank, path, m, c, out):
    """Write signal number c of bank (N, signals, H, S, A) in episode m to out (H, S, A)."""
    H, S, A = out.shape
    for h in range(H):
        for s in range(S):
            for a in range(A):
                x = 0.0
                for j in range(path.scenario.shape[1]):
                    x += path.weight[m, j] * bank[path.scenario[m, j], c, h, s, a]
                out[h, s, a] = x


@jit_part
def start_value(world, V):
    """Value at the initial distribution."""
    total = 0.0
    for i in range(world.initial.size):
        total += world.initial[i] * V[world.initial_states[i]]
    return total


# ---------------------------------------------------------------- policy evaluation


@jit_part
def policy_value(world, p, signal, policy, V):
    """V(π) of one signal (H, S, A) at the initial distribution; V (4, S) is scratch."""
    H, S, A = signal.shape
    now, ahead = 0, 1
    for h in range(H - 1, -1, -1):
        now, ahead = ahead, now
        for s in range(S):
            x = 0.0
            for a in range(A):
                if policy[h, s, a] > 0.0:
                    q = signal[h, s, a]
                    if h + 1 < H:
                        row = (h * S + s) * A + a
                        for e in range(world.offsets[row], world.offsets[row + 1]):
                            q += p[e] * V[ahead, world.states[e]]
                    x += policy[h, s, a] * q
            V[now, s] = x
    return start_value(world, V[now])


@jit
def evaluate_policies(world, rewards, episodes, policies, out, scratch):
    """out[i] = (V_r, V_g,1, ..., V_g,K) of policies[i] in episode episodes[i].

    Parameters
    ----------
    rewards : (N, 1, H, S, A) the world's rewards with a signal axis
    episodes : (n,)
    policies : (n, H, S, A), or (1, H, S, A) for one policy in all episodes
    out : (n, 1+K)
    """
    for i in range(episodes.size):
        m = episodes[i]
        p = transitions_of(world, m, scratch)
        policy = policies[min(i, policies.shape[0] - 1)]
        mix_signal(rewards, world.reward_path, m, 0, scratch.r)
        out[i, 0] = policy_value(world, p, scratch.r, policy, scratch.V)
        for k in range(world.utilities.shape[1]):
            mix_signal(world.utilities, world.utility_path, m, k, scratch.g)
            out[i, 1 + k] = policy_value(world, p, scratch.g, policy, scratch.V)


# ---------------------------------------------------------------- best policies


@jit_part
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
            best, best_r, best_g, best_a = -np.inf, 0.0, 0.0, 0
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


@jit_part
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


@jit
def safest_utilities(world, episodes, out, scratch):
    """out[i] (K,) = utilities of the policy that maximises their sum in episodes[i]."""
    _, K, H, S, A = world.utilities.shape
    total, signal = scratch.r, scratch.g
    for i in range(episodes.size):
        m = episodes[i]
        p = transitions_of(world, m, scratch)
        for k in range(K):
            mix_signal(world.utilities, world.utility_path, m, k, signal)
            for h in range(H):
                for s in range(S):
                    for a in range(A):
                        total[h, s, a] = signal[h, s, a] + (total[h, s, a] if k > 0 else 0.0)
        best_policy(world, p, total, total, 1.0, 0.0, scratch.new, scratch.V)
        for k in range(K):
            mix_signal(world.utilities, world.utility_path, m, k, signal)
            out[i, k] = line_of(world, p, signal, signal, scratch.new, scratch.V)[0]


@jit_part
def occupancy(world, p, A, actions, out):
    """State occupancy (H, S) of a deterministic policy."""
    H, S = actions.shape
    for h in range(H):
        for s in range(S):
            out[h, s] = 0.0
    for i in range(world.initial.size):
        out[0, world.initial_states[i]] = world.initial[i]
    for h in range(H - 1):
        for s in range(S):
            if out[h, s] > 0.0:
                row = (h * S + s) * A + actions[h, s]
                for e in range(world.offsets[row], world.offsets[row + 1]):
                    out[h + 1, world.states[e]] += out[h, s] * p[e]


# ---------------------------------------------------------------- the constrained optimum, K = 1


@jit_part
def copy_policy(source, target):
    """Copy a deterministic policy (H, S)."""
    for h in range(source.shape[0]):
        for s in range(source.shape[1]):
            target[h, s] = source[h, s]


@jit_part
def copy_measure(policy, reach, policy_out, reach_out):
    """Copy a policy (H, S, A) and its reach (H, S)."""
    H, S, A = policy.shape
    for h in range(H):
        for s in range(S):
            reach_out[h, s] = reach[h, s]
            for a in range(A):
                policy_out[h, s, a] = policy[h, s, a]


@jit_part
def intersect_lines(world, p, r, g, b, left, right, new, V, warm, gap):
    """Minimise the dual D(μ) = max_π V_r + μ (V_g - b) by intersecting lines.

    A deterministic policy is a line in μ. `left` is unsafe (V_g < b), `right` is safe. They meet
    at some μ; the best policy there is either no better than both, then μ is optimal and so is a
    mixture of the two, or it is a new line and replaces one of them. There are finitely many.

    Parameters
    ----------
    left, right, new : (H, S) policies; on return `left` and `right` are the pair to be mixed
    warm : bool, `left` and `right` hold the pair of a similar world
    gap : bool, the Slater gap is wanted even where it is not needed

    Returns
    -------
    status, μ, share of `right`, value, utility, dual value, Slater gap (or NaN), iterations
    """
    H = r.shape[0]
    safe = b - 1e-12 * H
    cold, gamma = True, np.nan
    r_left, g_left, r_right, g_right = 0.0, 0.0, 0.0, 0.0
    if warm:
        r_left, g_left = line_of(world, p, r, g, left, V)
        r_right, g_right = line_of(world, p, r, g, right, V)
        cold = g_left >= safe or g_right < safe
    if cold or gap:
        r_most, most = best_policy(world, p, r, g, 0.0, 1.0, new, V)
        gamma = most - b if most < safe else max(most - b, 0.0)
        if most < safe:
            copy_policy(new, right)
            copy_policy(new, left)
            return INFEASIBLE, np.inf, 1.0, r_most, most, np.nan, gamma, 0.0
        if cold:
            r_right, g_right = r_most, most
    if cold:
        copy_policy(new, right)
        r_left, g_left = best_policy(world, p, r, g, 1.0, 0.0, left, V)
        if g_left >= safe:
            copy_policy(left, right)
            return OPTIMAL, 0.0, 1.0, r_left, g_left, r_left, gamma, 0.0
    mu, dual = 0.0, np.inf
    iteration = 0
    while iteration < MAX_ITERATIONS:
        iteration += 1
        mu = max((r_left - r_right) / (g_right - g_left), 0.0)
        r_new, g_new = best_policy(world, p, r, g, 1.0, mu, new, V)
        dual = r_new + mu * (g_new - b)
        if mu == 0.0 and g_new >= safe:  # the constraint does not bind
            copy_policy(new, right)
            copy_policy(new, left)
            return OPTIMAL, 0.0, 1.0, r_new, g_new, dual, gamma, float(iteration)
        meet = r_left + mu * (g_left - b)
        if dual <= meet + 1e-14 * H * (1.0 + mu):
            break
        if g_new >= safe:
            copy_policy(new, right)
            r_right, g_right = r_new, g_new
        else:
            copy_policy(new, left)
            r_left, g_left = r_new, g_new
    share = min(max((b - g_left) / (g_right - g_left), 0.0), 1.0)
    value = (1.0 - share) * r_left + share * r_right
    utility = (1.0 - share) * g_left + share * g_right
    # A policy that misses b by rounding is certified for the threshold it reaches.
    dual += mu * (b - min(b, utility))
    return OPTIMAL, mu, share, value, utility, dual, gamma, float(iteration)


@jit_part
def pair_around(world, p, r, g, b, mu, left, right, new, V):
    """Write an unsafe policy and a safe one, of which one is the best at a given μ."""
    _, utility = best_policy(world, p, r, g, 1.0, mu, new, V)
    if utility >= b - 1e-12 * r.shape[0]:
        copy_policy(new, right)
        best_policy(world, p, r, g, 1.0, 0.0, left, V)
    else:
        copy_policy(new, left)
        best_policy(world, p, r, g, 0.0, 1.0, right, V)


@jit_part
def mix_policies(left, right, reach_left, reach_right, share, policy, reach):
    """Markov policy whose occupancy is (1-share) left + share right; `right` where none arrives."""
    H, S = left.shape
    for h in range(H):
        for s in range(S):
            for a in range(policy.shape[2]):
                policy[h, s, a] = 0.0
            x = (1.0 - share) * reach_left[h, s]
            y = share * reach_right[h, s]
            reach[h, s] = x + y
            if x + y > 0.0:
                policy[h, s, left[h, s]] += x / (x + y)
                policy[h, s, right[h, s]] += y / (x + y)
            else:
                policy[h, s, right[h, s]] = 1.0


@jit
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


@jit_part
def record_policy(i, n, scratch, changes, policies, ends):
    """File policy number i of n: its change since the one before, its copy, the chunk's ends."""
    policy, reach = scratch.policy[i % 2], scratch.reach[i % 2]
    H, S, A = policy.shape
    for h in range(H):
        changes[i, h] = 0.0
    if i > 0:
        before, reach_before = scratch.policy[(i + 1) % 2], scratch.reach[(i + 1) % 2]
        policy_change(policy, before, reach, reach_before, changes[i])
    if policies.shape[0] > 0:
        for h in range(H):
            for s in range(S):
                for a in range(A):
                    policies[i, h, s, a] = policy[h, s, a]
    if i == 0:
        copy_measure(policy, reach, ends.policy[0], ends.reach[0])
    if i + 1 == n:
        copy_measure(policy, reach, ends.policy[1], ends.reach[1])


@jit
def solve_episodes(world, rewards, episodes, start, numbers, changes, policies, ends, scratch):
    """Constrained optimum of each listed episode of a world with one constraint.

    Parameters
    ----------
    rewards : (N, 1, H, S, A) the world's rewards with a signal axis
    episodes : (n,)
    start : (1,) multiplier from which the first episode starts, or (0,)
    numbers : (n, 8) written: status, μ*, share, value, utility, dual value, Slater gap, iterations
    changes : (n, H) written: change of the optimal policy since the episode listed before, 0 first
    policies : (n, H, S, A) written, or (0, H, S, A)
    ends : Ends, written: policy and reach of the first and the last episode
    """
    _, _, H, S, A = rewards.shape
    left, right = scratch.left, scratch.right
    warm = start.size > 0
    for i in range(episodes.size):
        m = episodes[i]
        p = transitions_of(world, m, scratch)
        mix_signal(rewards, world.reward_path, m, 0, scratch.r)
        mix_signal(world.utilities, world.utility_path, m, 0, scratch.g)
        if i == 0 and warm:
            pair_around(
                world,
                p,
                scratch.r,
                scratch.g,
                world.thresholds[m, 0],
                start[0],
                left,
                right,
                scratch.new,
                scratch.V,
            )
        found = intersect_lines(
            world,
            p,
            scratch.r,
            scratch.g,
            world.thresholds[m, 0],
            left,
            right,
            scratch.new,
            scratch.V,
            warm,
            True,
        )
        warm = found[0] == OPTIMAL and found[1] > 0.0
        occupancy(world, p, A, left, scratch.reach_left)
        occupancy(world, p, A, right, scratch.reach_right)
        policy, reach = scratch.policy[i % 2], scratch.reach[i % 2]
        mix_policies(left, right, scratch.reach_left, scratch.reach_right, found[2], policy, reach)
        for column, number in enumerate(found):
            numbers[i, column] = number
        record_policy(i, episodes.size, scratch, changes, policies, ends)
