"""One run at a time in a folder: an empty file `lock`, locked by the process that writes there.

The lock belongs to the process, so it ends with it, however it ends (`flock`). The time of the
file's last change is the heartbeat. Where files cannot be locked (some network drives) a heartbeat
that is younger than a minute counts as a lock.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from threading import Event, Thread

from safedrift import _check
from safedrift._files import open_plain_file

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["LOCK", "FolderLock", "heartbeat_age", "in_use"]

LOCK = "lock"
BEAT = 5.0  # seconds from one heartbeat to the next
ALIVE = 60.0  # seconds without one after which a run counts as dead, where nothing can be locked
_TRIES = 10  # a reader may hold the lock for an instant
_HELD = (errno.EWOULDBLOCK, errno.EACCES)  # by another process


class FolderLock:
    """The lock of a folder, held from `__init__` until `release`.

    Raises
    ------
    ValueError
        If another run holds it.
    OSError
        If the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOCK
        self._number = self._acquire()
        self._stop = Event()
        self._beats = Thread(target=self._beat, daemon=True)
        self._beats.start()

    def _acquire(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        for _ in range(_TRIES):
            age = heartbeat_age(self.path.parent)
            try:
                number = os.open(self.path, flags, 0o644)
            except OSError as error:
                raise OSError(f"{self.path} cannot be written: {error.strerror}") from error
            try:
                if _lock(number, age):
                    if _same_file(number, self.path):
                        os.utime(self._beaten(number))
                        return number
                    os.close(number)  # its owner has finished and removed it just now
                    continue
            except BaseException:
                os.close(number)
                raise
            os.close(number)
            time.sleep(0.02)
        _check.fail("out", "a folder that no other run is using", self.path.parent)

    def _beat(self) -> None:
        while not self._stop.wait(BEAT):
            try:
                os.utime(self._beaten(self._number))
            except OSError:  # a disk that is gone shows itself elsewhere
                return

    def _beaten(self, number: int) -> int | Path:
        """The open file, or its name where the time of an open file cannot be set."""
        return number if os.utime in os.supports_fd else self.path

    def release(self) -> None:
        """Remove the lock; the next run makes a new one."""
        self._stop.set()
        self._beats.join()
        self.path.unlink(missing_ok=True)
        os.close(self._number)


def _lock(number: int, age: float | None) -> bool:
    """Lock an open file, if nobody else has; `age` is that of the last heartbeat."""
    if fcntl is None:
        return not _alive(age)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _HELD and not _alive(age)
    return True


def _alive(age: float | None) -> bool:
    """Whether there is a heartbeat, for files that cannot be locked."""
    return age is not None and age < ALIVE


def _same_file(number: int, path: Path) -> bool:
    """Whether the locked file still has its name."""
    try:
        return os.path.samestat(os.fstat(number), os.lstat(path))
    except FileNotFoundError:
        return False


def in_use(folder: Path) -> bool:
    """Whether a run is being written to a folder at this moment."""
    try:
        file = open_plain_file(folder / LOCK)
    except OSError:
        return False
    number = file.fileno()
    try:
        if fcntl is None:
            return _alive(heartbeat_age(folder))
        fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError as error:
        return error.errno in _HELD or _alive(heartbeat_age(folder))
    finally:
        file.close()


def heartbeat_age(folder: Path) -> float | None:
    """Return seconds since the last heartbeat in a folder; None without one."""
    try:
        return max(0.0, time.time() - os.lstat(folder / LOCK).st_mtime)
    except OSError:
        return None
