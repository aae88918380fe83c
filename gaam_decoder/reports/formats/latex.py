"""Tables for a paper: booktabs, notes below."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TextIO

from gaam_cache.messages import visible
from gaam_decoder.reports.formats._templates import rendered
from gaam_decoder.reports.table import Format, Table

_LETTERS = "[\N{LATIN CAPITAL LETTER A WITH GRAVE}-\N{LATIN SMALL LETTER Z WITH CARON}]"
_NO_GLYPH = "\u00d7\u00f7\u0126\u0127\u0138\u013f\u0140\u0149\u0166\u0167"
_PRINTED = re.compile(f"[ -~]|(?![{_NO_GLYPH}]){_LETTERS}")
"""What pdflatex prints in the T1 encoding without any package."""
_LIGATURE = re.compile(r"([-,])(?=\1)")
_SIGNED = re.compile(r"[+-][0-9]+(\.[0-9]+)?\**")
ESCAPES = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "`": r"\textasciigrave{}",
    '"': "''", "[": "{[}", "*": "{*}",  # the last two: not the option of a command
    "\N{DAGGER}": r"\textdagger{}",
}  # fmt: skip
ALIASES = ("tex",)


class Latex(Format):
    """Floats whose width never passes that of the text."""

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the tables; what LaTeX reads as a command is escaped."""
        stream.write(rendered("report.tex", tables, escape, cell=_cell))


def escape(text: str) -> str:
    """Text as LaTeX prints it; characters that pdflatex has no glyph for are given by number."""
    escaped = "".join(
        ESCAPES.get(c, c if _PRINTED.fullmatch(c) else f"{{[}}U+{ord(c):04X}]")
        for c in " ".join(visible(text).split())
    )
    return _LIGATURE.sub(r"\1{}", escaped)


def _cell(text: str) -> str:
    """A cell whose minus signs are minus signs."""
    parts = [part for part in text.split(" ") if part]
    if any(map(_SIGNED.fullmatch, parts)):
        return " ".join(f"${p}$" if _SIGNED.fullmatch(p) else escape(p) for p in parts)
    return escape(text)
