"""One line that identifies the runs of a table."""

from __future__ import annotations

import json

import gaam_cache
from gaam_cache.store.digest import digest_of, short_digest
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.writing.section import Section, Writer


class Signature(Writer):
    """Stands last."""

    place = 80

    def of(self, table: Table) -> Section | None:
        """One line to be copied."""
        return Section(
            name="signature",
            heading="Signature",
            lead="who trains the same runs, by the config.toml of each, gets the same line",
            verbatim=signature(table),
        )


def signature(table: Table) -> str:
    """Version, and a digest of recipes, cache and seeds, in however many runs they lie."""
    seeds = sorted({(run.key, seed) for run in table.all_runs() for seed in run.seeds})
    digest = short_digest(digest_of(json.dumps(seeds).encode()))
    recipes = len({key for key, _ in seeds})  # a key is of mechanism, recipe and cache
    return f"gaam {gaam_cache.__version__} | {recipes} recipes, {len(seeds)} seeds | {digest}"
