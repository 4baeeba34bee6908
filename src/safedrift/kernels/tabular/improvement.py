"""The mirror step and the last line of the evaluation, eight states at a time.

    π_m ∝ π_{m-1} exp(α (Q_r + Σ_k μ_k Q_g,k)),    Q = clip(Q w + (bonus + LV)),  V = ⟨π, Q⟩

What `kernels.tabular.propd_ppo` says of log-policies holds here. The code is written with
`kernels.lanes`, entry by entry in the order of the formulas.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, types

from safedrift.kernels.lanes import (
    entry,
    exp_of,
    over,
    over_lanes,
    repeated,
    unpacked,
    written,
)

_INDEX = ir.IntType(64)


@written
def improve_step(context, q, mu, logit, low, pi, work, alpha, h, n):
    """Improve the policy of step h in slots 0, ..., n - 1.

    Parameters
    ----------
    q : (C, H, A, cap)
    mu : (K,)
    logit, low, pi : (H, A, cap) written
    work : (A*cap,) scratch
    """
    arguments = (q, mu, logit, low, pi, work, alpha, h, n)
    return types.void(*arguments), _improve_step


def _improve_step(context, builder, signature, arguments):
    q, mu, logit, low, pi, work, alpha, h, n = unpacked(context, builder, signature.args, arguments)
    H, A, cap = cgutils.unpack_tuple(builder, pi.shape, 3)
    (K,) = cgutils.unpack_tuple(builder, mu.shape, 1)
    zero, one, add, times = _INDEX(0), _INDEX(1), builder.add, builder.mul
    pairs = times(A, cap)
    step, channel = times(h, pairs), times(H, pairs)  # where step h starts, length of a channel

    def improve(rows):
        top, total = rows.variable(0.0), rows.variable(0.0)

        def better(first, a):
            """How much better action a is than action 0, in the channel that starts at `first`."""
            return rows.read(q, add(first, times(a, cap))) - rows.read(q, first)

        mu_one, second = rows.same(entry(builder, mu, zero)), add(step, channel)
        with over(builder, one, A) as a:
            rows.write(work, times(a, cap), better(step, a) + mu_one * better(second, a))
        with over(builder, one, K) as k, over(builder, one, A) as a:
            mu_k, place = rows.same(entry(builder, mu, k)), times(a, cap)
            further = better(add(second, times(k, channel)), a)
            rows.write(work, place, rows.read(work, place) + mu_k * further)
        with over(builder, one, A) as a:
            place = add(step, times(a, cap))
            old = rows.read(logit, place)
            more = rows.same(alpha) * rows.read(work, times(a, cap)) + rows.read(low, place)
            new = old + more
            back = new - old
            rows.change(low, place, (old - (new - back)) + (more - back))
            rows.change(logit, place, new)
            top.set(new.at_least(top.get()))
        with over(builder, zero, A) as a:
            place = add(step, times(a, cap))
            weight = exp_of((rows.read(logit, place) - top.get()) + rows.read(low, place))
            rows.write(work, times(a, cap), weight)
            total.set(total.get() + weight)
        share = rows.constant(1.0) / total.get()
        with over(builder, zero, A) as a:
            place = times(a, cap)
            rows.change(pi, add(step, place), rows.read(work, place) * share)

    over_lanes(builder, n, cap, improve)
    return context.get_dummy_value()


# ---------------------------------------------------------------- evaluation of two channels


@written
def start_step(context, sums, signal_sums, c, h, n):
    """Sums[pair] ← Σ observed signal, of channels c and c + 1 side by side.

    Parameters
    ----------
    sums : (2*A*cap,) written
    signal_sums : (1+K, H, A, cap)
    """
    arguments = (sums, signal_sums, c, h, n)
    return types.void(*arguments), _start_step


def _start_step(context, builder, signature, arguments):
    sums, signals, c, h, n = unpacked(context, builder, signature.args, arguments)
    _, H, A, cap = cgutils.unpack_tuple(builder, signals.shape, 4)
    add, times = builder.add, builder.mul
    channel = times(H, times(A, cap))
    step = add(times(c, channel), times(h, times(A, cap)))

    def start(rows):
        with over(builder, _INDEX(0), A) as a:
            place = add(step, times(a, cap))
            both = rows.read(signals, place), rows.read(signals, add(place, channel))
            rows.write_pair(sums, times(a, cap), *both)

    over_lanes(builder, n, cap, start)
    return context.get_dummy_value()


@written
def add_successors(context, sums, pairs, successors, times, ahead, count):
    """sums[pair] += n(x, a, x') V(x') over observed transitions, of two channels side by side.

    Parameters
    ----------
    sums : (2*A*cap,) written
    pairs, successors, times : (E,) of which the first `count`
    ahead : (2*cap,) V of the next step
    """
    arguments = (sums, pairs, successors, times, ahead, count)
    return types.void(*arguments), _add_successors


def _add_successors(context, builder, signature, arguments):
    sums, pairs, successors, times, ahead, count = unpacked(
        context, builder, signature.args, arguments
    )
    both = ir.VectorType(ir.DoubleType(), 2)

    def place(array, number):
        number = builder.mul(builder.zext(number, _INDEX), _INDEX(2))
        return builder.bitcast(builder.gep(array.data, [number]), both.as_pointer())

    with over(builder, _INDEX(0), count) as e:
        total = place(sums, entry(builder, pairs, e))
        value = builder.load(place(ahead, entry(builder, successors, e)), align=8)
        weight = repeated(builder, entry(builder, times, e), both)
        term = builder.fmul(weight, value)
        builder.store(builder.fadd(builder.load(total, align=8), term), total, align=8)
    return context.get_dummy_value()


@written
def finish_step(context, q, v, sums, ahead, weight, bonus, pi, lv, most, c, h, n):
    """Q ← clip(sums w + (bonus + LV)) to [0, most], V ← ⟨π, Q⟩, of channels c and c + 1.

    Parameters
    ----------
    q : (C, H, A, cap), v : (C, H, cap), ahead : (2*cap,) V of both channels again; written
    sums : (2*A*cap,)
    weight, bonus, pi : (H, A, cap)
    lv : (2,)
    """
    arguments = (q, v, sums, ahead, weight, bonus, pi, lv, most, c, h, n)
    return types.void(*arguments), _finish_step


def _finish_step(context, builder, signature, arguments):
    q, v, sums, ahead, weight, bonus, pi, lv, most, c, h, n = unpacked(
        context, builder, signature.args, arguments
    )
    H, A, cap = cgutils.unpack_tuple(builder, pi.shape, 3)
    add, times = builder.add, builder.mul
    step = times(h, times(A, cap))
    channels = (c, add(c, _INDEX(1)))
    starts = [times(x, times(H, times(A, cap))) for x in channels]
    drifts = [builder.extract_value(lv, i) for i in (0, 1)]

    def finish(rows):
        values = [rows.variable(0.0) for _ in channels]
        with over(builder, _INDEX(0), A) as a:
            pair = add(step, times(a, cap))
            scale, share = rows.read(weight, pair), rows.read(pi, pair)
            more = rows.read(bonus, pair)
            both = rows.read_pair(sums, times(a, cap))
            for x, drift, value, start in zip(both, drifts, values, starts, strict=True):
                estimate = x * scale + (more + rows.same(drift))
                estimate = estimate.at_most(rows.same(most)).at_least(0.0)
                rows.write(q, add(start, pair), estimate)
                value.set(value.get() + share * estimate)
        for value, channel in zip(values, channels, strict=True):
            rows.write(v, times(add(times(channel, H), h), cap), value.get())
        rows.write_pair(ahead, _INDEX(0), *(value.get() for value in values))

    over_lanes(builder, n, cap, finish)
    return context.get_dummy_value()
