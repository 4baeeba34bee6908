"""Choose the theorem that fits, compute its parameters, apply what is changed by hand.

                 Slater(gamma)   LocalBudgets(...)   None
counts           Theorem 4       Theorem 3           `told_nothing`, no theorem
known features   Theorem 2       Theorem 1
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from safedrift import _check
from safedrift.knowledge import Budgets, Dimensions, Knowledge, LocalBudgets, Sizes, Slater
from safedrift.learners.propd_ppo.components import MOST
from safedrift.learners.propd_ppo.linear_remarks import remarks
from safedrift.learners.propd_ppo.linear_theorems import theorem1, theorem2
from safedrift.learners.propd_ppo.parameters import MODES, Parameters, check_common
from safedrift.learners.propd_ppo.tabular_theorems import check_rho, theorem3, theorem4
from safedrift.learners.propd_ppo.told_nothing import told_nothing

__all__ = ["OVERRIDES", "TOLD_NOTHING", "tune"]

OVERRIDES = ("alpha", "L", "eta", "xi", "chi", "lagged", "dual_signal", "W", "lam", "bonus_scale")
TOLD_NOTHING = ("alpha", "tau", "eta", "proportional", "chi", "rounds", "dual_signal", "lam",
                "bonus_scale")  # fmt: skip
"""What can be changed by hand, and what where nothing is told."""


def tune(
    sizes: Sizes,
    knowledge: Knowledge | None,
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
    sizes
        M may be None in mode "practical" if W and L are among the overrides or nothing is told.
    knowledge
        None tells nothing: mode "practical", counts.
    overrides
        Any of alpha, L, eta, xi, chi, lagged, dual_signal, W, lam, and bonus_scale (a factor on the
        bonus); where nothing is told, of alpha, tau, eta, proportional, chi, rounds, dual_signal,
        lam and bonus_scale. They are recorded.

    Examples
    --------
    >>> import safedrift as sd
    >>> sizes = sd.Sizes(M=1000, H=5, S=5, A=3, K=1)
    >>> sd.learners.tune(sizes, sd.Slater(0.5)).source
    'Theorem 4'
    """
    _check.choice("mode", mode, MODES)
    overrides = {} if overrides is None else dict(_check.kind("overrides", overrides, dict))
    _check_overrides(overrides, OVERRIDES if knowledge is not None else TOLD_NOTHING)
    check_rho(rho)
    if knowledge is None:
        if mode != "practical":
            _check.fail("knowledge", f"Slater(...) or LocalBudgets(...) in mode {mode!r}", None)
        if dimensions is not None:
            _check.fail("knowledge", "Slater(...) or LocalBudgets(...) with known features", None)
        check_common(sizes, mode, p, noisy)
        return _override(told_nothing(sizes, noisy=noisy, lam=overrides.get("lam")), overrides)
    _check.kind("knowledge", knowledge, (Slater, LocalBudgets))
    if budgets is not None:
        _check.kind("budgets", budgets, Budgets)
    if mode != "practical" and budgets is None:
        raise TypeError(
            f"budgets must be given in mode {mode!r} (the theorems assume them known): "
            "pass budgets=safedrift.budgets(world) or safedrift.Budgets(...); got None"
        )
    if _check.kind("sizes", sizes, Sizes).M is None:
        sizes = _for_ever(sizes, mode, overrides)
    common: dict[str, Any] = {"mode": mode, "p": p, "noisy": noisy}
    common |= {name: overrides.get(name) for name in ("W", "lam")}
    if dimensions is None:
        if isinstance(knowledge, Slater):
            found = theorem4(sizes, knowledge, budgets, **common)
        else:
            found = theorem3(sizes, knowledge, budgets, rho=rho, **common)
        return _override(found, overrides)
    if isinstance(knowledge, Slater):
        found = theorem2(sizes, dimensions, knowledge, budgets, **common)
    else:
        found = theorem1(sizes, dimensions, knowledge, budgets, **common)
    found = _override(found, overrides)
    return replace(found, remarks=remarks(found, sizes, dimensions))


def _for_ever(sizes: Sizes, mode: str, overrides: dict[str, Any]) -> Sizes:
    """Return sizes with M = W where there is no last episode: nothing else then depends on M."""
    if mode != "practical":
        sizes.known_M("unless mode is 'practical'")
    if not {"W", "L"} <= overrides.keys():
        sizes.known_M("unless W and L, or a forgetting, are given")
    return sizes._replace(M=int(overrides["W"]))


def _check_overrides(overrides: dict[str, Any], allowed: tuple[str, ...]) -> None:
    for name, value in overrides.items():
        _check.choice("override", name, allowed)
        if name in ("L", "W"):
            _check.integer(name, value)
        if name == "bonus_scale" and not 0 <= _check.real(name, value) <= MOST:
            _check.fail(name, f"in [0, {MOST:g}]", value)


def _override(found: Parameters, overrides: dict[str, Any]) -> Parameters:
    parts: dict[str, Any] = {
        "improvement": found.improvement,
        "dual": found.dual,
        "evaluation": found.evaluation,
    }
    if found.settling is not None:
        parts["settling"] = found.settling
    if "bonus_scale" in overrides:
        parts["evaluation"] = found.evaluation.scaled(overrides["bonus_scale"])
    for name, part in parts.items():
        chosen = {key: value for key, value in overrides.items() if key in vars(part)}
        parts[name] = replace(part, **chosen)
    return replace(found, **parts, overrides=overrides)
