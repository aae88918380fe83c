"""Tables as text for people: the same cells for Markdown, LaTeX and HTML."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gaam_cache.messages import brief
from gaam_decoder.reports.axes import SHUFFLED
from gaam_decoder.reports.compare import Comparison
from gaam_decoder.reports.rows import SCALED, Row
from gaam_decoder.reports.table import ON_TRAINING_ROWS, Table
from gaam_decoder.reports.writing import learned_table
from gaam_decoder.reports.writing.numbers import p_value, percent
from gaam_decoder.reports.writing.unit import Unit, score_of

LEFT = ("attention", "head", "select", "settings", "parameter", "baseline", "verdict")
"""Columns of words; the others are numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sheet:
    """A caption, a header, and one list of cells for each line."""

    caption: str
    header: list[str]
    lines: list[list[str]]
    words: tuple[str, ...] = LEFT
    """Columns that stand at the left."""

    def dicts(self) -> list[dict[str, str]]:
        """Lines as column -> cell."""
        return [dict(zip(self.header, line, strict=True)) for line in self.lines]


def sheets(table: Table) -> list[Sheet]:
    """All there is to show of a table: accuracies, differences, learned parameters."""
    if not table.rows:
        return []
    found = (accuracies(table), differences(table), learned(table))
    return [sheet for sheet in found if sheet is not None]


def accuracies(table: Table) -> Sheet:
    """The score of every row that is shown, in percent where it is a share."""
    rows = [table.rows[place] for place in table.places]
    unit, beside = table.unit, "accuracy" if table.score == "macro-f1" else "macro-f1"
    header = ["attention", "head", unit.column, "sd", "95% CI seeds", "95% CI + rows"]
    header += [Unit(score_of(beside)).column, "seeds", "select"]
    lines = []
    for row in rows:
        other_S = row.scores.every[beside]
        seeds = str(len(row.seeds)) + (f" ({len(row.failed)} failed)" if row.failed else "")
        lines.append(
            [
                *_named(row),
                unit.value(row.chosen_mean),
                unit.std(row.chosen_std),
                unit.span(row.chosen_interval),
                unit.span(row.chosen_two_level),
                percent(float(other_S.mean()) if len(other_S) else None),
                seeds,
                "test (optimistic)" if row.select == "test" else brief(row.select, 40),
            ]
        )
    if any(table.published):
        header.append("published %")
        for line, found in zip(lines, (table.published[p] for p in table.places), strict=True):
            spread = f" (sd {found.std})" if found and found.std is not None else ""
            line.append(f"{found.mean}{spread}" if found else "-")
    header += ["parameters (attn / total)", "s/seed"]
    for line, row in zip(lines, rows, strict=True):
        taken = [row.seconds[seed] for seed in row.scores.seeds]
        line.append(f"{row.parameters['attention']:,} / {row.parameters['total']:,}")
        line.append(f"{np.mean(taken):.2f}" if taken else "-")
    named = list(zip(rows, lines, strict=True))
    return _with_settings(table, f"test {unit.score.title}{_scale(table)}", header, named, tail=2)


def differences(table: Table) -> Sheet | None:
    """Difference of every row to its baseline; None where nothing is compared."""
    unit = table.unit
    header = ["attention", "head", "difference", "95% CI + rows", "p", "p Holm", "verdict"]
    header += ["95% CI on these rows", "p on these rows", "MDD", "pairs"]
    made = [
        (table.rows[place], comparison)
        for place in table.places
        if (comparison := table.comparisons[place]) is not None
    ]
    lines = [(row, [*_named(row), *_difference(comparison, unit)]) for row, comparison in made]
    if not lines:
        return None
    if any(comparison and comparison.other_training for comparison in table.comparisons):
        header.append("p training")
        for (_, cells), (_, comparison) in zip(lines, made, strict=True):
            other = comparison.other_training
            cells.append(p_value(other.p if other else None))
    return _with_settings(
        table,
        f"difference to '{brief(str(table.baseline))}' in {unit.of_differences}",
        header,
        lines,
    )


def learned(table: Table) -> Sheet | None:
    """Ranges of the learned parameters; None where no row has any."""
    rows = [table.rows[place] for place in table.places]
    lines = [(row, [*_named(row), *cells]) for row in rows for cells in learned_table.cells(row)]
    if not lines:
        return None
    return _with_settings(
        table, learned_table.TITLE, ["attention", "head", *learned_table.HEADER], lines
    )


def _difference(comparison: Comparison, unit: Unit) -> list[str]:
    found = comparison.claim
    here = found.on_these_rows
    small = " (within margin)" if found.significant and found.negligible else ""
    return [
        unit.difference(found.difference) + ("*" if found.significant else ""),
        unit.span(found.interval_corrected, signed=True),
        p_value(found.p),
        p_value(found.p_holm),
        found.verdict + small,
        unit.span(here.interval, signed=True),
        p_value(here.sign_flip.p if here.sign_flip else None),
        unit.std(here.detectable),
        str(len(comparison.seeds)),
    ]


def _named(row: Row) -> list[str]:
    """Cells of mechanism and head; what makes a number no test accuracy stands beside its name."""
    mark = f" ({ON_TRAINING_ROWS})" if row.on_training_rows else ""
    mark += f" ({SHUFFLED})" if row.shuffled else ""
    return [brief(row.attention) + mark, brief(row.head, 60)]


def _with_settings(
    table: Table, caption: str, header: list[str], lines: list[tuple[Row, list[str]]], tail: int = 0
) -> Sheet:
    """Add what tells rows apart, where rows differ in it, before the last ``tail`` columns."""
    extra: dict[str, dict[int, str]] = {}
    if "select" not in header and len({row.select for row in table.rows}) > 1:
        extra["select"] = {id(row): brief(row.select, 40) for row in table.rows}
    if any(table.settings()):
        extra["settings"] = {
            id(row): text for row, text in zip(table.rows, table.settings(), strict=True)
        }
    place = len(header) - tail
    return Sheet(
        caption=caption,
        header=[*header[:place], *extra, *header[place:]],
        lines=[
            [*line[:place], *(by_row[id(row)] for by_row in extra.values()), *line[place:]]
            for row, line in lines
        ],
    )


def _scale(table: Table) -> str:
    return SCALED if table.temperature and table.unit.score.of_sizes else ""
