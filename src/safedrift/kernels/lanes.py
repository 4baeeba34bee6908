"""Arithmetic on several doubles at once, written in the compiler's own language.

A loop over the last axis of arrays, with several entries side by side: `over_lanes` writes the
loop, `Lanes` are numbers in it. Every entry is computed as in a plain loop, so the number of lanes,
and how many of them a processor has, change no bit. What a plain loop costs beside arithmetic is
saved: tests whether arrays overlap, a tail of single entries, intermediate results in memory.

Groups of lanes may go beyond the end of a loop, up to the end of the rows: `Rows.change` leaves
what is there as it was. Entries that fill no group are taken one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 8

_INDEX, _NUMBER = ir.IntType(64), ir.DoubleType()


def written(function: Callable[..., Any]) -> Any:
    """Make a function of code that is written: it takes types, returns them and the writer."""
    return intrinsic(function)


class Lanes:
    """Numbers side by side in code that is being written; each operation writes one instruction."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    def _with(self, write: Callable[[Any, Any], Any], other: Lanes | float) -> Lanes:
        return Lanes(self.builder, write(self.value, self.like(other).value))

    def like(self, other: Lanes | float) -> Lanes:
        """`other`, or a constant in every lane."""
        if isinstance(other, Lanes):
            return other
        kind = self.value.type
        numbers = [other] * kind.count if isinstance(kind, ir.VectorType) else other
        return Lanes(self.builder, ir.Constant(kind, numbers))

    def __add__(self, other: Lanes | float) -> Lanes:
        return self._with(self.builder.fadd, other)

    def __sub__(self, other: Lanes | float) -> Lanes:
        return self._with(self.builder.fsub, other)

    def __mul__(self, other: Lanes | float) -> Lanes:
        return self._with(self.builder.fmul, other)

    def __truediv__(self, other: Lanes | float) -> Lanes:
        return self._with(self.builder.fdiv, other)

    def above(self, other: Lanes | float) -> Any:
        """In which lanes this is greater."""
        return self.builder.fcmp_ordered(">", self.value, self.like(other).value)

    def where(self, condition: Any, other: Lanes | float) -> Lanes:
        """Return this where the condition holds, `other` elsewhere."""
        chosen = self.builder.select(condition, self.value, self.like(other).value)
        return Lanes(self.builder, chosen)

    def at_least(self, other: Lanes | float) -> Lanes:
        """max(this, other)."""
        return self.where(self.above(other), other)

    def at_most(self, other: Lanes | float) -> Lanes:
        """min(this, other)."""
        return self.like(other).where(self.above(other), self)


