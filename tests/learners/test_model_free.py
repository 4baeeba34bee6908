"""Triple-Q, NS-Triple-Q, its double restart and RestartQ-UCB against their twins and on paper."""

import math
from unittest import mock

import numpy as np
import pytest

import naive_model_free as naive
import safedrift as sd
from safedrift.experiments import playing
from safedrift.learners.checked import own_generator
from safedrift.models.outcomes import certain
from safedrift.models.stepping import split_uniforms, stepper_for, uniforms_per_episode

TRIPLES = ("triple-q", "ns-triple-q")
NAMES = (*TRIPLES, "double-restart-triple-q", "restart-q-ucb")


def make_world(M=150, K=1, seed=0, drift="periodic"):
    """A small random world whose thresholds change from episode to episode."""
    sizes = {"states": 4, "actions": 3, "horizon": 4, "constraints": K}
    return sd.problems.make("random", M, seed, **sizes, drift=drift, gamma=0.3)


def compare_with_twin(world, learner, twin, noisy, seed=5):
    """Both play the same world; policies, multipliers and actions agree in every episode."""
    H, K = world.H, world.K
    stepper = stepper_for(world, noisy=noisy)
    uniforms = np.random.default_rng(seed).random(
        (world.M, uniforms_per_episode(H, K, stepper.next_draws))
    )
    seen = set()
    for m in range(world.M):
        policy = np.asarray(learner.begin_episode(world.thresholds[m]))
        np.testing.assert_array_equal(policy, twin.begin(world.thresholds[m]), err_msg=str(m))
        seen.add(policy.tobytes())
        u = split_uniforms(uniforms[m], H, K, stepper.next_draws)
        x, states, actions, signals = stepper.first(m, u.first), [], [], []
        for h in range(H):
            a = twin.act(x)
            assert learner.act(h, x, 0.5) == a
            states, actions = [*states, x], [*actions, a]
            signals.append(np.array(stepper.signals(m, h, x, a, u.signals[h])))
            twin.observe(signals[-1][0], signals[-1][1:])
            if h + 1 < H:
                x = stepper.next(m, h, x, a, u.next[h])
        both = np.array(signals).T
        learner.end_episode(sd.Trajectory(states, actions, both[0], both[1:]))
        found = learner.trace().get("mu", np.zeros(0))
        np.testing.assert_allclose(found, twin.multipliers(), rtol=1e-10, atol=1e-10)
    return len(seen)


def triple_twin(world, episodes, budget, options, *, resets, constants):
    """The twin with the constants as the module docstring of `model_free` states them."""
    H, S, A, K, T = world.H, world.S, world.A, world.K, episodes
    iota = 128 * math.log(math.sqrt(2 * S * A * H) * T)
    chi = T**0.2
    frame = max(int(T**0.6 / budget ** (2 / 3) + 1e-9), 1)
    if constants == "printed":
        eta = T**0.2 * budget ** (1 / 3)
        epsilon = 8 * math.sqrt(S * A * H**6 * iota**3) * budget ** (1 / 3) / T**0.2
        extra = 2 * H * budget * frame / T if resets else 0.0
        lift = 2 * H**3 * math.sqrt(iota) / eta

        def bonus(t):
            return 0.25 * math.sqrt(H**2 * iota * (chi + 1) / (chi + t)) + extra

        utility_bonus = bonus
    else:
        eta = 1e-4 * T**0.2 * math.sqrt(S * A * H**4) * budget ** (1 / 3)
        epsilon, lift = 0.02 * H, 0.0012 * H
        width = options.get("bonus", 0.2 * math.sqrt(math.log(T)))

        def bonus(t):
            return width / math.sqrt(t)

        def utility_bonus(t):
            return options.get("utility_bonus", 0.01) * bonus(t)

    own = {"frame": frame, "chi": chi, "eta": eta, "epsilon": epsilon, "lift": lift}
    own |= {name: value for name, value in options.items() if name in own}
    return naive.TripleQ(
        H, S, A, K, **own, bonus=bonus, utility_bonus=utility_bonus, resets=resets
    )  # fmt: skip


