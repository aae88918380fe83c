"""What is not clear or cannot be right is refused, with what there is."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest
import torch

import gaam_cache
from gaam_cache.common.errors import (
    DataError,
    GaamError,
    GaamWarning,
    NumericsError,
)
from tests.cache.store.making import labels, run, save, states

TRAIN = states(9)
GOOD = {"X": TRAIN, "y": labels(9)}
BOTH = {"X_train": TRAIN, "y_train": labels(9), "X_test": TRAIN + 1}
ABC = np.array(["a", "b", "c", "d"])


def refusal_of(
    folder: Path, arrays: Any, /, *, file: str = "train.npz", **options: Any
) -> GaamError:
    """The refusal of a file, before anything is there."""
    files = save(folder / file, arrays)
    out = folder / "cache"
    with pytest.raises(GaamError) as caught:
        run(*files, out=out, **options)
    assert not out.exists()
    return caught.value


class Case(NamedTuple):
    """Arrays, a part of the message, and options."""

    arrays: dict[str, Any]
    message: str
    options: dict[str, Any] = {}  # noqa: RUF012 - nothing changes it
    file: str = "train.npz"


UNCLEAR: dict[str, Case] = {
    "no split": Case(GOOD, "--array train=X --labels train=y", file="all.npz"),
    "no split, and two arrays of states": Case(
        {**GOOD, "states": TRAIN}, "--array SPLIT=NAME", file="all.npz"
    ),
    "no labels": Case({"X": TRAIN}, "--labels train=NAME"),
    "no states of a split": Case(
        {"a/X": TRAIN, "a/y": labels(9), "b/y": labels(9)}, "'b'", file="all.npz"
    ),
    "two arrays of states": Case(
        {**GOOD, "states": TRAIN}, "states: float32 (9, 3, 4)"
    ),
    "other layers in another split": Case(
        {
            f"{split}_layer_{layer + shift}": TRAIN[:, layer]
            for split, shift in (("train", 0), ("test", 1))
            for layer in range(3)
        }
        | {"y_train": labels(9), "y_test": labels(9)},
        "train 0 to 2, test 1 to 3",
    ),
    "a layer that is missing": Case(
        {"layer_0": TRAIN[:, 0], "layer_2": TRAIN[:, 1]}, "layer 1"
    ),
    "a pattern of no array": Case(GOOD, "'nope_*'", {"arrays": ("train=nope_*",)}),
    "a column that is missing": Case(GOOD, "age", {"keep_columns": ("age",)}),
    "two arrays of labels": Case(
        {"X": TRAIN, "t_1": labels(9), "t_2": labels(9)},
        "several arrays could be the labels of 'train'",
        {"labels": ("train=t_*",)},
    ),
}
"""Each has exit code 2."""


@pytest.mark.parametrize("name", UNCLEAR)
def test_what_is_not_clear_is_refused_with_what_there_is(
    name: str, tmp_path: Path
) -> None:
    case = UNCLEAR[name]
    error = refusal_of(tmp_path, case.arrays, file=case.file, **case.options)
    assert case.message in str(error)
    assert error.exit_code == 2


SHIFTED: dict[str, tuple[list[str], list[str], bool]] = {
    "usual names": (["layer_0", "layer_1"], ["layer_1", "layer_2"], False),
    "one usual name": (["layer_5"], ["layer_4"], False),
    "one usual name of two words": (
        ["hidden_states.layer.5"],
        ["hidden_states.layer.4"],
        False,
    ),
    "one state of a model": (["hidden_states_5"], ["hidden_states_4"], False),
    "a pattern": (["tr_0", "tr_1"], ["te_1", "te_2"], True),
    "a pattern of one array": (["tr_5"], ["te_4"], True),
}
"""Names of the states of train and of test; and whether options give their pattern."""


@pytest.mark.parametrize("name", SHIFTED)
def test_different_layers_of_splits_are_refused_unless_they_are_named(
    name: str, tmp_path: Path
) -> None:
    train, test, has_pattern = SHIFTED[name]
    files = []
    for split, names in (("train", train), ("test", test)):
        arrays = {array: TRAIN[:, i] for i, array in enumerate(names)}
        files += save(tmp_path / f"{split}.npz", {**arrays, "y": labels(9)})
    patterns = ("train=tr_*", "test=te_*") if has_pattern else ()
    with pytest.raises(GaamError, match="different layers: train") as caught:
        run(*files, out=tmp_path / "cache", arrays=patterns)
    assert caught.value.exit_code == 2
    # names without a pattern are what the message asks for
    named = [f"train=train.npz:{array}" for array in train]
    named += [f"test=test.npz:{array}" for array in test]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GaamWarning)  # both splits have the same rows
        summary = run(*files, out=tmp_path / "cache", arrays=tuple(named))
    assert summary.num_layers == len(train)


@pytest.mark.parametrize("name", ["X2", "features_2024"])
def test_single_arrays_of_any_name_are_taken_where_options_name_them(
    name: str, tmp_path: Path
) -> None:
    arrays = {"X": TRAIN, "y": labels(9), name: states(6, seed=5), "t": labels(6)}
    files = save(tmp_path / "all.npz", arrays)
    summary = run(
        *files,
        out=tmp_path / "cache",
        arrays=("train=X", f"test={name}"),
        labels=("train=y", "test=t"),
    )
    assert summary.rows == {"train": 9, "test": 6}


def case_of_states(shape: tuple[int, ...], dtype: str, axes: str | None = None) -> Case:
    arrays = {"X": np.ones(shape, dtype), "y": labels(9)}
    return Case(arrays, str(shape), {"axes": axes})


WRONG: dict[str, Case] = {
    "labels of an unlabelled split": Case(GOOD, "labels", {"unlabelled": ("train",)}),
    "a class named twice": Case(GOOD, "a, b, a", {"class_names": ("a", "b", "a")}),
    "few names of classes": Case(GOOD, "y, row 3", {"class_names": ("a", "b")}),
    "layers first": case_of_states((3, 9, 4), "f4"),
    "rows first, other axes given": case_of_states((9, 3, 4), "f4", "lnd"),
    "rows or layers": case_of_states((9, 9, 4), "f4"),
    "integers": case_of_states((9, 3, 4), "i4"),
    "bytes": case_of_states((9, 3, 4), "u1"),
    "layers of two sizes": Case(
        {"layer_0": TRAIN[:, 0], "layer_1": TRAIN[:, 1, :3], "y": labels(9)}, "(9, 3)"
    ),
    "labels in two dimensions": Case({"X": TRAIN, "y": labels(9)[:, None]}, "'y'"),
    "labels in float, asked for as classes": Case(
        {"X": TRAIN, "y": labels(9) * 1.0}, "no classes", {"task": "classification"}
    ),
    "negative labels": Case({"X": TRAIN, "y": labels(9) - 1}, "'y'"),
    "a very large label": Case({"X": TRAIN, "y": np.full(9, 10**7)}, "'y'"),
    "fractions, asked for as classes": Case(
        {"X": TRAIN, "y": labels(9) / 2}, "no classes", {"task": "classification"}
    ),
    "fractions as texts": Case(
        {"X": TRAIN, "y": np.array(["0.5", "1.5", "2"] * 3)}, "looks like numbers"
    ),
    "splits of other sizes": Case(
        {**BOTH, "X_test": TRAIN[:, 0], "y_test": labels(9)},
        "test: 1 x 4",
        file="all.npz",
    ),
    "a class of the test split alone": Case(
        {**BOTH, "y_test": np.arange(9) % 4}, "y_test, row 4", file="all.npz"
    ),
    "texts and numbers": Case(
        {**BOTH, "y_train": ABC[labels(9)], "y_test": labels(9)},
        "y_test, row 1",
        file="all.npz",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_right_is_refused_with_where(name: str, tmp_path: Path) -> None:
    case = WRONG[name]
    error = refusal_of(tmp_path, case.arrays, file=case.file, **case.options)
    assert case.message in str(error)
    assert error.exit_code in (2, 3)


@pytest.mark.parametrize("num_labels", [1, 8, 10])
@pytest.mark.parametrize("axes", ["nld", "lnd", "nd", None])
def test_labels_of_another_number_than_the_rows_are_named(
    axes: str | None, num_labels: int, tmp_path: Path
) -> None:
    values = states(9, 5)
    values_by_axes = {"lnd": values.swapaxes(0, 1), "nd": values[:, 0]}
    array = np.ascontiguousarray(values_by_axes.get(str(axes), values))
    arrays = {"X": array, "y": labels(num_labels)}
    error = refusal_of(tmp_path, arrays, axes=axes)
    assert "'y'" in error.message
    assert "9 labels" in error.details["expected"]
    assert error.details["found"] == f"{num_labels} labels"
    assert error.details["where"].endswith(": y")
    assert error.exit_code == 3


@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "bool"])
def test_states_of_another_type_are_said_to_need_another_type(
    dtype: str, tmp_path: Path
) -> None:
    error = refusal_of(tmp_path, {"X": np.ones((9, 3, 4), dtype), "y": labels(9)})
    assert "floating-point numbers" in error.details["expected"]
    assert "astype('float32')" in error.details["to do"]
    assert "axes" not in error.details["to do"]


MASKED = np.ma.masked_array(TRAIN, mask=TRAIN[2, 1, 0] == TRAIN)
MASKED_LABELS = np.ma.masked_array(labels(9), mask=labels(9) == 1)
MASKED_SPLITS: dict[str, tuple[Any, Any]] = {
    "states": (MASKED, labels(9)),
    "layers": ([MASKED[:, 1], MASKED[:, 2]], labels(9)),
    "labels": (TRAIN, MASKED_LABELS),
    "a list of labels": (TRAIN, list(MASKED_LABELS)),
}


@pytest.mark.parametrize("name", MASKED_SPLITS)
def test_masked_values_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="masked") as caught:
        gaam_cache.write(tmp_path / "cache", {"train": MASKED_SPLITS[name]})
    assert set(caught.value.details) == {"expected", "found", "where", "to do"}


def test_a_mask_of_no_value_is_no_mask(tmp_path: Path) -> None:
    splits = {"train": (np.ma.masked_array(TRAIN), np.ma.masked_array(labels(9)))}
    assert gaam_cache.write(tmp_path / "cache", splits).rows == {"train": 9}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    ("value", "place"), [(np.nan, (0, 2, 0)), (-np.inf, (8, 0, 3))], ids=["nan", "-inf"]
)
def test_the_first_number_that_is_none_is_named_wherever_it_is(
    dtype: str, value: float, place: tuple[int, int, int], tmp_path: Path
) -> None:
    wrong = torch.from_numpy(TRAIN).to(getattr(torch, dtype), copy=True)
    wrong[place] = value
    wrong[8, 2, 3] = value
    row, layer, feature = place
    message = f"row {row + 1}, layer {layer + 1}, feature {feature}"
    layers = {f"layer_{number}": wrong[:, number] for number in range(3)}
    for given in ({"X": wrong}, layers):
        arrays = {**given, "y": labels(9)}
        error = refusal_of(tmp_path, arrays, file="train.safetensors")
        assert isinstance(error, NumericsError)
        assert message in str(error)
        assert ("NaN" if np.isnan(value) else "infinite") in error.message
        assert "storage-dtype" not in error.details["to do"]


@pytest.mark.parametrize(
    ("size", "message"), [(1e5, "65504"), (1e-9, "4 of 4 features lost")]
)
def test_numbers_that_the_storage_type_cannot_hold_are_refused(
    size: float, message: str, tmp_path: Path
) -> None:
    arrays = {**GOOD, "X": size * TRAIN}
    error = refusal_of(tmp_path, arrays, storage_dtype="float16")
    assert message in str(error)


@pytest.fixture(scope="module")
def other_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that are none of arrays, or hold objects."""
    folder = tmp_path_factory.mktemp("other files")
    (folder / "x.csv").write_text("a,b\n")
    (folder / "x.pt").write_bytes(b"\x80\x02")
    (folder / "x.npz").write_bytes(b"a,b\n")
    objects = np.array([{"a": 1}] * 9, object)
    np.save(folder / "x.npy", objects)
    np.savez(folder / "train.npz", X=TRAIN, y=objects)
    return folder


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("none.npz", 2),
        ("x.csv", 2),
        ("x.pt", 2),
        ("x.npz", 3),
        ("x.npy", 3),
        ("train.npz", 3),
    ],
)
def test_what_is_no_file_of_arrays_is_refused(
    name: str, code: int, other_files: Path, tmp_path: Path
) -> None:
    out = tmp_path / "cache"
    with pytest.raises(GaamError, match=name) as caught:
        run(other_files / name, out=out)
    assert caught.value.exit_code == code
    holds_objects = name in ("x.npy", "train.npz")
    assert ("astype(str)" in str(caught.value)) == holds_objects
    assert not out.exists()


