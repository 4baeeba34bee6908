"""Episodes a second of PROPD-PPO on a card, beside a jitted, vmapped JAX version of the same loop.

    python benchmarks/gpu.py [--episodes 4096] [--jax-episodes 512]

Needs CuPy (`pip install 'safedrift[gpu]'`), and JAX for the second column, which is left out where
it is missing. Both evaluate the policy of every episode exactly, with drifting transitions, rewards
and utilities, in float64, and add up regret and shortfall. The JAX loop does less: it keeps no
second word of log-policies and draws its own random numbers. Bars: 1.0e9 episodes a second or 30
times JAX at (5, 3, 5), and 15 times JAX at (20, 5, 10).
"""

import argparse
import time

import numpy as np

import safedrift as sd
from safedrift.experiments.streams import seeds
from safedrift.gpu.runs import Measured, generator_words, play_batches

SIZES = ((5, 3, 5), (20, 5, 10))  # S, A, H
RUNS = {(5, 3, 5): 19008, (20, 5, 10): 4224}  # multiples of what 132 multiprocessors play at once
JAX_RUNS = {(5, 3, 5): (4096, 16384), (20, 5, 10): (2048, 8192)}
W = L = 400


def world_of(S, A, H, episodes):
    options = {"states": S, "actions": A, "horizon": H, "drift": "linear"}
    return sd.problems.make("random", episodes=episodes, seed=0, **options)


def on_card(card, world, learner, runs):
    """Episodes a second and the mean of 1 - V_r; the second of two calls counts."""
    words = [
        [generator_words(child["learner"]), generator_words(child["world"])]
        for child in map(seeds, range(runs))
    ]
    generators, M = np.array(words, np.uint64), world.M
    measured = Measured(np.arange(M), np.ones(M), np.ones(M), np.array([M - 1]))

    def play():
        start = time.perf_counter()
        batches = play_batches(card, world.arrays, [learner], generators, False, measured)
        regret = np.concatenate([batch.sums[:, 0, 0] for batch in batches])
        return time.perf_counter() - start, regret.mean() / M

    play()
    seconds, mean = play()
    return runs * M / seconds, mean


# ---------------------------------------------------------------- the same loop in JAX


