"""What plans aim at: answers known on paper."""

import numba
import numpy as np
import pytest

from safedrift.kernels.tabular.reserve import (
    aim_above,
    lowered,
    make_returns,
    moments,
    see_returns,
)


@numba.njit(error_model="numpy")
def see_all(returns, promised, signals):
    for m in range(signals.shape[0]):
        see_returns(returns, promised, signals[m])


@numba.njit(error_model="numpy")
def look(returns, k, mu, slack):
    return moments(returns, k), aim_above(returns, k, mu, slack)


@numba.njit(error_model="numpy")
def lowered_to(slack, missing):
    return lowered(slack, missing)


def seen(M, off, K=2):
    """After M episodes with promises of 1 and returns of 1 + off (M, K), noise of 0.3."""
    returns, rng = make_returns(2, K), np.random.default_rng(0)
    signals = np.zeros((M, 1 + K, 2))
    signals[:, 1:, 0] = 1 + off + 0.3 * rng.standard_normal((M, K))
    see_all(returns, np.ones(K), signals)
    return returns


def test_promises_that_are_kept_are_believed():
    returns = seen(4000, np.zeros((4000, 2)))
    (off, variance), _ = look(returns, 0, 0.5, 1.0)
    assert abs(off) < 0.003
    assert variance < 3e-4
    assert returns.weight[:, 0].min() > 0.5  # the filter that d is 0
    np.testing.assert_allclose(np.sqrt(returns.noise), 0.3, rtol=0.1)


def test_promises_that_are_broken_are_corrected():
    """Constraint 0 is 0.4 short, constraint 1 has 0.2 too much."""
    returns = seen(4000, np.tile([-0.4, 0.2], (4000, 1)))
    assert look(returns, 0, 0.5, 9.0)[1] == pytest.approx(0.4, abs=0.02)
    assert look(returns, 1, 0.5, 9.0)[1] == pytest.approx(-0.2, abs=0.02)


def test_a_walk_is_followed():
    swing = 0.5 * np.sin(np.arange(5000) / 800)
    returns = seen(5000, np.stack((swing, -swing), axis=1))
    for k, sign in enumerate((1, -1)):
        assert look(returns, k, 0.5, 9.0)[0][0] == pytest.approx(sign * swing[-1], abs=0.15)
    assert returns.weight[:, 0].max() < 0.01


def test_the_price_decides_how_often_to_be_unsafe():
    """P(unsafe) = μ for a logistic d, at most two deviations, and never below b and b - d."""
    returns = seen(300, np.full((300, 2), -0.4))
    (off, variance), _ = look(returns, 0, 0.5, 9.0)
    deviation = np.sqrt(variance)
    scale = deviation * np.sqrt(3) / np.pi
    for mu in (0.1, 0.3, 0.5, 0.7):
        above = look(returns, 0, mu, 9.0)[1]
        assert 1 / (1 + np.exp((above + off) / scale)) == pytest.approx(mu)
    for mu in (0.0, 1e-9):
        assert look(returns, 0, mu, 9.0)[1] == pytest.approx(-off + 3.6 * scale)
    for mu in (1.0, 10.0):
        assert look(returns, 0, mu, 9.0)[1] == pytest.approx(max(-off - 3.6 * scale, 0.0))
    assert look(returns, 0, 0.1, 0.02)[1] == pytest.approx(-off + 0.01)  # half of the slack
    assert look(returns, 0, 0.1, -1.0)[1] == pytest.approx(-off)
    above = seen(300, np.full((300, 2), 0.4))
    assert look(above, 0, 10.0, 9.0)[1] == pytest.approx(-look(above, 0, 10.0, 9.0)[0][0])


def test_a_single_constraint_is_raised_by_half_of_its_slack():
    returns = seen(300, np.full((300, 1), -0.4), K=1)
    assert look(returns, 0, 0.1, 9.0)[1] > 0.4
    assert look(returns, 0, 0.1, 0.1)[1] == pytest.approx(0.05)
    assert look(returns, 0, 0.1, -1.0)[1] == 0.0


@pytest.mark.parametrize(
    ("slack", "missing", "share"), [(1, -1, 0.475), (3, -1, 0.7125), (0, -1, 0.5)]
)
def test_how_much_of_the_corrections_is_asked_for(slack, missing, share):
    """A little less than where a line from `slack` to `missing` is 0."""
    assert lowered_to(float(slack), float(missing)) == pytest.approx(share)


def test_one_odd_return_leaves_numbers():
    """Noise may vanish: a return far off is then as unlikely as it gets for every filter."""
    returns = make_returns(2, 1)
    signals = np.zeros((3000, 2, 2))
    signals[-1, 1] = 1.0
    see_all(returns, np.zeros(1), signals)
    assert all(np.isfinite(part).all() for part in returns)
    assert look(returns, 0, 0.5, 1.0)[0][0] < 0.3
