"""Tables for a paper: booktabs, notes below."""

import re
from collections.abc import Sequence
from typing import TextIO

from gaam_cache.common.messages import visible
from gaam_decoder.reports.formats._templates import rendered
from gaam_decoder.reports.table import Format, Table

ALIASES = ("tex",)
_PRINTED = re.compile("[ -~\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u00ff]")
"""What pdflatex prints in the T1 encoding without any package."""
_SIGNED = re.compile(r"[+-][0-9]+(\.[0-9]+)?\**")
ESCAPES = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "`": r"\textasciigrave{}",
    '"': "''", "[": "{[}", "*": "{*}",  # the last two: not the option of a command
    "\N{DAGGER}": r"\textdagger{}",
}  # fmt: skip


class Latex(Format):
    """Floats whose width never passes that of the text."""

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the tables; what LaTeX reads as a command is escaped."""
        page = rendered(
            "report.tex",
            tables,
            escape,
            section=self.section,
            columns=self.columns,
            with_sections=not self.columns,
            cell=_cell,
        )
        stream.write(page)


def escape(text: str) -> str:
    """Text as LaTeX prints it; characters that pdflatex has no glyph for are given by number."""
    escaped = "".join(
        ESCAPES.get(c, c if _PRINTED.fullmatch(c) else f"{{[}}U+{ord(c):04X}]")
        for c in " ".join(visible(text).split())
    )
    return re.sub(r"([-,])(?=\1)", r"\1{}", escaped)  # no ligature


def _cell(text: str) -> str:
    """A cell whose minus signs are minus signs."""
    return " ".join(
        f"${p}$" if _SIGNED.fullmatch(p) else escape(p) for p in text.split()
    )
