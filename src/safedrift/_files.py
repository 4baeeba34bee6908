"""Files that are written whole or not at all, and their SHA-256.

A file is written under a temporary name in its own folder, synced, and renamed: whoever reads the
name sees the old file or the new one. The temporary name is new each time and never an existing
file or link, so nothing outside the folder is written, and two writers cannot mix their bytes.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from safedrift import _check

__all__ = [
    "file_digest",
    "is_partial",
    "open_plain_file",
    "plain_file",
    "remove_partial_files",
    "write_text",
    "write_whole",
]

PARTIAL = ".partial"
_PARTIAL_NAME = re.compile(r".+\.[0-9a-f]{8}\.partial")
_BLOCK = 2**20  # bytes read at once


def write_whole(path: str | os.PathLike[str], write: Callable[[IO[bytes]], None]) -> Path:
    """Write a file under a temporary name in the same folder, then rename it.

    What was there before stays until the new file is on disk. An OSError names the file.
    """
    target = Path(path)
    if target.is_dir() or not target.parent.is_dir():
        _check.fail("file", "a file in an existing folder", target)
    partial = target.with_name(f"{target.name}.{secrets.token_hex(4)}{PARTIAL}")
    try:
        with open(partial, "x+b") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
        _sync_folder(target.parent)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OSError(f"{target} cannot be written: {error.strerror or error}") from error
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return target


def _sync_folder(folder: Path) -> None:
    """Make a rename outlive a loss of power, where folders can be synced."""
    if os.name != "posix":
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write a text in UTF-8, whole or not at all."""
    data = text.encode()

    def write(file: IO[bytes]) -> None:
        file.write(data)

    return write_whole(path, write)


def strict_json(value: Any) -> Any:
    """Return data that strict JSON can hold: None for NaN and infinity, keys as texts."""
    if isinstance(value, dict):
        return {str(key): strict_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def is_partial(path: Path) -> bool:
    """Whether a file has the name of one that a writer has not finished."""
    return _PARTIAL_NAME.fullmatch(path.name) is not None


def remove_partial_files(folder: Path) -> None:
    """Remove what writers that were killed have left in a folder."""
    for path in folder.iterdir():
        if is_partial(path) and not path.is_dir():
            path.unlink(missing_ok=True)


def plain_file(path: Path) -> bool:
    """Whether there is a file of this name that is no link to another one."""
    return path.is_file() and not path.is_symlink()


def open_plain_file(path: Path) -> IO[bytes]:
    """Open a file to be read; links and pipes, which might lead elsewhere or never end, are not."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    number = os.open(path, flags | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(f"{path} must be a plain file")
    return open(number, "rb")


def file_digest(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return found.hexdigest()
