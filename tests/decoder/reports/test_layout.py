"""Which rows are shown, in which order; what is said, or tested, is of all rows."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

import gaam_decoder
from gaam_cache.errors import ConfigError
from gaam_decoder import RunResult
from gaam_decoder.reports.notes.notes import warnings
from gaam_decoder.reports.report import Report
from gaam_decoder.reports.table import build, build_rows
from gaam_decoder.reports.table.base import Table
from gaam_decoder.reports.table.layout import SORTS
from tests.decoder.reports.conftest import answers, build_run

RATES = (0.0001, 0.001)
MECHANISMS = ("none", "gaam", "mha:heads=4", "laplace")
FILTERS: list[dict[str, Any]] = [
    *({"attn": ["none", name]} for name in MECHANISMS),
    *({"layers": str(layer)} for layer in range(1, 5)),
    *({"lr": str(lr)} for lr in RATES),
    {"lr": "0.001", "layers": ["1", "2"], "attn": ["none", "gaam"]},
]


def sweep(layers: int = 4, **changes: Any) -> list[RunResult]:
    """Every mechanism on every layer at two rates, tuned by validation."""
    found = []
    for number, (name, layer, lr) in enumerate(product(MECHANISMS, range(1, layers + 1), RATES)):
        share = 0.6 + 0.02 * MECHANISMS.index(name) + 0.02 * layer
        details = {"validation": share + lr, **changes}
        found.append(
            build_run(name, answers(8, share, number), path=f"{number}", layers=str(layer), lr=lr,
                      **details)
        )  # fmt: skip
    return found


def by_runs(report: Report) -> dict[tuple[str, ...], Any]:
    """Claims, and those against a probe, by the runs that they are of."""
    found: dict[tuple[str, ...], Any] = {}
    for table in report.tables:
        for row, made, probed in zip(
            table.rows, table.comparisons, table.against_probe, strict=True
        ):
            names = tuple(str(run.path) for run in row.runs)
            if made is not None:
                found[("baseline", *names)] = made.claim, made.mcnemar_p_holm
            if probed is not None:
                found[("probe", *names)] = probed, None
    return found


@pytest.mark.parametrize("every", [False, True])
def test_no_filter_and_no_top_makes_a_p_value_smaller(every: bool) -> None:
    runs = sweep()
    whole = by_runs(gaam_decoder.report(runs, every_candidate=every))
    compared = 0
    filters = list(FILTERS)
    filters += [{"top": top, "sort": sort} for top in (1, 3, 99) for sort in SORTS]
    for chosen in filters:
        report = gaam_decoder.report(runs, every_candidate=every, **chosen)
        for names, (claim, votes) in by_runs(report).items():
            if names not in whole or claim.p != whole[names][0].p:
                continue  # another candidate was chosen: another hypothesis
            compared += 1
            before, votes_before = whole[names]
            assert claim.num_tests >= before.num_tests, chosen
            assert claim.p_holm >= before.p_holm - 1e-15, chosen
            assert claim.p_equivalent_holm >= before.p_equivalent_holm - 1e-15, chosen
            assert votes is None or votes >= votes_before - 1e-15, chosen
    assert compared > 150


def chose_by_seeds() -> list[RunResult]:
    """Two rates of each, of which other seeds report than those that were trained to choose."""
    return [
        build_run(name, answers(8, 0.7, place), path=f"chose{name}{place}", lr=lr, epochs=9,
                  validation=0.7 + lr, seeds=tuple(range(8)), tuning_seeds=(0, 1))
        for place, (name, lr) in enumerate(product(MECHANISMS[:2], RATES))
    ]  # fmt: skip


def test_rows_that_filters_leave_are_made_once_and_nothing_else_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []
    row_of = build_rows._row

    def counting(parts: Any, by_part: Any, *rest: Any) -> Any:
        made.append(([[run.path for run in part] for part in parts], list(map(tuple, by_part))))
        return row_of(parts, by_part, *rest)

    monkeypatch.setattr(build_rows, "_row", counting)

    class Forgetful(build_rows.MadeRows):
        def build(self, *args: Any) -> Any:
            self._made.clear()
            return super().build(*args)

    runs = [*sweep(), *folds(), *chose_by_seeds()]
    twice = 0
    for chosen in FILTERS:
        counts, texts = [], []
        for how in (build_rows.MadeRows, Forgetful):
            monkeypatch.setattr(build, "MadeRows", how)
            made.clear()
            report = gaam_decoder.report(runs, **chosen)
            counts.append(len(made))
            texts.append([report.text("json"), repr(by_runs(report))])
            if how is build_rows.MadeRows:
                assert all(made.count(one) == 1 for one in made), chosen
        assert texts[0] == texts[1], chosen
        twice += counts[1] - counts[0]
    assert twice > 50


def test_what_was_left_out_is_not_counted_twice() -> None:
    runs = sweep()
    whole = gaam_decoder.report(runs).tables[0]
    for name in MECHANISMS[1:]:
        (table,) = gaam_decoder.report(runs, attn=["none", name]).tables
        assert table.num_tests == whole.num_tests


def keyed(table: Table, place: int, sort: str) -> float:
    row, comparison = table.rows[place], table.comparisons[place]
    if sort == "accuracy":
        return -float(np.mean(row.scores.accuracy)) if row.scores.seeds else np.inf
    if sort == "difference":
        return -comparison.claim.difference if comparison else np.inf
    return float(row.parameters["total"]) if sort == "parameters" else 0.5


@pytest.mark.parametrize("sort", SORTS)
def test_rows_are_sorted_and_the_first_are_kept_beside_their_baseline(sort: str) -> None:
    runs = sweep()
    for top in (1, 2, 5, 12, 40):
        report = gaam_decoder.report(runs, sort=sort, top=top)
        (table,) = report.tables
        order = [keyed(table, place, sort) for place in range(len(table.rows))]
        assert order == sorted(order)
        shown = [table.rows[place] for place in table.places]
        others = [row for row in shown if row.attention != "none"]
        assert top <= len(shown) or len(shown) == len(table.rows)
        assert len(others) <= top
        for row in others:
            layer = row.recipe["layers"]
            assert any(r.attention == "none" and r.recipe["layers"] == layer for r in shown)
        by = "accuracy" if sort == "name" else sort
        hidden = [p for p in range(len(table.rows)) if p not in table.places]
        best = sorted(keyed(table, p, by) for p in range(len(table.rows)))[:top]
        assert sorted(keyed(table, p, by) for p in table.places)[: len(best)] == best
        assert not hidden or top < len(table.rows)
        said = f"{len(hidden)} of 16 row"
        formats = ("terminal", "markdown", "latex", "html") if top == 2 else ("terminal",)
        for format in formats if sort in ("accuracy", "difference") else ():
            assert (said in report.text(format)) == bool(hidden), (format, top)
        values = json.loads(report.text("json"))
        assert len(values["rows"]) == len(shown)
        assert values["rows_not_shown"] == len(hidden)
        lines = list(csv.DictReader(io.StringIO(report.text("csv"))))
        assert [line["attention"] for line in lines] == [row.attention for row in shown]


@pytest.mark.parametrize("wrong", [{"sort": "beauty"}, {"top": 0}, {"top": -1}, {"top": True}])
def test_what_is_no_order_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"--{next(iter(wrong))}"):
        gaam_decoder.report(sweep(1), **wrong)


def troubled() -> dict[str, list[RunResult]]:
    """Large sweeps, one for every warning that there is, by a word of it."""
    small = {"seeds": (0, 1)}
    taught = {"train_split": "train", "test_split": "train", "allow_train_as_test": True}
    none_failed = dict.fromkeys(range(8), "loss is nan")

    def many(number: int, right: Any, **details: Any) -> list[RunResult]:
        return [
            build_run(name, right(place), path=f"{name}{place}", batch_size=place, **details)
            for name in MECHANISMS[:number]
            for place in range(1, 25)
        ]

    def usual(place: int) -> np.ndarray:
        return answers(8, 0.7, place)

    leaking = build_run("gaam", answers(8, 0.95, 3), shuffle_labels=True, path="leak")
    failing = build_run("gaam", answers(8, 0.7, 3), failed={3: "nan", 5: "inf"}, path="failing")
    one_class = {"class_names": ["only"]}
    return {
        "A selection": many(2, usual),
        "No test accuracy": many(2, usual, **taught),
        "Optimistic": many(2, usual, select="test"),
        "failed and count": [*many(2, usual), failing],
        "was trained, but": [
            build_run(name, usual(place), path=f"{name}{place}", batch_size=place,
                      failed=none_failed if name == "none" else None)
            for name in MECHANISMS[:2] for place in range(1, 25)
        ],
        "so something leaks": [*many(2, usual), leaking],
        "No control": [run for run in many(2, usual) if run.attention != "none"],
        "test rows: each is": many(2, lambda place: answers(8, 0.7, place, num_rows=20)),
        "one class in all": many(2, usual, classes=("only",), cache=one_class),
        "no claim is made": many(2, lambda place: answers(2, 0.7, place), **small),
    }  # fmt: skip


@pytest.mark.parametrize("word", troubled())
def test_no_warning_is_lost_among_many_rows(word: str) -> None:
    runs = troubled()[word]
    since = {"attn": ["none", "gaam"], "head": "linear"} if word == "A selection" else {}
    extra = [build_run("laplace", answers(8, 0.7, 1), path="left out")] if since else []
    report = gaam_decoder.report([*runs, *extra], **since)
    found = [text for table in report.tables for text in warnings(table)]
    assert any(word in text for text in found), found
    text = " ".join(report.text("html").replace("&#x27;", "'").split())
    for warning in found:
        assert " ".join(warning.split()) in text, warning


def folds(count: int = 5) -> list[RunResult]:
    return [
        build_run(name, answers(8, 0.7, fold, num_rows=60), path=f"{name}{fold}", epochs=3,
                  fold=f"{fold}/{count}", split_seed=0, train_split="train")
        for name in MECHANISMS for fold in range(1, count + 1)
    ]  # fmt: skip


def labels_of(tables: Sequence[Table]) -> list[list[str]]:
    return [table.labels() for table in tables]


def test_labels_of_a_table_are_all_different() -> None:
    for runs in ([*sweep(), *folds()], *troubled().values()):
        for labels in labels_of(gaam_decoder.report(runs, every_candidate=True).tables):
            assert len(set(labels)) == len(labels)
