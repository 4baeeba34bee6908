"""Worlds from files: YAML, arrays, or a Python function."""

from safedrift.worldfiles.loading import is_file, load

__all__ = ["is_file", "load"]
