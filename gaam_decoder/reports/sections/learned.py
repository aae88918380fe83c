"""Show where the learned parameters of every mechanism ended up."""

from collections.abc import Iterator, Mapping
from typing import Any

from gaam_cache.common.messages import brief
from gaam_decoder.reports.cells import range_cell
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.sections.base import Parts, Section, Writer
from gaam_decoder.reports.table import Table

HEADER = [
    "decoder",
    "parameter",
    "start",
    "min",
    "median",
    "max",
    "sd of seed medians",
]


class Learned(Writer):
    """Ranges of the learned parameters after training."""

    position = 14

    def sections_of(self, table: Table) -> Iterator[Section]:
        """Yield the section if a mechanism has learned parameters to show."""
        lines = []
        for entry in table.shown_entries:
            for name, ranges in entry.parameter_ranges.items():
                lines.append([entry.label, brief(name, 40), *_range_cells(ranges)])
        if lines:
            title = (
                "learned parameters at the start of training; smallest, median and "
                "largest at its end, over heads, features and seeds; an offset has "
                "the unit of the states as the decoder reads them, which it may divide"
            )
            sheet = Sheet(title, HEADER, lines)
            yield Section(
                name="learned",
                heading="Learned parameters",
                make=lambda: Parts(sheets=(sheet,)),
            )


def _range_cells(ranges: Mapping[str, Any]) -> list[str]:
    """Start, minimum, median, maximum and deviation over seeds of one parameter."""
    starts = dict.fromkeys(f"{value:.3g}" for value in ranges["start"] or ())
    cells = [range_cell(" to ".join(starts)) or "-"]
    for key in ("min", "median", "max", "seed_medians_sd"):
        value = ranges[key]
        cells.append("-" if value is None else f"{value:.3g}")
    return cells
