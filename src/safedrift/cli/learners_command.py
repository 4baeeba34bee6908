"""`safedrift learners`: the named learners, their papers and their options."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from safedrift.cli.shared import friendly_errors


def learners(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A learner to read about.")
    ] = None,
) -> None:
    """List the learners that comparisons know by name, or describe one: its paper, its options.

    **Examples**

    - safedrift learners
    - safedrift learners opt-cmdp
    """
    from safedrift.learners import LEARNERS, documentation
    from safedrift.learners import options as options_of

    with friendly_errors():
        console = Console()
        if name is None:
            table = Table(box=None, show_header=False, pad_edge=False)
            for known in LEARNERS:
                table.add_row(known, Text(documentation(known).splitlines()[0], style="dim"))
            console.print(table)
            console.print("\nsafedrift learners NAME says more.", style="dim")
            return
        text = documentation(name)
        console.print(text, markup=False, highlight=False, soft_wrap=True)
        defaults = options_of(name)
        console.print("\nOptions" if defaults else "\nNo options.")
        for option, default in defaults.items():
            shown = "chosen by the learner" if default is None else default
            console.print(f"    {option} = {shown}", markup=False, highlight=False)
