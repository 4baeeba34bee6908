"""Small worlds and comparisons shared by the tests of the learner."""

import hashlib
import json
from dataclasses import replace
from typing import NamedTuple
from unittest import mock

import numpy as np
import pyarrow.parquet as pq

import naive
import safedrift as sd
from safedrift.adapters.gymnasium_worlds import EnvironmentStepper
from safedrift.experiments.playing import play_chunks
from safedrift.experiments.streams import seeds
from safedrift.kernels.audit import memory as audits
from safedrift.kernels.tabular.memory import BERNSTEIN_BONUS, DUAL_SIGNALS
from safedrift.models.stepping import split_uniforms, stepper_for, uniforms_per_episode
from safedrift.problems.random import DRIFTS
from safedrift.results.storage import write_sealed
from safedrift.theory import evaluate_certificates
from safedrift.theory.audit import Audit

SIGNALS = tuple(DUAL_SIGNALS)
DRIFT_NAMES = tuple(DRIFTS)


def small_world(M=40, S=4, A=3, H=3, K=1, drift="abrupt", seed=0, successors=None, start=None):
    """A random drifting world; `start` replaces the fixed first state by a distribution."""
    world = sd.problems.make(
        "random", episodes=M, seed=seed, states=S, actions=A, horizon=H, constraints=K, drift=drift,
        gamma=0.01, successors=successors,
    )  # fmt: skip
    if start is None:
        return world
    scenarios = [
        sd.TabularCMDP(c.transitions, c.rewards, c.utilities, c.thresholds, start)
        for c in world.scenarios
    ]
    weights = dense_weights(world.transition_path, len(scenarios))
    return sd.DriftingCMDP(scenarios, weights, thresholds=world.thresholds)


def dense_weights(path, N):
    weights = np.zeros((path.scenario.shape[0], N))
    np.put_along_axis(weights, path.scenario.astype(int), path.weight, axis=1)
    return weights


def twin_of(agent, play, thresholds):
    """The NumPy twin with the same constants as `agent`."""
    s = agent.hyperparameters
    if s.bonus == BERNSTEIN_BONUS:
        bonus = naive.bernstein_bonus(s.c, agent.sizes.H, s.lam)
    elif s.shift > 0:
        bonus = naive.printed_bonus(s.root[0] / 2, s.lam)
    else:
        bonus = naive.repaired_bonus(s.root, s.tail, s.lam)
    return naive.propd_ppo(
        play=play, thresholds=thresholds, sizes=agent.sizes, initial=agent.initial, alpha=s.alpha,
        eta=s.eta, xi=s.xi, chi=s.chi, lam=s.lam, bonus=bonus, LV=s.LV, lagged=s.lagged,
        dual_signal=SIGNALS[s.dual_signal], **periods(agent.forgetting),
    )  # fmt: skip


def periods(forgetting):
    """What the twins are told about forgetting."""
    return {name: getattr(forgetting, name) for name in ("L", "W")}


def recorded_play(world, seed=0, noisy=False, draw=None, twins=naive):
    """play(m, policy) -> a drawn episode of the world, and the list of all episodes so far.

    draw(m, policy) replaces the world's own draws; `twins` is the module that draws them.
    """
    rng = np.random.default_rng(seed)
    M, H, K = world.M, world.H, world.K
    dense, seen = {}, []

    def at(m):
        version = world.distinct[1][m]
        if version not in dense:
            cmdp = world.at(m)
            dense[version] = (
                cmdp.dense_transitions(), cmdp.rewards, cmdp.utilities, cmdp.initial,
            )  # fmt: skip
        return dense[version]

    draw = draw or twins.simulated_play(at, rng.random((M, H)), rng.random((M, H * (2 + K))), noisy)

    def play(m, pi):
        seen.append(draw(m, pi))
        return seen[-1]

    play.now = lambda m: np.concatenate([at(m)[1][None], at(m)[2]])  # (1+K, H, S, A), for cheats
    return play, seen


