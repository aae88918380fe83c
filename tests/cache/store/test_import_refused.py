"""What is not clear or cannot be right is refused, with what there is and what to write."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gaam_cache
from gaam_cache.errors import ConfigError, DataError, GaamError, NumericsError
from gaam_cache.import_config import ImportConfig
from gaam_cache.store.dtypes import LARGEST
from tests.cache.store.making import BFloat16, labels, run, save, states

TRAIN = states(9)
GOOD = {"embeddings": TRAIN, "labels": labels(9)}


def refused(tmp_path: Path, given: Any, *, file: str = "train.npz", **options: Any) -> GaamError:
    """The refusal of a file, before anything is there."""
    save(tmp_path / file, given)
    with pytest.raises(GaamError) as caught:
        run(tmp_path / file, out=tmp_path / "c", **options)
    assert not (tmp_path / "c").exists()
    assert caught.value.exit_code in (1, 2, 3)
    assert len(str(caught.value)) < 6000
    return caught.value


UNCLEAR: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "no split": ("all.npz", GOOD, {}, "--array 'train=embeddings' --labels 'train=labels'"),
    "no names": ("train.npz", {"a": TRAIN, "b": labels(9)}, {}, "--array 'train=a'"),
    "a list of arrays": ("x.npz", {"arr_0": TRAIN, "arr_1": labels(9)}, {}, "'train=arr_0'"),
    "no labels": ("train.npz", {"X": TRAIN}, {}, "which array has the labels of 'train'"),
    "no states": ("train.npz", {"y": labels(9)}, {}, "which arrays are states"),
    "labels alone": (
        "all.npz",
        {"train/X": TRAIN, "train/y": labels(9), "test/y": labels(9)},
        {},
        "'test' has no states",
    ),
    "two states": (
        "train.npz",
        {**GOOD, "hidden_states": TRAIN},
        {},
        "several arrays could be the states",
    ),
    "states and layers": (
        "train.npz",
        {**GOOD, "layer_0": TRAIN[:, 0]},
        {},
        "several arrays could be the states",
    ),
    "two labels": ("train.npz", {**GOOD, "y": labels(9)}, {}, "several arrays could be the labels"),
    "two splits": (
        "train.npz",
        {"test/X": TRAIN, "test/y": labels(9)},
        {},
        "which arrays are states",
    ),
    "gap": (
        "train.npz",
        {"layer_0": TRAIN[:, 0], "layer_2": TRAIN[:, 1], "y": labels(9)},
        {},
        "layer 1 of 'train' is missing",
    ),
    "twice": (
        "train.npz",
        {"layer_0": TRAIN[:, 0], "layer_00": TRAIN[:, 1], "y": labels(9)},
        {},
        "is there twice",
    ),
    "late": (
        "train.npz",
        {"layer_5": TRAIN[:, 0], "layer_6": TRAIN[:, 1], "y": labels(9)},
        {},
        "begin with 5",
    ),
    "no such array": ("train.npz", GOOD, {"arrays": ("train=nope",)}, "no array 'nope'"),
    "no such labels": ("train.npz", GOOD, {"labels": ("train=nope",)}, "no array 'nope'"),
    "no such pattern": (
        "train.npz",
        GOOD,
        {"arrays": ("train=nope_*",)},
        "no array is called 'nope_*'",
    ),
    "gap in a pattern": (
        "train.npz",
        {"b1": TRAIN[:, 0], "b3": TRAIN[:, 1], "y": labels(9)},
        {"arrays": ("train=b*",)},
        "layer 2 of 'b*' is missing",
    ),
    "unlabelled of nothing": ("train.npz", GOOD, {"unlabelled": ("test",)}, "'test' has no states"),
    "unlabelled alone": ("train.npz", GOOD, {"unlabelled": ("train",)}, "no split has labels"),
}


@pytest.mark.parametrize("case", UNCLEAR)
def test_what_is_not_clear_is_listed(case: str, tmp_path: Path) -> None:
    file, arrays, options, said = UNCLEAR[case]
    error = refused(tmp_path, arrays, file=file, **options)
    assert error.exit_code == 2
    assert said in str(error)
    if "alone" not in case or case == "labels alone":
        for name, array in arrays.items():
            assert f"{name}: {array.dtype} {array.shape}" in str(error)


SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "states of tokens": ({"X": np.zeros((9, 5, 3, 4), np.float32)}, {}, "have to be pooled before"),
    "a vector": ({"X": np.zeros(9, np.float32)}, {}, "has other axes"),
    "no rows": ({"X": np.zeros((0, 3, 4), np.float32), "y": labels(0)}, {}, "has no rows"),
    "no layers": ({"X": np.zeros((9, 0, 4), np.float32)}, {}, "is empty"),
    "no features": ({"X": np.zeros((9, 3, 0), np.float32)}, {}, "is empty"),
    "fewer rows": ({"X": np.zeros((8, 3, 4), np.float32)}, {}, "has not one entry per label"),
    "layers first": ({"X": np.zeros((3, 9, 4), np.float32)}, {}, "--set axes=lnd"),
    "rows first": ({"X": TRAIN}, {"axes": "lnd"}, "--set axes=nld"),
    "either": ({"X": np.zeros((9, 9, 4), np.float32)}, {}, "as many rows as layers"),
    "nd of three": ({"X": TRAIN}, {"axes": "nd"}, "has too many axes"),
    "nld of two": ({"X": TRAIN[:, 0]}, {"axes": "nld"}, "has other axes"),
    "unequal layers": ({"layer_0": TRAIN[:, 0], "layer_1": TRAIN[:, 1, :3]}, {}, "another shape"),
    "deep layers": ({"layer_0": TRAIN, "layer_1": TRAIN}, {}, "cannot be one of several layers"),
    "one label too few": ({"X": TRAIN, "y": labels(8)}, {}, "has not one entry per label"),
    "labels of two axes": ({"X": TRAIN, "y": labels(9)[:, None]}, {}, "cannot be the labels"),
    "a scalar": ({"X": TRAIN, "y": np.array(1)}, {}, "cannot be the labels"),
    "wide tokens": ({"X": TRAIN, "num_tokens": np.ones((9, 2), int)}, {}, "numbers of tokens"),
    "no tokens": ({"X": TRAIN, "num_tokens": np.arange(9)}, {}, "numbers of tokens"),
    "part of a token": ({"X": TRAIN, "num_tokens": np.ones(9)}, {}, "numbers of tokens"),
    "many tokens": ({"X": TRAIN, "num_tokens": np.full(9, 2**31)}, {}, "numbers of tokens"),
}


@pytest.mark.parametrize("case", SHAPES)
def test_shapes_that_cannot_be(case: str, tmp_path: Path) -> None:
    arrays, options, said = SHAPES[case]
    error = refused(tmp_path, {"y": labels(9)} | arrays, **options)
    assert said in str(error), error


@pytest.mark.parametrize("suffix", ["npz", "h5", "safetensors"])
@pytest.mark.parametrize(
    "dtype", ["int32", "uint8", "bool", "complex64", "float128", "U4", "M8[s]"]
)
def test_types_that_are_no_states(dtype: str, suffix: str, tmp_path: Path) -> None:
    if suffix != "npz" and dtype not in ("int32", "uint8", "bool"):
        pytest.skip("cannot be written so")
    error = refused(
        tmp_path, {"X": np.ones((9, 3, 4), dtype), "y": labels(9)}, file=f"train.{suffix}"
    )
    assert "cannot be states" in str(error)
    assert "float16, bfloat16, float32, float64" in str(error)


@pytest.mark.parametrize(
    "wrong",
    [
        *(np.arange(9) * 1.0, np.arange(9) % 2 == 0, np.arange(9) - 1, np.full(9, 10**7)),
        *(np.arange(9) * 1j, np.full(9, ""), np.full(9, 2**63, np.uint64)),
    ],
    ids=["float", "bool", "negative", "huge", "complex", "empty", "uint64"],
)
def test_labels_that_are_none(wrong: Any, tmp_path: Path) -> None:
    assert isinstance(refused(tmp_path, {"X": TRAIN, "y": wrong}), DataError)


def test_labels_that_train_does_not_have(tmp_path: Path) -> None:
    for kind in (lambda n: n, lambda n: np.array(["a", "b", "c", "d"])[n]):
        arrays = {
            "X_train": TRAIN,
            "X_test": TRAIN + 1,
            "y_train": kind(labels(9)),
            "y_test": kind(np.arange(9) % 4),
        }
        error = refused(tmp_path, arrays, file="all.npz")
        assert "y_test, row 4" in str(error)
    mixed = {**arrays, "y_test": labels(9)}
    assert "numbers in one split and strings" in str(refused(tmp_path, mixed, file="m.npz"))
    both = refused(tmp_path, GOOD, class_names=("a", "b"))
    assert "0 to 1 (2 classes)" in str(both)
    with pytest.raises(ConfigError, match="named twice"):
        run(tmp_path / "train.npz", out=tmp_path / "c", class_names=("a", "b", "a"))


def test_splits_of_other_sizes(tmp_path: Path) -> None:
    for other in (TRAIN[:, :2], TRAIN[:, :, :3], TRAIN[:, 0]):
        arrays = {"X_train": TRAIN, "X_test": other, "y_train": labels(9), "y_test": labels(9)}
        assert "states of different sizes" in str(refused(tmp_path, arrays, file="all.npz"))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("given", ["float16", "bfloat16", "float32", "float64"])
def test_the_first_number_that_is_none_is_named_wherever_it_is(
    given: str, value: float, tmp_path: Path
) -> None:
    corners = list(product((0, 4, 8), (0, 2), (0, 3)))
    for number, (row, layer, feature) in enumerate(corners):
        wrong = TRAIN.astype("float32" if given == "bfloat16" else given)
        wrong[row, layer, feature] = value
        wrong[8, 2, 3] = value
        kept: Any = BFloat16(wrong) if given == "bfloat16" else wrong
        file = tmp_path / str(number)
        error = refused(file, {"X": kept, "y": labels(9)}, file="train.h5")
        assert isinstance(error, NumericsError)
        assert f"row {row + 1}, layer {layer + 1}, feature {feature}" in str(error)
        layers = {f"layer_{n}": wrong[:, n] for n in range(3)}
        if given != "bfloat16":
            error = refused(file, {**layers, "y": labels(9)}, file="train.npz")
            assert f"row {row + 1}, layer {layer + 1}, feature {feature}" in str(error)


def test_what_the_storage_type_cannot_hold_is_refused_and_what_it_rounds_is_not(
    tmp_path: Path,
) -> None:
    for storage, largest in LARGEST.items():
        for value, fits in ((largest, True), (largest * 1.01, False)):
            wide = TRAIN.astype(np.float64)
            wide[3, 1, 2] = value
            root = tmp_path / f"{storage}-{fits}"
            arrays = {"X": wide, "y": labels(9)}
            if fits:
                save(root / "train.npz", arrays)
                run(root / "train.npz", out=root / "c", storage_dtype=storage)
                found = gaam_cache.open_cache(root / "c")["train"].embeddings[3, 1, 2]
                assert float(found) == largest
            else:
                error = refused(root, arrays, storage_dtype=storage)
                assert "row 4, layer 2, feature 2" in str(error)
                assert f"cannot be stored as {storage}" in str(error)


def test_a_layer_of_which_more_than_a_hundredth_would_vanish_is_refused(tmp_path: Path) -> None:
    small = np.random.default_rng(0).normal(size=(250, 2, 4)).astype(np.float32)
    small[5:7, 1] = 0
    small[7:9, 1] = small[9, 1, :2] = 1e-12
    error = refused(tmp_path / "f", {"X": small, "y": labels(250)}, storage_dtype="float16")
    assert isinstance(error, NumericsError)
    assert "layer 2" in str(error)
    assert "row 1 to row 250" in str(error)
    small[9, 1] = 1  # 8 of 992
    save(tmp_path / "train.npz", {"X": small, "y": labels(250)})
    run(tmp_path / "train.npz", out=tmp_path / "c", storage_dtype="float16")


def test_what_a_configuration_cannot_be() -> None:
    good: dict[str, Any] = {"files": ("x.npz",)}
    for wrong in (
        {"files": ()},
        {"files": ("a", "a")},
        {"arrays": ("embeddings",)},
        {"arrays": ("=x",)},
        {"arrays": ("train=",)},
        {"arrays": ("a/b=x",)},
        {"labels": ("train=a", "train=b")},
        {"pool": "Mean"},
        {"pool": ""},
        {"encoder_name": " "},
        {"class_names": ("",)},
        {"shard_rows": 0},
        {"keep_columns": ("a b",)},
    ):
        with pytest.raises(ConfigError):
            ImportConfig(**{**good, **wrong})


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "x.csv").write_text("a,b\n")
    (tmp_path / "x.pt").write_bytes(b"\x80\x02")
    for name, said in {
        "none.npz": "no file at",
        "folder.npz": "a folder",
        "x.csv": ".h5, .hdf, .hdf5, .npy, .npz, .safetensors",
        "x.pt": "a pickle runs code",
    }.items():
        with pytest.raises(ConfigError, match=re.escape(said)):
            run(tmp_path / name, out=tmp_path / "c")


def test_splits_that_share_rows_are_counted_and_warned_of(tmp_path: Path) -> None:
    test = states(6, seed=5)
    test[4] = TRAIN[2]
    arrays = {"X_train": TRAIN, "y_train": labels(9), "X_test": test, "y_test": labels(6)}
    save(tmp_path / "all.npz", arrays)
    with pytest.warns(
        gaam_cache.errors.GaamWarning, match=r"1 of 6 rows of 'test'.*row 5 of 'test'"
    ):
        run(tmp_path / "all.npz", out=tmp_path / "c")
    plan = gaam_cache.open_cache(tmp_path / "c").plan
    assert plan.shared_texts == {"train": {"test": 1}, "test": {"train": 1}}


def test_a_folder_with_another_cache_is_refused_before_states_are_read(
    tmp_path: Path, tiny_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "train.npz", GOOD)
    run(tmp_path / "train.npz", out=tmp_path / "c")
    monkeypatch.setattr("gaam_cache.store.importing._look_at", None)
    for out in (tmp_path / "c", tiny_cache):
        with pytest.raises(ConfigError, match="holds another cache"):
            run(tmp_path / "train.npz", out=out, storage_dtype="float16")


def test_pickles_are_never_read(tmp_path: Path) -> None:
    objects = np.array([{"a": 1}] * 9, object)
    np.savez(tmp_path / "train.npz", X=TRAIN, y=objects)
    np.save(tmp_path / "train_X.npy", objects)
    for name in ("train.npz", "train_X.npy"):
        with pytest.raises(GaamError, match="object"):
            run(tmp_path / name, out=tmp_path / "c")
