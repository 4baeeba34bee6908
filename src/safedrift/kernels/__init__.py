"""Compiled loops: arrays in, arrays out.

Numba keys its on-disk cache on the file of the function alone, not on the files of the compiled
functions it calls. So that a changed callee is never run in its old form, the cache is emptied here
whenever the sources of this package differ from those it was made from.
"""

import contextlib
import hashlib
from pathlib import Path


def _drop_stale_cache(folder: Path) -> None:
    sources = sorted(folder.rglob("*.py"))
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    stamp = folder / "__pycache__" / "kernels.sha256"
    with contextlib.suppress(OSError):  # a read-only installation does not change
        if not stamp.exists() or stamp.read_text() != digest:
            for entry in folder.rglob("*.nbi"):
                entry.unlink(missing_ok=True)
            stamp.parent.mkdir(exist_ok=True)
            stamp.write_text(digest)


_drop_stale_cache(Path(__file__).parent)


def compiled(entry: str = "simulation.play") -> bool:
    """Whether an entry point is in the cache, so that a first run need not compile it."""
    return any(Path(__file__).parent.rglob(f"{entry}-*.nbi"))
