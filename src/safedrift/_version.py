"""The version, kept in results."""

__version__ = "0.2.0"
