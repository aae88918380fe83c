"""What is stored is what was imported: every format, layout, type and storage type."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import gaam_cache
from gaam_cache.common.errors import ConfigError, DataError
from tests.cache.store.making import FORMATS, config, labels, run, save, states

TRAIN = states(21, seed=1)
TEST = states(10, seed=2)
SPLITS = {"train": TRAIN, "test": TEST}
STORAGE_TYPES = ("float16", "float32", "bfloat16")


class Layout(NamedTuple):
    """Names of states ('#' is the number of a layer) and of labels of a split."""

    states: str
    labels: str


LAYOUTS = {
    "groups": Layout("{}/embeddings", "{}/labels"),
    "suffixes": Layout("X_{}", "y_{}"),
    "layers": Layout("{}/layer_#", "{}.targets"),
    "layers of a list": Layout("{}/hidden_states/#", "y_{}"),
}


def check(out: Path, splits: dict[str, Any], dtype: str = "float32") -> None:
    """Check states as torch rounds them, labels in turn, and the files read again."""
    cache = gaam_cache.open_cache(out)
    assert list(cache) == list(splits)
    assert cache.plan.storage_dtype == dtype
    for name, values in splits.items():
        rounded = torch.as_tensor(values).to(getattr(torch, dtype)).float().numpy()
        stored = cache[name].embeddings[:].astype(np.float32)
        # zeros have signs
        assert stored.tobytes() == rounded.tobytes(), name
        np.testing.assert_array_equal(cache[name].labels, labels(len(values)))
    assert gaam_cache.verify(out).good


def arrays_in(layout: Layout) -> dict[str, NDArray[Any]]:
    """The arrays of both splits, those of the last first."""
    arrays: dict[str, NDArray[Any]] = {}
    for split, values in reversed(SPLITS.items()):
        name = layout.states.format(split)
        if "#" in name:
            for layer in range(values.shape[1]):
                arrays[name.replace("#", str(layer + 1))] = values[:, layer]
        else:
            arrays[name] = values
        arrays[layout.labels.format(split)] = labels(len(values))
    return arrays


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_is_understood_by_the_names_of_its_arrays(
    suffix: str, layout: str, tmp_path: Path
) -> None:
    files = save(tmp_path / f"all.{suffix}", arrays_in(LAYOUTS[layout]))
    out = tmp_path / "cache"
    assert run(*files, out=out).shards_made == 3 + 2
    check(out, SPLITS)


# a file of npy has one array
@pytest.mark.parametrize("suffix", [name for name in FORMATS if name != "npy"])
def test_every_format_is_understood_by_the_names_of_its_files(
    suffix: str, tmp_path: Path
) -> None:
    files: list[Path] = []
    for split, values in reversed(SPLITS.items()):
        arrays = {"embeddings": values, "labels": labels(len(values))}
        files += save(tmp_path / f"my.{split}-set.{suffix}", arrays)
    out = tmp_path / "cache"
    run(*files, out=out)
    check(out, SPLITS)


class Named(NamedTuple):
    """Names of arrays, the states that they have, and the order of their axes."""

    arrays: tuple[str, ...]
    expected: NDArray[Any]
    axes: str | None = None


OTHER_NAMES = {
    "layers first": Named(("some/where",), TRAIN, "lnd"),
    "one layer of another file": Named(("g.h5:flat",), TRAIN[:, 1:2]),
    # block 10 is before block 9 as text
    "a pattern": Named(("deep/block.*.out",), TRAIN),
    "several": Named(("deep/block.11.out", "deep/block.9.out"), TRAIN[:, [2, 0]]),
}


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_arrays_with_other_names_are_taken_where_they_are_named(
    name: str, tmp_path: Path
) -> None:
    arrays = {"some/where": np.ascontiguousarray(TRAIN.swapaxes(0, 1)), "t": labels(21)}
    for block in (9, 10, 11):
        arrays[f"deep/block.{block}.out"] = TRAIN[:, block - 9]
    [file] = save(tmp_path / "f.h5", arrays)
    [other] = save(tmp_path / "g.h5", {"t": labels(21), "flat": TRAIN[:, 1]})
    case = OTHER_NAMES[name]
    options: dict[str, Any] = {"axes": case.axes} if case.axes else {}
    out = tmp_path / "cache"
    run(
        file,
        other,
        out=out,
        arrays=tuple(f"train={array}" for array in case.arrays),
        labels=(f"train={other}:t",),
        **options,
    )
    check(out, {"train": case.expected})


# signed zeros, halves between two numbers of each type, the largest and a small number
SPECIAL_NUMBERS = [
    *(0.0, -0.0, 1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 1 + 3 * 2**-8),
    *(65280.0, -6e-7),
]


def types_and_storage_types() -> Iterator[tuple[str, str, str | None]]:
    """Formats, types and storage types; NumPy, and so HDF5, has no bfloat16."""
    for storage_dtype in (None, *STORAGE_TYPES):
        for dtype in (*STORAGE_TYPES, "float64"):
            yield "safetensors", dtype, storage_dtype
        for dtype in ("float16", "float32", "float64"):
            yield "gzip.h5", dtype, storage_dtype


@pytest.mark.parametrize(
    ("suffix", "dtype", "storage_dtype"), list(types_and_storage_types())
)
def test_every_type_becomes_every_storage_type_as_torch_rounds(
    suffix: str, dtype: str, storage_dtype: str | None, tmp_path: Path
) -> None:
    numbers = TRAIN.astype(np.float64)
    numbers[0] = np.resize(SPECIAL_NUMBERS, numbers[0].shape)
    tensor: Any = torch.as_tensor(numbers).to(getattr(torch, dtype))
    array = tensor
    # HDF5 stores the other order of bytes too
    if suffix == "gzip.h5":
        array = tensor.numpy().astype(f">f{tensor.itemsize}")
    arrays = {"X": array, "y": labels(21).astype("u1")}
    files = save(tmp_path / f"train.{suffix}", arrays)
    out = tmp_path / "cache"
    run(*files, out=out, storage_dtype=storage_dtype)
    usual_dtype = dtype if dtype in STORAGE_TYPES else "float32"
    check(out, {"train": tensor}, storage_dtype or usual_dtype)


class Classes(NamedTuple):
    """Labels, names that are given, the names of the cache, and labels in turn."""

    labels: NDArray[Any]
    class_names: tuple[str, ...] | None
    expected_names: list[str]
    expected_labels: list[int]


NAMES = np.array(["zürich", "a", "10", "9"])
FOUR_N = np.arange(21) % 4
TWO_N = np.arange(21) % 2
CLASSES = {
    "texts": Classes(NAMES[FOUR_N], None, ["10", "9", "a", "zürich"], [3, 2, 0, 1]),
    "texts in an order": Classes(
        NAMES[FOUR_N], tuple(NAMES), ["zürich", "a", "10", "9"], [0, 1, 2, 3]
    ),
    "digits": Classes(NAMES[2 + TWO_N], None, ["9", "10"], [1, 0]),
    "numbers with names": Classes(
        TWO_N, ("no, never", "yes"), ["no, never", "yes"], [0, 1]
    ),
}


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("suffix", ["npz", "h5"])
def test_classes_are_texts_numbers_or_named(
    suffix: str, name: str, tmp_path: Path
) -> None:
    case = CLASSES[name]
    files = save(tmp_path / f"train.{suffix}", {"X": TRAIN, "labels": case.labels})
    options: dict[str, Any] = {}
    if case.class_names:
        options["class_names"] = case.class_names
    out = tmp_path / "cache"
    run(*files, out=out, **options)
    cache = gaam_cache.open_cache(out)
    assert list(cache.class_names) == case.expected_names
    expected = np.resize(case.expected_labels, 21)
    np.testing.assert_array_equal(cache["train"].labels, expected)


def test_a_column_of_the_only_split_is_found_by_its_name(tmp_path: Path) -> None:
    speakers = np.array([f"s{row % 4}" for row in range(21)])
    arrays = {"hidden": TRAIN, "target": labels(21), "who": speakers}
    [file] = save(tmp_path / "f.npz", arrays)
    out = tmp_path / "cache"
    run(
        file,
        out=out,
        arrays=("train=hidden",),
        labels=("train=target",),
        keep_columns=("who",),
    )
    train = gaam_cache.open_cache(out)["train"]
    assert train.column("who") == speakers.tolist()


@pytest.mark.parametrize("suffix", ["safetensors", "npz", "h5"])
def test_single_numbers_in_a_file_are_left_out(suffix: str, tmp_path: Path) -> None:
    arrays = {"X": TRAIN, "y": labels(21), "version": np.array(3)}
    files = save(tmp_path / f"train.{suffix}", arrays)
    out = tmp_path / "cache"
    assert not run(*files, out=out).unused_arrays
    check(out, {"train": TRAIN})


@pytest.mark.parametrize("suffix", ["npz", "h5"])
def test_columns_and_splits_without_labels(suffix: str, tmp_path: Path) -> None:
    speakers = np.array([f"speaker {row % 4} ä" for row in range(31)])
    arrays = {
        "train/embeddings": TRAIN,
        "train/labels": labels(21),
        "train/who": speakers[:21],
        "train/session": np.arange(21) // 5,
        "new/embeddings": TEST,
        "new/who": speakers[21:],
        "new/session": np.arange(10),
        "train/other": np.zeros(3),
    }
    options: dict[str, Any] = {
        "unlabelled": ("new",),
        "keep_columns": ("who", "session"),
    }
    [file] = save(tmp_path / f"all.{suffix}", arrays)
    out = tmp_path / "cache"
    import_config = config(file, out=out, **options)
    preview = gaam_cache.import_states(import_config, preview=True)
    assert "train/other" in preview.in_words()
    assert not out.exists()
    assert run(file, out=out, **options).shards == preview.to_dict()["shards"]
    cache = gaam_cache.open_cache(out)
    assert [cache[split].labelled for split in cache] == [True, False]
    np.testing.assert_array_equal(cache["new"].num_tokens, 1)
    assert cache["train"].column("who") == speakers[:21].tolist()
    assert cache["new"].column("session") == [str(row) for row in range(10)]
    assert gaam_cache.verify(out).good


TEXTS = ["abc"[row % 3] for row in range(21)]
IN_MEMORY: dict[str, tuple[Any, Any]] = {
    "lists": (list(TRAIN.swapaxes(0, 1)), labels(21).tolist()),
    "tensors": (torch.from_numpy(TRAIN).requires_grad_(), torch.arange(21) % 3),
    "objects": (TRAIN, np.array(TEXTS, object)),
    "strides": (np.asfortranarray(TRAIN), np.repeat(labels(21), 2)[::2]),
}
"""States and labels of a program."""


def check_written(split: tuple[Any, Any], out: Path, dtype: str = "float32") -> None:
    """Write states and labels, and check them."""
    gaam_cache.write(out, {"train": split}, shard_rows=8)
    check(out, {"train": TRAIN}, dtype)


@pytest.mark.parametrize("name", IN_MEMORY)
def test_arrays_of_every_library_are_written(name: str, tmp_path: Path) -> None:
    check_written(IN_MEMORY[name], tmp_path / "cache")


def test_tensors_in_bfloat16_are_written_in_bfloat16(tmp_path: Path) -> None:
    split = (torch.from_numpy(TRAIN).bfloat16(), torch.arange(21) % 3)
    check_written(split, tmp_path / "cache", "bfloat16")


def test_arrays_of_an_open_file_of_hdf5_are_written(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "open.h5", "w") as file:
        file["x"] = TRAIN
        file["t"] = TEXTS
        check_written((file["x"], file["t"]), tmp_path / "cache")


def test_arrays_of_a_file_in_memory_are_written(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", TRAIN)
    array = np.load(tmp_path / "m.npy", mmap_mode="r")
    check_written((array, TEXTS), tmp_path / "cache")


@pytest.mark.parametrize("value", [[[1.0]], "text", [True, False]], ids=str)
def test_what_is_neither_states_nor_labels_is_refused(
    value: Any, tmp_path: Path
) -> None:
    out = tmp_path / "cache"
    with pytest.raises((DataError, ConfigError)):
        gaam_cache.write(out, {"train": (TRAIN, value)})
    with pytest.raises((DataError, ConfigError)):
        gaam_cache.write(out, {"train": (value, labels(21))})
    assert not out.exists()


def test_a_cache_keeps_its_names_and_says_so(tmp_path: Path) -> None:
    """Its runs have recorded them: another name is another cache."""
    files = save(tmp_path / "train.npz", {"X": TRAIN, "y": labels(21)})
    out = tmp_path / "cache"
    run(*files, out=out, encoder_name="mine", dataset_name="set")
    # the defaults are no names that somebody gave
    assert run(*files, out=out).encoder == "mine"
    assert run(*files, out=out, encoder_name="mine").dataset == "set"
    for changes in ({"encoder_name": "bert"}, {"dataset_name": "other"}):
        with pytest.raises(ConfigError, match="under another name"):
            run(*files, out=out, **changes)
    assert gaam_cache.open_cache(out).plan.encoder.name == "mine"


def test_a_number_in_the_name_of_one_array_is_no_layer(tmp_path: Path) -> None:
    arrays = {"train_states_2023": TRAIN, "y_train": labels(21)}
    arrays |= {"test_states_2024": TEST, "y_test": labels(10)}
    run(*save(tmp_path / "both.npz", arrays), out=tmp_path / "cache")
    check(tmp_path / "cache", SPLITS)


@pytest.mark.parametrize("factor", [1.0, 5.0, 1e3], ids=["usual", "large", "broken"])
@pytest.mark.parametrize("storage_dtype", STORAGE_TYPES)
def test_a_row_far_larger_than_the_others_is_named(
    storage_dtype: str,
    factor: float,
    tmp_path: Path,
    recwarn: pytest.WarningsRecorder,
) -> None:
    train = TRAIN.copy()
    train[6, 1] *= factor
    splits = {"train": (train, labels(21)), "test": (TEST, labels(10))}
    gaam_cache.write(tmp_path / "cache", splits, storage_dtype=storage_dtype)
    warned = [text for item in recwarn if "as large" in (text := str(item.message))]
    if factor < 10:
        assert not warned
    else:
        (text,) = warned
        assert text.startswith("'train': states of 1 of 21 rows")
        assert "row 7 in layer 2" in text


@pytest.mark.parametrize(
    ("train", "test", "class_names", "expected"),
    [
        pytest.param([1, 2, 3], [1, 2, 3], (), ["lowest label is 1"], id="1 to 3"),
        pytest.param([5, 6], [6, 5], (), ["classes 0 to 4 have no row"], id="5 and 6"),
        pytest.param([1, 2], [0], (), ["'train' has", "'test' has"], id="0 in test"),
        pytest.param([0, 2], [0, 2], (), ["'train' has", "'test' has"], id="a gap"),
        pytest.param([0, 1], [0, 1], (), [], id="0 and 1"),
        pytest.param(["1", "2"], ["1", "2"], (), [], id="texts"),
        pytest.param(
            [1, 2], [2, 1], ("x", "y", "z"), ["'train' has", "'test' has"], id="names"
        ),
    ],
)
def test_labels_that_do_not_count_from_0_are_named_once(
    train: list[Any],
    test: list[Any],
    class_names: tuple[str, ...],
    expected: list[str],
    tmp_path: Path,
    recwarn: pytest.WarningsRecorder,
) -> None:
    splits = {
        "train": (TRAIN, np.resize(train, 21)),
        "test": (TEST, np.resize(test, 10)),
    }
    gaam_cache.write(tmp_path / "cache", splits, class_names=class_names)
    warned = [str(item.message) for item in recwarn]
    assert len(warned) == len(expected), warned
    for part, message in zip(expected, warned, strict=True):
        assert part in message
