"""``gaam verify``: how a bad shard is repaired, what is missing, what can be removed.

Rows that are encoded again, alone, show what no hash does: states of another row or
encoder.
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
from tests.conftest import Outcome, shard_bytes
from tests.tiny import build_encoder

Gaam = Callable[..., Outcome]
DAMAGED = "train-00002"
UNREADABLE = "train-00000"


def config(encoders: dict[str, Path], dataset: Path, out: Path) -> ExtractConfig:
    """Three shards."""
    return ExtractConfig(
        encoder=str(encoders["bert"]),
        dataset=str(dataset),
        out=out,
        splits=("train",),
        limit=30,
        shard_rows=10,
        batch_tokens=64,
    )


@pytest.fixture(scope="module")
def sound_cache(
    encoders: dict[str, Path], dataset: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A cache of three shards, to be copied."""
    out = tmp_path_factory.mktemp("sound") / "cache"
    gaam_cache.extract(config(encoders, dataset, out))
    return out


@pytest.fixture
def cache(sound_cache: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound_cache, tmp_path / "cache"))


def bad_lines(outcome: Outcome) -> list[str]:
    return [line for line in outcome.out.splitlines() if line.startswith("bad: ")]


def test_every_bad_shard_gets_one_line_that_says_how_to_repair_it(
    gaam: Gaam,
    cache: Path,
    sound_cache: Path,
    encoders: dict[str, Path],
    dataset: Path,
) -> None:
    shard = next(cache.glob(f"shards/{DAMAGED}-*.h5"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    (cache / f"shards/{UNREADABLE}.json").write_text("{")
    outcome = gaam("verify", cache)
    assert outcome.code == 3
    lines = bad_lines(outcome)
    assert [line.split(": ")[1] for line in lines] == [UNREADABLE, DAMAGED]
    for line in lines:
        assert "gaam extract" in line
        # the file to remove stands last
        receipt = re.findall(r"/\S+\.json", line)[-1]
        Path(receipt).unlink()
    outcome = gaam("verify", cache)
    assert outcome.code == 3
    assert f"{UNREADABLE}, {DAMAGED}" in outcome.out
    assert gaam_cache.verify(cache).missing == (UNREADABLE, DAMAGED)
    assert gaam_cache.extract(config(encoders, dataset, cache)).shards_made == 2
    assert shard_bytes(cache) == shard_bytes(sound_cache)


@pytest.mark.parametrize(
    ("storage_dtype", "pool", "tolerance"),
    [
        ("float16", ("mean",), 1e-3),
        ("float32", ("mean", "last"), 2e-4),
        ("bfloat16", ("max",), 5e-3),
    ],
)
def test_rows_encoded_alone_agree_with_the_cache(
    storage_dtype: Any,
    pool: tuple[Any, ...],
    tolerance: float,
    tiny_config: ExtractConfig,
    gaam: Gaam,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = replace(tiny_config, storage_dtype=storage_dtype, pool=pool, limit=20)
    gaam_cache.extract(config)
    encode_alone = TextEncoder.encode_alone
    num_rows = 0

    def count_and_encode(*arguments: Any) -> Any:
        nonlocal num_rows
        num_rows += 1
        return encode_alone(*arguments)

    monkeypatch.setattr(TextEncoder, "encode_alone", count_and_encode)
    outcome = gaam("verify", config.out, "--recompute", 7, "--json", "-q")
    assert outcome.code == 0, outcome
    # two reference rows before any other
    assert num_rows == 2 + 7
    recomputed = json.loads(outcome.out)["recomputed"]
    assert recomputed["rows"] == 7
    assert len(recomputed["deviation"]) == 3
    limit = recomputed["limit"]
    assert 0 < max(recomputed["deviation"]) <= limit <= tolerance
    assert f"{limit:.1e}" in gaam("verify", config.out, "--recompute", 3).out


def put_the_state_of_another_row(cache: Path) -> None:
    """Change numbers in a shard and let its receipt agree, as a faulty writer would."""
    train = gaam_cache.open_cache(cache)["train"]
    receipt = json.loads((cache / f"shards/{DAMAGED}.json").read_text())
    image = bytearray((cache / "shards" / receipt["file"]).read_bytes())
    spec = receipt["datasets"]["embeddings"]
    count = int(np.prod(spec["shape"]))
    states = np.frombuffer(image, "<f2", count, spec["offset"])
    states.reshape(spec["shape"])[4, 1] = train.embeddings[25, 1]
    replace_shard(cache, DAMAGED, bytes(image))


def test_states_of_another_row_are_found(cache: Path, gaam: Gaam) -> None:
    put_the_state_of_another_row(cache)
    assert gaam_cache.verify(cache).good
    outcome = gaam("verify", cache, "--recompute", 1000)
    assert outcome.code == 3
    [line] = bad_lines(outcome)
    assert line.startswith(f"bad: {DAMAGED}: ")
    assert "row 24," in line
    assert "layer 2," in line


def set_path_of_encoder(cache: Path, path: str) -> None:
    edit_json(cache / "cache.json", lambda plan: plan["encoder"].update(path=path))


def test_another_encoder_is_refused(cache: Path, tmp_path: Path, gaam: Gaam) -> None:
    other = build_encoder(tmp_path / "other", "bert", seed=3)
    set_path_of_encoder(cache, str(other))
    outcome = gaam("verify", cache, "--recompute", 1)
    assert outcome.code == 3
    assert "encoder.files.model.safetensors" in outcome.err


def test_an_encoder_that_is_not_there_is_named(cache: Path) -> None:
    set_path_of_encoder(cache, "/nowhere")
    with pytest.raises(NotFoundError, match="/nowhere"):
        gaam_cache.verify(cache, recompute_rows=1)
