"""Accuracy along the axes of a sweep is that of the rows, for every axis that there can be."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from gaam_decoder import RunResult
from gaam_decoder.reports.table.axes import along
from gaam_decoder.reports.table.build import build_tables
from gaam_decoder.reports.table.row_axes import LAYER, LAYERS
from gaam_decoder.reports.writing.section import sections
from tests.decoder.reports.conftest import answers, build_run

AXES: dict[str, tuple[str, list[Any]]] = {
    LAYER: ("layers", ["1", "3", "6"]),
    LAYERS: ("layers", ["1-2", "1-4", "2-6"]),
    "lr": ("lr", [0.0001, 0.001, 0.01]),
    "train_rows": ("train_rows", [100, 1000]),
    "gaam heads": ("attention", ["gaam:heads=1", "gaam:heads=2", "gaam:heads=8"]),
}


def runs_along(name: str, **rest: Any) -> list[RunResult]:
    setting, values = AXES[name]
    others = ["none", "laplace"] if setting != "attention" else [None]
    found = []
    for number, (mechanism, value) in enumerate(product(others, values)):
        changes = rest if mechanism is None else {**rest, setting: value}
        found.append(build_run(mechanism or value, answers(6, 0.6 + 0.03 * number, number),
                               path=f"{number}", **changes))  # fmt: skip
    return found


def test_every_axis_has_its_curves_with_the_numbers_of_the_rows() -> None:
    for name, (setting, values) in AXES.items():
        (table,) = build_tables(runs_along(name), every_candidate=True)
        (axes,) = along(table)
        assert axes.names == (name,)
        assert len(axes.series) == (1 if setting == "attention" else 2)
        for series in axes.series:
            assert len(series.places) == len(values)
            assert list(series.values) == sorted(series.values)
            assert len({table.rows[place].head for place in series.places}) == 1
        (section,) = [one for one in sections(table) if one.name in ("axes", "grid")]
        (picture,) = section.pictures
        for series, said, line in zip(
            axes.series, section.values[name], picture.draw().axes[0].lines, strict=True
        ):
            means = [np.mean(table.rows[place].scores.accuracy) for place in series.places]
            np.testing.assert_allclose([p["accuracy"] for p in said["points"]], means)
            np.testing.assert_allclose(line.get_ydata(), 100 * np.array(means))
            np.testing.assert_allclose(line.get_xdata(), [value for (value,) in series.values])


def test_rows_of_all_training_rows_end_the_axis_of_their_number() -> None:
    runs = [
        build_run(name, answers(6, 0.6, number), path=f"{number}", train_rows=rows)
        for number, (name, rows) in enumerate(product(["none", "gaam"], [3, 6, None]))
    ]
    (table,) = build_tables(runs, every_candidate=True)
    (axes,) = along(table)
    assert axes.names == ("train_rows",)
    for series in axes.series:
        assert series.values == ((3,), (6,), (9,))
        assert table.rows[series.places[-1]].recipe.get("train_rows") is None


def test_rows_that_differ_in_more_are_on_no_axis() -> None:
    some = [
        build_run("none", answers(6, 0.6, 1), lr=0.1, epochs=3),
        build_run("none", answers(6, 0.6, 2), lr=0.2, epochs=4),
        build_run("gaam", answers(6, 0.6, 3), lr=0.3),
        build_run("gaam", answers(6, 0.6, 4), lr=0.4, head="conv"),
        build_run("mha", answers(6, 0.6, 5), lr=0.5),
        build_run("mha", answers(6, 0.6, 6), lr=0.6, shuffle_labels=True),
    ]
    (table,) = build_tables(some, every_candidate=True)
    assert not along(table)
    assert not {"axes", "grid"} & {one.name for one in sections(table)}


def test_a_grid_shows_the_mean_of_every_cell() -> None:
    (one, values), (two, others) = AXES[LAYER], AXES["lr"]
    some = [
        build_run("gaam", answers(6, 0.6 + 0.02 * n, n), path=str(n), **{one: a, two: b})
        for n, (a, b) in enumerate(product(values, others))
    ]
    (table,) = build_tables(some, every_candidate=True)
    (section,) = [found for found in sections(table) if found.name == "grid"]
    (picture,) = section.pictures
    written = sorted(text.get_text() for text in picture.draw().axes[0].texts)
    assert written == sorted(f"{100 * row.mean:.1f}" for row in table.rows if row.mean is not None)
