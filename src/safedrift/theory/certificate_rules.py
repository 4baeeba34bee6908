"""The certificates of a run, computed from what an audit of it has collected.

Each function below yields (id, printed, repaired, note) for some of `theory.statements`. A form of
None is a statement that does not apply, and the note says why.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from safedrift.kernels.audit import memory as kernels
from safedrift.kernels.audit.memory import (
    BLOCK_STEP,
    IOTA_OPTIMAL,
    IOTA_PATH,
    MARTINGALE,
    OWN_STEP,
    VALUE,
)
from safedrift.knowledge import Slater
from safedrift.learners.propd_ppo.parameters import descent_constant
from safedrift.theory.audit import Audit, Slacks
from safedrift.theory.bound_terms import Constants, over
from safedrift.theory.certificates import Certificate, Certificates, Form
from safedrift.theory.draw_statistics import FALSE_ALARM, favourite
from safedrift.theory.explicit_bounds import Bound, bounds
from safedrift.theory.statements import IDS, statement

__all__ = ["RELATIVE", "evaluate_certificates"]

RELATIVE = 1e-8  # of an identity
ROUNDING = 1e-9  # of an inequality, relative to the size of its terms

Check = tuple[str, Form | None, Form | None, str]


def evaluate_certificates(audit: Audit) -> Certificates:
    """Return the certificates of the run whose episodes were added to `audit`.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> learner = sd.PROPDPPO.for_problem(world, sd.Slater(gamma=0.2))
    >>> audit = sd.theory.Audit(world, learner)
    >>> try:
    ...     sd.theory.evaluate_certificates(audit)
    ... except ValueError as error:
    ...     print(error)
    the audit must see all M = 50 episodes; got 0
    """
    if audit.done < audit.world.M:
        raise ValueError(f"the audit must see all M = {audit.world.M} episodes; got {audit.done}")
    agent = audit.agent
    local = not isinstance(audit.knowledge, Slater)
    found = {}
    rules = (
        _identities,
        _draws,
        _chance,
        _steps,
        _estimates,
        _policy,
        _dual,
        _optimum,
        _theorems,
    )
    for part in rules:
        for id, printed, repaired, note in part(audit):
            free = math.isinf(agent.hyperparameters.chi) if id == "dual-violation" else local
            said = statement(id, linear=audit.linear, local=free)
            found[id] = Certificate(
                id,
                said.label,
                said.words,
                said.maths,
                said.kind,
                printed,
                repaired,
                said.erratum,
                note,
                claimed=agent.parameters.mode != "practical" or not _needs_confidence(id, printed),
            )
    info = {
        "problem": audit.world.name,
        "sizes": agent.sizes._asdict(),
        "p": audit.p,
        "false_alarm": FALSE_ALARM,
        "setting": "linear kernel" if audit.linear else "tabular",
        "knowledge": audit.knowledge.name,
        "mode": agent.parameters.mode,
    }
    return Certificates(tuple(found[id] for id in IDS), info)


# ---------------------------------------------------------------- forms


def _residuals(audit: Audit, column: int) -> Form:
    """An identity of every episode."""
    kept = audit.checks[column]
    residual, quantiles = -kept.smallest + 0.0, kept.quantiles()
    largest = None if quantiles is None else tuple(-q + 0.0 for q in reversed(quantiles))
    return Form(residual <= RELATIVE, residual, largest, kept.place)


def _equal(left: float, right: float, scale: float) -> Form:
    """An identity of the whole run."""
    residual = abs(left - right) / scale
    return Form(residual <= RELATIVE, residual, left=left, right=right)


def _slacks(kept: Slacks, places: float = math.inf) -> Form | None:
    """An inequality of every episode; None where there was nothing to check."""
    if kept.smallest == math.inf:
        return None
    share = kept.broken / places
    return Form(kept.broken == 0, kept.smallest, kept.quantiles(), kept.place, share=share)


def _both(audit: Audit, column: int, places: float = math.inf) -> tuple[Form | None, Form | None]:
    """An inequality of every episode, printed and repaired."""
    printed, repaired = audit.checks[column : column + 2]
    return _slacks(printed, places), _slacks(repaired, places)


def _sides(left: float, right: float, scale: float) -> Form:
    """An inequality of the whole run; rounding is relative to `scale`."""
    slack = math.inf if right == math.inf else right - left
    return Form(slack >= -ROUNDING * scale, slack, left=left, right=right)


# ---------------------------------------------------------------- every episode


def _identities(audit: Audit) -> Iterator[Check]:
    """The lines of the algorithms, and the expansions of the proofs."""
    for id, column in (
        ("policy-step", kernels.POLICY),
        ("dual-step", kernels.DUAL),
        ("evaluation", kernels.EVALUATION),
        ("performance-difference", kernels.PERFORMANCE),
        ("start-value", kernels.START),
        ("possible-path", kernels.POSSIBLE),
        ("observations", kernels.OBSERVATIONS),
    ):
        yield id, _residuals(audit, column), None, ""
    T, scale = audit.terms, float(audit.world.H * audit.world.M)
    block, own = T[BLOCK_STEP, 0], T[OWN_STEP, 0]
    errors = T[IOTA_OPTIMAL, 0] - T[IOTA_PATH, 0]
    parts = float(block + (own - block) + errors + T[MARTINGALE, 0])
    yield "regret-decomposition", _equal(audit.regret, parts, scale), None, ""


def _draws(audit: Audit) -> Iterator[Check]:
    """What the draws of the run say against it."""
    for which, (id, name) in enumerate(
        (
            ("action-statistics", "actions"),
            ("transition-statistics", "successors"),
            ("signal-statistics", "signals"),
            ("return-statistics", "returns"),
        )
    ):
        if name == "signals" and not audit.noisy:
            yield id, None, None, "signals are not noisy: `observations` compares them exactly"
            continue
        form = _slacks(audit.others[name])
        note = f"an honest run fails with probability at most {FALSE_ALARM:g}"
        if form is not None and not form.holds:
            said = audit.returns.favourite() if name == "returns" else favourite(audit.bets, which)
            note = f"best explained by {said}; {note}"
        yield id, form, None, note


def _chance(audit: Audit) -> Iterator[Check]:
    """Azuma's bound; only the whole run is asked."""
    H, M = audit.world.H, audit.world.M
    bound = 4 * H * math.sqrt(H * M * math.log(4 / audit.p))
    S = np.abs(audit.terms[MARTINGALE])
    for id, left in (("martingale-r", S[0]), ("martingale-g", S[1:].max())):
        yield id, _sides(float(left), bound, H * M), None, ""


