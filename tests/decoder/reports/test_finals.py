"""Final models in a report: beside the rows of their recipe, and in no number of any."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gaam_decoder
from gaam_cache import plugins
from gaam_cache.errors import ConfigError
from gaam_decoder import RunResult
from gaam_decoder.reports.notes.claims import claims, conclusion
from gaam_decoder.reports.notes.notes import notes, warnings
from gaam_decoder.reports.pictures.pictures import pictures
from gaam_decoder.reports.table import final_models
from gaam_decoder.reports.table.base import Table
from gaam_decoder.reports.table.build import build_tables
from gaam_decoder.reports.writing import page_parts
from gaam_decoder.runs.tuning import TUNED
from tests.decoder.reports.conftest import answers, build_run

FORMATS = plugins.names("gaam_decoder.reports.formats")
OTHER = {"fingerprint": "e" * 64, "dataset": "another"}


def evaluated(name: str, seed: int = 1, **changes: Any) -> RunResult:
    return build_run(name, answers(7, 0.8, seed), **changes)


def final(name: str, num_seeds: int = 7, **changes: Any) -> RunResult:
    run = build_run(
        name,
        np.ones((num_seeds, 0)),
        test_split="none",
        **{"path": f"{name}-final", **changes},
    )
    object.__setattr__(run, "majority_accuracy", None)
    return run


def folds(name: str, count: int = 3, **changes: Any) -> list[RunResult]:
    runs = []
    for number in range(1, count + 1):
        path = f"{name}-{number}-{changes.get('lr', '')}-{changes.get('split_seed', '')}"
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
SCENES: dict[str, tuple[list[RunResult], list[RunResult]]] = {
    "beside rows": (PLAIN, [final("gaam"), final("none")]),
    "of another recipe": (PLAIN, [final("gaam", lr=0.5), final("gaam", lr=0.7, path="b")]),
    "of a mechanism that is not there": (PLAIN, [final("laplace")]),
    "the only one of its cache": (PLAIN, [final("gaam", cache=OTHER)]),
    "alone": ([], [final("gaam"), final("none"), final("mha", cache=OTHER)]),
    "of folds": (folds("gaam") + folds("none"), [final("gaam"), final("none")]),
    "of some folds": (folds("gaam")[:2], [final("gaam")]),
    "of folds and a split": (folds("gaam") + PLAIN, [final("gaam")]),
    "of tuned folds": (tuned_folds(), [final("gaam", lr=1e-2)]),
    "of repeats": (
        [run for seed in (0, 1) for run in folds("gaam", split_seed=seed, groups="g" * 16)],
        [final("gaam", split_seed=0, groups="g" * 16)],
    ),
    "with seeds that failed": (PLAIN, [final("gaam", failed={1: "why <&", 2: "why <&"})]),
    "of which all seeds failed": (PLAIN, [final("gaam", 2, failed={0: "why", 1: "why"})]),
    "of rows that failed": (
        [evaluated("gaam", failed=dict.fromkeys(range(7), "no"))], [final("gaam")],
    ),
    "in two runs": (
        PLAIN, [final("gaam", 2), final("gaam", 2, seeds=(1, 8), path="more")],
    ),
    "one seed": (PLAIN, [final("gaam", 1)]),
    "select last": (
        [evaluated("gaam", select="last", split_seed=3)],
        [final("gaam", select="last", split_seed=0)],
    ),
    "learned": (PLAIN, [final("gaam", learned={"offset": np.ones((7, 4), np.float32)})]),
    "itself tuned": (
        PLAIN,
        [
            final("gaam", lr=lr, validation=v, path=str(lr), tuning_seeds=tuple(range(7)))
            for lr, v in ((1, 0.5), (2, 0.6))
        ],
    ),
    "of two recipes, one tuned": (
        PLAIN,
        [
            final("gaam", lr=1, validation=0.5, path="1"),
            final("gaam", lr=2, validation=0.4, path="2", seeds=tuple(range(10, 17)),
                  tuning_seeds=(0, 1)),
        ],
    ),
    "of folds beside a tuned one": (
        [*tuned_folds(), *folds("gaam", 2, lr=7)],
        [final("gaam", lr=7, path="7"), final("gaam", lr=1, path="1")],
    ),
}  # fmt: skip


def written(format: str, tables: list[Table]) -> str:
    stream = io.StringIO()
    writer = plugins.load("gaam_decoder.reports.formats", format, kind="report format")()
    writer.write(tables, stream)
    return stream.getvalue()


def numbers(tables: list[Table]) -> list[dict[str, Any]]:
    """Everything that a table says of its rows."""
    return [
        {
            **{k: v for k, v in table.to_dict().items() if k != "final_models"},
            "words": [conclusion(table), claims(table), warnings(table), table.settings()],
            "notes": notes(table),
            "labels": table.labels(),
            "pictures": [(one.name, one.alt, one.caption) for one in pictures(table)],
        }
        for table in tables
    ]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scene", SCENES)
def test_no_number_of_what_was_evaluated_changes(scene: str) -> None:
    """Nor a word, a correction, a picture: as if they were not there."""
    runs, finals = SCENES[scene]
    for shown in ([*runs, *finals], [*finals, *runs]):
        tables = build_tables(shown)
        assert numbers([table for table in tables if table.rows]) == numbers(build_tables(runs))
        for table in tables:
            if not table.rows:
                assert (table.majority_accuracy, table.num_test_rows) == (None, 0)
                assert not list(pictures(table))
                assert not warnings(table)
        assert sum(len(table.finals) for table in tables) == len({
            run.key for run in finals
        }) - (scene == "itself tuned")  # fmt: skip


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("format", FORMATS)
def test_every_format_says_once_that_a_final_model_was_not_evaluated(
    format: str, scene: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_parts, "inline_svg", lambda draw, key, alt: "<svg></svg>")
    runs, finals = SCENES[scene]
    tables = build_tables([*runs, *finals])
    found = [one for table in tables for one in table.finals]
    text = written(format, tables)
    if format == "json":
        text = re.sub(r'("key"|"path"): .*', "", text)
    assert not re.search(r"\b(nan|inf|None|Infinity|NaN)\b", text)
    if format.startswith("csv"):
        lines = list(csv.DictReader(io.StringIO(text)))
        assert {line["evaluated"] for line in lines} <= {"True", "False"}
        mine = [line for line in lines if line["evaluated"] == "False"]
        seeds = [len(one.seeds) for one in found]
        assert len(mine) == (len(seeds) if format == "csv" else sum(seeds))
        for line in mine:
            filled = {name for name, value in line.items() if value}
            assert not filled & SCORES, filled & SCORES
            assert {"fingerprint", "encoder", "dataset", "attention", "head", "select"} <= filled
    elif format == "json":
        content = json.loads(written(format, tables))
        shown = [content, *content.get("other_caches", [])]
        listed = [one for table in shown for one in table["final_models"]]
        assert [one["seeds"] for one in listed] == [list(one.seeds) for one in found]
        assert all(one["evaluated"] is False for one in listed)
        assert not any({"accuracy", "macro_f1", "comparison"} & one.keys() for one in listed)
    else:
        words = " ".join(re.sub("<style>.*?</style>|<[^>]+>|[|│]", " ", text).split())
        assert words.count("not evaluated;") == len(found)
        assert words.count("evaluated runs of the same recipe have") == sum(
            bool(one.expected) for one in found
        )


SCORES = {
    "optimistic",
    "tested_on",
    "test_rows",
    "majority_accuracy",
    "baseline",
    "verdict",
    "difference",
    "accuracy",
    "macro_f1",
    "undertrained",
} | {f"{name}_{what}" for name in ("accuracy", "macro_f1") for what in ("mean", "std")}


def expectations(scene: str) -> list[list[str]]:
    runs, finals = SCENES[scene]
    tables = build_tables([*runs, *finals])
    return [[one.where for one in of.expected] for table in tables for of in table.finals]


@pytest.mark.parametrize(
    ("scene", "where"),
    [
        ("beside rows", [["test split 'test'"]] * 2),
        ("of another recipe", [[]] * 2),
        ("of a mechanism that is not there", [[]]),
        ("the only one of its cache", [[]]),
        ("alone", [[]] * 3),
        ("of folds", [["all 3 folds of the 'train' split"]] * 2),
        ("of some folds", [[f"fold {n} of 3 of the 'train' split" for n in (1, 2)]]),
        ("of folds and a split", [["all 3 folds of the 'train' split", "test split 'test'"]]),
        ("of tuned folds", [["all 3 folds of the 'train' split"]]),
        ("select last", [["test split 'test'"]]),
    ],
)
def test_what_to_expect_is_what_evaluated_runs_of_the_recipe_came_to(
    scene: str, where: list[list[str]]
) -> None:
    assert expectations(scene) == where
    runs, finals = SCENES[scene]
    for table in build_tables([*runs, *finals]):
        for one in table.finals:
            for found in one.expected:
                tables = [t for t in build_tables(runs) if t.where == found.where]
                rows = [row for t in tables for row in t.rows if row.attention == one.attention]
                assert found.mean in [row.mean for row in rows]
                assert f"{100 * (found.mean or 0):.1f}% on {found.where}" in one.in_words()


def test_where_folds_chose_for_themselves_it_says_what_each_chose() -> None:
    runs, finals = SCENES["of tuned folds"]
    [final] = [of for table in build_tables([*runs, *finals]) for of in table.finals]
    chosen = ("fold 1/3: lr=0.001", "fold 2/3: lr=0.01", "fold 3/3: lr=0.01")
    assert final.expected[0].chosen == chosen
    assert "chose for itself (fold 1/3: lr=0.001; fold 2/3" in final.in_words()
    assert final.to_dict()["expected"][0]["chosen_by_fold"] == list(chosen)
    for runs, finals in (SCENES["of folds"], SCENES["beside rows"]):
        for table in build_tables([*runs, *finals]):
            assert all(one.chosen == () for of in table.finals for one in of.expected)


def test_of_repeated_cross_validations_all_are_expected_of_one_final_model() -> None:
    [where] = expectations("of repeats")
    assert len(where) == 1
    assert where[0].startswith("2 times 3 folds")


CHANGES: dict[str, Any] = {
    "epochs": 4,
    "lr": 0.002,
    "weight_decay": 0.5,
    "select": "last",
    "layers": "1-2",
    "pool": "max",
    "val_fraction": 0.2,
    "split_seed": 9,
    "train_split": "other",
    "dtype": "bfloat16",
    "shuffle": "window:9",
    "class_weights": "balanced",
    "loss": "focal",
    "schedule": "plateau",
    "clip_grad_norm": 1.0,
    "allow_train_as_test": True,
    "shuffle_labels": True,
    "plugins": {"mechanism gaam": "2"},
    "eval_dtype": "float32",
    "head": "mlp",
    "a setting of another version": 1,
}


@pytest.mark.parametrize("name", CHANGES)
def test_another_recipe_says_nothing_of_a_final_model(name: str) -> None:
    """Each difference alone, on either side."""
    other = {name: CHANGES[name]}
    rows = {"rows": {"train": 9, "other": 9, "test": 400}}
    for run, model in (
        (evaluated("gaam", cache=rows, **other), final("gaam", cache=rows)),
        (evaluated("gaam", cache=rows), final("gaam", cache=rows, **other)),
    ):
        tables = build_tables([run, model])
        [one] = [one for table in tables for one in table.finals]
        assert one.expected == ()
        assert "no run of the same recipe was evaluated" in one.in_words()
        if name in TUNED and name in model.recipe:
            assert f"{name}={model.recipe[name]}" in one.label


def test_the_same_recipe_is_so_whatever_was_tested() -> None:
    rows = {"rows": {"train": 9, "other": 9, "test": 400}}
    last: dict[str, Any] = {"cache": rows, "select": "last"}
    for tested, same in (
        ({"test_split": "other"}, {"cache": rows}),
        ({"fold": "1/3"}, {"cache": rows}),
        ({"fold": "1/2", "groups": "g" * 16}, last),  # which choose nothing
    ):
        run = evaluated("gaam", **same, **tested)
        [table] = build_tables([run, final("gaam", **same)])
        [one] = table.finals
        assert len(one.expected) == 1
        assert one.expected[0].mean == table.rows[0].mean


def test_several_final_models_are_told_apart() -> None:
    [table] = build_tables(SCENES["of another recipe"][0] + SCENES["of another recipe"][1])
    assert [one.label for one in table.finals] == [
        "gaam + linear (lr=0.5)",
        "gaam + linear (lr=0.7)",
    ]


def test_seeds_of_several_runs_are_one_model_and_the_first_run_counts() -> None:
    [table] = build_tables([*SCENES["in two runs"][0], *SCENES["in two runs"][1]])
    [one] = table.finals
    assert one.seeds == (0, 1, 8)
    assert len(one.runs) == 2
    assert "seeds 0-1,8: not evaluated" in one.in_words()


def test_what_failed_is_said() -> None:
    def words(scene: str) -> str:
        [table] = build_tables(SCENES[scene][0] + SCENES[scene][1])
        return table.finals[0].in_words()

    assert "seed 1-2 failed: why <&;" in words("with seeds that failed")
    assert "all its seeds failed: why;" in words("of which all seeds failed")
    assert "no seed finished on test split 'test'" in words("of rows that failed")


def test_a_baseline_that_was_never_evaluated_is_none() -> None:
    runs = [evaluated("gaam"), final("mha")]
    for there in (runs, runs[1:]):
        with pytest.raises(ConfigError, match="'mha' there is a final model alone") as refused:
            build_tables(there, "mha")
        details = refused.value.details
        assert details["expected"] == (
            "one of: gaam" if there is runs else "a run that was evaluated"
        )
        assert "not evaluated" in details["found"]
        assert "--attn mha" in details["to do"]
    with pytest.raises(ConfigError, match="no run of the baseline 'laplace'") as refused:
        build_tables(runs[1:], "laplace")
    assert refused.value.details["expected"] == "a run that was evaluated"
    [table] = build_tables([evaluated("gaam"), final("none")])
    assert table.baseline is None


def test_pictures_of_final_models_alone_are_none(tmp_path: Path) -> None:
    assert gaam_decoder.report(SCENES["alone"][1]).save_figures(tmp_path) == []


def test_a_line_for_each_is_all_that_there_is() -> None:
    runs, finals = SCENES["beside rows"]
    [table] = build_tables([*runs, *finals])
    assert len(final_models.lines(table)) == 2
    assert final_models.all_runs(table) == [
        *(run for row in table.rows for run in row.runs),
        *finals,
    ]
