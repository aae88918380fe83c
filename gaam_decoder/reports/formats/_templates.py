"""The templates of the formats that people read: Markdown, HTML, LaTeX, and a study's page."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from gaam_decoder.reports.columns import sheet
from gaam_decoder.reports.drawing import TEMPLATES, overviews
from gaam_decoder.reports.notes import below, conclusion, notes, warnings
from gaam_decoder.reports.sections._base import sections, signature
from gaam_decoder.reports.table import SEPARATE, Table


def rendered(
    name: str,
    tables: Sequence[Table],
    harmless: Callable[[str], str],
    more: Callable[[Table], dict[str, Any]] = lambda table: {},
    words: Mapping[str, Any] | None = None,
    **filters: Callable[..., str],
) -> str:
    """What the template of that name makes of tables.

    Every text that it writes is made ``harmless``, but for what one of the ``filters`` made; it is
    given ``more`` of every table, and ``words`` beside them.
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
        environment.filters[filter_name] = lambda *values, make=make: Markup(make(*values))
    about = [
        {
            "title": table.title(),
            "answer": conclusion(table),
            "sheet": sheet(table) if table.rows else None,
            "below": below(table),
            "beside": table.beside(),
            "notes": notes(table),
            "warnings": warnings(table),
            "pictures": overviews(table),
            "sections": sections(table),
            "signature": signature(table),
            **more(table),
        }
        for table in tables
    ]
    template = environment.get_template(f"{name}.jinja")
    return template.render(tables=about, separate=SEPARATE, **(words or {}))
