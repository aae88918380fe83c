"""What is stored is what was given: every format, layout, type and storage type."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import gaam_cache
from gaam_cache.common.errors import ConfigError, DataError
from tests.cache.store.making import FORMATS, config, labels, run, save, states

TRAIN, TEST = states(21, seed=1), states(10, seed=2)
STORED = ("float16", "float32", "bfloat16")
LAYOUTS: dict[str, tuple[str, str]] = {
    "groups": ("{}/embeddings", "{}/labels"),
    "suffixes": ("X_{}", "y_{}"),
    "layers": ("{}/layer_#", "{}.targets"),
    "layers of a list": ("{}/hidden_states/#", "y_{}"),
}
"""Names of states ('#' is the number of a layer) and of labels."""


def check(out: Path, given: dict[str, Any], dtype: str = "float32") -> None:
    """States as torch rounds them, labels in turn; and the files read again are the same."""
    cache = gaam_cache.open_cache(out)
    assert (list(cache), cache.plan.storage_dtype) == (list(given), dtype)
    for split, one in given.items():
        exact = torch.as_tensor(one).to(getattr(torch, dtype)).float().numpy()
        assert (
            cache[split].embeddings[:].astype(np.float32).tobytes() == exact.tobytes()
        )
        np.testing.assert_array_equal(cache[split].labels, labels(len(one)))
    assert gaam_cache.verify(out).good


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_is_understood_by_its_names(suffix: str, tmp_path: Path) -> None:
    both = {"train": TRAIN, "test": TEST}
    for layout, (state, label) in LAYOUTS.items():
        at, arrays = tmp_path / layout, {}
        for split, given in reversed(both.items()):
            if "#" in state:
                named = {state.replace("#", str(n + 1)): given[:, n] for n in range(3)}
            else:
                named = {state: given}
            arrays |= {name.format(split): array for name, array in named.items()}
            arrays[label.format(split)] = labels(len(given))
        files = save(at / f"all.{suffix}", arrays)
        assert run(*files, out=at / "c").shards_made == 3 + 2
        check(at / "c", both)
    if suffix == "npy":
        return
    files = []
    for split, given in both.items():
        arrays = {"embeddings": given, "labels": labels(len(given))}
        files += save(tmp_path / f"my.{split}-set.{suffix}", arrays)
    run(*reversed(files), out=tmp_path / "c")
    check(tmp_path / "c", both)


def test_any_other_name_is_asked_for(tmp_path: Path) -> None:
    arrays = {
        "some/where": np.ascontiguousarray(TRAIN.swapaxes(0, 1)),
        "t": labels(21),
        **{
            f"deep/block.{n}.out": TRAIN[:, n - 9] for n in (9, 10, 11)
        },  # 10 is before 9 as text
    }
    [file] = save(tmp_path / "f.h5", arrays)
    [other] = save(tmp_path / "g.h5", {"t": labels(21), "flat": TRAIN[:, 1]})
    asked: dict[str, tuple[tuple[str, ...], np.ndarray]] = {
        "lnd": (("some/where",), TRAIN),
        "nd": ((f"{other.name}:flat",), TRAIN[:, 1:2]),
        "pattern": (("deep/block.*.out",), TRAIN),
        "several": (("deep/block.11.out", "deep/block.9.out"), TRAIN[:, [2, 0]]),
    }
    for name, (states_, expected) in asked.items():
        axes = {"axes": "lnd"} if name == "lnd" else {}
        wanted = {
            "arrays": [f"train={one}" for one in states_],
            "labels": [f"train={other}:t"],
        }
        run(
            file,
            other,
            out=tmp_path / name,
            **{k: tuple(v) for k, v in wanted.items()},
            **axes,
        )
        check(tmp_path / name, {"train": expected})


def test_every_type_becomes_every_storage_type_as_torch_rounds(tmp_path: Path) -> None:
    special = [
        0.0,
        -0.0,
        1 + 2**-11,
        1 + 3 * 2**-11,
        1 + 2**-8,
        1 + 3 * 2**-8,
        65280.0,
        -6e-7,
    ]
    wide = TRAIN.astype(np.float64)
    wide[0] = np.resize(special, wide[0].shape)
    for suffix, given, storage in product(
        ("safetensors", "gzip.h5"), (*STORED, "float64"), (None, *STORED)
    ):
        if given == "bfloat16" and suffix != "safetensors":
            continue  # NumPy has no such type
        train: Any = torch.as_tensor(wide).to(getattr(torch, given))
        at = tmp_path / f"{suffix}-{given}-{storage}"
        array = (
            train
            if given == "bfloat16"
            else train.numpy().astype(f">f{train.itemsize}")
        )
        array = train if suffix == "safetensors" else array
        files = save(at / f"train.{suffix}", {"X": array, "y": labels(21).astype("u1")})
        run(*files, out=at / "c", storage_dtype=storage)
        check(
            at / "c",
            {"train": train},
            storage or (given if given in STORED else "float32"),
        )


def test_classes_are_strings_numbers_or_named(tmp_path: Path) -> None:
    names = np.array(["zürich", "a", "10", "9"])
    text, number = names[np.arange(21) % 4], np.arange(21) % 2
    said = {"class_names": ("no, never", "yes")}
    cases: dict[str, tuple[dict[str, Any], dict[str, Any], list[str], list[int]]] = {
        "texts": ({"labels": text}, {}, sorted(names.tolist()), [3, 2, 0, 1]),
        "ordered": (
            {"labels": text},
            {"class_names": tuple(names)},
            names.tolist(),
            [0, 1, 2, 3],
        ),
        "digits": ({"labels": names[2 + number]}, {}, ["9", "10"], [1, 0]),
        "named": ({"labels": number}, said, ["no, never", "yes"], [0, 1]),
    }
    for suffix, case in product(("npz", "h5"), cases):
        arrays, options, classes, turn = cases[case]
        at = tmp_path / suffix / case
        run(
            *save(at / f"train.{suffix}", {"X": TRAIN, **arrays}),
            out=at / "c",
            **options,
        )
        cache = gaam_cache.open_cache(at / "c")
        assert list(cache.class_names) == classes, case
        np.testing.assert_array_equal(cache["train"].labels, np.resize(turn, 21), case)


def test_a_column_of_the_only_split_is_found_by_its_name(tmp_path: Path) -> None:
    who = np.array([f"s{n % 4}" for n in range(21)])
    [file] = save(
        tmp_path / "f.npz", {"hidden": TRAIN, "target": labels(21), "who": who}
    )
    options = {
        "arrays": ("train=hidden",),
        "labels": ("train=target",),
        "keep_columns": ("who",),
    }
    run(file, out=tmp_path / "c", **options)
    assert gaam_cache.open_cache(tmp_path / "c")["train"].column("who") == who.tolist()


def test_columns_and_splits_without_labels(tmp_path: Path) -> None:
    who = np.array([f"speaker {n % 4} ä" for n in range(31)])
    arrays = {
        "train/embeddings": TRAIN,
        "train/labels": labels(21),
        "train/who": who[:21],
        "train/session": np.arange(21) // 5,
        "new/embeddings": TEST,
        "new/who": who[21:],
        "new/session": np.arange(10),
        "train/other": np.zeros(3),
    }
    options: dict[str, Any] = {
        "unlabelled": ("new",),
        "keep_columns": ("who", "session"),
    }
    for suffix in ("npz", "h5"):
        [file] = save(tmp_path / f"all.{suffix}", arrays)
        out = tmp_path / suffix
        preview = gaam_cache.import_states(
            config(file, out=out, **options), preview=True
        )
        assert "train/other" in preview.in_words()
        assert not out.exists()
        assert run(file, out=out, **options).shards == preview.to_dict()["shards"]
        cache = gaam_cache.open_cache(out)
        assert [cache[split].labelled for split in cache] == [True, False]
        np.testing.assert_array_equal(cache["new"].num_tokens, 1)
        assert cache["train"].column("who") == who[:21].tolist()
        assert cache["new"].column("session") == [str(n) for n in range(10)]
        assert gaam_cache.verify(out).good


def test_arrays_of_every_library_from_memory(tmp_path: Path) -> None:
    texts = ["abc"[n % 3] for n in range(21)]
    with h5py.File(tmp_path / "open.h5", "w") as file:
        file["x"], file["y"], file["t"] = TRAIN, labels(21), texts
        np.lib.format.open_memmap(tmp_path / "m.npy", "w+", np.float32, TRAIN.shape)[
            :
        ] = TRAIN
        given: dict[str, tuple[Any, Any, str]] = {
            "list": (list(TRAIN.swapaxes(0, 1)), labels(21).tolist(), "float32"),
            "torch": (
                torch.from_numpy(TRAIN).requires_grad_(),
                torch.arange(21) % 3,
                "float32",
            ),
            "bf": (
                torch.from_numpy(TRAIN).bfloat16(),
                torch.arange(21) % 3,
                "bfloat16",
            ),
            "h5py": (file["x"], file["t"], "float32"),
            "objects": (TRAIN, np.array(texts, object), "float32"),
            "memmap": (np.load(tmp_path / "m.npy", mmap_mode="r"), texts, "float32"),
            "strided": (
                np.asfortranarray(TRAIN),
                np.repeat(labels(21), 2)[::2],
                "float32",
            ),
        }
        for name, (states_, labels_, dtype) in given.items():
            gaam_cache.write(
                tmp_path / name, {"train": (states_, labels_)}, shard_rows=8
            )
            cache = gaam_cache.open_cache(tmp_path / name)
            exact = torch.from_numpy(TRAIN).to(getattr(torch, dtype)).float().numpy()
            np.testing.assert_array_equal(cache["train"].embeddings[:], exact, name)
            np.testing.assert_array_equal(cache["train"].labels, labels(21), name)
    for bad in ([[1.0]], "text", [True, False]):
        for split in ((TRAIN, bad), (bad, labels(21))):
            with pytest.raises((DataError, ConfigError)):
                gaam_cache.write(tmp_path / "no", {"train": split})
    assert not (tmp_path / "no").exists()
