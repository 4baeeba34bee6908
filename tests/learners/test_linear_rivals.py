"""Least-squares value iteration with a multiplier: twin, limits, and answers known on paper."""

import numpy as np
import pytest

import safedrift as sd
from builders import dense_features, linear_world, recorded_play, small_world
from naive_linear_rivals import least_squares_values
from safedrift.experiments.playing import play_chunks

# Large steps and small bonuses make every quantity move within few episodes.
LIVELY = {"alpha": 2.0, "eta": 0.4, "lam": 0.3, "bonus_scale": 3.0}


def twin_of(algorithm, world, play, **forgetting):
    psi, phi = dense_features(world)
    hyper = algorithm.hyperparameters._asdict()
    return least_squares_values(
        play=play, thresholds=world.thresholds, sizes=algorithm.setup.sizes,
        initial=world.initial, psi=psi, phi=phi, **hyper, **forgetting,
    )  # fmt: skip


def assert_agrees_with_twin(world, learner, seed=0, noisy=False, **forgetting):
    play, seen = recorded_play(world, seed, noisy)
    algorithm = learner.algorithm
    for m, expected in enumerate(twin_of(algorithm, world, play, **forgetting)):
        policy = np.asarray(learner.begin_episode(world.thresholds[m]))
        values = algorithm.memory.values
        learner.end_episode(sd.Trajectory(*seen[m]))
        trace = learner.trace()
        for name, found, wanted in (
            ("policy", policy, expected["policy"]),
            ("Q", values.q.swapaxes(-1, -2), expected["Q"]),
            ("w", values.w, expected["w"]),
            ("mu", trace["mu"], expected["mu"]),
            ("reward", trace["estimated_reward"], expected["start"][0]),
            ("utility", trace["estimated_utility"], expected["start"][1:]),
            ("at_cap", trace["at_cap"], expected["at_cap"]),
        ):
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9, err_msg=f"{m} {name}")
    assert algorithm.episode == world.M


WORLDS = {
    "scenarios": lambda seed: linear_world(M=40, seed=seed, drift="linear"),
    "one-hot rewards": lambda seed: linear_world("scenarios", "one-hot", M=40, seed=seed),
    "two constraints": lambda seed: linear_world(M=30, K=2, seed=seed),
    "tables": lambda seed: linear_world("tabular", "one-hot", S=2, A=2, M=30, seed=seed),
    "one step": lambda seed: linear_world(M=20, H=1, seed=seed),
    "random first state": lambda seed: small_world(
        M=30, S=3, start=[0.5, 0.2, 0.3], seed=seed
    ).as_linear_kernel(),
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("kind", WORLDS)
def test_restarted_agrees_with_twin(kind, seed):
    world = WORLDS[kind](seed)
    restarts = bool(seed)
    learner = sd.learners.make(
        "softmax-lsvi", world, window=11, restart_multipliers=restarts, **LIVELY
    )
    forgetting = {"window": 11, "restart_multipliers": restarts}
    assert_agrees_with_twin(world, learner, seed, noisy=restarts, **forgetting)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("kind", WORLDS)
def test_discounted_agrees_with_twin(kind, seed):
    world = WORLDS[kind](seed)
    learner = sd.learners.make("discounted-lsvi", world, discount=(0.9, 0.99)[seed], **LIVELY)
    assert_agrees_with_twin(world, learner, seed, noisy=bool(seed))


@pytest.mark.parametrize("constants", ["printed", "practical"])
@pytest.mark.parametrize("name", ["softmax-lsvi", "discounted-lsvi"])
def test_constants_as_they_are_agree_with_twin(name, constants):
    world = linear_world(M=25)
    learner = sd.learners.make(name, world, constants=constants, gamma=0.4, window=9)
    forgetting = {"window": 9} if name == "softmax-lsvi" else {}
    assert_agrees_with_twin(world, learner, **forgetting)


def test_long_discounted_run_still_agrees_with_twin():
    """Factors are computed from sums that have been multiplied hundreds of times."""
    world = linear_world(M=300, S=3, A=2, H=2)
    learner = sd.learners.make("discounted-lsvi", world, discount=0.95, **LIVELY | {"lam": 0.01})
    assert_agrees_with_twin(world, learner)


# ---------------------------------------------------------------- limits


def policies(world, learner, seed=3, slow=False):
    parts = list(play_chunks(world, learner, seed, True, np.arange(world.M), slow=slow))
    return np.concatenate([part.policies for part in parts])


def test_window_of_all_episodes_and_discount_one_are_the_stationary_algorithm():
    world = linear_world(M=100, S=3, K=2, drift="linear")
    stationary = policies(
        world, sd.learners.make("softmax-lsvi", world, forgetting="never", **LIVELY)
    )
    for restart in (False, True):
        learner = sd.learners.make(
            "softmax-lsvi", world, window=100, restart_multipliers=restart, **LIVELY
        )
        np.testing.assert_array_equal(policies(world, learner), stationary)
    learner = sd.learners.make("discounted-lsvi", world, discount=1.0, **LIVELY)
    np.testing.assert_array_equal(policies(world, learner), stationary)
    short = sd.learners.make("softmax-lsvi", world, window=99, **LIVELY)
    assert not np.array_equal(policies(world, short), stationary)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("softmax-lsvi", {"window": 13, "restart_multipliers": True}),
        ("discounted-lsvi", {"discount": 0.9}),
    ],
)
def test_compiled_episodes_are_those_of_the_loop(name, options):
    world = linear_world("scenarios", "one-hot", M=70, K=2, drift="linear")
    learner = sd.learners.make(name, world, **options, **LIVELY)
    fast, slow = (policies(world, learner.fresh(0), slow=slow) for slow in (False, True))
    np.testing.assert_array_equal(fast, slow)


