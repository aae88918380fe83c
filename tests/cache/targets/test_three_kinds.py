"""A walk over classes, numbers and sets of labels: write, read, verify, recompute."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest
import torch

import gaam_cache
import gaam_cache.inspect
from gaam_cache.hub.push import card
from gaam_cache.store.files import sealed_text
from tests.cache.targets.tables import write_table

ROWS = {"train": 24, "test": 12}


class Kind(NamedTuple):
    """Labels of one kind, in tables and in programs."""

    columns: dict[str, Any]  # of a table, for 24 rows
    options: dict[str, Any]  # of an extraction
    labels: np.ndarray[Any, np.dtype[Any]]  # of a program
    settings: dict[str, Any]  # of an import
    dtype: str
    names: tuple[str, ...]
    version: int


NUMBERS = np.round(np.random.default_rng(0).standard_normal((24, 2)), 2)
FLAGS = np.array([[row % 2, row % 3 == 0] for row in range(24)], int)
KINDS = {
    "classification": Kind(
        {"label": ["no", "yes"] * 12},
        {},
        np.arange(24) % 2,
        {"class_names": ("no", "yes")},
        "int64",
        ("no", "yes"),
        1,
    ),
    "regression": Kind(
        {"x": NUMBERS[:, 0], "y": NUMBERS[:, 1]},
        {"task": "regression", "label_column": ("x", "y")},
        NUMBERS,
        {"target_names": ("x", "y")},
        "float32",
        ("x", "y"),
        2,
    ),
    "multi-label": Kind(
        {"label": [[n for n, f in zip("ab", row, strict=True) if f] for row in FLAGS]},
        {},
        FLAGS,
        {"target_names": ("a", "b"), "task": "multi-label"},
        "uint8",
        ("a", "b"),
        2,
    ),
}


@pytest.fixture(scope="module", params=KINDS)
def task(request: Any) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def root(task: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of a table with such labels."""
    folder = tmp_path_factory.mktemp("extracted")
    kind = KINDS[task]
    for split, num_rows in ROWS.items():
        columns = {name: values[:num_rows] for name, values in kind.columns.items()}
        write_table(folder / f"{split}.jsonl", {n: list(c) for n, c in columns.items()})
    config = gaam_cache.ExtractConfig(
        dataset=str(folder), encoder="tfidf", out=folder / "cache", **kind.options
    )
    gaam_cache.extract(config)
    return folder / "cache"


def test_labels_come_back_in_the_type_of_their_task(task: str, root: Path) -> None:
    kind = KINDS[task]
    cache = gaam_cache.open_cache(root)
    assert cache.task == task
    assert cache.target_names == kind.names
    assert cache.class_names == (kind.names if task == "classification" else ())
    for split, num_rows in ROWS.items():
        labels = cache[split].labels
        assert labels.dtype == kind.dtype
        np.testing.assert_array_equal(labels, kind.labels[:num_rows].astype(kind.dtype))
        states, label = cache[split][3]
        assert states.dtype == torch.float32
        np.testing.assert_array_equal(label.numpy(), labels[3])


def test_the_plan_and_the_shards_say_their_version(task: str, root: Path) -> None:
    kind = KINDS[task]
    plan = json.loads((root / "cache.json").read_text())
    versions = {plan["format_version"], plan["fingerprint_fields"]["format_version"]}
    assert versions == {kind.version}
    names = {"class_names", "target"} & set(plan)
    assert names == {"class_names" if kind.version == 1 else "target"}
    for file in (root / "shards").glob("*.h5"):
        with h5py.File(file) as shard:
            assert shard.attrs["format_version"] == kind.version
            assert shard["label"].dtype == kind.dtype


def test_a_cache_is_verified_and_its_rows_are_encoded_again(root: Path) -> None:
    verification = gaam_cache.verify(root, recompute_rows=4)
    assert verification.good, verification.in_words()


def test_inspect_and_the_card_name_the_targets(task: str, root: Path) -> None:
    kind = KINDS[task]
    inspection = gaam_cache.inspect.inspect(root)
    assert inspection.complete
    content = json.loads(json.dumps(inspection.to_dict(), default=list))
    assert content["task"] == task
    assert content["target_names"] == list(kind.names)
    page = card(gaam_cache.open_cache(root).plan.portable())
    assert all(f"{number}. {name}" in page for number, name in enumerate(kind.names))


def test_arrays_give_the_same_labels(task: str, root: Path, tmp_path: Path) -> None:
    kind = KINDS[task]
    extracted = gaam_cache.open_cache(root)
    splits: dict[str, Any] = {
        split: (extracted[split].embeddings[:], kind.labels[:num_rows])
        for split, num_rows in ROWS.items()
    }
    splits["new"] = (splits["test"][0] / 2, None)
    gaam_cache.write(tmp_path / "written", splits, **kind.settings)
    written = gaam_cache.open_cache(tmp_path / "written")
    assert written.task == task
    assert written.target_names == kind.names
    for split in ROWS:
        np.testing.assert_array_equal(written[split].labels, extracted[split].labels)
    assert gaam_cache.verify(tmp_path / "written").good

    # no label of a row without labels can be mistaken for one
    unlabelled = written["new"].labels.astype(np.float64)
    assert not np.isin(unlabelled, kind.labels).any()


def test_a_file_of_arrays_gives_the_same_cache(task: str, tmp_path: Path) -> None:
    kind = KINDS[task]
    states_NLD = np.random.default_rng(0).standard_normal((24, 2, 4)).astype("f4")
    np.savez(tmp_path / "train.npz", states=states_NLD, labels=kind.labels)
    config = gaam_cache.ImportConfig(
        files=(str(tmp_path / "train.npz"),), out=tmp_path / "cache", **kind.settings
    )
    assert gaam_cache.import_states(config, preview=True).rows == {"train": 24}
    gaam_cache.import_states(config)
    labels = gaam_cache.open_cache(tmp_path / "cache")["train"].labels
    np.testing.assert_array_equal(labels, kind.labels.astype(kind.dtype))


def test_a_target_that_the_fingerprint_does_not_cover_is_refused(
    task: str, root: Path, tmp_path: Path
) -> None:
    content = json.loads((root / "cache.json").read_text())
    del content["sha256_of_this"]
    names = content.get("class_names") or content["target"]["names"]
    names[0] = "another"
    (tmp_path / "cache.json").write_text(sealed_text(content))
    with pytest.raises(gaam_cache.GaamError, match="not what the fingerprint covers"):
        gaam_cache.open_cache(tmp_path)
