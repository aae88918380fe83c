"""Show what decoders learned: learning curves, shares of layers, parameters and gates.

S seeds, L layers, P points, E epochs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.messages import brief
from gaam_decoder.analysis.importance import Importance, factor_by_seed
from gaam_decoder.analysis.learned import (
    OFFSET,
    RESIDUALS,
    learned_curves,
    planted_curve,
    planted_gate,
)
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.compare import same_recipe
from gaam_decoder.reports.drawing import MOST_LINES, Line, Picture, line_panels
from gaam_decoder.reports.entries import Entry
from gaam_decoder.reports.sections.base import Parts, Section, Writer
from gaam_decoder.reports.table import Table
from gaam_decoder.runs.tuning import TUNED, first_runs

if TYPE_CHECKING:
    from pandas import DataFrame

EntryOfLayer = dict[int, Entry]  # entries on one layer alone, by its number

HELD_OUT = {"val": "validation accuracy, %", "test": "TEST accuracy, %"}
# Three layers have six orders: every rank correlation is as good as chance.
LEAST_LAYERS = 4
IMPORTANCE = (
    "importance is the mean importance factor of a layer over features and seeds, "
    "accuracy that of the same head and recipe on this layer alone; rho is Spearman's "
    "rank correlation of so few layers. It is no test: neighbouring layers are alike "
    "in both"
)
GATE = (
    "gate: the weight of a feature by how many standard deviations it lies from the "
    "gate's centre, mean over heads and features; peak 1, since the head undoes any "
    "factor"
)
PARAMETER_HEADER = [
    "decoder",
    "parameter",
    "start",
    "min",
    "median",
    "max",
    "sd of seed medians",
]


class Learned(Writer):
    """Shares of layers, learning curves, ranges of parameters, and curves of gates."""

    place = 12

    def of(self, table: Table) -> Iterator[Section]:
        """Make the sections, most of them without entries of several folds."""
        entries = [entry for entry in table.entries if entry.folds == 1]
        yield from _importance_section(table, entries)
        yield from _curves_section(table, entries)
        yield from _parameters_section(table)
        yield from _gates_section(table, entries)


def _importance_section(table: Table, entries: Sequence[Entry]) -> Iterator[Section]:
    mechanisms = list(beside_alone(table.entries))
    if mechanisms:
        yield _beside_alone(table, mechanisms)
    elif any(_importance(entry) is not None for entry in entries):
        yield Section(
            name="importance",
            heading="What mechanisms read of every layer",
            make=lambda: _shares(table),
        )


def _curves_section(table: Table, entries: Sequence[Entry]) -> Iterator[Section]:
    trained = [entry for entry in entries if not entry.fitted]
    if any(run.log for entry in trained for run in entry.runs):
        yield Section(
            name="curves", heading="Learning curves", make=lambda: _curves(table)
        )


def _parameters_section(table: Table) -> Iterator[Section]:
    lines = []
    for entry in table.shown:
        for name, ranges in entry.learned.items():
            lines.append([entry.label, brief(name, 40), *_range_cells(ranges)])
    if lines:
        title = "learned parameters after training, over heads, features and seeds"
        sheet = Sheet(title, PARAMETER_HEADER, lines)
        yield Section(
            name="learned",
            heading="Learned parameters",
            make=lambda: ((sheet,), ()),
        )


def _range_cells(ranges: Mapping[str, Any]) -> list[str]:
    """Start, minimum, median, maximum and spread of a parameter as text."""
    starts = dict.fromkeys(f"{value:.3g}" for value in ranges["start"] or ())
    cells = [" to ".join(starts) or "-"]
    for key in ("min", "median", "max", "seed_medians_sd"):
        value = ranges[key]
        cells.append("-" if value is None else f"{value:.3g}")
    return cells


def _gates_section(table: Table, entries: Sequence[Entry]) -> Iterator[Section]:
    gated = [
        entry for entry in entries if entry.finished and _has_feature_gate(entry, table)
    ]
    if not gated:
        return
    gate = planted_gate(table.cache)
    lead = f"of {len(gated)} decoders"
    if gate:
        lead += f", beside the planted one ({gate})"
    yield Section(
        name="gates",
        heading="Learned gates",
        lead=lead,
        lines=(GATE,),
        make=lambda: _gates(gated[:MOST_LINES], gate),
        values={"planted": table.cache.get("planted") if gate else None},
    )


def _has_feature_gate(entry: Entry, table: Table) -> bool:
    """Whether a gate has a centre for every feature, unlike gaussian-mixture."""
    offset = entry.runs[0].learned.get(OFFSET, np.empty(0))
    return bool(offset.shape[2:] == (table.cache["hidden_size"],))


def _curves(table: Table) -> Parts:
    selections = "".join({entry.select for entry in table.entries})
    titles = {
        "loss": "training loss",
        "train_accuracy": "training accuracy, %",
        "accuracy": HELD_OUT.get(selections, "held-out accuracy, %"),
    }
    panels: dict[str, list[Line]] = {}
    for entry in table.entries:
        log = _training_log(entry)
        for key, title in titles.items():
            line = _curve(entry.label, log, key)
            if line is not None:
                panels.setdefault(title, []).append(line)

    header = ["decoder", *panels]
    cells = [[entry.label] for entry in table.entries]
    for lines in panels.values():
        ends = {line.label: f"{line.y[0]:.4g} to {line.y[-1]:.4g}" for line in lines}
        for line_cells in cells:
            line_cells.append(ends.get(line_cells[0], "-"))
    sheet = Sheet("first to last epoch, mean over seeds", header, cells)
    drawn = [(title, lines[:MOST_LINES]) for title, lines in panels.items()]
    picture = Picture(
        "curves",
        "Learning curves",
        "Mean over seeds, of the best decoders; the band is one standard deviation.",
        lambda: line_panels(drawn, "epoch"),
    )
    return (sheet,), (picture,) if drawn else ()


def _training_log(entry: Entry) -> "DataFrame":
    """The log of every seed, from the run that counts for it; empty for a fit."""
    import pandas

    counting_run = {} if entry.fitted else first_runs(entry.runs)
    records = []
    for run in entry.runs:
        records += [
            record for record in run.log if counting_run.get(record["seed"]) is run
        ]
    return pandas.DataFrame(records)


def _curve(label: str, log: "DataFrame", key: str) -> Line | None:
    """Mean over seeds by epoch, in a band of one standard deviation; in percent."""
    if not len(log) or key not in log:
        return None
    by_epoch = log.astype({key: float}).groupby("epoch")[key]
    mean_E = by_epoch.mean().dropna()
    if not len(mean_E):
        return None
    factor = 1 if key == "loss" else 100
    mean_E = mean_E * factor
    sd_E = factor * by_epoch.std(ddof=0)[mean_E.index]
    band = (mean_E - sd_E, mean_E + sd_E)
    return Line(label, list(mean_E.index), list(mean_E), band)


def beside_alone(entries: Sequence[Entry]) -> Iterator[dict[str, Any]]:
    """Put the importance of layers beside the accuracy on each alone, as JSON values.

    An entry with attention maps needs entries on at least four of its layers, each on
    one layer alone, with the same head and recipe except the layers; tuned settings may
    differ. The entries of its own mechanism count, or without any, those of others.
    """
    usable = [
        entry
        for entry in entries
        if entry.finished and not entry.shuffled and entry.folds == 1
    ]
    singles = [entry for entry in usable if len(entry.runs[0].layer_numbers) == 1]
    for entry in usable:
        by_mechanism = _entries_alone(entry, singles)
        factor_SL = None
        if by_mechanism:
            factor_SL = factor_by_seed(entry.runs, entry.finished)
        if factor_SL is None or not np.isfinite(factor_SL).all():
            continue
        for mechanism, entry_of_layer in by_mechanism.items():
            values = _correlate(entry, factor_SL, mechanism, entry_of_layer)
            if values is not None:
                yield values


def _entries_alone(entry: Entry, singles: Sequence[Entry]) -> dict[str, EntryOfLayer]:
    """Entries on single layers of an entry, of each mechanism with enough layers."""
    layers = entry.runs[0].layer_numbers
    apart = {"layers"}
    if entry.tunings:
        apart.update(TUNED)
    by_mechanism: dict[str, EntryOfLayer] = {}
    for single in singles:
        (layer,) = single.runs[0].layer_numbers
        is_same = single.head == entry.head and same_recipe(
            single.recipe, entry.recipe, apart
        )
        if is_same and layer in layers:
            by_mechanism.setdefault(single.attention, {})[layer] = single

    enough = {
        mechanism: entry_of_layer
        for mechanism, entry_of_layer in by_mechanism.items()
        if len(entry_of_layer) >= LEAST_LAYERS
    }
    if entry.attention in enough:
        return {entry.attention: enough[entry.attention]}
    return enough


def _correlate(
    entry: Entry, factor_SL: NDArray[Any], mechanism: str, entry_of_layer: EntryOfLayer
) -> dict[str, Any] | None:
    """Importance and accuracy of every layer; None if no seed finished on all."""
    numbers = sorted(entry_of_layer)
    singles = [entry_of_layer[layer] for layer in numbers]
    seeds = sorted(set.intersection(*(set(single.finished) for single in singles)))
    if not seeds:
        return None

    layers = entry.runs[0].layer_numbers
    factor_L = factor_SL[:, [layers.index(layer) for layer in numbers]].mean(0)
    right_LSN = np.stack(
        [single.right[[single.finished.index(s) for s in seeds]] for single in singles]
    )
    # Accuracies of the same rows differ by 1/N or not at all; less is rounding.
    accuracy_L = right_LSN.mean(2).mean(1).round(9)
    by_layer = [
        {"layer": layer, "importance": float(factor), "accuracy": float(accuracy)}
        for layer, factor, accuracy in zip(numbers, factor_L, accuracy_L, strict=True)
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
    """Rank correlation; None if one of the two is the same for all layers."""
    # Importing scipy.stats takes a second, and most reports do not use it.
    from scipy.stats import spearmanr

    if not np.ptp(first_L) or not np.ptp(second_L):
        return None
    return float(spearmanr(first_L, second_L).statistic)


def _beside_alone(table: Table, mechanisms: list[dict[str, Any]]) -> Section:
    cells = []
    for values in mechanisms:
        layers = spell_numbers([by_layer["layer"] for by_layer in values["layers"]])
        rho = "-" if values["rho"] is None else f"{values['rho']:+.2f}"
        cells.append([values["importance_of"], values["alone"], layers, rho])
    header = ["importance", "alone", "layers", "rho"]
    sheet = Sheet("importance of layers and accuracy of each alone", header, cells)
    decoder, alone, layers, rho = cells[0]
    return Section(
        name="importance",
        heading="Does importance predict accuracy",
        lead=f"importance by {decoder} and accuracy of {alone} on one of layers "
        f"{layers} alone: rank correlation {rho}",
        lines=(IMPORTANCE,),
        make=lambda: _shares(table, sheet),
        values={"mechanisms": mechanisms},
    )


def _importance(entry: Entry) -> Importance | None:
    """The importance of layers, if the entry reads several."""
    importance = entry.importance
    if importance is None or len(importance.layers) < 2:
        return None
    return importance


def _shares(table: Table, *first_sheets: Sheet) -> Parts:
    lines = []
    curves = []
    for entry in table.entries:
        importance = _importance(entry)
        if importance is None:
            continue
        layers_read = _layers_by_share(importance)
        lines.append([entry.label, ", ".join(layers_read[:3]), layers_read[-1]])
        mean_L = np.array(importance.contribution)
        sd_L = np.array(importance.contribution_sd or 0 * mean_L)
        band = (mean_L - sd_L, mean_L + sd_L)
        curves.append(Line(entry.label, importance.layers, mean_L, band))

    header = ["decoder", "layers read most (share)", "least"]
    sheet = Sheet("share of layers in the summed attention", header, lines)
    panels = [("share of the layer, %", curves[:MOST_LINES])]
    layers = sorted({layer for line in curves[:MOST_LINES] for layer in line.x})
    equal = Line("equal shares", layers, np.full(len(layers), 100 / len(layers)))
    picture = Picture(
        "importance",
        "Share of layers in the summed attention",
        "Mean over seeds, of the best; the band is one standard deviation.",
        lambda: line_panels(panels, "encoder layer", beside=equal, bottom=0),
    )
    return (*first_sheets, sheet), (picture,)


def _layers_by_share(importance: Importance) -> list[str]:
    """Layers with their share, the largest first, such as ``12 (31.0%)``."""
    shares = zip(importance.contribution, importance.layers, strict=True)
    return [f"{layer} ({share:.1f}%)" for share, layer in sorted(shares, reverse=True)]


def _gates(entries: Sequence[Entry], gate: str | None) -> Parts:
    lines = []
    for entry in entries:
        curve_SP = learned_curves(entry.runs)
        if curve_SP is not None:
            band = (curve_SP.min(0), curve_SP.max(0))
            lines.append(Line(entry.label, RESIDUALS, curve_SP.mean(0), band))
    planted = None
    if gate:
        planted = Line("planted", RESIDUALS, planted_curve(gate))
    picture = Picture(
        "gates",
        "Learned gates",
        "Mean over seeds, heads and features of the best; the band goes from the "
        "lowest seed to the highest; dashed: what was planted, where something was.",
        lambda: line_panels(
            [("weight", lines)],
            "standardised feature value, from the gate's centre",
            beside=planted,
            bottom=0,
        ),
    )
    return (), (picture,)
