"""Which rows are shown, in which order; what is said, or tested, is of all rows."""

from __future__ import annotations

import csv
import io
import json
from itertools import product

import pytest

import gaam_decoder
from gaam_decoder import RunResult
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


@pytest.mark.usefixtures("undrawn")
def test_rows_stand_by_score_and_the_first_are_kept_beside_their_baseline() -> None:
    runs = sweep()
    for top in (2, 12, 40):
        report = gaam_decoder.report(runs, top=top)
        (table,) = report.tables
        means = [row.mean or 0 for row in table.rows]
        assert means == sorted(means, reverse=True)
        shown = table.shown
        assert shown[:top] == list(table.rows[:top])
        layers = {row.recipe["layers"] for row in shown if row.attention == "none"}
        others = [row for row in shown if row.attention != "none"]
        assert len(others) <= top
        assert {row.recipe["layers"] for row in others} <= layers
        hidden = len(table.rows) - len(shown)
        for format in ("terminal", "markdown", "latex", "html"):
            assert (f"{hidden} of 16 row" in report.text(format)) == bool(hidden), (format, top)
        values = json.loads(report.text("json"))
        assert (len(values["rows"]), values["rows_not_shown"]) == (len(shown), hidden)
        lines = list(csv.DictReader(io.StringIO(report.text("csv"))))
        assert [line["attention"] for line in lines] == [row.attention for row in shown]
