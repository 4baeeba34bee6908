"""The command `safedrift`: run a learner in a world, look at it, read about the worlds.

One module per command; `shared` has what they have in common.
"""

from __future__ import annotations

import typer

from safedrift.cli.certify_command import certify
from safedrift.cli.problems_command import problems
from safedrift.cli.report_command import report
from safedrift.cli.run_command import run
from safedrift.cli.theory_command import theory

__all__ = ["app", "main"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Safe reinforcement learning in a world that drifts.",
)
for command in (run, problems, report, certify, theory):
    app.command()(command)


def main() -> None:
    """Entry point of the command."""
    app()
