"""The section of a page on the paper's lemmas: each certificate of the run with its slack."""

from __future__ import annotations

from html import escape

from safedrift.reports.html import math, table
from safedrift.theory.certificates import Certificate, Certificates, Form

__all__ = ["LEMMA_STYLE", "lemma_section"]

_MARKS = {
    "holds": "good",
    "fails": "bad",
    "fails as printed, holds as repaired": "repaired",
    "holds as printed, fails as repaired": "bad",
    "does not apply": "idle",
    "not claimed in this mode": "idle",
}


def lemma_section(found: Certificates) -> str:
    """Return the HTML of the section."""
    head = ("Statement", "Result", "As printed", "As repaired")
    rows = [(_statement(c), _result(c), _form(c.printed, c), _form(c.repaired, c)) for c in found]
    return (
        '<section>\n<h2 id="lemmas">The paper\'s lemmas on this run</h2>\n'
        f'<p class="quiet">{escape(found.summary)} Identities: largest residual, relative. '
        "Inequalities: slack, right side minus left side; the smallest one, its place (episode m, "
        "step h, state x, action a, from 0), and where there is one per episode, the quartiles of "
        "the smallest slacks. Statements with probability 1 − p speak of an event: it occurred on "
        "this run or it did not. Statistics: log(1/false alarm) minus the largest log wealth of "
        "bets against the run; an honest run fails with the false-alarm probability at most "
        f"({found.info.get('false_alarm', 0):g}).</p>\n"
        f"{table(head, rows, 'lemmas')}\n</section>"
    )


def _statement(c: Certificate) -> str:
    erratum = f" Errata {escape(c.erratum)}." if c.erratum else ""
    note = f'<br><span class="quiet">{escape(c.note)}</span>' if c.note else ""
    return (
        f"<b>{math(c.label)}</b> <code>{escape(c.id)}</code><br>{math(c.words)} ({c.kind})."
        f'{erratum}<br><span class="maths">{math(c.maths)}</span>{note}'
    )


def _result(c: Certificate) -> str:
    return f'<span class="{_MARKS[c.result]}">{escape(c.result)}</span>'


def _form(form: Form | None, c: Certificate) -> str:
    if form is None:
        return ""
    lines = [f"<b>{_number(form.slack)}</b>"]
    if form.left is not None and form.right is not None:
        sign = "=" if c.kind == "identity" else "≤"
        lines.append(f"{_number(form.left)} {sign} {_number(form.right)}")
    if form.place.m is not None:
        names = zip(("m", "h", "x", "a"), form.place, strict=True)
        lines.append(", ".join(f"{name} = {at:,}" for name, at in names if at is not None))
    if form.quantiles is not None:
        lines.append("quartiles " + ", ".join(map(_number, form.quantiles[1:4])))
    if form.share > 0:
        lines.append(f"fails at {100 * form.share:.2g}% of the places")
    return "<br>".join(lines)


def _number(value: float) -> str:
    return f"{value + 0.0:.3g}".replace("-", "−")


LEMMA_STYLE = """
.lemmas { table-layout: fixed; }
.lemmas th:first-child { width: 48%; }
.lemmas th:nth-child(2) { width: 13%; }
.lemmas td:nth-child(n+3) { font-size: 0.85rem; font-variant-numeric: tabular-nums; }
.lemmas code { color: var(--quiet); font-size: 0.85em; }
.maths { font-family: Georgia, "Times New Roman", serif; }
.good, .bad, .repaired, .idle { border-radius: 3px; padding: 0.1rem 0.4rem; }
.good { background: var(--good-page); color: var(--good); }
.bad { background: var(--bad-page); color: var(--bad); font-weight: 600; }
.repaired { background: var(--repaired-page); color: var(--repaired); }
.idle { background: var(--card); color: var(--quiet); }
sup { font-size: 0.75em; line-height: 0; }
"""
