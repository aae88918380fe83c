"""Pieces of a page: a table, a picture, a list."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gaam_cache.messages import visible
from gaam_decoder.reports.figures.output import inline_svg
from gaam_decoder.reports.pictures.picture import Picture
from gaam_decoder.reports.writing.page import escape
from gaam_decoder.reports.writing.sheets import Sheet


def breakable(name: str) -> str:
    """A name that a narrow column may break where one option ends and the next begins.

    And somewhere in a word that is longer than any of ours.
    """
    parts = re.findall("[^:=,]{1,24}[:=,]?|[:=,]", visible(name))
    return "<wbr>".join(map(escape, parts))


def sheet_html(sheet: Sheet, found: Sequence[bool] = ()) -> str:
    """A table that scrolls by itself; lines that were found to differ stand out."""
    found = found or [False] * len(sheet.lines)
    caption = escape(sheet.caption[0].upper() + sheet.caption[1:])
    head = "".join(
        f'<th scope="col"{_word(name, sheet)}>{escape(name)}</th>' for name in sheet.header
    )
    body = []
    for line, marked in zip(sheet.lines, found, strict=True):
        cells = [f'<th scope="row">{breakable(line[0])}</th>']
        cells += [
            f"<td{_word(name, sheet)}>{escape(cell)}</td>"
            for name, cell in zip(sheet.header[1:], line[1:], strict=True)
        ]
        body.append(f"<tr{' class=found' if marked else ''}>{''.join(cells)}</tr>")
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}"><table>'
        f'<caption class="hidden">{caption}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _word(name: str, sheet: Sheet) -> str:
    return ' class="word"' if name in sheet.words else ""


def figure(picture: Picture, key: str) -> str:
    """A picture with its title and caption; ids in it begin with ``key``."""
    svg = inline_svg(picture.draw, key=key, alt=picture.alt)
    return (
        f"<figure><h4>{escape(picture.title)}</h4>{svg}"
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )


def list_html(lines: Sequence[str]) -> str:
    """Lines as a list; nothing of none."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if lines else ""


def part(heading: str, body: str) -> str:
    """A heading and what stands below it."""
    return f"<h3>{escape(heading)}</h3>{body}"
