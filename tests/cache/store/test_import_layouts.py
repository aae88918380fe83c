"""What is stored is what was given: every format, layout, type and storage type."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import gaam_cache
from gaam_cache.cache import EmbeddingCache
from gaam_cache.errors import ConfigError, DataError
from gaam_cache.import_config import ImportConfig
from gaam_cache.store.importing import preview_import
from tests.cache.store.making import FORMATS, BFloat16, labels, run, save, states

TRAIN, TEST = states(21, seed=1), states(10, seed=2)
STORED = ("float16", "float32", "bfloat16")


def expected(given: Any, storage_dtype: str) -> np.ndarray:
    """Rounded by torch, to nearest."""
    tensor = torch.from_numpy(np.ascontiguousarray(given))
    return tensor.to(getattr(torch, storage_dtype)).float().numpy()


def check(
    cache: EmbeddingCache, train: Any = TRAIN, test: Any = TEST, dtype: str = "float32"
) -> None:
    for split, given in (("train", train), ("test", test)):
        np.testing.assert_array_equal(
            cache[split].embeddings[:].astype(np.float32), expected(given, dtype)
        )
        np.testing.assert_array_equal(cache[split].labels, labels(len(given)))
        np.testing.assert_array_equal(cache[split].num_tokens, 1)


def layered(prefix: str, given: np.ndarray, name: str = "layer_{}") -> dict[str, np.ndarray]:
    return {prefix + name.format(n): given[:, n] for n in range(given.shape[1])}


ONE_FILE: dict[str, dict[str, Any]] = {
    "groups": {"train/embeddings": TRAIN, "train/labels": labels(21)},
    "prefixes": {"train_hidden_states": TRAIN, "train_label": labels(21)},
    "dots": {"train.states": TRAIN, "train.targets": labels(21)},
    "suffixes": {"X_train": TRAIN, "y_train": labels(21)},
    "roles as groups": {"features/train": TRAIN, "labels/train": labels(21)},
    "layers": {**layered("train/", TRAIN), "train/labels": labels(21)},
    "layers from 1": {**layered("train_layer", TRAIN, "{}"), "y_train": labels(21)},
    "list": {**layered("train/hidden_states/", TRAIN, "{}"), "train/labels": labels(21)},
}
ONE_FILE["layers from 1"] = {
    **{f"train_layer{n + 1}": TRAIN[:, n] for n in range(3)},
    "y_train": labels(21),
}


def for_test(name: str, value: Any) -> tuple[str, Any]:
    new = TEST if value is TRAIN else labels(10) if value.ndim == 1 else None
    if new is None:
        at = next(n for n in range(3) if np.array_equal(TRAIN[:, n], value))
        new = TEST[:, at]
    return name.replace("train", "test"), new


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("layout", ONE_FILE)
def test_one_file_with_both_splits_is_understood_by_its_names(
    layout: str, suffix: str, tmp_path: Path
) -> None:
    arrays = ONE_FILE[layout]
    arrays = arrays | dict(for_test(name, value) for name, value in arrays.items())
    file = save(tmp_path / f"all.{suffix}", arrays)
    summary = run(file, out=tmp_path / "c")
    assert summary.shards_made == 3 + 2
    check(gaam_cache.open_cache(tmp_path / "c"))
    assert gaam_cache.verify(tmp_path / "c", recompute_rows=7).good


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("stem", ["{}", "news-{}", "{}_states", "my.{}.set"])
def test_a_file_for_each_split(suffix: str, stem: str, tmp_path: Path) -> None:
    files = [
        save(
            tmp_path / f"{stem.format(split)}.{suffix}",
            {"embeddings": given, "labels": labels(len(given))},
        )
        for split, given in (("test", TEST), ("train", TRAIN))
    ]
    run(*files, out=tmp_path / "c")
    cache = gaam_cache.open_cache(tmp_path / "c")
    check(cache)
    assert list(cache) == ["train", "test"]


@pytest.mark.parametrize("suffix", FORMATS)
def test_layers_first_one_layer_and_any_name_at_all(suffix: str, tmp_path: Path) -> None:
    arrays = {
        "some/where": np.ascontiguousarray(TRAIN.swapaxes(0, 1)),
        "other": np.ascontiguousarray(TEST.swapaxes(0, 1)),
        "t0": labels(21),
        "t1": labels(10),
        **{f"deep/block.{n}.out": TRAIN[:, n - 9] for n in (9, 10, 11)},  # 10 is before 9 as text
    }
    file = save(tmp_path / f"f.{suffix}", arrays)
    named = {"labels": ("train=t0", "test=t1")}
    options = {"arrays": ("train=some/where", "test=other"), "axes": "lnd", **named}
    run(file, out=tmp_path / "lnd", **options)
    check(gaam_cache.open_cache(tmp_path / "lnd"))
    run(file, out=tmp_path / "list", arrays=("train=deep/block.*.out",), labels=("train=t0",))
    cache = gaam_cache.open_cache(tmp_path / "list")
    np.testing.assert_array_equal(cache["train"].embeddings[:], TRAIN)
    several = tuple(f"train=deep/block.{n}.out" for n in (11, 9))  # in the order given
    run(file, out=tmp_path / "two", arrays=several, labels=("train=t0",))
    cache = gaam_cache.open_cache(tmp_path / "two")
    np.testing.assert_array_equal(cache["train"].embeddings[:], TRAIN[:, [2, 0]])
    run(file, out=tmp_path / "one", arrays=("train=deep/block.9.out",), labels=("train=t0",))
    cache = gaam_cache.open_cache(tmp_path / "one")
    np.testing.assert_array_equal(cache["train"].embeddings[:], TRAIN[:, :1])
    for made in ("lnd", "list", "two", "one"):
        assert gaam_cache.verify(tmp_path / made, recompute_rows=5).good


def test_every_type_becomes_every_storage_type_as_torch_rounds(tmp_path: Path) -> None:
    special = [0.0, -0.0, 1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 1 + 3 * 2**-8, 65280.0, -6e-7]
    for suffix, given, storage in product(
        ("safetensors", "npz", "compressed.npz", "gzip.h5"),
        ("float16", "bfloat16", "float32", "float64"),
        (None, *STORED),
    ):
        if given == "bfloat16" and suffix.endswith("npz"):
            continue  # NumPy has no such type
        wide = TRAIN.astype(np.float64)
        wide[0] = np.resize(special, wide[0].shape)
        train: Any = BFloat16(wide.astype(np.float32)) if given == "bfloat16" else wide
        numbers = train.numbers if isinstance(train, BFloat16) else wide.astype(given)
        if isinstance(train, np.ndarray):
            train = numbers
        name = f"{suffix}-{given}-{storage}"
        arrays = {"embeddings": train, "labels": labels(21)}
        file = save(tmp_path / name / f"train.{suffix}", arrays)
        run(file, out=tmp_path / name / "c", storage_dtype=storage)
        cache = gaam_cache.open_cache(tmp_path / name / "c")
        kept = storage or (given if given != "float64" else "float32")
        assert cache.plan.storage_dtype == kept, name
        found = cache["train"].embeddings[:].astype(np.float32)
        assert found.tobytes() == expected(numbers, kept).tobytes(), name


def test_files_of_other_libraries_and_big_endian_numbers(tmp_path: Path) -> None:
    tensors = {
        "train.embeddings": torch.from_numpy(TRAIN).to(torch.bfloat16),
        "train.labels": torch.from_numpy(labels(21)).to(torch.uint8),
    }
    save_file(tensors, tmp_path / "a.safetensors", metadata={"format": "pt"})
    run(tmp_path / "a.safetensors", out=tmp_path / "a")
    found = gaam_cache.open_cache(tmp_path / "a")["train"].embeddings
    assert found.stored == "bfloat16"
    np.testing.assert_array_equal(found[:], expected(TRAIN, "bfloat16"))
    big = {"embeddings": TRAIN.astype(">f4"), "labels": labels(21).astype(">i2")}
    np.savez(tmp_path / "train.npz", **big)
    with h5py.File(tmp_path / "train.h5", "w") as file:
        file["embeddings"], file["labels"] = big["embeddings"], big["labels"]
    np.save(tmp_path / "train_embeddings.npy", big["embeddings"])
    np.save(tmp_path / "train_labels.npy", big["labels"])
    single = [tmp_path / "train_embeddings.npy", tmp_path / "train_labels.npy"]
    for name, files in {"n": ["train.npz"], "h": ["train.h5"], "s": single}.items():
        run(*(tmp_path / file for file in files), out=tmp_path / name)
        cache = gaam_cache.open_cache(tmp_path / name)
        np.testing.assert_array_equal(cache["train"].embeddings[:], TRAIN)
        np.testing.assert_array_equal(cache["train"].labels, labels(21))


def test_sentence_embeddings_are_one_layer(tmp_path: Path) -> None:
    """What a user of sentence-transformers has: (rows, features)."""
    np.savez(tmp_path / "train.npz", embeddings=np.asfortranarray(TRAIN[:, 0]), labels=labels(21))
    run(tmp_path / "train.npz", out=tmp_path / "c")
    np.testing.assert_array_equal(
        gaam_cache.open_cache(tmp_path / "c")["train"].embeddings[:], TRAIN[:, :1]
    )


def test_a_shard_of_a_cache_is_refused_with_what_to_do_and_taken_where_it_is_named(
    tmp_path: Path,
) -> None:
    for dtype in STORED:
        made = tmp_path / dtype
        gaam_cache.write(made, {"train": (TRAIN, labels(21))}, storage_dtype=dtype)
        [shard] = (made / "shards").glob("*.h5")
        with pytest.raises(ConfigError, match=r"shard of a gaam cache") as refused:
            run(shard.rename(tmp_path / f"part-{dtype}.h5"), out=tmp_path / "no")
        assert "gaam train --cache" in str(refused.value)
        again = tmp_path / f"{dtype}-again"
        named = {"arrays": ("train=embeddings",), "labels": ("train=label",)}
        run(tmp_path / f"part-{dtype}.h5", out=again, num_tokens=("train=num_tokens",), **named)
        cache = gaam_cache.open_cache(again)
        assert cache.plan.storage_dtype == dtype
        np.testing.assert_array_equal(cache["train"].embeddings[:], expected(TRAIN, dtype))


def test_labels_as_strings_names_and_numbers(tmp_path: Path) -> None:
    names = np.array(["zürich", "a", "10", "9"])
    text = names[np.arange(21) % 4]
    cases: dict[str, tuple[dict[str, Any], dict[str, Any], list[str], list[int]]] = {
        "texts": ({"labels": text}, {}, sorted(names.tolist()), [3, 2, 0, 1]),
        "ordered": ({"labels": text}, {"class_names": tuple(names)}, names.tolist(), [0, 1, 2, 3]),
        "digits": (
            {"labels": np.array(["10", "9"])[np.arange(21) % 2]},
            {},
            ["9", "10"],
            [1, 0],
        ),
        "named": (
            {"labels": np.arange(21) % 2},
            {"class_names": ("no, never", "yes")},
            ["no, never", "yes"],
            [0, 1],
        ),
        "array": (
            {"labels": np.arange(21) % 2, "class_names": np.array(["n", "y"])},
            {},
            ["n", "y"],
            [0, 1],
        ),
    }
    for suffix, case in product(("npz", "h5"), cases):
        arrays, options, classes, turn = cases[case]
        root = tmp_path / suffix / case
        run(save(root / f"train.{suffix}", {"X": TRAIN, **arrays}), out=root / "c", **options)
        cache = gaam_cache.open_cache(root / "c")
        assert list(cache.class_names) == classes, case
        np.testing.assert_array_equal(cache["train"].labels, np.resize(turn, 21), case)


def test_class_names_of_a_header_and_of_attributes(tmp_path: Path) -> None:
    arrays = {"embeddings": TRAIN, "labels": labels(21)}
    names = np.array(["x", "y", "z"])
    save(tmp_path / "train.safetensors", {**arrays, "class_names": names})
    run(tmp_path / "train.safetensors", out=tmp_path / "s")
    assert gaam_cache.open_cache(tmp_path / "s").class_names == ("x", "y", "z")
    for place in ("/", "labels"):
        path = save(tmp_path / place.strip("/") / "train.h5", arrays)
        with h5py.File(path, "a") as file:
            file[place].attrs["class_names"] = names.tolist()
        run(path, out=path.parent / "c")
        assert gaam_cache.open_cache(path.parent / "c").class_names == ("x", "y", "z")
    other = save(tmp_path / "test.npz", {**arrays, "class_names": np.array(["x", "y", "zz"])})
    with pytest.raises(ConfigError, match="the class names differ"):
        run(tmp_path / "train.safetensors", other, out=tmp_path / "no")


@pytest.mark.parametrize("suffix", ["npz", "h5"])
def test_tokens_columns_and_splits_without_labels(suffix: str, tmp_path: Path) -> None:
    who = np.array([f"speaker {n % 4} ä" for n in range(31)])
    arrays = {
        "train/embeddings": TRAIN,
        "train/labels": labels(21),
        "train/num_tokens": np.arange(1, 22),
        "train/who": who[:21],
        "train/session": np.arange(21) // 5,
        "new/embeddings": TEST,
        "new/who": who[21:],
        "new/session": np.arange(10),
        "train/other": np.zeros(3),
    }
    file = save(tmp_path / f"all.{suffix}", arrays)
    options: dict[str, Any] = {"unlabelled": ("new",), "keep_columns": ("who", "session")}
    preview = preview_import(ImportConfig(files=(str(file),), **options))
    assert preview.splits["train"]["num_tokens"] == "train/num_tokens"
    assert "train/other" in preview.in_words()
    run(file, out=tmp_path / "c", **options)
    cache = gaam_cache.open_cache(tmp_path / "c")
    assert cache.plan.unlabelled == ("new",)
    assert not cache["new"].labelled
    np.testing.assert_array_equal(cache["train"].num_tokens, np.arange(1, 22))
    np.testing.assert_array_equal(cache["new"].num_tokens, 1)
    assert cache["train"].column("who") == who[:21].tolist()
    assert cache["new"].column("session") == [str(n) for n in range(10)]
    assert gaam_cache.verify(tmp_path / "c", recompute_rows=31).good
    with pytest.raises(ConfigError, match="no column 'age'"):
        run(file, out=tmp_path / "no", unlabelled=("new",), keep_columns=("age",))


def test_the_same_states_and_files_have_the_same_fingerprint_and_no_others(tmp_path: Path) -> None:
    arrays = {"train/embeddings": TRAIN, "train/labels": labels(21)}
    seen = {}
    for suffix in ("npz", "h5", "safetensors"):
        file = save(tmp_path / "a" / f"x.{suffix}", arrays)
        seen[suffix] = run(file, out=tmp_path / suffix).fingerprint
        moved = tmp_path / "moved" / file.name
        moved.parent.mkdir(exist_ok=True)
        moved.write_bytes(file.read_bytes())
        assert run(moved, out=tmp_path / f"{suffix}2").fingerprint == seen[suffix]
    changed = TRAIN.copy()
    changed[20, 2, 3] = np.nextafter(changed[20, 2, 3], 9)
    for name, (states_, options) in {
        "bit": (changed, {}),
        "storage": (TRAIN, {"storage_dtype": "float16"}),
        "classes": (TRAIN, {"class_names": ("a", "b", "c")}),
        "pool": (TRAIN, {"pool": "mean"}),
    }.items():
        summary = gaam_cache.write(tmp_path / name, {"train": (states_, labels(21))}, **options)
        seen[name] = summary.fingerprint
    assert len(set(seen.values())) == len(seen)


def test_types_of_other_libraries_from_memory(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "open.h5", "w") as file:
        file["x"], file["y"] = TRAIN, labels(21)
        file["t"] = ["abc"[n % 3] for n in range(21)]
        np.lib.format.open_memmap(tmp_path / "m.npy", "w+", np.float32, TRAIN.shape)[:] = TRAIN
        given: dict[str, tuple[Any, Any, str]] = {
            "numpy": (TRAIN, labels(21), "float32"),
            "list": (list(TRAIN.swapaxes(0, 1)), labels(21).tolist(), "float32"),
            "torch": (torch.from_numpy(TRAIN).requires_grad_(), torch.arange(21) % 3, "float32"),
            "bf": (torch.from_numpy(TRAIN).bfloat16(), torch.arange(21) % 3, "bfloat16"),
            "h5py": (file["x"], file["y"], "float32"),
            "texts": (file["x"], file["t"], "float32"),
            "objects": (TRAIN, np.array(["abc"[n % 3] for n in range(21)], object), "float32"),
            "memmap": (np.load(tmp_path / "m.npy", mmap_mode="r"), labels(21), "float32"),
            "strided": (np.asfortranarray(TRAIN), labels(42)[::2] * 0 + labels(21), "float32"),
        }
        for name, (states_, labels_, dtype) in given.items():
            gaam_cache.write(tmp_path / name, {"train": (states_, labels_)}, shard_rows=8)
            cache = gaam_cache.open_cache(tmp_path / name)
            assert cache.plan.storage_dtype == dtype, name
            found = cache["train"].embeddings[:]
            np.testing.assert_array_equal(found, expected(TRAIN, dtype), name)
            np.testing.assert_array_equal(cache["train"].labels, labels(21), name)
    for bad in ([[1.0]], "text", None, 5, object(), [True, False], ["a", 1]):
        with pytest.raises((DataError, ConfigError)):
            gaam_cache.write(tmp_path / "no", {"train": (TRAIN, bad), "x": (TRAIN, None)})
        with pytest.raises((DataError, ConfigError)):
            gaam_cache.write(tmp_path / "no", {"train": (bad, labels(21))})
    assert not (tmp_path / "no").exists()
