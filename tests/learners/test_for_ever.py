"""Learners without a last episode, in bounded memory; policies that copy nothing."""

import gc
import sys
import tracemalloc

import numba
import numpy as np
import pytest
from test_rivals import LINEAR, made, world_for

import safedrift as sd
from safedrift.learners import Discount, Never, Periodic, SlidingWindow

SPEC = sd.ProblemSpec(H=3, S=5, A=3, initial=2)
TABULAR = [name for name in sd.learners.LEARNERS if name not in LINEAR]
# What each must be given instead of M.
ENOUGH = {
    "uniform": {},
    "adaptive-planner": {},
    "propd-ppo": {"gamma": 0.3, "forgetting": "sliding", "window": 20},
    "dope": {
        "safe_policy": np.full((3, 5, 3), 1 / 3), "safe_utility": [1.2], "window": 20,
        "replan_every": 100,
    },
    "opdop": {"window": 20, "theta": 0.01},
    "double-restart-triple-q": {"epoch": 20, "exploration": 0.2},
    "restart-q-ucb": {"epoch": 20},
    "restart-bandit": {"block": 20, "rounds": 50},
}  # fmt: skip
NEEDS_M = ("triple-q", "ns-triple-q")


def without_end(name, spec=SPEC):
    return sd.learners.make(name, spec, **ENOUGH.get(name, {"window": 20}))


def play(learner, episodes, rng):
    """Episodes in a world of one's own; nothing is kept."""
    _, H, S, _, K = learner.sizes
    for _ in range(episodes):
        learner.begin_episode(np.ones(K))
        states = rng.integers(S, size=H)
        actions = [learner.act(h, int(s)) for h, s in enumerate(states)]
        learner.end_episode(sd.Trajectory(states, actions, rng.random(H), rng.random((K, H))))


