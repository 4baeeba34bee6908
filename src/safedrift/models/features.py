"""Feature maps ψ and φ as arrays, and the conditions of Assumption 1 that concern them alone.

    ‖θ‖ ≤ √d1,  ‖θ_r‖, ‖θ_g‖ ≤ √d2,  ‖φ(x,a)‖ ≤ 1,  ‖∫ψ(x,a,x') V(x') dx'‖ ≤ √d1 for V in [0, 1]

The last one is the paper's, divided by H. The proofs use the bound of ‖φ‖, which Assumption 1 omits
(docs/errata.md, E12).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safedrift import _check
from safedrift._check import FloatArray

__all__ = ["SuccessorFeatures"]

ROUNDING = 1e-9  # of sums, norms and ranges
_ASCENT = 20  # steps of the search for a V that violates Assumption 1


class SuccessorFeatures(NamedTuple):
    """ψ as successor lists: row i = (h*S + s)*A + a, or s*A + a where all steps are equal.

    Row i holds entries offsets[i] .. offsets[i+1]; ψ is zero at all other x'.

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> sd.SuccessorFeatures(
    ...     offsets=np.array([0, 1, 3]), states=np.array([0, 0, 1]), psi=np.full((3, 2), 0.5)
    ... ).psi.shape
    (3, 2)
    """

    offsets: NDArray[np.int64]  # (rows + 1,)
    states: NDArray[np.int32]  # (entries,)
    psi: FloatArray  # (entries, d1)


def rank(value: object) -> int:
    """Number of axes of `value`; 0 if it is not an array, which `_check.floats` then reports."""
    try:
        return np.ndim(value)  # type: ignore[arg-type]
    except ValueError:
        return 0


# ---------------------------------------------------------------- as arrays


def as_phi(phi: ArrayLike | str, H: int, S: int, d2: int) -> tuple[FloatArray, bool]:
    """Return φ as (1 or H, S, A, d2), and whether it means unit vectors: (1, S, A, 0) then."""
    if isinstance(phi, str):
        _check.choice("phi", phi, ("one-hot",))
        if d2 % S:
            _check.fail("theta_r", f"of S*A entries with phi = 'one-hot', S = {S}", d2)
        return np.empty((1, S, d2 // S, 0)), True
    if rank(phi) == 4:
        return _check.floats("phi", phi, (H, S, "A", d2)), False
    return _check.floats("phi", phi, (S, "A", d2))[None], False


def by_pair(phi: FloatArray) -> FloatArray:
    """Turn φ (h, S, A, d2) into (h, d2, A*S), writable, as the kernels require."""
    steps, S, A, d2 = phi.shape
    return np.array(phi.transpose(0, 3, 2, 1), order="C").reshape(steps, d2, A * S)


def as_lists(
    psi: ArrayLike | SuccessorFeatures, H: int, S: int, A: int, d1: int
) -> SuccessorFeatures:
    """Check ψ and return it as successor lists in new arrays."""
    if isinstance(psi, SuccessorFeatures):
        return _checked_lists(psi, H, S, A, d1)
    shape: tuple[int, ...] = (S, A, S, d1)
    if rank(psi) == 5:
        shape = (H, *shape)
    rows = _check.floats("psi", psi, shape).reshape(-1, S, d1)
    row, state = np.nonzero((rows != 0).any(axis=-1))
    counts = np.bincount(row, minlength=len(rows))
    _check_lengths(counts, S, A)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return SuccessorFeatures(offsets, state.astype(np.int32), rows[row, state])


def _checked_lists(given: SuccessorFeatures, H: int, S: int, A: int, d1: int) -> SuccessorFeatures:
    for name in ("offsets", "states"):  # `_check.integers` takes arrays only
        _check.floats(f"psi.{name}", getattr(given, name), (name,))
    offsets = _check.integers("psi.offsets", given.offsets, 0, np.iinfo(np.int64).max)
    states = _check.integers("psi.states", given.states, 0, S - 1)
    values = _check.floats("psi.psi", given.psi, ("entries", d1))
    values.setflags(write=True)  # a copy; the kernels are compiled for writable arrays
    if offsets.size - 1 not in (S * A, H * S * A):
        allowed = f"of length S*A + 1 = {S * A + 1} or H*S*A + 1 = {H * S * A + 1}"
        _check.fail("psi.offsets", allowed, offsets.size)
    if states.size != len(values):
        _check.fail("psi.states", f"of length {len(values)}", states.size)
    if offsets[0] != 0 or offsets[-1] != states.size:
        ends = f"{offsets[0]} to {offsets[-1]}"
        _check.fail("psi.offsets", f"from 0 to {states.size}", ends)
    _check_lengths(np.diff(offsets), S, A)
    _check_distinct(offsets, states, S, A)
    return SuccessorFeatures(offsets, states.astype(np.int32), values)


def _check_lengths(counts: NDArray[np.int64], S: int, A: int) -> None:
    short = np.flatnonzero(counts < 1)
    if short.size:
        where = _pair(int(short[0]), counts.size, S, A)
        _check.fail("the successors of each pair in psi", "one or more", counts[short[0]], where)


def _check_distinct(offsets: NDArray[np.int64], states: NDArray[np.int64], S: int, A: int) -> None:
    rows = offsets.size - 1
    key = np.repeat(np.arange(rows), np.diff(offsets)) * S + states
    if (np.diff(key) > 0).all():  # the usual order: nothing to sort
        return
    key = np.sort(key)
    twice = key[1:][np.diff(key) == 0]
    if twice.size:
        row, state = divmod(int(twice[0]), S)
        got = f"{state} twice"
        _check.fail(
            "the successors of each pair in psi", "distinct states", got, _pair(row, rows, S, A)
        )


def _pair(row: int, rows: int, S: int, A: int) -> tuple[int, ...]:
    """(s, a) of a row of ψ, or (h, s, a) where each step has its own rows."""
    shape = (S, A) if rows == S * A else (rows // (S * A), S, A)
    return tuple(int(i) for i in np.unravel_index(row, shape))


# ---------------------------------------------------------------- norms


def check_coefficients(name: str, theta: FloatArray, d: int) -> None:
    """Check ‖θ‖ ≤ √d along the last axis."""
    norm, limit = np.linalg.norm(theta, axis=-1), np.sqrt(d)
    allowed = f"at most sqrt({d}) = {limit:.6g} (Assumption 1)"
    _check.everywhere(f"the norm of {name}", norm, norm <= limit * (1 + ROUNDING), allowed)


def check_phi(phi: FloatArray) -> None:
    """Check ‖φ(x,a)‖ ≤ 1 of φ (1 or H, S, A, d2)."""
    norm = np.linalg.norm(phi if len(phi) > 1 else phi[0], axis=-1)
    allowed = (
        "at most 1 (the proofs need it; divide phi by its largest norm and multiply theta_r and "
        "theta_g by it)"
    )
    _check.everywhere("the norm of phi", norm, norm <= 1 + ROUNDING, allowed)


def check_integrals(
    offsets: NDArray[np.int64], psi: FloatArray, S: int, A: int, slack: float
) -> float:
    """Check ‖∫ψV‖ ≤ √d1 for V in [0, 1]; return an upper bound of it, from 1/√d1 to √d1.

    If no component of ψ changes sign, V = 1 is the worst. Otherwise the worst V cannot be found in
    general: a local search tries to find one that violates the assumption. If it finds none, the
    assumption is accepted. An undetected violation is at most a factor √d1.
    """
    d1 = psi.shape[1]
    limit = np.sqrt(d1)
    total = np.add.reduceat(psi, offsets[:-1], axis=0)
    positive = total
    if psi.min() < 0:
        positive = np.add.reduceat(np.maximum(psi, 0), offsets[:-1], axis=0)
    larger = np.maximum(positive, positive - total)  # of the two parts of each component
    upper, lower = np.linalg.norm(larger, axis=1), np.linalg.norm(total, axis=1)
    for row in np.flatnonzero(~(upper <= limit * (1 + slack)) & (lower <= limit)):
        entries = psi[offsets[row] : offsets[row + 1]]
        lower[row] = max(lower[row], _largest_integral(entries, larger[row], positive[row]))
    norms = lower.reshape((S, A) if lower.size == S * A else (-1, S, A))
    allowed = f"at most sqrt({d1}) = {limit:.6g} for V in [0, 1] (Assumption 1)"
    _check.everywhere(
        "the norm of the integral of psi*V over x'", norms, norms <= limit * (1 + slack), allowed
    )
    # θᵀ∫ψ = 1 with ‖θ‖ ≤ √d1 bounds it from below, whatever a quadrature rule says.
    return float(np.clip(upper.max(), 1 / limit, limit))


def _largest_integral(psi: FloatArray, larger: FloatArray, positive: FloatArray) -> float:
    """‖Σ ψ V‖ at a local maximum over V in {0, 1}^entries, for ψ (entries, d1)."""
    worst = int(larger.argmax())
    u = np.zeros(larger.size)
    u[worst] = 1.0 if positive[worst] == larger[worst] else -1.0
    found = 0.0
    for _ in range(_ASCENT):
        u = psi[psi @ u > 0].sum(axis=0)
        norm = float(np.linalg.norm(u))
        if norm <= found:
            break
        found = norm
    return found