def never_written(file: h5py.File) -> None:
    file.create_dataset("embeddings", (9, 3, 4), "f4")


def partly_written(file: h5py.File) -> None:
    dataset = file.create_dataset("embeddings", (9, 3, 4), "f4", chunks=(3, 3, 4))
    dataset[:6] = 1


def linked_to_another_file(file: h5py.File) -> None:
    file["embeddings"] = h5py.ExternalLink("other.h5", "X")


def virtual_without_a_source(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((9, 3, 4), "f4")
    layout[:] = h5py.VirtualSource("nowhere.h5", "X", (9, 3, 4))
    file.create_virtual_dataset("embeddings", layout)


@pytest.mark.parametrize(
    "write",
    [never_written, partly_written, linked_to_another_file, virtual_without_a_source],
)
def test_what_hdf5_would_fill_with_zeros_or_take_elsewhere_is_refused(
    write: Callable[[h5py.File], None], tmp_path: Path
) -> None:
    save(tmp_path / "other.h5", GOOD)
    path = tmp_path / "train.h5"
    with h5py.File(path, "w") as file:
        file["labels"] = labels(9)
        write(file)
    with pytest.raises(GaamError):
        run(path, out=tmp_path / "cache")


def test_splits_that_share_rows_are_counted_and_warned_of(tmp_path: Path) -> None:
    test = states(6, seed=5)
    test[4] = TRAIN[2]
    files = save(tmp_path / "all.npz", {**BOTH, "X_test": test, "y_test": labels(6)})
    out = tmp_path / "cache"
    with pytest.warns(GaamWarning, match=r"1 of 6 rows of 'test'.*row 5 of 'test'"):
        run(*files, out=out)
    plan = gaam_cache.open_cache(out).plan
    assert plan.dataset.shared_texts == {"train": {"test": 1}, "test": {"train": 1}}
