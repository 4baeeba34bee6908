"""Binomial probabilities and Gauss-Legendre rules in plain arithmetic."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.polynomial.legendre import leggauss

import naive
from safedrift.kernels.probability import gauss_legendre_rule
from safedrift.models.outcomes import binomial


@given(st.integers(0, 60), st.floats(0, 1))
@example(60, 1e-300)
@example(7, 1.0)
@example(7, 0.0)
@example(60, float(np.nextafter(1, 0)))
def test_binomials_are_those_of_exact_fractions(n, p):
    k = np.arange(-1, n + 2)
    exact = [naive.binomial(int(j), n, p) for j in k]
    np.testing.assert_allclose(binomial(k, n, p), exact, rtol=1e-13, atol=1e-300)


def test_binomials_of_many_do_not_overflow():
    k = np.arange(5001)
    found = binomial(k, 5000, 0.3)
    assert abs(found.sum() - 1) < 1e-12
    assert abs((k * found).sum() - 1500) < 1e-8


def test_binomials_broadcast():
    found = binomial(np.arange(4), np.array([[2], [3]]), 0.5)
    np.testing.assert_allclose(found, np.array([[2, 4, 2, 0], [1, 3, 3, 1]]) / 8, rtol=1e-15)


def rule(n):
    points, weights = np.empty(n), np.empty(n)
    gauss_legendre_rule(points, weights)
    return points, weights


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 16, 33, 100])
def test_nodes_and_weights_are_those_of_the_eigenvalues(n):
    points, weights = rule(n)
    exact, their = leggauss(n)
    np.testing.assert_allclose(points, exact, rtol=0, atol=3e-16)
    np.testing.assert_allclose(weights, their, rtol=1e-11)


@pytest.mark.parametrize("n", [1, 2, 5, 32, 255, 2048])
def test_rules_are_symmetric_and_exact_for_even_powers(n):
    points, weights = rule(n)
    np.testing.assert_array_equal(points, -points[::-1])
    np.testing.assert_array_equal(weights, weights[::-1])
    assert (np.diff(points) > 0).all()
    for power in range(0, min(2 * n, 20), 2):
        assert abs((weights * points**power).sum() - 2 / (power + 1)) < 3e-15
