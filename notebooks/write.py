"""Write the notebooks from the tutorials: `python notebooks/write.py`.

The tutorials in docs/tutorials are the source. Their Python becomes code cells without outputs,
everything else becomes text, and links are those that lead to the same files from here.
"""

import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TUTORIALS = HERE.parent / "docs" / "tutorials"


def notebook(text: str) -> dict[str, Any]:
    """Return the notebook of a page, in the format of Jupyter."""
    parts = re.split(r"```python\n(.*?)```\n", text, flags=re.DOTALL)
    cells = [
        _code(part, i) if i % 2 else _text(part, i) for i, part in enumerate(parts) if part.strip()
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _code(source: str, i: int) -> dict[str, Any]:
    cell = {"cell_type": "code", "id": f"cell-{i}", "metadata": {}, "source": _lines(source)}
    return cell | {"execution_count": None, "outputs": []}


def _text(source: str, i: int) -> dict[str, Any]:
    moved = re.sub(r"\]\(\.\./(?!\.\./)", "](../docs/", source)  # docs/tutorials/.. is docs
    moved = re.sub(r"\]\(\.\./\.\./", "](../", moved)
    return {"cell_type": "markdown", "id": f"cell-{i}", "metadata": {}, "source": _lines(moved)}


def _lines(source: str) -> list[str]:
    return source.strip("\n").splitlines(keepends=True)


def written(page: Path) -> str:
    """Return the text of the notebook of a tutorial."""
    found = notebook(page.read_text(encoding="utf-8"))
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for page in sorted(TUTORIALS.glob("*.md")):
        (HERE / f"{page.stem}.ipynb").write_text(written(page), encoding="utf-8")
