"""Where rows come from; a file in this folder is a source."""

from gaam_cache.sources.base import Rows, Source, Texts, find_source
from gaam_cache.sources.rows.holdout import held_out_groups, held_out_rows
from gaam_cache.sources.rows.limit import rows_within_limit

__all__ = [
    "Rows",
    "Source",
    "Texts",
    "find_source",
    "held_out_groups",
    "held_out_rows",
    "rows_within_limit",
]
