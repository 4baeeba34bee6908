"""Worlds on a box: what is refused, quadrature, exact draws, and values known on paper."""

import itertools
import re

import numba
import numpy as np
import pytest
from scipy import stats

import safedrift as sd
from builders import box_world, dense_features
from safedrift import optima
from safedrift.models import LinearKernelCMDP, SuccessorFeatures, box, linear_kernel_on_box, refined
from safedrift.models.stepping import stepper_for
from safedrift.oracles import evaluate_episodes

A, K, H, M, D1 = 2, 2, 2, 2, 2
ONE_SENTENCE = re.compile(r"[^\n]+ must be [^\n]+; got [^\n]+")
KERNEL = "each kernel P(.|x,a) must be "


def column(rows, action=0):
    """The same action for each of the rows."""
    return np.full((rows, 1), action)


def put(array, index, value):
    """A copy with one entry (or row) replaced."""
    array = np.array(array)
    array[index] = value
    return array


def flat_and_steep(x, a, y):
    """Densities 1 and 2y on [0, 1]."""
    return np.stack([np.ones((len(x), len(y))), np.tile(2 * y[:, 0], (len(x), 1))], axis=-1)


def here_and_there(x, a):
    return np.stack([x[:, 0], 1 - x[:, 0]], axis=1)


def on_box():
    """Arguments of a small world on [0, 1]: four nodes and one first state."""
    rng = np.random.default_rng(1)
    return {
        "low": 0.0,
        "high": 1.0,
        "actions": A,
        "psi": flat_and_steep,
        "phi": here_and_there,
        "theta": rng.dirichlet(np.ones(D1), (M, H)),
        "theta_r": rng.random((M, H, 2)),
        "theta_g": rng.random((M, K, H, 2)),
        "thresholds": np.ones((M, K)),
        "start": 0.3,
        "sample": lambda x, a, i, u: u if i == 0 else np.sqrt(u),
        "start_probabilities": [1.0],
        "rule": "gauss-legendre",
        "nodes": 4,
        "tolerance": 1e-3,
    }


def assert_refused(start, build, /, *arguments, **options):
    """One sentence that begins like this; TypeError where it is not even an array of numbers."""
    with pytest.raises((ValueError, TypeError)) as caught:
        build(*arguments, **options)
    message = str(caught.value)
    assert message.startswith(start)
    assert ONE_SENTENCE.fullmatch(message)


def finite_world():
    one = np.ones((1, 1, 1))
    return LinearKernelCMDP(one[None], one, one, one, one[None], [[0.5]], [1.0])


def test_the_small_world_is_valid():
    world = linear_kernel_on_box(**on_box())
    assert repr(world) == "LinearKernelCMDP(M=2, H=2, S=5, A=2, K=2, d1=2, d2=2, on a box)"


# ---------------------------------------------------------------- on a box: refused

PSI = "psi(array (10, 1), array (10, 1), array (4, 1)) must be "  # 5 points, 2 actions, 4 nodes
PHI = "phi(array (10, 1), array (10, 1)) must be "


def filled(value, place=(3, 2, 1)):
    return lambda x, a, y: put(flat_and_steep(x, a, y), place, value)


def unbalanced(x, a, y):
    """Densities that are none: 1/2 and 3/2 on average."""
    return flat_and_steep(x, a, y) * [0.9, 1.1]


