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
from gaam_decoder.reports.answer import conclusion
from gaam_decoder.reports.notes import notes
from gaam_decoder.reports.pictures import overviews
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


def folds(name: str, count: int = 3, **changes: Any) -> list[RunResult]:
    runs = []
    for number in range(1, count + 1):
        path = f"{name}-{number}-{changes.get('lr', '')}"
        run = evaluated(name, number, fold=f"{number}/{count}", path=path, **changes)
        vars(run)["test_rows"] = np.arange(400) + 400 * (number - 1)
        runs.append(run)
    return runs


def tuned_folds() -> list[RunResult]:
    """Fold 1 chooses another rate than the others."""
    return [
        run
        for rate, scores in {1e-3: (0.9, 0.6, 0.6), 1e-2: (0.5, 0.8, 0.8)}.items()
        for number, score in enumerate(scores)
        for run in folds("gaam", lr=rate, validation=score)[number : number + 1]
    ]


PLAIN = [evaluated("gaam", 1), evaluated("none", 2), evaluated("mha", 3)]
SPLIT = "test split 'test'"
WHOLE = "all 3 folds of the 'train' split"
SCENES: dict[str, tuple[list[RunResult], list[RunResult], list[list[str]]]] = {
    "beside rows": (PLAIN, [final("gaam"), final("none")], [[SPLIT]] * 2),
    "of another recipe": (
        PLAIN, [final("gaam", lr=0.5), final("gaam", lr=0.7, path="b")], [[], []],
    ),
    "the only one of its cache": (PLAIN, [final("gaam", cache=OTHER)], [[]]),
    "alone": ([], [final("gaam"), final("none"), final("mha", cache=OTHER)], [[]] * 3),
    "of some folds": (
        folds("gaam")[:2], [final("gaam")],
        [[f"fold {n} of 3 of the 'train' split" for n in (1, 2)]],
    ),
    "of folds and a split": (folds("gaam") + PLAIN, [final("gaam")], [[WHOLE, SPLIT]]),
    "of tuned folds": (tuned_folds(), [final("gaam", lr=1e-2)], [[WHOLE]]),
    "with seeds that failed": (
        PLAIN, [final("gaam", failed={1: "why <&", 2: "why <&"})], [[SPLIT]],
    ),
    "of rows that failed": (
        [evaluated("gaam", failed=dict.fromkeys(range(7), "no"))], [final("gaam")], [[SPLIT]],
    ),
    "in two runs": (
        PLAIN, [final("gaam", 2), final("gaam", 2, seeds=(1, 8), path="more")], [[SPLIT]],
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("undrawn")
def test_nothing_that_is_said_of_what_was_evaluated_changes_and_every_format_shows_them() -> None:
    """Nor a correction, a picture: as if they were not there."""

    def said(tables: list[Table]) -> list[Any]:
        words = [(conclusion(t), notes(t), t.labels(), t.settings()) for t in tables]
        drawn = [(one.name, one.alt, one.caption) for t in tables for one in overviews(t)]
        return [*words, drawn, [t.to_dict() | {"final_models": None} for t in tables]]

    for runs, finals, expected in SCENES.values():
        tables = build_tables([*finals, *runs])
        assert said([table for table in tables if table.rows]) == said(build_tables(runs))
        found = [one for table in tables for one in table.finals]
        assert len(found) == len(expected)
        for format in FORMATS:
            text = written(format, tables)
            if format == "csv":
                lines = list(csv.DictReader(io.StringIO(text)))
                mine = [line for line in lines if line["evaluated"] == "False"]
                assert len(mine) == len(found)
                assert not any(line["accuracy_mean"] or line["verdict"] for line in mine)
            elif format == "json":
                content = json.loads(text)
                shown = [content, *content.get("other_caches", [])]
                listed = [one for table in shown for one in table["final_models"]]
                assert [one["seeds"] for one in listed] == [list(one.seeds) for one in found]
                assert not any({"accuracy", "comparison"} & one.keys() for one in listed)
            else:
                words = " ".join(re.sub("<style>.*?</style>|<[^>]+>|[|\u2502]", " ", text).split())
                assert words.count("not evaluated;") == len(found)


def test_what_to_expect_is_what_evaluated_runs_of_the_recipe_came_to() -> None:
    for scene, (runs, finals, where) in SCENES.items():
        every = [one for table in build_tables([*runs, *finals]) for one in table.finals]
        assert [[found["tested_on"] for found in one.expected] for one in every] == where, scene
        words = {"with seeds that failed": "(2 failed)", "in two runs": "seeds 0-1,8:"}
        assert words.get(scene, "not evaluated") in every[0].in_words()
        for one in every if "failed" not in scene else ():
            for found in one.expected:
                tables = [t for t in build_tables(runs) if t.where == found["tested_on"]]
                rows = [row for t in tables for row in t.rows if row.attention == "gaam"]
                assert found["accuracy_mean"] in [row.mean for row in rows] or one is not every[0]
                mean = f"{100 * (found['accuracy_mean'] or 0):.1f}% on {found['tested_on']}"
                assert mean in one.in_words()


def test_another_recipe_says_nothing_of_a_final_model() -> None:
    """Each difference alone, on either side."""
    rows = {"rows": {"train": 9, "other": 9, "test": 400}}
    changes: dict[str, Any] = {
        "epochs": 4, "lr": 0.002, "select": "last", "layers": "1-2", "val_fraction": 0.2,
        "split_seed": 9, "train_split": "other", "shuffle_labels": True, "head": "mlp",
        "plugins": {"mechanism gaam": "2"}, "a setting of another version": 1,
    }  # fmt: skip
    for (name, value), side in product(changes.items(), (0, 1)):
        run_has, model_has = ({name: value}, {}) if side else ({}, {name: value})
        run = evaluated("gaam", cache=rows, **run_has)
        model = final("gaam", cache=rows, **model_has)
        [one] = [one for table in build_tables([run, model]) for one in table.finals]
        assert one.expected == ()
        assert "no run of the same recipe was evaluated" in one.in_words()


def test_a_baseline_that_was_never_evaluated_is_none() -> None:
    runs = [evaluated("gaam"), final("mha")]
    for there in (runs, runs[1:]):
        with pytest.raises(ConfigError, match="'mha' there is a final model alone"):
            build_tables(there, "mha")
    [table] = build_tables([evaluated("gaam"), final("none")])
    assert table.baseline is None
