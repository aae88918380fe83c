"""Names of rows, accuracy along the axes of a sweep, and importance beside layers alone."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.stats

import gaam_decoder
from gaam_decoder import RunResult
from gaam_decoder.reports.axes import LAYER, LAYERS, Beside, along
from gaam_decoder.reports.sections._base import sections
from gaam_decoder.reports.table import build_tables
from tests.decoder.reports.conftest import answers, build_run

AXES: dict[str, tuple[str, list[Any]]] = {
    LAYER: ("layers", ["1", "3", "6"]),
    LAYERS: ("layers", ["1-2", "1-4", "2-6"]),
    "lr": ("lr", [0.0001, 0.001, 0.01]),
    "train_rows": ("train_rows", [3, 6, None]),
    "gaam heads": ("attention", ["gaam:heads=1", "gaam:heads=2", "gaam:heads=8"]),
}


def runs_along(name: str) -> list[RunResult]:
    setting, values = AXES[name]
    others = ["none", "laplace"] if setting != "attention" else [None]
    found = []
    for number, (mechanism, value) in enumerate(product(others, values)):
        changes = {setting: value} if mechanism else {}
        found.append(build_run(mechanism or value, answers(6, 0.6 + 0.03 * number, number),
                               path=f"{number}", **changes))  # fmt: skip
    return found


def test_every_axis_has_its_curves_with_the_numbers_of_the_rows() -> None:
    for name, (setting, values) in AXES.items():
        (table,) = build_tables(runs_along(name), every_candidate=True)
        assert len(set(table.labels())) == len(table.rows)
        (axes,) = along(table.rows)
        assert axes.names == (name,)
        assert len(axes.series) == (1 if setting == "attention" else 2)
        (section,) = [one for one in sections(table) if one.name in ("axes", "grid")]
        (picture,) = section.pictures
        drawn = picture.draw().axes[0].lines
        for series, said, line in zip(axes.series, section.values[name], drawn, strict=True):
            assert len(series.places) == len(values)
            assert list(series.values) == sorted(series.values)
            if name == "train_rows":  # of all rows
                assert series.values == ((3,), (6,), (9,))
            means = [np.mean(table.rows[place].scores.accuracy) for place in series.places]
            np.testing.assert_allclose([p["accuracy"] for p in said["points"]], means)
            np.testing.assert_allclose(line.get_ydata(), 100 * np.array(means))
            np.testing.assert_allclose(line.get_xdata(), [value for (value,) in series.values])
        shown = [cell for line in section.sheets[0].lines for cell in line[1:]]
        of_series = [table.rows[place].mean for one in axes.series for place in one.places]
        assert shown == [f"{100 * (mean or 0):.1f}" for mean in of_series]


def test_rows_that_differ_in_more_are_on_no_axis_and_all_have_labels_of_their_own() -> None:
    some = [
        build_run("none", answers(6, 0.6, 1), lr=0.1, epochs=3),
        build_run("none", answers(6, 0.6, 2), lr=0.2, epochs=4),
        build_run("gaam", answers(6, 0.6, 3), lr=0.3),
        build_run("gaam", answers(6, 0.6, 4), lr=0.4, head="conv"),
        build_run("mha", answers(6, 0.6, 5), lr=0.5),
        build_run("mha", answers(6, 0.6, 6), lr=0.6, shuffle_labels=True),
        build_run("mha", answers(6, 0.6, 6), lr=0.7, select="test", epochs=9),
    ]
    (table,) = gaam_decoder.report(some, every_candidate=True).tables
    assert not along(table.rows)
    assert set(table.labels()) == {
        *(
            "gaam + conv",
            "gaam + linear",
            "mha + linear select=val",
            "mha + linear labels shuffled",
        ),
        *("mha + linear select=test", "none + linear epochs=3, lr=0.1"),
        "none + linear epochs=4, lr=0.2",
    }


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
    assert written == sorted(cell for line in section.sheets[0].lines for cell in line[1:])


def singles(layers: Any = range(1, 7), mechanism: str = "none", **changes: Any) -> list[RunResult]:
    return [
        build_run(mechanism, answers(8, 0.3 + 0.1 * layer, layer), layers=str(layer),
                  path=f"{mechanism}{layer}", **changes)
        for layer in layers
    ]  # fmt: skip


def gate(seeds: int = 8) -> np.ndarray:
    """A map in which later layers weigh more."""
    noise = np.random.default_rng(0).normal(0, 0.9, (seeds, 6, 8))
    return np.asarray(np.arange(1.0, 7)[:, None] + noise, np.float32)


def whole(mechanism: str = "gaam", **changes: Any) -> RunResult:
    return build_run(mechanism, answers(8, 0.9, 99), **{"attention_map": gate(), **changes})


def found_in(*runs: RunResult) -> list[Beside]:
    return [one for table in build_tables(runs) for one in table.layers]


def test_importance_stands_beside_the_accuracy_of_each_layer_alone() -> None:
    """Of the seeds that all layers have; by SciPy."""
    some = singles()
    some[2].failed[5] = "a reason"
    vars(some[2])["logits"][5] = np.nan
    (one,) = found_in(*some, whole())
    kept = [0, 1, 2, 3, 4, 6, 7]
    assert (one.layers, list(one.seeds)) == ((1, 2, 3, 4, 5, 6), kept)
    low, high = (f(gate(), (1, 2))[:, None, None] for f in (np.min, np.max))
    np.testing.assert_allclose(one.importance, ((gate() - low) / (high - low)).mean(2), rtol=1e-5)
    accuracy = [(run.logits.argmax(2) == run.labels)[kept].mean() for run in some]
    expected = scipy.stats.spearmanr(one.importance.mean(0), accuracy).statistic
    assert one.found.rho == pytest.approx(expected)
    assert one.found.interval is not None
    (table,) = build_tables([*some, whole(select="val")])
    (section,) = [found for found in sections(table) if found.name == "importance"]
    assert f"rank correlation {expected:+.2f}" in section.lead
    (axes,) = section.pictures[0].draw().axes
    (line,) = [drawn for drawn in axes.lines if drawn.get_label() == "gaam"]
    share_SL = gate().sum(2) / gate().sum((1, 2))[:, None]
    np.testing.assert_allclose(line.get_ydata(), 100 * share_SL.mean(0), rtol=1e-5)
    assert section.sheets[1].lines[0][1].startswith("6 (")


def test_only_rows_of_the_same_recipe_over_all_of_the_layers_belong_together() -> None:
    part = whole("laplace", attention_map=gate()[:, 1:5], layers="2-5")
    assert found_in(*singles(), part) == []
    assert [one.layers for one in found_in(*singles((2, 3, 4, 5)), part)] == [(2, 3, 4, 5)]
    assert found_in(*singles((1, 2, 3)), whole()) == []  # three layers say nothing
    own = found_in(*singles(mechanism="gaam"), *singles(), whole())
    assert [{row.attention for row in one.singles} for one in own] == [{"gaam"}]
    for other in ({"head": "conv"}, {"epochs": 9}, {"train_rows": 7}, {"shuffle_labels": True},
                  {"attention_map": None}):  # fmt: skip
        assert found_in(*singles(), whole(**other)) == [], other
    flat = found_in(*singles(), whole(attention_map=np.ones((8, 6, 4), np.float32)))
    assert [one.found.rho for one in flat] == [None]
