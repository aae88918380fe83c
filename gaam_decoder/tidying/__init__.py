"""Runs as things that lie somewhere: listed, renamed, moved, removed; none is changed inside."""

from __future__ import annotations

from gaam_decoder.runs.filters import Filters
from gaam_decoder.tidying.listing import list_runs
from gaam_decoder.tidying.moving import moving
from gaam_decoder.tidying.removing import removal, removal_of_unfinished
from gaam_decoder.tidying.renaming import rename
from gaam_decoder.tidying.words import table

__all__ = [
    "Filters",
    "list_runs",
    "moving",
    "removal",
    "removal_of_unfinished",
    "rename",
    "table",
]
