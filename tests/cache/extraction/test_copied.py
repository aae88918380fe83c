"""States are copied into a cache of other labels or columns: it is what encoding makes."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gaam_cache
from gaam_cache.common.errors import CacheError, ConfigError, GaamError
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.store.plan import PLAN_FILE
from gaam_cache.store.shard import receipt_path
from tests.cache.store import making
from tests.cache.store.forgery import edit_json
from tests.conftest import Outcome, shard_bytes
from tests.tiny import random_rows

COPIED = importlib.import_module("gaam_cache.extraction.copied")
JOB = importlib.import_module("gaam_cache.extraction.job")
CLASSES: dict[str, Any] = {"label_column": "label", "task": "auto"}
NUMBERS: dict[str, Any] = {
    "label_column": ("score", "length"),
    "task": "regression",
}
SETS: dict[str, Any] = {"label_column": "tags", "task": "multi-label"}
FLAGS: dict[str, Any] = {"label_column": ("odd", "long"), "task": "multi-label"}


def make_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Texts with labels of every kind."""
    rows = []
    for number, (label, text) in enumerate(random_rows(count, seed)):
        words = text.split()
        row: dict[str, Any] = {"text": text, "label": label}
        row["speaker"] = f"s{number % 7}"
        row |= {"other": "cba"[number % 3], "score": number / 7, "length": len(words)}
        row |= {"tags": sorted({"é", label, *words[:2]}), "odd": number % 2}
        rows.append(row | {"long": int(len(words) > 9)})
    return rows


def write_rows(folder: Path, split: str, rows: list[dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    lines = [json.dumps(row) for row in rows]
    (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 training and 24 test rows."""
    folder = tmp_path_factory.mktemp("rows") / "data"
    write_rows(folder, "train", make_rows(60, 1))
    write_rows(folder, "test", make_rows(24, 2))
    return folder


@pytest.fixture
def config(encoders: dict[str, Path], data: Path, tmp_path: Path) -> ExtractConfig:
    """An extraction of 9 shards, by an encoder that is found to be causal."""
    return ExtractConfig(
        encoder=str(encoders["llama"]),
        dataset=str(data),
        out=tmp_path / "cache",
        shard_rows=10,
        batch_tokens=64,
    )


@pytest.fixture
def original(config: ExtractConfig, tmp_path: Path) -> Path:
    """A cache of classes of these rows."""
    gaam_cache.extract(replace(config, out=tmp_path / "original"))
    return tmp_path / "original"


@pytest.fixture
def refuse_weights(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A function: from its call on, no weights can be loaded."""

    def load(*arguments: object, **options: object) -> None:
        pytest.fail("weights were loaded")

    return lambda: monkeypatch.setattr(TextEncoder, "load_for", load)


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        ({}, {"keep_columns": ("speaker",)}),
        ({}, {"label_column": "other"}),
        ({}, NUMBERS),
        ({}, SETS | {"keep_columns": ("speaker", "other")}),
        ({}, {"unlabelled": ("test",)}),
        (NUMBERS, CLASSES),
        (SETS, FLAGS),
        (FLAGS | {"unlabelled": ("test",)}, SETS),
        ({"pool": ("last", "mean"), "storage_dtype": "bfloat16"}, NUMBERS),
        ({"max_length": 5, "layers": "2-3"}, {"keep_columns": ("speaker",)}),
        ({"encoder": "tfidf"}, {"label_column": "other"}),
    ],
    ids=[
        "kept column",
        "other classes",
        "numbers",
        "sets and columns",
        "unlabelled",
        "from numbers",
        "from sets to flags",
        "labelled later",
        "poolings in bfloat16",
        "cut rows",
        "tfidf",
    ],
)
def test_a_copy_is_to_the_byte_what_the_encoder_makes(
    settings: dict[str, Any],
    changes: dict[str, Any],
    config: ExtractConfig,
    tmp_path: Path,
    refuse_weights: Callable[[], None],
) -> None:
    original = replace(config, **settings, out=tmp_path / "original")
    gaam_cache.extract(original)
    encoded = replace(original, **changes, out=tmp_path / "encoded")
    truncated = gaam_cache.extract(encoded).truncated
    refuse_weights()
    copy = replace(encoded, out=config.out, states_from=original.out)
    summary = gaam_cache.extract(copy)
    assert shard_bytes(copy.out) == shard_bytes(encoded.out)
    assert (summary.shards_made, summary.rows_made) == (9, 84)
    assert (summary.tokens, summary.truncated) == (0, truncated)
    # the setting is no part of the cache
    assert gaam_cache.extract(replace(copy, states_from=None)).shards_made == 0


@pytest.mark.parametrize("shard_rows", [7, 25], ids=["smaller", "larger"])
def test_other_shards_hold_the_same_states_and_count_their_own_cut_rows(
    shard_rows: int, config: ExtractConfig, tmp_path: Path
) -> None:
    config = replace(config, max_length=9)
    original = gaam_cache.extract(replace(config, out=tmp_path / "original"))
    copy = replace(config, shard_rows=shard_rows, states_from=Path(original.path))
    assert gaam_cache.extract(copy).truncated == original.truncated > 0
    before = gaam_cache.open_cache(original.path)
    after = gaam_cache.open_cache(copy.out)
    for split in before:
        states = after[split].embeddings
        assert np.array_equal(states, before[split].embeddings)
        assert np.array_equal(after[split].num_tokens, before[split].num_tokens)
        for receipt in after[split].receipts:
            lengths = [
                len(row["text"].split()) for row in read_rows(config.dataset, split)
            ]
            # the tokenizer adds a token to every text
            is_cut = [length + 1 > 9 for length in lengths]
            assert receipt.truncated == sum(is_cut[receipt.start : receipt.stop])


def read_rows(folder: str, split: str) -> list[dict[str, Any]]:
    lines = (Path(folder) / f"{split}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def change_text(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows[40]["text"] += " unheard"
    return rows


def swap(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*rows[:-2], rows[-1], rows[-2]]


@pytest.mark.parametrize(
    ("edit", "settings", "words"),
    [
        (change_text, {}, "rows of 'train'.*changed, left out or moved"),
        (swap, {}, "rows of 'train'.*changed, left out or moved"),
        (lambda rows: rows[1:], {}, "rows.train +in the cache 60, now 59"),
        (change_text, {"encoder": "tfidf"}, "encoder.vocabulary +in the cache"),
    ],
    ids=["a changed text", "two rows that change places", "a row less", "tfidf"],
)
def test_other_rows_are_refused(
    edit: Callable[[list[dict[str, Any]]], list[dict[str, Any]]],
    settings: dict[str, Any],
    words: str,
    config: ExtractConfig,
    tmp_path: Path,
) -> None:
    config = replace(config, **settings)
    original = gaam_cache.extract(replace(config, out=tmp_path / "original"))
    edited = tmp_path / "edited"
    write_rows(edited, "train", edit(read_rows(config.dataset, "train")))
    write_rows(edited, "test", read_rows(config.dataset, "test"))
    copy = replace(config, dataset=str(edited), states_from=Path(original.path))
    with pytest.raises(ConfigError, match=f"(?s){words}.*to do"):
        gaam_cache.extract(copy)
    assert not copy.out.exists()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"pool": ("last",)}, "encoder.pooling +in the cache"),
        ({"max_length": 9}, "encoder.max_length +in the cache 64, now 9"),
        ({"storage_dtype": "float32"}, "storage_dtype +in the cache float16"),
        ({"splits": ("train",)}, "rows.test +in the cache 24, now -"),
    ],
    ids=["pooling", "length", "type", "splits"],
)
def test_other_settings_are_refused_by_name(
    settings: dict[str, Any], words: str, config: ExtractConfig, original: Path
) -> None:
    with pytest.raises(ConfigError, match=f"(?s){words}.*to do"):
        gaam_cache.extract(replace(config, states_from=original, **settings))
    assert not config.out.exists()


