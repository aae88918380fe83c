"""Where rows come from; a file in this folder is a source."""

from gaam_cache.sources.base import Rows, Source, Texts, find_source
from gaam_cache.sources.rows.holdout import held_out, held_out_groups
from gaam_cache.sources.rows.limit import limited

__all__ = [
    "Rows",
    "Source",
    "Texts",
    "find_source",
    "held_out",
    "held_out_groups",
    "limited",
]
