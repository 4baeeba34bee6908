"""HTML pages of stored runs, and pictures of worlds. Nothing is simulated or solved here."""

from safedrift.reports.page import write_page

__all__ = ["write_page"]
