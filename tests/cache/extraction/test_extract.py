"""An extraction in one process: what it makes, keeps, makes again and refuses."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.errors import ConfigError, DataError, NumericsError
from gaam_cache.extraction.pipeline import ShardMaker, Work
from gaam_cache.store.plan import rows_per_shard
from gaam_cache.store.shard import receipt_path
from tests.conftest import build_encoder, shard_bytes, write_csv


def test_two_extractions_give_the_same_bytes_and_progress_counts_all_rows(
    tiny_config: ExtractConfig, tmp_path: Path
) -> None:
    seen: list[tuple[int, int]] = []
    other = replace(tiny_config, out=tmp_path / "other")
    assert gaam_cache.extract(tiny_config).shards_made == 9
    gaam_cache.extract(other, progress=lambda done, total, text: seen.append((done, total)))
    assert shard_bytes(tiny_config.out) == shard_bytes(other.out)
    assert seen[-1] == (84, 84)
    assert seen == sorted(seen)


def test_only_missing_shards_are_made_again_and_what_is_complete_loads_no_weights(
    tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaam_cache.extract(tiny_config)
    before = shard_bytes(tiny_config.out)
    for name in ("train-00001", "test-00000"):
        receipt_path(tiny_config.out, name).unlink()
    summary = gaam_cache.extract(tiny_config)
    assert (summary.shards_made, summary.rows_made) == (2, 20)
    assert shard_bytes(tiny_config.out) == before
    monkeypatch.setattr(TextEncoder, "load", lambda self: pytest.fail("weights were loaded"))
    assert gaam_cache.extract(tiny_config).shards_made == 0
    assert gaam_cache.extract(replace(tiny_config, devices="2")).shards_made == 0
    assert shard_bytes(tiny_config.out) == before


def test_an_interruption_keeps_finished_shards(tiny_config: ExtractConfig) -> None:
    def interrupt(done: int, total: int, text: str) -> None:
        if done > 45:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gaam_cache.extract(tiny_config, progress=interrupt)
    before = shard_bytes(tiny_config.out)
    assert "shards/train-00002.json" in before
    assert 0 < gaam_cache.extract(tiny_config).shards_made < 7
    assert before.items() <= shard_bytes(tiny_config.out).items()


ORDERS = {
    ("10", "9", "2", "10"): ("2", "9", "10"),
    ("1", "01", "001", "0001"): ("0001", "001", "01", "1"),  # one number
    ("10", "9", "-2"): ("-2", "9", "10"),
    ("10", "9", "--3"): ("--3", "10", "9"),  # not a number, though of minus and digits
    ("9", "1" * 5000): ("1" * 5000, "9"),  # more digits than Python turns into an int
}


def test_every_list_of_labels_has_one_order(tiny_config: ExtractConfig, tmp_path: Path) -> None:
    for number, (labels, order) in enumerate(ORDERS.items()):
        data = tmp_path / f"d{number}"
        write_csv(data / "train.csv", [(label, f"goal {label}") for label in labels])
        out, splits = tmp_path / f"out{number}", ("train",)
        config = replace(tiny_config, dataset=str(data), splits=splits, max_length=64, out=out)
        gaam_cache.extract(config)
        cache = gaam_cache.open_cache(out)
        assert cache.class_names == order
        assert [order[label] for label in cache["train"].labels] == list(labels)


def test_an_unknown_label_is_named_briefly_with_what_may_be_meant(
    tiny_config: ExtractConfig, tmp_path: Path
) -> None:
    write_csv(tmp_path / "d" / "train.csv", [("a", f"{'word ' * 99}{i}") for i in range(50)])
    write_csv(tmp_path / "d" / "test.csv", [("a", "goal"), ("c", "cup")])
    swapped: dict[str, Any] = {"label_column": "text", "text_columns": ("label",)}
    said = {
        "--limit": {"limit": 3},
        "--label-column": swapped,
        "the label 'c' occurs in 'test'": {},
        "test.csv, row 2": {},
    }
    for words, options in said.items():
        config = replace(tiny_config, dataset=str(tmp_path / "d"), **options)
        with pytest.raises(DataError) as caught:
            gaam_cache.extract(config)
        assert words in str(caught.value)
        assert len(str(caught.value)) < 2500
    assert not tiny_config.out.exists()


@pytest.mark.parametrize(
    ("value", "storage_dtype", "message"),
    [
        (70000.0, "float16", r"layer 2 cannot be stored as float16(.|\n)*--storage-dtype float32"),
        (65504.0, "float16", None),
        (float("inf"), "float32", r"layer 2 yields numbers that are not finite"),
        (float("nan"), "float16", r"layer 2 yields numbers that are not finite"),
    ],
)
def test_a_number_that_cannot_be_stored_stops_with_row_and_layer(
    value: float,
    storage_dtype: Any,
    message: str | None,
    tiny_config: ExtractConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def spoiled(name: str) -> None:
        encode = getattr(TextEncoder, name)

        def spoil(self: TextEncoder, given: Sequence[Any]) -> dict[str, torch.Tensor]:
            pooled = {name: states.clone() for name, states in encode(self, given).items()}
            for place, ids in enumerate(given if name == "encode" else [given]):
                if list(ids) == row_ids:
                    pooled["mean"][place, 1, 5] = value
            return pooled

        monkeypatch.setattr(TextEncoder, name, spoil)

    row_ids = TextEncoder.open(tiny_config).prepare(["goal"]).items[0].tolist()
    spoiled("encode")
    spoiled("encode_alone")
    config = replace(tiny_config, storage_dtype=storage_dtype)
    if message is None:
        gaam_cache.extract(config)
        states = gaam_cache.open_cache(config.out)["train"].embeddings[:]
        assert np.all(states[0, 1, 5] == value)
        return
    with pytest.raises(NumericsError, match=message) as caught:
        gaam_cache.extract(config)
    assert "train.csv, row 1" in str(caught.value)
    assert "feature 5" in str(caught.value)


def test_a_maximum_is_within_the_encoder_and_leaves_room_for_a_token(
    tiny_config: ExtractConfig,
) -> None:
    for asked, refused in ((65, "at most 64 tokens"), (2, "at least 3 tokens")):
        with pytest.raises(ConfigError, match=refused):
            gaam_cache.extract(replace(tiny_config, max_length=asked))
        assert not tiny_config.out.exists()
    assert gaam_cache.extract(replace(tiny_config, max_length=3)).max_length == 3
    assert max(gaam_cache.open_cache(tiny_config.out)["train"].num_tokens) <= 3


def test_incomplete_weights_are_refused(tiny_config: ExtractConfig, tmp_path: Path) -> None:
    folder = build_encoder(tmp_path / "encoder", "bert")
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.1.attention.self.query.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"encoder\.layer\.1\.attention\.self\.query"):
        gaam_cache.extract(replace(tiny_config, encoder=str(folder)))


def test_a_full_shard_is_bounded_in_bytes() -> None:
    assert rows_per_shard(40 * 5120 * 2, 2048) == 1250  # Llama-2-13B in float16: 512 MB
    assert rows_per_shard(6 * 384 * 2, 2048) == 2048
    assert rows_per_shard(10**9, 2048) == 1


def test_shards_that_another_extractor_makes_meanwhile_are_left_to_it(
    tiny_config: ExtractConfig, tmp_path: Path
) -> None:
    theirs = replace(tiny_config, out=tmp_path / "theirs")
    gaam_cache.extract(theirs)
    arrived = False

    def meanwhile(done: int, total: int, text: str) -> None:
        nonlocal arrived
        if done and not arrived:
            arrived = True
            for file in sorted((theirs.out / "shards").glob("train-0000[345]*")):
                shutil.copy(file, tiny_config.out / "shards")

    summary = gaam_cache.extract(tiny_config, progress=meanwhile)
    assert (summary.shards_made, summary.rows_made) == (6, 54)
    assert shard_bytes(tiny_config.out) == shard_bytes(theirs.out)


def test_an_extractor_that_joins_begins_anywhere(
    tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaam_cache.extract(tiny_config)
    whole = shard_bytes(tiny_config.out)
    for receipt in (tiny_config.out / "shards").glob("*.json"):
        receipt.unlink()
    monkeypatch.setattr("secrets.randbelow", lambda count: count - 2)
    made: list[str] = []
    write = ShardMaker.write

    def note(self: ShardMaker, work: Work, encoded: Any) -> None:
        made.append(work.shard.name)
        write(self, work, encoded)

    monkeypatch.setattr(ShardMaker, "write", note)
    gaam_cache.extract(tiny_config)
    assert made[:3] == ["test-00001", "test-00002", "train-00000"]
    assert len(made) == 9
    assert shard_bytes(tiny_config.out) == whole
