"""What ``gaam verify`` says: how a bad shard is repaired, what is missing, what can be removed.

Rows that are encoded again, alone, show what no hash does: states of another row or encoder.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gaam_cache
from gaam_cache.common.errors import NotFoundError
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.text import TextEncoder
from tests.cache.store.forgery import edit_json, replace_shard
from tests.conftest import Outcome, build_encoder, shard_bytes

Gaam = Callable[..., Outcome]
NAME = "train-00002"


def config(encoders: dict[str, Path], dataset: Path, out: Path) -> ExtractConfig:
    """Three shards."""
    return ExtractConfig(
        encoder=str(encoders["bert"]), dataset=str(dataset), out=out,
        splits=("train",), limit=30, shard_rows=10, batch_tokens=64,
    )  # fmt: skip


@pytest.fixture(scope="module")
def made(
    encoders: dict[str, Path], dataset: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A cache of three shards, to be copied."""
    out = tmp_path_factory.mktemp("made") / "cache"
    gaam_cache.extract(config(encoders, dataset, out))
    return out


@pytest.fixture
def cache(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "cache"))


def test_every_bad_shard_gets_one_line_that_says_how_to_repair_it(
    gaam: Gaam, cache: Path, made: Path, encoders: dict[str, Path], dataset: Path
) -> None:
    path = next(cache.glob(f"shards/{NAME}-*.h5"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    (cache / "shards/train-00000.json").write_text("{")
    outcome = gaam("verify", cache)
    assert outcome.code == 3
    lines = [line for line in outcome.out.splitlines() if line.startswith("bad: ")]
    assert [line.split(": ")[1] for line in lines] == ["train-00000", NAME]
    for line in lines:
        assert "gaam extract" in line
        Path(re.findall(r"/\S+\.json", line)[-1]).unlink()
    outcome = gaam("verify", cache)
    assert (outcome.code, gaam_cache.verify(cache).missing) == (
        3,
        ("train-00000", NAME),
    )
    assert f"train-00000, {NAME}" in outcome.out
    assert gaam_cache.extract(config(encoders, dataset, cache)).shards_made == 2
    assert shard_bytes(cache) == shard_bytes(made)


@pytest.mark.parametrize(
    ("storage_dtype", "pool", "tolerance"),
    [
        ("float16", ["mean"], 1e-3),
        ("float32", ["mean", "last"], 2e-4),
        ("bfloat16", ["max"], 5e-3),
    ],
)
def test_rows_encoded_alone_agree_with_the_cache(
    storage_dtype: Any,
    pool: list[str],
    tolerance: float,
    tiny_config: ExtractConfig,
    gaam: Gaam,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = replace(
        tiny_config, storage_dtype=storage_dtype, pool=tuple(pool), limit=20
    )
    gaam_cache.extract(config)
    batches, encode_alone = [], TextEncoder.encode_alone
    monkeypatch.setattr(
        TextEncoder,
        "encode_alone",
        lambda *given: batches.append(1) or encode_alone(*given),
    )
    outcome = gaam("verify", config.out, "--recompute", 7, "--json", "-q")
    assert outcome.code == 0, outcome
    assert batches == [1] * (2 + 7)  # the reference rows, before any other
    about = json.loads(outcome.out)["recomputed"]
    assert (about["rows"], len(about["deviation"])) == (7, 3)
    assert 0 < max(about["deviation"]) <= about["limit"] <= tolerance
    assert f"{about['limit']:.1e}" in gaam("verify", config.out, "--recompute", 3).out


def test_states_of_another_row_are_found(cache: Path, gaam: Gaam) -> None:
    train = gaam_cache.open_cache(cache)["train"]

    # change numbers inside a shard and make its receipt agree, as a faulty writer would
    about = json.loads((cache / f"shards/{NAME}.json").read_text())
    image = bytearray((cache / "shards" / about["file"]).read_bytes())
    spec = about["datasets"]["embeddings"]
    array = np.frombuffer(image, "<f2", int(np.prod(spec["shape"])), spec["offset"])
    array.reshape(spec["shape"])[4, 1] = train.embeddings[25, 1]
    replace_shard(cache, NAME, bytes(image))
    assert gaam_cache.verify(cache).good
    outcome = gaam("verify", cache, "--recompute", 1000)
    assert outcome.code == 3
    (line,) = [
        line for line in outcome.out.splitlines() if line.startswith(f"bad: {NAME}: ")
    ]
    assert "row 24," in line
    assert "layer 2," in line


def test_another_encoder_is_refused(cache: Path, tmp_path: Path, gaam: Gaam) -> None:
    other = build_encoder(tmp_path / "other", "bert", seed=3)
    edit_json(
        cache / "cache.json", lambda plan: plan["encoder"].update(path=str(other))
    )
    outcome = gaam("verify", cache, "--recompute", 1)
    assert outcome.code == 3
    assert "encoder.files.model.safetensors" in outcome.err
    edit_json(
        cache / "cache.json", lambda plan: plan["encoder"].update(path="/nowhere")
    )
    with pytest.raises(NotFoundError, match="/nowhere"):
        gaam_cache.verify(cache, recompute_rows=1)