def test_discount_near_one_is_near_none():
    world = linear_world(M=60)
    one, near = (
        policies(world, sd.learners.make("discounted-lsvi", world, discount=zeta, **LIVELY))
        for zeta in (1.0, 1 - 1e-12)
    )
    np.testing.assert_allclose(near, one, atol=1e-8)


# ---------------------------------------------------------------- answers known on paper


def two_action_world(M):
    """One state, H = 2, r = (1, 0), g = (0, 1), b = 1: mu* = 1, and both actions equally often."""
    signals = np.zeros((2, 2, 1, 2))
    signals[0, ..., 0] = signals[1, ..., 1] = 1.0
    cmdp = sd.TabularCMDP(np.ones((2, 1, 2, 1)), signals[0], signals[1:], [1.0], [1.0])
    return sd.DriftingCMDP([cmdp], np.ones((M, 1))).as_linear_kernel()


@pytest.mark.parametrize("name", ["softmax-lsvi", "discounted-lsvi"])
def test_multiplier_settles_where_rewards_and_utilities_balance(name):
    world = two_action_world(600)
    options = {"window": 600} if name == "softmax-lsvi" else {"discount": 0.99}
    learner = sd.learners.make(
        name, world, alpha=2.0, eta=0.2, lam=1e-6, bonus_scale=0.0, **options
    )
    run = sd.simulate(world, learner)
    np.testing.assert_allclose(run.trace["mu"][-1], 1.0, atol=1e-3)
    np.testing.assert_allclose(run.policy, 0.5, atol=1e-3)
    np.testing.assert_allclose(run.outcome.reward[-1], 1.0, atol=1e-3)


