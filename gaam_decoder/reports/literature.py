"""Published accuracies of the mechanisms and data sets of a report.

The figures are in ``published.json`` with their source. A match is of data set and mechanism only:
what else differs (encoder, rows, head, variant, and what its code ran instead of what the paper
says) is said, never silently ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gaam_cache.messages import brief
from gaam_decoder.reports.rows import Row

FILE = Path(__file__).with_name("published.json")
HEADS = "8"
NORMAL = "xavier-normal"
OVER_ROWS = "theirs attends across the rows of a batch, ours over layers (published=true: theirs)"


@cache
def _published() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
    return content


def dataset_of(about: Mapping[str, Any]) -> dict[str, Any] | None:
    """The published data set that a cache was made from, by its name and its classes."""
    name, count = _plain(Path(about["dataset"]).stem), len(about["class_names"])
    classes = {_plain(name) for name in about["class_names"]}
    for dataset in _published()["datasets"].values():
        known = dataset["classes"]
        alike = known is None or {_plain(name) for name in known} == classes
        if name in dataset["names"] and count == dataset.get("num_classes", count) and alike:
            return dict(dataset)
    return None


def published(row: Row, about: Mapping[str, Any]) -> dict[str, Any] | None:
    """What was published for the mechanism of a row on the data set of its cache, as JSON values.

    Accuracies are fractions; ``differs`` says what differs in the mechanism itself, and where the
    figure is not what its name says.
    """
    dataset = dataset_of(about)
    name, differs = _mechanism(row.attention)
    other_rows = row.recipe.get("layers") or row.on_training_rows or row.shuffled or row.drawn
    if dataset is None or name not in dataset["mechanisms"] or other_rows:
        return None
    found = dataset["mechanisms"][name]
    heads = [f"{brief(row.head)} head here, convolutional there"] * (row.head != "conv")
    std = found.get("std")
    return {
        "mechanism": name,
        "mean": round(found["mean"] / 100, 6),
        "std": None if std is None else round(std / 100, 6),
        dataset["unit"]: [round(value / 100, 6) for value in found["values"]],
        "encoder": dataset["encoder"],
        "selection": _published()["selection"],
        "source": _published()["source"],
        "differs": [*filter(None, [found.get("code")]), *differs, *heads],
    }


def notes(about: Mapping[str, Any], shown: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What must be known to read the published figures of these mechanisms."""
    dataset = dataset_of(about)
    if dataset is None or not shown:
        return []
    ours, theirs = about["encoder"], dataset["encoder"]
    same = _plain(theirs) in _plain(ours) and about["layers"] == dataset["layers"]
    facts = ["the same encoder" if same else f"another encoder: {theirs}, not {brief(ours)}"]
    facts += [
        f"{dataset[split]:,} {split} rows there, {about['rows'].get(split, 0):,} here"
        for split in ("train", "test")
        if dataset[split] and about["rows"].get(split) != dataset[split]
    ]
    learned = dataset["learned_ranges"].items() if "gaam" in shown else ()
    facts += [f"gaam learned {name} {low} to {high} there" for name, (low, high) in learned]
    lines = [
        f"published: {_published()['source']}; {_published()['selection']} (optimistic); not "
        f"compared by any test here; {'; '.join(facts)}"
    ]
    reasons: dict[str, list[str]] = {}
    for attention, found in shown.items():
        for reason in found["differs"]:
            reasons.setdefault(reason, []).append(brief(attention))
    return lines + [f"published, {', '.join(names)}: {why}" for why, names in reasons.items()]


def _mechanism(attention: str) -> tuple[str, list[str]]:
    """Name in the published tables, and how theirs differs; '' where they have none."""
    name, _, tail = attention.partition(":")
    options = dict(part.split("=", 1) for part in tail.split(",") if "=" in part)
    if name == "gaam":
        heads = options.pop("heads", HEADS)  # others are spelled out
        differs = [f"{HEADS} heads there, {heads} here"] * (heads not in (HEADS, "1"))
        return "" if options else "gaam:heads=1" if heads == "1" else name, differs
    init, theirs = options.pop("init", None), options.pop("published", None) == "true"
    if options or (init and name != "gqgaam"):
        return "", []
    differs = [OVER_ROWS] if name in ("mha", "mha-bn") and not theirs else []
    if name == "gqgaam":
        differs += ["standard grouped queries here (published=true: theirs)"] * (not theirs)
        start = f"grouped queries start Xavier-uniform here (init={NORMAL}: theirs)"
        differs += [start] * (init != NORMAL)
    return name, differs


def _plain(text: str) -> str:
    return "".join(character for character in text.lower() if character.isalnum())
