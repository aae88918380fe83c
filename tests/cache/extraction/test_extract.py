from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.errors import ConfigError, DataError, NumericsError
from gaam_cache.extraction.worker import ShardWorker
from gaam_cache.store.plan import ShardSpec
from gaam_cache.store.shard import receipt_path
from tests.conftest import build_encoder, shard_bytes, write_csv


def test_two_extractions_give_the_same_bytes(tiny_config: ExtractConfig, tmp_path: Path) -> None:
    other = replace(tiny_config, out=tmp_path / "other")
    assert gaam_cache.extract(tiny_config).shards_made == 9
    gaam_cache.extract(other)
    assert shard_bytes(tiny_config.out) == shard_bytes(other.out)


def test_a_complete_cache_is_left_alone_and_loads_no_weights(
    tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaam_cache.extract(tiny_config)
    before = shard_bytes(tiny_config.out)
    monkeypatch.setattr(TextEncoder, "load", lambda self: pytest.fail("weights were loaded"))
    assert gaam_cache.extract(tiny_config).shards_made == 0
    assert shard_bytes(tiny_config.out) == before


def test_only_missing_shards_are_made_again(tiny_config: ExtractConfig) -> None:
    gaam_cache.extract(tiny_config)
    before = shard_bytes(tiny_config.out)
    for name in ("train-00001", "test-00000"):
        receipt_path(tiny_config.out, name).unlink()
    summary = gaam_cache.extract(tiny_config)
    assert (summary.shards_made, summary.rows_made) == (2, 20)
    assert shard_bytes(tiny_config.out) == before


def test_an_interruption_keeps_finished_shards(tiny_config: ExtractConfig) -> None:
    def interrupt(done: int, total: int, text: str) -> None:
        if done > 45:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gaam_cache.extract(tiny_config, progress=interrupt)
    before = shard_bytes(tiny_config.out)
    assert "shards/train-00002.json" in before
    summary = gaam_cache.extract(tiny_config)
    assert 0 < summary.shards_made < 7
    after = shard_bytes(tiny_config.out)
    assert before.items() <= after.items()


def test_progress_counts_rows_up_to_the_total(tiny_config: ExtractConfig) -> None:
    seen: list[tuple[int, int]] = []
    gaam_cache.extract(tiny_config, progress=lambda done, total, text: seen.append((done, total)))
    assert seen[-1] == (84, 84)
    assert seen == sorted(seen)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"max_length": 20}, "encoder.max_length"),
        ({"pool": ("last",)}, "encoder.pooling"),
        ({"storage_dtype": "float32"}, "storage_dtype"),
        ({"dtype": "bfloat16"}, "encoder.dtype"),
        ({"limit": 20}, "content.train"),
        ({"splits": ("train",)}, "content.test"),
    ],
)
def test_a_folder_with_another_fingerprint_is_refused_field_by_field(
    tiny_config: ExtractConfig, change: dict, field: str
) -> None:
    gaam_cache.extract(tiny_config)
    before = shard_bytes(tiny_config.out)
    with pytest.raises(ConfigError, match="holds another cache") as caught:
        gaam_cache.extract(replace(tiny_config, **change))
    assert field in str(caught.value)
    assert "encoder.files" not in str(caught.value)
    assert shard_bytes(tiny_config.out) == before


def test_other_weights_and_other_rows_change_the_fingerprint(
    tiny_config: ExtractConfig, tmp_path: Path
) -> None:
    gaam_cache.extract(tiny_config)
    encoder = build_encoder(tmp_path / "encoder", "bert", seed=1)
    with pytest.raises(ConfigError, match=r"encoder\.files\.model\.safetensors"):
        gaam_cache.extract(replace(tiny_config, encoder=str(encoder)))
    other = tmp_path / "rows"
    for split in ("train", "test"):
        lines = (Path(tiny_config.dataset) / f"{split}.csv").read_text().splitlines()
        changed = [*lines[:-1], lines[-1] + " goal"] if split == "test" else lines
        other.mkdir(exist_ok=True)
        (other / f"{split}.csv").write_text("\n".join(changed))
    with pytest.raises(ConfigError, match=r"content\.test") as caught:
        gaam_cache.extract(replace(tiny_config, dataset=str(other)))
    assert "content.train" not in str(caught.value)