# ---------------------------------------------------------------- twins


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("K", [1, 2])
@pytest.mark.parametrize("options", [{}, {"frame": 40, "eta": 0.5, "utility_bonus": 1.0}])
@pytest.mark.parametrize("name", TRIPLES)
def test_triple_q_agrees_with_its_twin(name, options, K, noisy):
    world = make_world(K=K, seed=K)
    resets = name == "ns-triple-q"
    budget = {"budget": 2.5} if resets else {}
    learner = sd.learners.make(name, world, **options, **budget)
    twin = triple_twin(
        world, world.M, budget.get("budget", 1.0), options, resets=resets, constants="practical"
    )
    assert compare_with_twin(world, learner, twin, noisy) > 20
    tables = learner.algorithm.tables
    np.testing.assert_allclose(tables.q[..., 0], twin.Q[:-1], rtol=1e-10)
    np.testing.assert_allclose(np.moveaxis(tables.q[..., 1:], -1, 0), twin.C[:, :-1], rtol=1e-10)


@pytest.mark.parametrize("name", TRIPLES)
def test_triple_q_as_printed_agrees_with_its_twin(name):
    """And is vacuous: the first action keeps a bonus beyond every value."""
    world = make_world(M=60)
    resets = name == "ns-triple-q"
    budget = {"budget": 2.5} if resets else {}
    learner = sd.learners.make(name, world, constants="printed", **budget)
    value = budget.get("budget", 1.0)
    twin = triple_twin(world, world.M, value, {}, resets=resets, constants="printed")
    assert compare_with_twin(world, learner, twin, noisy=False) >= 1
    np.testing.assert_allclose(learner.algorithm.tables.q[..., 0], twin.Q[:-1], rtol=1e-10)
    settings = learner.settings()
    assert settings["epsilon"] > world.H
    assert settings["width"] > world.H


@pytest.mark.parametrize("constants", ["practical", "printed"])
@pytest.mark.parametrize("epoch", [None, 60])
def test_restart_q_ucb_agrees_with_its_twin(constants, epoch):
    world = make_world(M=300)
    M, H, S, A = world.M, world.H, world.S, world.A
    learner = sd.learners.make("restart-q-ucb", world, constants=constants, epoch=epoch, budget=1.5)
    D = max(round((S * A) ** (-1 / 3) * 1.5 ** (2 / 3) * H ** (-2 / 3) * (H * M) ** (1 / 3)), 1)
    period = math.ceil(M / D) if epoch is None else epoch

    def bonus(n):
        if constants == "practical":
            return 0.05 * math.sqrt(H**2 / n)
        iota = math.log(2 / (1 / (H * M)))
        return math.sqrt(H**2 / n * iota) + math.sqrt(1 / n * iota)

    twin = naive.Restarted(lambda: naive.StagedQLearning(H, S, A, bonus=bonus, longest=M), period)
    policies = compare_with_twin(world, learner, twin, noisy=True)
    assert policies > (20 if constants == "practical" else 0)


def test_restart_q_ucb_with_one_epoch_is_plain_q_learning():
    world = make_world(M=400, drift="stationary")
    H, S, A = world.H, world.S, world.A
    learner = sd.learners.make("restart-q-ucb", world, epoch=world.M + 1)
    plain = naive.StagedQLearning(H, S, A, bonus=lambda n: 0.05 * H / math.sqrt(n), longest=world.M)
    assert compare_with_twin(world, learner, plain, noisy=True) > 20
    np.testing.assert_allclose(learner.algorithm.tables.q[..., 0], plain.Q, rtol=1e-12)


@pytest.mark.parametrize("K", [1, 2])
def test_double_restart_agrees_with_its_twin(K):
    world = make_world(M=400, K=K)
    guesses, epoch = [0.2, 1.0, 3.0], 33
    chosen = {"epoch": epoch, "guesses": guesses, "exploration": 0.4, "penalty": 2.0}
    learner = sd.learners.make("double-restart-triple-q", world, **chosen, seed=9)
    twin = naive.DoubleRestart(
        [
            lambda guess=guess: triple_twin(
                world, epoch, guess, {"frame": learner_frame(epoch, guess)}, resets=True,
                constants="practical",
            )
            for guess in guesses
        ],
        epoch=epoch, gamma=0.4, penalty=2.0, H=world.H, draw=own_generator(9, 0).random,
    )  # fmt: skip
    assert compare_with_twin(world, learner, twin, noisy=True) > 20
    assert set(twin.arms) == {0, 1, 2}
    weights = np.exp(learner.algorithm.bandit.logs)
    np.testing.assert_allclose(weights, twin.w, rtol=1e-10)
    assert len({round(w, 6) for w in twin.w}) == 3
    assert learner.algorithm.arm == twin.arms[-1]