def _steps(audit: Audit) -> Iterator[Check]:
    """One mirror step, the mirror steps of one episode, one change of the world."""
    M, H, L = audit.world.M, audit.world.H, audit.periods.L
    steps = M - -(-M // L)  # a restart is no mirror step, and the last policy makes none
    why = "" if steps else "there is no mirror step between two recorded policies"
    yield "one-step-descent", *_both(audit, kernels.DESCENT, steps * H or 1), why
    yield "primal-step", *_both(audit, kernels.PRIMAL, steps or 1), why
    forms = _both(audit, kernels.VISITATION, max(audit.changes * (H - 1), 1))
    why = "the world never changes" if audit.world.H > 1 else "with one step there is no next state"
    yield "visitation", *forms, "" if forms[0] else why


def _estimates(audit: Audit) -> Iterator[Check]:
    """Prediction errors, bonuses, potentials."""
    _, H, S, A, K = audit.agent.sizes
    M = audit.agent.sizes.known_M()
    places = float(M * H * S * A)
    covered = _confidence(audit)
    yield "prediction-error", *_both(audit, kernels.PREDICTION, places * (1 + K)), covered
    yield "optimism", *_both(audit, kernels.OPTIMISM, places * K), covered
    last = "" if H > 1 else "with one step there is no next state"
    forms = _both(audit, kernels.TRANSITIONS, max(places * (1 + K) * (H - 1) / H, 1.0))
    yield "transition-bonus", *forms, last or covered
    yield "signal-bonus", *_both(audit, kernels.SIGNALS, places * (1 + K)), covered
    noise = _slacks(audit.checks[kernels.NORMALISED], max(float(M * (H - 1) * (1 + K)), 1.0))
    why = last if audit.linear else "Algorithm 3 regresses nothing"
    yield "self-normalised", noise, None, covered if noise else why
    which = "features φ^m of Algorithm 2" if audit.linear else "one-hot features, Λ = diag(n + λ)"
    sums = M * (H - 1) * (1 + K) if audit.linear else M * H
    forms = _both(audit, kernels.ELLIPTICAL, max(sums, 1))
    lam = audit.agent.hyperparameters.lam
    small = f"; lam = {lam:g}, where the lemma assumes at least 1" if lam < 1 else ""
    yield "elliptical-potential", *forms, which + small if forms[0] else last
    form = _slacks(audit.checks[kernels.PROJECTION], max(sums, 1))
    yield "projection", form, None, which if form else last


# Statements whose premise is that bonuses are confidence bounds: on estimates, and on whole runs.
_ON_ESTIMATES = (
    "prediction-error", "optimism", "transition-bonus", "signal-bonus", "self-normalised",
)  # fmt: skip
_ON_RUNS = ("prediction-sum-r", "prediction-sum-g", "regret-bound", "violation-bound")


def _needs_confidence(id: str, printed: Form | None) -> bool:
    """Whether a statement, where it applies, is about confidence bounds."""
    return id in _ON_RUNS or (id in _ON_ESTIMATES and printed is not None)


def _confidence(audit: Audit) -> str:
    """What the learner's constants promise about the lemmas on bonuses."""
    parameters = audit.agent.parameters
    if parameters.mode == "practical" or parameters.overrides.get("bonus_scale", 1.0) < 1:
        return "this learner's bonus is no confidence bound (errata E9)"
    if parameters.mode == "printed":
        return "the printed logarithm covers neither steps nor windows (errata E9)"
    if audit.noisy and not parameters.noisy:
        return "observations were noisy, the constants are for exact ones"
    return "with the p that the learner was tuned for, a run fails anywhere with probability p/2"


# ---------------------------------------------------------------- sums of steps


def _policy(audit: Audit) -> Iterator[Check]:
    """Mirror steps and drift of the comparator, up to the regret before the dual step."""
    T, price, B = audit.terms, audit.price, audit.budgets
    _, H, _, A, _ = audit.agent.sizes
    M = audit.agent.sizes.known_M()
    s = audit.agent.hyperparameters
    alpha, L = s.alpha, audit.periods.L
    scale = float(H * M) * price
    norm = math.sqrt(audit.dimensions.d1) if audit.dimensions else 1.0
    B_l1, logs = float(audit.drift_l1.P.sum()), math.log(A)
    squares = float(audit.total("mu2").sum())
    mirror = (
        over(H * M * logs, alpha * L) + alpha * H**2 * (M + squares),
        over(H * -(-M // L) * logs, alpha) + alpha * descent_constant(H) * audit.sums["price2"],
    )
    turned = (H**2 * L * B.star, price * H**2 * L * B.star)
    moved = (2 * H**2 * L * (norm * B.P + B.star), H**2 * L * (B_l1 + B.star))
    left = float(T[BLOCK_STEP, 0] + audit.total("mu_block").sum())
    forms = [_sides(left, mirror[i] + turned[i], scale) for i in range(2)]
    yield "primal-blocks", forms[0], forms[1], ""
    left = float(T[OWN_STEP, 0] - T[BLOCK_STEP, 0])
    yield "comparator-drift", _sides(left, moved[0], scale), _sides(left, moved[1], scale), ""
    policy = (mirror[0] + turned[0] + moved[0], mirror[1] + turned[1] + price * moved[1])
    rest = _errors(audit) + float(T[MARTINGALE, 0])
    priced = rest - float(audit.total("mu_missed").sum())
    forms = [_sides(audit.regret, right + priced, scale) for right in policy]
    yield "regret-chain", forms[0], forms[1], ""
    left = float(audit.total("mu_short").sum())
    dual = s.eta * H**2 * (M + 1) + (s.eta * s.xi**2 - s.xi) * squares  # printed; not needed
    rights = (policy[0] + dual, policy[1])
    forms = [_sides(left, H * M + right + rest, scale) for right in rights]
    yield "primal-violation", forms[0], forms[1], ""


def _errors(audit: Audit) -> float:
    """Σ (E*[ι_r + μ·ι_g] - ι_r(x, a))."""
    T = audit.terms
    return float(T[IOTA_OPTIMAL, 0] + audit.total("mu_iota").sum() - T[IOTA_PATH, 0])


def _dual(audit: Audit) -> Iterator[Check]:
    """The two dual lemmas, for V_g^m as the dual step takes it."""
    s = audit.agent.hyperparameters
    _, H, _, _, K = audit.agent.sizes
    M = audit.agent.sizes.known_M()
    if s.eta == 0:
        for id in ("dual-regret", "dual-violation"):
            yield id, None, None, "eta is 0: there is no dual step"
        return
    scale = float(H * M) * audit.price
    squares = float(audit.total("mu2").sum())
    left = -float(audit.total("mu_best").sum())
    shrink = (s.eta * s.xi**2 - s.xi) * squares
    start = float((audit.first_mu**2).sum()) / (2 * s.eta)
    rights = (
        s.eta * H**2 * (M + 1) + shrink,
        start + K * s.eta * H**2 * M + shrink + float(audit.total("mu_moved").sum()),
    )
    yield "dual-regret", _sides(left, rights[0], scale), _sides(left, rights[1], scale), ""
    forms = [
        min((_prices(audit, k, form, scale) for k in range(K)), key=lambda found: found.slack)
        for form in range(2)
    ]
    yield "dual-violation", forms[0], forms[1], ""


def _prices(audit: Audit, k: int, form: int, scale: float) -> Form:
    """Right minus left side as a function of the fixed price μ, at its minimum and on a grid."""
    s = audit.agent.hyperparameters
    M, H = audit.world.M, audit.world.H
    slope, paid = float(audit.total("gap")[k]), float(audit.total("mu_gap")[k])
    if form == 0:
        start, square = 0.0, 1 / (2 * s.eta)
        bound = s.eta * H**2 * M / 2
        if math.isinf(s.chi):
            square, bound = square + s.xi * M / 2, 2 * bound
    else:  # (μ - μ^1)²/(2η) for μ²/(2η), and |μ - μ^m| for each change of b that is not paired
        first, squares = float(audit.first_mu[k]), float(audit.total("mu2")[k])
        start, square = first**2 / (2 * s.eta), s.xi * M / 2 + 1 / (2 * s.eta)
        slope += first / s.eta - float(audit.total("moved")[k])
        bound = s.eta * H**2 * M + (s.eta * s.xi**2 - s.xi / 2) * squares
        bound += float(audit.total("mu_moved")[k])
    best = min(max(slope / (2 * square), 0.0), s.chi)
    top = s.chi if math.isfinite(s.chi) else 2 * max(best, audit.price)
    grid = np.append(np.linspace(0.0, top, 9), best)
    slack = bound + start + paid + square * grid**2 - slope * grid
    least = float(slack.min())
    quantiles = tuple(np.quantile(slack, (0, 0.25, 0.5, 0.75, 1)).tolist())
    return Form(least >= -ROUNDING * scale, least, quantiles)


# ---------------------------------------------------------------- the optimum, the theorems


def _optimum(audit: Audit) -> Iterator[Check]:
    """Lemma 1, and violation under the Slater condition."""
    form = _slacks(audit.others["multiplier"], audit.world.M)
    yield "multiplier-bound", form, None, "" if form else "no episode has a Slater gap"
    C, scale = audit.weight, float(audit.world.H * audit.world.M)
    why = ""
    if math.isinf(C):
        why = "chi is infinite: the lemma needs a weight C"
    elif 2 * audit.largest_mu > C:
        why = f"C = chi = {C:g} is below twice the largest mu*, {2 * audit.largest_mu:g}"
    if why:
        yield "slater-episode", None, None, why
        yield "slater-run", None, None, why
        return
    printed, repaired = (
        _slacks(audit.others[f"slater-{form}"], audit.world.M) for form in ("printed", "repaired")
    )
    yield "slater-episode", printed, repaired, f"C = chi = {C:g}"
    short = float((audit.total("b") - audit.terms[VALUE, 1:]).sum())
    delta, weighted = float(audit.sums["delta"]), float(audit.sums["weighted"])
    forms = _sides(short, 2 * delta / C, scale), _sides(weighted, delta, scale * (1 + C))
    yield "slater-run", *forms, f"C = chi = {C:g}"


def _theorems(audit: Audit) -> Iterator[Check]:
    """Sums of prediction errors and the explicit bounds, with the constants of the bonus."""
    ids = _ON_RUNS
    constant = _bounds(audit, "printed", Constants())[0].numbers
    least = constant.get("C4", constant.get("C1", math.nan))
    if not least > 0:
        for id in ids:
            yield id, None, None, "no constant of the paper follows from the learner's bonus"
        return
    followed = Constants.followed(least, least)
    printed, repaired = (_bounds(audit, form, followed) for form in ("printed", "repaired"))
    source = "constants follow from the learner's bonus (Constants.followed)"
    scale = float(audit.world.H * audit.world.M)
    left = _errors(audit)
    forms = [_sides(left, _windowed(pair[0]), scale) for pair in (printed, repaired)]
    yield ids[0], forms[0], forms[1], source
    if isinstance(audit.knowledge, Slater):
        yield ids[1], None, None, "stated for local budgets"
    else:
        left = float((-audit.terms[IOTA_PATH, 1:]).max())
        rights = [_windowed(pair[1], "utilities") for pair in (printed, repaired)]
        yield ids[1], _sides(left, rights[0], scale), _sides(left, rights[1], scale), source
    lefts = (audit.regret, float(np.maximum(audit.total("b") - audit.terms[VALUE, 1:], 0).max()))
    for i in range(2):
        caveats = "; ".join(repaired[i].reasons)
        note = f"repaired form not proved for this learner: {caveats}" if caveats else source
        forms = [_sides(lefts[i], pair[i].total, scale) for pair in (printed, repaired)]
        yield ids[2 + i], forms[0], forms[1], note


def _windowed(bound: Bound, of: str = "") -> float:
    """The terms of a bound that stand for prediction errors, of the utilities if so asked."""
    names = ["drift of transitions in windows", "drift of rewards and utilities in windows"]
    wanted = [f"estimation of {of}", *(f"{name}, {of}" for name in names)]
    return sum(t.value for t in bound.terms if t.name in (wanted if of else ["estimation", *names]))


def _bounds(audit: Audit, form: str, constants: Constants) -> tuple[Bound, Bound]:
    agent = audit.agent
    return bounds(
        agent.sizes,
        audit.knowledge,
        audit.budgets,
        agent.parameters,
        dimensions=audit.dimensions,
        form=form,
        p=audit.p,
        constants=constants,
    )
