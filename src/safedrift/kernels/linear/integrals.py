"""Integrals of values against features, compiled: a row of ψ is read once, at the pace of memory.

    sums[c, i] = ((0 + ψ_i(x_1) V_c(x_1)) + ψ_i(x_2) V_c(x_2)) + ...

Each sum runs over the successors of a pair from first to last, one multiplication and one addition
after the other, as in a plain loop; side by side go the columns i, up to sixteen of them, and two
channels c. The sums stay in registers until the row is read. A plain loop is compiled to vector
instructions too, but its sums go to memory and back with every few successors.

So the code below is written in the compiler's own language, with vectors of 16, 4 and 1 columns. A
processor whose vectors are shorter uses several of them: the numbers are the same to the last bit.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types

from safedrift.kernels.lanes import repeated, written
from safedrift.kernels.types import jit_inline

_INDEX, _NUMBER = ir.IntType(64), ir.DoubleType()


def weighted_sums(lanes: int, channels: int):
    """Return a compiled function that writes the sums of some columns and channels of a row.

    Its arguments are ψ (entries, d1), successors (entries,), values (C, steps, S), sums (C, d1);
    then integers: first entry, number of entries, first column, first channel, step of the values.
    """

    @written
    def write_sums(context, psi, states, v, sums, first, count, column, channel, step):
        arrays, integers = (psi, states, v, sums), (first, count, column, channel, step)
        return types.void(*arrays, *integers), partial(_write_sums, lanes, channels)

    return write_sums


def _write_sums(lanes, channels, context, builder, signature, arguments):
    """Write the loop over the entries of a row, with its sums in registers."""
    psi, states, v, sums = (
        context.make_array(kind)(context, builder, array)
        for kind, array in zip(signature.args[:4], arguments[:4], strict=True)
    )
    first, count, column, channel, step = arguments[4:]
    vector = ir.VectorType(_NUMBER, lanes)
    add, times = builder.add, builder.mul
    d1 = cgutils.unpack_tuple(builder, psi.shape, 2)[1]
    _, steps, S = cgutils.unpack_tuple(builder, v.shape, 3)
    row = builder.gep(psi.data, [add(times(first, d1), column)])
    successors = builder.gep(states.data, [first])
    numbers = [add(channel, _INDEX(c)) for c in range(channels)]
    ahead = [builder.gep(v.data, [times(add(times(c, steps), step), S)]) for c in numbers]
    totals = [cgutils.alloca_once_value(builder, ir.Constant(vector, None)) for _ in numbers]
    with cgutils.for_range(builder, count) as loop:
        place = builder.gep(row, [times(loop.index, d1)])
        weights = builder.load(builder.bitcast(place, vector.as_pointer()), align=8)
        state = builder.zext(builder.load(builder.gep(successors, [loop.index])), _INDEX)
        for total, values in zip(totals, ahead, strict=True):
            value = repeated(builder, builder.load(builder.gep(values, [state])), vector)
            term = builder.fmul(weights, value)
            builder.store(builder.fadd(builder.load(total), term), total)
    for total, c in zip(totals, numbers, strict=True):
        place = builder.gep(sums.data, [add(times(c, d1), column)])
        builder.store(builder.load(total), builder.bitcast(place, vector.as_pointer()), align=8)
    return context.get_dummy_value()


_sixteen_of_two, _four_of_two, _one_of_two = (weighted_sums(lanes, 2) for lanes in (16, 4, 1))
_sixteen, _four, _one = (weighted_sums(lanes, 1) for lanes in (16, 4, 1))


@jit_inline
def integrate_row(first, count, psi, states, v, step, sums):
    """sums[c] ← Σ_e ψ[e] V_c(x_e) over the entries e = first, ..., first + count - 1.

    Parameters
    ----------
    psi : (entries, d1)
    states : (entries,) x_e
    v : (C, steps, S) of which `step` is used
    sums : (C, d1) written
    """
    C, d1 = sums.shape
    c = np.int64(0)
    while c + 2 <= C:
        i = np.int64(0)
        while i + 16 <= d1:
            _sixteen_of_two(psi, states, v, sums, first, count, i, c, step)
            i += 16
        while i + 4 <= d1:
            _four_of_two(psi, states, v, sums, first, count, i, c, step)
            i += 4
        while i < d1:
            _one_of_two(psi, states, v, sums, first, count, i, c, step)
            i += 1
        c += 2
    if c < C:
        i = np.int64(0)
        while i + 16 <= d1:
            _sixteen(psi, states, v, sums, first, count, i, c, step)
            i += 16
        while i + 4 <= d1:
            _four(psi, states, v, sums, first, count, i, c, step)
            i += 4
        while i < d1:
            _one(psi, states, v, sums, first, count, i, c, step)
            i += 1
