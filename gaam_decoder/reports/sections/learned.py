"""What was learned: by epoch, of every layer, the parameters, and the gates beside a planted one.

S seeds, L layers, P points, E epochs.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.messages import brief
from gaam_decoder.analysis.importance import factor_by_seed
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
from gaam_decoder.reports.rows import Row
from gaam_decoder.reports.sections.base import Parts, Section, Writer
from gaam_decoder.reports.table import Table
from gaam_decoder.runs.tuning import TUNED, first_runs

HELD_OUT = {"val": "validation accuracy, %", "test": "TEST accuracy, %"}
LEAST_LAYERS = 4  # three have six orders: every rank correlation is as good as chance
IMPORTANCE = (
    "importance is the mean importance factor of a layer over features and seeds, accuracy that of "
    "the same head and recipe on this layer alone; rho is Spearman's rank correlation of so few "
    "layers. It is no test: neighbouring layers are alike in both"
)
GATE = (
    "gate: the weight of a feature by how many standard deviations it lies from the gate's centre, "
    "mean over heads and features; peak 1, since the head undoes any factor"
)


class Learned(Writer):
    """Shares of layers, learning curves, ranges of parameters, and curves of gates."""

    place = 12

    def of(self, table: Table) -> Iterator[Section]:
        """Nothing of several folds, whose seeds learned from other rows in each."""
        rows = [row for row in table.rows if row.folds == 1]
        if found := list(beside_alone(table.rows)):
            yield _beside_alone(table, found)
        elif any(map(_importance, rows)):
            heading = "What mechanisms read of every layer"
            yield Section(
                name="importance", heading=heading, make=lambda: _shares(table)
            )
        if any(run.log for row in rows if not row.fitted for run in row.runs):
            yield Section(
                name="curves", heading="Learning curves", make=lambda: _curves(table)
            )
        header = [
            "decoder",
            "parameter",
            "start",
            "min",
            "median",
            "max",
            "sd of seed medians",
        ]
        lines = []
        for row in table.shown:
            for name, of in row.learned.items():
                start = dict.fromkeys(f"{value:.3g}" for value in of["start"] or ())
                values = [
                    of[key] for key in ("min", "median", "max", "seed_medians_sd")
                ]
                cells = ["-" if value is None else f"{value:.3g}" for value in values]
                lines.append(
                    [row.label, brief(name, 40), " to ".join(start) or "-", *cells]
                )
        if lines:
            title = "learned parameters after training, over heads, features and seeds"
            sheet = Sheet(title, header, lines)
            yield Section(
                name="learned",
                heading="Learned parameters",
                make=lambda: ((sheet,), ()),
            )
        # of every feature, other than the weights of gaussian-mixture
        shape, none = (table.cache["hidden_size"],), np.empty(0)
        learnt = [
            (row, row.runs[0].learned.get(OFFSET, none)) for row in rows if row.finished
        ]
        if gates := [row for row, offset in learnt if offset.shape[2:] == shape]:
            gate = planted_gate(table.cache)
            yield Section(
                name="gates",
                heading="Learned gates",
                lead=f"of {len(gates)} rows"
                + f", beside the planted one ({gate})" * bool(gate),
                lines=(GATE,),
                make=lambda: _gates(gates[:MOST_LINES], gate),
                values={"planted": table.cache.get("planted") if gate else None},
            )


def _curves(table: Table) -> Parts:
    import pandas

    held_out = HELD_OUT.get(
        "".join({r.select for r in table.rows}), "held-out accuracy, %"
    )
    names = {"loss": "training loss", "train_accuracy": "training accuracy, %"}
    panels = dict[str, list[Line]]()
    for row in table.rows:
        counts = {} if row.fitted else first_runs(row.runs)
        every = [
            one for run in row.runs for one in run.log if counts.get(one["seed"]) is run
        ]
        log = pandas.DataFrame(every)  # of each seed that of the run that counts
        for key, what in (names | {"accuracy": held_out}).items() if len(log) else ():
            by_epoch = (
                log.astype({key: float}).groupby("epoch")[key] if key in log else None
            )
            if by_epoch is not None and len(mean_E := by_epoch.mean().dropna()):
                mean_E *= (factor := 1 if key == "loss" else 100)
                sd_E = factor * by_epoch.std(ddof=0)[mean_E.index]
                line = Line(
                    row.label,
                    [*mean_E.index],
                    [*mean_E],
                    (mean_E - sd_E, mean_E + sd_E),
                )
                panels.setdefault(what, []).append(line)
    ends = [
        {o.label: f"{o.y[0]:.4g} to {o.y[-1]:.4g}" for o in lines}
        for lines in panels.values()
    ]
    cells = [
        [row.label, *(of.get(row.label, "-") for of in ends)] for row in table.rows
    ]
    sheet = Sheet("first to last epoch, mean over seeds", ["decoder", *panels], cells)
    drawn = [(what, lines[:MOST_LINES]) for what, lines in panels.items()]
    picture = Picture(
        "curves",
        "Learning curves",
        "Mean over seeds, of the best decoders; the band is one standard deviation.",
        lambda: line_panels(drawn, "epoch"),
    )
    return (sheet,), (picture,) if drawn else ()


def beside_alone(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Importance that a mechanism gives to layers beside the accuracy on each, as JSON values.

    Of every row with attention maps and rows on one of its layers each: four or more, with the same
    head and recipe but for the layers; what was tuned may differ. The rows of its own mechanism
    count, or where it has none, those of others.
    """
    usable = [
        row for row in rows if row.finished and not row.shuffled and row.folds == 1
    ]
    singles = [row for row in usable if len(row.runs[0].layer_numbers) == 1]
    for row in usable:
        layers, apart = (
            row.runs[0].layer_numbers,
            ("layers", *(TUNED if row.tunings else ())),
        )
        by_mechanism: dict[str, dict[int, Row]] = {}
        for one in singles:
            (layer,) = one.runs[0].layer_numbers
            same = one.head == row.head and same_recipe(one.recipe, row.recipe, apart)
            if same and layer in layers:
                by_mechanism.setdefault(one.attention, {})[layer] = one
        enough = {
            name: of for name, of in by_mechanism.items() if len(of) >= LEAST_LAYERS
        }
        enough = {
            name: of for name, of in enough.items() if name == row.attention
        } or enough
        factor_SL = factor_by_seed(row.runs, row.finished) if enough else None
        if factor_SL is None or not np.isfinite(factor_SL).all():
            continue
        for name, of in enough.items():
            alone = [of[layer] for layer in sorted(of)]
            if not (
                seeds := sorted(set.intersection(*(set(one.finished) for one in alone)))
            ):
                continue
            mine_SL = factor_SL[:, [layers.index(layer) for layer in sorted(of)]]
            right_LSN = np.stack(
                [one.right[list(map(one.finished.index, seeds))] for one in alone]
            )
            # accuracies of the same rows differ by 1/N or not at all; less is rounding
            factor_L, accuracy_L = mine_SL.mean(0), right_LSN.mean(2).mean(1).round(9)
            columns = zip(sorted(of), factor_L, accuracy_L, strict=True)
            yield {
                "importance_of": row.label,
                "alone": brief(name),
                "rho": _rho(factor_L.round(9), accuracy_L),
                "seeds_of_importance": list(row.finished),
                "seeds_alone": seeds,
                "layers": [
                    {
                        "layer": layer,
                        "importance": float(factor),
                        "accuracy": float(accuracy),
                    }
                    for layer, factor, accuracy in columns
                ],
            }


