"""The templates of the formats that people read: Markdown, HTML, LaTeX, and a study's page."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from gaam_decoder.reports.columns import Column, sheet
from gaam_decoder.reports.drawing import TEMPLATES, overviews
from gaam_decoder.reports.notes import below, notes, warnings
from gaam_decoder.reports.sections.base import answers, sections_of, signature
from gaam_decoder.reports.table import SEPARATE, Table


def rendered(
    name: str,
    tables: Sequence[Table],
    harmless: Callable[[str], str],
    more: Callable[[Table], dict[str, Any]] = lambda table: {},
    words: Mapping[str, Any] | None = None,
    section: str | None = None,
    columns: Sequence[Column] = (),
    with_sections: bool = True,
    **filters: Callable[..., str],
) -> str:
    """What the template of that name makes of tables.

    Every text that it writes is made ``harmless``, but for what one of the ``filters`` made; it is
    given ``more`` of every table, and ``words`` beside them. With a ``section`` it writes that
    alone, with ``columns`` these of the table of accuracies, and not ``with_sections`` none.
    """
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        finalize=lambda text: harmless(text) if type(text) is str else text,
    )
    environment.filters |= {"raw": Markup, "harmless": harmless}
    for filter_name, make in filters.items():
        environment.filters[filter_name] = lambda *values, make=make: Markup(
            make(*values)
        )
    about = []
    for table, of_table in zip(tables, sections_of(tables, section), strict=True):
        shown: dict[str, Any] = {
            "title": table.title(),
            "warnings": warnings(table),
            "sections": of_table if with_sections else [],
            "signature": signature(table),
        }
        if section is None:
            shown |= {
                "answers": answers(table, of_table),
                "sheet": sheet(table, columns) if table.rows else None,
                "below": below(table),
                "beside": table.beside(),
                "notes": notes(table),
                "pictures": overviews(table),
            }
        if section is None or of_table:
            about.append(shown | more(table))
    template = environment.get_template(f"{name}.jinja")
    alone = section is not None
    return template.render(
        tables=about, separate=SEPARATE, alone=alone, **(words or {})
    )
