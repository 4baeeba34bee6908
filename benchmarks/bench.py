"""Side-by-side benchmarks: ratios of times measured in one run, on one thread.

    python benchmarks/bench.py [--json results.json]

These machines are noisy: compare ratios, not times, which are of the CPU. Each pair of rivals runs
in turns, and the median over the rounds counts.
"""

import argparse
import copy
import json
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numba
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from rich.console import Console
from rich.table import Table

import naive
import safedrift as sd
from builders import dense_features, linear_settings, small_world, twin_of
from safedrift.kernels import records
from safedrift.kernels.tabular import propd_ppo
from safedrift.learners.propd_ppo.engines import flatten
from safedrift.models.stepping import uniforms_per_episode
from safedrift.planning.episodes import make_answers, make_ends, solve_chunk

W = 400


def seconds(work):
    """CPU seconds: other people's work on the machine does not count."""
    start = time.process_time()
    work()
    return time.process_time() - start


def in_turns(rounds, *works):
    """Median seconds of each work, the works taking turns."""
    for work in works:
        work()  # compile, warm the caches
    times = [[seconds(work) for work in works] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def player(world, agent, episodes, start=0):
    """The engine: learner and simulation, `episodes` at a time, each time from episode `start`."""
    _, H, S, A, K = agent.sizes
    rng = np.random.default_rng(0)
    actions = rng.random((episodes, H))
    draws = rng.random((episodes, uniforms_per_episode(H, K, 1)))
    inputs = records.ChunkInput(False, actions, draws, np.zeros(episodes, bool))
    C = agent.memory.values.v_start.size
    out = records.make_chunk_output(0, episodes, H, S, A, K)
    trace, log = records.make_trace(episodes, K, C), records.make_log(0, C, H, S, A, K)
    buffer = records.make_episode_buffer(H, K)
    schedule = agent.forgetting.schedule(start, episodes)
    agent.reserve(W + episodes)

    def play():
        clock = agent.memory.clock
        clock.episode[0] = clock.window_age[0] = start  # the path of the world is not endless
        agent.engine.play(
            world.arrays, agent.hyperparameters, agent.memory, schedule, inputs, buffer, out,
            trace, log,
        )  # fmt: skip

    return play


RIVALS_WANTED = {"ns-triple-q": 5, "triple-q": 5, "double-restart-triple-q": 5, "restart-q-ucb": 5}


def rivals(rounds):
    """Per-episode time of every tabular learner, learner + simulation, S = 20, A = 5, H = 10.

    times_uniform: against the uniform policy, that is, the simulation alone. wanted: at most so
    many microseconds; learners that plan do so every 25 episodes.
    """
    episodes = 2000
    world = small_world(M=20_000, S=20, A=5, H=10, drift="linear")
    learners, plays = [], []
    for name in sd.learners.LEARNERS:
        given = {"gamma": 0.01} if "gamma" in sd.learners.options(name) else {}
        try:
            learner = sd.learners.make(name, world, **given)
        except (ValueError, TypeError):  # needs features, or a safe policy
            continue
        learners.append(name)
        plays.append(chunk_player(world, learner, episodes))
    times = in_turns(rounds, *plays)
    return [
        {"learner": name, "us": seconds / episodes * 1e6, "times_uniform": seconds / times[0],
         "wanted": RIVALS_WANTED.get(name, 60)}
        for name, seconds in zip(learners, times, strict=True)
    ]  # fmt: skip


def planner_by_drift(rounds):
    """Per-episode time of the adaptive planner, learner + simulation, in every kind of drift.

    times_uniform: against the uniform policy in the same world. wanted: at most so many
    microseconds.
    """
    episodes = 2000
    worlds = [
        (small_world(M=20_000, S=S, A=A, H=H, drift=drift), drift, wanted)
        for (S, A, H), wanted in (((5, 3, 5), 25), ((20, 5, 10), 40))
        for drift in ("abrupt", "linear", "periodic", "random_walk", "stationary")
    ]
    plays = [
        chunk_player(world, sd.learners.make(name, world), episodes)
        for world, _, _ in worlds
        for name in ("adaptive-planner", "uniform")
    ]
    times = in_turns(rounds, *plays)
    return [
        {"S": world.S, "A": world.A, "H": world.H, "drift": drift, "us": own / episodes * 1e6,
         "times_uniform": own / uniform, "wanted": wanted}
        for (world, drift, wanted), own, uniform in zip(
            worlds, times[::2], times[1::2], strict=True
        )
    ]  # fmt: skip


def chunk_player(world, learner, episodes):
    """Play so many episodes on and on, measuring none."""
    _, H, S, A, K = learner.sizes
    rng = np.random.default_rng(0)
    draws = rng.random((episodes, uniforms_per_episode(H, K, 1)))
    inputs = records.ChunkInput(False, rng.random((episodes, H)), draws, np.zeros(episodes, bool))
    started = {}

    def play():
        if started.get("episode", world.M) + episodes > world.M:
            started["learner"], started["episode"] = learner.fresh(0), 0
        out = records.make_chunk_output(0, episodes, H, S, A, K)
        started["learner"].play_chunk(world.arrays, inputs, out)
        started["episode"] += episodes

    return play


def twin_player(world, agent):
    M, H, _, _, K = agent.sizes
    rng = np.random.default_rng(0)
    actions, draws = rng.random((M, H)), rng.random((M, H * (2 + K)))
    path = world.transition_path.scenario[:, 0]
    dense = [(c.dense_transitions(), c.rewards, c.utilities, c.initial) for c in world.scenarios]

    def play():
        at = naive.simulated_play(lambda m: dense[path[m]], actions, draws)
        for _ in twin_of(agent, at, world.thresholds):
            pass

    return play


def engine_against_twin(rounds):
    """Per-episode time of learner + simulation against the NumPy twin, W = 400."""
    rows = []
    for (S, A, H), wanted in (((5, 3, 5), 150), ((20, 5, 10), 40), ((100, 5, 10), 40)):
        world = small_world(M=W, S=S, A=A, H=H)
        agent = sd.PROPDPPO.for_problem(
            world, sd.Slater(0.5), mode="repaired", budgets=sd.Budgets(9, 3, 3, 9), W=W, L=W
        )
        play = player(world, agent.fresh(), W)

        def many(play=play):
            for _ in range(20):
                play()

        fast, slow = in_turns(rounds, many, twin_player(world, agent))
        fast /= 20
        rows.append(
            {"S": S, "A": A, "H": H, "engine_us": fast / W * 1e6, "twin_us": slow / W * 1e6,
             "ratio": slow / fast, "wanted": wanted}
        )  # fmt: skip
    return rows


def cost_against_sizes(rounds):
    """Per-episode time against window, constraints and, with least squares, features.

    relative: to the first row of the same kind. Counts at S = 20, A = 5, H = 10; least squares at
    S = 50, 10 successors per pair. Against S: the measures below; threads: benchmarks/many.py.
    """
    cases = [("W", W, 1) for W in (100, 400, 1600)] + [("K", 400, K) for K in (1, 2, 3)]
    plays = []
    for _, window, K in cases:
        world = small_world(M=window, S=20, A=5, H=10, K=K)
        agent = sd.PROPDPPO.for_problem(
            world, sd.Slater(0.5), mode="repaired", budgets=sd.Budgets(9, 3, 3, 9), W=window,
            L=window,
        )  # fmt: skip
        plays.append((window, player(world, agent, window)))
    names = [(what, window if what == "W" else K) for what, window, K in cases]
    for d in (4, 8, 16, 32):
        world = linear_world(50, 5, 10, d, 10, 100)
        plays.append((100, player(world, linear_learner(world, 100), 100)))
        names.append(("d", d))
    times = in_turns(rounds, *(play for _, play in plays))
    each = [t / n * 1e6 for t, (n, _) in zip(times, plays, strict=True)]
    first = {}
    return [
        {"size": what, "is": number, "engine_us": t, "relative": t / first.setdefault(what, t)}
        for (what, number), t in zip(names, each, strict=True)
    ]


def sparse_world(S, A, H, episodes, visited=10, successors=3):
    """A sparse world of S states of which the same few can be visited."""
    rng = np.random.default_rng(0)
    rows = H * S * A
    lists = sd.Successors(
        np.arange(rows + 1, dtype=np.int64) * successors,
        (np.repeat(rng.integers(0, visited, rows), successors) + np.tile(range(successors), rows))
        % visited,
        np.tile(rng.dirichlet(np.ones(successors)), rows),
    )
    few = np.random.default_rng(1).random((2, H, visited, A))
    rewards, utilities = np.zeros((H, S, A)), np.zeros((1, H, S, A))
    rewards[:, :visited], utilities[0, :, :visited] = few
    cmdp = sd.TabularCMDP(lists, rewards, utilities, [0.5], (np.arange(S) == 0).astype(float))
    return sd.DriftingCMDP([cmdp], np.zeros(episodes, np.int64))


def cost_against_states(rounds):
    """Per-episode time against S, the visited states staying the same."""
    sizes = (10, 100, 1_000, 10_000, 100_000)
    plays = []
    for S in sizes:
        world = sparse_world(S, 4, 8, 2000)
        agent = sd.PROPDPPO.for_problem(
            world, sd.Slater(0.5), mode="repaired", budgets=sd.Budgets(9, 3, 3, 9), W=W, L=W
        )
        plays.append(player(world, agent, 2000))
    times = in_turns(rounds, *plays)
    return [
        {"S": S, "engine_us": t / 2000 * 1e6, "relative": t / times[0]}
        for S, t in zip(sizes, times, strict=True)
    ]


@numba.njit(error_model="numpy", _nrt=False, nogil=True)
def play_hashed(S, opens, thresholds, hyper, memory, buffer, uniforms):
    """Play episodes in a world of S states that no array describes: 8 successors by a hash."""
    states, actions, signals = buffer.states, buffer.actions, buffer.signals
    B, _, H = uniforms.shape
    for e in range(B):
        opened = opens[e]
        propd_ppo.begin_episode(opened, False, 1.0, opened, hyper, memory)
        s = np.int64(0)
        for h in range(H):
            states[h] = s
            actions[h] = propd_ppo.act(h, s, uniforms[e, 0, h], memory)
            row = np.uint64((h * S + s) * 5 + actions[h])
            signals[0, h] = float(mixed(row) >> np.uint64(11)) / 2.0**53
            signals[1, h] = float(mixed(~row) >> np.uint64(11)) / 2.0**53
            after = np.uint64(8.0 * uniforms[e, 1, h])
            s = np.int64(mixed(np.uint64(8) * row + after) % np.uint64(S))
        propd_ppo.end_episode(thresholds, states, actions, signals, hyper, memory)


@numba.njit(_nrt=False, forceinline=True)
def mixed(x):
    """Mix the bits of x (splitmix64)."""
    x += np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def learner_against_states(rounds):
    """Per-episode time and memory of the learner against S: A = 5, H = 10, 8 successors, W = 1000.

    The successors of a pair are drawn from all S states by a hash, so that the world takes no
    memory. wanted: at most so many times the time at S = 10,000; below 1 GiB.
    """
    A, H, window = 5, 10, 1000
    sizes = (10_000, 100_000, 1_000_000)
    rng = np.random.default_rng(0)
    uniforms = rng.random((window, 2, H))
    plays, used = [], []
    for S in sizes:
        agent = sd.PROPDPPO.for_problem(
            sd.ProblemSpec(H=H, S=S, A=A, M=window), sd.Slater(0.5), mode="repaired",
            budgets=sd.Budgets(9, 3, 3, 9), W=window, L=window,
        )  # fmt: skip
        agent.reserve(window)
        memory, opens = agent.memory, agent.forgetting.schedule(0, window).opens_window
        plays.append(
            partial(
                play_hashed, S, opens, np.array([0.5 * H]), agent.hyperparameters, memory,
                records.make_episode_buffer(H, 1), uniforms,
            )
        )  # fmt: skip
        used.append(sum(array.nbytes for array in flatten(memory).values()) / 2**30)
    times = in_turns(rounds, *plays)
    return [
        {"S": S, "engine_us": t / window * 1e6, "relative": t / times[0], "wanted": 1.5,
         "learner_GiB": size}
        for S, t, size in zip(sizes, times, used, strict=True)
    ]  # fmt: skip


def optimum_against_highs(rounds):
    """Per-episode time of the constrained optimum against scipy's HiGHS (one linear program)."""
    cases = [(K, *sizes) for K in (1, 2, 3) for sizes in ((5, 3, 5), (20, 5, 10))]
    return [_optimum_against_highs(rounds, *case) for case in cases]


def _optimum_against_highs(rounds, K, S, A, H, n=64):
    world = small_world(M=n, S=S, A=A, H=H, K=K, drift="random_walk")
    thresholds = sd.oracles.safest_utilities(world, np.arange(n)) - 0.08 * H
    world = world.with_thresholds(thresholds)
    arrays, episodes = world.arrays, np.arange(n)
    answers, changes = make_answers(n, K), np.empty((n, H))
    policies, ends = np.empty((0, H, S, A)), make_ends(arrays)

    def plan():
        solve_chunk(arrays, episodes, answers, changes, policies, ends)

    cmdps = [world.at(m) for m in range(0, n, 16)]
    dense = [
        (c.dense_transitions(), c.rewards, c.utilities, c.thresholds, c.initial) for c in cmdps
    ]
    values = []

    def highs():
        values[:] = [-naive.occupancy_lp(*cmdp).fun for cmdp in dense]

    fast, slow = in_turns(rounds, plan, highs)
    difference = float(np.abs(answers.value[::16] - values).max())
    fast, slow = fast / n, slow / len(dense)
    multiplier = answers.multipliers.sum(axis=1)
    return {
        "K": K, "S": S, "A": A, "H": H, "plan_us": fast * 1e6, "highs_us": slow * 1e6,
        "ratio": slow / fast, "wanted": 250 if K == 1 else 10, "difference": difference,
        "gap": float((np.abs(answers.gap) / (1 + multiplier)).max()),
        "multipliers": float(multiplier.mean()),
    }  # fmt: skip


def linear_world(S, A, H, d, successors, episodes, seed=0):
    """A random linear-kernel world: d base kernels with few or all states as successors."""
    rng = np.random.default_rng(seed)
    rows = S * A
    psi = rng.dirichlet(np.ones(successors), (rows, d)).transpose(0, 2, 1).reshape(-1, d)
    states = rng.random((rows, S)).argsort(axis=1)[:, :successors]
    weights = sd.drift.random_walk(episodes, d, seed=seed)[:, None].repeat(H, axis=1)
    phi = rng.random((S, A, d)) / np.sqrt(d)
    lists = sd.SuccessorFeatures(np.arange(rows + 1) * successors, states.ravel(), psi)
    theta = weights * np.sqrt(d)
    first = (np.arange(S) == 0).astype(float)
    return sd.LinearKernelCMDP(
        lists, phi, weights, theta, theta[:, None], np.full((episodes, 1), 0.3 * H), first
    )


def linear_learner(world, episodes):
    return sd.PROPDPPO.for_problem(
        world, sd.Slater(0.5), mode="repaired", budgets=sd.Budgets(9, 3, 3, 9), W=episodes,
        L=episodes, bonus_scale=0.01,
    )  # fmt: skip


def least_squares_against_twin(rounds):
    """Algorithm 2, per episode of a window of 400 (200), against the NumPy twin; d1 = d2 = 16.

    read_ms: reading psi H-1 times, which every evaluation must do; with all states as successors
    that is 230 MB per episode and nearly all of the engine's time. times_read: the engine's time
    over it, wanted at most 2.
    """
    S, A, H, d = 200, 5, 10, 16
    rows = []
    for successors, n in ((10, W), (S, W // 2)):
        world = linear_world(S, A, H, d, successors, n)
        agent = linear_learner(world, n)
        play = player(world, agent.fresh(), n)
        psi, phi = dense_features(world)
        rng = np.random.default_rng(0)
        actions, draws = rng.random((n, H)), rng.random((n, H * 3))
        cmdp = world.at(0)
        table = (cmdp.dense_transitions(), cmdp.rewards, cmdp.utilities, cmdp.initial)

        def twin(world=world, agent=agent, psi=psi, phi=phi, table=table, actions=actions,
                 draws=draws):  # fmt: skip
            for _ in naive.propd_ppo_linear(
                play=naive.simulated_play(lambda m: table, actions, draws),
                thresholds=world.thresholds, sizes=agent.sizes, initial=world.initial, psi=psi,
                phi=phi, **linear_settings(agent),
            ):  # fmt: skip
                pass

        def read(world=world, n=n):
            for _ in range(n * (H - 1)):
                world.features.psi.max()

        fast, bare = in_turns(rounds, play, read)
        slow = seconds(twin)
        rows.append(
            {"S": S, "A": A, "H": H, "d": d, "successors": successors, "read_ms": bare / n * 1e3,
             "engine_ms": fast / n * 1e3, "times_read": fast / bare, "twin_ms": slow / n * 1e3,
             "ratio": slow / fast, "wanted": 30}
        )  # fmt: skip
    return rows


def least_squares_along_a_window(rounds):
    """Algorithm 2, per-episode time in episodes 1000-2000 and 9000-10000 of one window."""
    world = linear_world(20, 5, 10, 8, 5, 10_000)
    agent = linear_learner(world, 10_000)
    at = {}
    for chunk in range(9):
        player(world, agent, 1000, start=1000 * chunk)()
        at[1000 * (chunk + 1)] = copy.deepcopy(agent)
    plays = [player(world, at[start], 1000, start=start) for start in (1000, 9000)]
    early, late = in_turns(rounds, *plays)
    return [
        {"S": 20, "A": 5, "H": 10, "d": 8, "early_us": early * 1e3, "late_us": late * 1e3,
         "ratio": late / early, "wanted": 1.2, "residual": float(agent.memory.window.residual[0])}
    ]  # fmt: skip


def certify_against_run(rounds):
    """Certifying a run against the run itself (optima, learning, exact values), M = 10,000."""
    S, A, H, M = 20, 5, 10, 10_000
    rows = []
    for drift in ("abrupt", "linear", "random_walk"):
        world = sd.problems.make(
            "random", episodes=M, states=S, actions=A, horizon=H, drift=drift, scenarios=3
        )
        agent = sd.PROPDPPO.for_problem(world, sd.Slater(0.5))

        def run(world=world, agent=agent):
            sd.simulate(world, agent)

        def certify(world=world, agent=agent):
            sd.certify(world, agent)

        once, again = in_turns(rounds, run, certify)
        rows.append(
            {"S": S, "A": A, "H": H, "drift": drift, "run_us": once / M * 1e6,
             "certify_us": again / M * 1e6, "ratio": again / once, "wanted": 3}
        )  # fmt: skip
    return rows


LARGE = """
import json, resource, time
import numpy as np
import safedrift as sd

def stage(work):
    start = time.perf_counter()
    done = work()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    told.append([time.perf_counter() - start, peak])
    return done

told = []
# A day starts with a quarter of the places taken, and H half hours do not empty so long a queue:
# waiting = 0.15, the default, would not be feasible.
world = stage(lambda: sd.problems.make("queue", {M}, capacity={capacity}, waiting=0.3))
found = stage(lambda: sd.describe(world, np.linspace(0, {M} - 1, 6).astype(int)))
agent = sd.PROPDPPO.for_problem(world, sd.Slater(float(found.gamma.min())))
stage(lambda: sd.simulate(world, agent, measure_every={M} // 6))
print(json.dumps([told, world.S]))
"""


def large_world(rounds):
    """A sparse world of 100,001 states (queue): built, described, simulated; peak memory so far.

    In a process of its own. 3,000 episodes, of which every 500th is measured exactly. With S*S
    numbers a single table of transitions would take 80 GB.
    """
    del rounds
    code = LARGE.format(M=3000, capacity=100_000)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    told, S = json.loads(done.stdout)
    names = ("built", "described at 6 episodes", "simulated")
    return [
        {"S": S, "stage": name, "seconds": took, "peak_GB": peak}
        for name, (took, peak) in zip(names, told, strict=True)
    ]


def own_loop(rounds):
    """An own loop at S = 100,000, A = 4, H = 10: one episode, and one copy of its policy."""
    found = []
    for name, options in (
        ("certainty-equivalence", {"window": 200}),
        ("opt-primal-dual", {"window": 200}),
        ("propd-ppo", {"gamma": 0.5, "forgetting": "sliding", "window": 200}),
        ("triple-q", {}),
    ):
        spec = sd.ProblemSpec(H=10, S=100_000, A=4, M=10**9 if name == "triple-q" else None)
        learner = sd.learners.make(name, spec, **options)
        rng = np.random.default_rng(0)
        times, copies = [], []
        for m in range(300 + 100 * rounds):
            states = np.cumsum(rng.integers(0, 9, 10))
            start = time.perf_counter()
            policy = learner.begin_episode([5.0])
            actions = [learner.act(h, int(s)) for h, s in enumerate(states)]
            learner.end_episode(sd.Trajectory(states, actions, rng.random(10), rng.random((1, 10))))
            times.append(time.perf_counter() - start)
            if m % 100 == 0:
                copies.append(seconds(partial(np.array, policy)))
        episode, copy_of = statistics.median(times[300:]), statistics.median(copies)
        found.append({"learner": name, "episode_us": 1e6 * episode, "copy_us": 1e6 * copy_of})
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="*", default=[], help="names of measures; all by default")
    arguments = parser.parse_args()
    results = {}
    for measure in (
        engine_against_twin,
        rivals,
        planner_by_drift,
        cost_against_sizes,
        cost_against_states,
        learner_against_states,
        optimum_against_highs,
        least_squares_against_twin,
        least_squares_along_a_window,
        certify_against_run,
        large_world,
        own_loop,
    ):
        if arguments.only and measure.__name__ not in arguments.only:
            continue
        rows = results[measure.__name__] = measure(arguments.rounds)
        table = Table(
            *rows[0], title=measure.__doc__.splitlines()[0], title_justify="left", box=None
        )
        for row in rows:
            table.add_row(*(f"{x:.4g}" if isinstance(x, float) else str(x) for x in row.values()))
        Console().print(table, "")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
