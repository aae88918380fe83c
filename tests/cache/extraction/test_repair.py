"""A receipt that makes no shard exist is no shard: extract makes it again, the others stay."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import CacheError, GaamWarning
from gaam_cache.extraction import repair
from gaam_cache.extraction.repair import discard_broken
from gaam_cache.store.plan import read_plan
from tests.conftest import Outcome, shard_bytes

NAME = "train-00002"


@pytest.fixture
def whole(tiny_config: ExtractConfig) -> dict[str, bytes]:
    gaam_cache.extract(tiny_config)
    return shard_bytes(tiny_config.out)


def file_of(config: ExtractConfig, name: str = NAME) -> Path:
    return next((config.out / "shards").glob(f"{name}-*.h5"))


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda file, receipt: file.unlink(), "the file that the receipt names is not there"),
        (lambda file, receipt: os.truncate(file, 100), "has 100 bytes, the receipt says"),
        (lambda file, receipt: file.write_bytes(b""), "has 0 bytes"),
        (lambda file, receipt: (file.unlink(), os.mkfifo(file)), "not a regular file"),
        (lambda file, receipt: (file.unlink(), file.symlink_to("/dev/zero")), "not a regular file"),
        (lambda file, receipt: receipt.write_text("{"), "Expecting property name"),
        (
            lambda file, receipt: receipt.write_text(receipt.read_text().replace("20", "21", 1)),
            "it was changed",
        ),
        (
            lambda file, receipt: receipt.write_bytes(
                receipt.with_name("train-00001.json").read_bytes()
            ),
            "or to other rows",
        ),
    ],
)
def test_what_is_no_shard_is_made_again_and_said(
    damage: Callable[[Path, Path], object],
    why: str,
    tiny_config: ExtractConfig,
    whole: dict[str, bytes],
) -> None:
    receipt = tiny_config.out / "shards" / f"{NAME}.json"
    damage(file_of(tiny_config), receipt)
    with pytest.raises(CacheError, match=NAME):
        gaam_cache.open_cache(tiny_config.out)
    with pytest.warns(GaamWarning, match=f"{NAME} is made again: (.|\n)*{why}"):
        summary = gaam_cache.extract(tiny_config)
    assert (summary.shards_made, summary.rows_made) == (1, 10)
    assert shard_bytes(tiny_config.out) == whole


def test_many_at_once_and_the_sound_ones_stay(
    tiny_config: ExtractConfig, whole: dict[str, bytes]
) -> None:
    kept = file_of(tiny_config, "train-00000").stat()
    for name in ("train-00001", "train-00003", "test-00000"):
        file_of(tiny_config, name).unlink()
    assert gaam_cache.extract(tiny_config).shards_made == 3
    assert shard_bytes(tiny_config.out) == whole
    assert file_of(tiny_config, "train-00000").stat() == kept


def test_bytes_are_left_to_the_reader_who_says_how_to_repair_them(
    tiny_config: ExtractConfig, whole: dict[str, bytes], gaam: Callable[..., Outcome]
) -> None:
    path = file_of(tiny_config)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert gaam_cache.extract(tiny_config).shards_made == 0
    with pytest.raises(CacheError) as caught:
        gaam_cache.open_cache(tiny_config.out)["train"].labels  # noqa: B018
    remove, rest = caught.value.details["to do"].split(" && gaam ")
    extract = rest.removesuffix(" (gaam verify lists all damage)")
    Path(remove.removeprefix("rm ")).unlink()
    assert gaam(*extract.split(), "--set", "batch-tokens=64", "-q").code == 0
    assert shard_bytes(tiny_config.out) == whole


def test_a_receipt_that_came_in_between_is_put_back(
    tiny_config: ExtractConfig, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another extractor repairs the shard after it was looked at, before it is moved aside."""
    receipt = tiny_config.out / "shards" / f"{NAME}.json"
    good = receipt.read_bytes()
    receipt.write_text("{")
    rename = Path.rename

    def slow_rename(self: Path, target: Path) -> Path:
        if self == receipt:
            receipt.unlink()
            receipt.write_bytes(good)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", slow_rename)
    assert discard_broken(tiny_config.out, read_plan(tiny_config.out)) == {}
    assert shard_bytes(tiny_config.out) == whole


def test_of_several_extractors_one_takes_it_away(
    tiny_config: ExtractConfig, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = tiny_config.out / "shards" / f"{NAME}.json"
    receipt.write_text("{")
    look = repair._fault

    def looked(*arguments: object) -> str | None:
        fault = look(*arguments)
        if fault:
            receipt.unlink()  # the other one was quicker
        return fault

    monkeypatch.setattr(repair, "_fault", looked)
    assert discard_broken(tiny_config.out, read_plan(tiny_config.out)) == {}
    assert not [name for name in shard_bytes(tiny_config.out) if name.endswith(".tmp")]


def test_what_is_no_file_in_the_place_of_a_receipt_is_not_removed(
    tiny_config: ExtractConfig, whole: dict[str, bytes], gaam: Callable[..., Outcome]
) -> None:
    receipt = tiny_config.out / "shards" / f"{NAME}.json"
    receipt.unlink()
    receipt.mkdir()
    (receipt / "mine").write_text("dear")
    with pytest.raises(CacheError, match=r"not a regular file(.|\n)*move .* away"):
        gaam_cache.extract(tiny_config)
    assert (receipt / "mine").read_text() == "dear"
