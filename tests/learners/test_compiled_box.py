"""PROPD-PPO on a box in compiled code: the episodes of the loop in Python, bit for bit."""

from functools import partial

import numpy as np
import pytest

import safedrift as sd
from builders import SIGNALS
from safedrift.experiments.playing import play_chunks
from safedrift.kernels.linear.box_maps import BoxArrays
from safedrift.learners.propd_ppo.box_engine import BoxEngine

M, H, A = 40, 3, 3


def in_two_dimensions(K=2, start=((0.2, 0.8), (0.6, 0.1)), push=0.1, height=0.6):
    """Two mixed kernels on the unit square, three features, K constraints."""
    pushes = push * np.array([[-1.0, 0.5], [0.0, 0.0], [1.0, -0.5]])
    bases = [
        sd.box.truncated_normal(
            sd.box.MeanReverting(towards, [0.2, 0.4], pushes, bend=bend), [0.2, 0.3], [0, 0], [1, 1]
        )
        for towards, bend in ((0.2, None), ([0.9, 0.5], (0.0, 1.0)))
    ]
    psi, sample = sd.box.mixture(bases)
    heights = height * np.array([[1.0, 0.5, 0.2], [0.3, 0.9, 0.4], [0.1, 0.2, 1.0]])
    centre = [[0.0, 0.0], [0.5, 0.5], [1.0, 0.2]]
    width = [[np.inf, np.inf], [0.3, 0.4], [0.5, np.inf]]
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.ones(2), (M, H))
    return sd.linear_kernel_on_box(
        [0, 0], [1, 1], A, psi, sd.box.Bumps(heights, centre, width, norm=np.sqrt(2)), shares,
        rng.uniform(0, 1, (M, H, 3)), rng.uniform(0, 1, (M, K, H, 3)), np.full((M, K), 0.3),
        start=start, sample=sample, nodes=9,
    )  # fmt: skip


def with_functions(world):
    """The same world, with its maps hidden in functions of Python."""
    box = world.box
    return sd.linear_kernel_on_box(
        box.low, box.high, box.actions, partial(box.psi), partial(box.phi), world.theta,
        world.theta_r, world.theta_g, world.thresholds, box.points[box.quadrature.weights.size :],
        sample=box.sample, start_probabilities=world.initial[box.quadrature.weights.size :],
        nodes=box.nodes,
    )  # fmt: skip


def played(world, agent, noisy, slow):
    parts = play_chunks(world, agent, 3, noisy, np.arange(world.M), slow=slow)
    return list(parts)


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("dual_signal", SIGNALS)
@pytest.mark.parametrize("name", ["thermostat", "two dimensions"])
def test_compiled_episodes_are_those_of_the_loop(name, dual_signal, noisy, monkeypatch):
    world = in_two_dimensions()
    if name == "thermostat":
        world = sd.problems.make("thermostat", episodes=M, horizon=H, nodes=16)
    agent = sd.PROPDPPO.for_problem(
        world, sd.Slater(0.3), noisy=noisy, dual_signal=dual_signal, L=17, W=11
    )
    quick, loop = agent.fresh(), agent.fresh()
    slow = played(world, loop, noisy, True)
    monkeypatch.setattr(BoxEngine, "act", None)  # not used where all is compiled
    fast = played(world, quick, noisy, False)
    for one, other in zip(fast, slow, strict=True):
        np.testing.assert_array_equal(one.policies, other.policies)
        np.testing.assert_array_equal(one.returns, other.returns)
        assert one.trace.keys() == other.trace.keys()
        for column in other.trace:
            np.testing.assert_array_equal(one.trace[column], other.trace[column], column)
    here, there = quick.state(), loop.state()
    for name, array in there.items():
        if not name.startswith(("history", "last", "generator")):
            np.testing.assert_array_equal(here[name], array, name)


def test_a_run_is_the_same_with_maps_that_are_functions():
    world = in_two_dimensions(K=1)
    other = with_functions(world)
    assert isinstance(world.played_arrays, BoxArrays)
    assert other.played_arrays is None
    agent = sd.PROPDPPO.for_problem(world, sd.Slater(0.3), L=13, W=20)
    one, two = (sd.simulate(x, agent.fresh(), seed=1, measure_every=3) for x in (world, other))
    for name, values in one.columns().items():
        np.testing.assert_array_equal(values, two.columns()[name], name)
    assert one.manifest.discretisation == two.manifest.discretisation


def test_thermostat_has_the_maps_of_its_description():
    world = sd.problems.make("thermostat", episodes=2)
    x, a = np.array([[0.0], [0.5], [0.9]]), np.array([[2], [0], [1]])
    T = 10 + 16 * x
    power = np.array([0.0, 0.5, 1.0])[a]
    comfort = np.exp(-((T - 20) ** 2) / 8)
    np.testing.assert_allclose(
        world.box.phi(x, a), np.hstack((1 - power, comfort)) / np.sqrt(2), atol=1e-15
    )
    cold = T + 0.12 * (-4 - T) + 5 * power
    bent = 18 + 8 * np.tanh((cold - 18) / 8)
    mean = sd.box.MeanReverting(-4, 0.12, [0, 2.5, 5], origin=10, unit=16, bend=(0.0, 1.0))
    np.testing.assert_allclose(10 + 16 * mean(x, a), bent, atol=1e-13)
    y = world.box.quadrature.nodes
    base = sd.box.truncated_normal(mean, 1 / 16, 0.0, 1.0)
    np.testing.assert_array_equal(world.box.psi(x, a, y)[..., 0], base.density(x, a, y))


def test_rewards_outside_their_range_between_the_nodes_are_refused_in_both_ways():
    """A bump so narrow that no node sees it, where an episode starts."""
    psi, sample = sd.box.mixture(
        [sd.box.truncated_normal(sd.box.MeanReverting(0.5, 0.1, [0.0]), 0.2, 0.0, 1.0)]
    )
    phi = sd.box.Bumps([[0.5, 0.8]], [0.3, 0.52], [np.inf, 1e-2])
    world = sd.linear_kernel_on_box(
        0.0, 1.0, 1, psi, phi, np.ones((M, H, 1)), np.full((M, H, 2), 1.0),
        np.full((M, 1, H, 2), 0.5), np.full((M, 1), 0.1), start=0.3, sample=sample, nodes=10,
    )  # fmt: skip
    for slow in (False, True):
        agent = sd.PROPDPPO.for_problem(world, sd.Slater(0.3), L=9, W=9)
        with pytest.raises(ValueError, match="rewards, utilities and the norm of phi must be in"):
            played(world, agent, False, slow)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sd.box.MeanReverting(0.5, 0.1, [0.1], unit=0.0), "unit must be not zero"),
        (lambda: sd.box.MeanReverting(0.5, 0.1, [0.1], bend=(1.0, 0.0)), "bend must be"),
        (lambda: sd.box.Bumps([[1.0, 1.0]], [0.0], [1.0]), "centre must be"),
        (lambda: sd.box.Bumps([[1.0]], [0.0], [0.0]), "width must be > 0"),
        (lambda: sd.box.Bumps([[1.0]], [0.0], [1.0, 2.0]), "width must be of shape"),
        (lambda: sd.box.Bumps([[1.0]], [0.0], [1.0])([[0.5]], [[1]]), "a must be in 0 to 0"),
    ],
)
def test_bad_maps_are_refused_in_one_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()
