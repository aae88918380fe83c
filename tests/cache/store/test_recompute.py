"""Rows that are encoded again, alone, show what no hash does: states of another row or encoder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.errors import NotFoundError
from tests.cache.store.forgery import edit_json, replace_shard
from tests.conftest import Outcome, build_encoder

Gaam = Callable[..., Outcome]
NAME = "train-00002"


@pytest.fixture(scope="module")
def made(
    encoders: dict[str, Path], dataset: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Three shards, to be copied."""
    out = tmp_path_factory.mktemp("made") / "cache"
    gaam_cache.extract(
        ExtractConfig(
            encoder=str(encoders["bert"]), dataset=str(dataset), out=out,
            splits=("train",), limit=30, shard_rows=10, batch_tokens=64,
        )
    )  # fmt: skip
    return out


@pytest.fixture
def cache(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "cache"))


def spoil(cache: Path, key: str, index: Any, value: Any) -> None:
    """Change a number inside a shard and make its receipt agree, as a faulty writer would."""
    about = json.loads((cache / f"shards/{NAME}.json").read_text())
    image = bytearray((cache / "shards" / about["file"]).read_bytes())
    spec = about["datasets"][key]
    dtype, count = {"float16": "<f2", "int64": "<i8"}[spec["dtype"]], int(np.prod(spec["shape"]))
    np.frombuffer(image, dtype, count, spec["offset"]).reshape(spec["shape"])[index] = value
    replace_shard(cache, NAME, bytes(image))


@pytest.mark.parametrize(
    ("storage_dtype", "pool", "tolerance"),
    [("float16", ["mean"], 1e-3), ("float32", ["mean", "last"], 2e-4), ("bfloat16", ["max"], 5e-3)],
)
def test_rows_encoded_alone_agree_with_the_cache(
    storage_dtype: Any,
    pool: list[str],
    tolerance: float,
    tiny_config: ExtractConfig,
    gaam: Gaam,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = replace(tiny_config, storage_dtype=storage_dtype, pool=tuple(pool), limit=20)
    gaam_cache.extract(config)
    batches: list[int] = []
    encode_alone = TextEncoder.encode_alone

    def counted(self: TextEncoder, item: list[int]) -> Any:
        batches.append(1)
        return encode_alone(self, item)

    monkeypatch.setattr(TextEncoder, "encode_alone", counted)
    outcome = gaam("verify", config.out, "--recompute", 7, "--json", "-q")
    assert outcome.code == 0, outcome
    assert batches == [1] * 7
    about = json.loads(outcome.out)["recomputed"]
    assert (about["rows"], len(about["deviation"])) == (7, 3)
    assert 0 < max(about["deviation"]) <= about["limit"] <= tolerance
    assert "that rounding explains" in gaam("verify", config.out, "--recompute", 3).out


def test_the_seed_decides_the_rows_and_all_rows_is_the_most(made: Path) -> None:
    def recomputed(**options: int) -> Any:
        return gaam_cache.verify(made, **options).recomputed  # type: ignore[arg-type]

    first, again = (recomputed(recompute_rows=2, seed=1) for _ in range(2))
    assert first == again
    assert recomputed(recompute_rows=2, seed=2).deviation != first.deviation
    everything = recomputed(recompute_rows=1000)
    assert everything.rows == 30
    assert all(a >= b for a, b in zip(everything.deviation, first.deviation, strict=True))


def test_states_and_labels_of_another_row_are_found(cache: Path, gaam: Gaam) -> None:
    train = gaam_cache.open_cache(cache)["train"]
    spoil(cache, "embeddings", (4, 1), train.embeddings[25, 1])
    assert gaam_cache.verify(cache).good
    outcome = gaam("verify", cache, "--recompute", 1000)
    assert outcome.code == 3
    (line,) = [line for line in outcome.out.splitlines() if line.startswith("bad: ")]
    assert line.startswith(f"bad: {NAME}: row 24, encoded alone, deviates by ")
    assert "in layer 2" in line
    spoil(cache, "label", 3, 1 - int(train.labels[23]))
    (bad,) = gaam_cache.verify(cache, recompute_rows=1000).bad
    assert "row 23 has label" in bad.reason


def test_another_encoder_is_refused(cache: Path, tmp_path: Path, gaam: Gaam) -> None:
    other = build_encoder(tmp_path / "other", "bert", seed=3)
    edit_json(cache / "cache.json", lambda plan: plan["encoder"].update(path=str(other)))
    outcome = gaam("verify", cache, "--recompute", 1)
    assert outcome.code == 3
    assert "encoder.files.model.safetensors" in outcome.err
    edit_json(cache / "cache.json", lambda plan: plan["encoder"].update(path="/nowhere"))
    with pytest.raises(NotFoundError, match="/nowhere"):
        gaam_cache.verify(cache, recompute_rows=1)
