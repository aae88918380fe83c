"""What mechanisms read of every layer, and whether what is read most is the most accurate alone.

S seeds, L layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gaam_cache.messages import brief
from gaam_decoder.analysis.importance import factor_by_seed
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.compare import same_recipe
from gaam_decoder.reports.drawing import MOST_LINES, Line, Picture, line_panels
from gaam_decoder.reports.rows import Row
from gaam_decoder.reports.sections._base import Parts, Section, Writer, most_accurate
from gaam_decoder.reports.table import Table
from gaam_decoder.runs.tuning import TUNED
from gaam_decoder.stats.rank_correlation import rank_correlation

LEAST_LAYERS = 4  # three have six orders: every rank correlation is as good as chance
LINES = (
    "importance is the mean importance factor of a layer over features and seeds, accuracy that of "
    "the same head and recipe on this layer alone; rho is Spearman's rank correlation",
    "the interval is of 1,000 draws of seeds and test rows. It is no test: neighbouring layers are "
    "alike in both, so that curves over depth may agree without one saying anything of the other",
)


class OfLayers(Writer):
    """Shares of layers; where layers have rows of their own, rank correlations with accuracy."""

    place = 12

    def of(self, table: Table) -> Iterator[Section]:
        """Nothing without attention maps."""
        if found := list(beside_alone(table.rows)):
            cells = []
            for one in found:
                rho, interval = one["rho"], one["ci95_seeds_and_rows"]
                between = "{:+.2f} to {:+.2f}".format(*interval) if interval else "-"
                layers = spell_numbers([of["layer"] for of in one["layers"]])
                told = "-" if rho is None else f"{rho:+.2f}"
                cells.append([one["importance_of"], one["alone"], layers, told, between])
            name, alone, layers, told, between = cells[0]
            header = ["importance", "alone", "layers", "rho", "95% interval"]
            caption = "importance of layers and accuracy of each alone"
            of_each = Sheet(caption, header, cells, ("importance", "alone", "layers"))
            yield Section(
                name="importance",
                heading="Does importance predict accuracy",
                lead=f"importance by {name} and accuracy of {alone} on one of layers {layers} "
                f"alone: rank correlation {told}, 95% interval {between}",
                lines=LINES,
                make=lambda: _shares(table, of_each),
                values={"mechanisms": found},
            )
        elif any(map(_importance, table.rows)):
            heading = "What mechanisms read of every layer"
            yield Section(name="importance", heading=heading, make=lambda: _shares(table))


def beside_alone(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Importance that a mechanism gives to layers beside the accuracy on each, as JSON values.

    Of every row with attention maps and rows on one of its layers each: four or more, with the same
    head and recipe but for the layers; what was tuned may differ. The rows of its own mechanism
    count, or where it has none, those of others.
    """
    usable = [row for row in rows if row.finished and not row.shuffled and row.folds == 1]
    singles = [row for row in usable if len(row.runs[0].layer_numbers) == 1]
    for row in usable:
        layers, apart = row.runs[0].layer_numbers, ("layers", *(TUNED if row.tunings else ()))
        by_mechanism: dict[str, dict[int, Row]] = {}
        for one in singles:
            (layer,) = one.runs[0].layer_numbers
            same = one.head == row.head and same_recipe(one.recipe, row.recipe, apart)
            if same and layer in layers:
                by_mechanism.setdefault(one.attention, {})[layer] = one
        enough = {name: of for name, of in by_mechanism.items() if len(of) >= LEAST_LAYERS}
        enough = {name: of for name, of in enough.items() if name == row.attention} or enough
        factor_SL = factor_by_seed(row.runs, row.finished) if enough else None
        if factor_SL is None or not np.isfinite(factor_SL).all():
            continue
        for name, of in enough.items():
            alone = [of[layer] for layer in sorted(of)]
            if not (seeds := sorted(set.intersection(*(set(one.finished) for one in alone)))):
                continue
            mine_SL = factor_SL[:, [layers.index(layer) for layer in sorted(of)]]
            right_LSN = np.stack([one.right[list(map(one.finished.index, seeds))] for one in alone])
            rho, interval = rank_correlation(mine_SL, right_LSN)
            columns = zip(sorted(of), mine_SL.mean(0), right_LSN.mean(2).mean(1), strict=True)
            yield {
                "importance_of": row.label,
                "alone": brief(name),
                "rho": rho,
                "ci95_seeds_and_rows": interval,
                "seeds_of_importance": list(row.finished),
                "seeds_alone": seeds,
                "layers": [
                    {"layer": layer, "importance": float(factor), "accuracy": float(accuracy)}
                    for layer, factor, accuracy in columns
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
