"""Runs that learned from some of the training rows, in a report."""

from __future__ import annotations

import csv
import io
import json
from itertools import product
from typing import Any

import numpy as np
import pytest

from gaam_decoder import RunResult
from gaam_decoder.reports.comparisons.against_baseline import same_recipe
from gaam_decoder.reports.notes.notes import notes
from gaam_decoder.reports.table.base import Table
from gaam_decoder.reports.table.build import build_tables
from tests.decoder.reports.conftest import AG_NEWS, answers, build_run, written

SIZES: list[dict[str, int]] = [{}, {"train_rows": 8}, {"train_rows": 100}, {"shots": 2}]


def of_size(attention: str, size: dict[str, int], **more: Any) -> RunResult:
    """As accurate as its rows are many; the baseline a little less."""
    rows = size.get("train_rows") or 3 * size.get("shots", 300)
    accuracy = 0.5 + 0.1 * np.log10(rows) - 0.02 * (attention == "none")
    luck = rows + 7 * (attention == "none")
    right = answers(1 if more.get("head") == "lbfgs" else 8, accuracy, luck)
    path = f"{attention}-{rows}-{len(size)}-{more.get('head', '')}"
    run = build_run(attention, right, path=path, split_seed=0, train_split="train", **size, **more)
    if size:
        run.drawn.update(learn=rows - 2, choose=2)
    return run


def probe(size: dict[str, int]) -> RunResult:
    run = of_size("none", size, head="lbfgs")
    run.fit.update(setting="C", value=1.0, lowest=0.1, highest=9.0, tried=3, kept=1)
    run.fit["unconverged"] = []
    for name in ("lr", "epochs"):
        del run.recipe[name]
    return run


def table_of(runs: list[RunResult]) -> Table:
    [table] = build_tables(runs, "none")
    return table


def test_rows_are_compared_with_the_baseline_and_the_probe_of_their_size() -> None:
    table = table_of([of_size(name, size) for size in SIZES for name in ("gaam", "none")])
    assert len(table.rows) == 2 * len(SIZES)
    for row, comparison in zip(table.rows, table.comparisons, strict=True):
        if row.attention == "none":
            continue
        [other] = [r for r in table.rows if r.attention == "none"
                   and same_recipe(r.recipe, row.recipe)]  # fmt: skip
        assert comparison is not None
        expected = row.scores.accuracy.mean() - other.scores.accuracy.mean()
        assert comparison.claim.difference == pytest.approx(expected)
    for mine, others in product(SIZES, SIZES):
        table = table_of([of_size("gaam", mine), of_size("none", others)])
        [found] = [c for r, c in zip(table.rows, table.comparisons, strict=True)
                   if r.attention == "gaam"]  # fmt: skip
        assert (found is not None) == (mine == others)
        table = table_of([of_size("gaam", mine), probe(others)])
        place = [row.attention for row in table.rows].index("gaam")
        assert (table.against_probe[place] is not None) == (mine == others)


def test_every_row_has_a_label_and_says_its_size() -> None:
    table = table_of([of_size("none", size) for size in SIZES])
    assert len(set(table.labels())) == len(SIZES)
    assert [row.drawn for row in table.rows] == [6, 8, 100, None]
    for label, row in zip(table.labels(), table.rows, strict=True):
        for name in ("train_rows", "shots"):
            assert (f"{name}=" in label) == (name in row.recipe)
    found = list(csv.DictReader(io.StringIO(written("csv", [table]))))
    sizes = [(row["recipe_train_rows"], row["recipe_shots"]) for row in found]
    assert sizes == [("", "2"), ("8", ""), ("100", ""), ("", "")]
    recipes = [row["recipe"] for row in json.loads(written("json", [table]))["rows"]]
    for size in SIZES:
        assert any(recipe.items() >= size.items() for recipe in recipes)
    plain = table_of([of_size("none", {})])
    for format in ("terminal", "markdown"):
        assert "drawn once, by" in " ".join(written(format, [table]).split())
        assert "drawn once" not in written(format, [plain])


