"""Whether probabilities are what they say."""

from __future__ import annotations

import numpy as np

from gaam_decoder import stats
from gaam_decoder.reports.notes import how
from gaam_decoder.reports.pictures.picture import Picture
from gaam_decoder.reports.rows import SCALED, Row
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.writing.section import Section, Writer
from gaam_decoder.reports.writing.sheets import Sheet
from gaam_decoder.reports.writing.unit import Unit, score_of
from gaam_decoder.stats.scores.ece import BINS

DRAWN = 4
"""Rows in the picture: lines of more are not told apart."""


class Calibration(Writer):
    """Expected calibration error, and the reliability diagram."""

    place = 21

    def of(self, table: Table) -> Section | None:
        """None where no seed finished."""
        found = [
            (label, row)
            for label, row in zip(table.labels(), table.rows, strict=True)
            if row.scores.seeds
        ]
        if not found:
            return None
        unit = Unit(score_of("ece"))
        temperature = ["temperature"] if table.temperature else []
        lines = []
        for label, row in found:
            value_S = row.scores.every["ece"]
            count, right, sure = row.scores.bins.sum(1)
            cells = [label, unit.value(float(value_S.mean()))]
            cells += [unit.std(stats.standard_deviation(value_S))]
            cells += [unit.value(sure / count), unit.value(right / count)]
            if table.temperature:
                by = row.scores.temperatures
                cells.append(str(by) if by else "-")
            lines.append(cells)
        means = [float(row.scores.every["ece"].mean()) for _, row in found]
        return Section(
            name="calibration",
            heading="Calibration",
            lead=f"expected calibration error {unit.value(min(means))} to "
            f"{unit.mean(max(means))} (top label, {BINS} bins{SCALED if temperature else ''})",
            lines=(
                f"ECE: distance between accuracy and mean probability of what is predicted, in "
                f"{BINS} bins of equal width (Naeini et al. 2015, Guo et al. 2017), of each seed; "
                "it is biased upwards, the more the fewer test rows there are, so that nothing is "
                "claimed of differences",
                how(table),
            ),
            sheets=(
                Sheet(
                    caption="calibration" + (SCALED if table.temperature else ""),
                    header=[
                        "decoder",
                        "ECE %",
                        "sd",
                        "mean probability %",
                        "accuracy %",
                        *temperature,
                    ],
                    lines=lines,
                    words=("decoder",),
                ),
            ),
            pictures=(_picture(found, scaled=table.temperature),),
            values=[
                {"decoder": label, "ece": float(row.scores.every["ece"].mean())}
                | (
                    {"temperature": by.to_dict() if (by := row.scores.temperatures) else None}
                    if temperature
                    else {}
                )
                | {
                    name: bins.tolist()
                    for name, bins in zip(("rows", "right", "sum"), row.scores.bins, strict=True)
                }
                for label, row in found
            ],
        )


def _picture(found: list[tuple[str, Row]], *, scaled: bool) -> Picture:
    from gaam_decoder.reports.figures.reliability import reliability_diagram

    ranked = np.argsort([-(row.mean or 0.0) for _, row in found], kind="stable")
    drawn = [found[place] for place in sorted(ranked[:DRAWN])]
    rest = f" The {DRAWN} most accurate of {len(found)}." if len(found) > DRAWN else ""
    spoken = ", ".join(
        f"{label} {100 * float(row.scores.every['ece'].mean()):.1f}%" for label, row in drawn
    )
    return Picture(
        kind="calibration",
        name="reliability",
        title="Reliability diagram",
        caption=f"Test rows of all seeds in {BINS} bins by the probability of what is predicted; "
        f"below the dashed line probabilities are too large.{rest}{_scale(drawn, scaled)}",
        alt=f"Reliability diagram. Expected calibration error: {spoken}.",
        draw=lambda: reliability_diagram(
            [label for label, _ in drawn], [row.scores.bins for _, row in drawn]
        ),
    )


def _scale(drawn: list[tuple[str, Row]], scaled: bool) -> str:
    """What was done with the probabilities that are drawn."""
    if not scaled:
        return ""
    without = [label for label, row in drawn if row.scores.temperatures is None]
    but = f", but for {', '.join(without)}" if without else ""
    return f" Logits were divided by a temperature fitted on the rows that chose the epoch{but}."
