"""Wrong arguments of public functions: the sentence names the argument and what it got."""

import re

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import safedrift as sd
from builders import small_world
from safedrift import _check
from safedrift.adapters.gymnasium_worlds import EnvironmentStepper
from safedrift.adapters.toy_text import from_table
from safedrift.learners.propd_ppo import Dimensions, tune

SIZES = sd.Sizes(M=50, H=3, S=4, A=2, K=1)
BUDGETS = sd.Budgets(1.0, 1.0, 1.0, 1.0)
GAP = sd.Slater(0.5)


class OneState(gymnasium.Env):
    """Stays where it is; `info` is what the test wants."""

    observation_space = spaces.Discrete(1)
    action_space = spaces.Discrete(2)

    def __init__(self, info=None):
        self.info = info or {}

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 0, 0.0, False, False, self.info


def refused(error, sentence):
    return pytest.raises(error, match=f"^{re.escape(sentence)}")


def environment(**changes):
    given = {"env": OneState(), "horizon": 2, "utility": lambda t: 1.0, "threshold": 1.0}
    return sd.from_gymnasium(**given | changes)


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: environment(env=None), TypeError,
         "env must be a Gymnasium environment or the id of one; got None"),
        (lambda: environment(env=OneState), TypeError, "env must be a Gymnasium environment or"),
        (lambda: environment(env="Nowhere-v0"), ValueError,
         "env must be the id of an environment; got 'Nowhere-v0' ("),
        (lambda: environment(utility="dry"), TypeError,
         "utility must be a function of a Transition; got 'dry'"),
        (lambda: environment(utility=0), TypeError, "utility must be a function of a Transition"),
        (lambda: environment(initial="start"), TypeError, "initial must be a number or an array"),
        (lambda: environment(over="1"), TypeError, "over must be an array of numbers; got "),
        (lambda: environment(threshold="1"), TypeError, "thresholds must be an array of numbers;"),
        (lambda: environment(reward_range=None), TypeError, "reward_range must be a number or an"),
        (lambda: environment(reward_range="01"), TypeError, "reward_range must be a number or an"),
        (lambda: from_table(None, 5, lambda t: 1.0, 1.0), TypeError,
         "env must be a Gymnasium environment or the id of one; got None"),
    ],
)  # fmt: skip
def test_environments(call, error, sentence):
    with refused(error, sentence):
        call()


def first_step(world):
    stepper, nothing = EnvironmentStepper(world), np.empty(0)
    stepper.signals(0, 0, stepper.first(0, nothing), 0, nothing)


@pytest.mark.parametrize("text", ["high", "0.5", ["0.5"], b"1", None])
def test_text_is_no_utility_and_no_cost(text):
    world = environment(utility=lambda t: text)
    name = "utility(...) of episode 0, step 0"
    with refused(TypeError, f"{name} must be in [0, 1]; got {text!r}"):
        first_step(world)
    world = environment(env=OneState({"cost": text}), utility=None)
    with refused(TypeError, f"info['cost'] must be in [0, 1], or utility given; got {text!r}"):
        first_step(world)


@pytest.mark.parametrize(
    ("seed", "error", "sentence"),
    [
        (-1, ValueError, "seed must be an integer >= 0; got -1"),
        ("a", TypeError, "seed must be an integer; got 'a'"),
        (None, TypeError, "seed must be an integer; got None"),
        (0.5, TypeError, "seed must be an integer; got 0.5"),
        (True, TypeError, "seed must be an integer; got True"),
    ],
)
def test_seeds(seed, error, sentence):
    world = small_world(M=10, S=3, A=2, H=2)
    with refused(error, sentence):
        sd.PROPDPPO.for_problem(world, GAP, seed=seed)
    with refused(error, sentence):
        sd.PROPDPPO.for_problem(world, GAP).fresh(seed)


def test_seed_sequences_are_seeds():
    world = small_world(M=10, S=3, A=2, H=2)
    assert sd.PROPDPPO.for_problem(world, GAP, seed=np.random.SeedSequence(3)).episode == 0


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: tune(None, GAP), TypeError, "sizes must be a Sizes; got NoneType"),
        (lambda: tune(SIZES._replace(H=0), GAP), ValueError, "H must be an integer >= 1; got 0"),
        (lambda: tune(SIZES, GAP, overrides="alpha=1"), TypeError, "overrides must be a dict; got"),
        (lambda: tune(SIZES, GAP, p=1e-320), ValueError, "p must be at least 1e-100; got 1e-320"),
        (lambda: tune(SIZES, sd.Slater(1e300)), ValueError, "gamma must be at most H = 3, the lar"),
        (lambda: tune(SIZES, sd.Slater(9), dimensions=Dimensions(2, 2)), ValueError,
         "gamma must be at most H = 3, the largest utility there is; got 9"),
        (lambda: sd.theorem4((1, 2), GAP, BUDGETS, mode="printed"), TypeError, "sizes must be a S"),
        (lambda: sd.theorem4(SIZES, GAP, (1, 1, 1, 1), mode="printed"), TypeError,
         "budgets must be a Budgets; got tuple"),
        (lambda: sd.theorem2(SIZES, Dimensions(2, 2), GAP, "much", mode="printed"), TypeError,
         "budgets must be a Budgets; got str"),
        (lambda: sd.theorem2(SIZES, (2, 2), GAP, BUDGETS, mode="printed"), TypeError,
         "dimensions must be a Dimensions; got tuple"),
        (lambda: sd.PROPDPPO(None, [1.0], tune(SIZES, GAP), GAP), TypeError,
         "sizes must be a Sizes; got NoneType"),
        (lambda: sd.PROPDPPO(SIZES, np.full(4, 0.25), None, GAP), TypeError,
         "parameters must be a Parameters; got NoneType"),
    ],
)  # fmt: skip
def test_learners(call, error, sentence):
    with refused(error, sentence):
        call()


@pytest.mark.parametrize("value", [["1", "2"], np.array(["1", "2"]), [None, 1.0], b"12", 1j, {}])
def test_arrays_are_made_of_numbers_only(value):
    with refused(TypeError, "x must be an array of numbers; got "):
        _check.floats("x", value, (2,))


def test_numbers_of_any_kind_make_arrays():
    from fractions import Fraction

    half = [Fraction(1, 2), True, np.float32(2), 3]
    np.testing.assert_array_equal(_check.floats("x", half, (4,)), [0.5, 1.0, 2.0, 3.0])
