"""What a run is played with: time, versions, and the commit of the repository it was started in."""

from __future__ import annotations

import platform
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

__all__ = ["git_commit", "now", "package_versions"]

_PACKAGES = ("numpy", "scipy", "numba", "pyarrow", "gymnasium")


def now() -> str:
    """Return the time, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of what numbers may depend on."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def git_commit() -> str | None:
    """Return the commit of the repository in the current folder, if any."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
