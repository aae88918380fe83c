"""The pictures beside the table, and all pictures of a report as files.

S seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gaam_cache.messages import brief
from gaam_cache.store.files import write_file
from gaam_decoder.reports.drawing import PALETTE, Picture, image_files, legend_below, name_rows
from gaam_decoder.reports.sections._base import sections
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.unit import DEFAULT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_SAVED = 6
"""Pictures of a report that are written, each as PDF and PNG: a dozen files."""
Interval = tuple[float, float] | None


def overviews(table: Table) -> Iterator[Picture]:
    """One row beside the other, those that are shown; none without rows."""
    if not table.rows:
        return
    title = table.unit.score.title
    yield Picture(
        "accuracy",
        f"{title[0].upper()}{title[1:]} of every seed",
        "One dot per seed, and two 95% intervals of the mean: over seeds (thick), and over "
        "seeds and test rows (thin). The second is the one to compare with another test set.",
        lambda: _strip(table),
    )
    if any(table.comparisons[place] for place in table.places):
        side = "Right" if table.unit.score.larger_is_better else "Left"
        yield Picture(
            "differences",
            f"Differences to {brief(str(table.baseline))} with intervals",
            f"{side} of the line: better than the baseline. An interval over seeds and "
            "rows that crosses the line leaves open which is better; the band is the margin within "
            "which a difference does not matter.",
            lambda: _forest(table),
        )


def save_pictures(tables: Sequence[Table], folder: Path) -> list[Path]:
    """Write the first pictures of every table as PDF and PNG, of a section one.

    Raises:
        StorageError: the folder cannot be written to.
    """
    paths: dict[str, Path] = {}
    for number, table in enumerate(tables, 1):
        prefix = f"table{number}-" if len(tables) > 1 else ""
        of_sections = [section.pictures[0] for section in sections(table) if section.pictures]
        most = max(1, MOST_SAVED // len(tables))
        for picture in [*overviews(table), *of_sections][:most]:
            for suffix, content in image_files(picture).items():
                name = f"{prefix}{picture.name}.{suffix}"
                paths[name] = folder / name
                write_file(paths[name], content, option="--figures")
    return list(paths.values())


def _strip(table: Table) -> Figure:
    """A dot for each seed, the mean, and both intervals."""
    labels, unit = table.labels(), table.unit
    figure, axes = name_rows([labels[place] for place in table.places])
    axes.set_xlabel(f"test {unit.column}")
    steps = np.array([0.0, 0.13, -0.13, 0.06, -0.06])
    for place, row in enumerate(table.rows[shown] for shown in table.places):
        value_S = unit.factor * row.scores.chosen.scored.values
        if len(value_S):
            # heights that keep dots apart are by rank, not by chance: a picture is repeatable
            height_S = np.empty(len(value_S))
            height_S[np.argsort(value_S, kind="stable")] = np.resize(steps, len(value_S))
            axes.plot(value_S, place - 0.16 + height_S, "o", ms=3.4, mew=0, color=PALETTE["c0"],
                      alpha=0.6, label="one seed")  # fmt: skip
            axes.plot([value_S.mean()] * 2, [place - 0.36, place + 0.32], color=PALETTE["ink"],
                      lw=1.4, label="mean")  # fmt: skip
        chosen = row.scores.chosen
        _draw_intervals(axes, place + 0.18, unit.factor, chosen.interval, chosen.two_level)
    return legend_below(figure)


def _forest(table: Table) -> Figure:
    """Differences with both intervals; filled where the corrected test finds one."""
    labels, unit, ink = table.labels(), table.unit, PALETTE["ink"]
    shown = [place for place in table.places if table.comparisons[place] is not None]
    figure, axes = name_rows([labels[place] for place in shown])
    points = "percentage points" if table.score == DEFAULT else unit.of_differences
    axes.set_xlabel(f"difference to {brief(str(table.baseline), 26)},\n{points}")
    margin = unit.factor * table.margin
    axes.axvspan(-margin, margin, color=PALETTE["muted"], alpha=0.15, lw=0,
                 label=f"within \u00b1{margin:g}")  # fmt: skip
    axes.axvline(0, color=ink, lw=1)
    for height, compared in enumerate(table.comparisons[place] for place in shown):
        assert compared is not None
        claim = compared.claim
        seeds, both = claim.on_these_rows.interval, claim.interval_corrected
        _draw_intervals(axes, height, unit.factor, seeds, both)
        face, label = (ink, "mean, Holm p < 0.05") if claim.significant else ("none", "mean")
        axes.plot(unit.factor * claim.difference, height, "o", ms=6, mew=1.4, mec=ink, mfc=face,
                  label=label)  # fmt: skip
    return legend_below(figure)


def _draw_intervals(
    axes: Axes, height: float, factor: int, seeds: Interval, both: Interval
) -> None:
    for interval, label, style in (
        (both, "95% over seeds and rows", {"color": PALETTE["muted"], "lw": 1.2}),
        (seeds, "95% over seeds", {"color": PALETTE["accent"], "lw": 3.2, "alpha": 0.75}),
    ):
        if interval:
            axes.plot(factor * np.array(interval), [height] * 2, label=label, **style)  # type: ignore[arg-type]