def _rho(one_L: NDArray[Any], other_L: NDArray[Any]) -> float | None:
    """Rank correlation; None where one of both is the same of all layers."""
    from scipy.stats import (
        spearmanr,  # a report of no importance does without: a second
    )

    if not (np.ptp(one_L) and np.ptp(other_L)):
        return None
    return float(spearmanr(one_L, other_L).statistic)


def _beside_alone(table: Table, found: list[dict[str, Any]]) -> Section:
    cells = []
    for one in found:
        layers = spell_numbers([of["layer"] for of in one["layers"]])
        told = "-" if (rho := one["rho"]) is None else f"{rho:+.2f}"
        cells.append([one["importance_of"], one["alone"], layers, told])
    header = ["importance", "alone", "layers", "rho"]
    sheet = Sheet("importance of layers and accuracy of each alone", header, cells)
    return Section(
        name="importance",
        heading="Does importance predict accuracy",
        lead="importance by {} and accuracy of {} on one of layers {} alone: "
        "rank correlation {}".format(*cells[0]),
        lines=(IMPORTANCE,),
        make=lambda: _shares(table, sheet),
        values={"mechanisms": found},
    )


def _importance(row: Row) -> Any:
    """Of a row that reads several layers, else None."""
    return of if (of := row.importance) and len(of.layers) > 1 else None


def _shares(table: Table, *first: Sheet) -> Parts:
    lines, curves = [], []
    for row in table.rows:
        if of := _importance(row):
            by_share = sorted(
                zip(of.contribution, of.layers, strict=True), reverse=True
            )
            told = [f"{layer} ({share:.1f}%)" for share, layer in by_share]
            lines.append([row.label, ", ".join(told[:3]), told[-1]])
            mean_L = np.array(of.contribution)
            sd_L = np.array(of.contribution_sd or 0 * mean_L)
            curves.append(
                Line(row.label, of.layers, mean_L, (mean_L - sd_L, mean_L + sd_L))
            )
    header = ["decoder", "layers read most (share)", "least"]
    sheet = Sheet("share of layers in the summed attention", header, lines)
    panels = [("share of the layer, %", curves[:MOST_LINES])]
    layers = sorted({layer for one in curves[:MOST_LINES] for layer in one.x})
    equal = Line("equal shares", layers, np.full(len(layers), 100 / len(layers)))
    picture = Picture(
        "importance",
        "Share of layers in the summed attention",
        "Mean over seeds, of the best; the band is one standard deviation.",
        lambda: line_panels(panels, "encoder layer", beside=equal, bottom=0),
    )
    return (*first, sheet), (picture,)


def _gates(rows: Sequence[Row], gate: str | None) -> Parts:
    lines = []
    for row in rows:
        if (curve_SP := learned_curves(row.runs)) is not None:
            band = curve_SP.min(0), curve_SP.max(0)
            lines.append(Line(row.label, RESIDUALS, curve_SP.mean(0), band))
    beside = Line("planted", RESIDUALS, planted_curve(gate)) if gate else None
    picture = Picture(
        "gates",
        "Learned gates",
        "Mean over seeds, heads and features of the best; the band goes from the lowest seed to "
        "the highest; dashed: what was planted, where something was.",
        lambda: line_panels(
            [("weight", lines)],
            "standardised feature value, from the gate's centre",
            beside=beside,
            bottom=0,
        ),
    )
    return (), (picture,)