def test_another_encoder_is_refused(
    config: ExtractConfig, original: Path, encoders: dict[str, Path]
) -> None:
    other = replace(config, encoder=str(encoders["bert"]), states_from=original)
    with pytest.raises(ConfigError, match=r"encoder\.files\.model"):
        gaam_cache.extract(other)
    assert not config.out.exists()


def lose_receipt(cache: Path) -> None:
    receipt_path(cache, "train-00004").unlink()


def cut_shard(cache: Path) -> None:
    [file] = cache.glob("shards/test-00002-*.h5")
    file.write_bytes(file.read_bytes()[:-1])


def change_byte(cache: Path) -> None:
    [file] = cache.glob("shards/test-00002-*.h5")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lose_receipt, "1 of 9 shards are missing"),
        (cut_shard, "'test-00002' is damaged"),
        (change_byte, "its SHA-256 is not that of its receipt"),
        (shutil.rmtree, "no cache at"),
    ],
    ids=["incomplete", "cut", "changed", "gone"],
)
def test_a_cache_that_is_not_whole_is_refused_and_nothing_is_written(
    damage: Callable[[Path], None], words: str, config: ExtractConfig, original: Path
) -> None:
    damage(original)
    with pytest.raises(GaamError, match=words) as caught:
        gaam_cache.extract(replace(config, states_from=original))
    is_there = original.exists()
    assert isinstance(caught.value, CacheError) == is_there
    assert not config.out.exists()


def test_a_changed_byte_of_rows_without_labels_is_found_first(
    config: ExtractConfig, tmp_path: Path
) -> None:
    original = replace(config, unlabelled=("test",), out=tmp_path / "original")
    gaam_cache.extract(original)
    change_byte(original.out)
    with pytest.raises(CacheError, match="its SHA-256 is not that of its receipt"):
        gaam_cache.extract(replace(config, states_from=original.out))
    assert not config.out.exists()


