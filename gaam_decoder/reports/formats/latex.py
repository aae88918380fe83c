"""Write a report as LaTeX tables for a paper, with booktabs and notes below."""

import re
from collections.abc import Sequence
from typing import TextIO

from gaam_cache.common.messages import visible
from gaam_decoder.reports.rendering import render
from gaam_decoder.reports.table import Format, Table

ALIASES = ("tex",)
_PRINTED = re.compile("[ -~\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u00ff]")
"""Characters that pdflatex prints in the T1 encoding without any package."""
_SIGNED = re.compile(r"([+-][0-9]+(?:\.[0-9]+)?)(\**)")
ESCAPES = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    # LaTeX must not read the last two as the option of a command.
    '"': "''", "[": "{[}", "*": "{*}",
    "\N{DAGGER}": r"\textdagger{}",
}  # fmt: skip


class Latex(Format):
    """Floats that are never wider than the text."""

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the tables, with all commands of LaTeX escaped."""
        page = render(
            "report.tex",
            tables,
            escape,
            section=self.section,
            columns=self.columns,
            sections_over_sets=self.sections_over_sets,
            with_sections=self.shows_sections,
            cell=_cell,
            heading=_heading,
        )
        stream.write(page)


def escape(text: str) -> str:
    """Escape a text for LaTeX; a character without a glyph becomes its number."""
    one_line = " ".join(visible(text).split())
    escaped = "".join(map(_escape_character, one_line))
    # Empty braces keep repeated hyphens and commas from becoming a ligature.
    return re.sub(r"([-,])(?=\1)", r"\1{}", escaped)


def _escape_character(character: str) -> str:
    if character in ESCAPES:
        return ESCAPES[character]
    if _PRINTED.fullmatch(character):
        return character
    return f"{{[}}U+{ord(character):04X}]"


def _heading(text: str) -> str:
    """Escape the header of a column, which stands alone in a paper."""
    return escape(text.replace("of it", "of the difference"))


def _cell(text: str) -> str:
    """Escape a cell, with signed numbers in mathematics so that minus is no hyphen."""
    return " ".join(map(_escape_word, text.split()))


def _escape_word(word: str) -> str:
    signed = _SIGNED.fullmatch(word)
    if not signed:
        return escape(word)
    number, stars = signed.groups()
    # on the line, a star in mathematics is a sign of multiplication
    return f"${number}^{{{stars}}}$" if stars else f"${number}$"
