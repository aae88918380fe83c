"""Further rows are encoded as those of a cache were, to the bit, or not at all."""

from __future__ import annotations

import io
import json
import re
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray
from PIL import Image

import gaam_cache
from gaam_cache.common.errors import ConfigError, DataError, GaamError, NotFoundError
from gaam_cache.config import ExtractConfig
from gaam_cache.extraction import rows
from gaam_cache.extraction.rows import RowEncoder
from gaam_cache.store.plan import Plan, read_plan
from gaam_cache.store.reader import EmbeddingCache
from tests.cache.encoders.audio import sounds, spoken
from tests.cache.encoders.vision.models import FAMILIES
from tests.cache.encoders.vision.pictures import write_pictures


def extract(config: ExtractConfig) -> EmbeddingCache:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gaam_cache.extract(config)
    return gaam_cache.open_cache(config.out)


def covering(plan: Plan, **fields: Any) -> Plan:
    """Another plan, whose fingerprint covers these fields."""
    return replace(plan, fingerprint_fields=plan.fingerprint_fields | fields)


def texts(config: ExtractConfig) -> list[str]:
    lines = (Path(config.dataset) / "test.csv").read_text().splitlines()[1:]
    return [line.partition(",")[2] for line in lines]


def check(config: ExtractConfig, rows: Sequence[str] | None = None) -> RowEncoder:
    """What is stored of the test rows is what is encoded again, by one who knows the plan alone."""
    cache = extract(config)
    rows = texts(config) if rows is None else rows
    plan = Plan.from_dict(json.loads(json.dumps(cache.plan.to_dict())))
    encoder = RowEncoder.open(plan, device="cpu", batch_tokens=config.batch_tokens)
    for pooling in config.pool:
        stored = cache["test"].pooled(pooling)[:].astype(np.float32)
        again = encoder.encode(rows, pooling=pooling)
        assert again.dtype == np.float32
        assert (stored == again).all(), pooling
        halves = list(encoder.stream([rows[:7], [], rows[7:]], pooling=pooling))
        assert [len(one) for one in halves] == [7, 0, len(rows) - 7]
        apart = np.abs(np.concatenate(halves) - again).max(-1)
        assert (apart <= 0.02 * np.linalg.norm(again, axis=-1) + 1e-3).all()
    return encoder


@pytest.fixture
def config(tiny_config: ExtractConfig) -> ExtractConfig:
    """A split in a shard: the batches of the extraction are those of one call."""
    return replace(
        tiny_config, shard_rows=1000, device="cpu", pool=("mean", "last", "max")
    )


WAYS: list[dict[str, Any]] = [
    {"storage_dtype": "float32"},
    {"storage_dtype": "bfloat16", "prompt": "race {text} vote", "pool_over": "text"},
    {"dtype": "bfloat16", "max_length": 5},
    {"layer_zero": True, "batch_tokens": 1, "encoder": "llama"},
    {"untrained_encoder": True, "encoder_seed": 3, "batch_tokens": 5000},
    {"encoder": "tfidf:ngrams=2", "pool": ("mean",)},
]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_rows_are_encoded_as_they_were_whatever_was_asked_for(
    way: dict[str, Any], config: ExtractConfig, encoders: dict[str, Path]
) -> None:
    encoder = str(
        encoders.get(way.get("encoder", ""), way.get("encoder", config.encoder))
    )
    check(replace(config, **{**way, "encoder": encoder}))


