"""Final models in a report: beside the entries of their recipe, and in no number."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gaam_decoder import RunResult
from gaam_decoder.reports.conclusion import conclusion
from gaam_decoder.reports.notes import notes
from gaam_decoder.reports.table import Table, build_tables
from tests.decoder.reports.conftest import answers, build_run, text_of, words_of

OTHER_CACHE = {"fingerprint": "e" * 64, "dataset": "another"}


Build = Callable[[], list[RunResult]]


def no_runs() -> list[RunResult]:
    return []


def evaluated_runs() -> list[RunResult]:
    names = ("gaam", "none", "mha")
    return [
        build_run(name, answers(7, 0.8, seed)) for seed, name in enumerate(names, 1)
    ]


def final_run(name: str, **changes: Any) -> RunResult:
    """A run that trained on all rows and is not tested."""
    path = f"/home/me/runs/{name}-final"
    run = build_run(name, np.ones((7, 0)), path=path, test_split="none", **changes)
    object.__setattr__(run, "majority_accuracy", None)
    return run


def finals_beside_entries() -> list[RunResult]:
    return [final_run("gaam"), final_run("none")]


def the_only_final_of_its_cache() -> list[RunResult]:
    return [final_run("gaam", cache=OTHER_CACHE)]


def finals_of_two_caches() -> list[RunResult]:
    return [*finals_beside_entries(), final_run("mha", cache=OTHER_CACHE)]


def a_final_with_a_seed_that_failed() -> list[RunResult]:
    return [final_run("gaam", failed={1: "why <&"})]


def statements(tables: list[Table]) -> list[Any]:
    """Whatever a report says of entries: sentences, names and values."""
    return [
        (
            conclusion(table),
            notes(table),
            [entry.label for entry in table.entries],
            table.to_dict() | {"final_models": None},
        )
        for table in tables
    ]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("build_finals", "build_runs", "remark"),
    [
        (finals_beside_entries, evaluated_runs, "not evaluated"),
        (the_only_final_of_its_cache, evaluated_runs, "not evaluated"),
        (finals_of_two_caches, no_runs, "not evaluated"),
        (a_final_with_a_seed_that_failed, evaluated_runs, "(1 failed)"),
    ],
)
def test_final_models_stand_in_every_format_and_change_nothing_else(
    build_finals: Build, build_runs: Build, remark: str
) -> None:
    finals = build_finals()
    runs = build_runs()
    tables = build_tables([*finals, *runs])
    tables_of_entries = [table for table in tables if table.entries]
    assert statements(tables_of_entries) == statements(build_tables(runs))
    models = [model for table in tables for model in table.final_models]
    assert len(models) == len(finals)
    lines = [line for table in tables for line in table.further_lines()]
    assert remark in lines[0]
    folders = sorted(f"runs/{run.path.name}" for run in finals)
    seeds = [list(model.seeds) for model in models]
    check_json(text_of("json", tables), folders, seeds)
    check_csv(text_of("csv", tables), folders)
    for report_format in ("html", "markdown", "latex", "terminal"):
        text = words_of(report_format, tables)
        missing = [folder for folder in folders if f"in {folder}" not in text]
        assert missing == [], report_format
        assert text.count("not evaluated;") == len(models), report_format


def check_json(text: str, folders: list[str], seeds: list[Any]) -> None:
    content = json.loads(text)
    parts = (content, *content.get("other_caches", []))
    models = [model for part in parts for model in part["final_models"]]
    assert [model["seeds"] for model in models] == seeds
    assert sorted(model["folder"] for model in models) == folders


def check_csv(text: str, folders: list[str]) -> None:
    lines = csv.DictReader(io.StringIO(text))
    models = [line for line in lines if line["evaluated"] == "False"]
    assert sorted(model["folder"] for model in models) == folders
    assert not any(model.get("accuracy_mean") for model in models)
