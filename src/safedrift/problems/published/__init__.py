"""Worlds of published experiments, rebuilt from their specifications; see `docs/published.md`.

Each module has `PUBLISHED`: how many episodes and runs the authors had, and how their numbers
follow from values here.
"""