def in_jax(world, learner, runs):
    """Episodes a second of a jitted, vmapped scan over episodes, and the mean of 1 - V_r."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp

    M, H, S, A = world.M, world.H, world.S, world.A
    hyper = learner.hyperparameters
    P, r, g = (jnp.array(x) for x in dense_scenarios(world))
    path, b, start = dense_path(world), jnp.array(world.thresholds[:, 0]), jnp.array(world.initial)
    caps = jnp.arange(H, 0, -1, dtype=float)
    unseen = hyper.bonus == 1

    def bonus(n, square):
        """(H, S, A): Bernstein's, or that of counts."""
        if unseen:
            seen = jnp.maximum(n, 1.0)
            own = hyper.c**2 * caps[:, None, None] / seen + hyper.lam / (n + hyper.lam)
            return jnp.where(n > 0, own + hyper.c * jnp.sqrt(square) / seen, jnp.inf)
        d = jnp.maximum(n + hyper.shift, 1.0) if hyper.shift == 0 else n + hyper.shift
        root, tail = (jnp.array(x)[:, None, None] for x in (hyper.root, hyper.tail))
        return root / jnp.sqrt(d) + tail / (n + hyper.lam)

    def evaluate(pi, n, moves, sums):
        """Optimistic estimates of reward and utility: Q (2, H, S, A) and V (2,)."""

        def back(v, h):
            ahead = jnp.einsum("sax,cx->csa", moves[h], v)
            mean = ahead / jnp.maximum(n[h], 1.0)
            off = v[:, None, None, :] - mean[..., None]
            square = (moves[h] * off * off).sum(-1)
            more = jax.vmap(lambda one: bonus(n, jnp.broadcast_to(one, n.shape))[h])(square)
            q = jnp.clip((sums[:, h] + ahead) / (n[h] + hyper.lam) + more, 0.0, caps[h])
            return (pi[h] * q).sum(-1), q

        v, q = jax.lax.scan(back, jnp.zeros((2, S)), jnp.arange(H - 1, -1, -1))
        return q[::-1].swapaxes(0, 1), v @ start

    def exact(pi, Pm, rm, gm):
        signals = jnp.stack((rm, gm))

        def back(v, h):
            q = signals[:, h] + jnp.einsum("sax,cx->csa", Pm[h], v)
            return (pi[h] * q).sum(-1), None

        v, _ = jax.lax.scan(back, jnp.zeros((2, S)), jnp.arange(H - 1, -1, -1))
        return v @ start

    def episode(state, inputs):
        logit, n, moves, sums, mu, signal, last, total, key = state
        m, weight, threshold = inputs
        opens, restarts = m % W == 0, m % L == 0
        n, moves, sums = (jnp.where(opens, 0.0, x) for x in (n, moves, sums))
        logit = jnp.where(restarts, 0.0, logit)
        pi = jax.nn.softmax(logit, axis=-1)
        Pm, rm, gm = (jnp.tensordot(weight, x, 1) for x in (P, r, g))
        key, own = jax.random.split(key)
        u = jax.random.uniform(own, (2 * H + 1,))

        def draw(p, x):
            return jnp.minimum((x >= jnp.cumsum(p)).sum(), p.size - 1)

        def step(s, h):
            a = draw(pi[h, s], u[h])
            return draw(Pm[h, s, a], u[H + h]), (s, a)

        after, (states, actions) = jax.lax.scan(step, draw(start, u[2 * H]), jnp.arange(H))
        following = jnp.append(states[1:], after)
        wanted = last if hyper.lagged else threshold
        mu = jnp.clip(mu + hyper.eta * (wanted - signal - hyper.xi * mu), 0.0, hyper.chi)
        q, estimate = evaluate(pi, n, moves, sums)
        at = (jnp.arange(H), states, actions)
        seen = jnp.stack((rm[at], gm[at]))
        signal = seen[1].sum() if hyper.dual_signal == 2 else estimate[1]
        logit = logit + hyper.alpha * (q[0] + mu * q[1])
        value = exact(pi, Pm, rm, gm)
        terms = jnp.stack((1.0 - value[0], threshold - value[1]))
        total = total + jnp.concatenate((terms, jnp.maximum(terms, 0.0)))
        n = n.at[at].add(1.0)
        moves = moves.at[(*at, following)].add(1.0)
        sums = sums.at[:, jnp.arange(H), states, actions].add(seen)
        return (logit, n, moves, sums, mu, signal, threshold, total, key), None

    pairs = jnp.zeros((H, S, A))

    def run(key):
        state = (pairs, pairs, jnp.zeros((H, S, A, S)), jnp.zeros((2, H, S, A)), 0.0, 0.0, 0.0,
                 jnp.zeros(4), key)  # fmt: skip
        state, _ = jax.lax.scan(episode, state, (jnp.arange(M), jnp.array(path), b))
        return state[7]

    play = jax.jit(jax.vmap(run))
    keys = jax.random.split(jax.random.PRNGKey(0), runs)
    play(keys).block_until_ready()
    before = time.perf_counter()
    sums = play(keys).block_until_ready()
    return runs * M / (time.perf_counter() - before), float(sums[:, 0].mean()) / M


def dense_scenarios(world):
    """Transitions (N, H, S, A, S), rewards and the first utility (N, H, S, A)."""
    P = np.stack([x.dense_transitions() for x in world.scenarios])
    r = np.stack([x.rewards for x in world.scenarios])
    return P, r, np.stack([x.utilities[0] for x in world.scenarios])


def dense_path(world):
    """Weights (M, N); one path for everything."""
    scenario, weight = world.transition_path
    path = np.zeros((world.M, len(world.scenarios)))
    np.put_along_axis(path, scenario.astype(np.int64), weight, axis=1)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=4096)
    parser.add_argument("--jax-episodes", type=int, default=512)
    parser.add_argument("--jax-only", action="store_true", help="leave out the card")
    chosen = parser.parse_args()
    card = None
    if not chosen.jax_only:
        from safedrift.gpu.card import Card

        card = Card()
        print(card.name)
    for sizes in SIZES:
        ours, theirs = 0.0, 0.0
        for episodes in (chosen.jax_episodes, chosen.episodes) if card else ():
            ours, mean = on_card(card, *played(sizes, episodes), RUNS[sizes])
            show(sizes, ours, mean, episodes, f"{RUNS[sizes]} runs")
        for runs in JAX_RUNS[sizes]:
            try:
                rate, mean = in_jax(*played(sizes, chosen.jax_episodes), runs)
            except ImportError:
                print("JAX is not installed")
                break
            theirs = max(theirs, rate)
            show(sizes, rate, mean, chosen.jax_episodes, f"JAX, {runs} runs")
        if ours and theirs:
            print(f"S, A, H = {sizes}: {ours / theirs:.1f} times the best of JAX")


def played(sizes, episodes):
    world = world_of(*sizes, episodes)
    return world, sd.PROPDPPO.for_problem(world, sd.Slater(0.2), W=W, L=L)


def show(sizes, rate, mean, episodes, what):
    print(
        f"S, A, H = {sizes}: {rate:.3g} episodes a second; mean of 1 - V_r in {episodes} episodes "
        f"{mean:.4f} ({what})"
    )


if __name__ == "__main__":
    main()
