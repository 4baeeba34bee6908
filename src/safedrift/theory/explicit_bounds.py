"""Right-hand sides of Theorems 1 to 4 before Õ, term by term.

A bound on DR(M) or CV(M) is vacuous while it is at least H·M, which both never exceed. `bounds`
evaluates the last explicit inequality of each proof at the parameters of a learner, term by term
(`safedrift.theory.bound_terms` has the formulas). `safedrift.theory.rates` has the Õ expressions.

Where the paper is not explicit
-------------------------------
- C_1 to C_6 are never named. The default 1 is the smallest reading, not a proof: from C_1 and C_4,
  those of the bonuses, follow C_2 = C_3 = 4√2 C_1 and C_5 = C_6 = 8 C_4 (`Constants.followed`).
- The violation proofs of Theorems 1 and 3 insert the parameters before they maximise over μ. Taken
  here: the maximum for any parameters, R1 + 2√(A0 R0), with 1/(2η) in A0, which the paper drops.
- The multipliers enter the regret proofs as Σ(αH² + ηξ² - ξ)|μ^m|² and are dropped. Taken here: 0
  where the coefficient is not positive, otherwise |μ^m| ≤ μ̄ (`Setting.multiplier`).
- The proofs of Theorems 2 and 4 go from the multipliers to the violation through a lemma only.
  Taken here: 2δ/χ with all terms of δ that the displays have, plus χ²/(2η) + ηH²M/2.
- Each violation bound uses three events of probability 1 - p/2: it holds with 1 - 3p/2, not 1 - p.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from safedrift import _check
from safedrift.knowledge import Budgets, Dimensions, Knowledge, LocalBudgets, Sizes, Slater
from safedrift.learners.propd_ppo.parameters import Parameters, descent_constant, total_budgets
from safedrift.theory.bound_terms import (
    Constants,
    Setting,
    Steps,
    Term,
    regret_terms,
    violation_terms,
)
from safedrift.theory.caveats import bonus_constant, caveats_of

__all__ = ["FORMS", "QUANTITIES", "Bound", "Row", "bounds", "table"]

QUANTITIES = ("regret", "violation")
FORMS = ("printed", "repaired")


@dataclass(frozen=True)
class Bound:
    """An explicit bound on DR(M) or CV(M).

    Parameters
    ----------
    proved
        Whether DR or CV is at most `total` by the paper's proof with the corrections of `form`,
        with the constants C_2, C_3, C_5 and C_6 as given.
    reasons
        What stands against that, one sentence each.
    numbers
        The values of the symbols in the formulas: the learner's parameters, c and μ̄ ("mu_bar"); and
        what the learner's bonus makes of C_1 or C_4, the arguments of `Constants.followed`.

    Examples
    --------
    >>> import safedrift as sd
    >>> sizes, gap = sd.Sizes(M=100_000, H=5, S=5, A=3, K=1), sd.Slater(0.5)
    >>> drift = sd.Budgets(P=1.0, r=1.0, g=1.0, star=1.0)
    >>> used = sd.theorem4(sizes, gap, drift, mode="printed")
    >>> regret, violation = sd.theory.bounds(sizes, gap, drift, used)
    >>> regret.quantity, regret.ceiling, regret.vacuous
    ('regret', 500000.0, True)
    """

    theorem: str
    quantity: str
    form: str
    terms: tuple[Term, ...]
    ceiling: float
    proved: bool
    reasons: tuple[str, ...]
    numbers: dict[str, float]

    @property
    def total(self) -> float:
        """The sum of the terms."""
        return float(sum(term.value for term in self.terms))

    @property
    def vacuous(self) -> bool:
        """Whether `total` is at least H·M, which no learner exceeds."""
        return not self.total < self.ceiling

    @property
    def largest(self) -> Term:
        """The term that makes the bound what it is."""
        return max(self.terms, key=lambda term: term.value)


class Row(NamedTuple):
    """One line of a table: a term, its value, its share of the total, and its formula.

    Examples
    --------
    >>> import safedrift as sd
    >>> sizes, gap = sd.Sizes(M=100_000, H=5, S=5, A=3, K=1), sd.Slater(0.5)
    >>> drift = sd.Budgets(P=1.0, r=1.0, g=1.0, star=1.0)
    >>> used = sd.theorem4(sizes, gap, drift, mode="printed")
    >>> regret, _ = sd.theory.bounds(sizes, gap, drift, used)
    >>> sd.theory.table(regret)[0].term
    'estimation'
    """

    term: str
    value: float
    share: float
    formula: str


def bounds(
    sizes: Sizes,
    knowledge: Knowledge,
    budgets: Budgets,
    parameters: Parameters,
    *,
    dimensions: Dimensions | None = None,
    form: str = "printed",
    p: float = 0.05,
    constants: Constants | None = None,
) -> tuple[Bound, Bound]:
    """Bound DR(M) and CV(M) of a learner, term by term.

    Parameters
    ----------
    knowledge
        With `dimensions` it says which theorem: 1 and 3 local budgets, 2 and 4 a Slater gap.
    budgets
        In the paper's norms (`safedrift.budgets(world)`, whose B_* is subject to errata E11).
    parameters
        What the learner really uses, of any mode and with any overrides.
    dimensions
        Of the features, for Theorems 1 and 2; None is the tabular setting.
    form
        "printed", or "repaired" with what the displays lose (see `safedrift.theory.bound_terms`).

    Examples
    --------
    With 100,000 episodes the printed bound of Theorem 4 exceeds H M = 500,000, so it is vacuous:

    >>> import safedrift as sd
    >>> sizes, gap = sd.Sizes(M=100_000, H=5, S=5, A=3, K=1), sd.Slater(0.5)
    >>> drift = sd.Budgets(P=1.0, r=1.0, g=1.0, star=1.0)
    >>> used = sd.theorem4(sizes, gap, drift, mode="printed")
    >>> regret, violation = sd.theory.bounds(sizes, gap, drift, used)
    >>> regret.vacuous, f"{regret.total:.3g}", regret.largest.name
    (True, '6.82e+06', 'estimation')
    """
    check_problem(sizes, knowledge, budgets, dimensions)
    _check.kind("parameters", parameters, Parameters)
    dual = parameters.dual
    if isinstance(knowledge, Slater) and math.isinf(dual.chi):
        _check.fail("parameters.dual.chi", "finite under a Slater gap", dual.chi)
    steps = Steps(
        parameters.improvement.alpha,
        parameters.improvement.L,
        dual.eta,
        dual.xi,
        dual.chi,
        parameters.evaluation.W,
    )
    setting = setting_of(
        sizes.known_M(),
        sizes,
        knowledge,
        budgets,
        steps,
        dimensions,
        form,
        p,
        constants,
        summed_lv=parameters.mode == "printed",
    )
    numbers = setting.steps._asdict()
    numbers |= {"c": descent_constant(sizes.H), "mu_bar": setting.multiplier}
    numbers["C1" if dimensions is not None else "C4"] = bonus_constant(setting, parameters)
    theorem = f"Theorem {_theorem(knowledge, dimensions)}"
    both = []
    for quantity in QUANTITIES:
        against = caveats_of(setting, parameters, knowledge, quantity)
        found = tuple(terms_of(setting, quantity))
        ceiling = float(sizes.H * sizes.known_M())
        both.append(Bound(theorem, quantity, form, found, ceiling, not against, against, numbers))
    return both[0], both[1]


def table(bound: Bound) -> list[Row]:
    """Rows for printing: the terms from large to small, their total, and H·M.

    Examples
    --------
    >>> import safedrift as sd
    >>> sizes, gap = sd.Sizes(M=100_000, H=5, S=5, A=3, K=1), sd.Slater(0.5)
    >>> drift = sd.Budgets(P=1.0, r=1.0, g=1.0, star=1.0)
    >>> used = sd.theorem4(sizes, gap, drift, mode="printed")
    >>> regret, _ = sd.theory.bounds(sizes, gap, drift, used)
    >>> [row.term for row in sd.theory.table(regret)][-2:]
    ['total', 'ceiling']
    """
    _check.kind("bound", bound, Bound)
    total, ordered = bound.total, sorted(bound.terms, key=lambda term: -term.value)
    endless = sum(math.isinf(term.value) for term in ordered)
    rows = []
    for term in ordered:
        if endless:
            share = 1 / endless if math.isinf(term.value) else 0.0
        else:
            share = term.value / total if total > 0 else 0.0
        rows.append(Row(term.name, term.value, share, term.formula))
    verdict = "vacuous" if bound.vacuous else "non-vacuous"
    return [
        *rows,
        Row("total", total, 1.0, f"{bound.theorem}, {bound.quantity}, {bound.form}: {verdict}"),
        Row("ceiling", bound.ceiling, bound.ceiling / total if total > 0 else math.inf, "H M"),
    ]


# ---------------------------------------------------------------- small things


def _theorem(knowledge: Knowledge, dimensions: Dimensions | None) -> int:
    return (1 if dimensions is not None else 3) + isinstance(knowledge, Slater)


def terms_of(setting: Setting, quantity: str) -> list[Term]:
    return regret_terms(setting) if quantity == "regret" else violation_terms(setting)


def setting_of(
    M: float,
    sizes: Sizes,
    knowledge: Knowledge,
    budgets: Budgets,
    steps: Steps,
    dimensions: Dimensions | None,
    form: str,
    p: float,
    constants: Constants | None,
    *,
    summed_lv: bool = True,
) -> Setting:
    _check.choice("form", form, FORMS)
    _check.positive("p", p, upper=1.0, closed=False)
    constants = Constants() if constants is None else _check.kind("constants", constants, Constants)
    for name, value in vars(constants).items():
        _check.positive(name, value)
    return Setting(
        float(M),
        sizes.H,
        sizes.S,
        sizes.A,
        sizes.K,
        budgets,
        Steps(*map(float, steps)),
        isinstance(knowledge, Slater),
        form == "repaired",
        dimensions,
        p,
        constants,
        summed_lv,
    )


def check_problem(
    sizes: Sizes, knowledge: Knowledge, budgets: Budgets, dimensions: Dimensions | None
) -> None:
    for name, size in _check.kind("sizes", sizes, Sizes)._asdict().items():
        _check.integer(name, size)
    _check.kind("knowledge", knowledge, (Slater, LocalBudgets))
    total_budgets(_check.kind("budgets", budgets, Budgets), sizes.known_M(), floored=False)
    if dimensions is not None:
        _check.kind("dimensions", dimensions, Dimensions).check()
