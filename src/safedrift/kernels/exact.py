"""Exact values and constrained optima of a chunk of episodes.

One constraint is solved here; several by column generation (`planning.columns`).

Sweep to sweep. Q_a(μ) = max_π of r + μ g after action a changes by at most Δμ times the largest (or
least) value of g still to come. With Q_a known at one μ this bounds it at the next; an action whose
bound is below what another one earns there is passed over (MacQueen 1967). The answer is the same.

Chunks run side by side in threads (`oracles.chunks`). Their length is fixed, and only inside a
chunk does one episode start from the answer of the one before it: results do not depend on how many
threads there are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from safedrift.kernels.types import (
    FloatArray,
    IndexArray,
    jit,
    jit_inline,
    jit_part,
    jit_shared,
    jit_source_inline,
)

OPTIMAL, INFEASIBLE = 0.0, 1.0
MAX_ITERATIONS = 200
STEP, GROWTH, MOST_STEPS = 0.05, 4.0, 4  # of μ on the way to a policy on the other side of b


class Scratch(NamedTuple):
    """Working arrays of one chunk."""

    p: FloatArray  # (entries,) or (0,) where no transitions are mixed
    r: FloatArray  # (H, S, A)
    g: FloatArray  # (H, S, A)
    V: FloatArray  # (4, S)
    left: IndexArray  # (H, S) deterministic policies
    right: IndexArray
    new: IndexArray
    bound: FloatArray  # (H, S, A) what Q is at most, by the last sweep
    range: FloatArray  # (2, H) what V_g from step h on is at most, and at least
    rise: FloatArray  # (H,) by which bounds have grown since
    lines: FloatArray  # (2, 2) V_r and V_g of `left` and of `right`
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
        np.zeros((H, S), np.int32),
        np.empty((H, S, A)),
        np.empty((2, H)),
        np.empty(H),
        np.empty((2, 2)),
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
        for j in range(scenario.shape[1]):
            # Read once: `p` might lie over them, for all that the compiler knows.
            share, bank = weight[m, j], world.probabilities[scenario[m, j]]
            if j == 0:
                for e in range(p.size):
                    p[e] = share * bank[e]
            elif share > 0.0:
                for e in range(p.size):
                    p[e] += share * bank[e]
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


@jit_inline
def look_ahead(world, p, h, row, V, q_r, q_g):
    """Add to r and g what is to be expected after row (h, s, a): V (2, S) of the next step."""
    states = world.states
    # Unsigned: a signed entry would be tested for being negative each time.
    for e in range(np.uint64(world.offsets[row]), np.uint64(world.offsets[row + 1])):
        q_r += p[e] * V[0, states[e]]
        q_g += p[e] * V[1, states[e]]
    return q_r, q_g


@jit_part
def best_policy(world, p, r, g, weight_r, weight_g, scratch):
    """Maximise weight_r V_r + weight_g V_g; ties go to the larger weightless rest.

    The policy is written to `scratch.new`. What was there is where the search for the best action
    begins: another one is passed over if it cannot be better. Its Q is at most `scratch.bound`, as
    the last sweep left it, plus `scratch.rise` (`set_rise`; NaN: no action is passed over).

    Returns
    -------
    V_r and V_g of the maximiser at the initial distribution.
    """
    H, S, A = r.shape
    actions, bound, rise = scratch.new, scratch.bound, scratch.rise
    margin = 1e-12 * H * (weight_r + weight_g)
    now, ahead = scratch.V[:2], scratch.V[2:]
    for h in range(H - 1, -1, -1):
        now, ahead = ahead, now
        last = h + 1 == H
        for s in range(S):
            row, first = (h * S + s) * A, actions[h, s]
            first_r, first_g = r[h, s, first], g[h, s, first]
            if not last:
                first_r, first_g = look_ahead(world, p, h, row + first, ahead, first_r, first_g)
            least = weight_r * first_r + weight_g * first_g - margin
            best, best_r, best_g, best_a = -np.inf, 0.0, 0.0, 0
            for a in range(A):
                q_r, q_g = first_r, first_g
                if a != first:
                    bound[h, s, a] += rise[h]
                    if bound[h, s, a] < least:
                        continue
                    q_r, q_g = r[h, s, a], g[h, s, a]
                    if not last:
                        q_r, q_g = look_ahead(world, p, h, row + a, ahead, q_r, q_g)
                score = weight_r * q_r + weight_g * q_g
                bound[h, s, a] = score
                if score > best or (score == best and q_r + q_g > best_r + best_g):
                    best, best_r, best_g, best_a = score, q_r, q_g, a
            actions[h, s] = best_a
            now[0, s] = best_r
            now[1, s] = best_g
    return start_value(world, now[0]), start_value(world, now[1])


@jit_part
def set_range(g, out):
    """Write what values of g (H, S, A) from step h on are at most, out[0, h], and at least."""
    H, S, A = g.shape
    top, bottom = 0.0, 0.0
    for h in range(H - 1, -1, -1):
        most, least = g[h, 0, 0], g[h, 0, 0]
        for s in range(S):
            for a in range(A):
                most, least = max(most, g[h, s, a]), min(least, g[h, s, a])
        top, bottom = top + most, bottom + least
        out[0, h], out[1, h] = top, bottom


@jit_part
def set_rise(change, scratch):
    """Write by how much Q of r + μ g can rise where μ changes; NaN: by any amount."""
    for h in range(scratch.rise.size):
        scratch.rise[h] = change * scratch.range[0 if change > 0.0 else 1, h]


@jit_part
def largest_value(world, p, signal, V):
    """max_π of the value of one signal at the initial distribution; V (4, S) is scratch."""
    H, S, A = signal.shape
    now, ahead = V[0], V[1]
    for h in range(H - 1, -1, -1):
        now, ahead = ahead, now
        for s in range(S):
            best = -np.inf
            for a in range(A):
                q = signal[h, s, a]
                if h + 1 < H:
                    row = (h * S + s) * A + a
                    start, stop = np.uint64(world.offsets[row]), np.uint64(world.offsets[row + 1])
                    for e in range(start, stop):
                        q += p[e] * ahead[world.states[e]]
                best = max(best, q)
            now[s] = best
    return start_value(world, now)


@jit_part
def line_of(world, p, r, g, actions, V):
    """V_r and V_g of a deterministic policy (H, S) at the initial distribution."""
    H, S, A = r.shape
    now, ahead = V[:2], V[2:]
    for h in range(H - 1, -1, -1):
        now, ahead = ahead, now
        for s in range(S):
            a = actions[h, s]
            q_r, q_g = r[h, s, a], g[h, s, a]
            if h + 1 < H:
                q_r, q_g = look_ahead(world, p, h, (h * S + s) * A + a, ahead, q_r, q_g)
            now[0, s] = q_r
            now[1, s] = q_g
    return start_value(world, now[0]), start_value(world, now[1])


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
        set_rise(np.nan, scratch)
        best_policy(world, p, total, total, 1.0, 0.0, scratch)
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
def best_at(world, p, r, g, mu, tried, scratch):
    """Maximise V_r + μ V_g, after a sweep at the multiplier `tried`; returns V_r and V_g."""
    set_rise(mu - tried, scratch)
    return best_policy(world, p, r, g, 1.0, mu, scratch)


@jit_part
def keep(r_new, g_new, safe, scratch):
    """Let `new` take the place of `right` if it is safe, else that of `left`."""
    if g_new >= safe:
        copy_policy(scratch.new, scratch.right)
        scratch.lines[1, 0], scratch.lines[1, 1] = r_new, g_new
    else:
        copy_policy(scratch.new, scratch.left)
        scratch.lines[0, 0], scratch.lines[0, 1] = r_new, g_new


@jit_part
def keep_pair(world, p, r, g, safe, scratch):
    """Measure the pair of another world; it is kept where one is still unsafe and one safe."""
    lines, V = scratch.lines, scratch.V
    lines[0, 0], lines[0, 1] = line_of(world, p, r, g, scratch.left, V)
    lines[1, 0], lines[1, 1] = line_of(world, p, r, g, scratch.right, V)
    if not lines[0, 1] < safe <= lines[1, 1]:
        forget_lines(scratch)


@jit_part
def forget_lines(scratch):
    """Nothing is known of `left` and `right`: V_g is NaN, neither safe nor unsafe."""
    scratch.lines[0, 1] = scratch.lines[1, 1] = np.nan


@jit_part
def surround(world, p, r, g, mu, safe, scratch):
    """Walk from μ until there is an unsafe policy and a safe one, in growing steps.

    Returns the last μ and the number of sweeps; a side is still unknown where the walk was too
    short, or ended at μ = 0.
    """
    tried, step, sweeps = np.nan, STEP * mu, 0
    while sweeps <= MOST_STEPS:
        r_new, g_new = best_at(world, p, r, g, mu, tried, scratch)
        keep(r_new, g_new, safe, scratch)
        tried, sweeps = mu, sweeps + 1
        if scratch.lines[0, 1] < safe <= scratch.lines[1, 1]:
            break
        mu = max(mu - step, 0.0) if g_new >= safe else mu + step
        step *= GROWTH
        if mu == tried:
            break
    return tried, sweeps


@jit_shared
def intersect_lines(world, p, r, g, b, near, paired, scratch):
    """Minimise the dual D(μ) = max_π V_r + μ (V_g - b) by intersecting lines.

    A deterministic policy is a line in μ. `left` is unsafe (V_g < b), `right` is safe. They meet
    at some μ; the best policy there is either no better than both, then μ is optimal and so is a
    mixture of the two, or it is a new line and replaces one of them. There are finitely many.

    Parameters
    ----------
    near : multiplier of a similar world, or 0
    paired : bool, `scratch` holds the pair of that world
    scratch : on return `left` and `right` are the pair to be mixed

    Returns
    -------
    status, μ, share of `right`, value, utility, dual value, Slater gap, iterations
    """
    H = r.shape[0]
    safe = b - 1e-12 * H
    left, right, lines = scratch.left, scratch.right, scratch.lines
    tried, iteration = np.nan, 0
    set_range(g, scratch.range)
    forget_lines(scratch)
    if near > 0.0 and paired:
        keep_pair(world, p, r, g, safe, scratch)
    known = lines[0, 1] < safe <= lines[1, 1]
    most = largest_value(world, p, g, scratch.V)
    if most < safe:
        set_rise(np.nan, scratch)
        r_most, most = best_policy(world, p, r, g, 0.0, 1.0, scratch)
        copy_policy(scratch.new, right)
        copy_policy(scratch.new, left)
        return INFEASIBLE, np.inf, 1.0, r_most, most, np.nan, most - b, 0.0
    gamma = max(most - b, 0.0)
    if near > 0.0 and not known:
        tried, iteration = surround(world, p, r, g, near, safe, scratch)
    if not lines[0, 1] < safe:
        r_new, g_new = best_at(world, p, r, g, 0.0, tried, scratch)
        keep(r_new, g_new, safe, scratch)
        tried, iteration = 0.0, iteration + 1
        if g_new >= safe:  # the constraint does not bind
            copy_policy(right, left)
            return OPTIMAL, 0.0, 1.0, r_new, g_new, r_new, gamma, float(iteration)
    if not lines[1, 1] >= safe:
        set_rise(np.nan, scratch)
        r_new, g_new = best_policy(world, p, r, g, 0.0, 1.0, scratch)
        keep(r_new, g_new, safe, scratch)
        tried, iteration = np.nan, iteration + 1
    mu, dual = 0.0, np.inf
    while iteration < MAX_ITERATIONS:
        iteration += 1
        mu = max((lines[0, 0] - lines[1, 0]) / (lines[1, 1] - lines[0, 1]), 0.0)
        r_new, g_new = best_at(world, p, r, g, mu, tried, scratch)
        tried = mu
        dual = r_new + mu * (g_new - b)
        if mu == 0.0 and g_new >= safe:
            copy_policy(scratch.new, right)
            copy_policy(scratch.new, left)
            return OPTIMAL, 0.0, 1.0, r_new, g_new, dual, gamma, float(iteration)
        meet = lines[0, 0] + mu * (lines[0, 1] - b)
        if dual <= meet + 1e-14 * H * (1.0 + mu):
            break
        keep(r_new, g_new, safe, scratch)
    r_left, g_left, r_right, g_right = lines[0, 0], lines[0, 1], lines[1, 0], lines[1, 1]
    share = min(max((b - g_left) / (g_right - g_left), 0.0), 1.0)
    value = (1.0 - share) * r_left + share * r_right
    utility = (1.0 - share) * g_left + share * g_right
    # A policy that misses b by rounding is certified for the threshold it reaches.
    dual += mu * (b - min(b, utility))
    return OPTIMAL, mu, share, value, utility, dual, gamma, float(iteration)


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
    near = start[0] if start.size > 0 else 0.0
    for i in range(episodes.size):
        m = episodes[i]
        p = transitions_of(world, m, scratch)
        mix_signal(rewards, world.reward_path, m, 0, scratch.r)
        mix_signal(world.utilities, world.utility_path, m, 0, scratch.g)
        found = intersect_lines(
            world, p, scratch.r, scratch.g, world.thresholds[m, 0], near, i > 0, scratch
        )
        near = found[1] if found[0] == OPTIMAL else 0.0
        occupancy(world, p, A, left, scratch.reach_left)
        occupancy(world, p, A, right, scratch.reach_right)
        policy, reach = scratch.policy[i % 2], scratch.reach[i % 2]
        mix_policies(left, right, scratch.reach_left, scratch.reach_right, found[2], policy, reach)
        for column, number in enumerate(found):
            numbers[i, column] = number
        record_policy(i, episodes.size, scratch, changes, policies, ends)