def test_imported_states_are_refused(config: ExtractConfig, tmp_path: Path) -> None:
    arrays = {"embeddings": making.states(60), "labels": making.labels(60)}
    files = making.save(tmp_path / "train.npz", arrays)
    making.run(*files, out=tmp_path / "imported")
    with pytest.raises(ConfigError, match="imported states are not copied"):
        gaam_cache.extract(replace(config, states_from=tmp_path / "imported"))
    assert not config.out.exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--out", "original"], "states-from names the folder that is written"),
        (["--devices", "2"], "states-from encodes nothing that workers could share"),
        (["--set", "rank=0/2"], "states-from encodes nothing"),
        (["--dry-run"], "there is no encoding to estimate"),
    ],
    ids=["its own folder", "workers", "rank", "dry run"],
)
def test_settings_that_a_copy_does_not_have_are_wrong_usage(
    options: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gaam: Callable[..., Outcome],
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = gaam("extract", "--set", "states-from=original", *options)
    assert outcome.code == 2
    assert words in outcome.err
    assert not list(tmp_path.iterdir())


def interrupt_after(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let copying stop once it has published some shards."""
    write_shard = COPIED.write_shard
    written: list[object] = []

    def write(*arguments: Any, **options: Any) -> Any:
        if len(written) == number:
            raise KeyboardInterrupt
        written.append(write_shard(*arguments, **options))
        return written[-1]

    monkeypatch.setattr(COPIED, "write_shard", write)


@pytest.mark.parametrize("copies", [True, False], ids=["copied", "encoded"])
def test_an_interrupted_copy_goes_on_to_the_same_bytes(
    copies: bool,
    config: ExtractConfig,
    original: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = replace(config, keep_columns=("speaker",))
    encoded = replace(config, out=tmp_path / "encoded")
    gaam_cache.extract(encoded)
    copy = replace(config, states_from=original)
    with monkeypatch.context() as patch:
        interrupt_after(4, patch)
        with pytest.warns(match="4 of 9 shards"), pytest.raises(KeyboardInterrupt):
            gaam_cache.extract(copy)
    again = copy if copies else replace(copy, states_from=None)
    assert gaam_cache.extract(again).shards_made == 5
    assert shard_bytes(copy.out) == shard_bytes(encoded.out)
    # a complete cache needs the other one no more
    shutil.rmtree(original)
    assert gaam_cache.extract(copy).shards_made == 0


def test_a_cache_that_was_begun_with_other_states_is_not_completed(
    config: ExtractConfig, original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        # the same files, and other libraries
        patch.setattr(JOB, "measure_reference", lambda encoder: {})
        gaam_cache.extract(config)
    receipt_path(config.out, "train-00000").unlink()
    before = shard_bytes(config.out)
    with pytest.raises(ConfigError, match="begun with other states"):
        gaam_cache.extract(replace(config, states_from=original))
    assert shard_bytes(config.out) == before


def test_a_cache_of_an_earlier_version_is_copied_with_what_it_records(
    config: ExtractConfig, original: Path
) -> None:
    def forget(plan: dict[str, Any]) -> None:
        del plan["encoder"]["reference"]
        del plan["fingerprint_fields"]["encoder"]["tokens"]
        del plan["fingerprint_fields"]["encoder"]["acts_causal"]
        plan["created_with"] = {"gaam": "0.2.0", "torch": "2.1"}

    edit_json(original / PLAN_FILE, forget)
    plan = json.loads((original / PLAN_FILE).read_text())
    fingerprint = {"fingerprint": plan["fingerprint"]}
    for receipt in original.glob("shards/*.json"):
        edit_json(receipt, lambda content: content.update(fingerprint))

    copy = replace(config, states_from=original, keep_columns=("speaker",))
    gaam_cache.extract(copy)
    made = gaam_cache.open_cache(copy.out).plan
    assert made.identity == plan["fingerprint_fields"]["encoder"]
    assert (made.reference, made.created_with["torch"]) == ({}, "2.1")
    assert made.created_with["gaam"] == gaam_cache.__version__
    assert gaam_cache.extract(replace(copy, states_from=None)).shards_made == 0


def test_people_read_what_was_copied_and_the_copy_is_verified(
    config: ExtractConfig, original: Path, gaam: Callable[..., Outcome]
) -> None:
    copied = gaam(
        "extract",
        *("--encoder", config.encoder, "--dataset", config.dataset),
        *("--label-column", "other", "--set", f"states-from={original}"),
        *("--out", config.out),
    )
    assert copied.code == 0, copied.err
    words = " ".join(copied.out.split())
    assert "84 rows, states copied from" in words
    assert "nothing was encoded" in words
    assert "tokens/s" not in words
    assert "proof" not in words
    assert gaam("verify", config.out, "--recompute", 3).code == 0