def test_sounds_are_encoded_as_they_were_or_refused(tmp_path: Path) -> None:
    data, encoder = tmp_path / "data", sounds.save("wavlm-layer", tmp_path / "encoder")
    spoken.write(data, {"train": 1, "test": 1})
    config = ExtractConfig(
        encoder=str(encoder), dataset=str(data), out=tmp_path / "cache", device="cpu",
        keep_columns=("file",), clip_seconds=0.2,
    )  # fmt: skip
    files = [str(data / name) for name in extract(config)["test"].column("file")]
    ours = check(config, files)
    # rows that a program has are those of files
    fractions = [soundfile.read(name, dtype="float32") for name in files]
    whole, rate = soundfile.read(files[0], dtype="int16")
    in_memory: list[Any] = [(whole, rate), *fractions[1:-1]]
    in_memory.append({"array": fractions[-1][0], "sampling_rate": fractions[-1][1]})
    from_files = ours.encode(files, pooling="mean")
    np.testing.assert_allclose(
        ours.encode(in_memory, pooling="mean"), from_files, atol=2e-3
    )
    with pytest.raises(DataError, match="sampling rate"):
        ours.encode([fractions[0][0]], pooling="mean")
    recorded = ours.plan.dataset
    # of a cache whose rows are pieces
    pieces = replace(recorded, settings={**recorded.settings, "clip_mode": "split"})
    split = RowEncoder.open(replace(ours.plan, dataset=pieces))
    with pytest.raises(DataError, match="in 1 file"):
        split.encode(files[:1], pooling="mean")


SAMPLES = np.array([0, 3000, -20_000, 10_000] * 500, np.int16)


@pytest.mark.parametrize(
    ("samples", "problem"),
    [
        pytest.param(SAMPLES.astype(np.float32), "size 20,000", id="float32"),
        pytest.param(SAMPLES.astype(np.float64), "size 20,000", id="float64"),
        pytest.param(SAMPLES.astype(np.int64), "int64", id="int64"),
        pytest.param((SAMPLES >> 8).astype(np.int8), "int8", id="int8"),
        pytest.param(SAMPLES.view(np.uint16), "uint16", id="uint16"),
    ],
)
def test_samples_that_are_not_scaled_to_fractions_are_refused(
    samples: NDArray[Any], problem: str
) -> None:
    with pytest.raises(DataError) as caught:
        rows._sound_bytes(samples, 16_000, "row 1")
    assert problem in caught.value.details["found"]
    assert "int16" in caught.value.details["to do"]


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param(SAMPLES, id="int16"),
        pytest.param(SAMPLES.astype(np.int32) << 16, id="int32"),
        pytest.param(SAMPLES / 32_768, id="fractions"),
        pytest.param(SAMPLES.astype(">i2"), id="int16 in the other order of bytes"),
    ],
)
def test_samples_of_every_type_that_is_taken_are_one_sound(
    samples: NDArray[Any],
) -> None:
    content = rows._sound_bytes(samples, 16_000, "row 1")
    read_T, rate = soundfile.read(io.BytesIO(content))
    assert rate == 16_000
    np.testing.assert_array_equal(read_T, SAMPLES / 32_768)
    # a decoded file may exceed 1 a little
    assert rows._sound_bytes(1.3 * SAMPLES / 20_000, 16_000, "row 1")


def test_pictures_are_encoded_as_they_were_or_refused(tmp_path: Path) -> None:
    data, name = (
        write_pictures(tmp_path / "data", {"train": 8, "test": 16}),
        next(iter(FAMILIES)),
    )
    config = ExtractConfig(
        encoder=str(FAMILIES[name].save(tmp_path / name)), dataset=str(data), device="cpu",
        out=tmp_path / "cache", keep_columns=("file",), pool=("mean", "first"),
    )  # fmt: skip
    good = [str(data / name) for name in extract(config)["test"].column("file")]
    ours = check(config, good)
    # rows that a program has are those of files
    from_files = ours.encode(good, pooling="mean")
    pictures: list[Any] = [Image.open(name) for name in good[:2]]
    in_memory = [*pictures, Path(good[2]), Path(good[3]).read_bytes(), *good[4:]]
    np.testing.assert_array_equal(ours.encode(in_memory, pooling="mean"), from_files)
    for decoder in ours.plan.decoders:
        other = covering(ours.plan, decoders=ours.plan.decoders | {decoder: "0.0"})
        with pytest.raises(ConfigError, match=decoder):
            RowEncoder.open(other)
    (tmp_path / "broken.png").write_bytes(Path(good[0]).read_bytes()[:60])
    spoken.write(tmp_path / "sounds", {"test": 1})
    sound = next((tmp_path / "sounds").rglob("*.flac"))
    for path in ("nowhere.png", "broken.png", sound):
        with pytest.raises(DataError) as caught:
            ours.encode([good[0], str(tmp_path / path)], pooling="mean", origin="a")
        assert caught.value.details["where"] == "a, row 2"


