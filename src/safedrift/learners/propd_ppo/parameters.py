"""The parameters of PROPD-PPO as one record, and the formulas that several theorems share.

Modes
-----
printed
    Exactly the theorem's formulas with all absolute constants C = 1 and λ = 1; L and W are rounded
    and clipped to [1, M] because they are never integers and can leave that range.
repaired
    The errata of docs/errata.md applied: budget floor (E10), sharp mirror-step constant (E3),
    dual step size and matching indices (E1, E5), explicit bonuses (E9), drift per step (E8).
practical
    Starts from `repaired` and replaces worst-case constants by measured ones (E9, E14). No theorem
    covers it, and it does not use local budgets. It is the preset that learns at the episode counts
    people have. Where nothing is known, not even a Slater gap, `told_nothing` has its constants.

`tabular_theorems` has Theorems 3 and 4, `linear_theorems` Theorems 1 and 2, and `tuning` chooses
between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from safedrift import _check
from safedrift.kernels.elementary import log
from safedrift.knowledge import Budgets, Dimensions, Sizes, Slater
from safedrift.learners.propd_ppo.components import (
    BernsteinBonus,
    CountBonus,
    CountEvaluation,
    DualStep,
    Evaluation,
    LeastSquaresEvaluation,
    MirrorStep,
    Settling,
    plain,
)

__all__ = [
    "MODES",
    "Parameters",
    "as_period",
    "check_common",
    "check_gap",
    "descent_constant",
    "power",
    "practical_steps",
    "regression_window",
    "slater_steps",
    "total_budgets",
]

MODES = ("printed", "repaired", "practical")
SMALLEST_P = 1e-100  # S A W / p and the like must stay in the range of floats


@dataclass(frozen=True)
class Parameters:
    """The three parts, where they came from, what was changed by hand, what is vacuous in them.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> used = sd.PROPDPPO.for_problem(world, sd.Slater(gamma=0.2), eta=0.1).parameters
    >>> used.source, used.mode, used.overrides
    ('Theorem 4', 'practical', {'eta': 0.1})
    >>> used.dual.eta
    0.1
    """

    improvement: MirrorStep
    dual: DualStep
    evaluation: Evaluation
    source: str
    mode: str
    overrides: dict[str, Any] = field(default_factory=dict)
    noisy: bool = False
    budgets: Budgets | None = None
    remarks: tuple[str, ...] = ()
    settling: Settling | None = None  # of a learner that is told nothing

    def __post_init__(self) -> None:
        if self.settling is None:
            return
        if self.improvement.alpha * self.settling.tau > 1:
            _check.fail("tau", "at most 1/alpha", self.settling.tau)
        if self.dual.dual_signal == "observed":
            wanted = "'optimistic' or 'plain' with knowledge=None, whose rounds need an estimate"
            _check.fail("dual_signal", wanted, "'observed'")

    def record(self) -> dict[str, Any]:
        """Return everything as plain data, for the manifest of a result."""
        found = {
            "source": self.source,
            "mode": self.mode,
            "overrides": dict(self.overrides),
            "noisy": self.noisy,
            "budgets": None if self.budgets is None else self.budgets._asdict(),
            "improvement": plain(self.improvement),
            "dual": plain(self.dual),
            "evaluation": plain(self.evaluation),
            "remarks": list(self.remarks),
        }
        return found if self.settling is None else found | {"settling": plain(self.settling)}

    @classmethod
    def from_record(cls, data: dict[str, Any], sizes: Sizes) -> Parameters:
        """Read what `record` returned, for a problem of the same sizes."""
        return cls(
            improvement=MirrorStep(**data["improvement"]),
            dual=DualStep(**data["dual"]),
            evaluation=_read_evaluation(data["evaluation"], sizes),
            source=data["source"],
            mode=data["mode"],
            overrides=dict(data["overrides"]),
            noisy=data["noisy"],
            budgets=None if data["budgets"] is None else Budgets(**data["budgets"]),
            remarks=tuple(data["remarks"]),
            settling=Settling(**data["settling"]) if "settling" in data else None,
        )


def _read_evaluation(data: dict[str, Any], sizes: Sizes) -> Evaluation:
    """The evaluation of a record; a number there may stand for a whole array."""
    H, K, blocks = sizes.H, sizes.K, window_count(sizes, int(data["W"]))
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("root", "tail", "beta", "beta_r"), (H,))
    shapes |= {
        "LV": (blocks, K, H),
        "window_drift_P": (blocks, H),
        "window_drift_g": (blocks, K, H),
    }

    def with_arrays(part: dict[str, Any]) -> dict[str, Any]:
        full = {
            name: np.array(np.broadcast_to(np.asarray(part[name], float), shape))
            for name, shape in shapes.items()
            if name in part
        }
        return {**part, **full}

    if "bonus" not in data:
        return LeastSquaresEvaluation(**with_arrays(data))
    bonus = dict(data["bonus"])
    kinds = {"CountBonus": CountBonus, "BernsteinBonus": BernsteinBonus}
    kind = kinds[_check.choice("bonus", bonus.pop("kind"), tuple(kinds))]
    return CountEvaluation(**{**with_arrays(data), "bonus": kind(**with_arrays(bonus))})


# ---------------------------------------------------------------- what every theorem is told


def check_common(sizes: Sizes, mode: str, p: float, noisy: bool) -> None:
    """Fail unless these can be the arguments of a theorem."""
    _check.kind("sizes", sizes, Sizes).check()
    _check.choice("mode", mode, MODES)
    _check.kind("noisy", noisy, bool)
    if _check.positive("p", p, upper=1.0, closed=False) < SMALLEST_P:
        _check.fail("p", f"at least {SMALLEST_P:g}", p)


def check_gap(knowledge: Slater, H: int) -> None:
    """Fail unless a Slater gap can be one of episodes of H steps, whose utility is at most H."""
    if _check.kind("knowledge", knowledge, Slater).gamma > H:
        _check.fail("gamma", f"at most H = {H}, the largest utility there is", knowledge.gamma)


# ---------------------------------------------------------------- formulas of several theorems


def total_budgets(
    budgets: Budgets | None, M: int, *, floored: bool, d: int = 1
) -> tuple[float, float]:
    """(√d B_Δ + B_*, B_Δ), each at least M^(-1/2) when repaired (E10); d = 1 where tabular."""
    if budgets is None:
        raise TypeError("budgets must be given in modes 'printed' and 'repaired'; got None")
    _check.kind("budgets", budgets, Budgets).check()
    floor = M**-0.5 if floored else 0.0
    return max(d**0.5 * budgets.delta + budgets.star, floor), max(budgets.delta, floor)


def power(base: float, exponent: float) -> float:
    """base ** exponent, infinite where a zero budget is raised to a negative power."""
    return float(np.inf) if base == 0 else float(base**exponent)


def window_count(sizes: Sizes, W: int) -> int:
    """Return how many W-blocks M episodes have; 1, which stands for all, where M is None."""
    return 1 if sizes.M is None else -(-sizes.M // W)


def as_period(length: float, M: int) -> int:
    """Round a restart period and clip it to [1, M]."""
    return int(np.clip(np.rint(min(length, M)), 1, M))


def descent_constant(H: int) -> float:
    """c = Σ_h (H-h+1)² / 8: the mirror-step error of an episode is α (1+μ)² c (E3)."""
    return H * (H + 1) * (2 * H + 1) / 48


def regression_window(sizes: Sizes, dimensions: Dimensions, budgets: Budgets | None) -> float:
    """W = d^(-1/4) H^(-1) M^(1/2) B_Δ^(-1/2) of Theorems 1 and 2 before rounding.

    Infinite where nothing drifts. There is no floor on B_Δ here, in any mode: it would let a world
    without drift forget its data every M^(3/4)/(d^(1/4) H) episodes, and α, which needs the floor
    of E10, does not depend on W.
    """
    _, delta = total_budgets(budgets, sizes.known_M(), floored=False)
    return float(dimensions.d**-0.25 / sizes.H * sizes.known_M() ** 0.5) * power(delta, -0.5)


def slater_steps(
    sizes: Sizes, gamma: float, total: float, mode: str
) -> tuple[MirrorStep, DualStep]:
    """α, L, η, ξ and χ of Theorems 2 and 4, which differ in the total budget only."""
    _, H, _, A, K = sizes
    M = sizes.known_M()
    chi = 2 * H / gamma  # E4
    L = as_period(M ** (2 / 3) * power(total, -2 / 3), M)
    if mode == "printed":
        alpha = gamma * H**-1.5 * M ** (-1 / 3) * total ** (1 / 3)
        eta = M**-0.5
    else:
        # Minimises H log A/(α L) + 2 α c (1 + (Kχ)²), the mirror-step terms of an L-block (E3).
        c = 2 * descent_constant(H) / H
        alpha = float(np.sqrt(log(max(A, 2)) / (c * L * (1 + (K * chi) ** 2))))
        eta = float(chi / (H * np.sqrt(L)))  # E1
    return MirrorStep(alpha, L), DualStep(eta, 0.0, chi, lagged=mode == "repaired")


def practical_steps(
    sizes: Sizes, chi: float, measured: Mapping[str, float]
) -> tuple[MirrorStep, DualStep, int, float]:
    """Measured alpha, L, eta, W and lam; L and W scale as M^(2/3), as in Theorem 4."""
    M = sizes.known_M()
    L, W = (as_period(measured[name] * M ** (2 / 3), M) for name in ("L", "W"))
    xi = 1e-3 if np.isinf(chi) else 0.0
    dual = DualStep(measured["eta"], xi, chi, lagged=True, dual_signal="observed")
    return MirrorStep(measured["alpha"], L), dual, W, measured["lam"]
