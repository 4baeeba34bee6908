"""Episodes a second of PROPD-PPO on a card, beside a jitted, vmapped JAX version of the same loop.

    python benchmarks/gpu.py [--episodes 4096] [--jax-episodes 512]
    python benchmarks/gpu.py --no-jax --layouts     # other layouts as well

Needs CuPy (`pip install 'safedrift[gpu]'`), and JAX for the second column, which is left out where
it is missing. Both evaluate the policy of every episode exactly, with drifting transitions, rewards
and utilities, in float64, and add up regret and shortfall. The JAX loop does less: it keeps no
second word of log-policies and draws its own random numbers. Bars: 1.0e9 episodes a second or 30
times JAX at (5, 3, 5), and 15 times JAX at (20, 5, 10).
"""

import argparse
import os
import time
from functools import lru_cache

import numpy as np

import safedrift as sd
from safedrift.experiments.streams import seeds
from safedrift.gpu.program import ALL, HOT, MOST, Layout, layout_for
from safedrift.gpu.runs import Measured, _shapes, generator_words, play_batches

SIZES = ((5, 3, 5), (20, 5, 10))  # S, A, H
RUNS = {(5, 3, 5): 66_000, (20, 5, 10): 4_000}  # at least; all multiprocessors have as many
MULTIPROCESSORS = 132
LAYOUTS = {  # that are tried: a lane for each state, then lanes for pairs
    (5, 3, 5): (
        Layout(5, 6, ALL, 6), Layout(5, 18, ALL, 6), Layout(5, 54, ALL, 6),
        Layout(5, 12, MOST, 6), Layout(5, 24, MOST, 6), Layout(5, 36, MOST, 6),
        Layout(5, 72, MOST, 6),
        Layout(5, 24, HOT, 6), Layout(5, 36, HOT, 6), Layout(5, 48, HOT, 6), Layout(16, 8, ALL),
    ),
    (20, 5, 10): (Layout(64, 1, HOT), Layout(96, 1, HOT), Layout(128, 1, HOT)),
}  # fmt: skip
JAX_RUNS = {(5, 3, 5): (4096, 16384), (20, 5, 10): (2048, 8192)}
W = L = 400


def world_of(S, A, H, episodes):
    options = {"states": S, "actions": A, "horizon": H, "drift": "linear"}
    return sd.problems.make("random", episodes=episodes, seed=0, **options)


@lru_cache
def words(runs):
    """Streams of so many seeds."""
    children = map(seeds, range(runs))
    found = [[generator_words(x["learner"]), generator_words(x["world"])] for x in children]
    return np.array(found, np.uint64)


def full(shape, layout, at_least):
    """The least number of runs that is as many on every multiprocessor, all the time."""
    together = MULTIPROCESSORS * layout.blocks(shape) * layout.runs
    return -(-at_least // together) * together


def on_card(card, world, learner, layout=None):
    """Runs, episodes a second and the mean of 1 - V_r; the second of two calls counts."""
    (shape,) = _shapes(world.arrays, [learner], False)
    layout = layout or layout_for(shape, card.shared)
    runs, M = full(shape, layout, RUNS[world.S, world.A, world.H]), world.M
    generators = words(30_000)[:runs] if runs <= 30_000 else words(runs)
    measured = Measured(np.arange(M), np.ones(M), np.ones(M), np.array([M - 1]))

    def play():
        start = time.perf_counter()
        batches = play_batches(
            card, world.arrays, [learner], generators, False, measured, layout=layout
        )
        regret = np.concatenate([batch.sums[:, 0, 0] for batch in batches])
        return time.perf_counter() - start, regret.mean() / M

    play()
    seconds, mean = play()
    return runs, runs * M / seconds, mean


# ---------------------------------------------------------------- the same loop in JAX


def in_jax(world, learner, runs):
    """Episodes a second of a jitted, vmapped scan over episodes, and the mean of 1 - V_r."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # memory for both
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
    parser.add_argument("--no-jax", action="store_true", help="leave out JAX")
    parser.add_argument("--layouts", action="store_true", help="try other layouts as well")
    chosen = parser.parse_args()
    card = None
    if not chosen.jax_only:
        from safedrift.gpu.card import Card

        card = Card()
        print(card.name)
    for sizes in SIZES:
        ours = best_of_card(card, sizes, chosen) if card else 0.0
        theirs = 0.0 if chosen.no_jax else best_of_jax(sizes, chosen.jax_episodes)
        if ours and theirs:
            print(f"S, A, H = {sizes}: {ours / theirs:.1f} times the best of JAX", flush=True)


def best_of_card(card, sizes, chosen):
    """Episodes a second with the layout that is taken by default; prints what it measures."""
    for episodes in (chosen.jax_episodes, chosen.episodes):
        runs, ours, mean = on_card(card, *played(sizes, episodes))
        show(sizes, ours, mean, episodes, f"{runs} runs")
    for layout in LAYOUTS[sizes] if chosen.layouts else ():
        runs, rate, mean = on_card(card, *played(sizes, chosen.episodes), layout)
        show(sizes, rate, mean, chosen.episodes, f"{runs} runs, {layout}")
    return ours


def best_of_jax(sizes, episodes):
    theirs = 0.0
    for runs in JAX_RUNS[sizes]:
        try:
            rate, mean = in_jax(*played(sizes, episodes), runs)
        except ImportError:
            print("JAX is not installed")
            break
        theirs = max(theirs, rate)
        show(sizes, rate, mean, episodes, f"JAX, {runs} runs")
    return theirs


def played(sizes, episodes):
    world = world_of(*sizes, episodes)
    return world, sd.PROPDPPO.for_problem(world, sd.Slater(0.2), W=W, L=L)


def show(sizes, rate, mean, episodes, what):
    print(
        f"S, A, H = {sizes}: {rate:.3g} episodes a second; mean of 1 - V_r in {episodes} episodes "
        f"{mean:.4f} ({what})",
        flush=True,
    )


if __name__ == "__main__":
    main()
