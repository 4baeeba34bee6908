"""One message template for bad input: "{name} must be {allowed}; got {value} at index {where}".

These functions are called at the public boundary only. Kernels trust their input.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def fail(name: str, allowed: str, got: object, where: object = None) -> NoReturn:
    """Raise a ValueError with the one sentence every user of the library sees."""
    place = "" if where is None or where == () else f" at index {where}"
    raise ValueError(f"{name} must be {allowed}; got {got}{place}")


_NO_NUMBERS = (str, bytes, type(None))  # what NumPy would try to read as numbers


def numbers(name: str, value: Any, allowed: str = "a number or an array of numbers") -> FloatArray:
    """Return `value` as a new C-ordered float64 array of any shape; NaN and infinity may be in it.

    Text is never read as a number: "0.5" is refused like "half".
    """
    try:
        given = np.asarray(value)
        entries = given.flat if given.dtype.kind == "O" else ()
        if given.dtype.kind not in "biufO" or any(isinstance(x, _NO_NUMBERS) for x in entries):
            raise TypeError
        return np.array(given, dtype=np.float64, order="C")
    except (TypeError, ValueError, OverflowError) as error:
        found = f" of {value.dtype}" if isinstance(value, np.ndarray) else ""
        raise TypeError(f"{name} must be {allowed}; got {type(value).__name__}{found}") from error


def floats(name: str, value: Any, shape: Sequence[int | str]) -> FloatArray:
    """Return `value` as a finite, C-ordered, read-only float64 array of the wanted shape.

    Parameters
    ----------
    shape
        One entry per axis: an int that must match, or a name for an axis of any length >= 1.
    """
    array = numbers(name, value, "an array of numbers")
    fits = array.ndim == len(shape) and all(
        size >= 1 if isinstance(want, str) else size == want
        for want, size in zip(shape, array.shape, strict=True)
    )
    if not fits:
        wanted = "(" + ", ".join(str(s) for s in shape) + ("," if len(shape) == 1 else "") + ")"
        fail(name, f"an array of shape {wanted}", f"shape {array.shape}")
    everywhere(name, array, np.isfinite(array), "finite")
    array.setflags(write=False)
    return array


def everywhere(name: str, array: NDArray[Any], ok: NDArray[np.bool_], allowed: str) -> None:
    """Fail at the first index where `ok` is False."""
    if not np.all(ok):
        where = tuple(int(i) for i in np.argwhere(~ok)[0])
        fail(name, allowed, array[where], where[0] if len(where) == 1 else where)


def distribution(name: str, array: FloatArray, tolerance: float = 1e-9) -> None:
    """Fail unless the last axis of `array` holds probability vectors."""
    everywhere(name, array, array >= 0, ">= 0")
    total = array.sum(axis=-1)
    everywhere(
        f"each row of {name}", total, np.abs(total - 1) <= tolerance, "a distribution (sum 1)"
    )


def positive(
    name: str, value: float, *, upper: float = np.inf, closed: bool = True, infinite: bool = False
) -> float:
    """Return `value` as a float in (0, upper] (or (0, upper) where not `closed`)."""
    number = real(name, value)
    inside = 0 < number <= upper if closed else 0 < number < upper
    if not inside:
        limit = "> 0" if np.isinf(upper) else f"in (0, {upper:g}{']' if closed else ')'}"
        fail(name, limit, value)
    if np.isinf(number) and not infinite:
        fail(name, "finite", value)
    return number


def within(name: str, value: float, lower: float, upper: float = np.inf) -> float:
    """Return `value` as a finite float in [lower, upper]."""
    number = real(name, value)
    if not lower <= number <= upper or np.isinf(number):
        fail(
            name,
            f">= {lower:g} and finite" if np.isinf(upper) else f"in [{lower:g}, {upper:g}]",
            value,
        )
    return number


def real(name: str, value: object) -> float:
    """Return `value` as a float that is not NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} must be a number; got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        fail(name, "a number that a float can hold", "a larger one")
    if np.isnan(number):
        fail(name, "a number", "nan")
    return number


def kind(name: str, value: T, wanted: type | tuple[type, ...]) -> T:
    """Return `value` if it is an instance of `wanted`."""
    if not isinstance(value, wanted):
        kinds = wanted if isinstance(wanted, tuple) else (wanted,)
        names = " or ".join(k.__name__ for k in kinds)
        raise TypeError(f"{name} must be a {names}; got {type(value).__name__}")
    return value


