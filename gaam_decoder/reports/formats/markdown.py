"""Write a report as Markdown, for an issue, a README or a notebook."""

from collections.abc import Sequence
from typing import TextIO

from gaam_cache.common.markdown import escape_markdown, pipe_table
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.rendering import render
from gaam_decoder.reports.table import Format, Table

ALIASES = ("md",)


class Markdown(Format):
    """Pipe tables as GitHub reads them."""

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the tables, each under its title."""
        page = render(
            "report.md",
            tables,
            escape_markdown,
            section=self.section,
            columns=self.columns,
            sections_over_sets=self.sections_over_sets,
            with_sections=self.shows_sections,
            pipe=pipe,
        )
        stream.write(page)


def pipe(sheet: Sheet) -> str:
    """Write a table as GitHub reads it."""
    return "\n".join(pipe_table(sheet.header, sheet.lines, sheet.text_headers))
