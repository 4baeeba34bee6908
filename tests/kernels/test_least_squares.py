"""Ridge regression by rotations: against exact rational arithmetic, near singularity included."""

from fractions import Fraction

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safedrift.kernels.linear import least_squares as ls


def exact_ridge(rows, y, lam):
    """w = (λI + Σxxᵀ)⁻¹ Σxy in rational numbers, by elimination."""
    d = rows.shape[1]
    rows = [[Fraction(v) for v in row] for row in rows.tolist()]
    y = [Fraction(v) for v in y.tolist()]
    G = [
        [sum(r[i] * r[j] for r in rows) + (i == j) * Fraction(lam) for j in range(d)]
        for i in range(d)
    ]
    b = [sum(r[i] * t for r, t in zip(rows, y, strict=True)) for i in range(d)]
    for k in range(d):
        for i in range(k + 1, d):
            factor = G[i][k] / G[k][k]
            G[i] = [u - factor * v for u, v in zip(G[i], G[k], strict=True)]
            b[i] -= factor * b[k]
    w = [Fraction(0)] * d
    for i in range(d - 1, -1, -1):
        w[i] = (b[i] - sum(G[i][j] * w[j] for j in range(i + 1, d))) / G[i][i]
    return np.array([float(v) for v in w])


class Regression:
    """The arrays of one regression."""

    def __init__(self, d, T=1):
        self.R, self.gram, self.gram_low = (np.zeros((d, d)) for _ in range(3))
        self.z, self.moment, self.moment_low, self.w = (np.zeros((T, d)) for _ in range(4))
        self.scratch = np.zeros((d + 5, max(d, T)))

    @property
    def arrays(self):
        return self.R, self.z, self.gram, self.gram_low, self.moment, self.moment_low

    def fit(self, rows, targets, lam, every):
        return ls.regress(rows, targets, lam, every, *self.arrays, self.scratch, self.w)


def error(found, exact):
    return np.abs(found - exact).max() / np.abs(exact).max()


@given(
    d=st.integers(1, 6), n=st.integers(0, 25), T=st.integers(1, 3), rank=st.integers(1, 6),
    lam=st.sampled_from([1e-6, 1e-2, 1.0]), every=st.sampled_from([0, 1, 7]),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_coefficients_equal_exact_arithmetic(d, n, T, rank, lam, every, seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, d))  # rank-deficient where rank < d
    targets = rng.random((n, T))
    regression = Regression(d, T)
    regression.fit(rows, targets, lam, every)
    for t in range(T):
        wanted = exact_ridge(rows, targets[:, t], lam)
        # Rotations alone lose digits with the condition number of Λ, refreshed ones with its root.
        condition = np.linalg.cond(rows.T @ rows + lam * np.eye(d))
        lost = 1e-14 * condition if every == 0 else 1e-9
        scale = max(np.abs(wanted).max(), 1e-3)
        np.testing.assert_allclose(regression.w[t], wanted, rtol=0, atol=(lost + 1e-11) * scale)


def test_factor_is_that_of_the_gram_matrix():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 5))
    regression = Regression(5)
    regression.fit(rows, rng.random((50, 1)), 0.3, 0)
    np.testing.assert_allclose(
        regression.R.T @ regression.R, rows.T @ rows + 0.3 * np.eye(5), atol=1e-12
    )
    assert not np.tril(regression.R, -1).any()


def nearly_singular(n, d, seed=0, thin=1e-5):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 2)) @ rng.normal(size=(2, d)) + thin * rng.normal(size=(n, d))
    return 30 * rows / np.linalg.norm(rows, axis=1).max(), rng.random((n, 1))


@pytest.mark.parametrize(("lam", "thin"), [(1e-3, 1e-5), (1e-7, 1e-5), (1e-8, 1e-7)])
def test_a_gram_matrix_of_condition_1e12_does_not_corrupt_the_answer(lam, thin):
    rows, targets = nearly_singular(600, 6, thin=thin)
    condition = np.linalg.cond(rows.T @ rows + lam * np.eye(6))
    assert condition > {1e-3: 1e7, 1e-7: 1e10, 1e-8: 1e12}[lam]
    exact = exact_ridge(rows, targets[:, 0], lam)
    regression = Regression(6)
    residual = regression.fit(rows, targets, lam, 64)
    assert error(regression.w[0], exact) < 1e-8
    assert residual < 1e-7
    if condition > 1e10:  # what a plain solve of the normal equations makes of it
        plain = np.linalg.solve(rows.T @ rows + lam * np.eye(6), rows.T @ targets[:, 0])
        assert error(plain, exact) > 1e-7