def test_what_does_not_change_the_numbers_is_not_in_the_fingerprint(
    tiny_config: ExtractConfig, tmp_path: Path
) -> None:
    gaam_cache.extract(tiny_config)
    moved = tmp_path / "moved"
    moved.symlink_to(tiny_config.dataset)
    other = replace(tiny_config, dataset=str(moved), batch_tokens=7, shard_rows=3, device="cpu")
    assert gaam_cache.extract(other).shards_made == 0


def test_a_label_only_in_test_is_refused(tiny_config: ExtractConfig, tmp_path: Path) -> None:
    write_csv(tmp_path / "d" / "train.csv", [("a", "goal"), ("b", "bank")])
    write_csv(tmp_path / "d" / "test.csv", [("a", "goal"), ("c", "cup")])
    with pytest.raises(DataError, match=r"label 'c' occurs in 'test'(.|\n)*test\.csv, row 2"):
        gaam_cache.extract(replace(tiny_config, dataset=str(tmp_path / "d")))
    assert not tiny_config.out.exists()


def test_numeric_labels_are_ordered_as_numbers(tiny_config: ExtractConfig, tmp_path: Path) -> None:
    rows = [(str(label), f"goal {label}") for label in (10, 9, 2, 10)]
    write_csv(tmp_path / "d" / "train.csv", rows)
    config = replace(tiny_config, dataset=str(tmp_path / "d"), splits=("train",))
    gaam_cache.extract(config)
    cache = gaam_cache.open_cache(config.out)
    assert cache.class_names == ("2", "9", "10")
    assert cache["train"].labels.tolist() == [2, 1, 0, 2]


@pytest.mark.parametrize(
    ("labels", "order"),
    [
        (["1", "01", "001", "0001", "00001"], ("00001", "0001", "001", "01", "1")),  # one number
        (["10", "9", "-2"], ("-2", "9", "10")),
        (["10", "9", "--3"], ("--3", "10", "9")),  # not a number, though of minus and digits
        (["9", "1" * 5000], ("1" * 5000, "9")),  # more digits than Python turns into an int
    ],
    ids=["equal", "negative", "no number", "too long"],
)
def test_every_list_of_labels_has_one_order(
    labels: list[str], order: tuple[str, ...], tiny_config: ExtractConfig, tmp_path: Path
) -> None:
    write_csv(tmp_path / "d" / "train.csv", [(label, f"goal {label}") for label in labels])
    config = replace(tiny_config, dataset=str(tmp_path / "d"), splits=("train",), max_length=64)
    gaam_cache.extract(config)
    assert gaam_cache.open_cache(config.out).class_names == order


@pytest.mark.parametrize(
    ("value", "storage_dtype", "message"),
    [
        (70000.0, "float16", r"layer 2 cannot be stored as float16(.|\n)*--storage-dtype float32"),
        (float("inf"), "float32", r"layer 2 yields inf"),
        (float("nan"), "float16", r"layer 2 yields nan"),
    ],
)
def test_a_number_that_cannot_be_stored_stops_with_row_and_layer(
    tiny_config: ExtractConfig,
    monkeypatch: pytest.MonkeyPatch,
    value: float,
    storage_dtype: str,
    message: str,
) -> None:
    encode = TextEncoder.encode
    row_ids: list[int] = []

    def spoil(self: TextEncoder, items: Sequence[list[int]]) -> dict[str, torch.Tensor]:
        pooled = {name: states.clone() for name, states in encode(self, items).items()}
        for place, ids in enumerate(items):
            if list(ids) == row_ids:
                pooled["mean"][place, 1, 5] = value
        return pooled

    row_ids += TextEncoder.open(tiny_config).prepare(["goal"]).items[0].tolist()
    monkeypatch.setattr(TextEncoder, "encode", spoil)
    config = replace(tiny_config, storage_dtype=storage_dtype)
    with pytest.raises(NumericsError, match=message) as caught:
        gaam_cache.extract(config)
    assert "train.csv, row 1" in str(caught.value)
    assert "feature 5" in str(caught.value)


