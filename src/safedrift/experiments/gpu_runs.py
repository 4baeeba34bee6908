"""Runs on a GPU."""

from __future__ import annotations

from typing import Any

from safedrift._check import FloatArray
from safedrift.gpu.available import require_gpu

__all__ = ["sums_on_gpu"]


def sums_on_gpu(job: Any, progress: Any) -> tuple[FloatArray, str]:
    """Return the sums."""
    require_gpu()
    raise NotImplementedError
