"""Certificates of a run: one statement of the paper each, with the numbers of the run put in.

Identities are given by their largest residual, relative to the size of their terms. Inequalities
are given by their slack, right side minus left side: the smallest one, where it occurs, and
quartiles over episodes. A statement "with probability 1 - p" is about an event; on one run the
event occurs or not, and the share of places where it does not is given. A statistic is an event
that fails on an honest run with the probability `info["false_alarm"]` at most.

`theory.statements` says what each certificate states, `theory.certificate_rules` computes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["Certificate", "Certificates", "Form", "Place"]

HOLDS, FAILS, PRINTED_FAILS, REPAIRED_FAILS, SKIPPED, NOT_CLAIMED = (
    "holds",
    "fails",
    "fails as printed, holds as repaired",
    "holds as printed, fails as repaired",
    "does not apply",
    "not claimed in this mode",
)


class Place(NamedTuple):
    """Where a check is tightest: episode, step, state, action, from 0; None where it has none."""

    m: int | None
    h: int | None = None
    x: int | None = None
    a: int | None = None


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

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> found = sd.certify(world, sd.PROPDPPO.for_problem(world, sd.Slater(gamma=0.2)))
    >>> found["dual-step"].printed.holds, found["dual-step"].printed.slack
    (True, 0.0)
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

    `kind` is "identity", "inequality", "probability", "statistic" or "algebra".
    `printed` is None where the statement does not apply, `repaired` where the paper's needs no
    repair. `claimed` is False where the learner's mode gives up the statement's premise: that it
    fails is then no news, and is not called a failure.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> found = sd.certify(world, sd.PROPDPPO.for_problem(world, sd.Slater(gamma=0.2)))
    >>> one = found["dual-step"]
    >>> one.kind, one.result
    ('identity', 'holds')
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
    claimed: bool = True

    @property
    def result(self) -> str:
        """What the run says about the statement."""
        found = self._outcome
        return NOT_CLAIMED if not self.claimed and found != HOLDS else found

    @property
    def _outcome(self) -> str:
        """What the run says, whoever claims it."""
        if self.printed is None:
            return SKIPPED
        if self.repaired is None:
            return HOLDS if self.printed.holds else FAILS
        if self.printed.holds:
            return HOLDS if self.repaired.holds else REPAIRED_FAILS
        return PRINTED_FAILS if self.repaired.holds else FAILS


@dataclass(frozen=True)
class Certificates:
    """All certificates of a run. Iterate, or ask for one by its id: `found["dual-step"]`.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> found = sd.certify(world, sd.PROPDPPO.for_problem(world, sd.Slater(gamma=0.2)))
    >>> found.identities_hold, "dual-step" in [one.id for one in found]
    (True, True)
    """

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
        """Whether all identities hold: if not, the learner is not the paper's."""
        return all(item.result != FAILS for item in self.items if item.kind == "identity")

    @property
    def statistics_hold(self) -> bool:
        """Whether the draws fit: if not, the run did not act, step or observe as it says."""
        return all(item.result != FAILS for item in self.items if item.kind == "statistic")

    @property
    def summary(self) -> str:
        """How many statements hold, fail, or fail as printed only."""
        results = (HOLDS, PRINTED_FAILS, REPAIRED_FAILS, FAILS, NOT_CLAIMED, SKIPPED)
        counts = {result: sum(c.result == result for c in self.items) for result in results}
        parts = "; ".join(f"{result}: {n}" for result, n in counts.items() if n)
        return f"{len(self.items)} statements. {parts}."

    def rows(self) -> list[tuple[str, str, str, str, str, str]]:
        """Rows (id, in the paper, kind, result, smallest slack, where) for a table."""
        return [
            (c.id, c.label, c.kind, c.result, _slack(c), _where(c.repaired or c.printed))
            for c in self.items
        ]

    def __str__(self) -> str:
        head = ("statement", "kind", "result", "slack (printed | repaired)", "where")
        rows = [head, *((id, *rest) for id, _, *rest in self.rows())]
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
            Certificate(
                **{**item, "printed": form(item["printed"]), "repaired": form(item["repaired"])}
            )
            for item in (
                {k: v for k, v in c.items() if k != "result"} for c in data["certificates"]
            )
        )
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
        **vars(item),
        "printed": form(item.printed),
        "repaired": form(item.repaired),
        "result": item.result,
    }


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
