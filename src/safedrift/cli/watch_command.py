"""`safedrift watch`: a live page of runs and sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from safedrift.cli.shared import UsageError, err, friendly_errors, sigterm_as_interrupt


def watch(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A run, a sweep, or a folder of them.")
    ],
    port: Annotated[
        int | None,
        typer.Option(help="0 takes any that is free; by default 8470, or any if that is taken."),
    ] = None,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Do not open the page in a browser.")
    ] = False,
) -> None:
    """Show runs and sweeps on a page that follows them while they play.

    The page is served to this machine only (127.0.0.1), until Ctrl-C, and loads nothing from
    elsewhere. Runs that play are shown up to their last second, finished ones with their records,
    damaged ones with what is wrong. Nothing in the folder is changed. Needs the extra 'watch'.

    **Examples**

    - safedrift watch runs
    - safedrift watch sweeps/first --port 9000 --no-open
    """
    with friendly_errors():
        if not folder.is_dir():
            raise UsageError(f"DIR must be a folder of runs; got {folder}")
        try:
            from safedrift.watching.server import serve
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
                raise
            raise UsageError(
                "watch must have the extra 'watch' installed (pip install 'safedrift[watch]'); "
                f"got no module {error.name}"
            ) from None
        with sigterm_as_interrupt():
            serve(folder, port, open_page=not no_open, tell=_tell)


def _tell(address: str) -> None:
    text = f"watching at {address} (Ctrl-C ends it)"
    err.print(text, markup=False, highlight=False, soft_wrap=True)
