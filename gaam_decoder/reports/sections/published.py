"""Show published accuracies of the data set and mechanisms of a report.

They stand in a section of their own, and no test compares them with ours: encoder,
rows, head and protocol differ.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gaam_cache.common.messages import brief
from gaam_decoder.reports.cells import Cell
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.sections.base import Parts, Section, Writer
from gaam_decoder.reports.table import Table

FILE = Path(__file__).with_name("published.json")


class Published(Writer):
    """The accuracies that a paper published for these mechanisms and this data set."""

    position = 24

    def sections_of(self, table: Table) -> Iterator[Section]:
        """One section if a paper has results for the data set and a mechanism.

        Only entries that read all layers and learned from all training rows have such a
        result; without any there is no section.
        """
        if not table.task.has_classes:
            return
        content = json.loads(FILE.read_text("utf-8"))
        dataset = _published_dataset(content, table)
        if dataset is None:
            return
        results = _published_results(dataset, table)
        if not results:
            return

        cells = []
        for name, result in results.items():
            values = list(map(str, result["values"]))
            parts = {f" {run}": value for run, value in enumerate(values, 1)}
            every_value = Cell(", ".join(values), parts)
            cells.append([name, f"{result['mean']:.1f}", every_value])
        header = ["mechanism", "published %", dataset["unit"]]
        sheet = Sheet("published accuracies, which no test compares", header, cells)
        yield Section(
            name="published",
            heading="Published by others",
            lead=f"{content['source']}; {content['selection']} (optimistic)",
            lines=_lines(dataset, results, table),
            values={"encoder": dataset["encoder"], "percent": results},
            make=lambda: Parts(sheets=(sheet,)),
        )


def _published_dataset(
    content: Mapping[str, Any], table: Table
) -> dict[str, Any] | None:
    """The published data set with the same name and classes as the table's."""
    classes = sorted(map(_plain, table.cache.class_names))
    # such as ``ag_news`` of ``fancyzhx/ag_news (default)``, or of ``ag_news.csv``
    without_subset = table.cache.dataset.partition(" (")[0]
    name = _plain(Path(without_subset).stem)
    datasets: dict[str, dict[str, Any]] = content["datasets"]
    for dataset in datasets.values():
        if name not in dataset["names"]:
            continue
        # A paper that does not name its classes gives their number.
        published_classes = sorted(map(_plain, dataset["classes"] or classes))
        num_classes = dataset.get("num_classes", len(classes))
        if len(classes) == num_classes and published_classes == classes:
            return dataset
    return None


def _published_results(dataset: Mapping[str, Any], table: Table) -> dict[str, Any]:
    """Mechanism -> published results, of entries with all layers and training rows."""
    published = dataset.get("mechanisms", {})
    results = {}
    for entry in table.entries:
        if entry.recipe.get("layers") or entry.num_drawn_rows:
            continue
        name = entry.attention
        if name not in published:
            # Without the options of the mechanism.
            name = name.partition(":")[0]
        if name in published:
            results[name] = published[name]
    return results


def _lines(
    dataset: Mapping[str, Any], results: Mapping[str, Any], table: Table
) -> list[str]:
    """Sentences on what differs between the published experiments and the table's."""
    sizes = [
        f"{dataset[split]:,} {split} rows"
        for split in ("train", "test")
        if dataset[split]
    ]
    theirs = ", ".join([dataset["encoder"], *sizes, "convolutional head"])
    lines = [
        f"theirs: {theirs}; here: {brief(table.cache.encoder)}, and the "
        "rows and heads of this report; mha attends across the rows of a batch there, "
        "and over layers here (published=true: as theirs)"
    ]
    for name, result in results.items():
        if "code" in result:
            lines.append(f"{name}: {result['code']}")
    ranges = [
        f"{name} {low} to {high}"
        for name, (low, high) in dataset["learned_ranges"].items()
    ]
    if "gaam" in results:
        lines.append(f"gaam learned {' and '.join(ranges)} there")
    return lines


def _plain(text: str) -> str:
    """Letters and digits of a text in lower case, to compare names."""
    return re.sub(r"[\W_]", "", text.lower())
