"""Where plain data differ: to say why a run or a study is not the one in a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

__all__ = ["differences"]


def differences(old: Any, new: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield every place where plain data differ, with both values.

    Examples
    --------
    >>> from safedrift.experiments.differences import differences
    >>> list(differences({"seeds": 5, "a": [1, {"b": 2}]}, {"seeds": 6, "a": [1, {"b": 2}, 3]}))
    [('seeds', 5, 6), ('a[2]', None, 3)]
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            inner = f"{name}.{key}" if name else str(key)
            yield from differences(old.get(key), new.get(key), inner)
    elif isinstance(old, list) and isinstance(new, list):
        for i in range(max(len(old), len(new))):
            one, other = (x[i] if i < len(x) else None for x in (old, new))
            yield from differences(one, other, f"{name}[{i}]")
    elif json.dumps(old, sort_keys=True) != json.dumps(new, sort_keys=True):
        yield name or "value", old, new