def test_few_rows_that_chose_are_named() -> None:
    """Drawn, held out of all rows, and of the rows that a fold leaves; of no other selection."""
    right, many = answers(6, 0.7, 1), {"rows": {"train": 90_000, "test": 300}}
    for count in (1, 29, 30):
        drawn = build_run("none", right, path="1", cache=many, train_rows=10 * count)
        drawn.drawn.update(learn=9 * count, choose=count)
        held = {"rows": {"train": 10 * count, "test": 300}}
        folds = {"rows": {"train": 20 * count, "test": 300}}
        of_fold = [build_run("none", right, path=f"3{fold}", cache=folds, fold=fold,
                             split_seed=0)
                   for fold in ("1/2", "2/2")]  # fmt: skip
        for runs in ([drawn], [build_run("none", right, path="2", cache=held)], of_fold):
            whole = max(build_tables(runs), key=lambda table: table.rows[0].folds)
            about = "" if runs == [drawn] else "about "
            assert (f": {about}{count} of none" in " ".join(notes(whole))) == (count < 30)
        for select in ("test", "last"):
            run = build_run("none", right, path="4", cache=held, select=select)
            assert "rows chose the epoch" not in " ".join(notes(table_of([run])))


def test_published_numbers_are_of_all_rows() -> None:
    cache = {"dataset": "ag_news", "class_names": AG_NEWS}
    for size in SIZES:
        run = of_size("gaam", size, cache=cache, classes=tuple(AG_NEWS), head="conv")
        [table] = build_tables([run])
        assert (table.published[0] is None) == bool(size)


def test_a_final_model_is_beside_rows_of_its_draw_and_says_of_how_many_rows_it_is() -> None:
    """Where nothing is drawn or held out the split seed plays no part in it."""

    def final(size: dict[str, int], **more: Any) -> RunResult:
        made = build_run("gaam", np.zeros((8, 0)), path=f"final-{size}", split_seed=0,
                         train_split="train", **size, test_split="none", **more)  # fmt: skip
        made.cache["rows"]["test"] = 400
        if size:
            made.drawn.update(learn=5, choose=2)
        return made

    for size, select in product(SIZES, ("last", "val")):
        evaluated = of_size("gaam", size, select=select)
        evaluated.recipe["split_seed"] = 3
        [table] = build_tables([evaluated, final(size, select=select)])
        assert bool(table.finals[0].expected) == (select == "last" and not size)
    for size in SIZES:
        [table] = build_tables([*(of_size("gaam", one) for one in SIZES), final(size)])
        [found] = table.finals
        assert found.train_rows == (7 if size else 9)
        assert ("7 of all 9 rows" if size else "all 9 rows") in found.in_words()
        assert len(found.expected) == 1


def test_seeds_that_predict_one_class_are_named() -> None:
    """Over all rows and in a fold; not where rows are few, or labels shuffled or all alike."""
    for rows, seeds in ((29, (2, 5)), (30, ()), (30, (2, 5)), (400, tuple(range(7)))):
        labels = build_run("none", np.ones((1, rows)), classes=("a", "b")).labels
        right, other = np.random.default_rng(9).random((2, 7, rows)) < 0.5
        for one in (right, other):
            one[:, :2] = [labels[0] == 0, labels[1] == 1]  # of either class one at least
        right[list(seeds)] = labels == 0

        def noted(*runs: RunResult, seeds: tuple[int, ...] = seeds) -> bool:
            whole = max(build_tables(runs), key=lambda table: table.rows[0].folds)
            said = [line for line in notes(whole) if "predicts one class" in line]
            texts = [line.rpartition(": none seed ")[2] for line in said]
            numbers = [[int(n) for n in text.split(", ")] for text in texts]
            assert numbers in ([], [list(seeds)])
            return bool(said)

        made = build_run("none", right, classes=("a", "b"))
        assert noted(made) == (bool(seeds) and rows >= 30)
        folds = [build_run("none", one, classes=("a", "b"), path=f, fold=f"{f}/2", split_seed=0)
                 for f, one in (("1", right), ("2", other))]  # fmt: skip
        assert noted(*folds) == (bool(seeds) and 2 * rows >= 30)
        assert not noted(build_run("none", right, classes=("a", "b"), shuffle_labels=True))
        vars(made)["labels"] = np.full_like(labels, 0)
        assert not noted(made)
