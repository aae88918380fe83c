"""Tables for a paper: booktabs, notes below."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TextIO

from gaam_cache.messages import visible
from gaam_decoder.reports.answer import claims, conclusion
from gaam_decoder.reports.notes import notes
from gaam_decoder.reports.table import SEPARATE, Format, Table
from gaam_decoder.reports.writing import learned_table
from gaam_decoder.reports.writing.section import sections
from gaam_decoder.reports.writing.sheets import Sheet, sheets

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
_LETTERS = "[\N{LATIN CAPITAL LETTER A WITH GRAVE}-\N{LATIN SMALL LETTER Z WITH CARON}]"
_NO_GLYPH = "\u00d7\u00f7\u0126\u0127\u0138\u013f\u0140\u0149\u0166\u0167"
_PRINTED = re.compile(f"[ -~]|(?![{_NO_GLYPH}]){_LETTERS}")
"""What pdflatex prints in the T1 encoding without any package."""
_LIGATURE = re.compile(r"([-,])(?=\1)")
_SIGNED = re.compile(r"[+-][0-9]+(\.[0-9]+)?\**")
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
    "`": r"\textasciigrave{}",
}

ALIASES = ("tex",)


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
        if lead := conclusion(table):
            lines += ["", rf"\noindent {_escape(lead)}."]
        further = sections(table)
        of_numbers = [s for found in further for s in found.sheets if set(s.header) - set(s.words)]
        for sheet in [*sheets(table), *of_numbers]:
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
        hidden = [table.left_out()] if table.left_out() else []
        below = [
            *hidden,
            *[final.in_words() for final in table.finals],
            *claims(table),
            *notes(table),
            *learned_table.notes(table.rows),
        ]
        for found in further:
            below += [f"{found.heading}: {found.lead}", *found.lines]
            below += [found.verbatim] if found.verbatim else []
            below += [
                ": ".join(line) for s in found.sheets if s not in of_numbers for line in s.lines
            ]
        items = [rf"\item {_escape(note)}" for note in below]
        return [*lines, "", r"\begin{itemize}\footnotesize", *items, r"\end{itemize}"]


def _tabular(sheet: Sheet) -> list[str]:
    columns = "".join("l" if name in sheet.words else "r" for name in sheet.header)
    body = [" & ".join(map(_cell, line)) + r" \\" for line in sheet.lines]
    head = " & ".join(map(_escape, sheet.header)) + r" \\"
    parts = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule"]
    return [*parts, *body, r"\bottomrule", r"\end{tabular}"]


def _cell(text: str) -> str:
    """A cell whose minus signs are minus signs."""
    parts = [part for part in text.split(" ") if part]
    if any(map(_SIGNED.fullmatch, parts)):
        return " ".join(f"${p}$" if _SIGNED.fullmatch(p) else _escape(p) for p in parts)
    return _escape(text)


def _escape(text: str) -> str:
    """Text as LaTeX prints it; characters that pdflatex has no glyph for are given by number."""
    escaped = "".join(
        ESCAPES.get(c, c) if _PRINTED.fullmatch(c) else f"{{[}}U+{ord(c):04X}]"
        for c in " ".join(visible(text).split())
    )
    return _LIGATURE.sub(r"\1{}", escaped)
