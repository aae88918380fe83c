"""Which rows are shown, in which order; what is said, or tested, is of all rows."""

from __future__ import annotations

import csv
import io
import json
from itertools import product
from typing import Any

import numpy as np
import pytest

import gaam_decoder
from gaam_cache.errors import ConfigError
from gaam_decoder import RunResult
from gaam_decoder.reports.notes.notes import warnings
from gaam_decoder.reports.report import Report
from gaam_decoder.reports.table.base import Table
from gaam_decoder.reports.table.layout import SORTS
from tests.decoder.reports.conftest import answers, build_run

RATES = (0.0001, 0.001)
MECHANISMS = ("none", "gaam", "mha:heads=4", "laplace")
FILTERS: list[dict[str, Any]] = [
    *({"attn": ["none", name]} for name in MECHANISMS),
    {"layers": "2"},
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


def test_no_filter_and_no_top_makes_a_p_value_smaller() -> None:
    runs = sweep()
    whole = by_runs(gaam_decoder.report(runs))
    compared = 0
    filters = list(FILTERS)
    filters += [{"top": 3, "sort": sort} for sort in SORTS]
    for chosen in filters:
        report = gaam_decoder.report(runs, **chosen)
        for names, (claim, votes) in by_runs(report).items():
            if names not in whole or claim.p != whole[names][0].p:
                continue  # another candidate was chosen: another hypothesis
            compared += 1
            before, votes_before = whole[names]
            assert claim.num_tests >= before.num_tests, chosen
            assert claim.p_holm >= before.p_holm - 1e-15, chosen
            assert claim.p_equivalent_holm >= before.p_equivalent_holm - 1e-15, chosen
            assert votes is None or votes >= votes_before - 1e-15, chosen
    assert compared > 50


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


@pytest.mark.usefixtures("undrawn")
def test_rows_are_sorted_and_the_first_are_kept_beside_their_baseline() -> None:
    runs = sweep()
    for sort, top in [*((sort, 2) for sort in SORTS), ("accuracy", 12), ("accuracy", 40)]:
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
        for format in ("terminal", "markdown", "latex", "html") if sort == "accuracy" else ():
            assert (said in report.text(format)) == bool(hidden), (format, top)
        values = json.loads(report.text("json"))
        assert len(values["rows"]) == len(shown)
        assert values["rows_not_shown"] == len(hidden)
        lines = list(csv.DictReader(io.StringIO(report.text("csv"))))
        assert [line["attention"] for line in lines] == [row.attention for row in shown]


def test_what_is_no_order_is_refused() -> None:
    for wrong in ({"sort": "beauty"}, {"top": 0}, {"top": True}):
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
            for place in range(1, 9)
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
            for name in MECHANISMS[:2] for place in range(1, 9)
        ],
        "so something leaks": [*many(2, usual), leaking],
        "No control": [run for run in many(2, usual) if run.attention != "none"],
        "test rows: each is": many(2, lambda place: answers(8, 0.7, place, num_rows=20)),
        "one class in all": many(2, usual, classes=("only",), cache=one_class),
        "no claim is made": many(2, lambda place: answers(2, 0.7, place), **small),
    }  # fmt: skip


@pytest.mark.usefixtures("undrawn")
def test_no_warning_is_lost_among_many_rows() -> None:
    for word, runs in troubled().items():
        since = {"attn": ["none", "gaam"], "head": "linear"} if word == "A selection" else {}
        extra = [build_run("laplace", answers(8, 0.7, 1), path="left out")] if since else []
        report = gaam_decoder.report([*runs, *extra], **since)
        found = [text for table in report.tables for text in warnings(table)]
        assert any(word in text for text in found), found
        text = " ".join(report.text("html").replace("&#x27;", "'").split())
        for warning in found:
            assert " ".join(warning.split()) in text, warning


def test_labels_of_a_table_are_all_different() -> None:
    folds = [
        build_run(name, answers(8, 0.7, fold, num_rows=60), path=f"{name}{fold}", epochs=3,
                  fold=f"{fold}/5", split_seed=0, train_split="train")
        for name in MECHANISMS for fold in range(1, 6)
    ]  # fmt: skip
    for table in gaam_decoder.report([*sweep(), *folds], every_candidate=True).tables:
        assert len(set(table.labels())) == len(table.labels())