def exp_of(x: Lanes) -> Lanes:
    """e^x as `tabular.propd_ppo.exponentials` has it: x ≤ 0 or hardly above; 0 from -708 down."""
    builder = x.builder
    inside = x.at_least(-708.0)
    shifted = inside * 1.4426950408889634 + 6755399441055744.0
    k = shifted - 6755399441055744.0
    r = (inside - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10
    y = x.like(1.6059043836821613e-10)
    for term in (
        2.08767569878681e-09, 2.505210838544172e-08, 2.755731922398589e-07, 2.7557319223985893e-06,
        2.48015873015873e-05, 0.0001984126984126984, 0.001388888888888889, 0.008333333333333333,
        0.041666666666666664, 0.16666666666666666, 0.5, 1.0, 1.0,
    ):  # fmt: skip
        y = y * r + term
    kind = x.value.type
    several = isinstance(kind, ir.VectorType)
    integers = ir.VectorType(_INDEX, kind.count) if several else _INDEX

    def same(n: int) -> Any:
        return ir.Constant(integers, [n] * kind.count if several else n)

    bits = builder.bitcast(shifted.value, integers)
    bits = builder.shl(builder.add(bits, same(1023)), same(52))
    scaled = y * Lanes(builder, builder.bitcast(bits, kind))
    return scaled.where(x.above(-708.0), 0.0)


class Rows:
    """Rows of arrays within a loop over their last axis: read and written at its place."""

    def __init__(self, builder: Any, lanes: int, place: Any, count: Any) -> None:
        self.builder, self.lanes, self.place = builder, lanes, place
        self.kind = ir.VectorType(_NUMBER, lanes) if lanes > 1 else _NUMBER
        self.inside = None  # where the loop has not passed its end
        if lanes > 1:
            integers = ir.VectorType(_INDEX, lanes)
            steps = ir.Constant(integers, list(range(lanes)))
            here = builder.add(repeated(builder, place, integers), steps)
            self.inside = builder.icmp_signed("<", here, repeated(builder, count, integers))

    def _pointer(self, array: Any, start: Any) -> Any:
        entry = self.builder.gep(array.data, [self.builder.add(start, self.place)])
        return self.builder.bitcast(entry, self.kind.as_pointer())

    def read(self, array: Any, start: Any) -> Lanes:
        """Entries of the row that starts at entry `start` of an array."""
        return Lanes(self.builder, self.builder.load(self._pointer(array, start), align=8))

    def write(self, array: Any, start: Any, numbers: Lanes) -> None:
        """Write entries of a row, those beyond the end of the loop too."""
        self.builder.store(numbers.value, self._pointer(array, start), align=8)

    def change(self, array: Any, start: Any, numbers: Lanes) -> None:
        """Write entries of a row up to the end of the loop."""
        if self.inside is not None:
            numbers = numbers.where(self.inside, self.read(array, start))
        self.write(array, start, numbers)

    def _pair_pointer(self, array: Any, start: Any, kind: Any) -> Any:
        """Where two interleaved rows are that start at entry `start` of each."""
        entry = self.builder.mul(self.builder.add(start, self.place), _INDEX(2))
        return self.builder.bitcast(self.builder.gep(array.data, [entry]), kind.as_pointer())

    def read_pair(self, array: Any, start: Any) -> tuple[Lanes, Lanes]:
        """Entries of two rows that alternate in memory."""
        builder, both = self.builder, ir.VectorType(_NUMBER, 2 * self.lanes)
        numbers = builder.load(self._pair_pointer(array, start, both), align=8)
        if self.lanes == 1:
            one, two = (builder.extract_element(numbers, ir.IntType(32)(i)) for i in (0, 1))
        else:
            one, two = (
                builder.shuffle_vector(
                    numbers, ir.Constant(both, ir.Undefined), _places(range(i, 2 * self.lanes, 2))
                )
                for i in (0, 1)
            )
        return Lanes(builder, one), Lanes(builder, two)

    def write_pair(self, array: Any, start: Any, one: Lanes, two: Lanes) -> None:
        """Write entries of two rows that alternate in memory, of whole groups."""
        builder, both = self.builder, ir.VectorType(_NUMBER, 2 * self.lanes)
        if self.lanes == 1:
            numbers = ir.Constant(both, ir.Undefined)
            for i, number in enumerate((one, two)):
                numbers = builder.insert_element(numbers, number.value, ir.IntType(32)(i))
        else:
            order = [i + self.lanes * j for i in range(self.lanes) for j in (0, 1)]
            numbers = builder.shuffle_vector(one.value, two.value, _places(order))
        builder.store(numbers, self._pair_pointer(array, start, both), align=8)

    def same(self, number: Any) -> Lanes:
        """One number in every lane."""
        if self.lanes == 1:
            return Lanes(self.builder, number)
        return Lanes(self.builder, repeated(self.builder, number, self.kind))

    def constant(self, number: float) -> Lanes:
        """A constant in every lane."""
        return self.same(ir.Constant(_NUMBER, number))

    def variable(self, number: float) -> Variable:
        """Numbers that change as the code runs, and start as a constant."""
        place = cgutils.alloca_once(self.builder, self.kind)
        variable = Variable(self.builder, place)
        variable.set(self.constant(number))
        return variable


class Variable:
    """Numbers that change as the code runs."""

    def __init__(self, builder: Any, place: Any) -> None:
        self.builder, self.place = builder, place

    def get(self) -> Lanes:
        """What they are."""
        return Lanes(self.builder, self.builder.load(self.place))

    def set(self, numbers: Lanes) -> None:
        """Change them."""
        self.builder.store(numbers.value, self.place)


def repeated(builder: Any, number: Any, kind: Any) -> Any:
    """A vector whose lanes are all `number`."""
    empty, lane = ir.Constant(kind, ir.Undefined), ir.IntType(32)
    zeros = ir.Constant(ir.VectorType(lane, kind.count), None)
    return builder.shuffle_vector(builder.insert_element(empty, number, lane(0)), empty, zeros)


def _places(numbers: Iterable[int]) -> Any:
    """Which lanes a shuffle takes."""
    listed = list(numbers)
    return ir.Constant(ir.VectorType(ir.IntType(32), len(listed)), listed)


def over_lanes(builder: Any, count: Any, length: Any, write: Callable[[Rows], None]) -> None:
    """Write a loop over entries 0, ..., count - 1 of rows that have `length` of them."""
    whole = builder.mul(builder.sdiv(length, _INDEX(LANES)), _INDEX(LANES))
    several = builder.select(builder.icmp_signed("<", count, whole), count, whole)
    for lanes, start, end in ((LANES, _INDEX(0), several), (1, several, count)):
        step = _INDEX(lanes)
        with cgutils.for_range_slice(builder, start, end, step, inc=True) as (place, _):
            write(Rows(builder, lanes, place, count))


@contextmanager
def over(builder: Any, start: Any, end: Any) -> Iterator[Any]:
    """Write a loop over the integers start, ..., end - 1."""
    with cgutils.for_range_slice(builder, start, end, _INDEX(1), inc=True) as (index, _):
        yield index


def entry(builder: Any, array: Any, index: Any) -> Any:
    """One entry of an array with a single axis."""
    return builder.load(builder.gep(array.data, [index]))


def unpacked(context: Any, builder: Any, kinds: Any, arguments: Any) -> list[Any]:
    """Arrays among the arguments of an intrinsic as structures, the others as they are."""
    return [
        context.make_array(kind)(context, builder, value) if hasattr(kind, "ndim") else value
        for kind, value in zip(kinds, arguments, strict=True)
    ]
