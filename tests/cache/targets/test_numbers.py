"""Numbers of a row: read from columns, refused where they are none, kept as float32."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gaam_cache
from gaam_cache.common.errors import ConfigError, DataError, GaamError, GaamWarning
from gaam_cache.targets.numbers import Numbers
from tests.cache.targets.tables import read_rows, write_table

REGRESSION: dict[str, Any] = {"task": "regression", "label_column": ("x", "y")}
STATES = np.random.default_rng(0).standard_normal((20, 2, 4)).astype(np.float32)
NUMBERS = np.random.default_rng(1).standard_normal((20, 2))


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_label_is_a_json_array_of_shortest_digits(kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"train.{kind}"
    write_table(file, {"x": [2.8, 3, -0.0, 1e-10], "y": [0.1, 1e20, 16777217, 5]})
    rows = read_rows(file, **REGRESSION)
    assert rows.task == "regression"
    assert rows.class_names == ("x", "y")
    assert list(rows.labels) == [
        "[2.8,0.1]",
        "[3.0,1e+20]",
        "[0.0,16777216.0]",
        "[1e-10,5.0]",
    ]


@pytest.mark.parametrize("seed", range(3))
def test_every_float32_survives_its_text(seed: int) -> None:
    bits_N = np.random.default_rng(seed).integers(0, 2**32, 4000, dtype=np.uint32)
    value_N = bits_N.view(np.float32)
    value_NK = value_N[np.isfinite(value_N)][:3000].reshape(-1, 3)
    target = Numbers(("a", "b", "c"))
    labels = target.decode(value_NK)
    np.testing.assert_array_equal(target.encode(labels), value_NK)
    assert json.loads(labels[0])


def test_strata_are_ten_bins_of_the_first_number_and_ties_share_one() -> None:
    labels = [f"[{row},{300 - row}]" for row in range(200)]
    assert list(Numbers.strata(labels)) == [str(row // 20) for row in range(200)]
    assert len(set(Numbers.strata(["[1.5]"] * 200))) == 1
    # of every bin a row is held out: few rows have few bins
    assert list(Numbers.strata(labels[:40])) == [str(row // 10) for row in range(40)]
    assert set(Numbers.strata(labels[:19])) == {"0"}


def test_a_test_fraction_takes_the_same_share_of_every_bin(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    write_table(file, {"x": np.arange(100) / 8, "y": np.zeros(100)})
    config = gaam_cache.ExtractConfig(
        dataset=str(file), test_fraction=0.2, limit=40, **REGRESSION
    )
    from gaam_cache.sources import find_source

    source = find_source(str(file))
    parts = {split: source.read(config, split) for split in ("train", "test")}
    assert len(parts["train"]) == 40
    assert len(parts["test"]) == 20
    firsts = [json.loads(label)[0] for label in parts["test"].labels]
    assert np.bincount((np.array(firsts) * 0.8).astype(int)).tolist() == [2] * 10


BAD_CELLS: dict[str, tuple[Any, str]] = {
    "null": (None, "a number is missing"),
    "nan": (float("nan"), "a number is missing"),
    "nan as text": ("NaN", "a number is missing"),
    "blank": (" ", "a number is missing"),
    "infinity": (float("inf"), "not finite"),
    "infinity as text": ("-inf", "not finite"),
    "too large": (1e39, "too large"),
    "a huge integer": (10**400, "too large"),
    "a word": ("high", "not a number"),
    "a truth value": (True, "not a number"),
    "a decimal comma": ("2,8", "not a number"),
    "an underscore": ("1_000", "not a number"),
    "a list": ([1.0], "not a number"),
}


@pytest.mark.parametrize("case", BAD_CELLS)
def test_what_is_no_number_is_refused_by_line(case: str, tmp_path: Path) -> None:
    cell, words = BAD_CELLS[case]
    file = tmp_path / "train.jsonl"
    write_table(file, {"x": [0.5] * 4, "y": [1.5, 2.5, cell, 3.5]})
    with pytest.raises(DataError, match=words) as caught:
        read_rows(file, **REGRESSION)
    assert caught.value.exit_code == 3
    assert set(caught.value.details) == {"expected", "found", "where", "to do"}
    assert caught.value.details["where"].endswith("line 3")
    assert "column 'y'" in caught.value.details["expected"]


BAD_ARRAYS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "nan": (np.where(NUMBERS[4, 1] == NUMBERS, np.nan, NUMBERS), {}, "row 5"),
    "infinity": (np.where(NUMBERS[0, 0] == NUMBERS, np.inf, NUMBERS), {}, "row 1"),
    "beyond float32": (NUMBERS * 1e300, {}, "row 1"),
    "texts": (np.array(["a"] * 20), {"task": "regression"}, "cannot be labels"),
    "three axes": (NUMBERS[:, :, None], {"task": "regression"}, "cannot be labels"),
    "too few names": (NUMBERS, {"target_names": ("a",)}, "target names"),
    "a name twice": (NUMBERS, {"target_names": ("a", "a")}, "target names"),
    "whole numbers": (NUMBERS.astype(int), {}, "--task regression"),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_arrays_that_are_no_numbers_are_refused(case: str, tmp_path: Path) -> None:
    labels, options, words = BAD_ARRAYS[case]
    with pytest.raises(GaamError) as caught:
        gaam_cache.write(tmp_path, {"train": (STATES, labels)}, **options)
    assert words in str(caught.value)
    assert caught.value.exit_code in (2, 3)


@pytest.mark.parametrize(
    "labels",
    [np.arange(20.0) % 3, np.arange(20.0)[:, None] % 2, np.floor(3 * NUMBERS)],
    ids=["one a row", "one column of 0 and 1", "several columns"],
)
def test_whole_numbers_stored_as_floats_are_numbers_with_a_warning(
    labels: Any, tmp_path: Path
) -> None:
    with pytest.warns(GaamWarning, match="whole numbers stored as float64"):
        gaam_cache.write(tmp_path, {"train": (STATES, labels)})
    assert gaam_cache.open_cache(tmp_path).task == "regression"


DRAWN = np.random.default_rng(2).standard_normal(20)
TOO_CLOSE: dict[str, Any] = {
    "seconds since 1970": 1.7e9 + 120 * DRAWN,
    "days as whole numbers": 20240101 + np.arange(20),
    "a large offset": 1e8 + DRAWN,
    "a negative offset": -1e8 + DRAWN,
    "numbers below float32": 1e-200 * DRAWN,
}
FAR_ENOUGH: dict[str, Any] = {
    "seconds in hours": 120 * DRAWN,
    "days of twenty years": 20040101 + 10000 * np.arange(20),
    "an offset that float32 holds": 1000 + DRAWN,
    "large numbers": 1e38 * np.tanh(DRAWN),
    "the same number": np.full(20, 1.7e9 + 1),
    "the same but for the last digits": np.array([0.1 + 0.2, 0.3] * 10),
    "rounded before": (1.7e9 + 120 * DRAWN).astype(np.float32).astype(np.float64),
}


def import_numbers(numbers: Any, folder: Path) -> None:
    splits = {"train": (STATES, np.stack([DRAWN, numbers], 1))}
    gaam_cache.write(folder / "cache", splits, target_names=("x", "y"))


def import_whole_column(numbers: Any, folder: Path) -> None:
    splits = {"train": (STATES, numbers)}
    gaam_cache.write(folder / "cache", splits, task="regression", target_names=("y",))


def read_numbers(numbers: Any, folder: Path, kind: str, limit: int | None) -> None:
    write_table(folder / f"train.{kind}", {"x": DRAWN, "y": numbers.tolist()})
    read_rows(folder / f"train.{kind}", limit=limit, **REGRESSION)


WAYS_IN: dict[str, Callable[[Any, Path], None]] = {
    "arrays": import_numbers,
    "an array of one column": import_whole_column,
    "csv": lambda numbers, folder: read_numbers(numbers, folder, "csv", None),
    "jsonl": lambda numbers, folder: read_numbers(numbers, folder, "jsonl", None),
    "csv, limited": lambda numbers, folder: read_numbers(numbers, folder, "csv", 15),
}


@pytest.mark.parametrize("way", WAYS_IN)
@pytest.mark.parametrize("case", TOO_CLOSE)
def test_numbers_that_float32_makes_others_are_refused_by_column(
    case: str, way: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="too close together for float32") as caught:
        WAYS_IN[way](TOO_CLOSE[case], tmp_path)
    assert set(caught.value.details) == {"expected", "found", "where", "to do"}
    assert "column 'y'" in caught.value.details["where"]
    assert "subtract" in caught.value.details["to do"]
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("way", WAYS_IN)
@pytest.mark.parametrize("case", FAR_ENOUGH)
def test_numbers_that_float32_hardly_changes_are_taken(
    case: str, way: str, tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        # of a column of one number; of whole numbers
        warnings.simplefilter("ignore", GaamWarning)
        WAYS_IN[way](FAR_ENOUGH[case], tmp_path)


ONE_HOT = np.eye(3)[np.arange(20) % 3]
ZEROS_AND_ONES: dict[str, Any] = {
    "one-hot": ONE_HOT,
    "one-hot in float32": ONE_HOT.astype(np.float32),
    "label sets": (NUMBERS > 0).astype(float),
    "whole numbers": ONE_HOT.astype(int),
}


@pytest.mark.parametrize("case", ZEROS_AND_ONES)
def test_columns_of_0_and_1_need_a_task_whatever_their_type(
    case: str, tmp_path: Path
) -> None:
    splits = {"train": (STATES, ZEROS_AND_ONES[case])}
    with pytest.raises(DataError, match="several numbers a row") as caught:
        gaam_cache.write(tmp_path / "refused", splits)
    assert "argmax" in caught.value.details["to do"]
    for task in ("regression", "multi-label"):
        gaam_cache.write(tmp_path / task, splits, task=task)
        assert gaam_cache.open_cache(tmp_path / task).task == task


def test_several_columns_need_a_task() -> None:
    with pytest.raises(ConfigError, match="several columns") as caught:
        gaam_cache.ExtractConfig(label_column=("x", "y"))
    assert "--task regression" in caught.value.details["expected"]


def test_fractions_are_classes_where_the_user_says_so(tmp_path: Path) -> None:
    file = tmp_path / "train.csv"
    write_table(file, {"label": [0.5, 1.5, 2.5] * 4})
    with pytest.raises(DataError, match="looks like numbers") as caught:
        read_rows(file)
    assert (
        "--task regression, or --task classification" in caught.value.details["to do"]
    )
    rows = read_rows(file, task="classification")
    assert set(rows.labels) == {"0.5", "1.5", "2.5"}
    assert read_rows(file, task="regression").labels[0] == "[0.5]"
