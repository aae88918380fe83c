"""Names of entries, accuracy by settings, and importance beside layers alone."""

from __future__ import annotations

import csv
import io
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.stats
from numpy.typing import NDArray

import gaam_decoder
from gaam_decoder import RunResult
from gaam_decoder.reports.sections import Section, sections
from gaam_decoder.reports.sections.importance import compare_with_single_layers
from gaam_decoder.reports.table import Table, build_tables
from tests.decoder.reports.conftest import answers, build_run, change_arrays

AXES: dict[str, list[Any]] = {
    "layers": ["1", "3", "6", None],
    "lr": [0.0001, 0.001, 0.01],
    "train_rows": [3, 6, None],
    "shots": [3, 6, None],
}
"""A setting -> its values in a sweep."""


def section_of(table: Table, name: str) -> Section:
    [section] = [section for section in sections(table) if section.name == name]
    return section


def sweep(axis: str) -> list[RunResult]:
    """Two mechanisms, each with two numbers of epochs, over all values of an axis."""
    cases = product(("none", "laplace"), (3, 4), AXES[axis])
    return [
        build_run(
            mechanism,
            answers(6, 0.6 + 0.03 * number, number),
            path=f"{number}",
            epochs=epochs,
            **{axis: value},
        )
        for number, (mechanism, epochs, value) in enumerate(cases)
    ]


def means_by_line_and_value(table: Table, axis: str) -> dict[tuple[str, Any], float]:
    """The mean accuracy of every entry, by its line in a grid and its value there."""
    means: dict[tuple[str, Any], float] = {}
    for entry in table.entries:
        line = f"{entry.attention} + linear, epochs={entry.recipe['epochs']}"
        assert entry.default_score.mean is not None
        means[line, entry.recipe[axis]] = entry.default_score.mean
    return means


@pytest.mark.parametrize("axis", AXES)
def test_a_sweep_has_a_table_and_a_picture_of_the_means_of_its_entries(
    axis: str,
) -> None:
    values = AXES[axis]
    [table] = build_tables(sweep(axis), every_candidate=True)
    assert len({entry.label for entry in table.entries}) == len(table.entries)
    section = section_of(table, "grid")
    means = means_by_line_and_value(table, axis)

    [sheet] = section.parts[0]
    names = ["all" if value is None else str(value) for value in values]
    assert sheet.header == [axis, *names]
    assert len(sheet.lines) == 4
    for name, *cells in sheet.lines:
        assert cells == [f"{100 * means[name, value]:.1f}" for value in values]
    accuracies = [cell["accuracy"] for cell in section.values["cells"]]
    assert sorted(accuracies) == sorted(means.values())

    [picture] = section.parts[1]
    [axes] = picture.draw().axes
    numbers = [value for value in values if value is not None]
    for line in axes.lines:
        expected = [100 * means[str(line.get_label()), value] for value in numbers]
        np.testing.assert_allclose(np.asarray(line.get_ydata()), expected)
        assert list(np.asarray(line.get_xdata())) == [float(value) for value in numbers]


class GridCase(NamedTuple):
    """Recipes of the baseline, and the lines of their grid, the best first."""

    recipes: list[dict[str, Any]]
    axis: str
    lines: dict[str, list[int]]
    """Name of a line -> the place of each cell's recipe."""


GRID_CASES = {
    "another split seed": GridCase(
        [
            {"train_rows": rows, "split_seed": seed}
            for seed in (0, 1)
            for rows in (30, 60, None)
        ],
        "train_rows",
        {"split_seed=0": [0, 1, 2], "split_seed=1": [3, 4, 5]},
    ),
    "another share of validation rows": GridCase(
        [
            {"layers": layer, "val_fraction": share}
            for share in (0.1, 0.3)
            for layer in ("1", "2", "3")
        ],
        "layers",
        {"val_fraction=0.1": [0, 1, 2], "val_fraction=0.3": [3, 4, 5]},
    ),
    "a setting that most recipes do not name": GridCase(
        [
            {"epochs": epochs} | more
            for more in ({}, {"optimizer": "sgd"}, {"class_weights": "balanced"})
            for epochs in (2, 3, 5)
        ],
        "epochs",
        {
            "": [0, 1, 2],
            "optimizer=sgd": [3, 4, 5],
            "class_weights=balanced": [6, 7, 8],
        },
    ),
    "rows of each class are not all rows": GridCase(
        [{"shots": 5}, {"train_rows": 30}, {"train_rows": 60}, {}],
        "train_rows",
        {"": [1, 2, 3]},
    ),
    "rows of each class, and all rows": GridCase(
        [{"shots": 5}, {"shots": 20}, {"train_rows": 30}, {}],
        "shots",
        {"": [0, 1, 3]},
    ),
}


@pytest.mark.parametrize("name", GRID_CASES)
def test_a_line_of_a_grid_agrees_in_all_but_the_axis(name: str) -> None:
    case = GRID_CASES[name]
    runs = [
        build_run(
            "none", answers(6, 0.6 + 0.03 * number, number), path=f"{number}", **recipe
        )
        for number, recipe in enumerate(case.recipes)
    ]
    [table] = build_tables(runs)
    [sheet] = section_of(table, "grid").parts[0]
    assert sheet.header[0] == case.axis
    cells_by_line = {line[0]: line[1:] for line in sheet.lines}
    expected = {}
    for settings, places in case.lines.items():
        line_name = f"none + linear, {settings}" if settings else "none + linear"
        means = [float(runs[place].accuracy.mean()) for place in places]
        expected[line_name] = [f"{100 * mean:.1f}" for mean in means]
    assert cells_by_line == expected


