"""Whether the layers that a mechanism reads most are the most accurate alone."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gaam_cache.messages import brief
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.axes import Beside
from gaam_decoder.reports.pictures.picture import Picture, slug
from gaam_decoder.reports.rows import as_list
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.writing.section import Section, Writer
from gaam_decoder.reports.writing.sheets import Sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_PICTURES = 4
"""The first that are listed."""
LINES = (
    "importance is the mean importance factor of a layer over features and seeds, accuracy that of "
    "the same head and recipe on this layer alone; rho is Spearman's rank correlation",
    "the interval is of 1,000 draws of seeds and test rows. It is no test: neighbouring layers are "
    "alike in both, so that curves over depth may agree without one saying anything of the other",
)


class OfLayers(Writer):
    """Rank correlations of importance and accuracy, one per mechanism with attention maps."""

    place = 12

    def of(self, table: Table) -> Section | None:
        """None without four rows of single layers and a mechanism with attention maps over all."""
        if not table.layers:
            return None
        labels = dict(zip(map(id, table.rows), table.labels(), strict=True))
        named = [
            (labels[id(one.row)], brief(one.singles[0].attention), one) for one in table.layers
        ]
        name, alone, first = named[0]
        more = f"; {len(named) - 1} more below" if len(named) > 1 else ""
        optimistic = [row for _, _, one in named for row in (one.row, *one.singles)]
        marks = ["some of these numbers are optimistic"] * any(row.optimistic for row in optimistic)
        return Section(
            name="importance",
            heading="Does importance predict accuracy",
            lead=f"importance by {name} and accuracy of {alone} on one of {len(first.layers)} "
            f"layers alone: {_in_words(first)}{more}",
            lines=(*LINES, *marks),
            sheets=(
                Sheet(
                    caption="importance of layers and accuracy of each alone",
                    header=["importance", "alone", "layers", "rho", "95% interval"],
                    lines=[[n, a, spell_numbers(one.layers), *_cells(one)] for n, a, one in named],
                    words=("importance", "alone", "layers"),
                ),
            ),
            pictures=tuple(_picture(*one) for one in named[:MOST_PICTURES]),
            folded=False,
            values={"mechanisms": [_values(*one) for one in named]},
        )


def _cells(one: Beside) -> tuple[str, str]:
    rho, interval = one.found
    between = "-" if interval is None else f"{interval[0]:+.2f} to {interval[1]:+.2f}"
    return "-" if rho is None else f"{rho:+.2f}", between


def _in_words(one: Beside) -> str:
    if one.found.rho is None:
        return "no rank correlation, for one of both is the same of all layers"
    rho, interval = _cells(one)
    return f"rank correlation {rho}" + f", 95% interval {interval}" * bool(one.found.interval)


def _values(name: str, alone: str, one: Beside) -> dict[str, Any]:
    columns = zip(one.layers, one.importance.mean(0), one.accuracy.mean(0), strict=True)
    return {
        "importance_of": name,
        "alone": alone,
        "rho": one.found.rho,
        "ci95_seeds_and_rows": as_list(one.found.interval),
        "seeds_of_importance": list(one.row.scores.seeds),
        "seeds_alone": list(one.seeds),
        "layers": [
            {"layer": layer, "importance": float(importance), "accuracy": float(accuracy)}
            for layer, importance, accuracy in columns
        ],
    }


def _picture(name: str, alone: str, one: Beside) -> Picture:
    columns = zip(one.layers, one.importance.mean(0), one.accuracy.mean(0), strict=True)
    spoken = ", ".join(f"layer {n} {factor:.2f} and {100 * a:.1f}%" for n, factor, a in columns)
    return Picture(
        kind="importance",
        name=f"importance-accuracy-{slug(name)}-{slug(alone)}",
        title=f"{name}: importance against accuracy alone",
        caption=f"Means over seeds by layer number; bars go from the lowest seed to the highest. "
        f"Accuracy of {alone} on one layer.",
        alt=f"Importance of {name} and accuracy of {alone} by layer: {spoken}.",
        draw=partial(_draw, one),
    )


def _draw(one: Beside) -> Figure:
    from gaam_decoder.reports.figures.layers import importance_against_accuracy

    return importance_against_accuracy(one.layers, one.importance, 100 * one.accuracy)
