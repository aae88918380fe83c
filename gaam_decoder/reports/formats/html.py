"""One self-contained page: the table, pictures, provenance. It asks nothing of any network."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from itertools import count
from typing import Any, TextIO

import gaam_cache
from gaam_cache.messages import brief, visible
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.drawing import DARK, LIGHT, Picture, inline_svg
from gaam_decoder.reports.notes import versions, warnings
from gaam_decoder.reports.pictures import overviews
from gaam_decoder.reports.rendering import rendered
from gaam_decoder.reports.table import Format, Table

ALIASES = ("htm", "web")
MOST_NAMES = 100
"""Classes that are listed."""


class Html(Format):
    """A page for a phone, a screen and paper, light and dark."""

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the page."""
        numbers = count()

        def svg(picture: Picture) -> str:
            return inline_svg(picture.draw, key=f"p{next(numbers)}", alt=picture.alt)

        def variables(dark: bool) -> str:
            return "".join(f"--{k}:{v};" for k, v in (DARK if dark else LIGHT).items())

        filters: dict[str, Any] = {"svg": svg, "variables": variables, "parts": _parts}
        stream.write(rendered("report.html", tables, _text, _more, **filters))


def _text(text: str) -> str:
    return html.escape(visible(text))


def _parts(name: str) -> str:
    """A name that a narrow column may break where one option ends and the next begins."""
    return "<wbr>".join(map(_text, re.findall("[^:=,]{1,24}[:=,]?|[:=,]", visible(name))))


def _more(table: Table) -> dict[str, Any]:
    return {
        "warnings": warnings(table),
        "pictures": list(overviews(table)),
        "provenance": _provenance(table),
    }


def _provenance(table: Table) -> Sheet:
    """What the numbers of a table come from."""
    names = table.cache["class_names"]
    found: list[Any] = [*table.rows, *table.finals]
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    recipes = [{k: v for k, v in one.recipe.items() if v is not None} for one in found]
    shared = [pair for pair in recipes[0].items() if all(pair in r.items() for r in recipes)]
    facts = {
        "data set": brief(table.cache["dataset"]),
        "encoder": brief(table.cache["encoder"]),
        "classes": ", ".join(brief(name, 60) for name in names[:MOST_NAMES]) + more,
        "cache fingerprint": table.cache["fingerprint"],
        "made with": f"{versions(table)}; report by gaam {gaam_cache.__version__}",
        "recipe": _spell(dict(shared)),
    }
    labels = [*table.labels(), *(f"final model {n}" for n, _ in enumerate(table.finals, 1))]
    for label, recipe in zip(labels, recipes, strict=True):
        if own := {key: value for key, value in recipe.items() if (key, value) not in shared}:
            facts[f"recipe of {label}"] = _spell(own)
    facts["runs"] = ", ".join(brief(run.path.name) for run in table.all_runs())
    lines = [list(pair) for pair in facts.items()]
    header = ["what", "value"]
    return Sheet(caption="where these numbers come from", header=header, lines=lines,
                 words=("what", "value"))  # fmt: skip


def _spell(recipe: dict[str, Any]) -> str:
    return ", ".join(brief(f"{key}={value}") for key, value in recipe.items())
