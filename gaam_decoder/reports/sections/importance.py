"""Show what mechanisms read of every layer, and whether that predicts accuracy.

S seeds, L layers.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.messages import brief
from gaam_decoder.analysis.importance import factor_by_seed
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.cells import Text, shares_cell
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.compare import same_recipe
from gaam_decoder.reports.drawing import (
    MOST_LINES,
    Line,
    Panel,
    Picture,
    line_panels,
    not_drawn,
)
from gaam_decoder.reports.entries import Entry
from gaam_decoder.reports.sections.base import Parts, Section, Writer
from gaam_decoder.reports.table import Table
from gaam_decoder.runs.tuning import TUNED_SETTINGS

EntryOfLayer = dict[int, Entry]  # entries on one layer alone, by its number

# Three layers have six orders: every rank correlation is as good as chance.
LEAST_LAYERS = 4
IMPORTANCE = (
    "importance is the mean importance factor of a layer over features and seeds, "
    "accuracy that of the same head and recipe on this layer alone; rho is Spearman's "
    "rank correlation of so few layers. It is no test: neighbouring layers are alike "
    "in both"
)


class ImportanceOfLayers(Writer):
    """Shares of layers in attention, beside the accuracy of each layer alone."""

    position = 12

    def sections_of(self, table: Table) -> Iterator[Section]:
        """Yield the section if a mechanism has an attention map over several layers."""
        comparisons = list(compare_with_single_layers(table.entries))
        if comparisons:
            yield _comparison_section(table, comparisons)
            return
        if any(entry.relative_importance is not None for entry in table.entries):
            yield Section(
                name="importance",
                heading="What mechanisms read of every layer",
                make=lambda: _shares(table),
            )


def compare_with_single_layers(entries: Sequence[Entry]) -> Iterator[dict[str, Any]]:
    """Compare the importance of layers with the accuracy on each layer alone.

    The importance factor of a layer comes from the attention map of an entry that reads
    several layers. Yields the values of ``_correlate`` for each such entry.

    An entry with attention maps needs entries on at least four of its layers, each on
    one layer alone, with the same head and recipe except the layers; tuned settings may
    differ. The entries of its own mechanism count, or without any, those of others.
    """
    usable = [
        entry
        for entry in entries
        if entry.finished
        and not entry.labels_shuffled
        and entry.folds == 1
        # importance stands beside the accuracy on each layer
        and entry.task.has_classes
    ]
    singles = [entry for entry in usable if len(entry.runs[0].layer_numbers) == 1]
    for entry in usable:
        by_mechanism = _entries_on_single_layers(entry, singles)
        factor_SL = None
        if by_mechanism:
            factor_SL = factor_by_seed(entry.runs, entry.finished)
        if factor_SL is None or not np.isfinite(factor_SL).all():
            continue
        for mechanism, entry_of_layer in by_mechanism.items():
            values = _correlate(entry, factor_SL, mechanism, entry_of_layer)
            if values is not None:
                yield values


def _entries_on_single_layers(
    entry: Entry, singles: Sequence[Entry]
) -> dict[str, EntryOfLayer]:
    """Mechanism -> its entries on single layers that ``entry`` reads, by layer.

    Only mechanisms with at least ``LEAST_LAYERS`` such entries count; if the entry's
    own mechanism is one of them, no other counts.

    Args:
        entry: it reads several layers.
        singles: the entries that read one layer alone.
    """
    layers = entry.runs[0].layer_numbers
    may_differ = {"layers"}
    if entry.tunings:
        may_differ.update(TUNED_SETTINGS)
    by_mechanism: dict[str, EntryOfLayer] = {}
    for single in singles:
        (layer,) = single.runs[0].layer_numbers
        has_same_recipe = single.head == entry.head and same_recipe(
            single.recipe, entry.recipe, may_differ
        )
        if has_same_recipe and layer in layers:
            by_mechanism.setdefault(single.attention, {})[layer] = single

    with_enough_layers = {
        mechanism: entry_of_layer
        for mechanism, entry_of_layer in by_mechanism.items()
        if len(entry_of_layer) >= LEAST_LAYERS
    }
    if entry.attention in with_enough_layers:
        return {entry.attention: with_enough_layers[entry.attention]}
    return with_enough_layers


def _correlate(
    entry: Entry, factor_SL: NDArray[Any], mechanism: str, entry_of_layer: EntryOfLayer
) -> dict[str, object] | None:
    """Importance and accuracy of every layer, with their rank correlation.

    Args:
        entry: the entry with the attention map.
        factor_SL: its importance factors.
        mechanism: of the entries on single layers.
        entry_of_layer: these entries by layer.

    Returns:
        JSON values: ``importance_of`` and ``alone`` name the entry and the mechanism,
        ``layers`` has importance and accuracy of each layer, and ``rho`` is their
        correlation. None if no seed finished on all layers.
    """
    single_layers = sorted(entry_of_layer)
    singles = [entry_of_layer[layer] for layer in single_layers]
    seeds = sorted(set.intersection(*(set(single.finished) for single in singles)))
    if not seeds:
        return None

    layers = entry.runs[0].layer_numbers
    # the mean importance of each of these layers over the seeds
    factor_L = factor_SL[:, [layers.index(layer) for layer in single_layers]].mean(0)
    right_of_singles = []
    for single in singles:
        positions = [single.finished.index(seed) for seed in seeds]
        right_of_singles.append(single.contribution_SN[positions])
    right_LSN = np.stack(right_of_singles)
    # Accuracies of the same rows differ by 1/N or not at all; less is rounding.
    accuracy_L = right_LSN.mean(2).mean(1).round(9)
    by_layer = [
        {"layer": layer, "importance": float(factor), "accuracy": float(accuracy)}
        for layer, factor, accuracy in zip(
            single_layers, factor_L, accuracy_L, strict=True
        )
    ]
    return {
        "importance_of": entry.label,
        "alone": brief(mechanism),
        "rho": _rho(factor_L.round(9), accuracy_L),
        "seeds_of_importance": list(entry.finished),
        "seeds_alone": seeds,
        "layers": by_layer,
    }


def _rho(first_L: NDArray[Any], second_L: NDArray[Any]) -> float | None:
    """Spearman's rank correlation of two values of every layer.

    None if one of the two is the same for all layers.
    """
    # Importing scipy.stats takes a second, and most reports do not use it.
    from scipy.stats import spearmanr

    if not np.ptp(first_L) or not np.ptp(second_L):
        return None
    return float(spearmanr(first_L, second_L).statistic)


def _comparison_section(table: Table, comparisons: list[dict[str, Any]]) -> Section:
    """The section that compares importance with the accuracy on each layer alone.

    ``comparisons`` are what ``compare_with_single_layers`` yields; the first stands in
    the lead.
    """
    lines = []
    for values in comparisons:
        layers = spell_numbers([by_layer["layer"] for by_layer in values["layers"]])
        rho = "-" if values["rho"] is None else f"{values['rho']:+.2f}"
        lines.append([values["importance_of"], values["alone"], Text(layers), rho])
    header = ["importance", "alone", "layers", "rho"]
    sheet = Sheet(
        "rank correlation (rho) of the importance of layers for a decoder with the "
        "accuracy on each alone; 1: the same order, -1: the reverse",
        header,
        lines,
    )
    decoder, mechanism_alone, layers, rho = lines[0]
    return Section(
        name="importance",
        heading="Does importance predict accuracy",
        lead=f"importance by {decoder} and accuracy of {mechanism_alone} on one of "
        f"layers {layers} alone: rank correlation {rho}",
        lines=(IMPORTANCE,),
        make=lambda: _shares(table, sheet),
        values={"mechanisms": comparisons},
    )


def _shares(table: Table, *first_sheets: Sheet) -> Parts:
    """The share of every layer in the attention of each entry: a table, a picture.

    ``first_sheets`` stand before this table.
    """
    lines = []
    curves = []
    for entry in table.entries:
        importance = entry.relative_importance
        if importance is None:
            continue
        shares = zip(importance.layers, importance.contribution, strict=True)
        # of equal shares the layer of the higher number stands first
        ranked = sorted(shares, key=lambda pair: pair[::-1], reverse=True)
        lines.append([entry.label, shares_cell(ranked[:3]), shares_cell(ranked[-1:])])
        mean_L = np.array(importance.contribution)
        sd_L = np.array(importance.contribution_sd or 0 * mean_L)
        band = (mean_L - sd_L, mean_L + sd_L)
        curves.append(Line(entry.label, importance.layers, mean_L, band))

    layer_counts = dict.fromkeys(len(line.x) for line in curves)
    equal_shares = " or ".join(f"{100 / count:.1f}%" for count in layer_counts)
    header = ["decoder", "layers read most (share)", "least"]
    sheet = Sheet(
        "share of a layer in the weights that a decoder gives to layers, in percent, "
        f"mean over test rows and seeds; equal shares would be {equal_shares}; "
        "a decoder may divide the layers before it weighs them",
        header,
        lines,
    )
    panels = [Panel("share of the layer, %", curves[:MOST_LINES])]
    equal = _line_of_equal_shares(curves[:MOST_LINES])
    picture = Picture(
        name="importance",
        title="Share of layers in the summed attention",
        caption="Mean over seeds, of the best decoders; the band is one standard "
        "deviation."
        f"{not_drawn([line.label for line in curves])}",
        draw=lambda: line_panels(panels, "encoder layer", reference=equal, bottom=0),
    )
    return Parts(sheets=(*first_sheets, sheet), pictures=(picture,))


def _line_of_equal_shares(curves: Sequence[Line]) -> Line | None:
    """The line of equal shares; None if decoders read different numbers of layers."""
    layer_counts = {len(curve.x) for curve in curves}
    if len(layer_counts) != 1:
        return None
    layers = sorted({layer for curve in curves for layer in curve.x})
    share = 100 / layer_counts.pop()
    return Line("equal shares", layers, np.full(len(layers), share))
