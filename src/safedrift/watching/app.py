"""What is served: one page, its files, and two kinds of JSON.

    GET /                    the page
    GET /api/folders         a row for every run and sweep
    GET /api/folders/{id}    everything that is shown of one; 304 if nothing is new (ETag)

No other method, and no other host name than those of this machine: a web site that has its own name
point here (DNS rebinding) is refused. Files are named here, not in the request. The page may load
nothing but itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from plotly.offline import get_plotlyjs
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from safedrift.watching.watcher import Watcher

__all__ = ["HOSTS", "make_app"]

HOSTS = ("127.0.0.1", "localhost")

# Plotly sets styles inline; scripts come from here only.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_FILES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


def make_app(watcher: Watcher) -> Starlette:
    """Return the application (ASGI) that shows what a watcher sees."""

    def folders(request: Request) -> Response:
        return _json(watcher.overview())

    def folder(request: Request) -> Response:
        seen = request.headers.get("if-none-match", "").strip('"')
        found = watcher.detail(request.path_params["id"], seen)
        if found is None:
            return _json({"problem": "There is no such run any more."}, 404)
        version, shown = found
        tag = {"ETag": f'"{version}"'}
        return Response(status_code=304, headers=tag) if shown is None else _json(shown, 200, tag)

    routes = [
        Route("/api/folders", folders, methods=["GET"]),
        Route("/api/folders/{id}", folder, methods=["GET"]),
        Route("/plotly.js", _constant(get_plotlyjs(), "text/javascript", "private, max-age=3600")),
    ]
    for path, (name, kind) in _FILES.items():
        text = files("safedrift.watching").joinpath("static", name).read_text(encoding="utf-8")
        routes.append(Route(path, _constant(text, kind)))
    middleware = [
        Middleware(_Headers),
        Middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS), www_redirect=False),
    ]
    return Starlette(routes=routes, middleware=middleware)


def _json(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    kept = {"Cache-Control": "no-store", **(headers or {})}
    return Response(text, status, kept, media_type="application/json")


def _constant(text: str, kind: str, kept: str = "no-cache") -> Callable[[Request], Response]:
    """What never changes while the page is served; `kept` says how long a browser keeps it."""
    data = text.encode()

    def get(request: Request) -> Response:
        return Response(data, headers={"Cache-Control": kept}, media_type=kind)

    return get


class _Headers:
    """Adds what keeps the page to itself to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                more = [(k.lower().encode(), v.encode()) for k, v in _HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *more]
            await send(message)

        await self.app(scope, receive, send_with_headers)
