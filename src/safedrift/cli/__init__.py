"""The command `safedrift`: run a learner in a world, compare learners, read about the worlds.

One module per command; `shared` has what they have in common.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from safedrift._version import __version__
from safedrift.cli.certify_command import certify
from safedrift.cli.compare_command import SeveralLearners, compare
from safedrift.cli.demo_command import demo
from safedrift.cli.folder_commands import ls, show, verify
from safedrift.cli.learners_command import learners
from safedrift.cli.problems_command import problems
from safedrift.cli.report_command import report
from safedrift.cli.run_command import run
from safedrift.cli.sweep_command import sweep
from safedrift.cli.theory_command import theory
from safedrift.cli.watch_command import watch

__all__ = ["app", "main"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.command()(run)
app.command(cls=SeveralLearners)(compare)
for command in (
    sweep, watch, demo, ls, show, verify, report, certify, problems, learners, theory,
):  # fmt: skip
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"safedrift {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Safe reinforcement learning in a world that drifts."""
    os.environ["SAFEDRIFT_QUIET"] = "1"  # progress bars say when something is compiled


def main() -> None:
    """Entry point of the command."""
    app(prog_name="safedrift")
