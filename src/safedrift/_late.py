"""Methods whose code lives in a room that imports the room of their class.

A page of a `Run` is written by `reports`, which imports `results`, where `Run` is. So `Run` says
that it has a method `report`, the top of the package, which knows all rooms, says where to find it,
and it is loaded when first called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["late_method", "provide"]

_PROVIDERS: dict[str, str] = {}


def provide(methods: Mapping[str, str]) -> None:
    """Say where methods are: {"Run.report": "safedrift.reports:report"}."""
    _PROVIDERS.update(methods)


def late_method(name: str, summary: str) -> Callable[..., Any]:
    """Return a method that calls the function provided for it, the object first."""

    def method(self: Any, *arguments: Any, **options: Any) -> Any:
        module, _, function = _PROVIDERS[name].partition(":")
        return getattr(import_module(module), function)(self, *arguments, **options)

    method.__name__, method.__qualname__, method.__doc__ = name.rpartition(".")[2], name, summary
    return method