def test_words_of_other_rows_are_refused(config: ExtractConfig, tmp_path: Path) -> None:
    data = shutil.copytree(config.dataset, tmp_path / "data")
    config = replace(config, encoder="tfidf", pool=("mean",), dataset=str(data))
    plan = extract(config).plan
    with (data / "train.csv").open("a") as file:
        file.write("a,goal goal\n")
    with pytest.raises(ConfigError, match="vocabulary"):
        RowEncoder.open(plan)
    shutil.rmtree(data)
    with pytest.raises(NotFoundError, match=re.escape(str(data))) as caught:
        RowEncoder.open(plan)
    assert "predict_states" in caught.value.details["to do"]


def test_whatever_differs_of_the_encoder_is_named(
    config: ExtractConfig, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(config.encoder, tmp_path / "encoder"))
    plan = extract(replace(config, encoder=str(folder))).plan

    def refused(name: str, one: Plan = plan) -> None:
        with pytest.raises(ConfigError) as caught:
            RowEncoder.open(one)
        assert name in caught.value.details["found"]

    for file in sorted(folder.iterdir()):
        content, middle = file.read_bytes(), file.stat().st_size // 2
        flipped = (
            content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        )
        # of JSON what is the same to whoever reads it
        file.write_bytes(content + b"\n" if file.suffix == ".json" else flipped)
        refused(file.name)
        if file.name in plan.identity["files"]:
            file.unlink()
            with pytest.raises(GaamError):
                RowEncoder.open(plan)
        file.write_bytes(content)
    (folder / "tokenizer.model").write_text("{}")
    refused("tokenizer.model")
    (folder / "tokenizer.model").unlink()
    for name, value in {
        "special_tokens": False,
        "pool_over": "text",
        "future": "x",
    }.items():
        refused(name, covering(plan, encoder=plan.identity | {name: value}))
    folder.rename(tmp_path / "moved")
    for one in (plan, plan.portable()):  # never asked of the hub
        with pytest.raises(NotFoundError, match="--encoder"):
            RowEncoder.open(one)
        found = RowEncoder.open(one, encoder=str(tmp_path / "moved"))
        assert found.encode(["goal bank", "robot"], pooling="mean").shape[0] == 2
    assert str(tmp_path) not in json.dumps(plan.portable().to_dict())
    with pytest.raises(ValueError, match="fingerprint"):
        Plan.from_dict(plan.to_dict() | {"fingerprint": "0" * 64})
    gaam_cache.write(
        tmp_path / "c", {"train": (np.eye(8, dtype=np.float32), [0, 1] * 4)}
    )
    with pytest.raises(ConfigError, match="predict_states"):
        RowEncoder.open(read_plan(tmp_path / "c"))


def test_rows_that_cannot_be_used_are_named(config: ExtractConfig) -> None:
    encoder = check(config)
    bad: list[Any] = [" \u200b\n", "\ud800 goal", 7]
    for row in bad:
        found = encoder.stream(
            [["bank"], ["goal", row]], pooling="mean", origin="some.csv"
        )
        assert len(next(found)) == 1  # what came before a bad row is there
        with pytest.raises(DataError) as caught:
            next(found)
        assert caught.value.details["where"] == "some.csv, row 3"
    with pytest.raises(DataError, match="2 of 3 rows"):
        encoder.encode(["goal", "", " "], pooling="mean")
    with pytest.raises(ConfigError, match="'first'"):
        encoder.encode(["goal"], pooling="first")
    assert encoder.encode([], pooling="mean").shape[0] == 0
