"""The page of the format is a specification: a reader written from its text alone agrees with ours.

The reader below uses NumPy, json and the standard library. It imports nothing of gaam.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

import gaam_cache
from gaam_cache.config import ExtractConfig
from tests.cache.published import COLUMN, write_kept_cache
from tests.tiny import write_csv

PAGE = Path(gaam_cache.__file__).parents[1] / "docs" / "reference" / "cache-format.md"
DTYPES = {
    "float16": "<f2",
    "float32": "<f4",
    "bfloat16": "<u2",
    "int64": "<i8",
    "int32": "<i4",
    "utf8": "u1",
}
MOST_BYTES_OF_A_PLAN = 16 * 2**20
MOST_BYTES_OF_A_RECEIPT = 2**20
Arrays = dict[str, NDArray[Any]]


def canonical(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return text.encode("ascii")


def read_object(path: Path, limit: int) -> dict[str, Any]:
    assert path.is_file()
    assert path.stat().st_size <= limit
    content: dict[str, Any] = json.loads(path.read_bytes().decode("utf-8"))
    rest = {key: value for key, value in content.items() if key != "sha256_of_this"}
    digest = hashlib.sha256(canonical(rest)).hexdigest()
    assert content["sha256_of_this"] == digest
    return content


def read_plan(root: Path) -> dict[str, Any]:
    plan = read_object(root / "cache.json", MOST_BYTES_OF_A_PLAN)
    assert plan["format"] == "gaam-cache"
    assert plan["format_version"] == 1
    fields = plan["fingerprint_fields"]
    assert hashlib.sha256(canonical(fields)).hexdigest() == plan["fingerprint"]
    for key in ("storage_dtype", "class_names", "rows"):
        assert plan[key] == fields[key]
    assert plan["pooling"] == fields["encoder"]["pooling"]
    return plan


class Shard(NamedTuple):
    """The place of a shard in its split."""

    split: str
    name: str
    start: int
    stop: int


def shards_of(plan: dict[str, Any], split: str) -> Iterator[Shard]:
    rows = plan["rows"][split]
    for index, start in enumerate(range(0, rows, plan["shard_rows"])):
        stop = min(start + plan["shard_rows"], rows)
        yield Shard(split, f"{split}-{index:05d}", start, stop)


def read_splits(root: Path, plan: dict[str, Any]) -> dict[str, Arrays]:
    """Every array of every split."""
    splits: dict[str, Arrays] = {}
    for split in plan["rows"]:
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.]{0,63}", split)
        parts: dict[str, list[NDArray[Any]]] = {}
        for shard in shards_of(plan, split):
            for name, array in read_shard(root / "shards", plan, shard).items():
                parts.setdefault(name, []).append(array)
        splits[split] = {name: np.concatenate(part) for name, part in parts.items()}
    return splits


def expected_datasets(plan: dict[str, Any], rows: int) -> dict[str, Any]:
    """The type and the shape of every dataset of a shard."""
    states = (plan["storage_dtype"], [rows, plan["num_layers"], plan["hidden_size"]])
    datasets: dict[str, Any] = {
        "embeddings": states,
        "label": ("int64", [rows]),
        "row": ("int64", [rows]),
        "num_tokens": ("int32", [rows]),
    }
    for pooling in plan["pooling"][1:]:
        datasets[f"embeddings_{pooling}"] = states
    for column, width in plan.get("columns", {}).items():
        datasets[f"column_{column}"] = ("utf8", [rows, width])
    return datasets


def read_shard(folder: Path, plan: dict[str, Any], shard: Shard) -> Arrays:
    receipt = read_object(folder / f"{shard.name}.json", MOST_BYTES_OF_A_RECEIPT)
    assert receipt["fingerprint"] == plan["fingerprint"]
    assert receipt["split"] == shard.split
    assert receipt["start"] == shard.start
    assert receipt["stop"] == shard.stop
    assert receipt["file"] == f"{shard.name}-{receipt['sha256'][:8]}.h5"
    assert (folder / receipt["file"]).is_file()
    content = (folder / receipt["file"]).read_bytes()
    assert len(content) == receipt["bytes"]
    assert hashlib.sha256(content).hexdigest() == receipt["sha256"]
    datasets = {
        key: (spec["dtype"], spec["shape"]) for key, spec in receipt["datasets"].items()
    }
    assert datasets == expected_datasets(plan, shard.stop - shard.start)
    return {key: read_array(content, spec) for key, spec in receipt["datasets"].items()}


def read_array(content: bytes, spec: dict[str, Any]) -> NDArray[Any]:
    dtype = np.dtype(DTYPES[spec["dtype"]])
    end = spec["offset"] + dtype.itemsize * int(np.prod(spec["shape"]))
    assert end <= len(content)
    array = np.frombuffer(content[spec["offset"] : end], dtype=dtype)
    array = array.reshape(spec["shape"])
    if spec["dtype"] == "bfloat16":
        return (array.astype("<u4") << 16).view("<f4")
    return array


# class names that JSON has to escape
LABELS = ["ä", "😀", 'q"\\', "tab\there/\x7f"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("format") / "data"
    rows = [(LABELS[row % 4], f"goal {'cup ' * (row % 7)}") for row in range(23)]
    write_csv(folder / "train.csv", rows)
    write_csv(folder / "test.csv", rows[:7])
    return folder


def read_rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def digest_of_content(rows: list[dict[str, str]]) -> str:
    """The digest of all texts and labels, each behind its length."""
    digest = hashlib.sha256()
    for row in rows:
        for part in (row["text"].encode(), row["label"].encode()):
            digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


@pytest.mark.parametrize(
    ("storage_dtype", "pool"),
    [
        ("float16", ("mean",)),
        ("float32", ("last", "mean", "max")),
        ("bfloat16", ("last", "mean", "max")),
    ],
)
def test_a_reader_written_from_the_text_agrees_with_ours(
    storage_dtype: Any, pool: Any, dataset: Path, tiny_config: ExtractConfig
) -> None:
    """Values, digests of contents, class names; and the keys of all records."""
    config = replace(
        tiny_config, storage_dtype=storage_dtype, pool=pool, dataset=str(dataset)
    )
    gaam_cache.extract(config)
    plan = read_plan(config.out)
    splits = read_splits(config.out, plan)
    cache = gaam_cache.open_cache(config.out)
    assert list(splits) == list(cache) == ["train", "test"]
    for name, arrays in splits.items():
        check_split(arrays, cache[name], pool)
        rows = read_rows(dataset / f"{name}.csv")
        names = [plan["class_names"][number] for number in arrays["label"]]
        assert names == [row["label"] for row in rows]
        assert plan["fingerprint_fields"]["content"][name] == digest_of_content(rows)
    receipt = read_object(
        config.out / "shards" / "train-00002.json", MOST_BYTES_OF_A_RECEIPT
    )
    check_keys(plan, receipt)
    check_attributes(config.out / "shards" / receipt["file"], plan, receipt)


def check_split(arrays: Arrays, split: Any, pool: tuple[str, ...]) -> None:
    """Check that our reader has the same values."""
    assert arrays["row"].tolist() == list(range(len(split)))
    np.testing.assert_array_equal(arrays["label"], split.labels)
    np.testing.assert_array_equal(arrays["num_tokens"], split.num_tokens)
    for pooling in pool:
        key = "embeddings" if pooling == pool[0] else f"embeddings_{pooling}"
        states = split.pooled(pooling)
        np.testing.assert_array_equal(arrays[key], states[:])
        assert arrays[key].dtype == states.dtype
        assert np.isfinite(arrays[key]).all()


def check_keys(plan: dict[str, Any], receipt: dict[str, Any]) -> None:
    """Check that the tables of the page have the keys of the records, no others."""
    text = PAGE.read_text("utf-8")
    records = {
        "## The plan": plan,
        "`fingerprint_fields` MUST hold": plan["fingerprint_fields"],
        "## The receipt": receipt,
    }
    for start, record in records.items():
        _, table, *_ = text[text.index(start) :].split("|---|---|\n")
        rows, _, _ = table.partition("\n\n")
        keys: set[str] = set()
        for row in rows.splitlines():
            keys.update(re.findall(r"`(\w+)`", row.split("|")[1]))
        # caches of numbers and of label sets have a target instead of class names
        keys.discard("target")
        assert set(record) == keys, start


def check_attributes(file: Path, plan: dict[str, Any], receipt: dict[str, Any]) -> None:
    """Check the attributes and the places of the third shard of training rows."""
    with h5py.File(file) as shard:
        assert dict(shard.attrs) == {
            "format": "gaam-shard",
            "format_version": 1,
            "fingerprint": plan["fingerprint"],
            "split": "train",
            "start": 20,
            "stop": 23,
            "pooling": ",".join(plan["pooling"]),
        }
        for name, spec in receipt["datasets"].items():
            assert dict(shard[name].attrs) == {"dtype": spec["dtype"]}
            assert shard[name].dtype == DTYPES[spec["dtype"]]
            assert shard[name].id.get_offset() == spec["offset"]
            assert spec["offset"] % 64 == 0


def texts_of(bytes_NW: NDArray[Any]) -> list[str]:
    """Texts that are filled up with zero bytes to one width."""
    return [bytes(bytes_W).rstrip(b"\0").decode() for bytes_W in bytes_NW]


def test_columns_and_splits_without_labels_are_what_the_text_says(
    tmp_path: Path,
) -> None:
    write_kept_cache(tmp_path)
    plan = read_plan(tmp_path)
    cache = gaam_cache.open_cache(tmp_path)
    assert plan["unlabelled"] == plan["fingerprint_fields"]["unlabelled"] == ["test"]
    assert [cache[name].labelled for name in cache] == [True, False]
    assert cache["test"].labels.tolist() == [-1] * 3
    assert cache.columns == ("session", "B_2")
    columns = {"session": COLUMN, "B_2": COLUMN[::-1]}
    for name, arrays in read_splits(tmp_path, plan).items():
        split = cache[name]
        for column, values in columns.items():
            texts = texts_of(arrays[f"column_{column}"])
            assert texts == split.column(column) == values[: len(split)]


def test_hdf5_shows_the_texts_of_a_column(tmp_path: Path) -> None:
    write_kept_cache(tmp_path)
    [file] = tmp_path.glob("shards/train-00001-*.h5")
    with h5py.File(file) as shard:
        assert shard["column_session"].asstr()[:].tolist() == COLUMN[3:6]
