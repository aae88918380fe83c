"""Where the numbers of a page come from: data, encoder, versions, recipes, runs."""

from __future__ import annotations

from collections.abc import Sequence

import gaam_cache
from gaam_cache.messages import brief
from gaam_decoder.reports.notes.notes import versions
from gaam_decoder.reports.table import final_models
from gaam_decoder.reports.table.base import Table
from gaam_decoder.reports.writing.page import escape
from gaam_decoder.reports.writing.page_parts import breakable

MOST_NAMES = 100
"""Classes that are listed."""


def provenance(table: Table) -> str:
    """A table of what the numbers of a table come from."""
    cache = table.cache
    facts = {
        "data set": brief(cache["dataset"]),
        "encoder": brief(cache["encoder"]),
        "classes": _listed(cache["class_names"]),
        "cache fingerprint": cache["fingerprint"],
        "made with": f"{versions(table)}; report by gaam {gaam_cache.__version__}",
        **_recipes(table),
        "runs": ", ".join(brief(run.path.name) for run in final_models.all_runs(table)),
    }
    rows = "".join(
        f'<tr><th scope="row">{breakable(name)}</th><td class="word long">{escape(value)}</td></tr>'
        for name, value in facts.items()
    )
    return (
        '<div class="scroll" role="region" tabindex="0" aria-label="Provenance"><table>'
        '<caption class="hidden">Where these numbers come from</caption>'
        '<thead><tr><th scope="col" class="word">what</th><th scope="col" class="word">value</th>'
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _recipes(table: Table) -> dict[str, str]:
    """What all rows share, and for each row what it has otherwise."""
    found = [row.recipe for row in table.rows] + [final.recipe for final in table.finals]
    recipes = [{k: v for k, v in recipe.items() if v is not None} for recipe in found]
    shared = {
        key: value
        for key, value in recipes[0].items()
        if all(key in recipe and recipe[key] == value for recipe in recipes)
    }
    spelt = {"recipe": _spell(shared)}
    labels = [*table.labels(), *(f"the final model {final.label}" for final in table.finals)]
    for label, recipe in zip(labels, recipes, strict=True):
        if own := {key: value for key, value in recipe.items() if key not in shared}:
            spelt[f"recipe of {label}"] = _spell(own)
    return spelt


def _spell(recipe: dict[str, object]) -> str:
    return ", ".join(brief(f"{key}={value}") for key, value in recipe.items())


def _listed(names: Sequence[str]) -> str:
    """Names, or the first of very many."""
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(brief(name, 60) for name in names[:MOST_NAMES]) + more
