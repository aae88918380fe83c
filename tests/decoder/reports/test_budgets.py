"""Runs that learned from some of the training rows, in a report."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import numpy as np
import pytest

from gaam_cache import plugins
from gaam_decoder import RunResult, stats
from gaam_decoder.reports.comparisons.against_baseline import same_recipe
from gaam_decoder.reports.notes.notes import notes
from gaam_decoder.reports.table.base import Table
from gaam_decoder.reports.table.build import build_tables
from tests.decoder.reports.conftest import AG_NEWS, MakeRun, answers

SIZES: list[dict[str, int]] = [{}, {"train_rows": 8}, {"train_rows": 100}, {"shots": 2}]


def of_size(make_run: MakeRun, attention: str, size: dict[str, int], **more: Any) -> RunResult:
    """As accurate as its rows are many; the baseline a little less."""
    rows = size.get("train_rows") or 3 * size.get("shots", 300)
    accuracy = 0.5 + 0.1 * np.log10(rows) - 0.02 * (attention == "none")
    luck = rows + 7 * (attention == "none") + 11 * (more.get("fold") == "2/2")
    right = answers(1 if more.get("head") == "lbfgs" else 8, accuracy, luck)
    path = f"{attention}-{rows}-{len(size)}-{more.get('fold', '')!s:.1}-{more.get('head', '')}"
    run = make_run(attention, right, path=path, split_seed=0, train_split="train", **size, **more)
    if size:
        run.drawn.update(learn=rows - 2, choose=2)
    return run


def table_of(runs: list[RunResult]) -> Table:
    [table] = build_tables(runs, "none")
    return table


def written(table: Table, name: str) -> str:
    stream = io.StringIO()
    plugins.load("gaam_decoder.reports.formats", name, kind="format")().write([table], stream)
    return stream.getvalue()


def test_rows_are_compared_with_the_baseline_of_their_size(make_run: MakeRun) -> None:
    runs = [of_size(make_run, name, size) for size in SIZES for name in ("gaam", "none")]
    table = table_of(runs)
    assert len(table.rows) == 2 * len(SIZES)
    for row, comparison in zip(table.rows, table.comparisons, strict=True):
        if row.attention == "none":
            continue
        [other] = [r for r in table.rows if r.attention == "none"
                   and same_recipe(r.recipe, row.recipe)]  # fmt: skip
        assert comparison is not None
        expected = row.scores.accuracy.mean() - other.scores.accuracy.mean()
        assert comparison.claim.difference == pytest.approx(expected)


def test_without_a_baseline_of_its_size_a_row_is_not_compared(make_run: MakeRun) -> None:
    for mine in SIZES:
        for others in SIZES:
            runs = [of_size(make_run, "gaam", mine), of_size(make_run, "none", others)]
            table = table_of(runs)
            [found] = [c for r, c in zip(table.rows, table.comparisons, strict=True)
                       if r.attention == "gaam"]  # fmt: skip
            assert (found is not None) == (mine == others)


def test_the_probe_beside_a_row_is_that_of_its_size(make_run: MakeRun) -> None:
    """Of which all that plays a part is in the recipe, but the size where it is all rows."""
    for mine in SIZES:
        for others in SIZES:
            probe = of_size(make_run, "none", others, head="lbfgs")
            probe.fit.update(setting="C", value=1.0, lowest=0.1, highest=9.0, tried=3, kept=1)
            for name in ("lr", "epochs"):
                del probe.recipe[name]
            probe.fit["unconverged"] = []
            table = table_of([of_size(make_run, "gaam", mine), probe])
            place = [row.attention for row in table.rows].index("gaam")
            assert (table.against_probe[place] is not None) == (mine == others)


def test_every_row_has_a_label_and_says_its_size(make_run: MakeRun) -> None:
    for head in ("linear", "lbfgs"):
        runs = [of_size(make_run, "none", size, head=head) for size in SIZES]
        for run in runs if head == "lbfgs" else ():
            run.fit.update(setting="C", value=1.0, lowest=0.1, highest=9.0, tried=3, kept=1)
            run.fit["unconverged"] = []
        table = table_of(runs)
        assert len(set(table.labels())) == len(SIZES)
        assert [row.drawn for row in table.rows] == [6, 8, 100, None]
        for label, row in zip(table.labels(), table.rows, strict=True):
            for name in ("train_rows", "shots"):
                assert (f"{name}=" in label) == (name in row.recipe)


def test_every_format_says_how_many_rows_and_what_no_interval_covers(make_run: MakeRun) -> None:
    table = table_of([of_size(make_run, "none", size) for size in SIZES])
    for name in plugins.names("gaam_decoder.reports.formats"):
        text = " ".join(written(table, name).split())
        if name == "csv":
            found = list(csv.DictReader(io.StringIO(written(table, name))))
            sizes = [(row["recipe_train_rows"], row["recipe_shots"]) for row in found]
            assert sizes == [("", "2"), ("8", ""), ("100", ""), ("", "")]
        elif name == "json":
            assert json.loads(written(table, name))
            assert all(f'"{key}": {size[key]}' in text for size in SIZES for key in size)
        elif name in ("terminal", "markdown", "html"):
            assert "drawn once, by" in text
    plain = table_of([of_size(make_run, "none", {})])
    assert "drawn once" not in written(plain, "terminal")


@pytest.mark.parametrize("count", [1, 5, 29, 30, 400])
def test_few_rows_that_chose_are_named(make_run: MakeRun, count: int) -> None:
    """Drawn, held out of all rows, and of the rows that a fold leaves; of no other selection."""
    right, many = answers(6, 0.7, 1), {"rows": {"train": 90_000, "test": 300}}
    drawn = make_run("none", right, path="1", cache=many, train_rows=10 * count)
    drawn.drawn.update(learn=9 * count, choose=count)
    held = {"rows": {"train": 10 * count, "test": 300}}
    folds = {"rows": {"train": 20 * count, "test": 300}}
    of_fold = [make_run("none", right, path=f"3{fold}", cache=folds, fold=fold,
                        split_seed=0)
               for fold in ("1/2", "2/2")]  # fmt: skip
    for runs in ([drawn], [make_run("none", right, path="2", cache=held)], of_fold):
        whole = max(build_tables(runs), key=lambda table: table.rows[0].folds)
        about = "" if runs == [drawn] else "about "
        assert (f": {about}{count} of none" in " ".join(notes(whole))) == (count < 30)
    for select in ("test", "last"):
        run = make_run("none", right, path="4", cache=held, select=select)
        assert "rows chose the epoch" not in " ".join(notes(table_of([run])))


def test_other_training_sets_are_as_small_as_these(make_run: MakeRun) -> None:
    """The corrected t test takes the test rows for every row that a fold learned from."""
    cache = {"rows": {"train": 800, "test": 5}}
    for size, test_per_train in (({}, 1.0), ({"train_rows": 100}, 4.0)):
        runs = []
        for attention in ("gaam", "none"):
            for fold in ("1/2", "2/2"):
                more = {"fold": fold, "cache": cache}
                runs.append(of_size(make_run, attention, size, **more))
        whole = next(t for t in build_tables(runs, "none") if t.rows[0].folds == 2)
        row, other = whole.rows
        found = next(c for c in whole.comparisons if c is not None).other_training
        difference_J = (row.scores.part_right - other.scores.part_right).mean(0)
        assert np.ptp(difference_J) > 0
        assert found == stats.corrected_resampled_t(difference_J, test_per_train)


def test_published_numbers_are_of_all_rows(make_run: MakeRun) -> None:
    cache = {"dataset": "ag_news", "class_names": AG_NEWS}
    for size in SIZES:
        run = of_size(make_run, "gaam", size, cache=cache, classes=tuple(AG_NEWS), head="conv")
        [table] = build_tables([run])
        assert (table.published[0] is None) == bool(size)


@pytest.mark.parametrize("select", ["last", "val"])
def test_a_final_model_is_beside_rows_of_its_draw(select: str, make_run: MakeRun) -> None:
    """Where nothing is drawn or held out the split seed plays no part in it."""
    for size in SIZES:
        evaluated = of_size(make_run, "gaam", size, select=select)
        evaluated.recipe["split_seed"] = 3
        final = make_run("gaam", np.zeros((8, 0)), path=f"final-{size}", split_seed=0,
                         select=select, train_split="train",
                         **{**size, "test_split": "none"})  # fmt: skip
        final.cache["rows"]["test"] = 400
        if size:
            final.drawn.update(learn=5, choose=2)
        [table] = build_tables([evaluated, final])
        assert bool(table.finals[0].expected) == (select == "last" and not size)


def test_a_final_model_says_of_how_many_rows_it_is(make_run: MakeRun) -> None:
    evaluated = [of_size(make_run, "gaam", size) for size in SIZES]
    for size in SIZES:
        final = make_run("gaam", np.zeros((8, 0)), path=f"final-{size}", split_seed=0,
                         train_split="train", **{**size, "test_split": "none"})  # fmt: skip
        final.cache["rows"]["test"] = 400
        if size:
            final.drawn.update(learn=5, choose=2)
        [table] = build_tables([*evaluated, final])
        [found] = table.finals
        assert found.train_rows == (7 if size else 9)
        assert ("7 of all 9 rows" if size else "all 9 rows") in found.in_words()
        assert len(found.expected) == 1


@pytest.mark.parametrize("rows", [2, 29, 30, 400])
@pytest.mark.parametrize("seeds", [(), (0,), (2, 5), tuple(range(7))])
@pytest.mark.parametrize("label", [0, 1])
def test_seeds_that_predict_one_class_are_named(
    make_run: MakeRun, rows: int, seeds: tuple[int, ...], label: int
) -> None:
    """Over all rows and in a fold; not where rows are few, or labels shuffled or all alike."""
    labels = make_run("none", np.ones((1, rows)), classes=("a", "b")).labels
    right = np.random.default_rng(label).random((7, rows)) < 0.5  # noqa: PLR2004
    right[:, :2] = [labels[0] == 0, labels[1] == 1]  # of either class one at least
    right[list(seeds)] = labels == label

    def noted(*runs: RunResult) -> bool:
        whole = max(build_tables(runs), key=lambda table: table.rows[0].folds)
        said = [line for line in notes(whole) if "predicts one class" in line]
        texts = [line.rpartition(": none seed ")[2] for line in said]
        numbers = [[int(n) for n in text.split(", ")] for text in texts]
        assert numbers in ([], [list(seeds)])
        return bool(said)

    made = make_run("none", right, classes=("a", "b"))
    assert noted(made) == (bool(seeds) and rows >= 30)  # noqa: PLR2004
    other = np.random.default_rng(9).random((7, rows)) < 0.5  # noqa: PLR2004
    other[:, :2] = [labels[0] == 0, labels[1] == 1]
    folds = [make_run("none", one, classes=("a", "b"), path=f, fold=f"{f}/2", split_seed=0)
             for f, one in (("1", right), ("2", other))]  # fmt: skip
    assert noted(*folds) == (bool(seeds) and 2 * rows >= 30)  # noqa: PLR2004
    assert not noted(make_run("none", right, classes=("a", "b"), shuffle_labels=True))
    vars(made)["labels"] = np.full_like(labels, label)
    assert not noted(made)
