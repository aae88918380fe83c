"""Kept columns and splits without labels: what a shard says of them, and what it may not say."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gaam_cache
from gaam_cache.errors import CacheError, ConfigError
from gaam_cache.store.dtypes import packed, unpacked, width_of
from tests.cache.published import COLUMN, write_kept_cache
from tests.cache.store.forgery import replace_shard
from tests.cache.store.test_format import read_cache

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    write_kept_cache(tmp_path / "cache")
    return tmp_path / "cache"


@given(st.lists(TEXTS, min_size=1))
def test_values_come_back_and_nothing_is_wrong_with_them(values: list[str]) -> None:
    width = width_of(values)
    assert width == max(1, *(len(value.encode()) for value in values))
    for wider in (width, width + 3):
        bytes_NW = packed(values, wider)
        assert bytes_NW.shape == (len(values), wider)
        assert unpacked(bytes_NW) == values


def row_by_row(bytes_NW: np.ndarray) -> int | None:
    for row, value in enumerate(bytes_NW):
        text = bytes(value)
        if b"\0" in text.rstrip(b"\0"):
            return row
    for row, value in enumerate(bytes_NW):
        try:
            bytes(value).decode()
        except UnicodeDecodeError:
            return row
    return None


def test_columns_are_read_by_name(cache: Path) -> None:
    opened = gaam_cache.open_cache(cache)
    assert opened.columns == ("session", "B_2")
    assert opened.unlabelled == ("test",)
    assert [opened[name].labelled for name in opened] == [True, False]
    assert opened["train"].column("session") == COLUMN
    assert opened["train"].column("B_2") == COLUMN[::-1]
    assert opened["test"].column("session") == COLUMN[:3]
    assert opened["test"].labels.tolist() == [-1] * 3
    with pytest.raises(ConfigError, match=r"keeps no column 'speaker'(.|\n)*session, B_2"):
        opened["train"].column("speaker")
    assert gaam_cache.verify(cache).good


def test_a_reader_written_from_the_text_finds_the_same(cache: Path) -> None:
    plan, splits = read_cache(cache)
    assert plan["unlabelled"] == plan["fingerprint_fields"]["unlabelled"] == ["test"]
    for name, arrays in splits.items():
        values = [bytes(one).rstrip(b"\0").decode() for one in arrays["column_session"]]
        assert values == gaam_cache.open_cache(cache)[name].column("session")


def test_whoever_opens_the_file_sees_strings(cache: Path) -> None:
    receipt = json.loads((cache / "shards" / "train-00001.json").read_text())
    with h5py.File(cache / "shards" / receipt["file"]) as file:
        found = file["column_session"]
        assert found.shape == (3,)
        assert found.asstr()[:].tolist() == COLUMN[3:6]


@pytest.mark.parametrize("value", [0, 1, 65, 0x80, 0xC3, 0xE2, 0xFF])
def test_a_column_with_other_bytes_than_those_of_texts_is_refused(value: int, cache: Path) -> None:
    """Every byte of a column in turn, by who can write file and receipt."""
    receipt = json.loads((cache / "shards" / "train-00000.json").read_text())
    spec = receipt["datasets"]["column_session"]
    sound = (cache / "shards" / receipt["file"]).read_bytes()
    verdicts = set()
    for at in range(spec["shape"][0] * spec["shape"][1]):
        image = bytearray(sound)
        image[spec["offset"] + at] = value
        rows = np.frombuffer(image, np.uint8, spec["shape"][0] * spec["shape"][1], spec["offset"])
        expected = row_by_row(rows.reshape(spec["shape"]))
        replace_shard(cache, "train-00000", bytes(image))
        if expected not in verdicts:  # takes long
            assert gaam_cache.verify(cache).good == (expected is None)
            verdicts.add(expected)
        split = gaam_cache.open_cache(cache)["train"]
        if expected is None:
            assert len(split.column("session")) == len(COLUMN)
        else:
            with pytest.raises(CacheError, match="'column_session' holds what is no text"):
                split.column("session")
    assert verdicts - {None}


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("label", [-2, -1, 0, 1, 2])
def test_labels_are_there_exactly_where_the_plan_says_so(
    label: int, split: str, cache: Path
) -> None:
    receipt = json.loads((cache / "shards" / f"{split}-00000.json").read_text())
    image = bytearray((cache / "shards" / receipt["file"]).read_bytes())
    at = receipt["datasets"]["label"]["offset"]
    image[at : at + 8] = label.to_bytes(8, "little", signed=True)
    replace_shard(cache, f"{split}-00000", bytes(image))
    good = label == -1 if split == "test" else label in (0, 1)
    assert gaam_cache.verify(cache).good == good
    if not good:
        with pytest.raises(CacheError, match="'label' of row 0"):
            gaam_cache.open_cache(cache)[split].labels  # noqa: B018
