"""`safedrift report`: the page of a stored run, comparison or sweep, made again, and figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from safedrift.cli.shared import UsageError, err, friendly_errors, read_run

if TYPE_CHECKING:
    from safedrift.reports.plots import Plot
    from safedrift.results import Comparison

_COMPARISON, _SWEEP = "comparison.parquet", "results.parquet"


def report(
    source: Annotated[
        Path,
        typer.Argument(
            help="The folder of a run, of a comparison or of a sweep, or a file of Run.to_parquet."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Where to write the page.")] = None,
    figures: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write every plot as PDF and PNG for publication."),
    ] = None,
) -> None:
    """Make the HTML page of a stored run, comparison or sweep again.

    **Examples**

    - safedrift report runs/first
    - safedrift report runs/first --figures figures
    - safedrift report sweeps/study --out sweep.html
    """
    with friendly_errors():
        if figures is not None and figures.exists() and not figures.is_dir():
            raise UsageError(f"--figures must be a folder; got the file {figures}")
        found = _comparison(source)
        page = _report_run(source, out, figures) if found is None else None
        if found is not None:
            page = found.report(out or source / "report.html")
            if figures is not None:
                from safedrift.reports.comparison_plots import ranking_plots, world_plots

                _save([*ranking_plots(found), *world_plots(found)], figures)
        Console().print(str(page), markup=False, highlight=False, soft_wrap=True)


def _comparison(source: Path) -> Comparison | None:
    """The comparison in a folder, or the sweep in it as one; None if there is neither."""
    from safedrift.results import Comparison
    from safedrift.results.sweep_comparison import from_sweep

    if (source / _COMPARISON).is_file():
        return Comparison.from_parquet(source / _COMPARISON)
    if (source / _SWEEP).is_file():
        return from_sweep(source / _SWEEP)
    if (source / "study.json").is_file():
        raise UsageError(f"{source} must be a finished sweep; got one without {_SWEEP}")
    return None


def _report_run(source: Path, out: Path | None, figures: Path | None) -> Path:
    from safedrift.results.run_folders import add_file

    found, folder = read_run(source)
    known = _certificates(folder / "certificates.json")
    if known is not None and known.info.get("run") != found.digest:
        err.print("certificates.json is of another run and left out; certify this one again")
        known = None
    page = found.report(out or folder / "report.html", known)
    if out is None:
        add_file(page)
    if figures is not None:
        from safedrift.reports.plots import all_plots

        _save(list(all_plots(found)), figures)
    return page


def _save(plots: list[Plot], folder: Path) -> None:
    from safedrift.reports.figures import save_figures

    files = save_figures(plots, folder)
    text = f"{len(files)} files in {folder}"
    Console().print(text, markup=False, highlight=False, soft_wrap=True)


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
