"""Seeing it: pages made from stored results."""

from safedrift.reports.page import write_page

__all__ = ["write_page"]
