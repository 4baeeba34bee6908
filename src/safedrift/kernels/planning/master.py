"""The master program of column generation: a simplex method for K+1 rows and a few columns.

A column i is a policy with value r_i and slacks g_i - b (K,). With slack variables s and t,

    rows 1..K:  Σ_i λ_i (g_i - b) - t - s = floor        row K+1:  Σ_i λ_i = 1        λ, s ≥ 0

    find the Slater gap:   maximise t           (t of any sign, floor = 0)
    find the optimum:      maximise Σ_i λ_i r_i (t ≥ floor, which it is measured from)

The optimal basis of the first program is a feasible one of the second. Duals y give multipliers
μ = -y[:K] and the value θ = y[K]; column i gains r_i + μ·(g_i - b) - θ.

The basis is factorised anew for each pivot, in numbers of 32 digits: the master is solved as if
exactly, however close to each other its columns are. Ties of the ratio test are broken by the
lexicographic rule, so the method cannot cycle. What remains is the rounding of r_i and g_i.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift.kernels.planning import double_double as dd
from safedrift.kernels.types import FloatArray, jit_part

SLATER_GAP, OPTIMUM = 1, 2  # which program
UNIFORM_SLACK = -1  # in the basis: t; s_k is -2 - k, column i is i
MOST_PIVOTS = 1000
SMALL_PIVOT = 1e-14  # beside the largest entry of the entering column: counts as zero
TIE = 1e-24


class Master(NamedTuple):
    """State of a master program with n = K+1 rows and room for C columns."""

    basis: NDArray[np.int64]  # (n,)
    active: NDArray[np.bool_]  # (C,) which columns exist
    reward: FloatArray  # (C,) V_r
    slack: FloatArray  # (C, K) V_g - b
    x: FloatArray  # (n, 2) values of the basic variables, high and low part
    y: FloatArray  # (n, 2) duals
    direction: FloatArray  # (n, 2) the entering column in terms of the basis
    probe: FloatArray  # (n, 2) scratch
    factors: FloatArray  # (n, n, 2) L and U of the basis
    order: NDArray[np.int64]  # (n,) row exchanges
    anchor: FloatArray  # (n, n) the basis at the start, for the lexicographic rule
    tied: NDArray[np.bool_]  # (n,) scratch


def make_master(C: int, K: int) -> Master:
    """Return a master program without columns."""
    n = K + 1
    return Master(
        basis=np.zeros(n, np.int64),
        active=np.zeros(C, np.bool_),
        reward=np.zeros(C),
        slack=np.zeros((C, K)),
        x=np.zeros((n, 2)),
        y=np.zeros((n, 2)),
        direction=np.zeros((n, 2)),
        probe=np.zeros((n, 2)),
        factors=np.zeros((n, n, 2)),
        order=np.zeros(n, np.int64),
        anchor=np.zeros((n, n)),
        tied=np.zeros(n, np.bool_),
    )


# ---------------------------------------------------------------- columns


@jit_part
def entry(master, variable, row):
    """One coefficient of the constraint matrix."""
    K = master.slack.shape[1]
    if variable >= 0:
        return master.slack[variable, row] if row < K else 1.0
    if variable == UNIFORM_SLACK:
        return -1.0 if row < K else 0.0
    return -1.0 if row == -2 - variable else 0.0


@jit_part
def cost(master, variable, program):
    """Objective coefficient of a variable."""
    if program == SLATER_GAP:
        return 1.0 if variable == UNIFORM_SLACK else 0.0
    return master.reward[variable] if variable >= 0 else 0.0


@jit_part
def reduced_cost(master, variable, program):
    """Reduced cost: what the objective gains per unit of a variable."""
    high, low = cost(master, variable, program), 0.0
    for row in range(master.basis.size):
        coefficient = entry(master, variable, row)
        if coefficient != 0.0:
            high, low = dd.subtract_product(
                high, low, coefficient, 0.0, master.y[row, 0], master.y[row, 1]
            )
    return high


@jit_part
def is_basic(master, variable):
    """Whether a variable is in the basis."""
    found = False
    for i in range(master.basis.size):
        found = found or master.basis[i] == variable
    return found


@jit_part
def multiplier_scale(master):
    """1 + Σ_k |μ_k|, the size that rounding errors of the Lagrangian have."""
    total = 1.0
    for k in range(master.basis.size - 1):
        total += abs(master.y[k, 0])
    return total


# ---------------------------------------------------------------- linear systems of the basis


@jit_part
def factorise(master):
    """LU factors of the basis with row exchanges."""
    n = master.basis.size
    f = master.factors
    for row in range(n):
        for i in range(n):
            f[row, i, 0] = entry(master, master.basis[i], row)
            f[row, i, 1] = 0.0
    for i in range(n):
        pivot = i
        for row in range(i + 1, n):
            if abs(f[row, i, 0]) > abs(f[pivot, i, 0]):
                pivot = row
        master.order[i] = pivot
        if pivot != i:
            for j in range(n):
                for part in range(2):
                    f[i, j, part], f[pivot, j, part] = f[pivot, j, part], f[i, j, part]
        for row in range(i + 1, n):
            if f[row, i, 0] != 0.0:
                high, low = dd.divide(f[row, i, 0], f[row, i, 1], f[i, i, 0], f[i, i, 1])
                f[row, i, 0], f[row, i, 1] = high, low
                for j in range(i + 1, n):
                    f[row, j, 0], f[row, j, 1] = dd.subtract_product(
                        f[row, j, 0], f[row, j, 1], high, low, f[i, j, 0], f[i, j, 1]
                    )


@jit_part
def solve_basis(master, v):
    """Replace v (n, 2) by the solution of basis · x = v."""
    n = master.basis.size
    f = master.factors
    for i in range(n):
        pivot = master.order[i]
        for part in range(2):
            v[i, part], v[pivot, part] = v[pivot, part], v[i, part]
    for i in range(n):
        for row in range(i + 1, n):
            v[row, 0], v[row, 1] = dd.subtract_product(
                v[row, 0], v[row, 1], f[row, i, 0], f[row, i, 1], v[i, 0], v[i, 1]
            )
    for i in range(n - 1, -1, -1):
        v[i, 0], v[i, 1] = dd.divide(v[i, 0], v[i, 1], f[i, i, 0], f[i, i, 1])
        for row in range(i):
            v[row, 0], v[row, 1] = dd.subtract_product(
                v[row, 0], v[row, 1], f[row, i, 0], f[row, i, 1], v[i, 0], v[i, 1]
            )


@jit_part
def solve_transposed(master, v):
    """Replace v (n, 2) by the solution of basisᵀ · y = v."""
    n = master.basis.size
    f = master.factors
    for i in range(n):
        v[i, 0], v[i, 1] = dd.divide(v[i, 0], v[i, 1], f[i, i, 0], f[i, i, 1])
        for row in range(i + 1, n):
            v[row, 0], v[row, 1] = dd.subtract_product(
                v[row, 0], v[row, 1], f[i, row, 0], f[i, row, 1], v[i, 0], v[i, 1]
            )
    for i in range(n - 1, -1, -1):
        for row in range(i):
            v[row, 0], v[row, 1] = dd.subtract_product(
                v[row, 0], v[row, 1], f[i, row, 0], f[i, row, 1], v[i, 0], v[i, 1]
            )
    for i in range(n - 1, -1, -1):
        pivot = master.order[i]
        for part in range(2):
            v[i, part], v[pivot, part] = v[pivot, part], v[i, part]


# ---------------------------------------------------------------- the simplex method


@jit_part
def refresh(master, program, floor):
    """Primal values and duals of the basis."""
    n = master.basis.size
    factorise(master)
    for i in range(n):
        master.x[i, 0] = floor if i + 1 < n else 1.0
        master.y[i, 0] = cost(master, master.basis[i], program)
        master.x[i, 1] = master.y[i, 1] = 0.0
    solve_basis(master, master.x)
    solve_transposed(master, master.y)


@jit_part
def drop_anchor(master):
    """Start the lexicographic order at the present basis."""
    for row in range(master.basis.size):
        for i in range(master.basis.size):
            master.anchor[row, i] = entry(master, master.basis[i], row)


@jit_part
def entering(master, program, tolerance):
    """The variable that gains most, or a basic one where none gains more than `tolerance`."""
    best, found = tolerance * multiplier_scale(master), master.basis[0]
    for k in range(master.slack.shape[1]):
        if master.y[k, 0] > best and not is_basic(master, -2 - k):
            best, found = master.y[k, 0], -2 - k
    for i in range(master.active.size):
        if master.active[i] and not is_basic(master, i):
            gained = reduced_cost(master, i, program)
            if gained > best:
                best, found = gained, i
    return found


@jit_part
def keep_least(master, v):
    """Divide v by the direction and keep, of the tied rows, those where it is least.

    Returns how many are left.
    """
    n = master.basis.size
    least, least_low = np.inf, 0.0
    for i in range(n):
        if master.tied[i]:
            high, low = dd.divide(v[i, 0], v[i, 1], master.direction[i, 0], master.direction[i, 1])
            v[i, 0], v[i, 1] = high, low
            if high < least or (high == least and low < least_low):
                least, least_low = high, low
    count = 0
    for i in range(n):
        if master.tied[i]:
            above = (v[i, 0] - least) + (v[i, 1] - least_low)
            master.tied[i] = above <= TIE * max(1.0, abs(least))
            count += master.tied[i]
    return count


@jit_part
def leaving(master, program):
    """Row of the basis that reaches zero first as the entering variable grows; -1 if none does."""
    n = master.basis.size
    largest = 0.0
    for i in range(n):
        largest = max(largest, abs(master.direction[i, 0]))
        if master.x[i, 0] < TIE and (program == OPTIMUM or master.basis[i] != UNIFORM_SLACK):
            master.x[i, 0] = master.x[i, 1] = 0.0
    count = 0
    for i in range(n):
        free = program == SLATER_GAP and master.basis[i] == UNIFORM_SLACK
        master.tied[i] = not free and master.direction[i, 0] > SMALL_PIVOT * largest
        count += master.tied[i]
    if count == 0:
        return -1
    for i in range(n):
        master.probe[i, 0], master.probe[i, 1] = master.x[i, 0], master.x[i, 1]
    count = keep_least(master, master.probe)
    column = 0
    while count > 1 and column < n:  # rows of basis⁻¹ · anchor, column by column
        for row in range(n):
            master.probe[row, 0], master.probe[row, 1] = master.anchor[row, column], 0.0
        solve_basis(master, master.probe)
        count = keep_least(master, master.probe)
        column += 1
    found = -1
    for i in range(n):
        if master.tied[i] and (found < 0 or master.direction[i, 0] > master.direction[found, 0]):
            found = i
    return found


@jit_part
def optimise(master, program, floor, tolerance):
    """Pivot until no active column or slack gains more than tolerance · (1 + Σμ)."""
    n = master.basis.size
    for _ in range(MOST_PIVOTS):
        refresh(master, program, floor)
        variable = entering(master, program, tolerance)
        if is_basic(master, variable):
            break
        for row in range(n):
            master.direction[row, 0] = entry(master, variable, row)
            master.direction[row, 1] = 0.0
        solve_basis(master, master.direction)
        row = leaving(master, program)
        if row < 0:
            break
        master.basis[row] = variable
