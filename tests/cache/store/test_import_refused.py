"""What is not clear or cannot be right is refused, with what there is and what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import gaam_cache
from gaam_cache.common.errors import GaamError, GaamWarning, NumericsError
from tests.cache.store.making import labels, run, save, states

TRAIN = states(9)
GOOD = {"X": TRAIN, "y": labels(9)}
BOTH = {"X_train": TRAIN, "y_train": labels(9), "X_test": TRAIN + 1}
ABC = np.array(["a", "b", "c", "d"])


def refused(
    folder: Path, given: Any, *, file: str = "train.npz", **options: Any
) -> GaamError:
    """The refusal of a file, before anything is there."""
    files = save(folder / file, given)
    with pytest.raises(GaamError) as caught:
        run(*files, out=folder / "c", **options)
    assert not (folder / "c").exists()
    return caught.value


UNCLEAR: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("all.npz", GOOD, {}, "--array SPLIT=NAME"),
    ("train.npz", {"X": TRAIN}, {}, "--labels train=NAME"),
    ("all.npz", {"a/X": TRAIN, "a/y": labels(9), "b/y": labels(9)}, {}, "'b'"),
    ("train.npz", {**GOOD, "states": TRAIN}, {}, "states: float32 (9, 3, 4)"),
    ("train.npz", {"layer_0": TRAIN[:, 0], "layer_2": TRAIN[:, 1]}, {}, "layer 1"),
    ("train.npz", GOOD, {"arrays": ("train=nope_*",)}, "'nope_*'"),
    ("train.npz", GOOD, {"keep_columns": ("age",)}, "age"),
]
"""File, arrays, options, and what is said: all of them exit code 2."""
WRONG: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (GOOD, {"unlabelled": ("train",)}, "labels"),
    (GOOD, {"class_names": ("a", "b", "a")}, "a, b, a"),
    (GOOD, {"class_names": ("a", "b")}, "y, row 3"),
    *(
        ({"X": np.ones(shape, dtype), "y": labels(9)}, {"axes": axes}, str(shape))
        for shape, dtype, axes in (
            *(((3, 9, 4), "f4", None), ((9, 3, 4), "f4", "lnd")),
            *(((9, 9, 4), "f4", None), ((9, 3, 4), "i4", None)),
        )
    ),
    (
        {"layer_0": TRAIN[:, 0], "layer_1": TRAIN[:, 1, :3], "y": labels(9)},
        {},
        "(9, 3)",
    ),
    *(
        ({"X": TRAIN, "y": one}, {}, "'y'")
        for one in (
            labels(9)[:, None],
            labels(9) - 1,
            np.full(9, 10**7),
        )
    ),
    ({"X": TRAIN, "y": labels(9) / 2}, {"task": "classification"}, "no classes"),
    ({"X": TRAIN, "y": labels(9) * 1.0}, {"task": "classification"}, "no classes"),
    (
        {"X": TRAIN, "y": np.array(["0.5", "1.5", "2"] * 3)},
        {},
        "looks like numbers",
    ),
    ({**BOTH, "X_test": TRAIN[:, 0], "y_test": labels(9)}, {}, "test: 1 x 4"),
    ({**BOTH, "y_test": np.arange(9) % 4}, {}, "y_test, row 4"),
    ({**BOTH, "y_train": ABC[labels(9)], "y_test": labels(9)}, {}, "y_test, row 1"),
]
"""Arrays, options, and what is said."""


def test_what_is_not_clear_or_cannot_be_right_is_refused_with_where(
    tmp_path: Path,
) -> None:
    for file, arrays, options, said in UNCLEAR:
        error = refused(tmp_path, arrays, file=file, **options)
        assert said in str(error)
        assert error.exit_code == 2
    for arrays, options, said in WRONG:
        file = "all.npz" if "X_train" in arrays else "train.npz"
        error = refused(tmp_path, arrays, file=file, **options)
        assert said in str(error), (said, str(error))
        assert error.exit_code in (2, 3)


def test_the_first_number_that_is_none_is_named_wherever_it_is(tmp_path: Path) -> None:
    for given in ("float16", "bfloat16", "float32", "float64"):
        for value, (row, layer, feature) in ((np.nan, (0, 2, 0)), (-np.inf, (8, 0, 3))):
            wrong = torch.from_numpy(TRAIN).to(getattr(torch, given), copy=True)
            wrong[row, layer, feature] = wrong[8, 2, 3] = value
            layers = {f"layer_{n}": wrong[:, n] for n in range(3)}
            for arrays in ({"X": wrong}, layers):
                error = refused(
                    tmp_path, {**arrays, "y": labels(9)}, file="train.safetensors"
                )
                assert isinstance(error, NumericsError)
                assert f"row {row + 1}, layer {layer + 1}, feature {feature}" in str(
                    error
                )
    for size, said in ((1e5, "65504"), (1e-9, "4 of 4 features lost")):
        error = refused(tmp_path, {**GOOD, "X": size * TRAIN}, storage_dtype="float16")
        assert said in str(error)


def test_what_is_no_file_of_arrays_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n")
    (tmp_path / "x.pt").write_bytes(b"\x80\x02")
    (tmp_path / "x.npz").write_bytes(b"a,b\n")
    np.save(tmp_path / "x.npy", np.array([{"a": 1}] * 9, object))
    np.savez(tmp_path / "train.npz", X=TRAIN, y=np.array([{"a": 1}] * 9, object))
    codes = {
        "none.npz": 2,
        "x.csv": 2,
        "x.pt": 2,
        "x.npz": 3,
        "x.npy": 3,
        "train.npz": 3,
    }
    for name, code in codes.items():
        with pytest.raises(GaamError, match=name) as caught:
            run(tmp_path / name, out=tmp_path / "c")
        assert caught.value.exit_code == code
        assert not (tmp_path / "c").exists()


def test_what_hdf5_would_fill_with_zeros_or_take_elsewhere_is_refused(
    tmp_path: Path,
) -> None:
    save(tmp_path / "other.h5", GOOD)
    for name in ("never", "partly", "linked", "virtual"):
        with h5py.File(tmp_path / f"train-{name}.h5", "w") as file:
            file["labels"] = labels(9)
            if name == "linked":
                file["embeddings"] = h5py.ExternalLink("other.h5", "X")
            elif name == "virtual":
                layout = h5py.VirtualLayout((9, 3, 4), "f4")
                layout[:] = h5py.VirtualSource("nowhere.h5", "X", (9, 3, 4))
                file.create_virtual_dataset("embeddings", layout)
            elif name == "partly":
                file.create_dataset("embeddings", (9, 3, 4), "f4", chunks=(3, 3, 4))[
                    :6
                ] = 1
            else:
                file.create_dataset("embeddings", (9, 3, 4), "f4")
        with pytest.raises(GaamError):
            run(tmp_path / f"train-{name}.h5", out=tmp_path / "c")


def test_splits_that_share_rows_are_counted_and_warned_of(tmp_path: Path) -> None:
    test = states(6, seed=5)
    test[4] = TRAIN[2]
    files = save(tmp_path / "all.npz", {**BOTH, "X_test": test, "y_test": labels(6)})
    with pytest.warns(GaamWarning, match=r"1 of 6 rows of 'test'.*row 5 of 'test'"):
        run(*files, out=tmp_path / "c")
    plan = gaam_cache.open_cache(tmp_path / "c").plan
    assert plan.dataset.shared_texts == {"train": {"test": 1}, "test": {"train": 1}}
