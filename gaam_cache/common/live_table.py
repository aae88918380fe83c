"""A table on a terminal whose rows change while the work goes on."""

import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gaam_cache.common.messages import visible

if TYPE_CHECKING:
    from rich.table import Table

BAR_LINES = 2  # below the table, and the cursor's own


def is_live(stream: Any) -> bool:
    """Whether a stream is a terminal on which lines can be drawn again."""
    if stream is None or not stream.isatty():
        return False
    return os.environ.get("TERM", "") not in ("dumb", "unknown")


class LiveTable:
    """Rows of text; ``show_progress`` draws them above its bar.

    Args:
        columns: headings.
        numbers: headings of the columns of numbers, which stand on the right.
    """

    def __init__(self, columns: Sequence[str], *, numbers: Sequence[str] = ()) -> None:
        self._columns = columns
        self._numbers = numbers
        # first cell of a row -> all its cells
        self._rows: dict[str, Sequence[str]] = {}
        self._last_changed = ""

    def set_row(self, *cells: str) -> None:
        """Add a row, or replace the one with the same first cell."""
        self._last_changed = cells[0]
        self._rows[cells[0]] = [visible(cell) for cell in cells]

    def print(self) -> None:
        """Print all rows on stdout, to stay there."""
        from rich.console import Console

        Console(file=sys.stdout).print(self._draw([*self._rows.values()]))

    def _draw(
        self, rows: Sequence[Sequence[str]], *, caption: str = "", is_wide: bool = False
    ) -> "Table":
        """A table of some of the rows.

        Args:
            rows: to show.
            caption: a line that says which they are.
            is_wide: as wide as the terminal, so that no column moves when a text does.
        """
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(
            box=box.SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
            show_edge=False,
            caption=caption or None,
            caption_justify="left",
            expand=is_wide,
        )
        for column in self._columns:
            # the last column alone takes what the terminal has left
            is_last = column == self._columns[-1]
            table.add_column(
                column,
                justify="right" if column in self._numbers else "left",
                vertical="bottom",
                no_wrap=not is_last,
                ratio=1 if is_last and is_wide else None,
            )
        for cells in rows:
            texts = [Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells]
            table.add_row(*texts)
        return table

    def __rich_console__(self, console: Any, options: Any) -> Iterator["Table"]:
        """Draw as many rows as the terminal has lines for, around the last changed."""
        # the refreshing thread must not see a dictionary that grows
        rows = [*self._rows.values()]
        names = [*self._rows]
        if not rows:
            return
        heading_lines = 1 + max(column.count("\n") + 1 for column in self._columns)
        most = max(1, console.size.height - heading_lines - BAR_LINES - 1)
        if len(rows) <= most:
            yield self._draw(rows, is_wide=True)
            return
        changed = names.index(self._last_changed)
        first = min(max(0, changed - most // 2), len(rows) - most)
        shown = rows[first : first + most]
        caption = f"{first + 1} to {first + most} of {len(rows)}"
        yield self._draw(shown, caption=caption, is_wide=True)