def assert_agrees_with_twin(world, agent, seed=0, noisy=False, tolerance=1e-10):
    """Drive learner and twin with the twin's trajectories; compare everything at every episode."""
    play, seen = recorded_play(world, seed, noisy)
    for m, expected in enumerate(twin_of(agent, play, world.thresholds)):
        policy = np.asarray(agent.begin_episode(world.thresholds[m]))
        np.testing.assert_allclose(policy, expected["policy"], rtol=0, atol=tolerance)
        agent.end_episode(sd.Trajectory(*seen[m]))
        found = agent.q()
        np.testing.assert_allclose(found[0], expected["Q_r"], rtol=0, atol=tolerance)
        np.testing.assert_allclose(found[1:], expected["Q_g"], rtol=0, atol=tolerance)
        np.testing.assert_allclose(agent.mu, expected["mu"], rtol=0, atol=tolerance)
        np.testing.assert_allclose(agent.estimates[0], expected["V_r"], rtol=0, atol=tolerance)
        np.testing.assert_allclose(agent.estimates[1:], expected["V_g"], rtol=0, atol=tolerance)
    assert agent.episode == world.M


def own_loop(world, agent, seed, noisy=False):
    """A user's own loop in a world that draws exactly as the simulation does.

    Yields (policy, mu, estimates, observed sums) of each episode.
    """
    agent = agent.fresh(seeds(seed)["learner"])
    stream = np.random.default_rng(seeds(seed)["world"])
    stepper = stepper_for(world, noisy=noisy)
    _, H, _, _, K = agent.sizes
    for m in range(world.M):
        policy = agent.begin_episode(world.thresholds[m])
        draws = stream.random(uniforms_per_episode(H, K, stepper.next_draws))
        u = split_uniforms(draws, H, K, stepper.next_draws)
        signals, observed = np.zeros((1 + K, H)), np.zeros(1 + K)
        states, actions = [], []
        x = stepper.first(m, u.first)
        for h in range(H):
            states.append(x)
            actions.append(agent.act(h, x))
            signals[:, h] = stepper.signals(m, h, x, actions[h], u.signals[h])
            observed += signals[:, h]
            if h + 1 < H:
                x = stepper.next(m, h, x, actions[h], u.next[h])
        agent.end_episode(sd.Trajectory(states, actions, signals[0], signals[1:]))
        yield policy, agent.mu, agent.estimates, observed


# ---------------------------------------------------------------- environments


class Episode(NamedTuple):
    """An episode of an environment."""

    states: np.ndarray  # (H,)
    actions: np.ndarray  # (H,)
    values: np.ndarray  # (1+K, H) rewards and utilities


def environment_episode(world, m, choose, stepper=None):
    """Play episode m of an environment; choose(h, state) -> action."""
    stepper = stepper or EnvironmentStepper(world)
    none = np.empty(0)
    states, actions, values = [], [], np.empty((1 + world.K, world.H))
    x = stepper.first(m, none)
    for h in range(world.H):
        states.append(x)
        actions.append(choose(h, x))
        values[:, h] = stepper.signals(m, h, x, actions[h], none)
        if h + 1 < world.H:
            x = stepper.next(m, h, x, actions[h], none)
    return Episode(np.array(states), np.array(actions), values)


# ---------------------------------------------------------------- linear kernels

BUDGETS = sd.Budgets(P=2.0, r=1.0, g=1.0, star=3.0)
# Large steps and small bonuses make every quantity move within few episodes.
LIVELY = {"alpha": 0.7, "eta": 0.4, "bonus_scale": 0.05, "lam": 0.3}


def build_linear(world, knowledge="slater", mode="repaired", **overrides):
    """A least-squares learner with lively constants."""
    if knowledge == "slater":
        told = sd.Slater(0.4)
    else:
        told = sd.local_budgets(world, "l2" if mode == "printed" else "l1")
    chosen = LIVELY | overrides
    return sd.PROPDPPO.for_problem(world, told, mode=mode, budgets=BUDGETS, **chosen)


