"""Code written for several numbers at once: that of plain loops, and nothing beyond their ends."""

from fractions import Fraction

import numba
import numpy as np
import pytest

from safedrift.kernels.tabular.improvement import (
    add_successors,
    finish_step,
    improve_step,
    start_step,
)

H, A = 3, 4


@numba.njit(error_model="numpy")
def improved(q, mu, logit, low, pi, work, alpha, h, n):
    improve_step(q, mu, logit, low, pi, work, alpha, h, n)


@numba.njit(error_model="numpy")
def evaluated(q, v, sums, ahead, signals, edges, weight, bonus, pi, lv, most, h, n):
    pairs, successors, times = edges
    start_step(sums, signals, 0, h, n)
    add_successors(sums, pairs, successors, times, ahead, pairs.size)
    finish_step(q, v, sums, ahead, weight, bonus, pi, lv, most, 0, h, n)


SIZES = [(5, 3), (8, 8), (8, 5), (16, 9), (20, 20), (19, 17), (3, 0)]  # room for states, states


@pytest.mark.parametrize(("cap", "n"), SIZES)
@pytest.mark.parametrize("K", [1, 2, 3])
def test_policies_improve_as_in_a_plain_loop(K, cap, n):
    rng = np.random.default_rng(cap + K)
    q, mu = rng.uniform(0, 5, (1 + K, H, A, cap)), rng.uniform(0, 3, K)
    logit, pi = rng.normal(0, 30, (H, A, cap)), rng.random((H, A, cap))
    logit[:, 0] = 0.0
    low = rng.normal(0, 1e-16, (H, A, cap))
    low[:, 0] = 0.0
    before = logit.copy(), low.copy(), pi.copy()
    improved(q, mu, logit, low, pi, np.empty(A * cap), 40.0, 1, n)
    for now, then in zip((logit, low, pi), before, strict=True):
        np.testing.assert_array_equal(now[[0, 2]], then[[0, 2]])
        np.testing.assert_array_equal(now[1, :, n:], then[1, :, n:])
    for i in range(n):
        for a in range(1, A):
            step = q[0, 1, a, i] - q[0, 1, 0, i]
            for k in range(K):
                step += mu[k] * (q[1 + k, 1, a, i] - q[1 + k, 1, 0, i])
            added = 40.0 * step + before[1][1, a, i]
            assert logit[1, a, i] == before[0][1, a, i] + added
            exact = Fraction(before[0][1, a, i]) + Fraction(added) - Fraction(logit[1, a, i])
            assert low[1, a, i] == float(exact)  # what rounding dropped
        weights = np.exp(logit[1, :, i] - logit[1, :, i].max() + low[1, :, i])
        np.testing.assert_allclose(pi[1, :, i], weights / weights.sum(), rtol=1e-14, atol=1e-300)


@pytest.mark.parametrize(("cap", "n"), SIZES)
def test_two_channels_are_evaluated_as_in_a_plain_loop(cap, n):
    rng = np.random.default_rng(cap)
    signals, weight, bonus, pi = (rng.random((*first, H, A, cap)) for first in ((2,), (), (), ()))
    count = 3 * n
    pairs = rng.integers(0, A, count) * cap + rng.integers(0, max(n, 1), count)
    successors, times = rng.integers(0, cap, count), rng.integers(1, 9, count).astype(float)
    edges = pairs.astype(np.uint32), successors.astype(np.uint32), times
    values, lv, most, h = rng.random((2, cap)), (0.0, 0.3), 4.0, 1
    q, v = np.full((2, H, A, cap), np.nan), np.full((2, H, cap), np.nan)
    ahead = values.T.ravel().copy()
    evaluated(q, v, np.zeros(2 * A * cap), ahead, signals, edges, weight, bonus, pi, lv, most, h, n)
    for c in range(2):
        totals = signals[c, h].ravel().copy()
        for pair, successor, number in zip(pairs, successors, times, strict=True):
            totals[pair] = totals[pair] + number * values[c, successor]
        expected = totals.reshape(A, cap) * weight[h] + (bonus[h] + lv[c])
        expected = np.clip(expected, 0.0, most)
        np.testing.assert_array_equal(q[c, h, :, :n], expected[:, :n])
        total = np.zeros(cap)
        for a in range(A):
            total = total + pi[h, a] * expected[a]
        np.testing.assert_array_equal(v[c, h, :n], total[:n])
        np.testing.assert_array_equal(ahead[c::2][:n], total[:n])
        assert np.isnan(q[c][[0, 2]]).all()
        assert np.isnan(v[c][[0, 2]]).all()


def test_the_code_has_vectors_of_eight():
    states = np.zeros((2, 1, 2, 8))
    arrays = states[0].copy(), states[0].copy(), states[0].copy(), np.zeros(16)
    improved(states, np.ones(1), *arrays, 1.0, 0, 8)
    assert all("fmul <8 x double>" in code for code in improved.inspect_llvm().values())
