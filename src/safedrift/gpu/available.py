"""What runs can be played on: the cores of this machine, and a GPU that CuPy can use."""

from __future__ import annotations

import importlib
import os
from typing import Any, NamedTuple

__all__ = ["Device", "devices", "require_gpu"]


class Device(NamedTuple):
    """A device for `simulate_many`; `description` says why where it is not available."""

    kind: str
    available: bool
    description: str


def devices() -> tuple[Device, Device]:
    """Return the CPU and the GPU of this machine, or why there is none.

    Examples
    --------
    >>> import safedrift as sd
    >>> [device.kind for device in sd.devices()]
    ['cpu', 'gpu']
    >>> sd.devices()[0].available
    True
    """
    cores = os.cpu_count() or 1
    return Device("cpu", True, f"{cores} core" + ("" if cores == 1 else "s")), _gpu()


def require_gpu() -> Any:
    """Return the module `cupy`; fail with one sentence where there is no GPU."""
    found = _gpu()
    if not found.available:
        raise RuntimeError(f"device must be 'cpu' on this machine; got 'gpu': {found.description}")
    return importlib.import_module("cupy")


def _gpu() -> Device:
    try:
        cupy: Any = importlib.import_module("cupy")
    except Exception as error:  # not installed, or not with this CUDA
        why = "CuPy is not installed (pip install 'safedrift[gpu]')"
        if not isinstance(error, ModuleNotFoundError):
            why = f"CuPy cannot be imported ({_line(error)})"
        return Device("gpu", False, why)
    try:
        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
        free, total = cupy.cuda.runtime.memGetInfo()
    except Exception as error:  # no driver, no card, none that may be used
        return Device("gpu", False, f"CuPy finds no card that it can use ({_line(error)})")
    name = properties["name"].decode()
    gib = [f"{bytes_ / 2**30:.0f}" for bytes_ in (free, total)]
    return Device("gpu", True, f"{name}, {gib[0]} of {gib[1]} GiB of memory free")


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
