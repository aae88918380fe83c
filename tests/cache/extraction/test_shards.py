"""A receipt without its shard is no shard: extract makes it again, the others stay."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import gaam_cache
from gaam_cache.common.errors import CacheError, GaamWarning
from gaam_cache.config import ExtractConfig
from tests.conftest import shard_bytes

NAME = "train-00002"


def remove(file: Path, receipt: Path) -> None:
    file.unlink()


def cut(file: Path, receipt: Path) -> None:
    os.truncate(file, 100)


def link_to_a_device(file: Path, receipt: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


def break_the_receipt(file: Path, receipt: Path) -> None:
    receipt.write_text("{")


def change_the_receipt(file: Path, receipt: Path) -> None:
    receipt.write_text(receipt.read_text().replace("20", "21", 1))


def exchange_the_receipt(file: Path, receipt: Path) -> None:
    receipt.write_bytes(receipt.with_name("train-00001.json").read_bytes())


DAMAGES = [
    remove,
    cut,
    link_to_a_device,
    break_the_receipt,
    change_the_receipt,
    exchange_the_receipt,
]


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first test puts the cache that all others copy."""
    return tmp_path_factory.mktemp("made") / "cache"


@pytest.fixture
def whole(tiny_config: ExtractConfig, made_once: Path) -> dict[str, bytes]:
    if not made_once.exists():
        gaam_cache.extract(replace(tiny_config, out=made_once))
    shutil.copytree(made_once, tiny_config.out)
    return shard_bytes(tiny_config.out)


def shard_file(config: ExtractConfig, name: str = NAME) -> Path:
    return next((config.out / "shards").glob(f"{name}-*.h5"))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_shard_is_made_again_with_a_warning(
    damage: Callable[[Path, Path], None],
    tiny_config: ExtractConfig,
    whole: dict[str, bytes],
) -> None:
    other_file = shard_file(tiny_config, "train-00000").stat()
    damage(shard_file(tiny_config), tiny_config.out / "shards" / f"{NAME}.json")
    with pytest.raises(CacheError, match=NAME):
        gaam_cache.open_cache(tiny_config.out)
    with pytest.warns(GaamWarning, match=NAME):
        summary = gaam_cache.extract(tiny_config)
    assert (summary.shards_made, summary.rows_made) == (1, 10)
    assert shard_bytes(tiny_config.out) == whole
    assert shard_file(tiny_config, "train-00000").stat() == other_file
