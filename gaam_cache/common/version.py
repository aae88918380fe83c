"""The version of both packages, which caches, runs and reports record."""

__version__ = "0.3.0"
