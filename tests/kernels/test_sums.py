"""Matrix products in a fixed order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from safedrift.kernels.sums import TILE, product


@given(st.integers(0, 9), st.integers(1, 12), st.integers(0, 19), st.integers(0, 2**32 - 1))
def test_products_are_those_of_the_obvious_loop_bit_for_bit(n, J, Q, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(n, J)), rng.normal(size=(J, Q)) * 10.0 ** rng.integers(-8, 8, (J, 1))
    np.testing.assert_array_equal(product(a, b), naive.product(a, b))


@pytest.mark.parametrize("Q", [TILE - 1, TILE, TILE + 1, 2 * TILE + 3])
def test_wide_products_are_cut_into_tiles_without_a_seam(Q):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(6, 5)), rng.normal(size=(5, Q))
    found = product(a, b)
    np.testing.assert_allclose(found, a @ b, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(found[:, -2:], naive.product(a, b[:, -2:]))


def test_vectors_and_more_axes_are_taken_as_matmul_takes_them():
    rng = np.random.default_rng(1)
    a, b, v = rng.random((4, 3, 5)), rng.random((5, 2)), rng.random(5)
    np.testing.assert_allclose(product(a, b), a @ b, rtol=1e-14)
    np.testing.assert_allclose(product(a, v), a @ v, rtol=1e-14)
    np.testing.assert_allclose(product(v, b), v @ b, rtol=1e-14)
    assert product(v, v).shape == ()
    np.testing.assert_allclose(product(v, rng.random((5, 2, 3))).shape, (2, 3))


def test_read_only_and_strided_arrays_are_taken_as_they_are():
    a, b = np.arange(12.0).reshape(3, 4), np.arange(20.0).reshape(4, 5)
    a.setflags(write=False)
    np.testing.assert_array_equal(product(a[:, ::2], b.T[:, 1::2].T), a[:, ::2] @ b[1::2])