def test_the_largest_float16_is_stored(
    tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def large(name: str) -> None:
        encode = getattr(TextEncoder, name)

        def patched(self: TextEncoder, some: list[Any]) -> dict[str, torch.Tensor]:
            pooled = {pooling: states.clone() for pooling, states in encode(self, some).items()}
            pooled["mean"][:, 1, 5] = 65504.0
            return pooled

        monkeypatch.setattr(TextEncoder, name, patched)

    large("encode")
    large("encode_alone")
    gaam_cache.extract(tiny_config)
    states = gaam_cache.open_cache(tiny_config.out)["train"].embeddings[:]
    assert np.all(states[:, 1, 5] == 65504.0)


def test_a_maximum_beyond_the_encoder_is_refused(tiny_config: ExtractConfig) -> None:
    with pytest.raises(ConfigError, match="at most 64 tokens"):
        gaam_cache.extract(replace(tiny_config, max_length=65))


@pytest.mark.parametrize(("asked", "room"), [(1, False), (2, False), (3, True)])
def test_a_maximum_leaves_room_for_a_token_of_the_text(
    tiny_config: ExtractConfig, asked: int, room: bool
) -> None:
    config = replace(tiny_config, max_length=asked)
    if room:
        assert gaam_cache.extract(config).max_length == asked
        tokens = gaam_cache.open_cache(config.out)["train"].num_tokens
        assert max(tokens) <= asked
        return
    with pytest.raises(ConfigError, match=r"--max-length(.|\n)*at least 3 tokens"):
        gaam_cache.extract(config)
    assert not config.out.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"limit": 3}, r"only the first 3 rows of each split are read: --limit"),
        (
            {"label_column": "text", "text_columns": ("label",)},
            r"there are \d+ classes(.|\n)*--label-column",
        ),
        ({}, r"add rows of that class to 'train'$"),
    ],
)
def test_an_unknown_label_is_named_briefly_with_what_may_be_meant(
    options: dict[str, Any], said: str, tiny_config: ExtractConfig, tmp_path: Path
) -> None:
    train = [("a", f"{'word ' * 99}{i}") for i in range(50)] + [("b", "x")]
    test = [("b", f"{'other ' * 99}{i}") for i in range(5)]
    if not options:
        test = [("c", "x y")]
    write_csv(tmp_path / "d" / "train.csv", train)
    write_csv(tmp_path / "d" / "test.csv", test)
    config = replace(tiny_config, dataset=str(tmp_path / "d"), splits=("train", "test"), **options)
    with pytest.raises(DataError, match=said) as caught:
        gaam_cache.extract(config)
    assert len(str(caught.value)) < 2500


def test_weights_without_safetensors_are_refused(
    tiny_config: ExtractConfig, tmp_path: Path
) -> None:
    folder = build_encoder(tmp_path / "encoder", "bert")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ConfigError, match=r"pytorch_model\.bin(.|\n)*save_pretrained"):
        gaam_cache.extract(replace(tiny_config, encoder=str(folder)))


def test_incomplete_weights_are_refused(tiny_config: ExtractConfig, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = build_encoder(tmp_path / "encoder", "bert")
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.1.attention.self.query.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"encoder\.layer\.1\.attention\.self\.query"):
        gaam_cache.extract(replace(tiny_config, encoder=str(folder)))


def test_a_full_shard_is_bounded_in_bytes() -> None:
    from gaam_cache.store.plan import rows_per_shard

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
    write = ShardWorker.write

    def note(self: ShardWorker, shard: ShardSpec, *rest: object) -> None:
        made.append(shard.name)
        write(self, shard, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(ShardWorker, "write", note)
    gaam_cache.extract(tiny_config)
    assert made[:3] == ["test-00001", "test-00002", "train-00000"]
    assert len(made) == 9
    assert shard_bytes(tiny_config.out) == whole