def with_evaluation(agent, **changes):
    """A fresh learner whose evaluation has some hand-made constants."""
    parameters = replace(
        agent.parameters, evaluation=replace(agent.parameters.evaluation, **changes)
    )
    return sd.PROPDPPO(
        agent.sizes, agent.initial, parameters, agent.knowledge, features=agent.features,
        box=agent.box,
    )  # fmt: skip


def linear_world(features="scenarios", rewards="scenarios", **options):
    return small_world(**({"M": 30} | options)).as_linear_kernel(features, rewards)


def dense_features(world):
    """ψ (H, S, A, S, d1) and φ (H, S, A, d2) of a finite linear-kernel world."""
    f, (H, S, A) = world.features, (world.H, world.S, world.A)
    rows = np.repeat(np.arange(f.offsets.size - 1), np.diff(f.offsets))
    psi = np.zeros((f.offsets.size - 1, S, world.d1))
    np.add.at(psi, (rows, f.states.astype(int)), f.psi)
    psi = psi.reshape(-1, S, A, S, world.d1)
    if f.one_hot:
        phi = np.eye(S * A).reshape(1, S, A, S * A)
    else:
        phi = f.phi.reshape(-1, world.d2, A, S).transpose(0, 3, 2, 1)
    return np.broadcast_to(psi, (H, *psi.shape[1:])), np.broadcast_to(phi, (H, *phi.shape[1:]))


def linear_settings(agent):
    """The constants of a least-squares learner as the twins take them."""
    s = agent.hyperparameters
    names = (
        "alpha", "eta", "xi", "chi", "lam", "beta", "beta_r", "LV", "window_drift_P",
        "window_drift_g", "lagged",
    )  # fmt: skip
    chosen = {name: getattr(s, name) for name in names} | {"dual_signal": SIGNALS[s.dual_signal]}
    return chosen | periods(agent.forgetting)


def by_state(values, S):
    """Turn (..., A*S) into (..., S, A)."""
    return values.reshape(*values.shape[:-1], -1, S).swapaxes(-1, -2)


def assert_same_estimates(world, agent, policy, expected, tolerance):
    """Compare everything Algorithm 2 computes in an episode."""
    memory, found = agent.memory, agent.q()
    K, H, S = world.K, world.H, world.S
    u = memory.values.u
    if world.features.one_hot:
        u = by_state(u, S).reshape(1 + K, H, -1)
    for name, got in {
        "policy": policy, "mu": agent.mu, "Q_r": found[0], "Q_g": found[1:],
        "w": memory.values.w, "u": u,
        "Gamma": by_state(memory.values.bonus, S), "Gamma_r": by_state(memory.values.bonus_r, S),
        "V": memory.values.v[: 1 + K, :H], "V_r": agent.estimates[0], "V_g": agent.estimates[1:],
        "V_fed": memory.dual.signal,
    }.items():  # fmt: skip
        np.testing.assert_allclose(got, expected[name], rtol=0, atol=tolerance, err_msg=name)


def assert_agrees_with_linear_twin(world, agent, seed=0, noisy=False, tolerance=1e-8, draw=None):
    """Drive a least-squares learner and its twin with the twin's trajectories.

    draw(m, policy) -> an episode; by default one of the world's.
    """
    play, seen = recorded_play(world, seed, noisy, draw)
    psi, phi = dense_features(world)
    twin = naive.propd_ppo_linear(
        play=play, thresholds=world.thresholds, sizes=agent.sizes, initial=world.initial, psi=psi,
        phi=phi, **linear_settings(agent),
    )  # fmt: skip
    caps = counted_caps(agent)
    for m, expected in enumerate(twin):
        policy = np.asarray(agent.begin_episode(world.thresholds[m]))
        agent.end_episode(sd.Trajectory(*seen[m]))
        assert_same_estimates(world, agent, policy, expected, tolerance)
        assert caps[m] == expected["at_cap"]
    assert agent.episode == world.M


def counted_caps(agent):
    """A list that grows by the number of estimates at their cap after every episode."""
    found, end = [], agent.engine.end

    def kept(*arguments):
        found.append(end(*arguments))
        return found[-1]

    agent.engine.end = kept
    return found