def integers(name: str, value: object, lower: int, upper: int) -> IntArray:
    """Return `value` as a one-dimensional array of at least one integer in [lower, upper]."""
    try:
        array = np.asarray(value)
    except ValueError as error:  # lists of different lengths
        raise TypeError(f"{name} must be integers; got {type(value).__name__}") from error
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers; got {array.dtype}")
    if array.ndim != 1 or array.size == 0:
        fail(name, "a list of at least one integer", f"shape {array.shape}")
    ok = (array >= lower) & (array <= upper)
    everywhere(name, array, ok, f"in [{lower}, {upper}]")
    return np.array(array, dtype=np.int64)


def seed(name: str, value: object) -> int | np.random.SeedSequence:
    """Return `value` if a random generator can be made of it: an integer >= 0 or a SeedSequence."""
    if isinstance(value, np.random.SeedSequence):
        return value
    return integer(name, value, lower=0)


LARGEST = 2**40  # a number of episodes, states or seeds beyond this is a mistake


def integer(name: str, value: object, *, lower: int = 1, upper: int = LARGEST) -> int:
    """Return `value` as an int in [lower, upper]."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer; got {value!r}")
    if value < lower and upper == LARGEST:
        fail(name, f"an integer >= {lower}", value)
    if not lower <= value <= upper:
        fail(name, f"an integer in [{lower}, {upper}]", value)
    return int(value)


def choice(name: str, value: str, allowed: Sequence[str]) -> str:
    """Return `value` if it is one of `allowed`."""
    if not isinstance(value, str) or value not in allowed:
        close = difflib.get_close_matches(value, allowed, 1) if isinstance(value, str) else []
        meant = f" (did you mean {close[0]!r}?)" if close else ""
        fail(name, "one of " + ", ".join(repr(a) for a in allowed), repr(value) + meant)
    return value


def successors(name: str, lists: T, H: int, S: int, A: int) -> T:
    """Return `Successors` that are distributions over distinct states, read-only."""
    given: Any = lists
    rows = H * S * A
    offsets = integers(f"{name}.offsets", given.offsets, 0, np.iinfo(np.int64).max)
    states = integers(f"{name}.states", given.states, 0, S - 1).astype(np.int32)
    probabilities = floats(f"{name}.probabilities", given.probabilities, ("entries",))
    if offsets.shape != (rows + 1,):
        fail(f"{name}.offsets", f"of shape (H*S*A + 1,) = ({rows + 1},)", offsets.shape)
    if states.shape != probabilities.shape:
        fail(f"{name}.states", f"of shape {probabilities.shape}", states.shape)
    if offsets[0] != 0 or offsets[-1] != states.size:
        fail(f"{name}.offsets", f"from 0 to {states.size}", (offsets[0], offsets[-1]))
    everywhere(f"row lengths of {name}", np.diff(offsets), np.diff(offsets) >= 1, ">= 1")
    everywhere(f"{name}.probabilities", probabilities, probabilities >= 0, ">= 0")
    total = np.add.reduceat(probabilities, offsets[:-1])
    wrong = np.flatnonzero(np.abs(total - 1) > 1e-9)
    if wrong.size:
        where = tuple(int(i) for i in np.unravel_index(wrong[0], (H, S, A)))
        fail(f"each row of {name}", "a distribution (sum 1)", total[wrong[0]], where)
    _check_distinct(offsets, states, (H, S, A))
    checked: T = given._replace(offsets=offsets, states=states, probabilities=probabilities)
    for array in (offsets, states, probabilities):
        array.setflags(write=False)
    return checked


def _check_distinct(offsets: IntArray, states: np.ndarray, shape: tuple[int, int, int]) -> None:
    rising = np.diff(states) > 0
    rising[offsets[1:-1] - 1] = True  # from one row to the next
    if rising.all():
        return
    row = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    order = np.lexsort((states, row))
    twice = (np.diff(row[order]) == 0) & (np.diff(states[order]) == 0)
    if twice.any():
        again = order[np.flatnonzero(twice)[0] + 1]
        where = tuple(int(i) for i in np.unravel_index(row[again], shape))
        fail("successors of each row", "distinct states", f"{states[again]} twice", where)