BOXES = {
    "psi no function": ({"psi": None}, "psi must be a function; got NoneType"),
    "phi no function": ({"phi": np.ones(3)}, "phi must be a function; got ndarray"),
    "sample no function": ({"sample": "normal"}, "sample must be a function; got str"),
    "psi returns nan": ({"psi": filled(np.nan)}, PSI + "finite; got nan at index (3, 2, 1)"),
    "psi returns inf": ({"psi": filled(-np.inf)}, PSI + "finite; got -inf at index (3, 2, 1)"),
    "psi returns text": ({"psi": lambda x, a, y: "dense"}, PSI + "an array of numbers; got str"),
    "psi returns None": (
        {"psi": lambda x, a, y: None}, PSI + "an array of numbers; got NoneType",
    ),
    "psi returns a ragged list": ({"psi": lambda x, a, y: [[1.0], [1.0, 2.0]]},
                                  PSI + "an array of numbers; got list"),
    "psi of other shape": ({"psi": lambda x, a, y: np.ones((4, 10, 2))},
                           PSI + "an array of shape (10, 4, 2); got shape (4, 10, 2)"),
    "psi of another d1": ({"psi": lambda x, a, y: np.ones((10, 4, 1))},
                          PSI + "an array of shape (10, 4, 2); got shape (10, 4, 1)"),
    "psi adds x and y": ({"psi": lambda x, a, y: x + y},
                         PSI + "an array of shape (10, 4, 2); got ValueError: operands"),
    "psi of one argument": ({"psi": lambda x: x},
                            PSI + "an array of shape (10, 4, 2); got TypeError: "),
    "psi writes to y": ({"psi": lambda x, a, y: y.fill(0)},
                        PSI + "an array of shape (10, 4, 2); got ValueError: assignment"),
    "psi wrong for the second action": (
        {"psi": lambda x, a, y: flat_and_steep(x, a, y) / (1 - a)[:, :, None]},
        PSI + "finite; got inf at index (1, 0, 0)"),
    "phi looks too far": ({"phi": lambda x, a: x[:, 1]},
                          PHI + "an array of shape (10, 2); got IndexError: "),
    "phi returns nan": ({"phi": lambda x, a: put(here_and_there(x, a), (4, 0), np.nan)},
                        PHI + "finite; got nan at index (4, 0)"),
    "phi of another d2": ({"phi": lambda x, a: x},
                          PHI + "an array of shape (10, 2); got shape (10, 1)"),
    "phi too long": ({"phi": lambda x, a: 2 * here_and_there(x, a), "theta_r": np.zeros((M, H, 2)),
                      "theta_g": np.zeros((M, K, H, 2))}, "the norm of phi must be at most 1 ("),
    "no kernel": ({"psi": lambda x, a, y: 1.01 * flat_and_steep(x, a, y), "sample": None},
                  KERNEL + "of integral 1 within 0.001 (more nodes, or densities that stay inside "
                  "the box); got 1.01 at index (episode 0, step 0, state 0, action 0)"),
    "negative kernel": ({"psi": filled(-3.0, (3, 0, 1)), "sample": None, "tolerance": 0.1},
                        KERNEL),
    "negative density": ({"psi": filled(-0.125)},
                         "psi with sample must be >= 0; got -0.125 at index (1, 1, 2, 1)"),
    "no densities": ({"psi": unbalanced, "theta": np.full((M, H, D1), 0.5)},
                     "the integral of each component of psi with sample must be 1 within 0.001 "
                     "(more nodes, or densities that stay inside the box); got "),
    "theta not convex": ({"theta": np.tile([1.2, -0.2], (M, H, 1))},
                         "theta with sample must be >= 0; got -0.2 at index (0, 0, 1)"),
    "theta not of sum 1": ({"theta": np.full((M, H, D1), 0.4)},
                           "each row of theta with sample must be a distribution (sum 1); got 0.8"),
    "theta of rank 2": ({"theta": np.ones((M, D1))}, "theta must be an array of shape (M, H, d1);"),
    "too few nodes": ({"rule": "uniform", "nodes": 2, "psi": lambda x, a, y: np.tile(
        3 * y[None] ** 2, (len(x), 1, 2))}, "the integral of each component of psi with sample"),
    "no nodes": ({"nodes": 0}, "nodes must be an integer in [1, 2048]; got 0"),
    "nodes by a half": ({"nodes": 4.5}, "nodes must be an integer; got 4.5"),
    "nodes without end": ({"nodes": 10**9}, "nodes must be an integer in [1, 2048]; got 1000"),
    "nodes in many directions": ({"low": np.zeros(9), "high": np.ones(9), "start": np.ones(9),
                                  "nodes": 8},
                                 "nodes must be so few that nodes**9 is at most 1048576; got 8"),
    "numbers without end": ({"nodes": 2048, "rule": "uniform", "actions": 2000},
                            "nodes must be so few that psi and the kernels are at most 67108864 "
                            "numbers; got 2048"),
    "rule unknown": ({"rule": "simpson"},
                     "rule must be one of 'gauss-legendre', 'uniform'; got 'simpson'"),
    "rule an array": ({"rule": np.zeros(2)}, "rule must be one of 'gauss-legendre', 'uniform';"),
    "actions 0": ({"actions": 0}, "actions must be an integer >= 1; got 0"),
    "tolerance 0": ({"tolerance": 0}, "tolerance must be in (0, 0.1]; got 0"),
    "start outside": ({"start": 1.5},
                      "start must be inside the box [0.] to [1.]; got 1.5 at index (0, 0)"),
    "second start outside": ({"start": [[0.5], [-0.1]]},
                             "start must be inside the box [0.] to [1.]; got -0.1 at index (1, 0)"),
    "start in the plane": ({"start": [0.5, 0.5]}, "start must be an array of shape (1,);"),
    "start text": ({"start": "left"}, "start must be an array of numbers; got str"),
    "start nowhere": ({"start": np.zeros((0, 1))}, "start must be an array of shape (I, 1);"),
    "start shares of sum 1.5": ({"start": [[0.1], [0.2]], "start_probabilities": [0.5, 1.0]},
                                "each row of start_probabilities must be a distribution (sum 1);"),
    "start shares for others": ({"start_probabilities": [0.5, 0.5]},
                                "start_probabilities must be an array of shape (1,);"),
    "high below low": ({"high": -1}, "high must be above low; got -1.0 at index 0"),
    "high of another n": ({"high": [1, 1]}, "high must be an array of shape (1,);"),
    "low text": ({"low": "zero"}, "low must be an array of numbers; got str"),
    "low of rank 2": ({"low": [[0.0]]}, "low must be an array of shape (n,); got shape (1, 1)"),
    "no end": ({"high": np.inf}, "high must be finite; got inf"),
    "too wide": ({"low": -1e308, "high": 1e308}, "high - low must be finite; got inf at index 0"),
    "draws text": ({"sample": lambda x, a, i, u: "left"},
                   "sample(array (1,), 0, 0, array (1,)) must be an array of numbers; got ndarray"),
    "draws of another n": ({"sample": lambda x, a, i, u: np.zeros(2)},
                           "sample(array (1,), 0, 0, array (1,)) must be an array of shape (1,);"),
    "draws outside": ({"sample": lambda x, a, i, u: u + i},
                      "a draw from component 1 after action 0 must be inside the box [0.] to [1.]; "
                      "got [1.6"),
    "draws from elsewhere": ({"sample": lambda x, a, i, u: 0.01 + 0.01 * u},
                             "the mean of draws by sample from component 0 after action 0 must be "
                             "near ["),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize(("changes", "start"), BOXES.values(), ids=BOXES)
def test_refused_on_a_box(changes, start):
    assert_refused(start, linear_kernel_on_box, **on_box() | changes)


def middle(x, a):
    return np.full_like(x, 0.5)


MEAN = "mean(array (3, 1), array (3, 1)) must be "
DENSITIES = {
    "mean no function": ({"mean": 0.5}, "mean must be a function; got float"),
    "sd 0": ({"sd": 0}, "sd must be > 0; got 0.0 at index 0"),
    "sd text": ({"sd": "wide"}, "sd must be an array of numbers; got str"),
    "sd of another n": ({"sd": [1, 1]}, "sd must be an array of shape (1,);"),
    "sd infinite": ({"sd": np.inf}, "sd must be finite; got inf"),
    "mean of other shape": ({"mean": lambda x, a: x[0]},
                            MEAN + "an array of shape (3, 1); got shape"),
    "mean raises": ({"mean": lambda x, a: x[9]}, MEAN + "an array of shape (3, 1); got IndexError"),
    "mean not finite": ({"mean": lambda x, a: x / 0 - x / 0},
                        MEAN + "finite; got nan"),
    "mean far above": ({"mean": lambda x, a: x + 5},
                       "mean(x, a) must be within 36 standard deviations of the box; got 5.0 at"),
    "mean far below": ({"mean": lambda x, a: x - 9},
                       "mean(x, a) must be within 36 standard deviations of the box; got -9.0 at"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
@pytest.mark.parametrize(("changes", "start"), DENSITIES.values(), ids=DENSITIES)
def test_truncated_normals_are_checked(changes, start):
    def use(**options):
        base = box.truncated_normal(**options)
        base.density(np.zeros((3, 1)), column(3), np.zeros((2, 1)))

    assert_refused(start, use, **{"mean": middle, "sd": 0.1, "low": 0, "high": 1} | changes)


@pytest.mark.parametrize(
    ("bases", "start"),
    [
        ([], "bases must be at least one BaseDensity; got none"),
        (None, "bases must be a list or tuple; got NoneType"),
        ([middle], "bases[0] must be a BaseDensity; got "),
        (box.truncated_normal(middle, 1, 0, 1), "bases[0] must be a BaseDensity; got "),
    ],
)
def test_mixtures_are_of_base_densities(bases, start):
    assert_refused(start, box.mixture, bases)


def test_only_worlds_on_a_box_are_refined():
    on_a_box = linear_kernel_on_box(**on_box())
    assert_refused("world must be on a box; got one with finitely", refined, finite_world())
    assert_refused("world must be a LinearKernelCMDP; got NoneType", refined, None)
    assert_refused("factor must be an integer >= 1; got 0", refined, on_a_box, 0)
    assert_refused("nodes must be an integer in [1, 2048]; got 4000", refined, on_a_box, 1000)


# What nobody should hand over, and in one sentence hears that it is not taken.
ODD = [
    "twelve", "", b"x", [[1, 2], [3]], object(), {"a": 1}, [], np.zeros(0), [None], 1e308, np.nan,
    -1e308, [np.inf], np.ones((1,) * 7), np.array(["a"]), np.full((M, H, D1), 1e308),
    np.full((M, K, H, D1), -1e308), SuccessorFeatures([0], [0], [0]),
]  # fmt: skip
SCALARS = ("actions", "nodes", "tolerance")  # `_check` shows in full what it got


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize("name", [name for name in on_box() if name not in SCALARS])
def test_no_odd_input_gets_past_one_sentence(name):
    for value in ODD:
        assert_refused("", linear_kernel_on_box, **on_box() | {name: value})


# ---------------------------------------------------------------- quadrature

SIDES = {1: (np.array([-1.0]), np.array([3.0])), 2: (np.array([0.5, -2.0]), np.array([1.5, 1.0]))}


def monomial_integral(powers, low, high):
    powers = np.array(powers) + 1.0
    return np.prod((high**powers - low**powers) / powers)


@pytest.mark.parametrize("dimension", SIDES)
@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
def test_gauss_legendre_is_exact_up_to_degree_2n_minus_1(dimension, nodes):
    low, high = SIDES[dimension]
    rule = box.gauss_legendre(low, high, nodes)
    assert rule.nodes.shape == (nodes**dimension, dimension)
    for powers in itertools.product(range(2 * nodes), repeat=dimension):
        found = rule.weights @ (rule.nodes ** np.array(powers)).prod(axis=1)
        assert found == pytest.approx(monomial_integral(powers, low, high), rel=1e-12, abs=1e-11)
    over = (2 * nodes,) + (0,) * (dimension - 1)
    found = rule.weights @ rule.nodes[:, 0] ** (2 * nodes)
    assert abs(found - monomial_integral(over, low, high)) > 1e-7


@pytest.mark.parametrize("dimension", SIDES)
def test_midpoints_are_of_second_order(dimension):
    low, high = SIDES[dimension]
    exact = np.prod(np.exp(high) - np.exp(low))
    errors = []
    for nodes in (8, 16, 32, 64):
        rule = box.uniform_grid(low, high, nodes)
        errors.append(rule.weights @ np.exp(rule.nodes.sum(axis=1)) - exact)
    np.testing.assert_allclose(np.array(errors[:-1]) / errors[1:], 4, rtol=0.02)


@pytest.mark.parametrize("rule", [box.gauss_legendre, box.uniform_grid])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_weights_are_positive_and_sum_to_the_volume(rule, n):
    low, high = np.arange(n) - 1.0, np.arange(n) * 3 + 1.0
    found = rule(low, high, 6)
    assert (found.weights > 0).all()
    assert found.weights.sum() == pytest.approx(np.prod(high - low), rel=1e-13)
    assert ((found.nodes > low) & (found.nodes < high)).all()
    np.testing.assert_allclose(found.nodes.mean(axis=0), (low + high) / 2, atol=1e-13)
    assert len(np.unique(found.nodes, axis=0)) == 6**n


def test_a_box_may_have_many_directions():
    rule = box.gauss_legendre(np.zeros(70), np.ones(70), 1)
    np.testing.assert_allclose(rule.nodes, 0.5)
    np.testing.assert_allclose(rule.weights, 1.0)


def cut_off(nodes, rule="uniform", tolerance=0.1):
    """A normal that is cut off at both ends, and a flat density that any rule integrates."""
    bases = [
        box.truncated_normal(lambda x, a: 0.2 + 0.6 * x, 0.3, 0, 1),
        box.BaseDensity(lambda x, a, y: np.ones((len(x), len(y))), lambda x, a, u: u),
    ]
    psi, sample = box.mixture(bases)
    theta = np.array([0.8, 0.2]).reshape(1, 1, 2).repeat(3, 1)
    half = np.tile([0.5, 0.25], (1, 3, 1))
    return linear_kernel_on_box(
        0, 1, 1, psi, here_and_there, theta, half, half[None], [[0.5]], [[0.1], [0.4]],
        sample=sample, start_probabilities=[0.25, 0.75], nodes=nodes, rule=rule,
        tolerance=tolerance,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "nodes"), [("uniform", (10, 20, 40)), ("gauss-legendre", (3, 5, 8))]
)
def test_quadrature_error_is_the_largest_miss_and_falls(rule, nodes):
    errors = []
    for count in nodes:
        world = cut_off(count, rule)
        y, weights = world.box.quadrature
        sums = world.box.psi(world.box.points, column(world.S), y).transpose(2, 0, 1) @ weights
        expected = np.abs(0.8 * sums[0] + 0.2 * sums[1] - 1).max()
        assert world.quadrature_error == pytest.approx(expected, abs=1e-15)
        errors.append(world.quadrature_error)
    assert errors[0] > 1e-4
    assert errors[1] < errors[0] / 3
    assert errors[2] < errors[1] / 3


def test_refined_has_twice_the_nodes_and_is_otherwise_the_same():
    world = cut_off(10)
    world.name, world.recipe = "named", {"nodes": 10}
    fine = refined(world)
    assert (world.box.nodes, fine.box.nodes, refined(world, 3).box.nodes) == (10, 20, 30)
    assert (fine.S, fine.box.rule, fine.box.tolerance) == (22, "uniform", 0.1)
    assert (fine.name, fine.recipe) == ("named", {"nodes": 10})
    np.testing.assert_array_equal(fine.box.points[20:], [[0.1], [0.4]])
    np.testing.assert_array_equal(fine.initial[20:], [0.25, 0.75])
    for name in ("theta", "theta_r", "theta_g", "thresholds"):
        np.testing.assert_array_equal(getattr(fine, name), getattr(world, name))
    assert fine.box.sample is world.box.sample
    plane = box_world(M=2, H=2, n=2, nodes=6)
    assert (plane.S, refined(plane).S) == (6**2 + 1, 12**2 + 1)


def test_values_converge_with_the_nodes():
    values = []
    for nodes in (5, 10, 20, 160):
        world = cut_off(nodes)
        uniform = np.ones((1, 3, world.S, 1))
        values.append(evaluate_episodes(world, np.zeros(1, int), uniform)[0])
    errors = np.abs(np.array(values[:-1]) - values[-1]).max(axis=1)
    assert errors[0] > 1e-6
    assert errors[1] < errors[0] / 3
    assert errors[2] < errors[1] / 3


def test_the_tables_of_a_box_are_normalised():
    world = cut_off(10)
    (points, (y, weights)) = world.box.points, world.box.quadrature
    p = (world.box.psi(points, column(world.S), y) @ [0.8, 0.2]) * weights
    assert np.abs(p.sum(axis=1) - 1).max() > 1e-4
    P = world.at(0).dense_transitions()
    np.testing.assert_allclose(P[:, :, 0, :10], np.tile(p / p.sum(axis=1)[:, None], (3, 1, 1)))
    assert not P[..., 10:].any()


def test_a_world_with_one_feature_can_be_tuned_whatever_the_quadrature_says():
    """The quadrature of a density may fall short of 1; ‖∫ψV‖ ≥ 1/√d1 holds anyway."""

    def psi(x, a, y):  # midpoints make 1 - 1/(4 nodes²) of it
        return np.tile(3 * y**2, (len(x), 1, 1))

    one = np.ones((5, 2, 1))
    world = linear_kernel_on_box(
        0, 1, 2, psi, lambda x, a: x, one, one, one[:, None], np.full((5, 1), 0.1), 0.5,
        sample=lambda x, a, i, u: np.cbrt(u), rule="uniform", nodes=8, tolerance=0.05,
    )  # fmt: skip
    assert world.quadrature_error == pytest.approx(1 / 256)
    assert world.bound == 1.0
    sd.PROPDPPO.for_problem(world, sd.Slater(0.1))


# ---------------------------------------------------------------- features on a box


def test_features_of_the_nodes_are_those_of_the_functions():
    world = box_world(M=2, H=2, n=2, nodes=6)
    y, weights = world.box.quadrature
    J = weights.size
    x = world.box.points
    np.testing.assert_array_equal(x[:J], y)
    actions = [column(world.S, a) for a in range(world.A)]
    psi = np.stack([world.box.psi(x, a, y) * weights[:, None] for a in actions], axis=1)
    phi = np.stack([world.box.phi(x, a) for a in actions], axis=1)
    dense_psi, dense_phi = dense_features(world)
    np.testing.assert_allclose(dense_psi[0][:, :, :J], psi, atol=1e-15)
    assert not dense_psi[0][:, :, J:].any()  # nothing moves to a first state
    np.testing.assert_allclose(dense_phi[0], phi, atol=1e-15)
    for points in (x, np.array([[0.123, 0.9]]), np.zeros((0, 2))):
        got_psi, got_phi = world.features_at(points)
        assert got_psi.shape == (len(points), world.A, J, world.d1)
        assert got_phi.shape == (len(points), world.A, world.d2)
        for a in range(world.A):
            action = column(len(points), a)
            wanted = world.box.psi(points, action, y) * weights[:, None]
            np.testing.assert_allclose(got_psi[:, a], wanted, atol=1e-15)
            np.testing.assert_allclose(got_phi[:, a], world.box.phi(points, action), atol=1e-15)
    assert finite_world().features_at is None


def test_features_anywhere_are_checked():
    """Fine at the nodes, nonsense at 0.123."""

    def phi(x, a):
        return np.where(x == 0.123, np.nan, here_and_there(x, a))

    world = linear_kernel_on_box(**on_box() | {"phi": phi})
    assert_refused(
        "phi(array (2, 1), array (2, 1)) must be finite; got nan",
        world.features_at,
        np.array([[0.123]]),
    )


@pytest.mark.parametrize("kind", [list, np.float32, np.asfortranarray])
def test_functions_may_return_any_array(kind):
    """And what the kernels get is float64, in C order and theirs to write on."""

    def psi(x, a, y):
        return flat_and_steep(x, a, y).tolist() if kind is list else kind(flat_and_steep(x, a, y))

    def phi(x, a):
        return here_and_there(x, a).tolist() if kind is list else kind(here_and_there(x, a))

    tolerance = 1e-6 if kind is np.float32 else 1e-15
    world = linear_kernel_on_box(**on_box() | {"psi": psi, "phi": phi})
    expected = linear_kernel_on_box(**on_box())
    for got, wanted in zip(
        world.features_at(np.array([[0.2], [0.3]])),
        expected.features_at(np.array([[0.2], [0.3]])),
        strict=True,
    ):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance)
        assert numba.typeof(got) == numba.typeof(np.zeros(got.shape))


def test_features_are_not_the_users_arrays():
    kept = np.zeros((A, 2))

    def phi(x, a):
        if len(x) > A:
            return here_and_there(x, a)
        kept[:] = here_and_there(x, a)
        return kept

    world = linear_kernel_on_box(**on_box() | {"phi": phi})
    first, second = (world.features_at(np.array([[x]]))[1] for x in (0.2, 0.9))
    assert first[0, 0, 0] == 0.2
    assert second[0, 0, 0] == 0.9


def test_contains():
    inside = box_world(M=2, H=2, n=2, nodes=6).box.contains
    points = np.array([[0, 0], [1, 1], [0.5, 1.1], [-0.1, 0.5], [0.5, 0.5]])
    np.testing.assert_array_equal(inside(points), [True, True, False, False, True])


def test_a_point_outside_the_nodes_starts_with_its_probability():
    world = cut_off(10)
    np.testing.assert_array_equal(world.initial, [0] * 10 + [0.25, 0.75])
    assert linear_kernel_on_box(**on_box() | {"start_probabilities": None}).initial[-1] == 1
    two = on_box() | {"start": [[0.1], [0.9]], "start_probabilities": None}
    np.testing.assert_array_equal(linear_kernel_on_box(**two).initial[-2:], [0.5, 0.5])


# ---------------------------------------------------------------- worlds known on paper


def up_or_stay(x, a, y):
    """p_1 = 1; p_2 = 2y after action 0 and x 2y + (1-x) 2(1-y) after action 1."""
    up = np.tile(2 * y[:, 0], (len(x), 1))
    here = x * up + (1 - x) * (2 - up)
    return np.stack([np.ones_like(up), np.where(a == 0, up, here)], axis=-1)


@pytest.mark.parametrize("nodes", [2, 3, 8])
@pytest.mark.parametrize("w", [0.0, 0.3, 1.0])
def test_values_on_a_box_are_those_on_paper(nodes, w):
    """r = x and g = 1 - x on [0, 1], three steps, θ = (1-w, w).

    E[y|x, 0] = (1-w)/2 + 2w/3 =: c and E[y|x, 1] = (1-w)/2 + w(1+x)/3 =: α + βx. Always action 0:
    V(x) = x + 2c. Always action 1: V_3 = x, V_2 = x + α + βx, V_1 = x + α + (1+β)(α + βx).
    """
    M, x0 = 1, 0.3
    theta = np.tile([1 - w, w], (M, 3, 1))
    theta_r, theta_g = np.tile([1.0, 0.0], (M, 3, 1)), np.tile([0.0, 1.0], (M, 1, 3, 1))
    world = linear_kernel_on_box(
        0, 1, 2, up_or_stay, here_and_there, theta, theta_r, theta_g, [[0.5]], x0, nodes=nodes
    )
    assert world.quadrature_error < 1e-14
    c, alpha, beta = (1 - w) / 2 + 2 * w / 3, (1 - w) / 2 + w / 3, w / 3
    for a, V in ((0, x0 + 2 * c), (1, x0 + alpha + (1 + beta) * (alpha + beta * x0))):
        policy = np.zeros((1, 3, world.S, 2))
        policy[..., a] = 1
        found = evaluate_episodes(world, np.zeros(1, int), policy)[0]
        np.testing.assert_allclose(found, [V, 3 - V], rtol=0, atol=1e-12)


def test_the_optimum_on_a_box_is_the_one_on_paper():
    """One step: action 0 earns x, action 1 is safe by 1 - x; b = 0.4 at x = 0.3.

    Safe with probability b/(1-x), so V* = x(1 - b/(1-x)) and μ* = x/(1-x).
    """

    def phi(x, a):
        return np.where(np.arange(2) == a, here_and_there(x, a), 0)

    b, x = 0.4, 0.3
    theta, theta_r, theta_g = [[[0.5, 0.5]]], [[[1.0, 0.0]]], [[[[0.0, 1.0]]]]
    world = linear_kernel_on_box(
        0, 1, 2, flat_and_steep, phi, theta, theta_r, theta_g, [[b]], x, nodes=3
    )
    found = optima(world)
    np.testing.assert_allclose(found.value, x * (1 - b / (1 - x)), atol=1e-12)
    np.testing.assert_allclose(found.multipliers, [[x / (1 - x)]], atol=1e-12)
    np.testing.assert_allclose(found.gamma, 1 - x - b, atol=1e-12)


# ---------------------------------------------------------------- draws on a box


def truncnorm(mean, spread, low=0.0, high=1.0):
    return stats.truncnorm((low - mean) / spread, (high - mean) / spread, mean, spread)


@pytest.mark.parametrize("mean", [0.3, 0.5, 1.4, -0.4, -1.8, 2.8])
@pytest.mark.parametrize("spread", [0.1, 0.5])
def test_truncated_normals_keep_their_digits_in_the_tails(mean, spread):
    base = box.truncated_normal(lambda x, a: x, spread, 0, 1)
    other = truncnorm(mean, spread)
    x, y = np.array([[mean]]), np.linspace(0, 1, 21)
    np.testing.assert_allclose(base.density(x, column(1), y[:, None])[0], other.pdf(y), rtol=1e-9)
    u = np.array([0, 1e-12, 1e-3, 0.2, 0.5, 0.9, 1 - 1e-6])
    drawn = [float(base.sample(x[0], 0, np.array([each]))[0]) for each in u]
    np.testing.assert_allclose(drawn, other.ppf(u), rtol=0, atol=1e-9)
    assert drawn[0] >= 0
    assert drawn[-1] < float(base.sample(x[0], 0, np.array([1 - 2**-53]))[0]) <= 1


def test_coordinates_are_drawn_independently_with_their_own_spread():
    base = box.truncated_normal(lambda x, a: x + 0.1 * a, [0.1, 0.6], [0, -1], [1, 2])
    first, second = truncnorm(0.4, 0.1), truncnorm(1.1, 0.6, -1, 2)
    x, u = np.array([0.3, 1.0]), np.array([0.25, 0.875])
    wanted = first.ppf(u[0]), second.ppf(u[1])
    np.testing.assert_allclose(base.sample(x, 1, u), wanted, atol=1e-10)
    y = np.array([[0.5, 0.0], [0.1, 1.9], [0.9, -0.9]])
    wanted = first.pdf(y[:, 0]) * second.pdf(y[:, 1])
    np.testing.assert_allclose(base.density(x[None], column(1, 1), y), wanted[None], rtol=1e-10)


def three_bases(theta, x0=0.4):
    """Truncated normals around x, x + 1/4 and x/2 on [0, 1] with weights theta, one episode."""
    means = (lambda x, a: x, lambda x, a: x + 0.25, lambda x, a: x / 2 - 0.1 * a)
    bases = [box.truncated_normal(mean, 0.15, 0, 1) for mean in means]
    psi, sample = box.mixture(bases)
    half = np.full((1, 2, 1), 0.5)
    return linear_kernel_on_box(
        0, 1, 2, psi, lambda x, a: x, np.tile(theta, (1, 2, 1)), half, half[None], [[0.1]], x0,
        sample=sample, nodes=32,
    )  # fmt: skip


@pytest.mark.parametrize("theta", [[0.2, 0.0, 0.8], [0.5, 0.3, 0.2]])
@pytest.mark.parametrize("a", [0, 1])
def test_draws_follow_the_mixture(theta, a):
    world, x, n = three_bases(theta), np.array([0.4]), 20_000
    u = np.random.default_rng(5).random((n, 2))
    stepper = stepper_for(world)
    draws = np.array([stepper.next(0, 1, x, a, each)[0] for each in u])
    parts = [truncnorm(mean, 0.15) for mean in (0.4, 0.65, 0.2 - 0.1 * a)]

    def cdf(y):
        return sum(share * part.cdf(y) for share, part in zip(theta, parts, strict=True))

    assert stats.kstest(draws, cdf).statistic < 1.63 / np.sqrt(n)  # 1% level


@pytest.mark.parametrize(
    "theta",
    [[0.2, 0.0, 0.8, 0.0], [0.0, 0.5, 0.0, 0.5], [0.0, 0.0, 1.0, 0.0], [0.1] + [0.3] * 3,
     [1 / 3, 1 / 3, 1 / 3, 0.0], [0.7, 0.2, 0.1 - 5e-10, 0.0]],
)  # fmt: skip
def test_components_are_drawn_with_their_weights(theta):
    """Component i lands in its own quarter, so a draw tells which one it was."""

    def psi(x, a, y):
        quarter = np.floor(4 * y).astype(int) == np.arange(4)
        return np.broadcast_to(4.0 * quarter, (len(x), len(y), 4))

    half = np.full((2, 2, 1), 0.5)
    other = np.eye(4)[[0, 0]]  # of the other episode and the other step
    world = linear_kernel_on_box(
        0, 1, 1, psi, lambda x, a: x, [other, [other[0], theta]], half, half[:, None],
        [[0.1]] * 2, 0.5, sample=lambda x, a, i, u: (i + u) / 4, rule="uniform",
    )  # fmt: skip
    n = 4000
    u = np.concatenate(((np.arange(n) + 0.5) / n, [0.0, 2**-1074, 1e-300, 1 - 2**-53]))
    stepper, x = stepper_for(world), np.array([0.5])
    drawn = 4 * np.array([stepper.next(1, 1, x, 0, np.array([v, 0.0]))[0] for v in u])
    shares = np.bincount(drawn.astype(int)[:n], minlength=4) / n
    np.testing.assert_allclose(shares, theta, atol=1 / n)
    assert np.array(theta)[drawn.astype(int)].min() > 0  # no weight, no draw
    assert stepper.next(0, 1, x, 0, np.array([0.9, 0.0])) == 0


def test_a_draw_outside_the_box_is_refused():
    sample = on_box()["sample"]
    world = linear_kernel_on_box(
        **on_box() | {"sample": lambda x, a, i, u: sample(x, a, i, u) + (u > 1 - 1e-9)}
    )
    with pytest.raises(ValueError, match="after action 0 must be inside the box"):
        stepper_for(world).next(0, 0, np.array([0.5]), 0, np.array([0.5, 1 - 1e-12]))
