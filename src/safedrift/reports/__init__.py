"""HTML pages of stored runs, and pictures of worlds. Nothing is simulated or solved here."""

from safedrift.reports.page import report

__all__ = ["report"]
