"""Write a report as one HTML page that loads nothing from the network."""

import html
from collections.abc import Sequence
from itertools import count
from typing import TextIO

from gaam_cache.common.messages import visible
from gaam_decoder.reports.drawing import COLOURS, Picture, inline_svg
from gaam_decoder.reports.rendering import render
from gaam_decoder.reports.table import Format, Table

ALIASES = ("htm", "web")


class Html(Format):
    """A page for a phone, a screen and paper, light and dark."""

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the page."""
        # Every picture has a number, so that ids in the page are unique.
        picture_numbers = count()

        # filters of the template
        def variables(theme: str) -> str:
            return "".join(f"--{k}:{v};" for k, v in COLOURS[theme].items())

        def escape(text: str) -> str:
            return html.escape(visible(text))

        def svg(picture: Picture) -> str:
            return inline_svg(picture, f"p{next(picture_numbers)}")

        page = render(
            "report.html",
            tables,
            escape,
            section=self.section,
            columns=self.columns,
            sections_over_sets=self.sections_over_sets,
            variables=variables,
            svg=svg,
        )
        stream.write(page)
