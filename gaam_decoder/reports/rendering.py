"""Render the templates of Markdown, HTML, LaTeX, and of the page of a study."""

from collections.abc import Callable, Mapping, Sequence

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from gaam_decoder.reports.columns import Column, entries_sheet
from gaam_decoder.reports.drawing import TEMPLATES, overview_pictures
from gaam_decoder.reports.encoders import advice_on_tables
from gaam_decoder.reports.notes import legend, notes, warnings
from gaam_decoder.reports.sections.base import (
    Section,
    answer_sentences,
    requested_sections,
    sections_above_tables,
    signature,
)
from gaam_decoder.reports.table import Table


def render(
    name: str,
    tables: Sequence[Table],
    harmless: Callable[[str], str],
    more: Callable[[Table], Mapping[str, object]] = lambda table: {},
    words: Mapping[str, object] | None = None,
    section: str | None = None,
    columns: Sequence[Column] = (),
    with_sections: bool = True,
    sections_over_sets: Sequence[Section] = (),
    **filters: Callable[..., str],
) -> str:
    """Render tables with a template.

    Args:
        name: name of the template, without its suffix.
        tables: the tables of the report.
        harmless: escapes every text, except the results of filters.
        more: makes further values of a table for the template.
        words: further values beside the tables.
        section: the only section to write, if any.
        columns: the only columns of the table of accuracies, if any.
        with_sections: whether to write the sections that no option asked for.
        sections_over_sets: the sections over all tables.
        filters: further filters of the template, whose results are not escaped.
    """
    environment = _environment(harmless, filters)
    table_values = []
    sections_by_table = requested_sections(tables, section, sections_over_sets)
    for table, table_sections in zip(tables, sections_by_table, strict=True):
        values: dict[str, object] = {
            "title": table.title(),
            "warnings": warnings(table),
            "sections": table_sections if with_sections else [],
            "signature": signature(table),
        }
        if section is None:
            values |= _table_values(table, table_sections, columns)
        # A table without the requested section is left out.
        if section is None or table_sections:
            table_values.append({**values, **more(table)})

    shown_over_sets = _shown_over_sets(
        sections_over_sets, section, with_sections=with_sections
    )
    template = environment.get_template(f"{name}.jinja")
    return template.render(
        tables=table_values,
        separate=advice_on_tables(tables, sections_over_sets),
        alone=section is not None,
        sections_over_sets=shown_over_sets,
        **(words or {}),
    )


def _shown_over_sets(
    sections_over_sets: Sequence[Section], section: str | None, *, with_sections: bool
) -> list[Section]:
    """The sections over all tables that the report shows.

    Args:
        sections_over_sets: the sections over all tables.
        section: the only section to write, if any.
        with_sections: whether to write the sections that no option asked for.
    """
    return [
        over_sets
        for over_sets in sections_above_tables(sections_over_sets, section)
        # a section has answers if an option of the report asked for it
        if with_sections or over_sets.answers
    ]


def _table_values(
    table: Table, table_sections: Sequence[Section], columns: Sequence[Column]
) -> dict[str, object]:
    """What a template shows of a table beside its sections."""
    return {
        "answers": answer_sentences(table, table_sections),
        "sheet": entries_sheet(table, columns) if table.entries else None,
        "legend": legend(table),
        "further_lines": table.further_lines(),
        "notes": notes(table),
        "pictures": overview_pictures(table),
    }


def _environment(
    harmless: Callable[[str], str], filters: Mapping[str, Callable[..., str]]
) -> Environment:
    """The environment of jinja, in which every text is escaped by ``harmless``.

    Results of ``filters`` are not escaped: a filter escapes what it needs to.
    """
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        # markup is a text that needs no escape
        finalize=lambda value: (
            harmless(value)
            if isinstance(value, str) and not isinstance(value, Markup)
            else value
        ),
    )
    environment.filters |= {"raw": Markup, "harmless": harmless}
    for name, make in filters.items():
        environment.filters[name] = _as_markup(make)
    return environment


def _as_markup(make: Callable[..., str]) -> Callable[..., Markup]:
    """Mark the text that a function makes as already escaped."""

    def make_markup(*values: object) -> Markup:
        return Markup(make(*values))

    return make_markup
