"""Tables for a paper: booktabs, notes below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from gaam_decoder.reports import _learned
from gaam_decoder.reports._base import SEPARATE, Format, Table
from gaam_decoder.reports._notes import notes
from gaam_decoder.reports._sheets import LEFT, Sheet, sheets

HEAD = r"""% Made by gaam report. Compile it, or \input it where booktabs and graphicx are loaded.
\makeatletter
\ifx\documentclass\@twoclasseserror
  \def\gaamend{}
\else
  \documentclass{article}
  \usepackage[T1]{fontenc}
  \usepackage[a4paper,margin=2cm]{geometry}
  \usepackage{booktabs,graphicx}
  \begin{document}
  \def\gaamend{\end{document}}
\fi
\makeatother
"""
LAST_GLYPH = "\N{LATIN SMALL LETTER Z WITH CARON}"
"""Up to here the T1 encoding has all letters."""
ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "[": "{[}",  # not the option of a command
    "*": "{*}",
}


class Latex(Format):
    """Floats whose width never passes that of the text."""

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the tables; what LaTeX reads as a command is escaped."""
        stream.write(HEAD)
        for table in tables:
            stream.write("\n".join(self._lines(table)) + "\n")
        if len(tables) > 1:
            stream.write(f"\n{len(tables)} separate tables: {_escape(SEPARATE)}.\n")
        stream.write("\\gaamend\n")

    def _lines(self, table: Table) -> list[str]:
        lines = []
        for sheet in sheets(table):
            caption = f"{sheet.caption}: {table.title()}"
            lines += [
                "",
                r"\begin{table}[htbp]",
                r"\centering",
                rf"\caption{{{_escape(caption[0].upper() + caption[1:])}}}",
                r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
                *_tabular(sheet),
                r"}",
                r"\end{table}",
            ]
        below = [*notes(table), *_learned.notes(table.rows)]
        items = [rf"\item {_escape(note)}" for note in below]
        return [*lines, "", r"\begin{itemize}\footnotesize", *items, r"\end{itemize}"]


def _tabular(sheet: Sheet) -> list[str]:
    columns = "".join("l" if name in LEFT else "r" for name in sheet.header)
    body = [" & ".join(map(_cell, line)) + r" \\" for line in sheet.lines]
    head = " & ".join(map(_escape, sheet.header)) + r" \\"
    parts = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule"]
    return [*parts, *body, r"\bottomrule", r"\end{tabular}"]


def _cell(text: str) -> str:
    """A cell whose minus signs are minus signs."""
    parts = [
        f"${part}$" if part[0] in "+-" and part[1:].rstrip("*").replace(".", "").isdigit() else None
        for part in text.split(" ")
        if part
    ]
    if parts and any(parts):
        whole = zip(parts, filter(None, text.split(" ")), strict=True)
        return " ".join(math or _escape(plain) for math, plain in whole)
    return _escape(text)


def _escape(text: str) -> str:
    """Text as LaTeX prints it; characters that pdflatex has no glyph for are given by number."""
    return "".join(
        ESCAPES.get(c, c) if c <= LAST_GLYPH else f"{{[}}U+{ord(c):04X}]"
        for c in " ".join(text.split())
    )
