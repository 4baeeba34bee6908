"""The Õ rates of Theorems 1 to 4, and the number of episodes from which a bound is non-vacuous."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.knowledge import Budgets, Dimensions, Knowledge, Sizes, Slater
from safedrift.learners.propd_ppo.parameters import power, total_budgets
from safedrift.theory.bound_terms import Constants, Steps
from safedrift.theory.explicit_bounds import QUANTITIES, check_problem, setting_of, terms_of

__all__ = ["Rate", "crossover", "rate"]


class Rate(NamedTuple):
    """The expression inside Õ: its value, its exponent of M, and how it is written.

    Examples
    --------
    >>> import safedrift as sd
    >>> sizes, gap = sd.Sizes(M=100_000, H=5, S=5, A=3, K=1), sd.Slater(0.5)
    >>> drift = sd.Budgets(P=1.0, r=1.0, g=1.0, star=1.0)
    >>> found = sd.theory.rate(sizes, gap, drift, quantity="regret")
    >>> found.exponent, found.formula
    (0.6666666666666666, 'γ^(-1) S^(2/3) A^(1/3) H^(5/2) M^(2/3) (B_Δ + B_*)^(1/3)')
    """

    value: float
    exponent: float
    formula: str
    M: int

    def at(self, episodes: ArrayLike) -> FloatArray:
        """The curve over numbers of episodes, with the budgets held fixed."""
        return np.asarray(self.value * (np.asarray(episodes, float) / self.M) ** self.exponent)


def rate(
    sizes: Sizes,
    knowledge: Knowledge,
    budgets: Budgets,
    *,
    quantity: str,
    dimensions: Dimensions | None = None,
    rho: float = 0.5,
) -> Rate:
    """The Õ expression of Theorem 1, 2, 3 or 4 (Table 1) without constants and logarithms.

    Examples
    --------
    >>> import safedrift as sd
    >>> sizes, gap = sd.Sizes(M=100_000, H=5, S=5, A=3, K=1), sd.Slater(0.5)
    >>> drift = sd.Budgets(P=1.0, r=1.0, g=1.0, star=1.0)
    >>> sd.theory.rate(sizes, gap, drift, quantity="violation").exponent
    0.6666666666666666
    """
    check_problem(sizes, knowledge, budgets, dimensions)
    _check.choice("quantity", quantity, QUANTITIES)
    _check_rho(rho)
    _, H, S, A, _ = sizes
    M = sizes.known_M()
    gap = isinstance(knowledge, Slater)
    inverse = 1 / knowledge.gamma if isinstance(knowledge, Slater) else 1.0
    if dimensions is not None:
        scale, exponent = dimensions.d ** (9 / 8) * H**2.5, 3 / 4
        formula = "d^(9/8) H^(5/2) M^(3/4) (√d B_Δ + B_*)^(1/3)"
    else:
        scale, H_power = S ** (2 / 3) * A ** (1 / 3), "5/2" if gap else "5/3"
        scale *= H**2.5 if gap else H ** (5 / 3)
        if gap:
            exponent, M_power = 2 / 3, "2/3"
        elif quantity == "regret":
            exponent, M_power = (1 + rho) / 2, "(1+ρ)/2"
        else:
            exponent, M_power = (2 - rho) / 2, "(2-ρ)/2"
        formula = f"S^(2/3) A^(1/3) H^({H_power}) M^({M_power}) (B_Δ + B_*)^(1/3)"
    total, _ = total_budgets(budgets, M, d=1 if dimensions is None else dimensions.d, floored=False)
    value = inverse * scale * M**exponent * total ** (1 / 3)
    return Rate(float(value), exponent, "γ^(-1) " * gap + formula, M)


def crossover(
    sizes: Sizes,
    knowledge: Knowledge,
    budgets: Budgets,
    *,
    quantity: str,
    dimensions: Dimensions | None = None,
    form: str = "printed",
    rho: float = 0.5,
    p: float = 0.05,
    constants: Constants | None = None,
    limit: float = 1e30,
) -> float:
    """Number of episodes from which the bound is below H·M; infinite if it is not up to `limit`.

    `sizes.M` is not used. Budgets are held fixed while M grows. At each M the parameters are the
    theorem's printed ones, in either form; L and W are clipped to [1, M] and not rounded. M is
    doubled until the bound is non-vacuous and then found by bisection, to one episode or nine
    digits.

    Examples
    --------
    >>> import safedrift as sd
    >>> sizes, gap = sd.Sizes(M=100_000, H=5, S=5, A=3, K=1), sd.Slater(0.5)
    >>> drift = sd.Budgets(P=1.0, r=1.0, g=1.0, star=1.0)
    >>> f"{sd.theory.crossover(sizes, gap, drift, quantity='regret'):.2g}"  # episodes
    '6.3e+08'
    """
    check_problem(sizes, knowledge, budgets, dimensions)
    _check.choice("quantity", quantity, QUANTITIES)
    _check_rho(rho)
    _check.positive("limit", limit, upper=1e100)

    def non_vacuous(M: float) -> bool:
        steps = printed_steps(M, sizes, knowledge, budgets, dimensions, rho)
        setting = setting_of(M, sizes, knowledge, budgets, steps, dimensions, form, p, constants)
        return sum(term.value for term in terms_of(setting, quantity)) < sizes.H * M

    low, high = 0.0, 1.0
    while not non_vacuous(high):
        low, high = high, 2 * high
        if low > limit:
            return math.inf
    while high - low > max(1.0, 1e-9 * high):
        middle = math.floor((low + high) / 2)
        low, high = (low, middle) if non_vacuous(middle) else (middle, high)
    return high if high <= limit else math.inf


def printed_steps(
    M: float,
    sizes: Sizes,
    knowledge: Knowledge,
    budgets: Budgets,
    dimensions: Dimensions | None,
    rho: float,
) -> Steps:
    """The parameters of Theorems 1 to 4 as printed, for any M, before rounding."""
    _, H, S, A, _ = sizes
    d = 1 if dimensions is None else dimensions.d
    total, delta = total_budgets(budgets, 1, d=d, floored=False)
    eta, L, xi, chi = M**-0.5, M ** (2 / 3) * power(total, -2 / 3), 0.0, math.inf
    W = S ** (2 / 3) * A ** (1 / 3) * M ** (2 / 3) * power(delta, -2 / 3)
    if isinstance(knowledge, Slater):
        alpha, chi = knowledge.gamma * H**-1.5 * (total / M) ** (1 / 3), 2 * H / knowledge.gamma
    elif dimensions is None:
        alpha, eta = H ** (-1 / 3) * M**-rho * total ** (1 / 3), H ** (-1 / 3) * M**-0.5
        xi = 2 * H**2 * alpha
        L = H ** (-1 / 3) * M ** ((1 + rho) / 2) * power(total, -2 / 3)
        W *= H ** (2 / 3)
    else:
        alpha = total ** (1 / 3) / (H * M**0.5)
        xi, L = 2 * H**2 * alpha, M**0.75 * power(total, -2 / 3)
    if dimensions is not None:
        W = d**-0.25 / H * M**0.5 * power(delta, -0.5)
    return Steps(alpha, min(max(L, 1.0), M), eta, xi, chi, min(max(W, 1.0), M))


def _check_rho(rho: float) -> None:
    if not 1 / 3 <= _check.real("rho", rho) <= 1 / 2:
        _check.fail("rho", "in [1/3, 1/2]", rho)
