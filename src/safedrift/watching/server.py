"""The page on a port of this machine: 127.0.0.1 only."""

from __future__ import annotations

import errno
import os
import socket
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path

import uvicorn

from safedrift import _check
from safedrift.watching.app import make_app
from safedrift.watching.watcher import Watcher

__all__ = ["PORT", "make_server", "open_port", "serve"]

ADDRESS = "127.0.0.1"
PORT = 8470
_GRACE = 1  # seconds for answers under way when it is stopped


def serve(folder: Path, port: int | None, *, open_page: bool, tell: Callable[[str], None]) -> None:
    """Serve the page of a folder until Ctrl-C.

    Parameters
    ----------
    port
        0 takes any that is free; None `PORT`, or any if that is taken.
    open_page
        Show it in a browser, where there is a screen.
    tell
        Called with the address.
    """
    listening = open_port(port)
    address = f"http://{ADDRESS}:{listening.getsockname()[1]}/"
    tell(address)
    if open_page and _has_screen():
        webbrowser.open(address)  # waits in the queue of the port until it is served
    try:
        make_server(folder).run(sockets=[listening])
    except KeyboardInterrupt:
        return
    finally:
        listening.close()


def make_server(folder: Path) -> uvicorn.Server:
    """Return a server of the page of a folder; `run(sockets=[...])` runs it."""
    app = make_app(Watcher(folder))
    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=_GRACE,
        )
    )


def open_port(port: int | None) -> socket.socket:
    """Return a socket that listens on a port of 127.0.0.1; one sentence if it is taken."""
    if port is None:
        try:
            return open_port(PORT)
        except ValueError:
            return open_port(0)
    port = _check.integer("--port", port, lower=0, upper=65535)
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if os.name == "posix":
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((ADDRESS, port))
        found.listen(128)
    except OSError as error:
        found.close()
        why = "one in use" if error.errno == errno.EADDRINUSE else error.strerror
        _check.fail("--port", "a free port (0 takes any)", f"{port}, {why}")
    return found


def _has_screen() -> bool:
    """Whether a browser can be shown."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
