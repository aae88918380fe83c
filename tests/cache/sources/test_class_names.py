"""Class names that ``datasets`` writes into Parquet: read as those of ``save_to_disk``."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
import pyarrow
import pyarrow.parquet
import pytest

import gaam_cache
from gaam_cache.common.errors import ConfigError, DataError, GaamError
from gaam_cache.config import ExtractConfig
from gaam_cache.sources import Rows, find_source

NAMES = ("World", "Arts", "Sports")
TOPICS = ["Arts", "World", "Sports", "World", "Arts", "Sports"]
CLASSES = datasets.ClassLabel(names=[*NAMES])
REVERSED = datasets.ClassLabel(names=[*reversed(NAMES)])
FEWER = datasets.ClassLabel(names=["World", "Sports"])
SET = datasets.Sequence(CLASSES)


def data_set(
    labels: list[Any], feature: Any, texts: list[Any] | None = None
) -> datasets.Dataset:
    """Rows whose labels are names, lists of names or numbers of the feature."""
    columns = {"text": texts or [f"text {row}" for row in range(len(labels))]}
    text_feature = datasets.Value("string")
    features = datasets.Features({"text": text_feature, "label": feature})
    return datasets.Dataset.from_dict({**columns, "label": labels}, features)


def write_both(root: Path, splits: Mapping[str, datasets.Dataset]) -> tuple[Path, Path]:
    """Write the same splits as a folder of Parquet and by ``save_to_disk``."""
    parquet = root / "parquet"
    saved = root / "saved"
    parquet.mkdir()
    for split, data in splits.items():
        data.to_parquet(parquet / f"{split}.parquet")
    datasets.DatasetDict(splits).save_to_disk(str(saved))
    return parquet, saved


def read(root: Path, split: str = "train", **options: Any) -> Rows:
    settings: dict[str, Any] = {"splits": ("train", "test"), **options}
    config = ExtractConfig(dataset=str(root), **settings)
    return find_source(config.dataset).read(config, split)


def message_of(root: Path, **options: Any) -> str:
    """Why the rows are refused, without the place where they lie."""
    with pytest.raises(GaamError) as refusal:
        read(root, **options)
    details = {**refusal.value.details, "where": ""}
    return f"{type(refusal.value).__name__} {details}"


TEST_FEATURES = {
    "same numbering": (CLASSES, TOPICS),
    "other numbering": (REVERSED, TOPICS),
    "a class fewer": (FEWER, ["World", "Sports", "Sports", "World"]),
}


@pytest.mark.parametrize("case", TEST_FEATURES)
@pytest.mark.parametrize("limit", [None, 3], ids=["all rows", "limit"])
def test_labels_have_the_names_of_their_own_split(
    case: str, limit: int | None, tmp_path: Path
) -> None:
    test_feature, test_topics = TEST_FEATURES[case]
    splits = {
        "train": data_set(TOPICS, CLASSES),
        "test": data_set(test_topics, test_feature),
    }
    parquet, saved = write_both(tmp_path, splits)
    for split, feature in {"train": CLASSES, "test": test_feature}.items():
        rows = read(parquet, split, limit=limit)
        assert rows.class_names == tuple(feature.names)
        assert list(rows.labels) == list(read(saved, split, limit=limit).labels)
    assert list(read(parquet, "test").labels) == test_topics


def test_splits_that_are_encoded_one_by_one_share_the_classes_of_train(
    tmp_path: Path,
) -> None:
    splits = {}
    for split, topics in {"train": TOPICS, "test": ["World", "Sports"] * 2}.items():
        texts = [f"{split} {topic} {row}" for row, topic in enumerate(topics)]
        data = datasets.Dataset.from_dict({"text": texts, "label": topics})
        splits[split] = data.class_encode_column("label")

    caches = []
    for root in write_both(tmp_path, splits):
        out = tmp_path / f"cache of {root.name}"
        config = ExtractConfig(dataset=str(root), encoder="tfidf", out=out)
        gaam_cache.extract(config)
        caches.append(gaam_cache.open_cache(out))
    of_parquet, of_saved = caches
    assert of_parquet.class_names == ("Arts", "Sports", "World")
    assert of_parquet["test"].labels.tolist() == [2, 1, 2, 1]
    assert of_parquet.plan.fingerprint == of_saved.plan.fingerprint


def test_a_class_that_train_does_not_declare_is_refused(tmp_path: Path) -> None:
    splits = {"train": data_set(["World", "Sports"] * 2, FEWER)}
    splits["test"] = data_set(TOPICS, CLASSES)
    parquet, _saved = write_both(tmp_path, splits)
    config = ExtractConfig(dataset=str(parquet), encoder="tfidf", out=tmp_path / "out")
    with pytest.raises(DataError, match="'Arts' occurs in 'test' but not in 'train'"):
        gaam_cache.extract(config)


def write_shards(root: Path, features: list[Any]) -> None:
    """A shard of 'test' for each feature; None for a shard without metadata."""
    for number, feature in enumerate(features):
        data = data_set(["World", "Sports"], feature or CLASSES)
        path = root / f"test-{number:05}-of-{len(features):05}.parquet"
        data.to_parquet(path)
        if feature is None:
            table = pyarrow.parquet.read_table(path).replace_schema_metadata(None)
            pyarrow.parquet.write_table(table, path)


def test_shards_of_one_numbering_are_one_table(tmp_path: Path) -> None:
    write_shards(tmp_path, [REVERSED, REVERSED])
    rows = read(tmp_path, "test")
    assert rows.class_names == tuple(REVERSED.names)
    assert list(rows.labels) == ["World", "Sports"] * 2


OTHER_SHARDS: dict[str, tuple[list[Any], str, str]] = {
    "another order": (
        [CLASSES, REVERSED],
        "'World' for class 0",
        "'Sports' for class 0",
    ),
    "a class fewer": ([CLASSES, FEWER], "'Arts' for class 1", "'Sports' for class 1"),
    "no names": ([CLASSES, None], "'World' for class 0", "no name for class 0"),
    "names later": ([None, CLASSES], "no name for class 0", "'World' for class 0"),
}


@pytest.mark.parametrize("case", OTHER_SHARDS)
def test_shards_with_other_class_names_are_refused(case: str, tmp_path: Path) -> None:
    features, expected, found = OTHER_SHARDS[case]
    write_shards(tmp_path, features)
    with pytest.raises(DataError, match="numbers its classes differently") as refusal:
        read(tmp_path, "test")
    assert refusal.value.details["expected"] == expected
    assert refusal.value.details["found"] == found
    assert "test-00001-of-00002" in refusal.value.details["where"]
    # without labels it does not matter how they are numbered
    assert len(read(tmp_path, "test", unlabelled=("test",))) == 4


SETS = {
    "list": SET,
    "large list": datasets.LargeList(CLASSES),
    "fixed length": datasets.Sequence(CLASSES, length=2),
}


@pytest.mark.parametrize("case", SETS)
def test_sets_of_labels_have_names_too(case: str, tmp_path: Path) -> None:
    labels = [["Arts", "World"], ["Sports", "Arts"]]
    parquet, saved = write_both(tmp_path, {"train": data_set(labels, SETS[case])})
    rows = read(parquet)
    assert (rows.task, rows.class_names) == ("multi-label", NAMES)
    assert list(rows.labels) == ['["World","Arts"]', '["Arts","Sports"]']
    assert list(rows.labels) == list(read(saved).labels)


ALIKE: dict[str, tuple[list[Any], Any, dict[str, Any]]] = {
    "-1": ([0, -1, 1], CLASSES, {}),
    "-1, confirmed": ([0, -1, 1], CLASSES, {"odd_classes": ("-1",)}),
    "-1 in every row": ([-1, -1], CLASSES, {}),
    "missing": ([0, None, 1], CLASSES, {}),
    "missing in every row": ([None, None], CLASSES, {}),
    "-1 in a set": ([[0], [-1]], SET, {}),
    "a missing set": ([[0], None], SET, {}),
}  # fmt: skip


@pytest.mark.parametrize("case", ALIKE)
def test_rows_are_refused_with_the_message_of_saved_rows(
    case: str, tmp_path: Path
) -> None:
    labels, feature, options = ALIKE[case]
    parquet, saved = write_both(tmp_path, {"train": data_set(labels, feature)})
    assert message_of(parquet, **options) == message_of(saved, **options)


def test_a_kept_column_has_the_names_of_its_own_split(tmp_path: Path) -> None:
    splits = {}
    for split, feature in {"train": CLASSES, "test": REVERSED}.items():
        data = data_set(["World", "Sports"], feature)
        splits[split] = data.add_column("kept", data["label"], feature=feature)
    for root in write_both(tmp_path, splits):
        for split in splits:
            rows = read(root, split, keep_columns=("kept",))
            assert list(rows.kept_columns["kept"]) == ["World", "Sports"]


def test_numbers_of_a_regression_are_the_names_of_classes(tmp_path: Path) -> None:
    """``class_encode_column`` sorts names as texts: class 1 is 10."""
    data = data_set(["1", "10", "2"], datasets.ClassLabel(names=["1", "10", "2"]))
    for root in write_both(tmp_path, {"train": data}):
        rows = read(root, task="regression")
        assert list(rows.labels) == ["[1.0]", "[10.0]", "[2.0]"]


def test_a_number_without_a_name_is_no_number_of_a_regression(tmp_path: Path) -> None:
    feature = datasets.ClassLabel(names=["1", "10"])
    data = data_set([0, 1, -1], feature)
    for root in write_both(tmp_path, {"train": data}):
        with pytest.raises(DataError, match="missing"):
            read(root, task="regression")


def test_columns_of_a_set_have_the_meaning_of_their_names(tmp_path: Path) -> None:
    feature = datasets.ClassLabel(names=["yes", "no"])
    data = data_set(["yes", "no"], feature)
    data = data.add_column("other", [1, 1], feature=feature)
    for root in write_both(tmp_path, {"train": data}):
        rows = read(root, task="multi-label", label_column=("label", "other"))
        assert list(rows.labels) == ['["label"]', "[]"]


def test_class_names_that_white_space_tells_apart_are_not_stripped(
    tmp_path: Path,
) -> None:
    feature = datasets.ClassLabel(names=["pos", "neg", "pos "])
    for root in write_both(tmp_path, {"train": data_set([0, 1, 2], feature)}):
        with pytest.raises(ConfigError, match="white space alone"):
            read(root, strip_labels=True)


FORMATS: dict[str, dict[str, Any]] = {
    "arrays": {"type": "numpy"},
    "tables": {"type": "pandas"},
    "fewer columns": {"columns": ["label"]},
}


@pytest.mark.parametrize("case", FORMATS)
def test_the_format_of_a_saved_data_set_does_not_count(
    case: str, tmp_path: Path
) -> None:
    data = data_set(TOPICS, CLASSES)
    data.set_format(**FORMATS[case])
    datasets.DatasetDict({"train": data}).save_to_disk(str(tmp_path / "saved"))
    assert list(read(tmp_path / "saved").labels) == TOPICS


def feature_of(**changes: Any) -> dict[str, Any]:
    """The metadata of a label column, as it is or with changes."""
    feature = {"_type": "ClassLabel", "names": [*NAMES], **changes}
    return {"info": {"features": {"label": feature}}}


def write_with_metadata(path: Path, labels: list[Any], metadata: bytes | None) -> None:
    table = pyarrow.table(
        {"label": labels, "text": [f"text {label}" for label in labels]}
    )
    if metadata is not None:
        table = table.replace_schema_metadata({b"huggingface": metadata})
    pyarrow.parquet.write_table(table, path)


WITHOUT_NAMES: dict[str, bytes | None] = {
    "no metadata": None,
    "no JSON": b"{'info'",
    "no UTF-8": b"\xff\xfe\x00",
    "nested too deeply": b"[" * 10**5,
    "no object": b"[1]",
    "no info": b"{}",
    "info of another type": json.dumps({"info": ["features"]}).encode(),
    "no features": json.dumps({"info": {"features": None}}).encode(),
    "another column": json.dumps({"info": {"features": {"topic": {}}}}).encode(),
    "another feature": json.dumps(feature_of(_type="Value")).encode(),
    "names of another type": json.dumps(feature_of(names={"a": 0})).encode(),
    "a name of another type": json.dumps(feature_of(names=["a", None])).encode(),
    "a name twice": json.dumps(feature_of(names=["a", "b", "a"])).encode(),
    "empty": json.dumps(feature_of(names=[])).encode(),
    "no entries": json.dumps(feature_of(_type="List", feature=[])).encode(),
}


@pytest.mark.parametrize("case", WITHOUT_NAMES)
def test_without_usable_metadata_numbers_are_the_classes(
    case: str, tmp_path: Path
) -> None:
    path = tmp_path / "train.parquet"
    write_with_metadata(path, [0, 1, 0], WITHOUT_NAMES[case])
    rows = read(tmp_path)
    assert rows.class_names is None
    assert list(rows.labels) == ["0", "1", "0"]


EARLIER_VERSIONS: dict[str, tuple[dict[str, Any], list[Any], list[str]]] = {
    "a number of classes beside": (
        feature_of(num_classes=3, names_file=None, id=None), [1, 0], ["Arts", "World"]),
    "names that are numbers": (feature_of(names=[1, 2, 5]), [2, 0], ["5", "1"]),
    "Sequence": (
        {"info": {"features": {"label": {
            "_type": "Sequence", "length": -1,
            "feature": {"_type": "ClassLabel", "names": [*NAMES]}}}}},
        [[1], [1, 0]], ['["Arts"]', '["World","Arts"]']),
    "a list of one feature": (
        {"info": {"features": {"label": [{"_type": "ClassLabel", "names": [*NAMES]}]}}},
        [[1], [1, 0]], ['["Arts"]', '["World","Arts"]']),
}  # fmt: skip


@pytest.mark.parametrize("case", EARLIER_VERSIONS)
def test_metadata_of_earlier_versions_is_read(case: str, tmp_path: Path) -> None:
    metadata, numbers, labels = EARLIER_VERSIONS[case]
    path = tmp_path / "train.parquet"
    write_with_metadata(path, numbers, json.dumps(metadata).encode())
    assert list(read(tmp_path).labels) == labels


def test_names_that_another_program_put_into_the_column_count(tmp_path: Path) -> None:
    """The metadata then describes a column that is no longer there."""
    metadata = json.dumps(feature_of()).encode()
    write_with_metadata(tmp_path / "train.parquet", ["new", "World"], metadata)
    rows = read(tmp_path)
    assert rows.class_names is None
    assert list(rows.labels) == ["new", "World"]


def test_names_are_read_without_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet, _saved = write_both(tmp_path, {"train": data_set(TOPICS, CLASSES)})
    # an import of None fails
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert list(read(parquet).labels) == TOPICS


@pytest.mark.parametrize("feature", [CLASSES, SET], ids=["classes", "sets"])
def test_a_declared_class_of_number_minus_one_is_no_label(
    feature: Any, tmp_path: Path
) -> None:
    """``datasets`` marks rows without a label by -1."""
    labels: list[Any] = [2, -1, 0, 1, -1]
    if feature is SET:
        labels = [[label] for label in labels]
    for root in write_both(tmp_path, {"train": data_set(labels, feature)}):
        with pytest.raises(DataError, match="skip-unlabelled=true"):
            read(root)
        rows = read(root, skip_unlabelled=True)
        assert list(rows.inputs) == ["text 0", "text 2", "text 3"]
        assert rows.num_without_label == 2