@pytest.mark.parametrize("name", [name for name in TABULAR if name not in NEEDS_M])
def test_goes_on_for_ever_in_bounded_memory(name):
    learner = without_end(name)
    assert learner.sizes.M is None
    rng = np.random.default_rng(0)
    start = 300 if name == "adaptive-planner" else 150  # room is doubled once more after that
    play(learner, start, rng)
    sizes = {key: values.nbytes for key, values in learner.state().items()}
    held = []
    gc.collect()
    gc.freeze()  # what was there before is not looked at again
    for _ in range(4):
        play(learner, 100, rng)
        gc.collect()
        held.append(sys.getallocatedblocks())
    found = {key: values.nbytes for key, values in learner.state().items()}
    if name == "restart-bandit":  # a new learner in every block, with room for what it has seen
        assert found.keys() == sizes.keys()
        assert all(found[key] <= 4 * sizes[key] for key in sizes)
    else:
        assert found == sizes
    assert np.diff(held).min() < 90  # 100 episodes that are kept have 100 blocks or more
    assert learner.episode == start + 400


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("certainty-equivalence", {}, "M must be an integer >= 1 unless window is given; got None"),
        ("opt-cmdp", {"constants": "printed", "window": 9}, "M must be an integer >= 1 unless con"),
        (
            "opt-dual",
            {"constants": "printed", "window": 9, "gamma": 0.3},
            "M must be .* unless con",
        ),
        ("opdop", {"window": 9}, "M must be an integer >= 1 unless theta is given; got None"),
        ("propo", {"forgetting": "never"}, "M must be .* unless forgetting has a window; got None"),
        ("dope", ENOUGH["dope"] | {"constants": "printed"}, "M must be .* unless L is given"),
        ("triple-q", {}, "M must be an integer >= 1 for the Triple-Q family, whose constants are"),
        ("ns-triple-q", {}, "M must be an integer >= 1 for the Triple-Q family, whose constants"),
        ("double-restart-triple-q", {}, "M must be an integer >= 1 unless epoch is given; got Non"),
        ("double-restart-triple-q", {"epoch": 9}, "M must be .* unless exploration is given; got"),
        ("restart-q-ucb", {}, "M must be an integer >= 1 unless epoch is given; got None"),
        ("propd-ppo", {"gamma": 0.3}, "M must be .* unless W and L, or a forgetting, are given;"),
    ],
)
def test_who_needs_the_number_of_episodes_says_what_would_do_instead(name, options, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        sd.learners.make(name, SPEC, **options)


def test_other_modes_of_propd_ppo_need_the_number_of_episodes():
    budgets = sd.Budgets(1.0, 1.0, 1.0, 1.0)
    steps = {"W": 9, "L": 20, "budgets": budgets}
    for mode in ("printed", "repaired"):
        with pytest.raises(ValueError, match=r"M must be .* unless mode is 'practical'; got None"):
            sd.PROPDPPO.for_problem(SPEC, sd.Slater(0.3), mode=mode, **steps)
    with pytest.raises(ValueError, match="M must be an integer >= 1 for a theorem; got None"):
        sd.theorem4(sd.Sizes(None, 3, 5, 3, 1), sd.Slater(0.3), budgets, mode="repaired")


@pytest.mark.parametrize(
    "forgetting", [Periodic(9, 20), SlidingWindow(9, 20), Discount(0.9), Never(), None]
)
def test_propd_ppo_is_the_same_with_and_without_a_last_episode(forgetting):
    """Given windows and steps, the practical mode does not depend on M."""
    steps = {"W": 9, "L": 20} if forgetting in (None, Periodic(9, 20)) else {}
    ends = sd.ProblemSpec(H=3, S=5, A=3, initial=2, M=40)
    one, other = (
        sd.PROPDPPO.for_problem(spec, sd.Slater(0.3), forgetting=forgetting, **steps)
        for spec in (ends, SPEC)
    )
    for learner in (one, other):
        play(learner, 40, np.random.default_rng(0))
    found = other.state()
    for key, values in one.state().items():
        np.testing.assert_array_equal(values, found[key], err_msg=key)
    play(other, 1, np.random.default_rng(0))
    with pytest.raises(RuntimeError, match="set up for M = 40 episodes and has finished them"):
        play(one, 1, np.random.default_rng(0))


@pytest.mark.parametrize("name", ["certainty-equivalence", "opt-dual", "propo", "restart-q-ucb"])
def test_named_learners_are_the_same_with_and_without_a_last_episode(name):
    """In a simulation, too, which needs no M of the learner."""
    sizes = {"states": 5, "actions": 3, "horizon": 3}
    world = sd.problems.make("random", 60, 5, gamma=0.3, **sizes)
    first = int(world.initial.argmax())
    spec = sd.ProblemSpec(3, 5, 3, initial=world.initial if world.initial[first] < 1 else first)
    one, other = (sd.simulate(world, without_end(name, x)) for x in (world, spec))
    np.testing.assert_array_equal(one.outcome.reward, other.outcome.reward)
    np.testing.assert_array_equal(one.policy, other.policy)
    assert other.learner.sizes.M is None


def test_problem_spec():
    spec = sd.ProblemSpec(2, 3, 2)
    assert (spec.M, spec.K, spec.initial_known) == (None, 1, False)
    np.testing.assert_allclose(spec.initial, 1 / 3)
    np.testing.assert_array_equal(sd.ProblemSpec(2, 3, 2, initial=1).initial, [0, 1, 0])
    known = sd.ProblemSpec(2, 3, 2, 4, [0.5, 0.5, 0.0], M=7)
    assert (known.M, known.K, known.initial_known) == (7, 4, True)
    for bad, sentence in [
        ({"H": 0}, "H must be an integer >= 1; got 0"),
        ({"M": 0}, "M must be an integer >= 1; got 0"),
        ({"initial": 3}, r"initial must be an integer in \[0, 2\]; got 3"),
        ({"initial": [1.0, 0.0]}, r"initial must be an array of shape \(3,\)"),
        ({"initial": [0.5, 0.0, 0.0]}, "each row of initial must be a distribution"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            sd.ProblemSpec(**{"H": 2, "S": 3, "A": 2} | bad)


# ---------------------------------------------------------------- policies


@pytest.mark.parametrize("name", sd.learners.LEARNERS)
def test_a_policy_can_be_read_until_the_next_one(name):
    """The episode that is learnt from does not change it; the next one lets it refuse."""
    world = world_for(name, 30, 3, states=5, actions=3, horizon=3)
    learner = made(name, world).fresh(1)
    rng = np.random.default_rng(0)
    old = None
    for m in range(30):
        policy = learner.begin_episode(world.thresholds[m])
        table = np.array(policy)
        if hasattr(policy, "lease"):
            with pytest.raises(TypeError, match="needs a step and a state"):
                policy[0]
            if old is not None:
                for read in (np.asarray, lambda x: x[0, 0]):
                    with pytest.raises(RuntimeError, match="belongs to an earlier episode"):
                        read(old)
            old = policy
        states, actions = rng.integers(5, size=3), rng.integers(3, size=3)
        learner.end_episode(sd.Trajectory(states, actions, rng.random(3), rng.random((1, 3))))
        np.testing.assert_array_equal(np.asarray(policy), table)
        for h, s in np.ndindex(3, 5):
            np.testing.assert_array_equal(policy[h, s], table[h, s])
    if old is not None:
        learner.restore(learner.state())
        with pytest.raises(RuntimeError, match="belongs to an earlier episode"):
            np.asarray(old)


@pytest.mark.parametrize(
    "name", [name for name in TABULAR if name not in ("dope", "double-restart-triple-q")]
)
def test_an_episode_among_many_states_copies_no_policy(name):
    """100,000 states: tables of 32 MB, but an episode allocates what it visits."""
    M = 10**9 if name in NEEDS_M else None  # frames are longer than this test
    spec = sd.ProblemSpec(H=10, S=100_000, A=4, initial=0, M=M)
    options = ENOUGH.get(name, {} if name in NEEDS_M else {"window": 50}) | {"epoch": 50}
    known = sd.learners.options(name)
    learner = sd.learners.make(name, spec, **{k: v for k, v in options.items() if k in known})
    rng = np.random.default_rng(0)
    play(learner, 30, rng)
    tracemalloc.start()
    try:
        play(learner, 8, rng)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * 2**20


# ---------------------------------------------------------------- what is compiled


def compiled_versions():
    """How many versions there are of all kernels that were used so far."""
    modules = [module for name, module in sys.modules.items() if name.startswith("safedrift.kern")]
    kernels = {id(x): x for module in modules for x in vars(module).values()}
    return sum(len(getattr(kernel, "overloads", ())) for kernel in kernels.values())


def an_episode(learner, writable):
    _, H, _, _, K = learner.sizes
    thresholds, states, rewards = np.full(K, 0.5), np.zeros(H, np.int64), np.full(H, 0.5)
    utilities = np.full((K, H), 0.5)
    for array in (thresholds, states, rewards, utilities):
        array.setflags(write=writable)
    learner.begin_episode(thresholds)
    learner.end_episode(sd.Trajectory(states, states, rewards, utilities))


@pytest.mark.parametrize("name", ["adaptive-planner", "opt-primal-dual", "propd-ppo"])
def test_arrays_that_cannot_be_written_to_are_not_compiled_for_again(name):
    learner = without_end(name)
    for _ in range(3):
        an_episode(learner, writable=True)
    before = compiled_versions()
    for _ in range(3):
        an_episode(learner, writable=False)
    assert compiled_versions() == before > 0


def test_thresholds_of_one_episode_are_as_those_of_a_chunk():
    """What plays a chunk was compiled with the parts that play an episode at a time."""
    world = world_for("adaptive-planner", 5, 0)
    sizes = sd.Sizes(world.M, world.H, world.S, world.A, world.K)
    one = sd.learners.checked_thresholds(world.thresholds[0], sizes)
    assert numba.typeof(one) == numba.typeof(world.arrays.thresholds[0])
