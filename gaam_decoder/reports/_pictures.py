"""Which pictures belong to a table, and the words that go with each.

S seeds, E epochs, L layers, F features.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import StorageError
from gaam_decoder.importance import importance_factor, layer_contribution, layer_numbers
from gaam_decoder.reports._base import Table
from gaam_decoder.reports._compare import Comparison
from gaam_decoder.reports._rows import Row
from gaam_decoder.reports._sheets import percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVES = 8
DETAILED = 12
"""Rows that get pictures of their own; with more, the most accurate, and it is said."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """One picture: where it belongs, what is said below it and instead of it, how it is drawn."""

    kind: str
    """accuracy, differences, curves, attention, learned or confusion."""
    name: str
    """Unique in its table, fit for a file name."""
    title: str
    caption: str
    alt: str
    draw: Callable[[], Figure]


def pictures(table: Table) -> Iterator[Picture]:
    """All pictures of a table, in the order in which they are shown."""
    yield _strip(table)
    if any(table.comparisons):
        yield _forest(table)
    yield from _curves(table)
    labels = table.labels()
    for index in most_accurate(table, DETAILED):
        row, label = table.rows[index], labels[index]
        if row.scores.seeds:
            yield from _attention(row, label)
            yield from _learned(row, label)
            yield _confusion(row, label, table)


def most_accurate(table: Table, count: int) -> list[int]:
    """Places of the ``count`` rows with the highest mean, in the order of the table."""
    ranked = sorted(range(len(table.rows)), key=lambda i: -(table.rows[i].mean or 0.0))
    return sorted(ranked[:count])


def save_pictures(tables: list[Table], folder: Path) -> list[Path]:
    """Write all pictures as PDF and PNG.

    Raises:
        StorageError: the folder cannot be written to.
    """
    from gaam_decoder.reports.figures.output import save_figure

    paths = []
    try:
        for number, table in enumerate(tables, 1):
            prefix = f"table{number}-" if len(tables) > 1 else ""
            for picture in pictures(table):
                paths += save_figure(picture.draw, folder, prefix + picture.name)
    except OSError as error:
        raise StorageError(
            f"cannot write pictures to '{folder}'", found=error.strerror or str(error)
        ) from error
    return paths


def _strip(table: Table) -> Picture:
    from gaam_decoder.reports.figures.accuracy import strip

    def draw() -> Figure:
        return strip(
            table.labels(),
            [100 * row.scores.accuracy for row in table.rows],
            [_hundredfold(row.interval) for row in table.rows],
            [_hundredfold(row.bootstrap) for row in table.rows],
        )

    spoken = ", ".join(
        f"{label} {percent(row.mean)}%"
        for label, row in zip(table.labels()[:CURVES], table.rows, strict=False)
    )
    more = " and more" if len(table.rows) > CURVES else ""
    return Picture(
        kind="accuracy",
        name="accuracy",
        title="Accuracy of every seed",
        caption="One dot per seed, and two 95% intervals of the mean: over seeds (thick), and over "
        "seeds and test rows (thin). The second is the one to compare with another test set.",
        alt=f"Test accuracy of every seed by decoder, with intervals. Means: {spoken}{more}. All "
        "numbers are in the table.",
        draw=draw,
    )


def _forest(table: Table) -> Picture:
    from gaam_decoder.reports.figures.accuracy import forest

    shown: list[tuple[str, Comparison]] = [
        (label, comparison)
        for label, comparison in zip(table.labels(), table.comparisons, strict=True)
        if comparison is not None
    ]

    def draw() -> Figure:
        compared = [comparison for _, comparison in shown]
        return forest(
            [label for label, _ in shown],
            [100 * c.difference for c in compared],
            [_hundredfold(c.interval) for c in compared],
            [_hundredfold(c.bootstrap) for c in compared],
            [c.significant for c in compared],
            baseline=str(table.baseline),
        )

    found = [f"{label} {100 * c.difference:+.2f}" for label, c in shown if c.significant]
    return Picture(
        kind="differences",
        name="differences",
        title=f"Differences to {table.baseline} with intervals",
        caption="Right of the line: better than the baseline. An interval that crosses the line "
        "leaves open which is better.",
        alt=f"Paired differences to {table.baseline} in points, with intervals. "
        + (f"Significant after correction: {', '.join(found[:CURVES])}." if found else "")
        + ("" if found else "None is significant after correction."),
        draw=draw,
    )


def _curves(table: Table) -> Iterator[Picture]:
    from gaam_decoder.reports.figures.curves import learning_curves

    chosen = most_accurate(table, CURVES)
    rows = [table.rows[index] for index in chosen]
    labels = [table.labels()[index] for index in chosen]
    rest = len(table.rows) - len(rows)
    left_out = f" The {len(rows)} most accurate decoders; {rest} are left out." if rest else ""
    selects = {row.select for row in rows}
    held_out = {"val": "validation accuracy", "test": "TEST accuracy"}
    panels = {
        "loss": ("training loss", 1),
        "train_accuracy": ("training accuracy", 100),
        "accuracy": (held_out.get("".join(selects), "held-out accuracy"), 100),
    }
    for key, (name, factor) in panels.items():
        curves = [_log(row, key, factor) for row in rows]
        if any(curve is not None for curve in curves):
            yield Picture(
                kind="curves",
                name=f"curves-{_slug(name)}",
                title=name[0].upper() + name[1:],
                caption=f"Mean over seeds; the band is one standard deviation.{left_out}",
                alt=f"{name} by epoch for {', '.join(labels)}, mean and spread over seeds.",
                draw=partial(
                    learning_curves, labels, curves, what=name + (", %" if factor > 1 else "")
                ),
            )


def _log(row: Row, key: str, factor: float) -> Floats | None:
    """A quantity of the log times a factor, (S, E); None where no entry has it."""
    entries = [entry for run in row.runs for entry in run.log if entry.get(key) is not None]
    if not entries:
        return None
    seeds = sorted({entry["seed"] for entry in entries})
    value_SE = np.full((len(seeds), max(entry["epoch"] for entry in entries)), np.nan)
    for entry in entries:
        value_SE[seeds.index(entry["seed"]), entry["epoch"] - 1] = factor * entry[key]
    return value_SE


def _attention(row: Row, label: str) -> Iterator[Picture]:
    from gaam_decoder.reports.figures.attention import (
        COLUMNS,
        importance_heatmap,
        layer_contributions,
    )

    maps = [
        run.attention_map[[run.seeds.index(seed) for seed in run.finished]]
        for run in row.runs
        if run.attention_map is not None and run.finished
    ]
    if not maps:
        return
    map_S = np.concatenate(maps)
    layers = layer_numbers(row.runs[0])
    factor_LF = importance_factor(map_S).mean(0)
    share_SL = layer_contribution(map_S)
    num_features = factor_LF.shape[1]
    least, most = num_features // COLUMNS, -(-num_features // COLUMNS)
    group = f"{least}" if least == most else f"{least} or {most}"
    columns = (
        f" Each of the {COLUMNS} columns is the mean of {group} of {num_features:,} features."
        if num_features > COLUMNS
        else ""
    )
    ranked = [layers[place] for place in np.argsort(-factor_LF.mean(1))[:3]]
    top = ", ".join(map(str, ranked))
    slug = _slug(label)
    yield Picture(
        kind="attention",
        name=f"importance-{slug}",
        title=f"{label}: importance",
        caption=f"Importance Factor by layer and feature, mean of {len(map_S)} seeds.{columns}",
        alt=f"Heatmap of the Importance Factor of {label}. Layers with the highest mean: {top}.",
        draw=lambda: importance_heatmap(factor_LF, layers),
    )
    mean_L = share_SL.mean(0)
    yield Picture(
        kind="attention",
        name=f"layers-{slug}",
        title=f"{label}: share of layers",
        caption="Share of each layer in the summed attention; bars are the mean, whiskers one "
        "standard deviation over seeds, the dashed line equal shares.",
        alt=f"Layer contributions of {label}, from {mean_L.min():.1f}% (layer "
        f"{layers[int(mean_L.argmin())]}) to {mean_L.max():.1f}% "
        f"(layer {layers[int(mean_L.argmax())]}).",
        draw=lambda: layer_contributions(share_SL, layers),
    )


def _learned(row: Row, label: str) -> Iterator[Picture]:
    from gaam_decoder.reports.figures.learned import histograms

    if not row.learned:
        return
    values = {
        name: np.concatenate(
            [
                run.learned[name][[run.seeds.index(seed) for seed in run.finished]].ravel()
                for run in row.runs
                if run.finished
            ]
        )
        for name in row.learned
    }
    ranges = "; ".join(
        f"{name} {found.min:.3g} to {found.max:.3g}" for name, found in row.learned.items()
    )
    yield Picture(
        kind="learned",
        name=f"learned-{_slug(label)}",
        title=f"{label}: learned parameters",
        caption="All heads, features and seeds; the line is the median, the shade the middle 95%.",
        alt=f"Histograms of the learned parameters of {label}: {ranges}.",
        draw=lambda: histograms(values),
    )


def _confusion(row: Row, label: str, table: Table) -> Picture:
    from gaam_decoder.reports.figures.confusion import confusion_matrix

    names = table.cache["class_names"]
    wrong_CC = row.scores.confusion.copy()
    np.fill_diagonal(wrong_CC, 0)
    true, predicted = np.unravel_index(int(wrong_CC.argmax()), wrong_CC.shape)
    worst = (
        f"Most frequent error: {names[true]} taken for {names[predicted]}."
        if wrong_CC.any()
        else "No errors."
    )
    return Picture(
        kind="confusion",
        name=f"confusion-{_slug(label)}",
        title=f"{label}: confusion",
        caption=f"Percent of each true class, over {len(row.scores.seeds)} seeds. {worst}",
        alt=f"Confusion matrix of {label}. {worst}",
        draw=lambda: confusion_matrix(row.scores.confusion, names),
    )


def _hundredfold(interval: tuple[float, float] | None) -> tuple[float, float] | None:
    return (100 * interval[0], 100 * interval[1]) if interval else None


def _slug(label: str) -> str:
    return re.sub(r"[^\w.=-]+", "_", label)[:100]