@pytest.mark.parametrize("T", [1, 3])
def test_nearly_singular_answers_are_exact_between_scheduled_refreshes(T):
    """No refresh is due in 50 rows: those made because Λ is nearly singular must do."""
    rows, _ = nearly_singular(50, 5, thin=0.0)
    targets = np.random.default_rng(2).random((50, T))
    regression, rotated = Regression(5, T), Regression(5, T)
    regression.fit(rows, targets, 1e-10, 64)
    rotated.fit(rows, targets, 1e-10, 0)
    for t in range(T):
        exact = exact_ridge(rows, targets[:, t], 1e-10)
        assert error(regression.w[t], exact) < 1e-12
        assert error(rotated.w[t], exact) > 1e-4  # what rotations alone make of it


def test_a_vanished_pivot_is_told_and_the_rotated_one_kept():
    regression = Regression(2)
    regression.fit(np.ones((1, 2)), np.ones((1, 1)), 1e-3, 0)
    R, z, gram, _, _, _ = regression.arrays
    gram[:] = 1.0  # of rank one, exactly
    regression.gram_low[:] = 0.0
    kept = R[1, 1]
    s = np.zeros((2, 2))
    assert refresh(*regression.arrays, s, np.zeros(2), np.zeros(2), np.zeros((1, 2))) == np.inf
    np.testing.assert_allclose(R, [[1, 1], [0, kept]], rtol=1e-15)
    assert np.isfinite(z).all()


def test_bonus_norms_survive_a_gram_matrix_of_condition_1e12():
    rows, targets = nearly_singular(200, 4, thin=1e-7)
    lam = 1e-8
    regression = Regression(4)
    regression.fit(rows, targets, lam, 64)
    x = np.random.default_rng(1).normal(size=4)
    # ‖x‖² in the inverse Gram matrix: the coefficient vector of one more "target" b = x.
    G = [
        [sum(Fraction(r[i]) * Fraction(r[j]) for r in rows.tolist()) for j in range(4)]
        for i in range(4)
    ]
    for i in range(4):
        G[i][i] += Fraction(lam)
    b = [Fraction(v) for v in x.tolist()]
    for k in range(4):
        for i in range(k + 1, 4):
            factor = G[i][k] / G[k][k]
            G[i] = [u - factor * v for u, v in zip(G[i], G[k], strict=True)]
            b[i] -= factor * b[k]
    wanted = float(sum(b[i] * b[i] / G[i][i] for i in range(4)))  # LDLᵀ
    z = np.linalg.solve(regression.R.T, x)
    assert z @ z == pytest.approx(wanted, rel=1e-8)


def test_refresh_mends_a_damaged_factor_and_reports_it():
    rng = np.random.default_rng(0)
    rows, targets = rng.normal(size=(40, 4)), rng.random((40, 1))
    good, damaged = Regression(4), Regression(4)
    good.fit(rows, targets, 0.1, 0)
    damaged.fit(rows, targets, 0.1, 0)
    damaged.R[1, 1] *= 1 + 1e-5
    damaged.R[0, 3] += 1e-4
    damaged.z[0, 2] += 1e-3
    s = damaged.scratch
    room = (s[:4], s[6], s[7], np.zeros((1, 4)))
    residual = refresh(*damaged.arrays, *room)
    assert residual >= 1e-5 * 0.9
    np.testing.assert_allclose(damaged.R, good.R, atol=1e-13)
    np.testing.assert_allclose(damaged.z, good.z, atol=1e-13)
    assert refresh(*damaged.arrays, *room) < 1e-13


@numba.njit(error_model="numpy")
def refresh(R, z, gram, gram_low, moment, moment_low, R_low, z_low, w, old_w):
    return ls.refresh(R, z, gram, gram_low, moment, moment_low, R_low, z_low, w, old_w)


@numba.njit(error_model="numpy")
def product(a, b):
    return ls.split_product(a, b)


@numba.njit(error_model="numpy")
def add(high, low, add_high, add_low):
    return ls.add_two(high, low, add_high, add_low)


@numba.njit(error_model="numpy")
def divide(high, low, b, b_low):
    return ls.divide_two(high, low, b, b_low)


@numba.njit(error_model="numpy")
def root(high, low):
    return ls.root_two(high, low)


def test_two_float_arithmetic_is_exact_to_thirty_digits():
    rng = np.random.default_rng(0)
    for a, b in rng.normal(size=(200, 2)).tolist():
        high, low = product(a, b)
        assert Fraction(high) + Fraction(low) == Fraction(a) * Fraction(b)
        high, low = add(a, a * 1e-17, b, b * 1e-17)
        wanted = sum(map(Fraction, (a, a * 1e-17, b, b * 1e-17)))
        assert abs(Fraction(high) + Fraction(low) - wanted) <= Fraction(1, 10**30)
        high, low = divide(a, 0.0, b, 0.0)
        off = (Fraction(high) + Fraction(low)) * Fraction(b) / Fraction(a) - 1
        assert abs(off) < Fraction(1, 10**29)
        high, low = root(abs(a), 0.0)
        off = (Fraction(high) + Fraction(low)) ** 2 / Fraction(abs(a)) - 1
        assert abs(off) < Fraction(1, 10**29)
