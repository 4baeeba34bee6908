"""HTML of tables and formulas."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["math", "math_parts", "table"]

_RAISED = re.compile(r"_(?:\{(.+?)\}|(\w|\*))|\^(?:\{(.+?)\}|(-?\w))")


def math(text: str) -> str:
    """Return the HTML of a text with subscripts _x, _{…} and superscripts ^x, ^{…}."""
    return "".join(
        f"<{tag}>{escape(part)}</{tag}>" if tag else escape(part) for tag, part in math_parts(text)
    )


def math_parts(text: str) -> list[tuple[str, str]]:
    """Return such a text as plain parts, each with its tag: "sub", "sup", or "" for none.

    Examples
    --------
    >>> from safedrift.reports.html import math_parts
    >>> math_parts("V_r*[m] ≤ H^2")
    [('', 'V'), ('sub', 'r'), ('', '*[m] ≤ H'), ('sup', '2')]
    """
    parts, at = [], 0
    for found in _RAISED.finditer(text):
        low, high = found[1] or found[2], found[3] or found[4]
        parts += [("", text[at : found.start()]), ("sub", low) if low else ("sup", high)]
        at = found.end()
    return [(tag, part) for tag, part in [*parts, ("", text[at:])] if part]


def table(head: Sequence[str], rows: Iterable[Iterable[str]], name: str = "") -> str:
    """Return the HTML of a table whose cells are HTML.

    One that is called "labelled" repeats its head beside every cell on a phone.
    """
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    names = [f' data-label="{cell}"' if "labelled" in name else "" for cell in head]
    body = "\n".join(
        f"<tr>{''.join(f'<td{n}>{cell}</td>' for n, cell in zip(names, row, strict=True))}</tr>"
        for row in rows
    )
    kind = f' class="{name}"' if name else ""
    return f"<table{kind}>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
