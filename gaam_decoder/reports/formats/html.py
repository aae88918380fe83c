"""One self-contained page: the table, pictures, sections. It asks nothing of any network."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from itertools import count
from typing import Any, TextIO

from gaam_cache.messages import visible
from gaam_decoder.reports.drawing import DARK, LIGHT, Picture, inline_svg, overviews
from gaam_decoder.reports.formats._templates import rendered
from gaam_decoder.reports.notes import warnings
from gaam_decoder.reports.table import Format, Table

ALIASES = ("htm", "web")


class Html(Format):
    """A page for a phone, a screen and paper, light and dark."""

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the page."""
        numbers = count()

        def svg(picture: Picture) -> str:
            return inline_svg(picture.draw, key=f"p{next(numbers)}", alt=picture.alt)

        def variables(dark: bool) -> str:
            return "".join(f"--{k}:{v};" for k, v in (DARK if dark else LIGHT).items())

        def more(table: Table) -> dict[str, Any]:
            return {"warnings": warnings(table), "pictures": list(overviews(table))}

        filters: dict[str, Any] = {"svg": svg, "variables": variables, "parts": _parts}
        stream.write(rendered("report.html", tables, _text, more, **filters))


def _text(text: str) -> str:
    return html.escape(visible(text))


def _parts(name: str) -> str:
    """A name that a narrow column may break where one option ends and the next begins."""
    return "<wbr>".join(map(_text, re.findall("[^:=,]{1,24}[:=,]?|[:=,]", visible(name))))
