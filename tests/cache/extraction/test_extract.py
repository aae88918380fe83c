"""An extraction in one process makes, keeps, makes again and refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import gaam_cache
from gaam_cache.common.errors import ConfigError, NumericsError, OutOfReachError
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.store.plan import PLAN_FILE, rows_per_shard
from gaam_cache.store.shard import receipt_path
from gaam_cache.targets.classes import class_order
from tests.conftest import shard_bytes


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

    def load(self: TextEncoder) -> None:
        pytest.fail("weights were loaded")

    monkeypatch.setattr(TextEncoder, "load", load)
    assert gaam_cache.extract(tiny_config).shards_made == 0
    assert gaam_cache.extract(replace(tiny_config, devices="2")).shards_made == 0
    assert shard_bytes(tiny_config.out) == before


def test_the_same_command_brings_a_lost_plan_back_and_keeps_every_shard(
    tiny_config: ExtractConfig, encoders: dict[str, Path]
) -> None:
    # a fingerprint also covers what only the loaded encoder shows: it acts causal
    config = replace(tiny_config, encoder=str(encoders["llama"]))
    gaam_cache.extract(config)
    plan_path = config.out / PLAN_FILE
    plan_bytes = plan_path.read_bytes()
    shards = shard_bytes(config.out)
    plan_path.unlink()
    other = replace(config, pool=("last",))
    with pytest.raises(OutOfReachError, match="belongs to another cache"):
        gaam_cache.extract(other)
    assert gaam_cache.extract(config).shards_made == 0
    assert plan_path.read_bytes() == plan_bytes
    assert shard_bytes(config.out) == shards


@pytest.mark.parametrize(
    ("labels", "order"),
    [
        (("10", "9", "2", "10"), ("2", "9", "10")),
        # four spellings of one number
        (("1", "01", "001", "0001"), ("0001", "001", "01", "1")),
        # minus signs and a digit, but no number
        (("10", "9", "--3"), ("--3", "10", "9")),
    ],
    ids=["numbers", "one number", "no number"],
)
def test_every_list_of_labels_has_one_order(
    labels: tuple[str, ...], order: tuple[str, ...]
) -> None:
    assert class_order(set(labels)) == order


@pytest.mark.parametrize(
    ("value", "option"),
    [(70000.0, "--storage-dtype float32"), (float("nan"), "--dtype float32")],
)
def test_a_number_that_cannot_be_stored_stops_with_row_and_layer(
    value: float,
    option: str,
    tiny_config: ExtractConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row_ids = TextEncoder.open(tiny_config).prepare(["goal"]).items[0].tolist()
    encode = TextEncoder.encode

    def spoil(self: TextEncoder, items: Sequence[Any]) -> dict[str, torch.Tensor]:
        pooled = encode(self, items)["mean"].clone()
        pooled[[list(ids) == row_ids for ids in items], 1, 5] = value
        return {"mean": pooled}

    monkeypatch.setattr(TextEncoder, "encode", spoil)
    with pytest.raises(NumericsError, match="layer 2") as caught:
        gaam_cache.extract(tiny_config)
    details = caught.value.details
    assert details["where"].endswith("train.csv, row 1")
    assert "feature 5" in details["found"]
    assert option in details["to do"]


@pytest.mark.parametrize(("max_length", "words"), [(65, r"\b64\b"), (2, r"\b3\b")])
def test_a_maximum_beyond_the_encoder_or_without_room_for_a_token_is_refused(
    max_length: int, words: str, tiny_config: ExtractConfig
) -> None:
    with pytest.raises(ConfigError, match=words):
        gaam_cache.extract(replace(tiny_config, max_length=max_length))
    assert not tiny_config.out.exists()


def test_a_maximum_with_room_for_a_token_is_taken(tiny_config: ExtractConfig) -> None:
    assert gaam_cache.extract(replace(tiny_config, max_length=3)).max_length == 3
    assert max(gaam_cache.open_cache(tiny_config.out)["train"].num_tokens) <= 3


def test_a_full_shard_is_bounded_in_bytes() -> None:
    # Llama-2-13B in float16: 512 MB
    assert rows_per_shard(40 * 5120 * 2, 2048) == 1250
    assert rows_per_shard(10**9, 2048) == 1
