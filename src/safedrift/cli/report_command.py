"""`safedrift report`: the page of a stored run, made again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from safedrift.cli.shared import UsageError, err, friendly_errors, read_run


def report(
    source: Annotated[Path, typer.Argument(help="A run's folder or a file of Run.to_parquet.")],
    out: Annotated[Path | None, typer.Option(help="Where to write the page.")] = None,
) -> None:
    """Make the HTML page of a stored run again."""
    from safedrift.results.run_folders import add_file

    with friendly_errors():
        found, folder = read_run(source)
        known = _certificates(folder / "certificates.json")
        if known is not None and known.info.get("run") != found.digest:
            err.print("certificates.json is of another run and left out; certify this one again")
            known = None
        page = found.report(out or folder / "report.html", known)
        if out is None:
            add_file(page)
        Console().print(str(page), markup=False, highlight=False, soft_wrap=True)


def _certificates(path: Path) -> Any:
    """What `safedrift certify` left beside a run, if anything."""
    from safedrift.theory import Certificates

    if not path.is_file():
        return None
    try:
        found = Certificates.from_record(json.loads(path.read_text(encoding="utf-8")))
        str(found)  # whether all that is shown is there
        return found
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UsageError(
            f"{path} must be what 'safedrift certify' wrote; got another file"
        ) from None
