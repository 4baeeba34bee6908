"""Named worlds in Gymnasium's registry, before any of them is loaded."""

from __future__ import annotations

from collections.abc import Iterable

import gymnasium

__all__ = ["VERSION", "register"]

VERSION = 0


def register(names: Iterable[str], entry_point: str) -> None:
    """Register problems as safedrift/NAME-v0; `gymnasium.make` takes their options."""
    for name in names:
        id = f"safedrift/{name}-v{VERSION}"
        if id not in gymnasium.registry:
            gymnasium.register(id, entry_point=entry_point, kwargs={"problem": name})
