"""Names of rows, accuracy by the settings of a sweep, and importance beside layers alone."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.stats

import gaam_decoder
from gaam_decoder import RunResult
from gaam_decoder.reports.sections import sections
from gaam_decoder.reports.sections.importance import beside_alone
from gaam_decoder.reports.table import build_tables
from tests.decoder.reports.conftest import answers, build_run

AXES: dict[str, list[Any]] = {
    "layers": ["1", "3", "6", None],
    "lr": [0.0001, 0.001, 0.01],
    "train_rows": [3, 6, None],
}


def test_a_sweep_has_a_table_and_a_picture_of_the_means_of_its_rows() -> None:
    for name, values in AXES.items():
        runs = [
            build_run(mechanism, answers(6, 0.6 + 0.03 * number, number), path=f"{number}",
                      epochs=epochs, **{name: value})
            for number, (mechanism, epochs, value) in enumerate(
                product(("none", "laplace"), (3, 4), values))
        ]  # fmt: skip
        (table,) = build_tables(runs, every_candidate=True)
        assert len({row.label for row in table.entries}) == len(table.entries)
        (section,) = [one for one in sections(table) if one.name == "grid"]
        (sheet,), (picture,) = section.parts[0], section.parts[1]
        header = [name, *("all" if value is None else str(value) for value in values)]
        assert sheet.header == header
        means = {
            (
                f"{row.attention} + linear, epochs={row.recipe['epochs']}",
                row.recipe[name],
            ): row.accuracy.mean
            for row in table.entries
        }
        for line in sheet.lines:
            assert line[1:] == [
                f"{100 * (means[line[0], value] or 0):.1f}" for value in values
            ]
        assert len(sheet.lines) == 4
        cells = section.values["cells"]
        assert sorted(one["accuracy"] for one in cells) == sorted(means.values())  # type: ignore[type-var]
        (axes,) = picture.draw().axes
        for line in axes.lines:
            drawn = [
                100 * (means[line.get_label(), v] or 0) for v in values if v is not None
            ]
            np.testing.assert_allclose(line.get_ydata(), drawn)
            assert list(line.get_xdata()) == [float(v) for v in values if v is not None]


def test_rows_that_differ_in_more_are_in_no_grid_and_all_have_labels_of_their_own() -> (
    None
):
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
    assert "grid" not in [section.name for section in sections(table)]
    assert {row.label for row in table.entries} == {
        *(
            "gaam + conv",
            "gaam + linear",
            "mha + linear",
            "mha + linear labels shuffled",
        ),
        *("mha + linear select=test", "none + linear epochs=3, lr=0.1"),
        "none + linear epochs=4, lr=0.2",
    }


def singles(
    layers: Any = range(1, 7), mechanism: str = "none", **changes: Any
) -> list[RunResult]:
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
    return build_run(
        mechanism, answers(8, 0.9, 99), **{"attention_map": gate(), **changes}
    )


def found_in(*runs: RunResult) -> list[Any]:
    return [one for table in build_tables(runs) for one in beside_alone(table.entries)]


def test_importance_stands_beside_the_accuracy_of_each_layer_alone() -> None:
    """Of the seeds that all layers have; by SciPy."""
    some = singles()
    some[2].failed[5] = "a reason"
    vars(some[2])["logits"][5] = np.nan
    (one,) = found_in(*some, whole())
    kept = [0, 1, 2, 3, 4, 6, 7]
    layers = {of["layer"]: of["importance"] for of in one["layers"]}
    assert (list(layers), one["seeds_alone"]) == ([1, 2, 3, 4, 5, 6], kept)
    low, high = (f(gate(), (1, 2))[:, None, None] for f in (np.min, np.max))
    factor_SL = ((gate() - low) / (high - low)).mean(2)
    np.testing.assert_allclose([*layers.values()], factor_SL.mean(0), rtol=1e-5)
    accuracy = [(run.logits.argmax(2) == run.labels)[kept].mean() for run in some]
    expected = scipy.stats.spearmanr([*layers.values()], accuracy).statistic
    assert one["rho"] == pytest.approx(expected)
    (table,) = build_tables([*some, whole(select="val")])
    (section,) = [found for found in sections(table) if found.name == "importance"]
    assert f"rank correlation {expected:+.2f}" in section.lead
    (axes,) = section.parts[1][0].draw().axes
    (line,) = [drawn for drawn in axes.lines if drawn.get_label() == "gaam"]
    share_SL = gate().sum(2) / gate().sum((1, 2))[:, None]
    np.testing.assert_allclose(line.get_ydata(), 100 * share_SL.mean(0), rtol=1e-5)
    assert section.parts[0][1].lines[0][1].startswith("6 (")
