"""Every named learner keeps the protocol, with and without its fast path."""

import inspect

import numpy as np
import pytest

import safedrift as sd
from builders import columns_of

LINEAR = ("softmax-lsvi", "discounted-lsvi", "adaptive-linear-planner")  # they need features
ONE_CONSTRAINT = ("bisection",)
COMPILED_TWICE = ("adaptive-planner", *LINEAR)  # for one constraint, and for several


def world_for(name, episodes, seed, **options):
    """A small random world of a kind that the learner accepts."""
    world = sd.problems.make("random", episodes, seed, gamma=0.3, **options)
    return world.as_linear_kernel() if name in LINEAR else world


def made(name, world):
    """The learner with its defaults, and with what it must be told."""
    if name != "dope":
        return sd.learners.make(name, world, **({"gamma": 0.3} if name == "propd-ppo" else {}))
    uniform = np.full((world.H, world.S, world.A), 1 / world.A)
    told = {"safe_policy": uniform, "safe_utility": world.thresholds.max(axis=0) + 0.1}
    return sd.learners.make(name, world, replan_every=7, **told)


@pytest.mark.parametrize("name", sd.learners.LEARNERS)
def test_contract(name):
    if name in COMPILED_TWICE:
        check_with(name, constraints=1)
    else:
        sd.check_learner(lambda world: made(name, world))


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED_TWICE)
def test_contract_with_two_constraints(name):
    check_with(name, constraints=2)


def check_with(name, constraints):
    sizes = {"states": 4, "actions": 3, "horizon": 3, "constraints": constraints}
    world = world_for(name, 60, constraints, **sizes)
    sd.check_learner(lambda given: made(name, given), world=world)


@pytest.mark.parametrize(
    ("name", "constraints"),
    [
        pytest.param(name, K, marks=pytest.mark.slow)  # takes long to compile once more
        if name in ("adaptive-planner", "adaptive-linear-planner") and K == 2
        else (name, K)
        for name in sd.learners.LEARNERS
        for K in (1, 2)
    ],
)
def test_fast_path_and_loop_give_the_same_numbers(name, constraints):
    sizes = {"states": 5, "actions": 3, "horizon": 4, "constraints": constraints}
    world = world_for(name, 70, 5, **sizes)
    if name in ONE_CONSTRAINT and constraints > 1:
        with pytest.raises(ValueError, match="K must be 1"):
            made(name, world)
        return
    fast, slow = (
        columns_of(world, made(name, world).fresh(4), slow=slow) for slow in (False, True)
    )
    assert fast.keys() == slow.keys()
    for column in fast:
        np.testing.assert_array_equal(fast[column], slow[column], err_msg=column)


@pytest.mark.parametrize("name", sd.learners.LEARNERS)
def test_documented(name):
    """The docstring is more than a line, and every option has a default."""
    assert len(sd.learners.documentation(name).splitlines()) >= 3
    assert inspect.Parameter.empty not in sd.learners.options(name).values()


def test_unknown_names():
    world = sd.problems.make("maze", 10)
    with pytest.raises(ValueError, match="did you mean 'uniform'"):
        sd.learners.make("unifrom", world)
    with pytest.raises(ValueError, match="option of uniform must be one of"):
        sd.learners.make("uniform", world, bonus=1)


@pytest.mark.parametrize("name", [name for name in sd.learners.LEARNERS if name != "propd-ppo"])
def test_environment_without_a_model(name):
    """First states are counted as they come; checkpoints keep them."""
    world = sd.from_gymnasium(
        "Blackjack-v1", 3, lambda t: float(t.action == 0), 0.5, episodes=40,
        reward_range=(-1.0, 1.0),
    )  # fmt: skip
    assert not world.initial_known
    if name in (*LINEAR, "dope"):
        with pytest.raises(ValueError, match=r"world must be (one with features|small enough)"):
            made(name, world)
        return
    learner = made(name, world)
    run, again = (sd.simulate(world, learner, 1) for _ in range(2))
    np.testing.assert_array_equal(run.outcome.reward, again.outcome.reward)
    shares = run.learner.algorithm.setup.initial
    assert shares.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(40 * shares, np.round(40 * shares), atol=1e-9)
    copied = learner.fresh(5)
    copied.restore(run.learner.state())
    np.testing.assert_array_equal(copied.algorithm.setup.initial, shares)
