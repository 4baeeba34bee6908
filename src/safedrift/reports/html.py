"""HTML of tables and formulas."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

__all__ = ["math", "table"]


def math(text: str) -> str:
    """Return the HTML of a text with subscripts _x, _{…} and superscripts ^x, ^{…}."""
    text = re.sub(r"_(?:\{(.+?)\}|(\w|\*))", r"<sub>\1\2</sub>", escape(text))
    return re.sub(r"\^(?:\{(.+?)\}|(-?\w))", r"<sup>\1\2</sup>", text)


def table(head: Iterable[str], rows: Iterable[Iterable[str]], name: str = "") -> str:
    """Return the HTML of a table whose cells are HTML."""
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    body = "\n".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in rows)
    kind = f' class="{name}"' if name else ""
    return f"<table{kind}>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
