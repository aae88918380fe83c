"""Sets of labels: lists, texts with a separator, columns of 0 and 1; empty ones count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import gaam_cache
from gaam_cache.common.errors import ConfigError, DataError, GaamError
from gaam_cache.targets.label_sets import LabelSets
from tests.cache.targets.tables import read_rows, texts_of, write_table

SETS = [["b", "a"], [], ["c"], ["a"]]
TEXTS = ['["a","b"]', "[]", '["c"]', '["a"]']
FLAGS = np.array([[1, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0]])
STATES = np.random.default_rng(0).standard_normal((4, 2, 4)).astype(np.float32)
WAYS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "lists": ("jsonl", {"label": SETS}, {}),
    "json in a text": ("csv", {"label": ['["b", "a"]', "[]", '["c"]', '["a"]']}, {}),
    "a separator": (
        "csv",
        {"label": ["b; a", "", "c", "a;"]},
        {"task": "multi-label", "label_separator": ";"},
    ),
    "columns of 0 and 1": (
        "csv",
        {"a": FLAGS[:, 0], "b": FLAGS[:, 1], "c": FLAGS[:, 2]},
        {"task": "multi-label", "label_column": ("a", "b", "c")},
    ),
    "truth values": (
        "jsonl",
        {name: FLAGS.astype(bool)[:, k].tolist() for k, name in enumerate("abc")},
        {"task": "multi-label", "label_column": ("a", "b", "c")},
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_write_sets_gives_the_same_labels(
    way: str, tmp_path: Path
) -> None:
    kind, columns, options = WAYS[way]
    write_table(tmp_path / f"train.{kind}", columns)
    rows = read_rows(tmp_path / f"train.{kind}", **options)
    assert rows.task == "multi-label"
    assert list(rows.labels) == TEXTS
    target = LabelSets.from_labels(rows.labels, rows.class_names)
    assert target.names == ("a", "b", "c")
    np.testing.assert_array_equal(target.encode(rows.labels), FLAGS)
    assert target.decode(FLAGS) == TEXTS


def test_lists_as_python_writes_them_are_sets(tmp_path: Path) -> None:
    """pandas writes a column of lists so."""
    lists = [repr(names) for names in SETS]
    write_table(tmp_path / "train.csv", {"label": lists})
    rows = read_rows(tmp_path / "train.csv")
    assert rows.task == "multi-label"
    assert list(rows.labels) == TEXTS


LISTS = {
    "whole numbers": (["[5, 3]", "[1]", "[2]"], "a label is a list"),
    "numbers with commas": (["5,3", "5", "1"], "numbers with commas"),
    "decimal commas": (["0,5", "1,0", "1,5"], "numbers with commas"),
    "a list behind words": (["drama", "['drama', 'war']", "war"], "a label is a list"),
}


@pytest.mark.parametrize("case", LISTS)
def test_lists_are_no_classes(case: str, tmp_path: Path) -> None:
    labels, problem = LISTS[case]
    file = tmp_path / "train.csv"
    write_table(file, {"label": labels})
    with pytest.raises(DataError, match=problem):
        read_rows(file)
    # a person may want them as classes
    rows = read_rows(file, task="classification")
    assert list(rows.labels) == labels


@pytest.mark.parametrize(
    "label", ["['a' 'b']", "[sic]", "Paris, France", "1,a", "[1 2]"]
)
def test_texts_with_brackets_and_commas_are_classes(label: str, tmp_path: Path) -> None:
    write_table(tmp_path / "train.csv", {"label": [label, "b", "c"]})
    assert read_rows(tmp_path / "train.csv").labels[0] == label


def test_labels_that_look_alike_are_named() -> None:
    target = LabelSets(("Drama", "drama", "war"))
    lines = list(target.warnings({"train": ['["Drama","drama"]', '["war"]']}, ()))
    assert any("'Drama' and 'drama'" in line for line in lines)


def test_lists_of_parquet_are_sets(tmp_path: Path) -> None:
    table = pyarrow.table({"label": SETS, "text": texts_of(4, "train")})
    pyarrow.parquet.write_table(table, tmp_path / "train.parquet")
    assert list(read_rows(tmp_path / "train.parquet").labels) == TEXTS


def test_lists_of_class_labels_have_their_names_and_order(tmp_path: Path) -> None:
    feature = datasets.Sequence(datasets.ClassLabel(names=["z", "y", "never"]))
    data = datasets.Dataset.from_dict(
        {"label": [[1, 0], [], [1]], "text": texts_of(3, "train")},
        datasets.Features({"label": feature, "text": datasets.Value("string")}),
    )
    datasets.DatasetDict({"train": data}).save_to_disk(tmp_path / "saved")
    rows = read_rows(tmp_path / "saved")
    assert rows.class_names == ("z", "y", "never")
    assert list(rows.labels) == ['["z","y"]', "[]", '["y"]']


def test_the_stratum_of_a_row_is_its_rarest_label() -> None:
    labels = ['["a","b"]', '["a"]', "[]", '["a","c"]', '["b","c"]']
    assert list(LabelSets.strata(labels)) == ["b", "a", "", "c", "b"]


BAD_CELLS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "null": (None, {}, "a list of labels is missing"),
    "a word": ("a", {}, "not a list"),
    "a number": (3, {}, "not a list"),
    "null in a list": (["a", None], {}, "missing"),
    "nan in a list": (["a", "nan"], {}, "may stand for a missing label"),
    "blank in a list": (["a", " "], {}, "missing"),
    "a list in a list": ([["a"]], {}, "unusable"),
    "half a character": (["\ud800"], {}, "half a character"),
    "two in a column of 0 and 1": (2, {"label_column": ("label", "b")}, "0 nor 1"),
    "null in a column of 0 and 1": (None, {"label_column": ("label", "b")}, "missing"),
}


@pytest.mark.parametrize("case", BAD_CELLS)
def test_what_is_no_set_is_refused_by_line(case: str, tmp_path: Path) -> None:
    cell, options, words = BAD_CELLS[case]
    file = tmp_path / "train.jsonl"
    good: list[Any] = [1, 0] if options else [["a"], ["b"]]
    write_table(file, {"label": [*good, cell], "b": [0, 1, 1]})
    with pytest.raises(DataError, match=words) as caught:
        read_rows(file, task="multi-label", **options)
    assert caught.value.exit_code == 3
    assert caught.value.details["where"].endswith("line 3")


def test_a_label_that_test_alone_has_is_refused(tmp_path: Path) -> None:
    write_table(tmp_path / "train.jsonl", {"label": SETS})
    write_table(tmp_path / "test.jsonl", {"label": [["a"], ["a", "new"]]})
    config = gaam_cache.ExtractConfig(
        dataset=str(tmp_path), encoder="tfidf", out=tmp_path / "out"
    )
    with pytest.raises(DataError, match="'new' occurs in 'test' but not") as caught:
        gaam_cache.extract(config)
    assert caught.value.details["where"].endswith("row 2")


def test_splits_of_two_tasks_are_refused(tmp_path: Path) -> None:
    write_table(tmp_path / "train.jsonl", {"label": SETS})
    write_table(tmp_path / "test.jsonl", {"label": ["a", "b"]})
    config = gaam_cache.ExtractConfig(
        dataset=str(tmp_path), encoder="tfidf", out=tmp_path / "out"
    )
    with pytest.raises(DataError, match="labels of several kinds"):
        gaam_cache.extract(config)


BAD_ARRAYS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "0 and 1 without a task": (FLAGS, {}, "--task multi-label"),
    "two": (FLAGS * 2, {"task": "multi-label"}, "neither 0 nor 1"),
    "fractions": (FLAGS / 2, {"task": "multi-label"}, "neither 0 nor 1"),
    "nan": (FLAGS * np.nan, {"task": "multi-label"}, "neither 0 nor 1"),
    "texts": (np.array(list("abcd")), {"task": "multi-label"}, "cannot be labels"),
    "names of fewer": (FLAGS > 0, {"target_names": ("a",)}, "target names"),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_arrays_that_are_no_sets_are_refused(case: str, tmp_path: Path) -> None:
    labels, options, words = BAD_ARRAYS[case]
    with pytest.raises(GaamError) as caught:
        gaam_cache.write(tmp_path, {"train": (STATES, labels)}, **options)
    assert words in str(caught.value)


BAD_OPTIONS: dict[str, dict[str, Any]] = {
    "a separator without a task": {"label_separator": ";"},
    "a separator of several columns": {
        "label_separator": ";",
        "task": "multi-label",
        "label_column": ("a", "b"),
    },
    "a column twice": {"task": "multi-label", "label_column": ("a", "a")},
}


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_options_that_mean_nothing_together_are_refused(case: str) -> None:
    with pytest.raises(ConfigError):
        gaam_cache.ExtractConfig(**BAD_OPTIONS[case])
