"""A receipt that makes no shard exist is no shard: extract makes it again, the others stay."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import gaam_cache
from gaam_cache.common.errors import CacheError, GaamWarning
from gaam_cache.config import ExtractConfig
from tests.conftest import shard_bytes

NAME = "train-00002"
DAMAGE: list[Callable[[Path, Path], object]] = [
    lambda file, receipt: file.unlink(),
    lambda file, receipt: os.truncate(file, 100),
    lambda file, receipt: (file.unlink(), file.symlink_to("/dev/zero")),
    lambda file, receipt: receipt.write_text("{"),
    lambda file, receipt: receipt.write_text(
        receipt.read_text().replace("20", "21", 1)
    ),
    lambda file, receipt: receipt.write_bytes(
        receipt.with_name("train-00001.json").read_bytes()
    ),
]


@pytest.fixture
def whole(tiny_config: ExtractConfig) -> dict[str, bytes]:
    gaam_cache.extract(tiny_config)
    return shard_bytes(tiny_config.out)


def file_of(config: ExtractConfig, name: str = NAME) -> Path:
    return next((config.out / "shards").glob(f"{name}-*.h5"))


def test_what_is_no_shard_is_made_again_and_said(
    tiny_config: ExtractConfig, whole: dict[str, bytes]
) -> None:
    kept = file_of(tiny_config, "train-00000").stat()
    for damage in DAMAGE:
        damage(file_of(tiny_config), tiny_config.out / "shards" / f"{NAME}.json")
        with pytest.raises(CacheError, match=NAME):
            gaam_cache.open_cache(tiny_config.out)
        with pytest.warns(GaamWarning, match=NAME):
            summary = gaam_cache.extract(tiny_config)
        assert (summary.shards_made, summary.rows_made) == (1, 10)
        assert shard_bytes(tiny_config.out) == whole
    assert file_of(tiny_config, "train-00000").stat() == kept
