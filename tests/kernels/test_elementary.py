"""Elementary functions in plain arithmetic: right to the last digits, and the same everywhere."""

import hashlib
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from safedrift.kernels.elementary import (
    cos_turns,
    exp,
    log,
    normal_cdf,
    normal_quantile,
    tanh,
)


def in_ulps(found, exact):
    """How far a float is from an exact number, in units of its last digit."""
    return abs(float((Decimal(float(found)) - exact) / Decimal(float(np.spacing(abs(found))))))


@given(st.floats(-700, 700))
def test_exp_is_right_to_the_last_digit(x):
    assert in_ulps(exp(x), naive.exact_exp(x)) < 1.5


@given(st.floats(1e-300, 1e300))
def test_log_is_right_to_the_last_digit(x):
    assert x == 1 or in_ulps(log(x), naive.exact_log(x)) < 1.5


@given(st.floats(-1000, 1000))
def test_cosine_is_right_to_the_last_digits_of_1(t):
    assert abs(Decimal(float(cos_turns(t))) - naive.exact_cos_turns(t)) < Decimal("3e-16")


@given(st.floats(-25, 0))
def test_the_lower_tail_of_the_normal_keeps_its_digits(z):
    exact = naive.exact_normal_cdf(z)
    # Rounding of z² in the exponent is multiplied by it.
    assert abs(Decimal(float(normal_cdf(z))) / exact - 1) < Decimal(2e-14 + 2e-16 * z * z)


@given(st.floats(0, 40))
def test_the_upper_tail_of_the_normal_is_right_to_the_last_digits_of_1(z):
    assert abs(float(normal_cdf(z) + normal_cdf(-z)) - 1) < 4e-16


@given(st.floats(1e-280, 1 - 1e-12))
def test_the_quantile_is_the_inverse_of_the_distribution_function(p):
    z = float(normal_quantile(p))
    tail = min(p, 1 - p)
    found = float(normal_cdf(-abs(z)))
    assert abs(found / tail - 1) < 1e-13 * (1 + z * z)


def test_quantiles_of_both_halves_mirror_each_other():
    p = np.array([0.125, 0.25, 0.375])
    np.testing.assert_array_equal(normal_quantile(p), -normal_quantile(1 - p))


@given(st.floats(-30, 30))
def test_tanh_is_right_to_the_last_digits_of_1(x):
    twice = naive.exact_exp(2 * x)
    assert abs(Decimal(float(tanh(x))) - (twice - 1) / (twice + 1)) < Decimal("3e-16")


@pytest.mark.parametrize(
    ("function", "at", "wanted"),
    [
        (exp, [0.0, -709.0, -np.inf, np.inf, np.nan], [1.0, 0.0, 0.0, np.inf, np.nan]),
        (log, [1.0, 0.0, np.inf, -1.0, np.nan], [0.0, -np.inf, np.inf, np.nan, np.nan]),
        (cos_turns, [0, 0.25, 0.5, 0.75, 1, -0.25, 1e6 + 0.5], [1, 0, -1, 0, 1, 0, -1]),
        (tanh, [0.0, 400.0, -400.0], [0.0, 1.0, -1.0]),
        (normal_cdf, [0.0, 40.0, -40.0], [0.5, 1.0, 0.0]),
        (normal_quantile, [0.5, 0.0, 1.0], [0.0, -np.inf, np.inf]),
    ],
)
def test_special_values_are_exact(function, at, wanted):
    np.testing.assert_array_equal(function(at), wanted)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_arrays_keep_their_shape_and_are_not_written_to(shape):
    x = np.full(shape, 0.5)
    x.setflags(write=False)
    for function in (exp, log, cos_turns, tanh, normal_cdf, normal_quantile):
        assert function(x).shape == shape
    np.testing.assert_array_equal(exp(np.ones((4, 6))[::2, ::3]), np.full((2, 2), exp(1.0)))


@pytest.mark.parametrize(
    ("function", "recorded"),
    [
        (exp, "7c4facaa462774b4"),
        (log, "cee851682112b4a7"),
        (cos_turns, "6502c21b8ff5ed38"),
        (tanh, "1d03c3c72f1511c0"),
        (normal_cdf, "a1561de1b7716365"),
        (normal_quantile, "1c6fda64f23a306f"),
    ],
)
def test_every_bit_is_as_it_was_on_other_machines(function, recorded):
    x = (np.arange(1, 20_001) / 20_001.0) if function in (log, normal_quantile) else None
    x = np.linspace(-30, 30, 20_000) if x is None else x
    assert hashlib.sha256(function(x).tobytes()).hexdigest()[:16] == recorded
