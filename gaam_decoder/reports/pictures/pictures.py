"""Which pictures belong to a table, and the words that go with each.

S seeds, E epochs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.messages import brief
from gaam_cache.store.files import write_file
from gaam_decoder.analysis.importance import importance_factor, layer_contribution
from gaam_decoder.reports.compare import Comparison
from gaam_decoder.reports.pictures.picture import Picture, slug
from gaam_decoder.reports.rows import Row
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.writing.section import sections
from gaam_decoder.reports.writing.unit import DEFAULT
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import by_seed, first_runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure


CURVES = 8
DETAILED = 12
"""Rows that get pictures of their own; with more, the most accurate, and it is said."""

Floats = NDArray[np.float64]


def pictures(table: Table, detailed: int = DETAILED) -> Iterator[Picture]:
    """All pictures of a table, in the order in which they are shown; none without rows.

    Args:
        table: of which.
        detailed: most accurate rows that get pictures of their own.
    """
    if not table.rows:
        return
    yield from overviews(table)
    if table.rows[0].folds == 1:  # curves of one training each
        yield from curves(table)
    labels = table.labels()
    for index in most_accurate(table, detailed):
        yield from row_pictures(table.rows[index], labels[index], table.cache["class_names"])


def overviews(table: Table) -> Iterator[Picture]:
    """One row beside the other, those that are shown."""
    if not table.rows:
        return
    yield _strip(table)
    if any(table.comparisons[place] for place in table.places):
        yield _forest(table)


def most_accurate(table: Table, count: int) -> list[int]:
    """Places of the ``count`` rows with the highest mean, in the order of the table."""
    ranked = sorted(range(len(table.rows)), key=lambda i: -(table.rows[i].mean or 0.0))
    return sorted(ranked[:count])


def save_pictures(tables: Sequence[Table], folder: Path) -> list[Path]:
    """Write all pictures as PDF and PNG.

    Raises:
        StorageError: the folder cannot be written to.
    """
    from gaam_decoder.reports.figures.output import image_files

    paths = []
    taken: Counter[str] = Counter()
    for number, table in enumerate(tables, 1):
        prefix = f"table{number}-" if len(tables) > 1 else ""
        of_sections = [picture for found in sections(table) for picture in found.pictures]
        for picture in [*pictures(table), *of_sections]:
            name = prefix + picture.name
            taken[name.lower()] += 1  # there are file systems to which case is nothing
            if taken[name.lower()] > 1:
                name += f".{taken[name.lower()]}"
            for suffix, content in image_files(picture.draw).items():
                paths.append(folder / f"{name}.{suffix}")
                write_file(paths[-1], content, option="--figures")
    return paths


def _strip(table: Table) -> Picture:
    from gaam_decoder.reports.figures.accuracy import strip

    unit = table.unit
    rows = [table.rows[place] for place in table.places]
    every = table.labels()
    labels = [every[place] for place in table.places]

    def draw() -> Figure:
        return strip(
            labels,
            [unit.factor * row.scores.chosen.scored.values for row in rows],
            [unit.scaled(row.chosen_interval) for row in rows],
            [unit.scaled(row.chosen_two_level) for row in rows],
            what=unit.axis,
        )

    spoken = ", ".join(
        f"{label} {unit.mean(row.chosen_mean)}"
        for label, row in zip(labels[:CURVES], rows, strict=False)
    )
    more = " and more" if len(rows) > CURVES else ""
    title = unit.score.title
    return Picture(
        kind="accuracy",
        name="accuracy",
        title=f"{title[0].upper()}{title[1:]} of every seed",
        caption="One dot per seed, and two 95% intervals of the mean: over seeds (thick), and over "
        "seeds and test rows (thin). The second is the one to compare with another test set.",
        alt=f"Test {title} of every seed by decoder, with intervals. Means: {spoken}{more}. All "
        "numbers are in the table.",
        draw=draw,
    )


def _forest(table: Table) -> Picture:
    from gaam_decoder.reports.figures.accuracy import forest

    labels = table.labels()
    unit = table.unit
    points = "percentage points" if table.score == DEFAULT else unit.of_differences
    side = "Right" if unit.score.larger_is_better else "Left"
    spoken = "points" if table.score == DEFAULT else unit.of_differences
    shown: list[tuple[str, Comparison]] = [
        (labels[place], comparison)
        for place in table.places
        if (comparison := table.comparisons[place]) is not None
    ]

    def draw() -> Figure:
        compared = [comparison for _, comparison in shown]
        return forest(
            [label for label, _ in shown],
            [unit.factor * c.claim.difference for c in compared],
            [unit.scaled(c.claim.on_these_rows.interval) for c in compared],
            [unit.scaled(c.claim.interval_corrected) for c in compared],
            [c.claim.significant for c in compared],
            baseline=str(table.baseline),
            margin=unit.factor * table.margin,
            unit=points,
        )

    found = [
        f"{label} {unit.difference(c.claim.difference)}"
        for label, c in shown
        if c.claim.significant
    ]
    return Picture(
        kind="differences",
        name="differences",
        title=f"Differences to {brief(str(table.baseline))} with intervals",
        caption=f"{side} of the line: better than the baseline. An interval over seeds and rows "
        "that crosses the line leaves open which is better; the band is the margin within which a "
        "difference does not matter.",
        alt=f"Paired differences to {brief(str(table.baseline))} in {spoken}, with intervals. "
        + (f"Significant after correction: {', '.join(found[:CURVES])}." if found else "")
        + ("" if found else "Nothing is marked significant."),
        draw=draw,
    )


def curves(table: Table) -> Iterator[Picture]:
    """What was learned by epoch: loss, accuracy of training, and last that of what was held out."""
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
        found = [_log(row, key, factor) for row in rows]
        if any(curve is not None for curve in found):
            yield Picture(
                kind="curves",
                name=f"curves-{slug(name)}",
                title=name[0].upper() + name[1:],
                caption=f"Mean over seeds; the band is one standard deviation.{left_out}",
                alt=f"{name} by epoch for {', '.join(labels)}, mean and spread over seeds.",
                draw=partial(
                    learning_curves, labels, found, what=name + (", %" if factor > 1 else "")
                ),
            )


def _log(row: Row, key: str, factor: float) -> Floats | None:
    """A quantity of the log times a factor, (S, E); None where no entry has it, or no epochs."""
    if row.fitted:
        return None
    decides = first_runs(row.runs)
    entries = [
        entry
        for run in row.runs
        for entry in run.log
        if entry.get(key) is not None and decides.get(entry["seed"]) is run
    ]
    if not entries:
        return None
    seeds = sorted({entry["seed"] for entry in entries})
    value_SE = np.full((len(seeds), max(entry["epoch"] for entry in entries)), np.nan)
    for entry in entries:
        value_SE[seeds.index(entry["seed"]), entry["epoch"] - 1] = factor * entry[key]
    return value_SE


Array = NDArray[Any]


def row_pictures(row: Row, label: str, class_names: list[str]) -> Iterator[Picture]:
    """All pictures of a row; none where no seed finished, one over several folds."""
    if row.scores.seeds:
        if row.folds == 1:
            yield from _attention(row, label)
            yield from _learned(row, label)
        yield _confusion(row, label, class_names)


def _attention(row: Row, label: str) -> Iterator[Picture]:
    from gaam_decoder.reports.figures.attention import (
        COLUMNS,
        importance_heatmap,
        layer_contributions,
    )

    map_S = _of_seeds(row, lambda run: run.attention_map)
    if map_S is None:
        return
    layers = row.runs[0].layer_numbers
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
    yield Picture(
        kind="attention",
        name=f"importance-{slug(label)}",
        title=f"{label}: importance",
        caption=f"Importance Factor by layer and feature, mean of {len(map_S)} seeds.{columns}",
        alt=f"Heatmap of the Importance Factor of {label}. Layers with the highest mean: {top}.",
        draw=lambda: importance_heatmap(factor_LF, layers),
    )
    mean_L = share_SL.mean(0)
    yield Picture(
        kind="attention",
        name=f"layers-{slug(label)}",
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
    values: dict[str, Array] = {}
    for name in row.learned:
        found = _of_seeds(row, partial(_parameter, name))
        if found is not None:
            values[name] = found
    ranges = "; ".join(
        f"{brief(name, 40)} {span.min:.3g} to {span.max:.3g}" for name, span in row.learned.items()
    )
    yield Picture(
        kind="learned",
        name=f"learned-{slug(label)}",
        title=f"{label}: learned parameters",
        caption="All heads, features and seeds; the line is the median, the shade the middle 95%.",
        alt=f"Histograms of the learned parameters of {label}: {ranges}.",
        draw=lambda: histograms(values),
    )


def _parameter(name: str, run: RunResult) -> Array | None:
    return run.learned.get(name)


def _confusion(row: Row, label: str, names: list[str]) -> Picture:
    from gaam_decoder.reports.figures.confusion import confusion_matrix

    wrong_CC = row.scores.confusion.copy()
    np.fill_diagonal(wrong_CC, 0)
    true, predicted = np.unravel_index(int(wrong_CC.argmax()), wrong_CC.shape)
    worst = (
        f"Most frequent error: {brief(names[true], 60)} taken for {brief(names[predicted], 60)}."
        if wrong_CC.any()
        else "No errors."
    )
    return Picture(
        kind="confusion",
        name=f"confusion-{slug(label)}",
        title=f"{label}: confusion",
        caption=f"Percent of each true class, over {len(row.scores.seeds)} seeds. {worst}",
        alt=f"Confusion matrix of {label}. {worst}",
        draw=lambda: confusion_matrix(row.scores.confusion, names),
    )


def _of_seeds(row: Row, read: Callable[[RunResult], Array | None]) -> Array | None:
    """Entries of the finished seeds, (S, ...), each from the first run that has the seed."""
    found = by_seed(row.runs, read)
    return np.stack(list(found.values())) if found else None
