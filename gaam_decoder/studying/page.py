"""The page of a study: what was asked, by which commands, and what came out."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from itertools import islice

from gaam_cache.messages import items
from gaam_decoder.reports.formats.markdown import Markdown
from gaam_decoder.reports.notes.claims import LEAD, conclusion
from gaam_decoder.reports.pictures.picture import Picture
from gaam_decoder.reports.pictures.pictures import overviews
from gaam_decoder.reports.report import Report
from gaam_decoder.reports.table.base import Table
from gaam_decoder.reports.writing.page import DARK, LIGHT
from gaam_decoder.reports.writing.section import sections
from gaam_decoder.studying.recipe import Asked, Study

PAIRS = "pairs"
MOST_PICTURES = 4
"""Of a table: a page that people read."""


def pictures(report: str, tables: Sequence[Table]) -> Iterator[tuple[str, bytes]]:
    """Pictures of a report, each for light and for dark pages: names and content."""
    from gaam_decoder.reports.figures.output import svg_file

    for number, table in enumerate(tables, 1):
        for picture in islice(_chosen(table), MOST_PICTURES):
            name = _named(report, number, len(tables), picture.name)
            for theme, colours in (("light", LIGHT), ("dark", DARK)):
                yield f"{name}-{theme}.svg", svg_file(picture.draw, colours, alt=picture.alt)


def page(
    study: Study,
    commands: Sequence[str],
    made: Sequence[tuple[Asked, Report, str]],
    drawn: Sequence[str],
) -> str:
    """Markdown.

    Args:
        study: the recipe.
        commands: all that were run before the reports.
        made: every report with the command that prints it.
        drawn: names of the files of pictures.
    """
    parts = [f"# {study.title}", study.question.strip(), *_answers(made), study.text.strip()]
    parts.append(
        f"Everything below was written by `gaam study {study.name}` from its runs; the recipe is "
        "[study.toml](study.toml), the numbers are in [results.json](results.json), one line per "
        "seed in [seeds.csv](seeds.csv). `gaam study " + study.name + " --check` makes them again "
        "and compares."
    )
    parts += ["## Commands", "\n".join(f"    {command}" for command in commands)]
    for asked, report, words in made:
        parts += [f"## {asked.title}", f"    {words}"]
        for number, table in enumerate(report.tables, 1):
            for picture in islice(_chosen(table), MOST_PICTURES):
                name = _named(asked.name, number, len(report.tables), picture.name)
                if f"{name}-light.svg" in drawn:
                    parts.append(_shown(name, picture.title))
        parts.append(_lowered(_text(report)))
    return "\n\n".join(part for part in parts if part) + "\n"


def _answers(made: Sequence[tuple[Asked, Report, str]]) -> Iterator[str]:
    """What one may conclude of every table, before all that it rests on."""
    said = []
    for asked, report, _ in made:
        for number, table in enumerate(report.tables, 1):
            title = f"{asked.title}, table {number}" if len(report.tables) > 1 else asked.title
            if found := conclusion(table).removeprefix(LEAD):
                said.append(f"{title}: {found}")
            if "pairs" in asked.options:  # then they are what the report is for
                said += [f"{title}: {one.lead}" for one in sections(table) if one.name == PAIRS]
    if said:
        yield "What one may conclude:"
        yield "\n".join(items(said))


def _chosen(table: Table) -> Iterator[Picture]:
    """Rows beside one another and what lies along an axis; not the pictures of single rows."""
    yield from overviews(table)
    for found in sections(table):
        yield from found.pictures


def _named(report: str, number: int, of: int, picture: str) -> str:
    name = f"{report}-{number}-{picture}" if of > 1 else f"{report}-{picture}"
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _shown(name: str, title: str) -> str:
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{name}-dark.svg">'
        f'<img alt="{title}" src="{name}-light.svg"></picture>'
    )


def _text(report: Report) -> str:
    stream = io.StringIO()
    Markdown(folded=True).write(report.tables, stream)
    return stream.getvalue()


def _lowered(markdown: str) -> str:
    """Headings below those of the page."""
    return re.sub(r"^(#+ )", r"##\1", markdown, flags=re.MULTILINE).strip()