def test_curves_are_of_finished_seeds() -> None:
    log = [
        {"seed": seed, "epoch": epoch, "loss": float(10 * seed + epoch)}
        for seed in range(6)
        for epoch in (1, 2)
    ]
    run = build_run("none", answers(6, 0.8, 1), log=log, failed={5: "a reason"})
    [table] = build_tables([run])
    [sheet] = section_of(table, "curves").parts[0]
    assert sheet.lines[0][1] == "21 to 22"


def test_entries_that_differ_in_more_are_in_no_grid_and_have_labels_of_their_own() -> (
    None
):
    runs = [
        build_run("none", answers(6, 0.6, 1), lr=0.1, epochs=3),
        build_run("none", answers(6, 0.6, 2), lr=0.2, epochs=4),
        build_run("gaam", answers(6, 0.6, 3), lr=0.3),
        build_run("gaam", answers(6, 0.6, 4), lr=0.4, head="conv"),
        build_run("mha", answers(6, 0.6, 5), lr=0.5),
        build_run("mha", answers(6, 0.6, 6), lr=0.6, shuffle_labels=True),
        build_run("mha", answers(6, 0.6, 6), lr=0.7, select="test", epochs=9),
    ]
    [table] = gaam_decoder.report(runs, every_candidate=True).tables
    assert "grid" not in [section.name for section in sections(table)]
    assert {entry.label for entry in table.entries} == {
        "gaam + conv",
        "gaam + linear",
        "mha + linear",
        "mha + linear labels shuffled",
        "mha + linear select=test",
        "none + linear epochs=3, lr=0.1",
        "none + linear epochs=4, lr=0.2",
    }


def runs_on_single_layers() -> list[RunResult]:
    """Six layers, of which later ones are more accurate."""
    return [
        build_run(
            "none",
            answers(8, 0.3 + 0.1 * layer, layer),
            layers=str(layer),
            path=f"none{layer}",
        )
        for layer in range(1, 7)
    ]


def draw_map() -> NDArray[np.float32]:
    """An attention map (S, L, D) in which later layers weigh more."""
    noise = np.random.default_rng(0).normal(0, 0.9, (8, 6, 8))
    return np.asarray(np.arange(1.0, 7)[:, None] + noise, np.float32)


def test_importance_stands_beside_the_accuracy_of_each_layer_alone() -> None:
    """Of the seeds that all layers have; by SciPy."""
    map_SLD = draw_map()
    singles = runs_on_single_layers()
    singles[2].failed[5] = "a reason"
    logits = singles[2].logits.copy()
    logits[5] = np.nan
    change_arrays(singles[2], logits=logits)
    gaam = build_run("gaam", answers(8, 0.9, 99), attention_map=map_SLD)
    [table] = build_tables([*singles, gaam])

    [comparison] = compare_with_single_layers(table.entries)
    finished = [0, 1, 2, 3, 4, 6, 7]
    assert comparison["seeds_alone"] == finished
    importance = {layer["layer"]: layer["importance"] for layer in comparison["layers"]}
    assert list(importance) == [1, 2, 3, 4, 5, 6]
    low_S = map_SLD.min((1, 2))[:, None, None]
    high_S = map_SLD.max((1, 2))[:, None, None]
    factor_SL = ((map_SLD - low_S) / (high_S - low_S)).mean(2)
    np.testing.assert_allclose([*importance.values()], factor_SL.mean(0), rtol=1e-5)
    right = [run.logits.argmax(2) == run.labels for run in singles]
    accuracies = [right_SN[finished].mean() for right_SN in right]
    expected = scipy.stats.spearmanr([*importance.values()], accuracies).statistic
    assert comparison["rho"] == pytest.approx(expected)

    section = section_of(table, "importance")
    assert f"rank correlation {expected:+.2f}" in section.lead
    assert section.parts[0][1].lines[0][1].startswith("6 (")
    [axes] = section.parts[1][0].draw().axes
    [line] = [line for line in axes.lines if line.get_label() == "gaam"]
    share_SL = map_SLD.sum(2) / map_SLD.sum((1, 2))[:, None]
    np.testing.assert_allclose(
        np.asarray(line.get_ydata()), 100 * share_SL.mean(0), rtol=1e-5
    )


def test_csv_leaves_a_list_of_layers_as_it_is() -> None:
    odd_layers = (1, 3, 5, 7)
    runs = [
        build_run("none", answers(8, 0.1 * layer, layer), layers=str(layer))
        for layer in odd_layers
    ]
    gaam = build_run(
        "gaam",
        answers(8, 0.9, 99),
        layers="1,3,5,7",
        attention_map=draw_map()[:, : len(odd_layers)],
    )
    report = gaam_decoder.report([*runs, gaam])
    text = report.text("csv", section="importance")
    lines = csv.DictReader(io.StringIO(text))
    assert next(lines)["layers"] == "1,3,5,7"


OWN_OPTIMIZER = {"optimizer Momentum": "mine.py 0123"}


@pytest.mark.parametrize(
    ("other_code", "expected"),
    [
        pytest.param(None, {"optimizer=adamw", "optimizer=momentum"}, id="another"),
        pytest.param(
            "mine.py 4567",
            {
                "optimizer Momentum of mine.py 0123",
                "optimizer Momentum of mine.py 4567",
            },
            id="two versions",
        ),
    ],
)
def test_the_code_of_an_own_optimizer_is_named_where_versions_differ(
    other_code: str | None, expected: set[str]
) -> None:
    right = answers(6, 0.8, 1)
    own = build_run("gaam", right, optimizer="momentum", plugins=OWN_OPTIMIZER)
    if other_code is None:
        other = build_run("gaam", right, optimizer="adamw")
    else:
        code = {"optimizer Momentum": other_code}
        other = build_run("gaam", right, optimizer="momentum", plugins=code)
    [table] = build_tables([own, other])
    assert {entry.settings for entry in table.entries} == expected
