"""Published accuracies of the data set and mechanisms of a report, in a section of their own.

They are never beside ours, and no test compares them: encoder, rows, head and protocol differ.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gaam_cache.common.messages import brief
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.sections.base import Section, Writer
from gaam_decoder.reports.table import Table

FILE = Path(__file__).with_name("published.json")


class Published(Writer):
    """What a paper has of these mechanisms on the data set of the cache."""

    place = 24

    def of(self, table: Table) -> Iterator[Section]:
        """Nothing where nothing was published, or rows are of some layers or training rows only."""
        content = json.loads(FILE.read_text("utf-8"))
        classes = sorted(map(_plain, table.cache["class_names"]))
        dataset_name = table.cache["dataset"].partition(" (")[0]  # without the subset
        name = _plain(Path(dataset_name).stem)
        named = (of for of in content["datasets"].values() if name in of["names"])
        # where the paper names no classes, as many
        fits = (
            of for of in named if len(classes) == of.get("num_classes", len(classes))
        )
        alike = (
            of
            for of in fits
            if sorted(map(_plain, of["classes"] or classes)) == classes
        )
        dataset: dict[str, Any] = next(alike, {})
        known = dataset.get("mechanisms", {})
        whole = [
            r.attention for r in table.rows if not (r.recipe.get("layers") or r.drawn)
        ]
        names = [one if one in known else one.partition(":")[0] for one in whole]
        found = {name: known[name] for name in names if name in known}
        if not found:
            return
        rows = [f"{dataset[s]:,} {s} rows" for s in ("train", "test") if dataset[s]]
        lines = [
            f"theirs: {', '.join([dataset['encoder'], *rows, 'convolutional head'])}; here: "
            f"{brief(table.cache['encoder'])}, and the rows and heads of this report; mha attends "
            "across the rows of a batch there, and over layers here (published=true: as theirs)",
            *(f"{name}: {of['code']}" for name, of in found.items() if "code" in of),
        ]
        ranges = (
            f"{k} {low} to {high}"
            for k, (low, high) in dataset["learned_ranges"].items()
        )
        lines += [f"gaam learned {' and '.join(ranges)} there"] * ("gaam" in found)
        cells = [
            [name, f"{of['mean']:.1f}", ", ".join(map(str, of["values"]))]
            for name, of in found.items()
        ]
        header = ["mechanism", "published %", dataset["unit"]]
        sheet = Sheet("published accuracies, which no test compares", header, cells)
        yield Section(
            name="published",
            heading="Published by others",
            lead=f"{content['source']}; {content['selection']} (optimistic)",
            lines=lines,
            values={"encoder": dataset["encoder"], "percent": found},
            make=lambda: ((sheet,), ()),
        )


def _plain(text: str) -> str:
    return re.sub(r"[\W_]", "", text.lower())
