"""Numbers of twice the precision: an unevaluated sum hi + lo of two floats, about 32 digits.

Sums and products of two floats have rounding errors that are floats themselves (Dekker 1971; Knuth,
TAOCP 2, 4.2.2). Keeping them makes tiny linear systems as good as exact: a matrix of condition 1e16
still leaves 16 digits. Only +, -, * and / in IEEE arithmetic are used: same bits on every machine.
"""

from __future__ import annotations

from safedrift.kernels.types import jit_part

SPLITTER = 134217729.0  # 2**27 + 1


@jit_part
def two_sum(a, b):
    """Return a + b as rounded, and its rounding error."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


@jit_part
def two_product(a, b):
    """Return a * b as rounded, and its rounding error."""
    product = a * b
    x = SPLITTER * a
    a_high = x - (x - a)
    a_low = a - a_high
    y = SPLITTER * b
    b_high = y - (y - b)
    b_low = b - b_high
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, error


@jit_part
def add(a, a_low, b, b_low):
    """Return (a + a_low) + (b + b_low)."""
    total, error = two_sum(a, b)
    total_low, error_low = two_sum(a_low, b_low)
    total, error = two_sum(total, error + total_low)
    return two_sum(total, error + error_low)


@jit_part
def multiply(a, a_low, b, b_low):
    """Return (a + a_low) * (b + b_low)."""
    product, error = two_product(a, b)
    return two_sum(product, error + (a * b_low + a_low * b))


@jit_part
def subtract_product(c, c_low, a, a_low, b, b_low):
    """Return c - a * b."""
    product, low = multiply(a, a_low, b, b_low)
    return add(c, c_low, -product, -low)


@jit_part
def divide(a, a_low, b, b_low):
    """Return (a + a_low) / (b + b_low)."""
    first = a / b
    rest, rest_low = subtract_product(a, a_low, first, 0.0, b, b_low)
    second = rest / b
    rest, rest_low = subtract_product(rest, rest_low, second, 0.0, b, b_low)
    high, low = two_sum(first, second)
    return add(high, low, rest / b, 0.0)
