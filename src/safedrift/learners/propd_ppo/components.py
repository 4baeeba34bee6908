"""The components of PROPD-PPO: they can be swapped, and every result records them.

A learner is a `MirrorStep` (who improves the policy), a `DualStep` (who prices the constraint) and
an `Evaluation` (who estimates values from the window): a `CountEvaluation` in the tabular setting,
a `LeastSquaresEvaluation` in the linear-kernel one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.linear.memory import LinearHyperparameters
from safedrift.kernels.tabular import memory
from safedrift.kernels.tabular.memory import DUAL_SIGNALS, Hyperparameters

__all__ = [
    "BernsteinBonus",
    "CountBonus",
    "CountEvaluation",
    "DualStep",
    "Evaluation",
    "LeastSquaresEvaluation",
    "MirrorStep",
    "Settling",
]


MOST_ROUNDS = 1000
MOST = 1e6  # a step beyond this has no meaning, and its sums would leave the range of floats


@dataclass(frozen=True)
class MirrorStep:
    """Policy improvement π ← π exp(α (Q_r + μ·Q_g)) / Z, back to uniform every `L` episodes."""

    alpha: float
    L: int

    def __post_init__(self) -> None:
        if not 0 <= _check.real("alpha", self.alpha) <= MOST:
            _check.fail("alpha", f"in [0, {MOST:g}]", self.alpha)
        _check.integer("L", self.L)


@dataclass(frozen=True)
class DualStep:
    """Dual update μ ← clip(μ + η (b - V_g - ξ μ), 0, χ).

    Parameters
    ----------
    lagged
        False pairs b_m with V_g^{m-1} as printed; True pairs b_{m-1} with V_g^{m-1} (E5).
    dual_signal
        "optimistic" is V_g with bonus as in the paper; "plain" the same estimate
        without bonus (counts: unvisited pairs at their cap; least squares: the ridge estimate, 0
        in an empty window); "observed" the utility the episode really had, an unbiased sample of
        V_g whatever the estimates are worth (E14).
    """

    eta: float
    xi: float
    chi: float
    lagged: bool = False
    dual_signal: str = "optimistic"

    def __post_init__(self) -> None:
        for name in ("eta", "xi"):
            value = _check.real(name, getattr(self, name))
            if not 0 <= value <= MOST:
                _check.fail(name, f"in [0, {MOST:g}]", value)
        _check.positive("chi", self.chi, infinite=True)
        _check.choice("dual_signal", self.dual_signal, tuple(DUAL_SIGNALS))
        _check.kind("lagged", self.lagged, bool)


@dataclass(frozen=True)
class Settling:
    """What keeps policy and multipliers from swinging; not the paper's, and no theorem covers it.

    Parameters
    ----------
    tau
        Weight of the policy's entropy: π ← π^(1-ατ) exp(α Q) / Z.
    proportional
        Gain K_P: μ = clip(K_P (b - V_g) + η I, 0, χ), where I is the sum of b - V_g so far, kept
        from falling below 0 and from growing at χ.
    rounds
        Estimates and steps on the same data before each episode, beside the one after it.
    """

    tau: float
    proportional: float
    rounds: int

    def __post_init__(self) -> None:
        for name in ("tau", "proportional"):
            value = _check.real(name, getattr(self, name))
            if not 0 <= value <= MOST:
                _check.fail(name, f"in [0, {MOST:g}]", value)
        _check.integer("rounds", self.rounds, lower=0, upper=MOST_ROUNDS)


@dataclass(frozen=True, eq=False)
class CountBonus:
    """Bonus root_h / sqrt(n + shift) + tail_h / (n + λ); at shift 0, n counts as at least 1.

    The paper's 2Γ = 2β (n + λ)^(-1/2) is root = 2β, shift = λ, tail = 0.
    """

    root: FloatArray
    tail: FloatArray
    shift: float = 0.0

    def __post_init__(self) -> None:
        for name in ("root", "tail"):
            values = _check.floats(name, getattr(self, name), ("H",))
            _check.everywhere(name, values, values >= 0, ">= 0")
            object.__setattr__(self, name, values)

    def scaled(self, factor: float) -> CountBonus:
        """Return the bonus times `factor`."""
        return CountBonus(self.root * factor, self.tail * factor, self.shift)


@dataclass(frozen=True)
class BernsteinBonus:
    """Bonus c sqrt(Var_n[V] / n) + c² (H-h+1) / n + λ / (n + λ); unvisited pairs at their cap."""

    c: float

    def __post_init__(self) -> None:
        if not 0 <= _check.real("c", self.c) < np.inf:
            _check.fail("c", "finite and >= 0", self.c)

    def scaled(self, factor: float) -> BernsteinBonus:
        """Return the bonus with c times `factor`."""
        return BernsteinBonus(self.c * factor)


@dataclass(frozen=True, eq=False)
class CountEvaluation:
    """Algorithm 3 on the data of the current block of `W` episodes.

    Parameters
    ----------
    lam
        Ridge parameter λ > 0.
    LV : array (blocks, K, H)
        Local variation term added to Q_g in each W-block.
    """

    W: int
    lam: float
    bonus: CountBonus | BernsteinBonus
    LV: FloatArray

    def __post_init__(self) -> None:
        _check.integer("W", self.W)
        _check.positive("lam", self.lam)
        LV = _check.floats("LV", self.LV, ("blocks", "K", "H"))
        _check.everywhere("LV", LV, LV >= 0, ">= 0")

    def scaled(self, factor: float) -> CountEvaluation:
        """Return the same evaluation with its bonus times `factor`."""
        return replace(self, bonus=self.bonus.scaled(factor))


@dataclass(frozen=True, eq=False)
class LeastSquaresEvaluation:
    """Algorithm 2 on the data of the current block of `W` episodes.

    With n past episodes in the window, the bonuses of channel c at step h are

        rewards      (β_r,h + s_g √n) ‖φ(x,a)‖ in the norm of Λ_h⁻¹,
        transitions  (β_h + s_P √n) ‖φ_c,h(x,a)‖ in the norm of Λ_c,h⁻¹,

    where s_P = window_drift_P[block, h] and s_g = window_drift_g[block, k, h] in the channels of
    the utilities, and both are 0 in the channel of the reward. The paper has β_r = β, and neither.

    Parameters
    ----------
    lam
        Ridge parameter λ > 0.
    beta, beta_r : array (H,)
        Multipliers of the transition bonus (Alg. 2, line 6) and of the reward bonus (line 10).
    LV : array (blocks, K, H)
        Local variation term added to Q_g in each W-block, as printed.
    window_drift_P : array (blocks, H)
        Largest |(P_h^m - P_h^τ) V| between two episodes of a block.
    window_drift_g : array (blocks, K, H)
        Largest |g_k,h^m - g_k,h^τ| between two episodes of a block.

    Notes
    -----
    For Λ = λI + Σ φ_τ φ_τᵀ over n episodes and any numbers |ε_τ| ≤ s,
    |φᵀ Λ⁻¹ Σ φ_τ ε_τ| ≤ s √n ‖φ‖_{Λ⁻¹}: Σ (φᵀ Λ⁻¹ φ_τ)² = φᵀ Λ⁻¹ (Λ - λI) Λ⁻¹ φ ≤ ‖φ‖²_{Λ⁻¹}.
    With ε_τ = φ_τᵀ (θ^m - θ^τ) = (P^m - P^τ) V^τ this is the error due to drift. (The paper bounds
    each |φᵀ Λ⁻¹ φ_τ| by a product of norms first, which costs a factor √d.)
    """

    W: int
    lam: float
    beta: FloatArray
    beta_r: FloatArray
    LV: FloatArray
    window_drift_P: FloatArray
    window_drift_g: FloatArray

    def __post_init__(self) -> None:
        _check.integer("W", self.W)
        if _check.positive("lam", self.lam) < 1e-12:
            _check.fail("lam", ">= 1e-12: Gram matrices must stay invertible", self.lam)
        blocks, K, H = _check.floats("LV", self.LV, ("blocks", "K", "H")).shape
        shapes: dict[str, tuple[int, ...]] = {
            "beta": (H,),
            "beta_r": (H,),
            "LV": (blocks, K, H),
            "window_drift_P": (blocks, H),
            "window_drift_g": (blocks, K, H),
        }
        for name, shape in shapes.items():
            values = _check.floats(name, getattr(self, name), shape)
            _check.everywhere(name, values, values >= 0, ">= 0")
            object.__setattr__(self, name, values)

    def scaled(self, factor: float) -> LeastSquaresEvaluation:
        """Return the same evaluation with beta and beta_r times `factor`."""
        return replace(self, beta=self.beta * factor, beta_r=self.beta_r * factor)


Evaluation = CountEvaluation | LeastSquaresEvaluation


def table_hyperparameters(
    improvement: MirrorStep, dual: DualStep, evaluation: Evaluation, H: int
) -> Hyperparameters:
    """Flatten the components into what the compiled code with counts takes."""
    if not isinstance(evaluation, CountEvaluation):
        raise TypeError(f"evaluation must be a CountEvaluation; got {type(evaluation).__name__}")
    bonus = evaluation.bonus
    by_count = isinstance(bonus, CountBonus)
    zeros = np.zeros(H)
    return Hyperparameters(
        **_steps(improvement, dual),
        lam=float(evaluation.lam),
        bonus=memory.COUNT_BONUS if by_count else memory.BERNSTEIN_BONUS,
        root=np.array(bonus.root, dtype=np.float64) if isinstance(bonus, CountBonus) else zeros,
        shift=float(bonus.shift) if isinstance(bonus, CountBonus) else 0.0,
        tail=np.array(bonus.tail, dtype=np.float64) if isinstance(bonus, CountBonus) else zeros,
        c=float(bonus.c) if isinstance(bonus, BernsteinBonus) else 0.0,
        LV=np.ascontiguousarray(evaluation.LV, dtype=np.float64),
    )


def linear_hyperparameters(
    improvement: MirrorStep, dual: DualStep, evaluation: Evaluation
) -> LinearHyperparameters:
    """Flatten the components into what the compiled code with least squares takes."""
    if not isinstance(evaluation, LeastSquaresEvaluation):
        kind = type(evaluation).__name__
        raise TypeError(f"evaluation must be LeastSquaresEvaluation; got {kind}")
    names = ("beta", "beta_r", "LV", "window_drift_P", "window_drift_g")
    arrays: dict[str, Any] = {name: np.array(getattr(evaluation, name), float) for name in names}
    return LinearHyperparameters(**_steps(improvement, dual), lam=float(evaluation.lam), **arrays)


def _steps(improvement: MirrorStep, dual: DualStep) -> dict[str, Any]:
    """What the compiled improvement and dual step take, whatever the evaluation."""
    return {
        "alpha": float(improvement.alpha),
        "eta": float(dual.eta),
        "xi": float(dual.xi),
        "chi": float(dual.chi),
        "lagged": bool(dual.lagged),
        "dual_signal": DUAL_SIGNALS[dual.dual_signal],
    }


def plain(component: object) -> dict[str, Any]:
    """Return a component's numbers as plain data for manifests (arrays as lists)."""
    found: dict[str, Any] = {}
    for name, value in vars(component).items():
        if isinstance(value, np.ndarray):
            found[name] = _plain_array(value)
        elif isinstance(value, CountBonus | BernsteinBonus):
            found[name] = {"kind": type(value).__name__, **plain(value)}
        else:
            found[name] = value
    return found


def _plain_array(values: NDArray[Any]) -> Any:
    """A number where all entries agree, otherwise the nested list."""
    if values.size and (values == values.flat[0]).all():
        return float(values.flat[0])
    return values.tolist()