def learner_frame(epoch, guess):
    """A frame is not longer than its epoch."""
    return min(int(epoch**0.6 / guess ** (2 / 3) + 1e-9), epoch)


# ---------------------------------------------------------------- equal where they should be


def test_ns_triple_q_with_one_frame_is_triple_q():
    """Nothing is forgotten and no queue moves: the same bits."""
    world = make_world(M=200)
    one = sd.simulate(world, sd.learners.make("triple-q", world, frame=world.M), seed=2)
    other = sd.simulate(world, sd.learners.make("ns-triple-q", world, frame=world.M), seed=2)
    for name, column in one.columns().items():
        np.testing.assert_array_equal(column, other.columns()[name], err_msg=name)
    restarted = sd.simulate(world, sd.learners.make("ns-triple-q", world), seed=2)
    assert (restarted.outcome.reward != other.outcome.reward).any()


def test_double_restart_with_one_epoch_is_ns_triple_q():
    world = make_world(M=200)
    one = sd.learners.make("double-restart-triple-q", world, epoch=world.M, guesses=[2.0])
    other = sd.learners.make("ns-triple-q", world, budget=2.0)
    rewards = [sd.simulate(world, x, seed=2).outcome.reward for x in (one, other)]
    np.testing.assert_array_equal(*rewards)


@pytest.mark.parametrize("name", NAMES)
def test_chunks_of_any_length_give_the_same_numbers(name):
    """Frames and epochs are counted in the memory, not in the chunk."""
    world = make_world(M=120)
    runs = []
    for chunk in (7, 1024):
        with mock.patch.object(playing, "_CHUNK", chunk):
            runs.append(sd.simulate(world, sd.learners.make(name, world), seed=4).columns())
    for column in runs[0]:
        np.testing.assert_array_equal(runs[0][column], runs[1][column], err_msg=column)


# ---------------------------------------------------------------- known on paper


def bandit(M, b):
    """One step, one state: arm 0 pays reward 1, arm 1 pays utility 1, b is asked for."""
    arms = sd.TabularCMDP(
        np.ones((1, 1, 2, 1)), [[[1.0, 0.0]]], [[[[0.0, 1.0]]]], [b], certain(0, 1)
    )
    return sd.DriftingCMDP([arms], np.ones((M, 1)))


@pytest.mark.parametrize(("b", "epsilon"), [(0.4, 0.0), (0.4, 0.1), (0.7, 0.0)])
def test_the_queue_sets_the_share_of_the_safe_arm(b, epsilon):
    """NS-Triple-Q without bonuses in frames of n episodes.

    The first visit of an arm sets Q and C to their true values. A frame with 0 < μ ≤ 1 plays arm 0,
    arm 1, then arm 0 to its end: C was 1, 1, 0, ..., 0 and Z rises by b + ε - 2/n. One with μ > 1
    plays arm 0 and then arm 1: Z falls by 1 - b - ε. Both balance if the share f of the latter has
    f (1 - b - ε) = (1 - f) (b + ε - 2/n), so f = (b + ε - 2/n)/(1 - 2/n), and arm 1 is played in
    a share f (1 - 1/n) + (1 - f)/n of the episodes: b + ε - 1/n.
    """
    n, frames = 20, 500
    world = bandit(n * frames, b)
    options = {"frame": n, "eta": 1.0, "epsilon": epsilon, "bonus": 0.0}
    run = sd.simulate(world, sd.learners.make("ns-triple-q", world, **options))
    safe = run.outcome.utility[:, 0].reshape(frames, n).mean(axis=1)
    assert set(np.round(safe, 6)) == {0.0, 1 / n, 1 - 1 / n}
    later = safe[50:]  # μ has reached 1, which takes at most 1/(b + ε - 2/n) frames
    f = (b + epsilon - 2 / n) / (1 - 2 / n)
    assert (later > 0.5).mean() == pytest.approx(f, abs=2 / later.size)
    assert later.mean() == pytest.approx(b + epsilon - 1 / n, abs=2 / later.size)