# ---------------------------------------------------------------- a box


def box_twin(world, agent, play):
    """The NumPy twin of a learner on a box."""
    box = world.box
    psi, phi = box.features_at(box.points)
    return naive.propd_ppo_box(
        play=play, thresholds=world.thresholds, sizes=agent.sizes, initial=world.initial,
        psi=psi, phi=phi, psi_at=lambda x: box.features_at(x[None])[0][0],
        phi_at=lambda x: box.features_at(x[None])[1][0], **linear_settings(agent),
    )  # fmt: skip


def ask_policy(m, agent, policy, states, expected):
    """Ask for the policy at the visited states, without acting there."""
    found = [policy[h, x] for h, x in enumerate(states)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


def assert_agrees_with_box_twin(world, agent, seed=0, path=None, ask=ask_policy):
    """Compare at the nodes (1e-8) and, off the nodes, with brute-force replay (1e-9).

    path(m) -> the states of an episode (H, n), by default random ones; ask(m, agent, policy,
    states, expected policy there) happens in mid-episode.
    """
    _, H, _, A, K = agent.sizes
    rng = np.random.default_rng(seed)
    seen = []

    def play(m, policy_at):
        states = rng.random((H, world.box.low.size)) if path is None else path(m)
        actions = [rng.choice(A, p=policy_at(h, states[h])) for h in range(H)]
        seen.append((states, np.array(actions), rng.random(H), rng.random((K, H))))
        return seen[-1]

    caps = counted_caps(agent)
    for m, expected in enumerate(box_twin(world, agent, play)):
        policy = agent.begin_episode(world.thresholds[m])
        ask(m, agent, policy, seen[m][0], expected["policy_visited"])
        agent.end_episode(sd.Trajectory(*seen[m]))
        assert_same_estimates(world, agent, np.asarray(policy), expected, 1e-8)
        assert caps[m] == expected["at_cap"]


def box_world(
    M=30, H=4, K=1, n=1, nodes=12, rule="gauss-legendre", drift=True, tolerance=0.05, copies=1
):
    """A small world on [0, 1]^n: two truncated normals blended, rewards linear in x.

    Coefficients drift, those of rewards and utilities too. With several `copies` all features come
    so many times, which makes every Gram matrix singular but for its ridge.
    """
    from safedrift.models import box

    def towards(shift):
        return lambda x, a: 0.8 * x + (a - 1) * 0.15 + shift

    low, high = np.zeros(n), np.ones(n)
    bases = [box.truncated_normal(towards(shift), 0.15, low, high) for shift in (0.0, 0.2)]
    psi, sample = box.mixture(bases * copies)
    weight = np.linspace(0, 1, M) if drift else np.full(M, 0.5)
    theta = np.stack([weight, 1 - weight], axis=1)[:, None].repeat(H, axis=1)

    def phi(x, a):
        one = np.hstack([x[:, :1], 1 - x[:, :1], 0.3 + 0.1 * a]) / 1.5
        return np.hstack([one] * copies) / np.sqrt(copies)

    theta_r, theta_g = np.zeros((M, H, 3)), np.zeros((M, K, H, 3))
    theta_r[..., 0] = 1.3 - 0.2 * weight[:, None] - 0.05 * np.arange(H)
    theta_g[..., 1] = 1.0 + 0.1 * np.arange(K)[:, None]
    theta_g[..., 2] = 0.4 + 0.2 * weight[:, None, None]
    theta, theta_r, theta_g = (np.concatenate([t] * copies, -1) for t in (theta, theta_r, theta_g))
    theta, theta_r, theta_g = (
        theta / copies, theta_r / np.sqrt(copies), theta_g / np.sqrt(copies),
    )  # fmt: skip
    return sd.linear_kernel_on_box(
        low, high, 3, psi, phi, theta, theta_r, theta_g, np.full((M, K), 0.45 * H),
        np.full(n, 0.3), sample=sample, nodes=nodes, rule=rule, tolerance=tolerance,
    )  # fmt: skip


# ---------------------------------------------------------------- audits


def twin_transcript(world, agent, twins=naive, seed=0, noisy=False):
    """What the NumPy twin of `agent` does in `world`, as an audit reads it.

    twins : the module whose `propd_ppo` or `propd_ppo_linear` learns and whose `simulated_play`
        draws: `naive`, or a copy of it that somebody broke
    """
    play, seen = recorded_play(world, seed, noisy, twins=twins)
    if agent.features is None:
        with mock.patch.dict(twin_of.__globals__, naive=twins):
            twin = twin_of(agent, play, world.thresholds)
    else:
        psi, phi = dense_features(world)
        twin = twins.propd_ppo_linear(
            play=play, thresholds=world.thresholds, sizes=agent.sizes, initial=world.initial,
            psi=psi, phi=phi, **linear_settings(agent),
        )  # fmt: skip
    found = list(twin)
    q = [np.concatenate([one["Q_r"][None], one["Q_g"]]) for one in found]
    return audits.Transcript(
        np.stack([one["policy"] for one in found]), np.stack(q),
        np.stack([np.append(one["V_r"], one["V_g"]) for one in found]),
        np.stack([one["mu"] for one in found]), np.stack([one[0] for one in seen]),
        np.stack([one[1] for one in seen]), np.stack([np.vstack(one[2:]) for one in seen]),
    )  # fmt: skip


def audited(world, agent, script, p=0.05, pieces=None, noisy=False):
    """The certificates of a transcript, added whole or in pieces of the given sizes."""
    audit = Audit(world, agent, p=p, noisy=noisy)
    first = 0
    for size in pieces or [world.M]:
        audit.add_episodes(audits.Transcript(*(part[first : first + size] for part in script)))
        first += size
    return evaluate_certificates(audit)


IDENTITIES = (
    "policy-step", "dual-step", "evaluation", "start-value", "performance-difference",
    "regret-decomposition", "possible-path", "observations",
)  # fmt: skip
STATISTICS = (
    "action-statistics", "transition-statistics", "signal-statistics", "return-statistics",
)  # fmt: skip


def broken_identities(found):
    """Ids of the identities that do not hold."""
    kinds = {item.id for item in found if item.kind == "identity"}
    assert kinds == set(IDENTITIES)
    return {id for id in IDENTITIES if found[id].result == "fails"}


def failed_statistics(found):
    """Ids of the statistics that fail."""
    kinds = {item.id for item in found if item.kind == "statistic"}
    assert kinds == set(STATISTICS)
    return {id for id in STATISTICS if found[id].result == "fails"}


def columns_of(world, learner, *, slow, seed=3, noisy=True):
    """Everything a simulation leaves, by the fast path or episode by episode."""
    parts = list(play_chunks(world, learner, seed, noisy, np.arange(world.M), slow=slow))
    found = {"policies": np.concatenate([part.policies for part in parts])}
    found["returns"] = np.concatenate([part.returns for part in parts])
    for name in parts[0].trace:
        found[name] = np.concatenate([part.trace[name] for part in parts])
    return found


def rewrite_run(path, change):
    """Change the table of a stored run and give it a new checksum, as a forger would."""
    with path.open("rb") as file:
        table = change(pq.read_table(file))
    with path.open("w+b") as file:
        write_sealed(file, table)


def forge_folder(folder, change):
    """Change the manifest of a run folder and make all its checksums right again."""
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    for name, entry in manifest["files"].items():
        if (folder / name).is_file():
            data = (folder / name).read_bytes()
            entry.update(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
    sign(folder, manifest)


def sign(folder, manifest):
    """Write plain data as the manifest of a run folder, with a right checksum."""
    blank = json.dumps(manifest | {"checksum": "0" * 64}, indent=1) + "\n"
    digest = hashlib.sha256(blank.encode()).hexdigest()
    text = blank.replace(f'"checksum": "{"0" * 64}"', f'"checksum": "{digest}"')
    (folder / "manifest.json").write_text(text)
