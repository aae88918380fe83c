"""Which rows are shown, in which order; what is said, or tested, is of all rows."""

from __future__ import annotations

import csv
import io
import json
from itertools import product

import numpy as np
import pytest

import gaam_decoder
from gaam_cache.errors import ConfigError
from gaam_decoder import RunResult
from gaam_decoder.reports.table import SORTS, Table
from tests.decoder.reports.conftest import answers, build_run

MECHANISMS = ("none", "gaam", "mha:heads=4", "laplace")


def sweep() -> list[RunResult]:
    found = []
    for number, (name, layer) in enumerate(product(MECHANISMS, range(1, 5))):
        share = 0.6 + 0.02 * MECHANISMS.index(name) + 0.02 * layer
        run = build_run(name, answers(8, share, number), path=f"{number}", layers=str(layer))
        run.parameters["total"] += number % 3
        found.append(run)
    return found


def keyed(table: Table, place: int, sort: str) -> float:
    row, found = table.rows[place], table.comparisons[place]
    if sort in ("accuracy", "score"):
        return -float(np.mean(row.scores.accuracy.scored.values))
    if sort == "difference":
        return -found.claim.difference if found else np.inf
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
        layers = {row.recipe["layers"] for row in shown if row.attention == "none"}
        others = [row for row in shown if row.attention != "none"]
        assert len(others) <= top
        assert {row.recipe["layers"] for row in others} <= layers
        by = "accuracy" if sort == "name" else sort
        best = sorted(keyed(table, p, by) for p in range(len(table.rows)))[:top]
        assert sorted(keyed(table, p, by) for p in table.places)[: len(best)] == best
        hidden = len(table.rows) - len(shown)
        for format in ("terminal", "markdown", "latex", "html") if sort == "accuracy" else ():
            assert (f"{hidden} of 16 row" in report.text(format)) == bool(hidden), (format, top)
        values = json.loads(report.text("json"))
        assert (len(values["rows"]), values["rows_not_shown"]) == (len(shown), hidden)
        lines = list(csv.DictReader(io.StringIO(report.text("csv"))))
        assert [line["attention"] for line in lines] == [row.attention for row in shown]


def test_what_is_no_order_is_refused() -> None:
    for wrong in ({"sort": "beauty"}, {"top": 0}, {"top": True}):
        with pytest.raises(ConfigError, match=f"--{next(iter(wrong))}"):
            gaam_decoder.report(sweep(), **wrong)  # type: ignore[arg-type]