def test_restart_q_ucb_finds_the_better_arm_after_two_stages():
    """H = 1: stages of 1, 2, 4, ... visits. Arm 0 falls from 1 to 0.3 + 0.05 at its first visit,
    arm 1 to 0.6 + 0.05 and is played until the end."""
    arms = sd.TabularCMDP(
        np.ones((1, 1, 2, 1)), [[[0.3, 0.6]]], [[[[0.5, 0.5]]]], [0.1], certain(0, 1)
    )
    world = sd.DriftingCMDP([arms], np.ones((30, 1)))
    run = sd.simulate(world, sd.learners.make("restart-q-ucb", world, epoch=10))
    np.testing.assert_allclose(run.outcome.reward, np.tile([0.3] + [0.6] * 9, 3))


def test_several_constraints_have_a_queue_each():
    """Only the second utility falls short: only the second queue grows."""
    g = np.zeros((2, 1, 1, 2))
    g[0], g[1, :, :, 1] = 0.9, 1.0
    one = sd.TabularCMDP(np.ones((1, 1, 2, 1)), [[[1.0, 0.0]]], g, [0.2, 0.6], certain(0, 1))
    world = sd.DriftingCMDP([one], np.ones((200, 1)))
    options = {"frame": 10, "eta": 1.0, "epsilon": 0.0, "bonus": 0.0}
    run = sd.simulate(world, sd.learners.make("ns-triple-q", world, **options))
    assert run.trace["mu"][:, 0].max() == 0
    assert run.trace["mu"][:, 1].max() > 1


def test_the_bandit_learns_the_better_guess():
    """A guess whose frames last one episode never leaves the first action: its payoff is lower."""
    world = bandit(6000, 0.6)
    options = {"epoch": 60, "guesses": [1.0, 1e6], "bonus": 0.0, "epsilon": 0.0, "eta": 0.2}
    learner = sd.learners.make("double-restart-triple-q", world, **options, exploration=0.3)
    run = sd.simulate(world, learner, seed=1)
    guess = run.trace["guess"]
    assert set(guess) == {1.0, 1e6}
    assert (guess[-3000:] == 1.0).mean() > 0.7


# ---------------------------------------------------------------- input


def test_settings_say_what_is_told():
    world = make_world(M=50)
    for name in NAMES:
        settings = sd.learners.make(name, world).settings()
        assert settings["told"] == []
        assert settings["constants"] == "practical"
    for name in ("ns-triple-q", "restart-q-ucb"):
        settings = sd.learners.make(name, world, budget=2.0).settings()
        assert settings["told"] == ["variation budget"]
        assert settings["budget"] == 2.0


def test_frames_last_between_one_episode_and_all():
    world = make_world(M=50)
    frames = [
        sd.learners.make("ns-triple-q", world, budget=budget).settings()["frame"]
        for budget in (1e-9, 1.0, 1e9)
    ]
    assert frames == [50, 10, 1]  # 50^0.6 = 10.46


def test_number_of_epochs_by_hand():
    """D = (Δ² T / (S A H²))^(1/3) = (64 · 24000 / 192)^(1/3) = 20."""
    world = make_world(M=6000)
    learner = sd.learners.make("restart-q-ucb", world, budget=8.0)
    assert learner.settings()["frame"] == 300


@pytest.mark.parametrize(
    ("name", "option", "value", "message"),
    [
        ("triple-q", "constants", "printd", "did you mean 'printed'"),
        ("triple-q", "frame", 0, "frame must be an integer >= 1"),
        ("triple-q", "lift", -1.0, "lift must be finite and >= 0"),
        ("ns-triple-q", "budget", 0.0, "budget must be > 0"),
        ("ns-triple-q", "eta", 0.0, "eta must be > 0"),
        ("ns-triple-q", "epsilon", math.inf, "epsilon must be finite and >= 0"),
        ("restart-q-ucb", "epoch", 0, "epoch must be an integer >= 1"),
        ("restart-q-ucb", "constants", "x", "constants must be one of"),
        ("double-restart-triple-q", "epoch", 51, r"epoch must be an integer in \[1, 50\]"),
        ("double-restart-triple-q", "guesses", [1.0, 0.0], "guesses must be > 0; got 0.0 at"),
        ("double-restart-triple-q", "exploration", 2.0, r"exploration must be in \(0, 1\]"),
    ],
)
def test_bad_options(name, option, value, message):
    with pytest.raises(ValueError, match=message):
        sd.learners.make(name, make_world(M=50), **{option: value})
