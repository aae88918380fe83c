"""Final models in a report: beside the rows of their recipe, and in no number of any."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import numpy as np
import pytest

from gaam_decoder import RunResult
from gaam_decoder.reports.conclusion import conclusion
from gaam_decoder.reports.notes import notes
from gaam_decoder.reports.table import Table, build_tables
from tests.decoder.reports.conftest import answers, build_run, seen, written

OTHER = {"fingerprint": "e" * 64, "dataset": "another"}


def evaluated(name: str, seed: int = 1, **changes: Any) -> RunResult:
    return build_run(name, answers(7, 0.8, seed), **changes)


def final(name: str, num_seeds: int = 7, **changes: Any) -> RunResult:
    about = {"path": f"/home/me/runs/{name}-final", "test_split": "none", **changes}
    run = build_run(name, np.ones((num_seeds, 0)), **about)
    object.__setattr__(run, "majority_accuracy", None)
    return run


PLAIN = [evaluated("gaam", 1), evaluated("none", 2), evaluated("mha", 3)]
SCENES: dict[str, tuple[list[RunResult], list[RunResult]]] = {
    "beside rows": (PLAIN, [final("gaam"), final("none")]),
    "the only one of its cache": (PLAIN, [final("gaam", cache=OTHER)]),
    "alone": ([], [final("gaam"), final("none"), final("mha", cache=OTHER)]),
    "with seeds that failed": (PLAIN, [final("gaam", failed={1: "why <&"})]),
}


@pytest.mark.usefixtures("undrawn")
def test_nothing_that_is_said_of_what_was_evaluated_changes_and_every_format_shows_them() -> (
    None
):
    def said(tables: list[Table]) -> list[Any]:
        words = [
            (conclusion(t), notes(t), [row.label for row in t.entries]) for t in tables
        ]
        return [*words, [t.to_dict() | {"final_models": None} for t in tables]]

    for scene, (runs, finals) in SCENES.items():
        tables = build_tables([*finals, *runs])
        assert said([table for table in tables if table.entries]) == said(
            build_tables(runs)
        )
        found = [one for table in tables for one in table.finals]
        assert len(found) == len(finals), scene
        words = {"with seeds that failed": "(1 failed)"}
        lines = [line for table in tables for line in table.beside()]
        assert words.get(scene, "not evaluated") in lines[0]
        content = json.loads(written("json", tables))
        listed = [
            of
            for t in (content, *content.get("other_caches", []))
            for of in t["final_models"]
        ]
        assert [one["seeds"] for one in listed] == [one["seeds"] for one in found]
        folders = sorted(one["folder"] for one in listed)
        assert folders == sorted(f"runs/{run.path.name}" for run in finals)
        lines = list(csv.DictReader(io.StringIO(written("csv", tables))))
        mine = [line for line in lines if line["evaluated"] == "False"]
        assert len(mine) == len(found)
        assert not any(line.get("accuracy_mean") for line in mine)
        assert sorted(line["folder"] for line in mine) == folders
        for format in ("html", "markdown", "latex", "terminal"):
            assert all(f"in {folder}" in seen(format, tables) for folder in folders), (
                format
            )
            assert seen(format, tables).count("not evaluated;") == len(found)
