"""The paper's lemmas as certificates of one run: holds, fails, or fails as printed only.

Each certificate is one statement of the paper with the numbers of a run put in. Identities are
given by their largest residual, relative to the size of their terms. Inequalities are given by
their slack, right side minus left side: the smallest one, where it occurs, and quartiles over
episodes. A statement "with probability 1 - p" is about an event; on one run the event occurs or
not, and the share of places where it does not is told.

Where the paper is wrong (docs/errata.md) there are two forms. "Printed" is the paper's conclusion
for the numbers of this run, whatever constants the learner uses; "repaired" is what holds instead.
Writing μ for Σ_k μ_k, c = H(H+1)(2H+1)/48, and B'_P for the budget of the transitions in the norm
max over (x, a) of ‖·‖_1, the repaired statements are

    primal step     α c (1+μ)² per episode instead of α H² (1+μ)²/2               E3
    blocks          ⌈M/L⌉ blocks, drift of π* times max (1+μ)                     E2, E3
    visits          ‖Δd_h‖_1 ≤ Σ_{j<h} (max ‖ΔP_j‖_1 + max ‖Δπ*_j‖_1)            E13
    comparator      H² L (B'_P + B_*)                                             E13
    errors          drift of the window (H-h)/2 max ‖ΔP_h‖_1 + max |Δg_h|         E8
    potential       Σ min(1, ‖φ‖²) instead of Σ ‖φ‖²                              E12
    dual            b_m paired as the learner pairs it, μ^1 as it was             E5
    Slater          Σ (C - μ*) (b - V_g) ≤ δ                                      E1
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from safedrift.algorithms.knowledge import Slater
from safedrift.algorithms.parameters import _descent_constant
from safedrift.kernels import audit as kernels
from safedrift.theory.audit import Audit, Place, Slacks
from safedrift.theory.bounds import Bound, bounds
from safedrift.theory.terms import Constants

__all__ = ["RELATIVE", "Certificate", "Certificates", "Form", "certificates"]

RELATIVE = 1e-8  # of an identity
ROUNDING = 1e-9  # of an inequality, relative to the size of its terms

HOLDS, FAILS, PRINTED_FAILS, REPAIRED_FAILS, SKIPPED = (
    "holds", "fails", "fails as printed, holds as repaired", "holds as printed, fails as repaired",
    "does not apply",
)  # fmt: skip


_NOWHERE = Place(None)


@dataclass(frozen=True)
class Form:
    """One statement on one run.

    Attributes
    ----------
    holds : whether it is true, up to rounding
    slack : smallest slack; for an identity its largest residual, relative
    quantiles : smallest, quartiles and largest of the smallest slacks per stretch of episodes;
        None for a statement on the whole run
    place : where it is tightest
    left, right : both sides, for a statement on the whole run
    share : share of the places where it fails
    """

    holds: bool
    slack: float
    quantiles: tuple[float, ...] | None = None
    place: Place = _NOWHERE
    left: float | None = None
    right: float | None = None
    share: float = 0.0


@dataclass(frozen=True)
class Certificate:
    """One statement of the paper, checked on one run.

    `kind` is "identity", "inequality" or "probability". `printed` is None where the statement does
    not apply, `repaired` where the paper's needs no repair.
    """

    id: str
    label: str
    words: str
    maths: str
    kind: str
    printed: Form | None
    repaired: Form | None = None
    erratum: str = ""
    note: str = ""

    @property
    def result(self) -> str:
        """What the run says about the statement."""
        if self.printed is None:
            return SKIPPED
        if self.repaired is None:
            return HOLDS if self.printed.holds else FAILS
        if self.printed.holds:
            return HOLDS if self.repaired.holds else REPAIRED_FAILS
        return PRINTED_FAILS if self.repaired.holds else FAILS


@dataclass(frozen=True)
class Certificates:
    """All certificates of a run. Iterate, or ask for one by its id: `found["dual-step"]`."""

    items: tuple[Certificate, ...]
    info: dict[str, Any]

    def __iter__(self) -> Iterator[Certificate]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, id: str) -> Certificate:
        for item in self.items:
            if item.id == id:
                return item
        raise KeyError(f"no certificate {id!r}; there are {', '.join(c.id for c in self.items)}")

    @property
    def failed(self) -> tuple[str, ...]:
        """Ids of what fails in every form."""
        return tuple(item.id for item in self.items if item.result == FAILS)

    @property
    def identities_hold(self) -> bool:
        """Whether all identities hold to `RELATIVE`: if not, the learner is not the paper's."""
        return all(item.result != FAILS for item in self.items if item.kind == "identity")

    def rows(self) -> list[tuple[str, str, str, str, str, str]]:
        """Rows (id, in the paper, kind, result, smallest slack, where) for a table."""
        return [
            (c.id, c.label, c.kind, c.result, _slack(c), _where(c.repaired or c.printed))
            for c in self.items
        ]

    def __str__(self) -> str:
        head = ("id", "in the paper", "kind", "result", "slack", "where")
        rows = [head, *self.rows()]
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        )

    __repr__ = __str__

    def record(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {"info": self.info, "certificates": [_plain(item) for item in self.items]}

    @classmethod
    def from_record(cls, data: dict[str, Any]) -> Certificates:
        """Read what `record` returned."""

        def form(given: dict[str, Any] | None) -> Form | None:
            if given is None:
                return None
            quantiles = given["quantiles"]
            numbers = {k: _float(given[k]) for k in ("slack", "left", "right", "share")}
            return Form(
                holds=given["holds"],
                quantiles=None if quantiles is None else tuple(_float(q) for q in quantiles),
                place=Place(*given["place"]),
                **numbers,
            )

        items = tuple(
            Certificate(**{**item, "printed": form(item["printed"]),
                           "repaired": form(item["repaired"])})
            for item in ({k: v for k, v in c.items() if k != "result"}
                         for c in data["certificates"])
        )  # fmt: skip
        return cls(items, data["info"])


def _float(value: Any) -> Any:
    return float(value) if isinstance(value, str) else value


def _plain(item: Certificate) -> dict[str, Any]:
    def form(given: Form | None) -> dict[str, Any] | None:
        if given is None:
            return None
        plain = {**vars(given), "place": list(given.place)}
        return {k: _number(v) for k, v in plain.items()}

    return {
        **vars(item), "printed": form(item.printed), "repaired": form(item.repaired),
        "result": item.result,
    }  # fmt: skip


def _number(value: Any) -> Any:
    """Strict JSON has no infinity."""
    if isinstance(value, tuple):
        return [_number(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _slack(c: Certificate) -> str:
    if c.printed is None:
        return ""
    if c.repaired is None:
        return f"{c.printed.slack:.3g}"
    return f"{c.printed.slack:.3g} | {c.repaired.slack:.3g}"


def _where(form: Form | None) -> str:
    if form is None or form.place.m is None:
        return ""
    names = zip(("m", "h", "x", "a"), form.place, strict=True)
    return ", ".join(f"{name}={value}" for name, value in names if value is not None)


# ---------------------------------------------------------------- putting them together


def certificates(audit: Audit) -> Certificates:
    """Return the certificates of the episodes that `audit` was fed with."""
    if audit.done < audit.world.M:
        raise ValueError(f"the audit must see all M = {audit.world.M} episodes; got {audit.done}")
    found = [*_lines(audit), *_lemmas(audit), *_estimation(audit), *_steps(audit), *_runs(audit)]
    parameters = audit.agent.parameters
    info = {
        "problem": audit.world.name, "sizes": audit.agent.sizes._asdict(), "p": audit.p,
        "setting": "linear kernel" if audit.linear else "tabular",
        "knowledge": audit.agent.knowledge.name, "mode": parameters.mode,
    }  # fmt: skip
    return Certificates(tuple(found), info)


def _identity(audit: Audit, column: int) -> Form:
    kept = audit.checks[column]
    quantiles = kept.quantiles()
    residual = -kept.smallest
    spread = None if quantiles is None else tuple(-q + 0.0 for q in quantiles)
    return Form(residual <= RELATIVE, residual + 0.0, spread, kept.place)


def _inequality(kept: Slacks, places: float = math.inf) -> Form | None:
    """From the slacks of every episode; None where there was nothing to check."""
    if kept.smallest == np.inf:
        return None
    return Form(
        kept.broken == 0, kept.smallest, kept.quantiles(), kept.place,
        share=kept.broken / places,
    )  # fmt: skip


def _sides(left: float, right: float, scale: float) -> Form:
    """A statement on the whole run; rounding is relative to `scale`."""
    slack = right - left if math.isfinite(right) else math.inf
    return Form(bool(slack >= -ROUNDING * scale), slack, left=left, right=right)


def _lines(audit: Audit) -> Iterator[Certificate]:
    """The lines of the algorithms, done again from their definitions."""
    which = "Alg. 2, lines 3-12" if audit.linear else "Alg. 3, lines 3-8"
    yield Certificate(
        "policy-step", "Alg. 1, lines 4-8", "the policy is the mirror step, uniform at a restart",
        "π_m ∝ π_{m-1} exp(α (Q_r + μ·Q_g)), π_m = 1/A where m opens an L-block", "identity",
        _identity(audit, kernels.POLICY),
    )  # fmt: skip
    yield Certificate(
        "dual-step", "Alg. 1, line 12", "the multiplier is the projected gradient step",
        "μ^m = clip(μ^{m-1} + η (b - V_g^{m-1} - ξ μ^{m-1}), 0, χ)", "identity",
        _identity(audit, kernels.DUAL),
    )  # fmt: skip
    yield Certificate(
        "evaluation", which, "Q is estimated from the episodes of the window before m, no other",
        "Q^m = clip(ĉ + P̂V^m + bonus + LV, 0, H-h+1)", "identity",
        _identity(audit, kernels.EVALUATION),
    )  # fmt: skip


def _lemmas(audit: Audit) -> Iterator[Certificate]:
    """Identities of the proofs, and the lemmas on single steps."""
    world, sums = audit.world, audit.sums
    M, H = world.M, world.H
    T = sums["terms"]
    scale = float(H * M)
    yield Certificate(
        "performance-difference", "Performance difference lemma with model prediction error",
        "what the estimate misses of the optimum, in every episode, for r and each g",
        "V*_c - V_c^m = Σ_h E*[⟨Q_c, π* - π⟩] + Σ_h E*[ι_c]", "identity",
        _identity(audit, kernels.PERFORMANCE),
    )  # fmt: skip
    yield Certificate(
        "value-expansion", "Value prediction error expansion",
        "what the estimate misses of the policy played, in every episode, for r and each g",
        "V_c^m - V_c^π = Σ_h (D_1 + D_2) - Σ_h ι_c(x_h, a_h), first state included", "identity",
        _identity(audit, kernels.EXPANSION),
    )  # fmt: skip
    regret = sums["best"] - T[kernels.VALUE, 0]
    block, own = T[kernels.BLOCK_STEP, 0], T[kernels.OWN_STEP, 0]
    parts = block + (own - block) + T[kernels.IOTA_OPTIMAL, 0] - T[kernels.IOTA_PATH, 0]
    parts += T[kernels.MARTINGALE, 0]
    residual = abs(regret - parts) / scale
    yield Certificate(
        "regret-decomposition", "Dynamic regret decomposition",
        "DR(M), with the oracle's optima, is the sum of its named terms",
        "DR = Σ E_ℓ⟨Q_r, π* - π⟩ + Σ (E_m - E_ℓ)⟨Q_r, π* - π⟩ + Σ E*[ι_r] - Σ ι_r(x, a) + S_r",
        "identity", Form(bool(residual <= RELATIVE), float(residual), left=regret, right=parts),
    )  # fmt: skip
    left = sums["b"] - T[kernels.VALUE, 1:]
    right = sums["b"] - T[kernels.ESTIMATE, 1:] - T[kernels.IOTA_PATH, 1:]
    right = right + T[kernels.MARTINGALE, 1:]
    k = int(np.abs(left - right).argmax())
    residual = float(abs(left - right)[k] / scale)
    yield Certificate(
        "violation-decomposition", "Constraint violation decomposition",
        "the violation of each constraint is the sum of its named terms",
        "Σ (b - V_g) = Σ (b - V_g^m) - Σ ι_g(x, a) + S_g", "identity",
        Form(bool(residual <= RELATIVE), residual, left=float(left[k]), right=float(right[k])),
    )  # fmt: skip
    bound = 4 * H * math.sqrt(H * M * math.log(4 / audit.p))
    names = ("regret", "constraint violation")
    for name, S in zip(names, (abs(T[kernels.MARTINGALE, 0]),
                               np.abs(T[kernels.MARTINGALE, 1:]).max()), strict=True):  # fmt: skip
        yield Certificate(
            f"martingale-{'r' if name == 'regret' else 'g'}",
            f"Martingale bound for {'dynamic regret' if name == 'regret' else name}",
            "the martingale stays below Azuma's bound", "|S| ≤ 4 H √(H M log(4/p))", "probability",
            _sides(float(S), bound, scale),
        )  # fmt: skip
    yield Certificate(
        "one-step-descent", "One-step descent lemma",
        "what a mirror step loses at one state, against any comparator",
        "⟨Q, π* - π⟩ - (D(π*|π) - D(π*|π'))/α ≤ α (1+μ)² H²/2; sharp α (1+μ)² (H-h+1)²/8",
        "inequality", *_both(audit, kernels.DESCENT), "E3",
    )  # fmt: skip
    yield Certificate(
        "primal-step", "Primal step for dynamic regret",
        "what the mirror steps of an episode lose, along any states",
        "Σ_h (...) ≤ α (1+μ)² H²/2; repaired α (1+μ)² H(H+1)(2H+1)/48", "inequality",
        *_both(audit, kernels.PRIMAL), "E3",
    )  # fmt: skip
    yield Certificate(
        "visitation", "Smoothness property for the visitation measure",
        "how far the states that the optimal policy visits move from one episode to the next",
        f"max_x |Δd_h(x)| ≤ Σ_j ({'√d1 ‖Δθ_j‖' if audit.linear else '‖ΔP_j‖_2'} + max ‖Δπ*_j‖_1); "
        "repaired ‖Δd_h‖_1 ≤ Σ_j (max ‖ΔP_j‖_1 + max ‖Δπ*_j‖_1)",
        "inequality", *_both(audit, kernels.VISITATION), "E13",
    )  # fmt: skip


def _both(audit: Audit, column: int, places: float = math.inf) -> Any:
    """A statement in its two forms, from the slacks of every episode."""
    forms = [_inequality(audit.checks[column + i], places) for i in range(2)]
    return forms[0], forms[1]


def _estimation(audit: Audit) -> Iterator[Certificate]:
    """Bonuses, prediction errors, potentials."""
    M, H, S, A, K = audit.agent.sizes
    pairs = float(M * H * S * A)
    local = not isinstance(audit.agent.knowledge, Slater)
    which = "with local knowledge" if local else "under the Slater condition"
    kind = "linear kernel" if audit.linear else "tabular"
    told = f"p/2 = {audit.p / 2:g} is what the lemma allows for a run in which it fails anywhere"
    form = lambda column, count: _both(audit, column, pairs * count)  # noqa: E731
    yield Certificate(
        "prediction-error", f"Bounds on model prediction error, {kind}, {which}",
        "ι lies between minus twice the bonus and the drift of the window, everywhere",
        "-2 bonus - drift ≤ ι_c ≤ drift" + (", ι_g ≤ 0 with LV" if local else ""), "probability",
        *form(kernels.PREDICTION, 1 + K), "E8", told,
    )  # fmt: skip
    yield Certificate(
        "optimism", f"Bounds on model prediction error, {kind}, {which}: sign of ι_g",
        "the estimate of a utility is not below its truth, but for drift",
        "ι_g ≤ 0" if local else "ι_g ≤ drift of the window", "probability",
        *form(kernels.OPTIMISM, K), "E7, E8", told,
    )  # fmt: skip
    yield Certificate(
        "transition-bonus", f"Bonus of the transitions covers their error, {kind}",
        "the estimate of P V^m is within its bonus, but for drift",
        "|P̂V_c^m - P V_c^m| ≤ Γ_c + drift of P", "probability",
        *form(kernels.TRANSITIONS, (1 + K) * (H - 1) / H or math.inf), "E8, E9", told,
    )  # fmt: skip
    yield Certificate(
        "signal-bonus", f"Bonus of rewards and utilities covers their error, {kind}",
        "the estimates of r and g are within their bonus, but for drift",
        "|ĉ - c| ≤ Γ + drift of c", "probability", *form(kernels.SIGNALS, 1 + K), "E8", told,
    )  # fmt: skip
    normalised = _inequality(audit.checks[kernels.NORMALISED], M * (H - 1) * (1 + K) or math.inf)
    yield Certificate(
        "self-normalised", "Concentration of value targets (self-normalised process)",
        "the noise of the value targets is below β in the norm of Λ^-1",
        "‖Σ φ^τ (V^τ(x') - P^τ V^τ)‖_{Λ^-1} ≤ β", "probability", normalised,
        note=told if normalised else "Algorithm 3 regresses nothing",
    )  # fmt: skip
    yield Certificate(
        "elliptical-potential", "Elliptical potential lemma",
        "the squared norms of the features add up to no more than a logarithm, in every window",
        "log(det Λ_t/det Λ_1) ≤ Σ ‖φ‖²_{Λ^-1} ≤ 2 log(det Λ_t/det Λ_1); repaired with min(1, ·)",
        "inequality", *_both(audit, kernels.ELLIPTICAL), "E12",
        "features φ^m of Algorithm 2" if audit.linear else "one-hot features: Λ = diag(n + λ)",
    )  # fmt: skip
    yield Certificate(
        "projection", "Lemma D.1 of Jin et al.",
        "the features of a window, in its own norm, have squares that add up to at most d",
        "Σ φ_iᵀ Λ^-1 φ_i ≤ d", "inequality", _inequality(audit.checks[kernels.PROJECTION]),
    )  # fmt: skip


def _steps(audit: Audit) -> Iterator[Certificate]:
    """Lemmas on sums of primal and dual steps."""
    sums, T = audit.sums, audit.sums["terms"]
    M, H, _, A, _ = audit.agent.sizes
    s = audit.agent.settings
    B, scale = audit.budgets, float(H * M) * audit.price
    norm = math.sqrt(audit.dimensions.d1) if audit.dimensions else 1.0
    B_l1 = float(audit.drift_l1.P.sum())
    logs, blocks = math.log(A), -(-M // s.L)
    restart = (_over(H * M * logs, s.alpha * s.L), _over(H * blocks * logs, s.alpha))
    mirror = (
        s.alpha * H**2 * (M + float(np.sum(sums["mu2"]))),
        s.alpha * _descent_constant(H) * sums["price2"],
    )
    kept = (1.0, audit.price)  # what drift of the comparator is charged for
    block = float(T[kernels.BLOCK_STEP, 0] + np.sum(sums["mu_block"]))
    forms = (
        _sides(block, restart[i] + mirror[i] + kept[i] * H**2 * s.L * B.star, scale)
        for i in range(2)
    )
    yield Certificate(
        "primal-blocks", "Bound for the first term in (R.2)",
        "mirror steps over all blocks, against the optimal policies as the first episode's states "
        "see them",
        "Σ E_ℓ⟨Q_r + μ·Q_g, π*_m - π_m⟩ ≤ H M log A/(α L) + α H² Σ (1+μ²) + H² L B_*; repaired "
        "H ⌈M/L⌉ log A/α + α c Σ (1+μ)² + max(1+μ) H² L B_*", "inequality", *forms, "E2, E3",
    )  # fmt: skip
    drift = (2 * H**2 * s.L * (norm * B.P + B.star), H**2 * s.L * (B_l1 + B.star))
    left = float(T[kernels.OWN_STEP, 0] - T[kernels.BLOCK_STEP, 0])
    yield Certificate(
        "comparator-drift", "Bound for the second term in (R.2)",
        "drift of transitions and optimal policies inside L-blocks",
        "Σ (E_m - E_ℓ)⟨Q_r, π* - π⟩ ≤ 2 H² L (√d1 B_P + B_*); repaired H² L (B'_P + B_*)",
        "inequality", *(_sides(left, right, scale) for right in drift), "E13",
    )  # fmt: skip
    errors = float(T[kernels.IOTA_OPTIMAL, 0] + np.sum(sums["mu_iota"]) - T[kernels.IOTA_PATH, 0])
    priced = float(np.sum(sums["mu_told"]))
    regret = float(sums["best"] - T[kernels.VALUE, 0])
    rest = errors - priced + float(T[kernels.MARTINGALE, 0])
    policy = (
        restart[0] + mirror[0] + H**2 * s.L * B.star + drift[0],
        restart[1] + mirror[1] + audit.price * H**2 * s.L * (B_l1 + 2 * B.star),
    )
    yield Certificate(
        "regret-chain", "Dynamic regret before the dual step",
        "DR(M) is at most mirror steps, drift, dual terms, prediction errors and chance",
        "DR ≤ policy terms - Σ μ (V*_g - V_g^m) + Σ E*[ι_r + μ·ι_g] - Σ ι_r(x, a) + S_r",
        "inequality", *(_sides(regret, right + rest, scale) for right in policy), "E2, E3",
    )  # fmt: skip
    short = float(np.sum(sums["mu_short"]))
    ahead = H * M + errors + float(T[kernels.MARTINGALE, 0])
    yield Certificate(
        "primal-violation", "Primal step for constraint violation",
        "the priced violation of the estimates is at most reward given up, policy terms and errors",
        "Σ μ (b - V_g^m) ≤ H M + policy terms + Σ E*[ι_r + μ·ι_g] - Σ ι_r(x, a) + S_r",
        "inequality", *(_sides(short, right + ahead, scale) for right in policy), "E2, E3",
    )  # fmt: skip
    yield from _dual(audit, scale)


def _over(top: float, bottom: float) -> float:
    if bottom > 0:
        return top / bottom
    return math.inf if top > 0 else 0.0


def _dual(audit: Audit, scale: float) -> Iterator[Certificate]:
    """The two dual lemmas, for V_g^m as the dual is told."""
    sums, s = audit.sums, audit.agent.settings
    M, H, _, _, K = audit.agent.sizes
    mu2, first = np.asarray(sums["mu2"]), audit.first_mu
    names = {
        "regret": ("dual-regret", "Dual step for dynamic regret"),
        "violation": (
            "dual-violation",
            "Dual step for constraint violation"
            if math.isinf(s.chi) else "Change of mu under the Slater condition",
        ),
    }  # fmt: skip
    maths = {
        "regret": "-Σ μ (V*_g - V_g^m) ≤ η H² (M+1) + (η ξ² - ξ) Σ μ²; repaired with (μ^1)²/(2η) "
        "and Σ μ |b paired - b|",
        "violation": "Σ (μ - μ^m)(b - V_g^m) - (ξ M/2 + 1/(2η)) μ² ≤ η H² M for all μ"
        if math.isinf(s.chi) else "Σ (μ - μ^m)(b - V_g^m) ≤ μ²/(2η) + η H² M/2 for μ in [0, χ]",
    }  # fmt: skip
    words = {
        "regret": "raising the price of a met constraint costs little",
        "violation": "no fixed price in hindsight does much better, at its best and on a grid",
    }
    if s.eta == 0:
        for key, (id, label) in names.items():
            yield Certificate(id, label, words[key], maths[key], "inequality", None,
                              note="eta is 0: there is no dual step")  # fmt: skip
        return
    left = -float(np.sum(sums["mu_best"]))
    printed = s.eta * H**2 * (M + 1) + (s.eta * s.xi**2 - s.xi) * float(mu2.sum())
    repaired = float(
        (first**2).sum() / (2 * s.eta) + K * s.eta * H**2 * M
        + (s.eta * s.xi**2 - s.xi) * mu2.sum() + np.sum(sums["mu_moved"])
    )  # fmt: skip
    yield Certificate(
        *names["regret"], words["regret"], maths["regret"], "inequality",
        _sides(left, printed, scale), _sides(left, repaired, scale), "E5",
    )  # fmt: skip
    forms = (_comparators(audit, form, scale) for form in range(2))
    yield Certificate(
        *names["violation"], words["violation"], maths["violation"], "inequality", *forms, "E5"
    )


def _comparators(audit: Audit, form: int, scale: float) -> Form:
    """right - left as a function of the fixed price μ, at its minimum and on a grid."""
    sums, s = audit.sums, audit.agent.settings
    M, H, _, _, K = audit.agent.sizes
    worst: Form | None = None
    for k in range(K):
        a, moved = float(sums["gap"][k]), float(sums["moved"][k])
        paid, mu_moved = float(sums["mu_gap"][k]), float(sums["mu_moved"][k])
        mu1, mu2 = float(audit.first_mu[k]), float(sums["mu2"][k])
        square = s.xi * M / 2 + 1 / (2 * s.eta)
        if form == 0:
            start, slope = 0.0, a
            bound = s.eta * H**2 * M / (1 if math.isinf(s.chi) else 2)
            square = square if math.isinf(s.chi) else 1 / (2 * s.eta)
        else:  # (μ - μ^1)²/(2η) for μ²/(2η), and |μ - μ^m| for each change of b
            start, slope = mu1**2 / (2 * s.eta), a - moved + mu1 / s.eta
            bound = s.eta * H**2 * M + (s.eta * s.xi**2 - s.xi / 2) * mu2 + mu_moved
        best = min(max(slope / (2 * square), 0.0), s.chi)
        top = s.chi if math.isfinite(s.chi) else 2 * max(best, audit.price)
        grid = np.append(np.linspace(0.0, top, 9), best)
        slack = bound + start + paid + square * grid**2 - slope * grid
        i = int(slack.argmin())
        here = Form(
            bool(slack[i] >= -ROUNDING * scale), float(slack[i]),
            tuple(np.quantile(slack, (0, 0.25, 0.5, 0.75, 1)).tolist()),
        )  # fmt: skip
        worst = here if worst is None or here.slack < worst.slack else worst
    assert worst is not None
    return worst


def _runs(audit: Audit) -> Iterator[Certificate]:
    """Lemma 1, the Slater lemmas, sums of prediction errors, and the theorems' bounds."""
    sums, T = audit.sums, audit.sums["terms"]
    M, H = audit.world.M, audit.world.H
    scale = float(H * M)
    kept = audit.extra["multiplier"]
    yield Certificate(
        "multiplier-bound", "Lemma 1; boundedness of mu*",
        "the optimal multipliers of every episode are at most H over its Slater gap",
        "Σ_k μ*_k ≤ H/γ_m", "inequality", _inequality(kept),
        note="" if kept.smallest < np.inf else "no episode has a Slater gap",
    )  # fmt: skip
    C = audit.weight
    why = ""
    if math.isinf(C):
        why = "chi is infinite: the lemma needs a weight C"
    elif 2 * audit.largest_mu > C:
        why = f"C = chi = {C:g} is below twice the largest mu*, {2 * audit.largest_mu:g}"
    pair: list[Form | None] = [None, None]
    if not why:
        pair = [_inequality(audit.extra[f"slater-{form}"]) for form in ("printed", "repaired")]
    yield Certificate(
        "slater-episode", "Constraint violation under Slater condition",
        "in every episode, a policy that is good in reward plus C times violation violates little",
        "b - V_g ≤ 2δ_m/C; repaired Σ_k (C - μ*_k)(b_k - V_g,k) ≤ δ_m", "inequality", *pair, "E1",
        why,
    )  # fmt: skip
    if not why:
        short = float(np.sum(sums["b"] - T[kernels.VALUE, 1:]))
        pair = [
            _sides(short, 2 * sums["delta"] / C, scale),
            _sides(sums["weighted"], sums["delta"], scale * (1 + C)),
        ]
    yield Certificate(
        "slater-run", "Constraint violation under uniform Slater condition",
        "the same for the sums over all episodes",
        "Σ (b - V_g) ≤ 2δ/C; repaired Σ (C - μ*)(b - V_g) ≤ δ", "inequality", *pair, "E1", why,
    )  # fmt: skip
    yield from _theorems(audit)


def _theorems(audit: Audit) -> Iterator[Certificate]:
    """Sums of prediction errors and the explicit bounds, with the constants of the bonus."""
    T, sums = audit.sums["terms"], audit.sums
    H, M = audit.world.H, audit.world.M
    scale = float(H * M)
    found = [_bounds(audit, form) for form in ("printed", "repaired")]
    errors = float(T[kernels.IOTA_OPTIMAL, 0] + np.sum(sums["mu_iota"]) - T[kernels.IOTA_PATH, 0])
    played = float((-T[kernels.IOTA_PATH, 1:]).max())
    told = "constants follow from the learner's bonus (Constants.followed)"
    unknown = math.isnan(found[0][0].numbers.get("C4", found[0][0].numbers.get("C1", math.nan)))
    why = "the learner's bonus is no count bonus: no constant follows from it" if unknown else ""
    theorem = found[0][0].theorem

    def both(left: float, right: Callable[[tuple[Bound, Bound]], float | None]) -> Any:
        if unknown:
            return None, None
        rights = [right(pair) for pair in found]
        if rights[0] is None or rights[1] is None:
            return None, None
        return tuple(_sides(left, r, scale) for r in rights)

    def total(bound: Bound, ending: str = "") -> float | None:
        names = ("estimation", "drift of transitions in windows",
                 "drift of rewards and utilities in windows")  # fmt: skip
        wanted = (f"estimation of {ending}", *(f"{n}, {ending}" for n in names[1:]))
        kept = [t.value for t in bound.terms if t.name in (wanted if ending else names)]
        return sum(kept) if kept else None

    yield Certificate(
        "prediction-sum-r", "Model prediction error bound for dynamic regret",
        "prediction errors of the run, under the optimal policies minus along the path",
        "Σ (E*[ι_r + μ·ι_g] - ι_r(x, a)) ≤ C E(W) + drift in the windows", "probability",
        *both(errors, lambda pair: total(pair[0])), "E8", why or told,
    )  # fmt: skip
    slater = isinstance(audit.agent.knowledge, Slater)
    yield Certificate(
        "prediction-sum-g", "Model prediction error bound for constraint violation",
        "prediction errors of each utility along the path",
        "-Σ ι_g(x, a) ≤ C E(W) + drift in the windows", "probability",
        *((None, None) if slater else both(played, lambda pair: total(pair[1], "utilities"))),
        "E8", why or ("stated for local budgets" if slater else told),
    )  # fmt: skip
    regret = float(sums["best"] - T[kernels.VALUE, 0])
    violation = float(np.maximum(sums["b"] - T[kernels.VALUE, 1:], 0).max())
    for i, (name, left) in enumerate((("regret", regret), ("violation", violation))):
        against = "; ".join(found[1][i].reasons)
        yield Certificate(
            f"{name}-bound", f"{theorem}: bound on {'DR(M)' if i == 0 else 'CV(M)'} before Õ",
            f"the {'dynamic regret' if i == 0 else 'violation'} is below the explicit bound",
            f"{'DR' if i == 0 else 'CV'}(M) ≤ terms of `safedrift theory`", "probability",
            *both(left, lambda pair, i=i: pair[i].total), "E1, E2, E3, E8",
            why or (f"repaired form not proved for this learner: {against}" if against else told),
        )  # fmt: skip


def _bounds(audit: Audit, form: str) -> tuple[Bound, Bound]:
    agent = audit.agent

    def at(constants: Constants) -> tuple[Bound, Bound]:
        return bounds(
            agent.sizes, agent.knowledge, audit.budgets, agent.parameters,
            dimensions=audit.dimensions, form=form, p=audit.p, constants=constants,
        )  # fmt: skip

    numbers = at(Constants())[0].numbers
    least = numbers.get("C4", numbers.get("C1", math.nan))
    return at(Constants() if math.isnan(least) else Constants.followed(least, least))
