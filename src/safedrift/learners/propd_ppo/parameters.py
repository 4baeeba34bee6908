"""Parameters of PROPD-PPO in the tabular setting: Theorems 3 and 4, one pure function each.

Modes
-----
printed
    Exactly the theorem's formulas with all absolute constants C = 1 and λ = 1; L and W are rounded
    and clipped to [1, M] because they are never integers and can leave that range.
repaired
    The errata of docs/errata.md applied: budget floor (E10), sharp mirror-step constant (E3),
    dual step size and matching indices (E1, E5), explicit bonus (E9), LV per step (E8).
practical
    Starts from `repaired` and replaces worst-case constants by measured ones (E9, E14). No theorem
    covers it, and it does not use local budgets: LV is zero. It is the preset that learns at the
    episode counts people have.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.knowledge import (
    Budgets,
    Knowledge,
    LocalBudgets,
    Sizes,
    Slater,
    block_sums,
)
from safedrift.learners.propd_ppo.components import (
    BernsteinBonus,
    CountBonus,
    CountEvaluation,
    DualStep,
    Evaluation,
    LeastSquaresEvaluation,
    MirrorStep,
    plain,
)

if TYPE_CHECKING:
    from safedrift.learners.propd_ppo.linear_parameters import Dimensions

__all__ = ["MODES", "OVERRIDES", "Parameters", "theorem3", "theorem4", "tune"]

MODES = ("printed", "repaired", "practical")


@dataclass(frozen=True)
class Parameters:
    """The three parts, where they came from, what was changed by hand, what is vacuous in them."""

    improvement: MirrorStep
    dual: DualStep
    evaluation: Evaluation
    source: str
    mode: str
    overrides: dict[str, Any] = field(default_factory=dict)
    noisy: bool = False
    budgets: Budgets | None = None
    remarks: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """Return everything as plain data, for the manifest of a result."""
        return {
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

    @classmethod
    def from_record(cls, data: dict[str, Any], sizes: Sizes) -> Parameters:
        """Read what `record` returned, for a problem of the same sizes."""
        part = dict(data["evaluation"])
        blocks = -(-sizes.M // int(part["W"]))
        shapes = {
            "LV": (blocks, sizes.K, sizes.H), "spread_P": (blocks, sizes.H),
            "spread_g": (blocks, sizes.K, sizes.H),
        }  # fmt: skip

        def full(part: dict[str, Any]) -> dict[str, Any]:
            """Numbers that stand for whole arrays, spread out again."""
            arrays = {"root", "tail", "beta", "beta_r", *shapes} & set(part)
            spread = {
                name: np.array(np.broadcast_to(np.asarray(part[name], float),
                                               shapes.get(name, (sizes.H,))))
                for name in arrays
            }  # fmt: skip
            return {**part, **spread}

        evaluation: Evaluation
        if "bonus" in part:
            bonus = dict(part.pop("bonus"))
            kinds = {"CountBonus": CountBonus, "BernsteinBonus": BernsteinBonus}
            kind = kinds[_check.choice("bonus", bonus.pop("kind"), tuple(kinds))]
            evaluation = CountEvaluation(**full(part), bonus=kind(**full(bonus)))
        else:
            evaluation = LeastSquaresEvaluation(**full(part))
        return cls(
            MirrorStep(**data["improvement"]), DualStep(**data["dual"]), evaluation,
            data["source"], data["mode"], dict(data["overrides"]), data["noisy"],
            None if data["budgets"] is None else Budgets(**data["budgets"]),
            tuple(data["remarks"]),
        )  # fmt: skip


def tune(
    sizes: Sizes,
    knowledge: Knowledge,
    budgets: Budgets | None = None,
    *,
    dimensions: Dimensions | None = None,
    mode: str = "practical",
    rho: float = 0.5,
    p: float = 0.05,
    noisy: bool = False,
    overrides: dict[str, Any] | None = None,
) -> Parameters:
    """Choose the theorem that fits the knowledge, compute its parameters, apply overrides.

    Parameters
    ----------
    dimensions
        Of the features, for the linear-kernel setting (Theorems 1 and 2); None is the tabular one.
    overrides
        Any of alpha, L, eta, xi, chi, lagged, feed, W, lam, and bonus_scale (a factor on the
        bonus). They are recorded.
    """
    _check.choice("mode", mode, MODES)
    overrides = dict(overrides or {})
    _check_overrides(overrides)
    _check.kind("knowledge", knowledge, (Slater, LocalBudgets))
    _check.kind("noisy", noisy, bool)
    if budgets is not None:
        _check.kind("budgets", budgets, Budgets)
    if mode != "practical" and budgets is None:
        raise TypeError(
            f"budgets must be given in mode {mode!r} (the theorems assume them known): "
            "pass budgets=safedrift.budgets(world) or safedrift.Budgets(...); got None"
        )
    told: dict[str, Any] = {"mode": mode, "p": p, "noisy": noisy}
    told |= {name: overrides.get(name) for name in ("W", "lam")}
    if dimensions is not None:
        from safedrift.learners.propd_ppo import (
            linear_parameters as linear,  # it imports this module
        )

        if isinstance(knowledge, Slater):
            found = linear.theorem2(sizes, dimensions, knowledge, budgets, **told)
        else:
            found = linear.theorem1(sizes, dimensions, knowledge, budgets, **told)
        found = _override(found, overrides)
        return replace(found, remarks=linear.remarks(found, sizes, dimensions))
    if isinstance(knowledge, Slater):
        found = theorem4(sizes, knowledge, budgets, **told)
    else:
        found = theorem3(sizes, knowledge, budgets, rho=rho, **told)
    return _override(replace(found, noisy=noisy, budgets=budgets), overrides)


def theorem3(
    sizes: Sizes,
    knowledge: LocalBudgets,
    budgets: Budgets | None,
    *,
    mode: str,
    rho: float = 0.5,
    p: float = 0.05,
    noisy: bool = False,
    W: int | None = None,
    lam: float | None = None,
) -> Parameters:
    """Theorem 3: tabular CMDP, known local budgets; ξ > 0, χ = ∞, LV > 0.

    `W` and `lam` replace the theorem's, with all that is computed from them.
    """
    M, H, S, A, K = sizes
    _check.choice("mode", mode, MODES)
    if not 1 / 3 <= _check.real("rho", rho) <= 1 / 2:
        _check.fail("rho", "in [1/3, 1/2]", rho)
    if mode == "practical":
        improvement, dual, period, ridge = practical_steps(sizes, chi=np.inf)
    else:
        total, delta = total_budgets(budgets, M, floored=mode == "repaired")
        alpha = H ** (-1 / 3) * M**-rho * total ** (1 / 3)
        eta = H ** (-1 / 3) * M**-0.5
        if mode == "printed":
            xi = 2 * H ** (5 / 3) * total ** (1 / 3) * M**-rho
        else:
            # (1 + Σμ_k)² ≤ 2 (1 + K Σμ_k²): E3 with K multipliers
            xi = 8 * K * descent_constant(H) * alpha
        L = as_period(H ** (-1 / 3) * M ** ((1 + rho) / 2) * power(total, -2 / 3), M)
        period = as_period(
            H ** (2 / 3) * S ** (2 / 3) * A ** (1 / 3) * M ** (2 / 3) * power(delta, -2 / 3), M
        )
        ridge = 1.0
        improvement = MirrorStep(alpha, L)
        dual = DualStep(eta, xi, np.inf, lagged=mode == "repaired")
    W = _check.integer("W", period if W is None else W)
    lam = _check.positive("lam", ridge if lam is None else lam)
    transitions, utilities = knowledge.per_episode(sizes)
    if mode == "printed":
        LV = _printed_lv(transitions, utilities, W)
    elif mode == "repaired":
        LV = _repaired_lv(transitions, utilities, W)
    else:  # LV would hide the constraint from the policy while the dual sees it (E14)
        LV = np.zeros((-(-M // W), K, H))
    bonus = _bonus(sizes, W, lam, mode=mode, p=p, noisy=noisy)
    evaluation = CountEvaluation(W, lam, bonus, LV)
    return Parameters(improvement, dual, evaluation, "Theorem 3", mode)


def theorem4(
    sizes: Sizes,
    knowledge: Slater,
    budgets: Budgets | None,
    *,
    mode: str,
    p: float = 0.05,
    noisy: bool = False,
    W: int | None = None,
    lam: float | None = None,
) -> Parameters:
    """Theorem 4: tabular CMDP, known Slater gap; ξ = 0, χ = 2H/γ, LV = 0.

    `W` and `lam` replace the theorem's, with all that is computed from them.
    """
    M, H, S, A, K = sizes
    _check.choice("mode", mode, MODES)
    if mode == "practical":
        improvement, dual, period, ridge = practical_steps(sizes, chi=2 * H / knowledge.gamma)
    else:
        total, delta = total_budgets(budgets, M, floored=mode == "repaired")
        improvement, dual = slater_steps(sizes, knowledge.gamma, total, mode)
        period = as_period(S ** (2 / 3) * A ** (1 / 3) * M ** (2 / 3) * power(delta, -2 / 3), M)
        ridge = 1.0
    W = _check.integer("W", period if W is None else W)
    lam = _check.positive("lam", ridge if lam is None else lam)
    bonus = _bonus(sizes, W, lam, mode=mode, p=p, noisy=noisy)
    evaluation = CountEvaluation(W, lam, bonus, np.zeros((-(-M // W), K, H)))
    return Parameters(improvement, dual, evaluation, "Theorem 4", mode)


# ---------------------------------------------------------------- pieces


def total_budgets(
    budgets: Budgets | None, M: int, *, floored: bool, d: int = 1
) -> tuple[float, float]:
    """(√d B_Δ + B_*, B_Δ), each at least M^(-1/2) when repaired (E10); d = 1 where tabular."""
    if budgets is None:
        raise TypeError("budgets must be given in modes 'printed' and 'repaired'; got None")
    for name, value in budgets._asdict().items():
        if not np.isfinite(_check.real(f"budgets.{name}", value)) or value < 0:
            _check.fail(f"budgets.{name}", "finite and >= 0", value)
    floor = M**-0.5 if floored else 0.0
    return max(d**0.5 * budgets.delta + budgets.star, floor), max(budgets.delta, floor)


def power(base: float, exponent: float) -> float:
    """base ** exponent, infinite where a zero budget is raised to a negative power."""
    return float(np.inf) if base == 0 else float(base**exponent)


def as_period(length: float, M: int) -> int:
    """Round a restart period and clip it to [1, M]."""
    return int(np.clip(np.rint(min(length, M)), 1, M))


def descent_constant(H: int) -> float:
    """c = Σ_h (H-h+1)² / 8: the mirror-step error of an episode is α (1+μ)² c (E3)."""
    return H * (H + 1) * (2 * H + 1) / 48


def slater_steps(
    sizes: Sizes, gamma: float, total: float, mode: str
) -> tuple[MirrorStep, DualStep]:
    """α, L, η, ξ and χ of Theorems 2 and 4, which differ in the total budget only."""
    M, H, _, A, K = sizes
    chi = 2 * H / gamma  # E4
    L = as_period(M ** (2 / 3) * power(total, -2 / 3), M)
    if mode == "printed":
        alpha = gamma * H**-1.5 * M ** (-1 / 3) * total ** (1 / 3)
        eta = M**-0.5
    else:
        # Minimises H log A/(α L) + 2 α c (1 + (Kχ)²), the mirror-step terms of an L-block (E3).
        c = 2 * descent_constant(H) / H
        alpha = float(np.sqrt(np.log(max(A, 2)) / (c * L * (1 + (K * chi) ** 2))))
        eta = float(chi / (H * np.sqrt(L)))  # E1
    return MirrorStep(alpha, L), DualStep(eta, 0.0, chi, lagged=mode == "repaired")


def _bonus(
    sizes: Sizes, W: int, lam: float, *, mode: str, p: float, noisy: bool
) -> CountBonus | BernsteinBonus:
    M, H, S, A, K = sizes
    _check.positive("p", p, upper=1.0, closed=False)
    left = np.arange(H, 0, -1.0)  # H-h+1 for h = 1..H
    if mode == "printed":
        beta = H * np.sqrt(S * np.log(S * A * W / p))  # C_4 = 1
        return CountBonus(np.full(H, 2 * beta), np.zeros(H), shift=lam)
    if mode == "practical":
        return BernsteinBonus(_PRACTICAL["c"])
    # E9: |(P̂-P)V| ≤ (H-h) sqrt((S ln 2 + ln(2SAHM/p)) / (2n)) + λ (H-h)/(n+λ) for V ≤ H-h.
    # Deterministic rewards add λ/(n+λ); Bernoulli ones a Hoeffding term over 1+K signals too.
    span = left - 1
    root = span * np.sqrt((S * np.log(2) + np.log(2 * S * A * H * M / p)) / 2)
    if noisy:
        root = root + np.sqrt(np.log(2 * (1 + K) * S * A * H * M / p) / 2)
    return CountBonus(root, lam * left, shift=0.0)


def _printed_lv(transitions: FloatArray, utilities: FloatArray, W: int) -> FloatArray:
    """LV = B_P,E H + B_g,E, budgets summed over steps and the same at every step."""
    H = transitions.shape[1]
    B_P = block_sums(transitions, W).sum(axis=-1)[:, None]
    B_g = block_sums(utilities, W).sum(axis=-1)
    return np.repeat((B_P * H + B_g)[:, :, None], H, axis=2)


def _repaired_lv(transitions: FloatArray, utilities: FloatArray, W: int) -> FloatArray:
    """LV_h = (H-h)/2 max‖ΔP_h‖₁ + max|Δg_h| over the block (E8), with V_{h+1} ≤ H-h."""
    H = transitions.shape[1]
    span = np.arange(H - 1, -1, -1.0)
    return block_sums(transitions, W)[:, None, :] * span / 2 + block_sums(utilities, W)


# Measured, not derived (docs/errata.md, E9, E14): Bernstein bonus with a small c, a dual fed with
# the observed utility, restarts every few M^(2/3) episodes.
_PRACTICAL = {"alpha": 0.15, "L": 1.7, "eta": 0.03, "W": 3.4, "lam": 0.004, "c": 0.05}


def practical_steps(
    sizes: Sizes, chi: float, measured: dict[str, float] = _PRACTICAL
) -> tuple[MirrorStep, DualStep, int, float]:
    """Measured constants; restart periods scale as M^(2/3), as in Theorem 4 for fixed budgets."""
    M = sizes.M
    L, W = (as_period(measured[name] * M ** (2 / 3), M) for name in ("L", "W"))
    xi = 1e-3 if np.isinf(chi) else 0.0
    dual = DualStep(measured["eta"], xi, chi, lagged=True, feed="observed")
    return MirrorStep(measured["alpha"], L), dual, W, measured["lam"]


OVERRIDES = ("alpha", "L", "eta", "xi", "chi", "lagged", "feed", "W", "lam", "bonus_scale")


def _check_overrides(overrides: dict[str, Any]) -> None:
    for name, value in overrides.items():
        _check.choice("override", name, OVERRIDES)
        if name in ("L", "W"):
            _check.integer(name, value)


def _override(found: Parameters, overrides: dict[str, Any]) -> Parameters:
    parts: dict[str, Any] = {
        "improvement": found.improvement, "dual": found.dual, "evaluation": found.evaluation,
    }  # fmt: skip
    if "bonus_scale" in overrides:
        factor = _check.real("bonus_scale", overrides["bonus_scale"])
        if factor < 0:
            _check.fail("bonus_scale", ">= 0", factor)
        parts["evaluation"] = found.evaluation.scaled(factor)
    for name, part in parts.items():
        chosen = {key: value for key, value in overrides.items() if key in vars(part)}
        parts[name] = replace(part, **chosen)
    return replace(found, **parts, overrides=overrides)
