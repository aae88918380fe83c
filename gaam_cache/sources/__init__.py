"""Where rows come from; a file in this folder is a source."""

from gaam_cache.sources._base import Rows, Source, Texts

__all__ = ["Rows", "Source", "Texts"]