def test_regression_finds_the_weights_of_the_mixture():
    """V(x') regressed on the integrals of V against each scenario gives the shares."""
    shares = np.array([0.2, 0.5, 0.3])
    table = sd.problems.make(
        "random", 4000, 3, states=4, actions=3, horizon=3, gamma=0.3,
        weights=np.tile(shares, (4000, 1)),
    )  # fmt: skip
    world = table.as_linear_kernel()
    learner = sd.learners.make("softmax-lsvi", world, forgetting="never", alpha=0.5)
    for _ in play_chunks(world, learner, 0, False, np.arange(0)):
        pass
    policy = np.asarray(learner.begin_episode(world.thresholds[0]))
    values = learner.algorithm.memory.values
    np.testing.assert_allclose(values.w[0, 0], shares, atol=0.1)
    exact = sd.evaluate(world.at(0), policy)
    np.testing.assert_allclose(values.v_start, np.append(exact[0], exact[1]), atol=0.05)


def test_forgetting_follows_a_change():
    """After a switch of rewards, both are better than the algorithm that never forgets."""
    cmdps = []
    for good in (0, 1):
        rewards = np.zeros((2, 1, 2))
        rewards[..., good] = 1.0
        cmdps.append(
            sd.TabularCMDP(np.ones((2, 1, 2, 1)), rewards, np.ones((1, 2, 1, 2)), [0.1], [1.0])
        )
    M = 400
    world = sd.DriftingCMDP(cmdps, np.repeat([0, 1], M // 2)).as_linear_kernel(
        "scenarios", "one-hot"
    )
    common = {"alpha": 5.0, "eta": 0.1, "lam": 0.1, "bonus_scale": 2.0}
    late = {}
    for key, name, options in (
        ("never", "softmax-lsvi", {"forgetting": "never"}),
        ("periodic", "softmax-lsvi", {"window": 40}),
        ("discounted", "discounted-lsvi", {"window": 40}),
    ):
        run = sd.simulate(world, sd.learners.make(name, world, **common, **options))
        late[key] = run.outcome.reward[-100:].mean()
    assert min(late["periodic"], late["discounted"]) > late["never"] + 0.3, late


# ---------------------------------------------------------------- what is told, what is refused


def test_what_they_are_told_is_in_the_settings():
    world = linear_world(M=20)
    for name in ("softmax-lsvi", "discounted-lsvi"):
        told = sd.learners.make(name, world, gamma=0.4, budget=2.0).settings()["told"]
        assert told == ["features", "Slater gap", "variation budget"]
        settings = sd.learners.make(name, world, constants="printed").settings()
        assert settings["told"] == ["features"]
        assert settings["constants"] == "printed"
        assert settings["chi"] == 20.0


def test_printed_window_follows_the_budget():
    world = linear_world(M=900, H=3)
    d = max(world.d1, world.d2)
    for budget in (1.0, 4.0):
        learner = sd.learners.make("softmax-lsvi", world, constants="printed", budget=budget)
        period = learner.settings()["forgetting"]["W"]
        assert period == np.ceil(np.sqrt(d * 900 / (3 * budget)))


@pytest.mark.parametrize("name", ["softmax-lsvi", "discounted-lsvi"])
def test_refusals(name):
    table = small_world(M=10)
    with pytest.raises(ValueError, match=r"world must be one with features .* got a DriftingCMDP"):
        sd.learners.make(name, table)
    with pytest.raises(ValueError, match="finitely many states"):
        sd.learners.make(name, sd.problems.make("thermostat", 5))
    world = linear_world(M=10)
    for option, value in (
        ("gamma", 0.0), ("budget", -1.0), ("window", 0), ("alpha", 0.0), ("eta", -1.0),
        ("lam", 0.0), ("bonus_scale", -0.1), ("constants", "best"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"{option} must be"):
            sd.learners.make(name, world, **{option: value})


def test_refusals_of_one_only():
    world = linear_world(M=10)
    with pytest.raises(ValueError, match=r"discount must be in \(0, 1\]; got 1.5"):
        sd.learners.make("discounted-lsvi", world, discount=1.5)
    with pytest.raises(TypeError, match="discount or window must be given, not both"):
        sd.learners.make("discounted-lsvi", world, discount=0.9, window=5)
    with pytest.raises(ValueError, match="forgetting must be one of"):
        sd.learners.make("softmax-lsvi", world, forgetting="sliding")
