"""FORMAT.md is a specification: a reader written from its text alone agrees with ours.

The reader below uses NumPy, json and the standard library. It imports nothing of gaam.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import gaam_cache
from gaam_cache.config import ExtractConfig
from tests.cache.published import COLUMN, write_kept_cache
from tests.conftest import write_csv

DTYPES = {"float16": "<f2", "float32": "<f4", "bfloat16": "<u2"}
DTYPES |= {"int64": "<i8", "int32": "<i4", "utf8": "u1"}


def read_object(path: Path, limit: int) -> dict[str, Any]:
    assert path.is_file()
    assert path.stat().st_size <= limit
    content: dict[str, Any] = json.loads(path.read_bytes().decode("utf-8"))
    rest = {key: value for key, value in content.items() if key != "sha256_of_this"}
    digest = hashlib.sha256(canonical(rest)).hexdigest()
    assert content["sha256_of_this"] == digest
    return content


def canonical(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return text.encode("ascii")


def read_cache(root: Path) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """The plan, and every array of every split."""
    plan = read_object(root / "cache.json", 16 * 2**20)
    assert (plan["format"], plan["format_version"]) == ("gaam-cache", 1)
    fields = plan["fingerprint_fields"]
    assert hashlib.sha256(canonical(fields)).hexdigest() == plan["fingerprint"]
    for key in ("storage_dtype", "class_names", "rows"):
        assert plan[key] == fields[key]
    assert plan["pooling"] == fields["encoder"]["pooling"]
    splits = {}
    for split, rows in plan["rows"].items():
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.]{0,63}", split)
        pieces: dict[str, list[np.ndarray]] = {}
        for index, start in enumerate(range(0, rows, plan["shard_rows"])):
            stop = min(start + plan["shard_rows"], rows)
            shard = read_shard(
                root / "shards", plan, split, f"{split}-{index:05d}", start, stop
            )
            for name, array in shard.items():
                pieces.setdefault(name, []).append(array)
        splits[split] = {name: np.concatenate(parts) for name, parts in pieces.items()}
    return plan, splits


def read_shard(
    folder: Path, plan: dict[str, Any], split: str, name: str, start: int, stop: int
) -> dict[str, np.ndarray]:
    receipt = read_object(folder / f"{name}.json", 2**20)
    assert receipt["fingerprint"] == plan["fingerprint"]
    assert (receipt["split"], receipt["start"], receipt["stop"]) == (split, start, stop)
    assert receipt["file"] == f"{name}-{receipt['sha256'][:8]}.h5"
    assert (folder / receipt["file"]).is_file()
    content = (folder / receipt["file"]).read_bytes()
    assert len(content) == receipt["bytes"]
    assert hashlib.sha256(content).hexdigest() == receipt["sha256"]
    states = [stop - start, plan["num_layers"], plan["hidden_size"]]
    others = plan["pooling"][1:]
    expected = {"embeddings": (plan["storage_dtype"], states)}
    expected |= {
        f"embeddings_{other}": (plan["storage_dtype"], states) for other in others
    }
    expected |= dict.fromkeys(("label", "row"), ("int64", states[:1]))
    expected["num_tokens"] = ("int32", states[:1])
    for column, width in plan.get("columns", {}).items():
        expected[f"column_{column}"] = ("utf8", [stop - start, width])
    found = {
        key: (spec["dtype"], spec["shape"]) for key, spec in receipt["datasets"].items()
    }
    assert found == expected
    arrays = {}
    for key, spec in receipt["datasets"].items():
        dtype = np.dtype(DTYPES[spec["dtype"]])
        end = spec["offset"] + dtype.itemsize * int(np.prod(spec["shape"]))
        assert end <= receipt["bytes"]
        array = np.frombuffer(content[spec["offset"] : end], dtype=dtype).reshape(
            spec["shape"]
        )
        if spec["dtype"] == "bfloat16":
            array = (array.astype("<u4") << 16).view("<f4")
        arrays[key] = array
    return arrays


@pytest.mark.parametrize("storage_dtype", ["float16", "float32", "bfloat16"])
def test_a_reader_written_from_the_text_agrees_with_ours(
    storage_dtype: Any, tiny_config: ExtractConfig, tmp_path: Path
) -> None:
    """Values, hashes of contents, class names that JSON has to escape; keys and attributes."""
    data = tmp_path / "d"
    labels = ["ä", "😀", 'q"\\', "tab\there/\x7f"]
    texts = [(labels[i % 4], f"goal {'cup ' * (i % 7)}") for i in range(23)]
    write_csv(data / "train.csv", texts)
    write_csv(data / "test.csv", texts[:7])
    pool = {"float16": ("mean",)}.get(storage_dtype, ("last", "mean", "max"))
    config = replace(
        tiny_config, storage_dtype=storage_dtype, pool=pool, dataset=str(data)
    )
    gaam_cache.extract(config)
    plan, splits = read_cache(config.out)
    cache = gaam_cache.open_cache(config.out)
    assert list(splits) == list(cache) == ["train", "test"]
    for name, arrays in splits.items():
        split = cache[name]
        assert arrays["row"].tolist() == list(range(len(split)))
        np.testing.assert_array_equal(arrays["label"], split.labels)
        np.testing.assert_array_equal(arrays["num_tokens"], split.num_tokens)
        for pooling in pool:
            key = "embeddings" if pooling == pool[0] else f"embeddings_{pooling}"
            np.testing.assert_array_equal(arrays[key], split.pooled(pooling)[:])
            assert arrays[key].dtype == split.pooled(pooling).dtype
            assert np.isfinite(arrays[key]).all()
        with (data / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        assert [plan["class_names"][n] for n in arrays["label"]] == [
            row["label"] for row in rows
        ]
        digest = hashlib.sha256()
        for part in (
            part.encode() for row in rows for part in (row["text"], row["label"])
        ):
            digest.update(len(part).to_bytes(8, "little") + part)
        assert digest.hexdigest() == plan["fingerprint_fields"]["content"][name]
    text = (Path(gaam_cache.__file__).parent / "FORMAT.md").read_text("utf-8")
    receipt = read_object(config.out / "shards" / "train-00002.json", 2**20)
    for begins, content in (
        ("## The plan", plan),
        ("`fingerprint_fields` MUST hold", plan["fingerprint_fields"]),
        ("## The receipt", receipt),
    ):
        table = text[text.index(begins) :].split("|---|---|\n")[1].split("\n\n")[0]
        cells = [row.split("|")[1] for row in table.splitlines()]
        assert set(content) == {
            key for cell in cells for key in re.findall(r"`(\w+)`", cell)
        }
    with h5py.File(config.out / "shards" / receipt["file"]) as file:
        assert dict(file.attrs) == {
            "format": "gaam-shard",
            "format_version": 1,
            "fingerprint": plan["fingerprint"],
            "split": "train",
            "start": 20,
            "stop": 23,
            "pooling": ",".join(pool),
        }
        for name, spec in receipt["datasets"].items():
            assert dict(file[name].attrs) == {"dtype": spec["dtype"]}
            assert file[name].dtype == DTYPES[spec["dtype"]]
            assert file[name].id.get_offset() == spec["offset"]
            assert spec["offset"] % 64 == 0


def test_columns_and_splits_without_labels_are_what_the_text_says(
    tmp_path: Path,
) -> None:
    write_kept_cache(tmp_path)
    plan, splits = read_cache(tmp_path)
    opened = gaam_cache.open_cache(tmp_path)
    assert plan["unlabelled"] == plan["fingerprint_fields"]["unlabelled"] == ["test"]
    assert [opened[name].labelled for name in opened] == [True, False]
    assert opened.columns == ("session", "B_2")
    for name, arrays in splits.items():
        count = len(opened[name])
        for column, values in (
            ("session", COLUMN[:count]),
            ("B_2", COLUMN[::-1][:count]),
        ):
            found = [
                bytes(one).rstrip(b"\0").decode() for one in arrays[f"column_{column}"]
            ]
            assert found == opened[name].column(column) == values
    assert opened["test"].labels.tolist() == [-1] * 3
    receipt = read_object(tmp_path / "shards" / "train-00001.json", 2**20)
    with h5py.File(tmp_path / "shards" / receipt["file"]) as file:
        assert file["column_session"].asstr()[:].tolist() == COLUMN[3:6]
