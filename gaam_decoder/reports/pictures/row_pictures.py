"""Pictures of single rows: what a mechanism attends to, what it learned, what it takes for what.

S seeds, L layers, F features, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.messages import brief
from gaam_decoder.analysis.importance import importance_factor, layer_contribution
from gaam_decoder.reports.pictures.picture import Picture, slug
from gaam_decoder.reports.table.rows import Row
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import by_seed

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
