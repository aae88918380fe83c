"""A cache of classes: format version 1, byte for byte as before there were tasks."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import h5py
import numpy as np

import gaam_cache
from gaam_cache.targets.classes import Classes

PLAN_KEYS = [
    "format",
    "format_version",
    "fingerprint",
    "fingerprint_fields",
    "encoder",
    "dataset",
    "num_layers",
    "hidden_size",
    "pooling",
    "storage_dtype",
    "class_names",
    "rows",
    "shard_rows",
    "created_with",
    "unlabelled",
    "sha256_of_this",
]
"""Keys of ``cache.json`` in their order."""
GOLDEN = "ee42bbbd7e2df0ec965507aba00a40fe7297361d7e90efa230f5f4fc939f6109"
"""SHA-256 of what cache.json holds beside versions, as gaam wrote it without tasks."""


def test_a_plan_of_version_1_has_the_bytes_that_it_always_had(tmp_path: Path) -> None:
    states_NLD = (np.arange(12 * 3 * 4) % 29).reshape(12, 3, 4).astype(np.float32)
    splits = {
        "train": (states_NLD, np.arange(12) % 3),
        "new": (states_NLD[:5] / 2, None),
    }
    gaam_cache.write(tmp_path, splits, class_names=["a", "b", "c"], shard_rows=5)

    plan = json.loads((tmp_path / "cache.json").read_text())
    assert list(plan) == PLAN_KEYS
    # later versions add a sketch of the rows
    assert plan["dataset"].pop("row_sketches").keys() == {"train", "new"}
    # these two depend on the versions of libraries
    del plan["created_with"]
    del plan["sha256_of_this"]
    text = json.dumps(plan, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() == GOLDEN
    for file in sorted((tmp_path / "shards").glob("*.h5")):
        with h5py.File(file) as shard:
            assert shard.attrs["format_version"] == 1
            assert shard["label"].dtype == np.int64


def test_a_cache_of_classes_says_so(tmp_path: Path) -> None:
    states_NLD = np.random.default_rng(0).standard_normal((6, 2, 4))
    gaam_cache.write(tmp_path, {"train": (states_NLD, np.array(list("abcabc")))})
    cache = gaam_cache.open_cache(tmp_path)
    assert cache.task == "classification"
    assert cache.class_names == cache.target_names == ("a", "b", "c")
    assert cache["train"].labels.tolist() == [0, 1, 2, 0, 1, 2]


def test_the_strata_of_classes_are_the_classes() -> None:
    assert list(Classes.strata(["b", "a", "b"])) == ["b", "a", "b"]
