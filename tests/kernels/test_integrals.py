"""Sums of features times values: those of a plain loop, bit for bit, at every size."""

import numba
import numpy as np
import pytest

from safedrift.kernels.linear.integrals import integrate_row


@numba.njit
def integrated(first, count, psi, states, v, step, sums):
    integrate_row(first, count, psi, states, v, step, sums)


def in_a_plain_loop(first, count, psi, states, v, step):
    """sums[c, i] = ((0 + ψ_i(x_1) V_c(x_1)) + ψ_i(x_2) V_c(x_2)) + ..."""
    sums = np.zeros((len(v), psi.shape[1]))
    for e in range(first, first + count):
        for c in range(len(v)):
            for i in range(psi.shape[1]):
                sums[c, i] = sums[c, i] + psi[e, i] * v[c, step, states[e]]
    return sums


@pytest.mark.parametrize("C", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("d1", [1, 2, 3, 4, 5, 15, 16, 17, 23, 36])
def test_sums_are_those_of_a_plain_loop_to_the_last_bit(d1, C):
    rng = np.random.default_rng(100 * C + d1)
    psi, v = rng.normal(size=(40, d1)), rng.normal(size=(C, 3, 7))
    states = rng.integers(0, 7, 40).astype(np.uint32)
    for first, count in ((0, 40), (11, 17), (5, 1), (39, 1), (8, 0)):
        around = np.full((C + 2, d1), np.nan)
        sums = around[1:-1]
        integrated(first, count, psi, states, v, 1, sums)
        np.testing.assert_array_equal(sums, in_a_plain_loop(first, count, psi, states, v, 1))
        assert np.isnan(around[[0, -1]]).all()  # nothing else is written


def test_the_sums_stay_in_vectors():
    """The loop over a row multiplies vectors of sixteen numbers, on any processor."""
    one_row = np.ones((1, 16)), np.zeros(1, np.uint32), np.ones((2, 1, 1))
    integrated(0, 1, *one_row, 0, np.ones((2, 16)))
    assert all("fmul <16 x double>" in code for code in integrated.inspect_llvm().values())
