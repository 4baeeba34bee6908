"""Compiled loops: arrays in, arrays out.

Numba keys its on-disk cache on the file of the function alone, not on the files of the compiled
functions it calls. So that a changed callee is never run in its old form, the cache is emptied here
whenever the sources of this package differ from those it was made from. Where the cache lies
(`NUMBA_CACHE_DIR`, `__pycache__`, or a folder of the user where neither can be written) is Numba's
decision, so Numba is asked.
"""

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import numba

_ROOT = Path(__file__).resolve().parent
_STAMP = "safedrift-kernels.sha256"


def _probe() -> None:
    """A function to ask with; it is never compiled."""


def _cache_folder(file: Path) -> Path | None:
    """Where Numba keeps what it compiles from a source file, or None where it keeps nothing."""
    code = _probe.__code__.replace(co_filename=str(file))
    try:
        place = numba.njit(cache=True)(FunctionType(code, {})).stats.cache_path
        return None if place is None else Path(place)
    except Exception:  # no place to write, compilation switched off, or another Numba
        return None


def _cache_folders(root: Path) -> Iterator[tuple[Path, list[Path]]]:
    """Each folder of the cache with the source files it is for."""
    for source in sorted({path.parent for path in root.rglob("*.py")}):
        files = sorted(source.glob("*.py"))
        folder = _cache_folder(files[0])
        if folder is not None:
            yield folder, files


def _entries(folder: Path, module: str, function: str = "*") -> Iterator[Path]:
    """The index files of compiled functions of a module."""
    return folder.glob(f"{module}.{function}-*.nbi")


def _drop_stale_cache(root: Path) -> None:
    """Empty the cache of the package at `root`, and nothing else, if its sources have changed."""
    sources = sorted(root.rglob("*.py"))
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    for folder, files in _cache_folders(root):
        with contextlib.suppress(OSError):  # somebody else's to write
            stamp = folder / _STAMP
            if stamp.is_file() and stamp.read_text() == digest:
                continue
            for file in files:
                for entry in _entries(folder, file.stem):
                    entry.unlink(missing_ok=True)
            stamp.write_text(digest)


_drop_stale_cache(_ROOT)


def compiled(entry: str) -> bool:
    """Whether a function is in the cache, so that a first run need not compile it.

    Parameters
    ----------
    entry
        Module, from this package on, and function: "tabular.propd_ppo.end".
    """
    module, _, function = entry.rpartition(".")
    file = _ROOT.joinpath(*module.split(".")).with_suffix(".py")
    folder = _cache_folder(file)
    return folder is not None and any(_entries(folder, file.stem, function))
