"""Final models in a report: beside the rows of their recipe, and in no number of any."""

from __future__ import annotations

import csv
import io
import json
import re
from itertools import product
from typing import Any

import numpy as np
import pytest

from gaam_cache.errors import ConfigError
from gaam_decoder import RunResult
from gaam_decoder.reports.notes import conclusion, notes
from gaam_decoder.reports.table import Table, build_tables
from tests.decoder.reports.conftest import FORMATS, answers, build_run, written

OTHER = {"fingerprint": "e" * 64, "dataset": "another"}


def evaluated(name: str, seed: int = 1, **changes: Any) -> RunResult:
    return build_run(name, answers(7, 0.8, seed), **changes)


def final(name: str, num_seeds: int = 7, **changes: Any) -> RunResult:
    about = {"path": f"{name}-final", "test_split": "none", **changes}
    run = build_run(name, np.ones((num_seeds, 0)), **about)
    object.__setattr__(run, "majority_accuracy", None)
    return run


def tuned_folds() -> list[RunResult]:
    """Fold 1 chooses another rate than the others."""
    found = []
    for rate, scores in {1e-3: (0.9, 0.6, 0.6), 1e-2: (0.5, 0.8, 0.8)}.items():
        for number, score in enumerate(scores, 1):
            about = {"fold": f"{number}/3", "path": f"{number}-{rate}", "lr": rate}
            run = evaluated("gaam", number, validation=score, **about)
            vars(run)["test_rows"] = np.arange(400) + 400 * (number - 1)
            found.append(run)
    return found


PLAIN = [evaluated("gaam", 1), evaluated("none", 2), evaluated("mha", 3)]
SPLIT = "test split 'test'"
SCENES: dict[str, tuple[list[RunResult], list[RunResult], list[list[str]]]] = {
    "beside rows": (PLAIN, [final("gaam"), final("none")], [[SPLIT]] * 2),
    "of another recipe": (PLAIN, [final("gaam", lr=0.5)], [[]]),
    "the only one of its cache": (PLAIN, [final("gaam", cache=OTHER)], [[]]),
    "alone": ([], [final("gaam"), final("none"), final("mha", cache=OTHER)], [[]] * 3),
    "of tuned folds": (
        tuned_folds(), [final("gaam", lr=1e-2)], [["all 3 folds of the 'train' split"]],
    ),
    "with seeds that failed": (PLAIN, [final("gaam", failed={1: "why <&"})], [[SPLIT]]),
    "in two runs": (
        PLAIN, [final("gaam", 2), final("gaam", 2, seeds=(1, 8), path="more")], [[SPLIT]],
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("undrawn")
def test_nothing_that_is_said_of_what_was_evaluated_changes_and_every_format_shows_them() -> None:
    def said(tables: list[Table]) -> list[Any]:
        words = [
            (
                conclusion(t),
                notes(t),
                [row.label for row in t.rows],
                [row.settings for row in t.rows],
            )
            for t in tables
        ]
        return [*words, [t.to_dict() | {"final_models": None} for t in tables]]

    for scene, (runs, finals, where) in SCENES.items():
        tables = build_tables([*finals, *runs])
        assert said([table for table in tables if table.rows]) == said(build_tables(runs))
        found = [one for table in tables for one in table.finals]
        assert [[tested for tested, _ in one.expected] for one in found] == where, scene
        words = {"with seeds that failed": "(1 failed)", "in two runs": "seeds 0-1,8:"}
        assert words.get(scene, "not evaluated") in found[0].in_words()
        for format in FORMATS:
            text = written(format, tables)
            if format == "csv":
                lines = list(csv.DictReader(io.StringIO(text)))
                mine = [line for line in lines if line["evaluated"] == "False"]
                assert len(mine) == len(found)
                assert not any(line.get("accuracy_mean") for line in mine)
            elif format == "json":
                content = json.loads(text)
                shown = [content, *content.get("other_caches", [])]
                listed = [one for table in shown for one in table["final_models"]]
                assert [one["seeds"] for one in listed] == [list(one.seeds) for one in found]
            else:
                words_of = " ".join(
                    re.sub("<style>.*?</style>|<[^>]+>|[|\u2502]", " ", text).split()
                )
                assert words_of.count("not evaluated;") == len(found)


def test_another_recipe_says_nothing_of_a_final_model() -> None:
    """Each difference alone, on either side."""
    rows = {"rows": {"train": 9, "other": 9, "test": 400}}
    changes: dict[str, Any] = {
        "epochs": 4, "lr": 0.002, "select": "last", "layers": "1-2", "val_fraction": 0.2,
        "split_seed": 9, "train_split": "other", "shuffle_labels": True, "head": "mlp",
    }  # fmt: skip
    for (name, value), side in product(changes.items(), (0, 1)):
        run_has, model_has = ({name: value}, {}) if side else ({}, {name: value})
        run = evaluated("gaam", cache=rows, **run_has)
        model = final("gaam", cache=rows, **model_has)
        [one] = [one for table in build_tables([run, model]) for one in table.finals]
        assert one.expected == (), name


def test_a_baseline_that_was_never_evaluated_is_none() -> None:
    with pytest.raises(ConfigError, match="no run of the baseline 'mha'"):
        build_tables([evaluated("gaam"), final("mha")], "mha")
    [table] = build_tables([evaluated("gaam"), final("none")])
    assert table.baseline is None
