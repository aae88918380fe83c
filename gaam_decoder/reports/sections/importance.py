"""What mechanisms read of every layer, and whether what is read most is the most accurate alone.

S seeds, L layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from gaam_cache.messages import brief
from gaam_decoder.analysis.importance import factor_by_seed
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.compare import same_recipe
from gaam_decoder.reports.drawing import MOST_LINES, Line, Picture, line_panels
from gaam_decoder.reports.rows import Floats, Row
from gaam_decoder.reports.sections._base import Parts, Section, Writer, most_accurate
from gaam_decoder.reports.table import Table
from gaam_decoder.runs.tuning import TUNED
from gaam_decoder.stats.rank_correlation import RankCorrelation, rank_correlation

LEAST_LAYERS = 4
"""Three layers have six orders: every rank correlation is as good as chance."""
LINES = (
    "importance is the mean importance factor of a layer over features and seeds, accuracy that of "
    "the same head and recipe on this layer alone; rho is Spearman's rank correlation",
    "the interval is of 1,000 draws of seeds and test rows. It is no test: neighbouring layers are "
    "alike in both, so that curves over depth may agree without one saying anything of the other",
)


class _Beside(NamedTuple):
    """Importance that a mechanism gives to layers, beside the accuracy on each alone."""

    row: Row
    """Whose importance it is."""
    singles: tuple[Row, ...]
    """A row for every layer."""
    layers: tuple[int, ...]
    seeds: tuple[int, ...]
    """That all of these have."""
    importance: Floats
    """Of every seed of the row, (S, L)."""
    accuracy: Floats
    """Of every seed of the singles, (S, L)."""
    found: RankCorrelation


def beside_alone(rows: Sequence[Row]) -> Iterator[_Beside]:
    """Every row with attention maps beside rows on one of its layers each.

    Four layers or more, with the same head and recipe but for the layers; what was tuned may
    differ. The singles of the row's own mechanism count, or where it has none, those of others.
    """
    usable = [row for row in rows if row.scores.seeds and not row.shuffled]
    singles = [row for row in usable if len(row.runs[0].layer_numbers) == 1]
    for row in usable:
        layers, apart = row.runs[0].layer_numbers, ("layers", *(TUNED if row.tunings else ()))
        by_mechanism: dict[str, dict[int, Row]] = {}
        for one in singles if row.folds == 1 else ():
            (layer,) = one.runs[0].layer_numbers
            same = one.head == row.head and same_recipe(one.recipe, row.recipe, apart)
            if same and layer in layers:
                by_mechanism.setdefault(one.attention, {})[layer] = one
        enough = {name: of for name, of in by_mechanism.items() if len(of) >= LEAST_LAYERS}
        own = {name: of for name, of in enough.items() if name == row.attention} or enough
        factor_SL = factor_by_seed(row.runs, row.scores.seeds) if own else None
        if factor_SL is None or not np.isfinite(factor_SL).all():
            continue
        for of in own.values():
            there = tuple(sorted(of))
            alone = tuple(of[layer] for layer in there)
            if not (seeds := sorted(set.intersection(*(set(one.scores.seeds) for one in alone)))):
                continue
            mine_SL = factor_SL[:, [layers.index(layer) for layer in there]]
            right_LSN = np.stack(
                [one.scores.right[[one.scores.seeds.index(s) for s in seeds]] for one in alone]
            )
            found = rank_correlation(mine_SL, right_LSN)
            yield _Beside(row, alone, there, tuple(seeds), mine_SL, right_LSN.mean(2).T, found)


class OfLayers(Writer):
    """Shares of layers; where layers have rows of their own, rank correlations with accuracy."""

    place = 12

    def of(self, table: Table) -> Iterator[Section]:
        """Nothing without attention maps."""
        found = list(beside_alone(table.rows))
        cells, values = [], []
        for one in found:
            alone, (rho, interval) = brief(one.singles[0].attention), one.found
            between = "-" if interval is None else "{:+.2f} to {:+.2f}".format(*interval)
            told = "-" if rho is None else f"{rho:+.2f}"
            cells.append([one.row.label, alone, spell_numbers(one.layers), told, between])
            values.append(_values(one.row.label, alone, one))
        if found:
            name, alone, layers, told, between = cells[0]
            header = ["importance", "alone", "layers", "rho", "95% interval"]
            caption = "importance of layers and accuracy of each alone"
            of_each = Sheet(caption, header, cells, ("importance", "alone", "layers"))
            optimistic = any(row.optimistic for one in found for row in (one.row, *one.singles))
            yield Section(
                name="importance",
                heading="Does importance predict accuracy",
                lead=f"importance by {name} and accuracy of {alone} on one of layers {layers} "
                f"alone: rank correlation {told}, 95% interval {between}",
                said=True,
                lines=(*LINES, *["some of these numbers are optimistic"] * optimistic),
                parts=lambda: _shares(table, of_each),
                values={"mechanisms": values},
            )
        elif any(map(_importance, table.rows)):
            heading = "What mechanisms read of every layer"
            yield Section(name="importance", heading=heading, parts=lambda: _shares(table))


def _values(name: str, alone: str, one: _Beside) -> dict[str, Any]:
    columns = zip(one.layers, one.importance.mean(0), one.accuracy.mean(0), strict=True)
    return {
        "importance_of": name,
        "alone": alone,
        "rho": one.found.rho,
        "ci95_seeds_and_rows": one.found.interval,
        "seeds_of_importance": list(one.row.scores.seeds),
        "seeds_alone": list(one.seeds),
        "layers": [
            {"layer": layer, "importance": float(importance), "accuracy": float(accuracy)}
            for layer, importance, accuracy in columns
        ],
    }


def _importance(row: Row) -> Any:
    """Of a row that reads several layers, else None."""
    return of if (of := row.importance) and len(of.layers) > 1 else None


def _shares(table: Table, *first: Sheet) -> Parts:
    """The share of every layer in the summed attention, as a table and a picture."""
    lines, curves = [], []
    for row in most_accurate(table):
        if of := _importance(row):
            by_share = sorted(zip(of.contribution, of.layers, strict=True), reverse=True)
            told = [f"{layer} ({share:.1f}%)" for share, layer in by_share]
            lines.append([row.label, ", ".join(told[:3]), told[-1]])
            mean_L = np.array(of.contribution)
            sd_L = np.array(of.contribution_sd or 0 * mean_L)
            curves.append(Line(row.label, of.layers, mean_L, (mean_L - sd_L, mean_L + sd_L)))
    header = ["decoder", "layers read most (share)", "least"]
    sheet = Sheet("share of layers in the summed attention", header, lines, tuple(header))
    panels = [("share of the layer, %", curves[:MOST_LINES])]
    layers = sorted({layer for one in curves[:MOST_LINES] for layer in one.x})
    equal = Line("equal shares", layers, np.full(len(layers), 100 / len(layers)))
    picture = Picture(
        "importance",
        "Share of layers in the summed attention",
        "Mean over seeds, of the most accurate; the band is one standard deviation.",
        lambda: line_panels(panels, "encoder layer", ticks=layers, beside=equal, bottom=0),
    )
    return (*first, sheet), (picture,)
