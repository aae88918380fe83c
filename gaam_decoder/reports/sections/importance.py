"""Whether the layers that a mechanism reads most are the most accurate alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gaam_cache.messages import brief
from gaam_decoder import stats
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.comparisons.layers import Beside, TableLayers
from gaam_decoder.reports.pictures.picture import Picture, slug
from gaam_decoder.reports.table.base import Table
from gaam_decoder.reports.writing.numbers import p_value
from gaam_decoder.reports.writing.section import Section, Writer
from gaam_decoder.reports.writing.sheets import Sheet
from gaam_decoder.stats.association import Association
from gaam_decoder.stats.paired import DRAWS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 12
"""Mechanisms that are listed; Holm corrects for all."""
MOST_PICTURES = 4
"""The first that are listed."""
SMOOTH = "10 to 50"
"""Of 100 pairs of random walks over 6, 12 and 24 layers that have nothing to do with each other,
those in which p is below 0.05, by ``python -m tests.benchmarks.bench_error_rates --of layers``."""
SAID = {
    "together": "the more important layers are the more accurate alone",
    "opposed": "the more important layers are the less accurate alone",
    "undecided": "no association is shown",
}


class OfLayers(Writer):
    """Rank correlations of importance and accuracy, one per mechanism with attention maps."""

    place = 12

    def of(self, table: Table) -> Section | None:
        """None without four rows of single layers and a mechanism with attention maps over all."""
        if table.layers is None or not table.layers.found:
            return None
        found = table.layers.found
        shown = found[:MOST]
        names = _names(table, found)
        return Section(
            name="importance",
            heading="Does importance predict accuracy",
            lead=_lead(names, found),
            lines=tuple(_lines(table, table.layers, names)),
            sheets=(_sheet(names, shown),),
            pictures=tuple(
                _picture(name, one) for name, one in zip(names, shown[:MOST_PICTURES], strict=False)
            ),
            folded=False,
            values={
                "corrected_for": len(table.layers.family.keys),
                "mechanisms": [_values(*both) for both in zip(names, found, strict=True)],
            },
        )


def _names(table: Table, found: Sequence[Beside]) -> list[tuple[str, str]]:
    """Whose importance it is, and what was trained on one layer each."""
    by_row = dict(zip(map(id, table.rows), table.labels(), strict=True))
    return [(by_row[id(one.row)], brief(one.singles[0].attention)) for one in found]


def _lead(names: Sequence[tuple[str, str]], found: Sequence[Beside]) -> str:
    if len(found) == 1:
        (name, alone), (one,) = names[0], found
        count = f"{one.found.num_layers} layers"
        what = f"importance by {name} and accuracy of {alone} on one of {count} alone"
        return f"{what}: {_verdict(one.found)}"
    counted = Counter(one.found.verdict for one in found)
    if not any(one.found.testable for one in found):
        return f"no claim of any of {len(found)} mechanisms: {_verdict(found[0].found)}"
    return (
        f"of {len(found)} mechanisms with attention maps, in {counted['together']} "
        f"{SAID['together']}, in {counted['opposed']} the less; in {counted['undecided']} "
        f"{SAID['undecided']}"
    )


def _verdict(found: Association) -> str:
    """What may be said of one, with the numbers that it rests on."""
    if found.rho is None:
        return "no rank correlation, for one of both is the same of all layers"
    rho = f"rank correlation {found.rho:+.2f}"
    if not found.testable:
        return (
            f"{rho}, and no claim: {min(found.num_seeds)} seeds, and a claim needs "
            f"{stats.LEAST_SEEDS}"
        )
    assert found.interval is not None
    low, high = found.interval
    return (
        f"{SAID[found.verdict]} ({rho}, 95% interval {low:+.2f} to {high:+.2f} for these layers, "
        f"p {p_value(found.p_holm)} if they could be any)"
    )


def _lines(table: Table, layers: TableLayers, names: Sequence[tuple[str, str]]) -> list[str]:
    found, counted = layers.found, len(layers.family.keys)
    lines = [
        "importance is the mean importance factor of a layer over features and seeds, accuracy "
        "that of the same head and recipe on this layer alone; rho is Spearman's rank correlation",
        "the interval is of these layers: all orders of theirs that seeds, and test rows of the "
        "accuracies, leave open; it holds 95% or more. Importance is a mean over the test rows as "
        "they are",
        "p is the share of all orders of the layers with a rho as far from 0"
        + ("" if all(one.found.exact for one in found) else f" ({DRAWS:,} are drawn above 8)")
        + f", corrected by Holm for {max(counted, 1)}; a claim needs p < 0.05, an interval without "
        f"0 and {stats.LEAST_SEEDS} seeds of both",
        "p takes layers as if any could stand anywhere, and neighbours are alike: of curves over "
        f"depth that have nothing to do with each other {SMOOTH} of 100 have p < 0.05. Under depth "
        "stands the rho of the number of the layer, which needs no importance",
    ]
    if any(one.found.num_layers == 4 and one.found.testable for one in found):
        lines.append("of 4 layers no order has p < 0.05")
    for (name, alone), one in zip(names[:MOST], found, strict=False):
        if one.found.silent:
            same = "accuracy" if len(set(one.found.means[1].tolist())) == 1 else "importance"
            lines.append(f"{name}: the {same} of all layers is the same, and has no order")
        if one.left_out:
            lines.append(f"{alone}: without {one.left_out} seeds that some layers lack or failed")
        if one.found.verdict != "undecided" and abs(one.of_depth or 0) >= abs(one.found.rho or 0):
            lines.append(
                f"{name}: the number of a layer alone tells its accuracy as well (rho "
                f"{one.of_depth:+.2f})"
            )
    if len(found) > MOST:
        lines.append(f"the first {MOST} of {len(found)} mechanisms are listed")
    if without := layers.without:
        labels = dict(zip(map(id, table.rows), table.labels(), strict=True))
        told = ", ".join(labels[id(row)] for row in without[:MOST])
        lines.append(f"without an attention map: {told}{', ...' * (len(without) > MOST)}")
    if any(row.optimistic for one in found for row in (one.row, *one.singles)):
        lines.append("some of these numbers are optimistic")
    return list(dict.fromkeys(lines))


def _sheet(names: Sequence[tuple[str, str]], shown: Sequence[Beside]) -> Sheet:
    lines = []
    for (name, alone), one in zip(names, shown, strict=False):
        found, depth = one.found, one.of_depth
        interval = found.interval
        lines.append(
            [
                name,
                alone,
                spell_numbers(one.layers),
                "-" if found.rho is None else f"{found.rho:+.2f}",
                "-" if interval is None else f"{interval[0]:+.2f} to {interval[1]:+.2f}",
                p_value(found.p_holm),
                "-" if depth is None else f"{depth:+.2f}",
                found.verdict if found.testable else "-",
            ]
        )
    return Sheet(
        caption="importance of layers and accuracy of each alone",
        header=["importance", "alone", "layers", "rho", "95% interval", "p Holm", "depth",
                "verdict"],
        lines=lines,
        words=("importance", "alone", "layers", "verdict"),
    )  # fmt: skip


def _picture(names: tuple[str, str], one: Beside) -> Picture:
    name, alone = names
    accuracy_L = one.found.means[1]
    spoken = ", ".join(
        f"layer {layer} {importance:.2f} and {100 * accuracy:.1f}%"
        for layer, importance, accuracy in zip(
            one.layers, one.found.means[0], accuracy_L, strict=True
        )
    )
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


def _values(names: tuple[str, str], one: Beside) -> dict[str, Any]:
    importance_L, accuracy_L = one.found.means
    return {
        "importance_of": names[0],
        "alone": names[1],
        **one.found.to_dict(),
        "rho_of_depth": one.of_depth,
        "seeds_of_importance": list(one.row.scores.seeds),
        "seeds_alone": list(one.seeds),
        "layers": [
            {"layer": layer, "importance": importance, "accuracy": accuracy}
            for layer, importance, accuracy in zip(
                one.layers, importance_L.tolist(), accuracy_L.tolist(), strict=True
            )
        ],
    }
